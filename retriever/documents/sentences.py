"""Ends of sentences in many languages, apart from abbreviations and dates."""

from __future__ import annotations

import re
from collections.abc import Iterator

# A sentence ends at closing punctuation before white space, or at a full stop of a script without
# spaces. It also ends at a line break before a new paragraph, list item or row.
_STOPS = "।॥။។།።"
SENTENCE_END = re.compile(
    rf"[.!?…؟۔։．{_STOPS}][\"'”’)\]]*\s+|[。！？{_STOPS}]+|．(?!\d)|\n\s*\n|\n(?=\s*[-*#>|])"
)
# The end of a sentence that is read by itself, before a possible beginning or a blank line.
_ENDING = re.compile(
    r"""(?:(?<=[.!?…])|(?<=[.!?…]["'”’)\]]))\s++(?=["'“‘(\[]*[^\W_a-zß-öø-ÿα-ώа-џ])"""
    r"""|(?<=[。！？।॥။។۔؟])|(?<=[\u0e01-\u0edf])[ \u00a0]++|\n[^\S\n]*+\n"""
)
# Characters of the shortest sentence in Thai and Lao, which have spaces between clauses.
_CLAUSE = 40


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Abbreviations, without their last stop and in lower case, that end no sentence.
_LEADING = _words(
    """
    mr mrs ms mx messrs dr drs prof sgt capt cpl cpt lt col maj cmdr adm rev hon gov mt ft fig
    figs eq eqs vs cf viz approx e.g i.e a.k.a hr hrn frl dipl ing abb vgl bzw ca evtl ggf bspw sog
    z.b d.h u.a v.a i.d.r o.g s.o sra srta srs sres dra dña ud uds p.ej mme mlle mgr p.ex sig
    dott avv dhr mevr bijv d.w.z t.ex np tzw ul ст см им ул т.е напр tj např tzv
    """
)
# Abbreviations that end a sentence if a word follows with which sentences begin.
_CLOSING = _words(
    """
    etc inc ltd co corp jr sr st ave blvd rd al gen sen rep pres ed eds trans usw ff mio mrd str tel
    tbd med jur phil fr ee uu ecc ss av г др пр
    """
)
# Abbreviations that end no sentence before a number.
_NUMBERED = _words(
    """
    no nos nr nrn abs art sec sect chap ch kap ziff vol vols bd p pp s pg pág págs núm num aufl rn
    jan feb mar mär apr jun jul aug sep sept oct okt nov dec dez anm par стр рис n° č mai juin juil
    """
)
# Words with which sentences begin more often than names.
_BEGINNINGS = _words(
    """
    A An And After All Also As At Before But By For From Given He Her Here His How However I If In
    Is It Its My No Not Now On One Or Our She Since So Some That The Their Then There These They
    This Those Thus To Under We What When Where While Who Why With Yes You Your
    Aber Als Am Auch Auf Aus Bei Da Damit Dann Das Dem Den Der Des Die Dies Diese Dieser Dieses Ein
    Eine Er Es Für Hier Ich Ihr Im Ist Man Mit Nach Nur Oder Seit Sie Und Von Wenn Wer Wie Wir Zu
    Au Aux Ce Ces Cette Dans Elle Elles En Et Il Ils Je La Le Les Mais Nous On Par Pour Un Une Vous
    Con Cuando Del El Ella Ellos Era Es Esta Este Las Los Para Pero Por Se Si Su Una Ya
    Di È Gli Lo Ma Nel Non Per Ao Com Ele Ela Foi Mas Não Na No O Os Um Uma Het De Een Maar
    """
)
_MONTHS = _words(
    """
    januar jänner februar märz april mai juni juli august september oktober november dezember jan
    januari februari mars maj augusti desember feb apr aug sept sep okt nov dez
    """
)
# Words before an ordinal number: "der 2. Weltkrieg", "am 5. Mai".
_BEFORE_ORDINALS = _words(
    "am der die das dem den des im zum zur vom beim ab bis seit ein eine einem einen einer"
)
_AFTER_ORDINALS = ("Jahrhundert", "Auflage", "Weltkrieg")
_NEXT_WORD = re.compile(r"[^\w\n]*(\w+)")
# Characters before a full stop that are inspected.
_BACK = 24
_OPENING = "([{\"'“‘„«‹¿¡*_"


def sentence_ends(text: str) -> Iterator[int]:
    """Yield the ends of sentences, each with the white space after it; ascending."""
    for match in SENTENCE_END.finditer(text):
        if text[match.start()] != "." or not _is_abbreviation(text, match.start(), match.end()):
            yield match.end()


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return the (start, stop) of each sentence of a text, without the white space around it."""
    spans: list[tuple[int, int]] = []
    start = 0
    goes_on = False
    for stop, following in [*(match.span() for match in _ENDING.finditer(text)), (len(text),) * 2]:
        part = text[start:stop]
        first = start + len(part) - len(part.lstrip())
        start = following
        if not part.strip():
            continue
        last = first + len(text[first:stop].rstrip())
        if goes_on:
            first = spans.pop()[0]
        spans.append((first, last))
        goes_on = (
            _is_abbreviation(text, last - 1, following)
            if text[last - 1] == "."
            else "\u0e01" <= text[last - 1] <= "\u0edf" and last - first < _CLAUSE
        )
    return spans


def _is_abbreviation(text: str, stop: int, following: int) -> bool:
    """Return whether the full stop at `stop` ends no sentence; `following` is the next offset."""
    words = text[max(0, stop - _BACK) : stop].split()
    if not words or text[stop - 1].isspace():
        return False
    word = words[-1].lstrip(_OPENING)
    if word.isdigit() or not word:
        return bool(word) and _is_ordinal(text, stop, following, words)
    name = word.lower()
    if len(name) <= 3 and len(words) > 1 and len(words[-2]) == 2 and words[-2][1] == ".":
        # With a space, as in "z. B."
        name = words[-2].lower() + name
    name = name.rpartition("-")[2]
    if name in _LEADING:
        return True
    next_word = _next_word(text, following)
    if name in _NUMBERED:
        is_roman = len(next_word) > 1 and not next_word.strip("IVXLC")
        return is_roman or next_word[:1].islower() or any(map(str.isdigit, next_word))
    parts = name.split(".")
    is_short = len(word) == 1 or (len(parts) > 1 and all(map(_is_short, parts)))
    return (name in _CLOSING or is_short) and next_word not in _BEGINNINGS


def _is_short(part: str) -> bool:
    return part.isalpha() and len(part) <= 3


def _is_ordinal(text: str, stop: int, following: int, words: list[str]) -> bool:
    """Return whether a number before a full stop is ordinal, as in dates, or begins a list item."""
    number = words[-1]
    if len(number) > 3:
        return False
    line = text.rfind("\n", max(0, stop - _BACK), stop)
    is_first = text[line + 1 : stop].strip() == number and (line >= 0 or stop <= _BACK)
    before = words[-2] if len(words) > 1 else ""
    is_item = before[-1:] in (".", "!", "?", ":", ";") and before[:-1].lower() not in _NUMBERED
    if is_first or is_item:
        return True
    next_word = _next_word(text, following)
    if next_word[:1].islower() or next_word.lower() in _MONTHS:
        return True
    return next_word.startswith(_AFTER_ORDINALS) or (
        before.lower() in _BEFORE_ORDINALS
        and next_word not in _BEGINNINGS
        and not next_word.isdigit()
    )


def _next_word(text: str, start: int) -> str:
    match = _NEXT_WORD.match(text, start, start + 3 * _BACK)
    return match[1] if match else ""
