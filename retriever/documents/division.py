"""From a text to units, and from a unit to the words and characters that become terms.

A unit is a run of a script without spaces, or of other letters and digits with what joins them in
an identifier.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain, groupby
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
# Marks that Unicode does not call marks: half-width kana voicing, soft hyphen, zero-width joiners.
LIKE_MARKS = "\uff9e\uff9f\u00ad\u200c\u200d"
_SPACELESS = re.compile(f"[{CJK}{_SYLLABIC}]")
_IS_CJK = re.compile(f"[{CJK}]")
_IS_HANGUL = re.compile(f"[{_HANGUL}]")
# Not numbers and abbreviations, such as "3.5" and "U.S".
_DOTTED = re.compile(r"(?![\d.]+$)[^.]{2,}(\.[^.]{2,})+")
_WORDS = re.compile("[^._]+")
_HUMP = re.compile("[a-z0-9][A-Z]|[A-Z]{2}[a-z]{2}")
_HUMPED = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
# What is left of a decomposed Latin or Greek word without accents; of other scripts only what
# their writers leave out.
_ACCENTS = re.compile(
    "(?<=[A-Za-z\u0370-\u03ff])[\u0300-\u036f]+|(?<=е)\u0308|(?<=[а-яєіў])[\u0300\u0301]"
    "|[\u0591-\u05c7\u0640\u064b-\u0652\u0670]"
)
# A decomposed Hangul syllable; bounded, since each of a row of consonants could begin one.
_SYLLABLE = "[\u1100-\u115f]{1,4}[\u1160-\u11a7]{1,4}[\u11a8-\u11ff]{0,4}"
# Combining characters in a row that are put in order.
_MOST_COMBINING = 30
_LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "œ": "oe", "þ": "th"} | dict(zip("øłđðı", "olddi", strict=True))
)


NormalForm = Literal["NFC", "NFD", "NFKC"]


class Piece(NamedTuple):
    """A part of a unit; a word is to be stemmed, all else is a term as it is."""

    text: str
    start: int
    stop: int
    is_word: bool


@cache
def word_pattern(ascii_only: bool, splits_apostrophe: bool, is_plain: bool) -> re.Pattern[str]:
    """What a unit is, or by the division ``plain`` a word; ASCII text is read faster."""
    apostrophes = "" if splits_apostrophe else "'’"
    joints = [] if is_plain else [r"\.?_+", r"\."]
    joints += [f"[{apostrophes}]"] if apostrophes else []
    # Most words end here, without what makes longer units slow.
    alone = f"[A-Za-z0-9]++(?![._{apostrophes}]" + ("" if ascii_only else r"|[^\x00-\x7f]") + ")|"
    spaceless, run = "", "[A-Za-z0-9]+"
    if not ascii_only:
        marks = f"[{mark_ranges()}{LIKE_MARKS}]"
        letters = rf"[^\W_{CJK}{'' if is_plain else _SYLLABIC}{LIKE_MARKS}]"
        run = f"{letters}+(?:{marks}+{letters}*)*"
        spaceless = f"[{CJK}](?:[{CJK}]|{marks})*|[{_SYLLABIC}](?:[{_SYLLABIC}]|{marks})*|"
        if is_plain:
            spaceless = f"[{CJK}]{marks}*|"
    more = f"(?:(?:{'|'.join(joints)}){run})*" if joints else ""
    return re.compile(alone + spaceless + run + more)


def divide(unit: str, division: str) -> Iterator[Piece]:
    """The pieces of a unit with their places: itself, if the division is ``plain``."""
    if division == "plain":
        yield Piece(unit, 0, len(unit), True)
        return
    if _SPACELESS.match(unit):
        size = 2 if _IS_CJK.match(unit) else 3
        characters = _characters(unit, "NFKC" if size == 2 else "NFC")
        yield from _spaceless(characters, size, division == "icu")
        return
    if "_" in unit or ("." in unit and _DOTTED.fullmatch(normalized("NFC", unit))):
        yield Piece(unit, 0, len(unit), False)
        for match in re.finditer(r"[^.]+", unit if "." in unit else ""):
            named = match.group().strip("_")
            if "_" in named:
                start = match.start() + match.group().index(named)
                yield Piece(named, start, start + len(named), False)
    for match in _WORDS.finditer(unit):
        word, start = match.group(), match.start()
        yield Piece(word, start, match.end(), True)
        if word.isascii() and _HUMP.search(word):
            for part in _HUMPED.finditer(word):
                if len(part.group()) > 1:
                    yield Piece(part.group(), start + part.start(), start + part.end(), True)
        elif _IS_HANGUL.match(word):
            characters = _characters(word, "NFC")
            for piece in _grams(characters, 2) if len(characters) > 1 else ():
                yield piece._replace(start=start + piece.start, stop=start + piece.stop)


def _spaceless(characters: list[Piece], size: int, with_words: bool) -> Iterator[Piece]:
    """Words, single characters where pairs are made, and pairs or triples."""
    if with_words:
        first = 0
        for word in _word_breaker()("".join(one.text for one in characters), "und"):
            last = first + len(word) - 1
            yield Piece(word, characters[first].start, characters[last].stop, False)
            first = last + 1
    if size == 2:
        yield from characters
    if size > 2 or len(characters) > 1:
        yield from _grams(characters, size)


def _grams(characters: list[Piece], size: int) -> Iterator[Piece]:
    for first in range(max(1, len(characters) - size + 1)):
        part = characters[first : first + size]
        yield Piece("".join(one.text for one in part), part[0].start, part[-1].stop, False)


def _characters(run: str, form: NormalForm) -> list[Piece]:
    """The characters of the normal form of a run, each with the place of its cluster."""
    return [
        Piece(character, *match.span(), False)
        for match in _clusters().finditer(run)
        for character in normalized(form, match.group())
    ]


@cache
def _word_breaker() -> Callable[[str, str], Iterable[str]]:
    """What finds words by ICU's dictionaries in a run of a script without spaces."""
    require_extra("scripts", "the analyzer of an index with words found by ICU", "icu4py")
    from icu4py.breakers import WordBreaker

    words: Callable[[str, str], Iterable[str]] = WordBreaker
    return words


def without_accents(word: str) -> str:
    """A folded word as people type it who leave out accents."""
    bare = _ACCENTS.sub("", normalized("NFD", word)).translate(_LETTERS)
    return normalized("NFC", bare)


def normalized(form: NormalForm, text: str) -> str:
    """A text in a normal form, without more than 30 combining characters in a row.

    Putting them in order takes Python quadratic time, and no language needs more of them (Unicode
    Standard Annex 15, section 12.2).
    """
    if len(text) > _MOST_COMBINING and not text.isascii():
        # Three of a longer row are neighbors in this sample, with which most texts are done.
        sample = bytes(map(bool, map(unicodedata.combining, text[:: _MOST_COMBINING // 3])))
        if b"\1\1\1" in sample or "\uff9e" in text or "\uff9f" in text:
            text = _combining_rows().sub(lambda row: row[0][:_MOST_COMBINING], text)
    return unicodedata.normalize(form, text)


@cache
def _combining_rows() -> re.Pattern[str]:
    """Too many characters in a row that are put in order; half-width voicing marks become such."""
    combining = _ranges(unicodedata.combining) + "\uff9e\uff9f"
    # A pattern that begins with a set is searched for several times as fast.
    return re.compile(f"[{combining}][{combining}]{{{_MOST_COMBINING},}}")


@cache
def _clusters() -> re.Pattern[str]:
    """A character with its marks and what stands below it; a decomposed Hangul syllable."""
    marks = f"(?:[{mark_ranges()}{LIKE_MARKS}]|(?<=[\u1039\u17d2]).)"
    return re.compile(f"(?s:{_SYLLABLE}|.){marks}*")


@cache
def ascii_digits() -> dict[int, str]:
    """The decimal digits of all scripts of the first plane, as a table for `str.translate`."""
    digits = (code for code in range(0x660, 0xFFFF) if chr(code).isdecimal())
    return {code: str(unicodedata.decimal(chr(code))) for code in digits}


@cache
def mark_ranges() -> str:
    """The marks of Unicode, for which `re` has no name, as the inside of a set."""
    return _ranges(lambda character: unicodedata.category(character)[0] == "M")


def _ranges(is_in: Callable[[str], object]) -> str:
    """The characters for which something holds, as the inside of a set."""
    # Planes 2 to 13 hold ideographs or nothing, the last two are private.
    planes = chain(range(0x300, 0x20000), range(0xE0000, 0xF0000))
    members = [character for character in map(chr, planes) if is_in(character)]
    runs = (
        list(run) for _, run in groupby(enumerate(members), lambda pair: ord(pair[1]) - pair[0])
    )
    return "".join(f"{run[0][1]}-{run[-1][1]}" for run in runs)
