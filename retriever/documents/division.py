"""The division of text into units, and of units into the words and characters that become terms.

A unit is a run of characters of a script without spaces, or a run of other letters and digits with
the signs that join them in an identifier.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, groupby, pairwise
from typing import Literal, NamedTuple

from retriever.errors import require_extra

CJK = (
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u3096\u309d-\u309f\u30a1-\u30fa"
    "\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d"
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
# Letters and signs of Thai, Lao, Burmese and Khmer.
_SYLLABIC = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u109a-\u109d"
    "\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f\u1780-\u17d3\u17d7\u17dc\u17dd"
)
_HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb"
# Characters that act as marks but are none in Unicode: half-width kana voicing, soft hyphen,
# zero-width joiners.
MARK_LIKE = "\uff9e\uff9f\u00ad\u200c\u200d"
# Invisible characters inside words: grapheme joiner, zero-width spaces, marks of direction.
_INVISIBLE = "\u034f\u061c\u180e\u200b\u200e\u200f\u2060\ufeff"
# Characters used as an apostrophe and as a hyphen. Dashes between words are none.
APOSTROPHES = "'`\u00b4\u02bb\u02bc\u2018\u2019\u201b\uff07"
_HYPHENS = "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d-"
# One form of each of these signs, of the same length.
CANONICAL_SIGNS: Mapping[int, str | None] = {
    **dict.fromkeys(map(ord, APOSTROPHES), "'"),
    **dict.fromkeys(map(ord, _HYPHENS), "-"),
    ord("\uff06"): "&",
}
# The same for a folded word, without invisible characters.
FOLDED_SIGNS = {**CANONICAL_SIGNS, **dict.fromkeys(map(ord, f"\u00ad\u200c\u200d{_INVISIBLE}"))}
_SPACELESS = re.compile(f"[{CJK}{_SYLLABIC}]")
_IS_CJK = re.compile(f"[{CJK}]")
_IS_HANGUL = re.compile(f"[{_HANGUL}]")
# A dotted path, but no number or abbreviation such as "3.5" and "U.S".
_DOTTED = re.compile(r"(?![\d.]+$)[^.]{2,}(\.[^.]{2,})+")
_WORDS = re.compile("[^._]+")
_HUMP = re.compile("[a-z0-9][A-Z]|[A-Z]{2}[a-z]{2}")
_HUMPED = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
# Signs that join words in a unit with whole terms: hyphens, "AT&T", times and addresses of
# machines, dates, "C++17".
_WHOLE_JOINTS = (
    f"[&\uff06{_HYPHENS}]|(?<=[0-9A-Fa-f])::?(?=[0-9A-Fa-f])|(?<=[0-9])/(?=[0-9])"
    r"|(?<=[A-Za-z])\+\+(?=[0-9])"
)
# Maximum number of joints in a term that people type.
_MOST_JOINTS = 15
# Signs before a flag of a command and before a name such as ".NET".
_OPENING = "\\s(\\[{\"'`|“‘"
_PREFIX = rf"(?:-(?<![^{_OPENING}]-)-?(?=[^\W\d_])|\.(?<![^{_OPENING}]\.)(?=[^\W\d_])|)"
_SUFFIX = r"(?:\+\+?(?![\w+#])|#(?![\w+#]))?"
_JOINTS = re.compile(f"[&\uff06:/+#{_HYPHENS}]+")
_ASCII_JOINTS = str.maketrans(dict.fromkeys("&:/+#-", " "))
_BETWEEN_JOINTS = re.compile("[^-&:/+#]+")
# Terms that stay as written. Each begins at a word or a row of digits, so no character is read
# twice.
_PREFIXED = re.compile(r"^(?:--?[^&:/+#]+|\.[^-&:/+#]+)")
_SIGNED = re.compile(r"(?<![^-&:/+#._'])([^-&:/+#._']+(?:\+\+?|#))[0-9]*")
_AND = re.compile("(?<![^-:/+#._'])[A-Za-z0-9]{1,5}(?:&[A-Za-z0-9]{1,5}){1,3}(?![^-:/+#._'])")
_UNUSUAL = re.compile("^[-.]|[&:+#]")
_NUMBERS = re.compile(r"(?<![\d.])\d+([-:/])\d+(?:\1\d+)*(?![\d.])")
_VERSIONS = re.compile(r"(?<!\d)\d+(?:\.\d+)+")
_ADDRESS = re.compile(
    "(?i)(?<![^-./])(?=[0-9:]*[a-f])[0-9a-f]{1,4}(?:::?[0-9a-f]{1,4}){2,7}(?![^-./])"
)
_INITIALS = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]")
# A number with a unit of measure, but no ordinal number.
_MEASURE = re.compile(r"(\d+)(?!(?:st|nd|rd|th)$)([A-Za-zµμ]{1,5})")
# A name with a number, such as "GPT4" and "B12a".
_NUMBERED = re.compile(r"[A-Za-z]{1,12}\d{1,8}[A-Za-z]?")
# Compounds, and the hyphens that a joined compound lacks: those before letters.
_HYPHENED = re.compile("[^&:/+#._']+")
_WORD_OF_COMPOUND = re.compile("[^-]+")
_REMOVED = re.compile(r"-(?!\d)")
_BEFORE_DIGIT = re.compile(r"(?<=[^\W\d_])(?=\d)")
# Scripts from Hebrew to Mongolian do not join words.
_UNJOINED = re.compile("[\u0590-\u1dff]")
# Maximum length of a whole term in characters, and of a compound in words.
LONGEST_WHOLE = 40
_MOST_WORDS = 5
# Numbers of an address; a version has fewer.
_MOST_NUMBERS = 4
# Maximum length of a compound that is always joined, and of a prefix before a longer word, as in
# "co-operation". If all compounds were joined, the postings of SciFact would be 7% larger.
_LONGEST_JOINED = 10
_LONGEST_PREFIX = 4
# Accents to remove from a decomposed word. In Latin and Greek these are all accents, in other
# scripts only those that writers leave out.
_ACCENTS = re.compile(
    "(?<=[A-Za-z\u0370-\u03ff])[\u0300-\u036f]+|(?<=е)\u0308|(?<=[а-яєіў])[\u0300\u0301]"
    "|[\u0591-\u05c7\u0640\u064b-\u0652\u0670]"
)
# A decomposed Hangul syllable. The bounds prevent a row of consonants from being tried at each.
_SYLLABLE = "[\u1100-\u115f]{1,4}[\u1160-\u11a7]{1,4}[\u11a8-\u11ff]{0,4}"
# Maximum number of combining characters in a row that are put in order.
_MOST_COMBINING = 30
_LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "œ": "oe", "þ": "th"} | dict(zip("øłđðı", "olddi", strict=True))
)
# Marks (general category M) and zeros of decimal digits of Unicode 14.0, in hexadecimal, as
# `test_scripts` computes them. With these lists, terms do not depend on the interpreter's version
# of Unicode, and the first text that is not ASCII need not scan all characters.
_MARKS = """
    300-36f 483-489 591-5bd 5bf 5c1-5c2 5c4-5c5 5c7 610-61a 64b-65f 670 6d6-6dc 6df-6e4 6e7-6e8
    6ea-6ed 711 730-74a 7a6-7b0 7eb-7f3 7fd 816-819 81b-823 825-827 829-82d 859-85b 898-89f
    8ca-8e1 8e3-903 93a-93c 93e-94f 951-957 962-963 981-983 9bc 9be-9c4 9c7-9c8 9cb-9cd 9d7
    9e2-9e3 9fe a01-a03 a3c a3e-a42 a47-a48 a4b-a4d a51 a70-a71 a75 a81-a83 abc abe-ac5 ac7-ac9
    acb-acd ae2-ae3 afa-aff b01-b03 b3c b3e-b44 b47-b48 b4b-b4d b55-b57 b62-b63 b82 bbe-bc2
    bc6-bc8 bca-bcd bd7 c00-c04 c3c c3e-c44 c46-c48 c4a-c4d c55-c56 c62-c63 c81-c83 cbc cbe-cc4
    cc6-cc8 cca-ccd cd5-cd6 ce2-ce3 d00-d03 d3b-d3c d3e-d44 d46-d48 d4a-d4d d57 d62-d63 d81-d83
    dca dcf-dd4 dd6 dd8-ddf df2-df3 e31 e34-e3a e47-e4e eb1 eb4-ebc ec8-ecd f18-f19 f35 f37 f39
    f3e-f3f f71-f84 f86-f87 f8d-f97 f99-fbc fc6 102b-103e 1056-1059 105e-1060 1062-1064 1067-106d
    1071-1074 1082-108d 108f 109a-109d 135d-135f 1712-1715 1732-1734 1752-1753 1772-1773 17b4-17d3
    17dd 180b-180d 180f 1885-1886 18a9 1920-192b 1930-193b 1a17-1a1b 1a55-1a5e 1a60-1a7c 1a7f
    1ab0-1ace 1b00-1b04 1b34-1b44 1b6b-1b73 1b80-1b82 1ba1-1bad 1be6-1bf3 1c24-1c37 1cd0-1cd2
    1cd4-1ce8 1ced 1cf4 1cf7-1cf9 1dc0-1dff 20d0-20f0 2cef-2cf1 2d7f 2de0-2dff 302a-302f 3099-309a
    a66f-a672 a674-a67d a69e-a69f a6f0-a6f1 a802 a806 a80b a823-a827 a82c a880-a881 a8b4-a8c5
    a8e0-a8f1 a8ff a926-a92d a947-a953 a980-a983 a9b3-a9c0 a9e5 aa29-aa36 aa43 aa4c-aa4d aa7b-aa7d
    aab0 aab2-aab4 aab7-aab8 aabe-aabf aac1 aaeb-aaef aaf5-aaf6 abe3-abea abec-abed fb1e fe00-fe0f
    fe20-fe2f 101fd 102e0 10376-1037a 10a01-10a03 10a05-10a06 10a0c-10a0f 10a38-10a3a 10a3f
    10ae5-10ae6 10d24-10d27 10eab-10eac 10f46-10f50 10f82-10f85 11000-11002 11038-11046 11070
    11073-11074 1107f-11082 110b0-110ba 110c2 11100-11102 11127-11134 11145-11146 11173
    11180-11182 111b3-111c0 111c9-111cc 111ce-111cf 1122c-11237 1123e 112df-112ea 11300-11303
    1133b-1133c 1133e-11344 11347-11348 1134b-1134d 11357 11362-11363 11366-1136c 11370-11374
    11435-11446 1145e 114b0-114c3 115af-115b5 115b8-115c0 115dc-115dd 11630-11640 116ab-116b7
    1171d-1172b 1182c-1183a 11930-11935 11937-11938 1193b-1193e 11940 11942-11943 119d1-119d7
    119da-119e0 119e4 11a01-11a0a 11a33-11a39 11a3b-11a3e 11a47 11a51-11a5b 11a8a-11a99
    11c2f-11c36 11c38-11c3f 11c92-11ca7 11ca9-11cb6 11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45
    11d47 11d8a-11d8e 11d90-11d91 11d93-11d97 11ef3-11ef6 16af0-16af4 16b30-16b36 16f4f
    16f51-16f87 16f8f-16f92 16fe4 16ff0-16ff1 1bc9d-1bc9e 1cf00-1cf2d 1cf30-1cf46 1d165-1d169
    1d16d-1d172 1d17b-1d182 1d185-1d18b 1d1aa-1d1ad 1d242-1d244 1da00-1da36 1da3b-1da6c 1da75
    1da84 1da9b-1da9f 1daa1-1daaf 1e000-1e006 1e008-1e018 1e01b-1e021 1e023-1e024 1e026-1e02a
    1e130-1e136 1e2ae 1e2ec-1e2ef 1e8d0-1e8d6 1e944-1e94a e0100-e01ef
"""
_ZEROS = """
    660 6f0 7c0 966 9e6 a66 ae6 b66 be6 c66 ce6 d66 de6 e50 ed0 f20 1040 1090 17e0 1810 1946 19d0
    1a80 1a90 1b50 1bb0 1c40 1c50 a620 a8d0 a900 a9d0 a9f0 aa50 abf0 ff10
"""


NormalForm = Literal["NFC", "NFD", "NFKC"]


class Piece(NamedTuple):
    """A part of a unit. A word is stemmed; any other piece is a term as it is."""

    text: str
    start: int
    stop: int
    is_word: bool


@cache
def word_pattern(
    ascii_only: bool, splits_apostrophe: bool, is_plain: bool, is_whole: bool = False
) -> re.Pattern[str]:
    """Return the pattern of a unit, or of a word for the division ``plain``.

    ASCII text has a faster pattern. With `is_whole`, a unit continues at hyphens and other signs
    inside a term; see `whole_pieces`.
    """
    apostrophes = "" if splits_apostrophe else APOSTROPHES if is_whole else "'’"
    joints = [] if is_plain else [r"\.?_+", r"\."]
    joints += [f"[{apostrophes}]"] if apostrophes else []
    # Most words end here, without the slower pattern of longer units.
    signs = "._" + apostrophes + (f"&:/+#{_HYPHENS}" if is_whole else "")
    alone = f"[A-Za-z0-9]++(?![{signs}]" + ("" if ascii_only else r"|[^\x00-\x7f]") + ")|"
    spaceless = ""
    run = "[A-Za-z0-9]+"
    if not ascii_only:
        marks = f"[{mark_ranges()}{MARK_LIKE}]"
        inside = f"[{mark_ranges()}{MARK_LIKE}{_INVISIBLE}]" if is_whole else marks
        letters = rf"[^\W_{CJK}{'' if is_plain else _SYLLABIC}{MARK_LIKE}]"
        run = f"{letters}+(?:{inside}+{letters}*)*"
        spaceless = f"[{CJK}](?:[{CJK}]|{marks})*|[{_SYLLABIC}](?:[{_SYLLABIC}]|{marks})*|"
        if is_plain:
            spaceless = f"[{CJK}]{marks}*|"
    more = f"(?:(?:{'|'.join(joints)}){run})*" if joints else ""
    unit = run + more
    if is_whole:
        further = f"(?:(?:{_WHOLE_JOINTS}){unit}){{0,{_MOST_JOINTS}}}"
        unit = _PREFIX + unit + further + _SUFFIX
    return re.compile(alone + spaceless + unit)


def separate_units(units: Iterable[str]) -> list[str]:
    """Return the parts of units, divided as `unit_parts` does."""
    text = " ".join(units)
    # `str.translate` is fast for ASCII only.
    text = text.translate(_ASCII_JOINTS) if text.isascii() else _JOINTS.sub(" ", text)
    return text.replace(" .", " ").removeprefix(".").split()


def unit_parts(unit: str) -> tuple[str, list[tuple[str, int]]]:
    """Return a unit with `CANONICAL_SIGNS`, and its words and identifiers with their offsets."""
    form = unit.replace("`", "'") if unit.isascii() else unit.translate(CANONICAL_SIGNS)
    if form.isalnum():
        return form, [(form, 0)]
    parts = [(match.group(), match.start()) for match in _BETWEEN_JOINTS.finditer(form)]
    return form, [
        (part[1:], start + 1) if part[0] == "." else (part, start) for part, start in parts
    ]


def whole_pieces(unit: str) -> Iterator[Piece]:
    """Yield the terms of a unit with `CANONICAL_SIGNS` that its parts do not have.

    Some stay as written, such as ``2024-05-01``, ``c++`` and ``--no-cache``. Words with hyphens
    between them are joined: ``email``, ``gpt-4``.
    """
    patterns = [_NUMBERS]
    if _UNUSUAL.search(unit):
        patterns += [_PREFIXED, _SIGNED, _AND, _ADDRESS]
    for pattern in patterns:
        for match in pattern.finditer(unit):
            if _normal_length(match) <= LONGEST_WHOLE:
                yield Piece(match.group(), *match.span(), False)
                if pattern is _SIGNED and match.end(1) < match.end():
                    yield Piece(match[1], *match.span(1), False)
    if "-" in unit and not _UNJOINED.search(unit):
        yield from _compound_pieces(unit)


def _compound_pieces(unit: str) -> Iterator[Piece]:
    """Yield the compounds of a unit as single words."""
    for match in _HYPHENED.finditer(unit):
        words = list(_WORD_OF_COMPOUND.finditer(match.group()))
        if not 1 < len(words) <= _MOST_WORDS or _normal_length(match) > LONGEST_WHOLE:
            continue
        # All words together, and each pair of neighbors.
        for first, last in dict.fromkeys([(words[0], words[-1]), *pairwise(words)]):
            start = match.start() + first.start()
            stop = match.start() + last.end()
            text = join_compound(unit[start:stop], len(words) > 2)
            if text and not text.replace("-", "").isdigit():
                yield Piece(text, start, stop, "-" not in text)


def join_compound(compound: str, is_long: bool = False) -> str:
    """Return a hyphened compound as one word: ``email``, ``gpt-4``; empty if it is never joined.

    Short compounds are joined, and those with a prefix unless they belong to a longer compound.
    Digits keep the hyphen before them: "5-10" is not 510, and "GPT4" is ``gpt-4`` too.
    """
    text = normalize("NFC", compound)
    prefix = text.partition("-")[0]
    joined = _hyphenate_digits(text)
    is_prefixed = len(prefix) <= _LONGEST_PREFIX and prefix.isalpha() and not prefix.isupper()
    return joined if len(joined) <= _LONGEST_JOINED or (is_prefixed and not is_long) else ""


def _normal_length(match: re.Match[str]) -> int:
    """Return the length of a match in NFC."""
    return len(normalize("NFC", match.group()))


def _hyphenate_digits(word: str) -> str:
    """Return a word with hyphens only before digits."""
    return _BEFORE_DIGIT.sub("-", _REMOVED.sub("", word))


def divide(unit: str, division: str, is_whole: bool = False) -> Iterator[Piece]:
    """Yield the pieces of a unit with their offsets; the division ``plain`` yields the unit.

    With `is_whole`, the unit is one of `unit_parts`, and there are more pieces: ``3.11.2``, ``usa``
    of "U.S.A", ``5`` and ``kg`` of "5kg", ``gpt-4`` of "GPT4".
    """
    if division == "plain":
        yield Piece(unit, 0, len(unit), True)
        return
    if _SPACELESS.match(unit):
        size = 2 if _IS_CJK.match(unit) else 3
        characters = _character_pieces(unit, "NFKC" if size == 2 else "NFC")
        yield from _spaceless_pieces(characters, size, division == "icu")
        return
    if "_" in unit or ("." in unit and _DOTTED.fullmatch(normalize("NFC", unit))):
        yield Piece(unit, 0, len(unit), False)
        yield from _identifier_pieces(unit)
    for match in _WORDS.finditer(unit):
        yield from _word_pieces(match.group(), match.start(), is_whole)
    if is_whole and "." in unit:
        yield from _dotted_pieces(unit)
    elif is_whole and _NUMBERED.fullmatch(unit):
        # "GPT4" shares this term with "GPT-4".
        yield Piece(_hyphenate_digits(unit), 0, len(unit), False)


def _word_pieces(word: str, start: int, is_whole: bool) -> Iterator[Piece]:
    """Yield a word at offset `start` of a unit, and the parts that are terms of their own."""
    yield Piece(word, start, start + len(word), True)
    if is_whole and word[0].isdigit() and (measure := _MEASURE.fullmatch(word)):
        yield Piece(measure[1], start, start + measure.end(1), False)
        yield Piece(measure[2], start + measure.start(2), start + len(word), True)
    elif word.isascii() and _HUMP.search(word):
        for part in _HUMPED.finditer(word):
            if len(part.group()) > 1:
                yield Piece(part.group(), start + part.start(), start + part.end(), True)
    elif _IS_HANGUL.match(word):
        characters = _character_pieces(word, "NFC")
        for piece in _character_ngrams(characters, 2) if len(characters) > 1 else ():
            yield piece._replace(start=start + piece.start, stop=start + piece.stop)


def _identifier_pieces(path: str) -> Iterator[Piece]:
    """Yield the names with underscores in a dotted path."""
    for match in re.finditer(r"[^.]+", path if "." in path else ""):
        name = match.group().strip("_")
        if "_" in name:
            start = match.start() + match.group().index(name)
            yield Piece(name, start, start + len(name), False)


def _dotted_pieces(unit: str) -> Iterator[Piece]:
    """Yield the versions and decimal numbers in a part of a unit, or its initials joined."""
    for match in _VERSIONS.finditer(unit):
        if match.end() - match.start() <= LONGEST_WHOLE:
            yield Piece(match.group(), *match.span(), False)
            # A version is also found by its first numbers, an address is not.
            dots = [dot.start() for dot in re.finditer(r"\.", match.group())]
            for dot in dots[1:] if len(dots) < _MOST_NUMBERS else ():
                yield Piece(match.group()[:dot], match.start(), match.start() + dot, False)
    if _INITIALS.fullmatch(unit) and len(unit) <= LONGEST_WHOLE:
        yield Piece(unit.replace(".", ""), 0, len(unit), True)


def _spaceless_pieces(characters: list[Piece], size: int, with_words: bool) -> Iterator[Piece]:
    """Yield words, single characters where pairs are made, and pairs or triples."""
    if with_words:
        first = 0
        for word in _word_breaker()("".join(character.text for character in characters), "und"):
            last = first + len(word) - 1
            yield Piece(word, characters[first].start, characters[last].stop, False)
            first = last + 1
    if size == 2:
        yield from characters
    if size > 2 or len(characters) > 1:
        yield from _character_ngrams(characters, size)


def _character_ngrams(characters: list[Piece], size: int) -> Iterator[Piece]:
    for first in range(max(1, len(characters) - size + 1)):
        part = characters[first : first + size]
        yield Piece(
            "".join(character.text for character in part), part[0].start, part[-1].stop, False
        )


def _character_pieces(run: str, form: NormalForm) -> list[Piece]:
    """Return the characters of the normal form of a run, each with the offsets of its cluster."""
    return [
        Piece(character, *match.span(), False)
        for match in _cluster_pattern().finditer(run)
        for character in normalize(form, match.group())
    ]


@cache
def _word_breaker() -> Callable[[str, str], Iterable[str]]:
    """Return ICU's function that divides a run of a script without spaces into words."""
    require_extra("scripts", "the analyzer of an index with words found by ICU", "icu4py")
    from icu4py.breakers import WordBreaker

    words: Callable[[str, str], Iterable[str]] = WordBreaker
    return words


def without_accents(word: str) -> str:
    """Return a folded word without accents, as people type it who leave them out."""
    bare = _ACCENTS.sub("", normalize("NFD", word)).translate(_LETTERS)
    return normalize("NFC", bare)


def normalize(form: NormalForm, text: str) -> str:
    """Return a text in a normal form, with at most 30 combining characters in a row.

    Python takes quadratic time to put them in order, and no language needs more of them (Unicode
    Standard Annex 15, section 12.2).
    """
    if len(text) > _MOST_COMBINING and not text.isascii():
        # The sample has three neighbors of any longer row. For most texts it settles the question.
        sample = bytes(map(bool, map(unicodedata.combining, text[:: _MOST_COMBINING // 3])))
        if b"\1\1\1" in sample or "\uff9e" in text or "\uff9f" in text:
            text = _combining_row_pattern().sub(lambda row: row[0][:_MOST_COMBINING], text)
    return unicodedata.normalize(form, text)


@cache
def _combining_row_pattern() -> re.Pattern[str]:
    """Return the pattern of too many combining characters in a row.

    Half-width voicing marks become combining characters in NFKC.
    """
    combining = _combining_characters() + "\uff9e\uff9f"
    # A pattern that begins with a set is several times as fast to search for.
    return re.compile(f"[{combining}][{combining}]{{{_MOST_COMBINING},}}")


@cache
def _cluster_pattern() -> re.Pattern[str]:
    """Return the pattern of a character with its marks and subjoined letters, or of a syllable.

    A syllable is one of decomposed Hangul.
    """
    marks = f"(?:[{mark_ranges()}{MARK_LIKE}]|(?<=[\u1039\u17d2]).)"
    return re.compile(f"(?s:{_SYLLABLE}|.){marks}*")


@cache
def ascii_digits() -> dict[int, str]:
    """Return a table for `str.translate` with the decimal digits of all scripts of plane 0."""
    zeros = [int(code, 16) for code in _ZEROS.split()]
    return {zero + digit: str(digit) for zero in zeros for digit in range(10)}


@cache
def mark_ranges() -> str:
    """Return the marks of Unicode, for which `re` has no name, as the inside of a set."""
    runs = [[chr(int(code, 16)) for code in run.split("-")] for run in _MARKS.split()]
    return "".join(map("-".join, runs))


def _combining_characters() -> str:
    """Return the combining characters as the inside of a set."""
    # Planes 2 to 13 hold ideographs or nothing, the last two are private.
    planes = chain(range(0x300, 0x20000), range(0xE0000, 0xF0000))
    members = [character for character in map(chr, planes) if unicodedata.combining(character)]
    runs = (
        list(run) for _, run in groupby(enumerate(members), lambda pair: ord(pair[1]) - pair[0])
    )
    return "".join(f"{run[0][1]}-{run[-1][1]}" for run in runs)
