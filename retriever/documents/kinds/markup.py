"""Titles and headings of Org, reStructuredText, AsciiDoc and LaTeX.

Labels are shown as a reader sees them. The text stays as it is written.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterator

from retriever.documents.kinds import Parsed, one_line
from retriever.documents.kinds.plain import numbered_lines, without_data
from retriever.documents.outline import Mark

_DEEPEST = 6
# Maximum length in characters of a heading.
_LONGEST_HEADING = 1000

# Maximum number of unclosed braces of LaTeX; then no more headings are searched for.
_MOST_UNCLOSED = 1000

_ORG_TITLE = re.compile(r"^#\+title:[ \t]*(.*)", re.I | re.M)
_ORG_HEADING = re.compile(r"^(\*+) +(.*)", re.M)
_ORG_STATES = re.compile(r"^#\+(?:todo|seq_todo|typ_todo):(.*)", re.I | re.M)
_ORG_PRIORITY = re.compile(r"^\[#[A-Za-z0-9]{1,2}\] *")
_ORG_TAGS = re.compile(r"[ \t]+:[\w@#%:]+:[ \t]*$")
_ORG_MARKS = (
    (re.compile(r"\[\[[^\[\]]*\]\[([^\[\]]*)\]\]|\[\[([^\[\]]*)\]\]"), r"\1\2"),
    (re.compile(r"<<+[^<>]*>>+|\[fn:[^\[\]]*\]|\[[0-9]*(?:/[0-9]*|%)\]"), ""),
    (re.compile(r"(?<![\w*/_=~+])([*/_=~+])(?=\S)([^\n]*?\S)\1(?![\w*/_=~+])"), r"\2"),
)

_RST_LINE = re.compile(r"([!-/:-@\[-`{-~])\1*[ \t\r]*")
_RST_NO_TITLE = re.compile(r"\s|\.\. |[-*+] |\.\.$|__ ")
_RST_UNSEEN = re.compile(r"\s*$|\.\.(?:\s|$)|\s|:[^:\n]+:")
_RST_MARKS = (
    (re.compile(r"(?::[\w:.+-]+:)?`([^`<]*?)\s*<[^`<>]*>`_{0,2}"), r"\1"),
    (re.compile(r":[\w:.+-]+:`~(?:[^`]*\.)?([^`.]*)`"), r"\1"),
    (re.compile(r":[\w:.+-]+:`!?([^`]*)`"), r"\1"),
    (re.compile(r"``(.+?)``"), r"\1"),
    (re.compile(r"`([^`]*)`_{0,2}"), r"\1"),
    (re.compile(r"(?<![\w*])(\*{1,2})(?=[^\s*])([^*]*[^\s*])\1(?![\w*])"), r"\2"),
    (re.compile(r"(?<!\w)\|([^\s|][^|]*)\|_{0,2}"), r"\1"),
    (re.compile(r"(?<=[^\W_])__?(?!\w)"), ""),
    (re.compile(r"\[[\w#*]+\]_"), ""),
    (re.compile(r"\\(.)"), r"\1"),
)

_ADOC_HEADING = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
_ADOC_BLOCK = re.compile(r"(-{4,}|\.{4,}|\+{4,}|/{4,})|(`{3,}).*")
_ADOC_LINE = re.compile(r"([=~^+-])\1+")
# Lines that may precede a heading directly, and the title.
_ADOC_ABOVE = re.compile(r"$|\[.*\]$|//|:[^:\s]|\.[^\s.]|(?:ifn?def|ifeval|endif|include)::")
_ADOC_ATTRIBUTE = re.compile(r"^:([\w-]+):[ \t]+(.*)", re.M)
_ADOC_REFERENCE = re.compile(r"\{([\w-]+)\}")
_ADOC_MARKS = (
    (re.compile(r"\[\[[^\[\]]*\]\]|\(\(\([^()]*\)\)\)"), ""),
    (re.compile(r"\(\(([^()]*)\)\)"), r"\1"),
    (re.compile(r"<<[^<>,]*,([^<>]*)>>|<<#?([^<>,]*)>>"), r"\1\2"),
    (re.compile(r"(?<!\w)[a-z]+:{1,2}[^\s\[\]]*\[([^\[\],]*)[^\[\]]*\]"), r"\1"),
    (re.compile(r"\[[^\[\]]*\](?=[#*_`])"), ""),
    (re.compile(r"(\*\*|__|``|##|\+\+)(?=\S)(.+?)\1"), r"\2"),
    (re.compile(r"(?<!\w)([*_`#+])(?=\S)([^\n]*?\S)\1(?!\w)"), r"\2"),
)

_TEX_LEVELS = {
    **{"part": 1, "chapter": 2, "section": 3, "subsection": 4, "subsubsection": 5},
    **{"frametitle": 5, "begin{frame}": 5, "paragraph": 6},
}
_TEX_TOKEN = re.compile(
    r"%[^\n]*|\\begin\{(?P<verbatim>verbatim|Verbatim|lstlisting|minted|comment|filecontents)\*?\}"
    r"|\\(?P<name>title|part|chapter|(?:sub){0,2}section|paragraph|frametitle|begin\{frame\})"
    r"(?![a-zA-Z@])\*?\s{0,9}(?:<[^<>\n]{0,99}>)?(?:\[[^\[\]]{0,300}\])?\s{0,9}\{|\\."
)
_TEX_BRACE = re.compile(r"[{}]|\\.|%[^\n]*", re.S)
_TEX_UNSEEN = re.compile(
    "label|index|footnote(?:mark|text)?|thanks|cite[a-z]*|[vh]space|(?:page)?ref|input|color"
    "|fontsize|hypertarget"
)
_TEX_COMMAND = re.compile(r"\\([a-zA-Z]+)\*?\s*(?:\[[^\[\]]*\])?\s*\{([^{}]*)\}")
_TEX_GROUP = re.compile(r"(?<![a-zA-Z*\]}\\])\{([^{}]*)\}")
_TEX_CHOICE = re.compile(r"\\texorpdfstring\s*\{[^{}]*\}\s*\{([^{}]*)\}")
_TEX_ACCENT = re.compile(
    r"""\\(?:(["'`^~=.])|([cvuHrk])(?![a-zA-Z]))\s*(?:\{\\?([a-zA-Z])\}|\\?([a-zA-Z]))"""
)
_ACCENTS = dict(
    zip(
        "\"'`^~=.cvuHrk",
        "\u0308\u0301\u0300\u0302\u0303\u0304\u0307\u0327\u030c\u0306\u030b\u030a\u0328",
        strict=True,
    )
)
_TEX_LETTERS = {
    **{"ss": "ß", "o": "ø", "O": "Ø", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "aa": "å"},
    **{"AA": "Å", "l": "ł", "L": "Ł", "i": "ı", "ldots": "…", "dots": "…", "textendash": "–"},
    **{"LaTeX": "LaTeX", "TeX": "TeX", "LaTeXe": "LaTeX2e", "textemdash": "—", "S": "§"},
}
_TEX_NAME = re.compile(r"\\([a-zA-Z]+)\*?[ \t]*(?:\{\})?")
_TEX_SIGNS = (("---", "—"), ("--", "–"), ("``", "“"), ("''", "”"), ("~", " "), ("$", ""))

_Sections = Callable[[str], Iterator[Mark]]


def read_org(text: str) -> Parsed:
    """Return the text of Org; its title is that of the lines ``#+TITLE:``."""
    title = " ".join(_ORG_TITLE.findall(text))
    return _read_markup(text, _org_headings, _without_marks(title, _ORG_MARKS))


def read_rst(text: str) -> Parsed:
    """Return the text of reStructuredText; a heading at its beginning is its title."""
    return _read_markup(text, _rst_headings, unseen=_RST_UNSEEN)


def read_asciidoc(text: str) -> Parsed:
    """Return the text of AsciiDoc; a heading at its beginning is its title."""
    return _read_markup(text, _asciidoc_headings, unseen=_ADOC_ABOVE)


def read_latex(text: str) -> Parsed:
    r"""LaTeX; its title is the first ``\title``."""
    title = next((label for name, _, label in _tex_commands(text) if name == "title"), "")
    return _read_markup(text, _tex_headings, title)


def _read_markup(
    text: str, headings: _Sections, title: str = "", unseen: re.Pattern[str] | None = None
) -> Parsed:
    """Return a text with its headings; the first is the title if only `unseen` lines precede it."""
    source = without_data(text)
    first = next(headings(source.text), None) if unseen is not None else None
    if unseen is not None and first is not None and first.level == 1:
        above = source.text[: first.offset].split("\n")
        title = first.label if all(map(unseen.match, above)) else ""
    return numbered_lines(source, source.text, title or None, find_headings=headings)


def _without_marks(label: str, marks: tuple[tuple[re.Pattern[str], str], ...]) -> str:
    label = one_line(label)[:_LONGEST_HEADING]
    for pattern, replacement in marks:
        label = pattern.sub(replacement, label)
    return one_line(label)


def _heading_marks(offset: int, label: str, level: int) -> Iterator[Mark]:
    if label:
        yield Mark(offset, "heading", label, min(level, _DEEPEST))


def _org_headings(text: str) -> Iterator[Mark]:
    states = {"TODO", "DONE"}
    for line in _ORG_STATES.findall(text):
        states |= {state.partition("(")[0] for state in line.split()}
    for match in _ORG_HEADING.finditer(text):
        label = _ORG_TAGS.sub("", match[2][:_LONGEST_HEADING].rstrip())
        state, _, rest = label.partition(" ")
        label = rest.strip() if state in states else label
        label = _ORG_PRIORITY.sub("", label)
        yield from _heading_marks(match.start(), _without_marks(label, _ORG_MARKS), len(match[1]))


def _rst_headings(text: str) -> Iterator[Mark]:
    """Yield underlined titles; each style of lines is a level, the first style the highest."""
    styles: list[tuple[bool, str]] = []
    lines = text.split("\n")
    offset = 0
    # Whether the line above is blank, or ends another block than a paragraph.
    is_free = True
    end = -1
    for number, line in enumerate(lines):
        place = offset
        offset += len(line) + 1
        if number <= end:
            is_free = True
            continue
        following = [*lines[number + 1 : number + 3], "", ""]
        is_over = (
            is_free
            and _RST_LINE.fullmatch(line) is not None
            and line.rstrip() == following[1].rstrip()
            and following[0].strip() != ""
            and _RST_LINE.fullmatch(following[0]) is None
        )
        title, under = (following[0], following[1]) if is_over else (line, following[0])
        is_title = is_over or (
            is_free
            and _RST_NO_TITLE.match(line) is None
            and line.strip() != ""
            and _RST_LINE.fullmatch(line) is None
            and _RST_LINE.fullmatch(under) is not None
        )
        length = len(under.rstrip())
        if is_title and (length >= 4 or length >= len(title.strip())):
            style = (is_over, under[0])
            if style not in styles:
                styles.append(style)
            level = styles.index(style) + 1
            yield from _heading_marks(place, _without_marks(title, _RST_MARKS), level)
            end = number + 1 + is_over
        is_free = not line.strip() or line.startswith("..")


def _asciidoc_headings(text: str) -> Iterator[Mark]:
    attributes = dict(_ADOC_ATTRIBUTE.findall(text))

    def label_of(source: str) -> str:
        source = _ADOC_REFERENCE.sub(lambda match: attributes.get(match[1], match[0]), source)
        return html.unescape(_without_marks(source, _ADOC_MARKS))

    offset = 0
    block = ""
    above = ""
    is_underline = False
    lines = text.split("\n")
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        place = offset
        offset += len(line) + 1
        body = line.rstrip()
        is_free = _ADOC_ABOVE.match(above) is not None
        above = body
        if is_underline:
            is_underline = False
            above = ""
            continue
        if block:
            if body == block:
                block = above = ""
            continue
        under = following.rstrip()
        match = _ADOC_HEADING.fullmatch(body) if is_free else None
        if match is not None:
            label = match[2].removesuffix(f" {match[1]}")
            yield from _heading_marks(place, label_of(label[:_LONGEST_HEADING]), len(match[1]))
            above = ""
        elif opened := _ADOC_BLOCK.fullmatch(body):
            block = opened[1] or opened[2]
        elif (
            is_free
            and _ADOC_LINE.fullmatch(under)
            and body[:1].isalnum()
            and abs(len(body) - len(under)) <= 2
            and len(under) > 2
        ):
            yield from _heading_marks(
                place, label_of(body[:_LONGEST_HEADING]), "=-~^+".index(under[0]) + 1
            )
            # The underline begins no block.
            is_underline = True


def _tex_headings(text: str) -> Iterator[Mark]:
    for name, offset, label in _tex_commands(text):
        if name in _TEX_LEVELS:
            yield from _heading_marks(offset, label, _TEX_LEVELS[name])


def _tex_commands(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield name, offset and label of each title and heading outside comments and verbatim text."""
    place = 0
    unclosed = 0
    while (match := _TEX_TOKEN.search(text, place)) is not None:
        place = match.end()
        if environment := match["verbatim"]:
            stop = text.find(f"\\end{{{environment}", place)
            place = len(text) if stop < 0 else stop
        elif (name := match["name"]) is not None:
            stop = _end_of_argument(text, place)
            if stop < 0:
                unclosed += 1
                if unclosed > _MOST_UNCLOSED:
                    return
            else:
                yield name, match.start(), _tex_label(text[place:stop])
                place = stop


def _end_of_argument(text: str, start: int) -> int:
    """Return the offset of the brace that closes the one before `start`; -1 if it is too far."""
    depth = 1
    for match in _TEX_BRACE.finditer(text, start, start + _LONGEST_HEADING):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if not depth:
            return match.start()
    return -1


def _tex_label(source: str) -> str:
    label = one_line(re.sub(r"(?<!\\)%[^\n]*\n?", "", source))
    label = re.sub(r"\\\\(?:\[[^\]]*\])?|\\[,;: ]", " ", label)
    label = re.sub(r"\$([^$]*)\$", lambda match: _TEX_NAME.sub(_math_symbol, match[1]), label)
    label = _TEX_ACCENT.sub(_compose_accent, label)
    before = ""
    while before != label:
        before = label
        label = _TEX_GROUP.sub(r"\1", _TEX_CHOICE.sub(r"\1", label))
        label = _TEX_COMMAND.sub(_visible_argument, label)
    label = _TEX_NAME.sub(lambda match: _TEX_LETTERS.get(match[1], ""), label)
    label = re.sub(r"(?<!\\)[{}]", "", label)
    for sign, replacement in _TEX_SIGNS:
        label = re.sub(rf"(?<!\\){re.escape(sign)}", replacement, label)
    return one_line(re.sub(r"\\([^a-zA-Z])", r"\1", label))


def _visible_argument(match: re.Match[str]) -> str:
    if _TEX_UNSEEN.fullmatch(match[1]):
        return ""
    # A command without an argument, before a group.
    return (
        f"{_TEX_LETTERS.get(match[1], '')}{match[2]}" if match[1] != "texorpdfstring" else match[0]
    )


def _math_symbol(match: re.Match[str]) -> str:
    entity = f"&{match[1]};"
    symbol = html.unescape(entity)
    return match[0] if symbol == entity else symbol


def _compose_accent(match: re.Match[str]) -> str:
    accent = _ACCENTS[match[1] or match[2]]
    return unicodedata.normalize("NFC", (match[3] or match[4]) + accent)
