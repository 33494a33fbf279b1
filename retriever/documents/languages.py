"""The languages of a text, at most one a script: by the script of its words and by function words.

Of the languages of a script, that of a text is the one with most function words among its first
words, if there are many of them; without this evidence it is the script's default. That of the
Latin script is English.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, product

# Words of a text that are looked at.
_FIRST = 200
# A language other than its script's default has this share of the words of the script as function
# words, and this multiple of the default's.
_SHARE, _MULTIPLE = 0.12, 1.5
# So many function words are no evidence.
_FEW = 2
# So many words without a function word of a language that has a list are of another language.
_MANY = 20
# A query may be in a language that at least this share of the passages of its script is in.
_HELD = 0.03
# Longer words of the lists are too often content, such as "estado", "tiempo" and "trabajo".
_LONGEST = 4
# The letters of each script as the inside of a set, and its languages, the default first.
_SCRIPTS = {
    "latin": (
        "A-Za-z\u00aa-\u024f\u1e00-\u1eff",
        "english catalan czech danish dutch finnish french german hungarian indonesian italian "
        "norwegian polish portuguese romanian slovak spanish swedish turkish vietnamese",
    ),
    "cyrillic": ("\u0400-\u052f", "russian bulgarian ukrainian"),
    "arabic": ("\u0600-\u06ff\u0750-\u077f", "arabic persian"),
    "devanagari": ("\u0900-\u097f", "hindi"),
    "greek": ("\u0370-\u03ff\u1f00-\u1fff", "greek"),
    "hebrew": ("\u0590-\u05ff", "hebrew"),
    "armenian": ("\u0530-\u058f", "armenian"),
    "tamil": ("\u0b80-\u0bff", "tamil"),
}
# Scripts of languages that are neither of these nor told apart, such as Kazakh and Marathi.
_OPEN_SCRIPTS = ("cyrillic", "arabic", "devanagari")
_LANGUAGES = {script: languages.split() for script, (_, languages) in _SCRIPTS.items()}
DEFAULT_LANGUAGES: dict[str | None, str] = {
    script: languages[0] for script, languages in _LANGUAGES.items()
}
_FIRST_LETTER = re.compile("|".join(f"(?P<{one}>[{row[0]}])" for one, row in _SCRIPTS.items()))
SCRIPT_OF = {language: script for script, row in _LANGUAGES.items() for language in row} | {
    f"other {script}": script for script in _OPEN_SCRIPTS
}
# Beyond Lucene's stop words: pronouns, auxiliaries, question words and the like.
_ENGLISH = """
    about above after again all am any because been before being below between both can cannot could
    did do does doing done don't down during each few from further get had has have having he her
    here hers him his how i i'd i'm i've its just like me may might more most much must my need nor
    now off once only other our ours out over own please same shall she should so some than them
    through too under until up us very want was we were what when where which while who whom whose
    why would you your yours
    """
ENGLISH_FUNCTION_WORDS = frozenset(_ENGLISH.split())


@lru_cache(1 << 14)
def script_of(word: str) -> str | None:
    """The script of the first letter of a word, among those whose languages are told apart."""
    found = _FIRST_LETTER.search(word)
    return found.lastgroup if found else None


def function_words(language: str, listed: Iterable[str]) -> list[str]:
    """Those words of a stop-word list that can tell a language, as ``language:word``."""
    return [f"{language}:{one}" for one in listed if language == "english" or len(one) <= _LONGEST]


def text_languages(
    words: Sequence[str], ascii_only: bool, known: Mapping[str, Iterable[str]]
) -> tuple[str, ...]:
    """The languages of a text by its words, sorted."""
    counts, scripts = _evidence(words, ascii_only, known)
    found = []
    for script, number in scripts.items():
        default, *others = _LANGUAGES[script]
        best = max(others, key=counts.__getitem__, default=default)
        if counts[best] > max(_FEW, _SHARE * number, _MULTIPLE * counts[default]):
            found.append(best)
        elif script in _OPEN_SCRIPTS and number >= _MANY and not counts[default]:
            found.append(f"other {script}")
        else:
            found.append(default)
    return tuple(sorted(found))


def query_choices(
    words: Sequence[str],
    ascii_only: bool,
    known: Mapping[str, Iterable[str]],
    held: Mapping[str, int],
) -> Iterator[tuple[str, ...]]:
    """The languages that a query may be in, of those that an index holds in so many passages."""
    counts, scripts = _evidence(words, ascii_only, known)
    choices = []
    for script in sorted(scripts):
        here = {one: number for one, number in held.items() if SCRIPT_OF.get(one) == script}
        least = _HELD * sum(here.values())
        likely = (one for one, number in here.items() if number >= least)
        ranked = sorted(likely, key=lambda one: -counts[one])
        if len(ranked) > 1 and counts[ranked[0]] > counts[ranked[1]]:
            ranked = ranked[:1]
        choices.append(ranked or _LANGUAGES[script][:1])
    return product(*choices)


def possible_languages(word: str, held: Iterable[str]) -> set[str]:
    """The languages in which passages of an index can hold a word, by its script."""
    script = script_of(word)
    default = _LANGUAGES[script][:1] if script else [""]
    return {*default, *(one for one in held if script and SCRIPT_OF.get(one) == script)}


def _evidence(
    words: Sequence[str], ascii_only: bool, known: Mapping[str, Iterable[str]]
) -> tuple[Counter[str], dict[str, int]]:
    """Of the first words of a text, the function words of each language, and all of each script."""
    first = words[:_FIRST]
    counts = Counter(chain.from_iterable(filter(None, map(known.get, first))))
    if ascii_only:
        return counts, {"latin": len(first)}
    scripts = Counter(map(script_of, first))
    return counts, {script: number for script, number in scripts.items() if script}
