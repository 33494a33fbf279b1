"""Equations as a line of text: MathML of HTML and OpenDocument, and OMML of Office."""

from __future__ import annotations

from typing import Any

# Elements with letters and signs; two words are separated by a space.
_WORDS = frozenset(("mi", "mn", "ms", "mtext"))
_TOKENS = _WORDS | {"mo", "t"}
# Another form of the same equation, or its appearance.
_SKIPPED = frozenset(("annotation", "annotation-xml", "mphantom"))
# Signs between the first and second part, and between the second and third.
_SIGNS = {
    "f": ("/",),
    "mfrac": ("/",),
    "sSup": ("^",),
    "msup": ("^",),
    "sSub": ("",),
    "msub": ("",),
    "sSubSup": ("", "^"),
    "msubsup": ("", "^"),
    "munder": (" ",),
    "mover": (" ",),
    "munderover": (" ", "^"),
    "limLow": (" ",),
    "limUpp": (" ",),
    "func": (" ",),
}
# Separators between the parts of other elements, however many there are.
_SEPARATORS = {"mtr": " ", "mr": " ", "mtable": "; ", "m": "; ", "eqArr": "; ", "oMathPara": " "}
# The characters of the font Symbol, from 0x20 and from 0xA0 on.
_SYMBOLS = {
    0x20: (
        " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_"
        " αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼"
    ),
    0xA0: "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…|—↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊",
}


def local_name(element: Any) -> str:
    """Return the name of an element without its namespace; empty for comments and the like."""
    tag = element.tag
    return tag.rpartition("}")[2].rpartition(":")[2] if isinstance(tag, str) else ""


def attribute(element: Any, name: str) -> str:
    """Return an attribute of any namespace; empty if there is none."""
    for key, value in element.attrib.items():
        if key.rpartition("}")[2] == name:
            return str(value)
    return ""


def equation_text(root: Any) -> str:
    """Return an equation in reading order, with signs for fractions, powers and roots."""
    from lxml import etree

    # For each open element, the names and texts of its parts.
    levels: list[list[tuple[str, str]]] = [[]]
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        name = local_name(element)
        is_skipped = name in _SKIPPED or name.endswith("Pr")
        if event == "start":
            levels.append([])
            if name in _TOKENS or is_skipped:
                walk.skip_subtree()
            continue
        parts = levels.pop()
        is_token = name in _TOKENS or not len(element)
        text = "".join(element.itertext()) if is_token else _join_parts(element, name, parts)
        if text and not is_skipped:
            levels[-1].append((name, text))
    return " ".join("".join(text for _, text in levels[0]).split())


def symbol(code: int) -> str:
    """Return the character with a code in the font Symbol; empty if there is none."""
    # Office adds 0xF000 to the codes of symbol fonts.
    code -= 0xF000 if code >= 0xF000 else 0
    for first, characters in _SYMBOLS.items():
        if first <= code < first + len(characters):
            return characters[code - first]
    return ""


def _join_parts(element: Any, name: str, parts: list[tuple[str, str]]) -> str:
    """Return the text of an element from the names and texts of its parts."""
    texts = [text for _, text in parts]
    if name in ("msqrt", "mroot", "rad"):
        return "√" + _bracket(_join_line(parts))
    if name == "d":
        start = _property(element, "begChr", "(")
        end = _property(element, "endChr", ")")
        return start + ", ".join(texts) + end
    if name == "nary":
        return " ".join((_property(element, "chr", "∫"), *texts))
    if name in _SEPARATORS:
        return _SEPARATORS[name].join(texts)
    if name in _SIGNS and texts:
        line = _bracket(texts[0]) if _SIGNS[name] == ("/",) else texts[0]
        for sign, text in zip(_SIGNS[name], texts[1:], strict=False):
            # A letter or digit below the line is part of a name, as in H2O.
            space = "" if sign or len(text) == 1 else " "
            line += sign + space + (_bracket(text) if sign in ("/", "^") else text)
        return line
    return _join_line(parts)


def _join_line(parts: list[tuple[str, str]]) -> str:
    """Join parts beside each other; words are separated, and names of one letter are not."""
    line = ""
    word = ""
    for part, text in parts:
        line += " " if word and part in _WORDS and len(word) + len(text) > 2 else ""
        line += text
        word = text if part in _WORDS else ""
    return line


def _bracket(text: str) -> str:
    """Return a text in brackets, unless it is one word."""
    return text if text.isalnum() else f"({text})"


def _property(element: Any, name: str, default: str) -> str:
    """Return the sign in the properties of an OMML element."""
    values = element.xpath(f"*/*[local-name()='{name}']/@*[local-name()='val']")
    return str(values[0]) if values else default
