"""The languages of a text, at most one a script: by scripts, function words and n-grams.

A text is in its script's default language, such as English, if it has many function words of it.
Otherwise py3langid tells the language by the n-grams of the text's first words, and must prefer it
clearly to the default. Texts of fewer words are in the default language.

Indexes of earlier releases know function words alone: the language is the one with most of them,
if there are many, else the default.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cache, lru_cache
from itertools import chain, product
from typing import Any

# Words of a text that are looked at.
_FIRST = 200
# A language other than its script's default has this share of the words of the script as function
# words, and this multiple of the default's.
_SHARE, _MULTIPLE = 0.12, 1.5
# So many function words are no evidence.
_FEW = 2
# So many words without a function word of a language that has a list are of another language, and
# so many are needed to tell one that is not among the languages of the script.
_MANY = 20
# Fewer words are often names, which say nothing about the language of a corpus.
_LEAST = 4
# Logarithm of the likelihood by which a language must exceed the default: with 0, 1.6% of 10,000
# short English sentences are taken for another language, with 8 there are 0.03%. Without a function
# word of the language it must also exceed it by so much a character: lists of names, of chemicals
# and the like have n-grams of any language, but no function words.
_MARGIN, _MARGIN_OF_CHARACTER = 8.0, 0.5
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
# What py3langid calls these languages, in the same order, and other languages of the script. "zxx"
# is code and markup. Of the Latin script the others count as the default.
_CODES = {
    "latin": (
        "en ca cs da nl fi fr de hu id it no pl pt ro sk es sv tr vi",
        "cy eo et eu ga hr is la lt lv mt sl sq sw zxx",
    ),
    "cyrillic": ("ru bg uk", "ba be kk ky mk mn sr tg tt"),
    "arabic": ("ar fa", "ps sdh ug ur"),
    "devanagari": ("hi", "mr ne sa"),
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
    """The languages of a text, sorted."""
    counts, scripts = _evidence(words, ascii_only, known)
    languages = []
    for script, number in scripts.items():
        default, *others = _LANGUAGES[script]
        most = max(map(counts.__getitem__, others), default=0)
        is_default = counts[default] > max(_FEW, _SHARE * number, _MULTIPLE * most)
        if is_default or number < _LEAST or script not in _CODES:
            languages.append(default)
        else:
            languages.append(_language_by_ngrams(words, script, counts))
    return tuple(sorted(languages))


def languages_by_function_words(
    words: Sequence[str], ascii_only: bool, known: Mapping[str, Iterable[str]]
) -> tuple[str, ...]:
    """The languages of a text as earlier releases told them, sorted."""
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


def _language_by_ngrams(words: Sequence[str], script: str, counts: Mapping[str, int]) -> str:
    """The language of the words of a script, by n-grams and the function words of each language."""
    default, *others = _LANGUAGES[script]
    own = [word for word in words[:_FIRST] if script_of(word) == script]
    text = " ".join(own)
    ranking = _identifier(script).rank(text)
    default_code, *codes = _CODES[script][0].split()
    best, score = ranking[0]
    if best in codes:
        language = others[codes.index(best)]
        has_function_words = counts.get(language, 0) > 0
    elif script in _OPEN_SCRIPTS and len(own) >= _MANY:
        language = f"other {script}"
        has_function_words = not counts.get(default)
    else:
        return default
    margin = _MARGIN if has_function_words else max(_MARGIN, _MARGIN_OF_CHARACTER * len(text))
    return language if score - dict(ranking)[default_code] > margin else default


@cache
def _identifier(script: str) -> Any:
    """What ranks the languages of a script."""
    identifier = copy(_whole_identifier())
    identifier.set_languages(" ".join(_CODES[script]).split())
    return identifier


@cache
def _whole_identifier() -> Any:
    # It takes half a second, and queries need none of it.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE)


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
