"""The analyzer: from text to index terms, the same for passages and for queries.

The steps, in order:

1. *Words.* A word is a run of letters and digits of any script with their combining marks, so
   that a decomposed "é" or a Devanagari vowel sign does not split it. An apostrophe between two
   of them belongs to the word ("don't", as in UAX #29 and Lucene's StandardTokenizer), except in
   Catalan, French, Italian and Turkish, where it separates an article or a suffix from the word
   ("l'avion" is "l", "avion"). All else separates words: space, punctuation, symbols, emoji.
2. *Scripts without spaces.* Chinese and Japanese become characters and pairs of them, Thai, Lao,
   Khmer and Burmese triples of characters; with ICU also words. A Hangul word is itself and its
   pairs.
3. *Identifiers* are terms as a whole and in parts: ``os.path.join``, ``parse_roman_numeral``,
   ``HTTPServer``.
4. *Form.* NFKC, lower case, ’ as ', decimal digits as ASCII, without soft hyphens and zero-width
   joiners.
5. *Possessive* (English): a final 's is removed.
6. *Stop words* are dropped. English has the 33 words of Lucene's EnglishAnalyzer: the `stop-words`
   package lists 1,333 for English ("able", "act", "affected", …), which costs retrieval quality.
   Other languages have the list of that package, of which the language ``auto`` takes the words of
   at most four letters.
7. *Stemming* with the language's Snowball stemmer (PyStemmer).
8. *Accents.* A word with accents is also a term without them, so that "etudes" finds "études".

The language ``auto`` is that of each passage; see `retriever.documents.languages`. The division
``plain`` is that of earlier releases: each CJK character is a word, without steps 2, 3 and 8.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import unicodedata
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, partial
from importlib.util import find_spec
from itertools import chain
from typing import Any, Literal

from retriever.documents.division import (
    CJK,
    LIKE_MARKS,
    ascii_digits,
    divide,
    mark_ranges,
    unit_pattern,
    without_accents,
)
from retriever.documents.languages import (
    ENGLISH_FUNCTION_WORDS,
    SCRIPT_OF,
    LanguageDetector,
    function_words,
    language_of,
    possible_languages,
    query_choices,
)
from retriever.errors import ConfigError, require_several
from retriever.settings import check_settings, setting

NO_LANGUAGE = "none"
AUTO = "auto"
# What the settings of an index of an earlier release do not name.
PLAIN: dict[str, Any] = {"division": "plain"}
# Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET.
_ENGLISH = """
    a an and are as at be but by for if in into is it no not of on or such that the their then
    there these they this to was will with
"""
ENGLISH_STOP_WORDS = frozenset(_ENGLISH.split())
# Snowball has two stemmers for these; the words of the language are the same.
_SAME_STOP_WORDS = {"porter": "english", "dutch_porter": "dutch"}
_APOSTROPHE_SEPARATES = frozenset({"catalan", "french", "italian", "turkish"})
_HAS_POSSESSIVE = frozenset({"english", "porter"})
# Function words that its list lacks and that of Norwegian has.
_DANISH = ("både", "før", "hver", "kan", "kun", "så", "ved")
# Lists with hundreds of content words tell a language, but their words are not dropped.
_TOLD_BUT_KEPT = frozenset({"vietnamese", "persian"})

_MEMO_ENTRIES = 1_000_000
_MEMO_WORD_LENGTH = 255
# Combinations of languages whose words are remembered.
_MEMOS = 64

_Count = Callable[[Iterable[str]], Mapping[str, int]]
_INVISIBLE = str.maketrans("’", "'", "\u00ad\u200c\u200d")


@dataclass(frozen=True, slots=True)
class AnalyzerSettings:
    """What an analyzer does; stored with the index.

    Attributes:
        language: ``auto`` for that of each passage; a Snowball language ("english", "german", …);
            or "none" for lower-cased words without stemming and stop words, whatever the other
            two say (they become False).
        stemming: reduce words to stems; needs a Snowball stemmer for the language.
        stop_words: drop stop words; needs a stop-word list for the language.
        division: ``icu`` or ``grams`` for scripts without spaces with or without words found by
            ICU; ``plain`` as in earlier releases. ``auto`` is ``icu`` where it is installed, else
            ``grams``; an `Analyzer` and an index have one of these.

    Raises:
        ConfigError: the language is unknown, or has no stemmer or no stop-word list and the
            setting that needs it is on.
    """

    language: str = setting(AUTO, "Language of the texts.")
    stemming: bool = setting(True, "Reduce words to stems.")
    stop_words: bool = setting(True, "Drop stop words.")
    division: Literal["auto", "icu", "grams", "plain"] = setting("auto", "Division into words.")

    def __post_init__(self) -> None:
        check_settings(self)
        if self.language == NO_LANGUAGE:
            object.__setattr__(self, "stemming", False)
            object.__setattr__(self, "stop_words", False)
        if self.language in (NO_LANGUAGE, AUTO):
            return
        stemmers, lists = _languages()
        if self.language not in stemmers | lists:
            raise ConfigError(
                f"unknown language {self.language!r}; use one of "
                f"{', '.join(sorted((stemmers & lists) | {NO_LANGUAGE, AUTO}))}; without stop "
                f"words also {', '.join(sorted(stemmers - lists))}; without stemming also "
                f"{', '.join(sorted(lists - stemmers))}"
            )
        if self.stemming and self.language not in stemmers:
            raise ConfigError(f"no stemmer for {self.language!r}: turn stemming off")
        if self.stop_words and self.language not in lists:
            raise ConfigError(f"no stop-word list for {self.language!r}: turn stop words off")

    def resolved(self) -> AnalyzerSettings:
        """With what is installed here in place of the division ``auto``."""
        if self.division != "auto":
            return self
        return replace(self, division="grams" if find_spec("icu4py") is None else "icu")


def as_held(asked: AnalyzerSettings | None, held: AnalyzerSettings) -> AnalyzerSettings | None:
    """What is asked for, with the division of what an index holds where all else is the same."""
    if asked is None or replace(asked, division=held.division) == held:
        return held if asked is None or asked.division == "auto" else asked
    return asked.resolved()


class Analyzer:
    """Turns text into terms; deterministic, and the same for passages and for queries.

    An analyzer remembers the terms of the words it has seen, up to a million. Threads may share
    it.

    Args:
        settings: defaults to the language of each text.
        stop_list: the stop words themselves, as an earlier analyzer's `stop_list` gave them;
            None takes the language's. An index keeps its own, so that another release of a
            word list cannot change what its queries mean.

    Attributes:
        stop_list: the stop words in folded form; for ``auto``, the function words of each
            language, as ``german:oder``. Empty without `settings.stop_words`, except for ``auto``.

    Raises:
        ConfigError: see `AnalyzerSettings`.
    """

    def __init__(
        self, settings: AnalyzerSettings | None = None, stop_list: Iterable[str] | None = None
    ) -> None:
        self.settings = settings or AnalyzerSettings()
        if self.settings.division == "auto":
            self.settings = self.settings.resolved()
        language = self.settings.language
        if stop_list is not None:
            require_several("stop_list", stop_list)
            self.stop_list = frozenset(stop_list)
        elif language == AUTO:
            self.stop_list = frozenset(
                chain.from_iterable(
                    function_words(one, _stop_words(one, partial(self._folded_words, language=one)))
                    for one in SCRIPT_OF.keys() & _languages()[1]
                )
            )
        elif self.settings.stop_words:
            self.stop_list = _stop_words(language, partial(self._folded_words, language=language))
        else:
            self.stop_list = frozenset()
        self._memos: dict[tuple[str, ...], _Memo] = {}
        self._known_rules: dict[str, tuple[frozenset[str], Callable[[str], str]]] = {}
        # A stemmer serves one thread at a time.
        self._busy = threading.RLock()

    @cached_property
    def identity(self) -> str:
        """Equal for analyzers that give every text the same terms."""
        facts = json.dumps([asdict(self.settings), sorted(self.stop_list)])
        return hashlib.sha256(facts.encode()).hexdigest()

    @cached_property
    def function_terms(self) -> frozenset[str]:
        """The terms of English function words; none where texts are in another language."""
        if self.settings.language not in (AUTO, "english", "porter"):
            return frozenset()
        return frozenset(chain.from_iterable(map(self.tokens, ENGLISH_FUNCTION_WORDS)))

    def tokens(self, text: str) -> list[str]:
        """The terms of `text` in the order of its words, repeated as often as they occur."""
        return self.analyzed(text)[0]

    def analyzed(self, text: str) -> tuple[list[str], tuple[str, ...]]:
        """The terms of a text, and its languages; none if the settings name the language."""
        units, languages = self._read(text)
        terms = list(chain.from_iterable(map(self._memo(languages).__getitem__, units)))
        return terms, languages if self.settings.language == AUTO else ()

    def languages(self, text: str) -> tuple[str, ...]:
        """The languages of a text; none if the settings name the language."""
        return self._read(text)[1] if self.settings.language == AUTO else ()

    def words(self, text: str) -> list[str]:
        """The words of a text as written; of scripts without spaces, what stands between others."""
        return self._read(text)[0]

    def query_tokens(
        self, text: str, held: Mapping[str, int], count: _Count | None = None
    ) -> list[str]:
        """The terms of a query to an index that holds so many passages of each language.

        Where the query does not tell which of them it is in, it has the terms of each but rare
        ones. By the number of passages with each term, a word of which there is no term also has
        those that there are in any of them.
        """
        if self.settings.language != AUTO or not held:
            return self.tokens(text)
        ascii_only, terms = text.isascii(), list[str]()
        choices: Iterable[tuple[str, ...]] = [tuple(held)]
        if len(held) > 1:
            units = self._pattern(ascii_only, ()).findall(text)
            choices = query_choices(self._detector.counts(units), units, ascii_only, held)
        for languages in choices:
            units = self._pattern(ascii_only, languages).findall(text)
            memo, known = self._memo(languages), frozenset(terms)
            new = chain.from_iterable(map(memo.__getitem__, units))
            terms += [term for term in new if term not in known]
        if count is None or len(set(map(SCRIPT_OF.get, held))) == len(held):
            return terms
        if all((frequencies := count(terms)).values()):
            return terms
        every = dict.fromkeys(held, 1)  # None of them is rare.
        others = {
            term
            for unit in self._pattern(ascii_only, ()).findall(text)
            if (own := self.query_tokens(unit, held)) and not any(map(frequencies.get, own))
            for term in self.query_tokens(unit, every)
        }
        more = count(sorted(others.difference(terms)))
        return terms + [term for term in more if more[term]]

    def forms(self, word: str, held: Iterable[str]) -> frozenset[str]:
        """The terms of which a passage with a word has one, in the languages of an index.

        Empty if the word is a stop word in one of them.
        """
        auto = self.settings.language == AUTO
        languages = possible_languages(word, held) if auto else {self.settings.language}
        first = [next(iter(self._memo((one,))[word]), None) for one in sorted(languages)]
        return frozenset() if None in first else frozenset(filter(None, first))

    def spans(self, text: str) -> Iterator[tuple[str, int, int]]:
        """Each term with its place, as `text[start:end]`, in the order of `tokens`.

        Offsets count characters of `text` as given, normalized or not. Terms of one word, and of
        characters in a script without spaces, overlap.
        """
        languages = self._read(text)[1]
        for match in self._pattern(text.isascii(), languages).finditer(text):
            for term, start, stop in self._placed(match.group(), languages):
                yield term, match.start() + start, match.start() + stop

    def _read(self, text: str) -> tuple[list[str], tuple[str, ...]]:
        """The units of a text and, for ``auto``, its languages."""
        ascii_only, language = text.isascii(), self.settings.language
        if language != AUTO:
            return self._pattern(ascii_only, (language,)).findall(text), (language,)
        units = self._pattern(ascii_only, ()).findall(text)
        languages = self._detector.languages(units, ascii_only)
        if not _APOSTROPHE_SEPARATES.isdisjoint(languages):
            units = self._pattern(ascii_only, languages).findall(text)
        return units, languages

    @cached_property
    def _detector(self) -> LanguageDetector:
        return LanguageDetector(self.stop_list)

    def _pattern(self, ascii_only: bool, languages: Sequence[str]) -> re.Pattern[str]:
        splits = not _APOSTROPHE_SEPARATES.isdisjoint(languages)
        if self.settings.division == "plain":
            return word_pattern(ascii_only, splits)
        return unit_pattern(ascii_only, splits)

    def _folded_words(self, word: str, language: str) -> list[str]:
        digits = self.settings.division != "plain"
        folded = _fold(word, turkish=language == "turkish", ascii_digits_only=digits)
        splits = language in _APOSTROPHE_SEPARATES
        return word_pattern(folded.isascii(), splits).findall(folded)

    def _memo(self, languages: tuple[str, ...]) -> _Memo:
        memo = self._memos.get(languages)
        if memo is None:
            if len(self._memos) >= _MEMOS:
                self._memos.clear()
            # Its own method would keep an analyzer that nobody needs until cycles are collected;
            # its words take a megabyte.
            placed: Any = weakref.WeakMethod(self._placed)
            memo = self._memos[languages] = _Memo(
                lambda unit: tuple([term for term, _, _ in placed()(unit, languages)]), self._busy
            )
        return memo

    def _placed(self, unit: str, languages: tuple[str, ...]) -> Iterator[tuple[str, int, int]]:
        """The terms of a unit with their places in it."""
        if self.settings.division == "plain":
            for term in self._word_terms(unit, languages):
                yield term, 0, len(unit)
            return
        for piece in divide(unit, with_words=self.settings.division == "icu"):
            if piece.is_word:
                for term in self._word_terms(piece.text, languages):
                    yield term, piece.start, piece.stop
            elif term := _fold(piece.text, turkish=False, ascii_digits_only=True):
                yield term, piece.start, piece.stop

    def _word_terms(self, word: str, languages: tuple[str, ...]) -> Iterator[str]:
        """The terms of a word as written (none for a stop word)."""
        language = self.settings.language
        if language == AUTO:
            language = language_of(word, languages)
        stop, stem = self._rules(language)
        for folded in self._folded_words(word, language):
            bare = folded.removesuffix("'s") if language in _HAS_POSSESSIVE else folded
            if bare in stop or folded in stop:
                continue
            term = stem(bare)
            yield term
            if self.settings.division != "plain" and not bare.isascii():
                plain = without_accents(bare)
                if plain != bare and plain not in stop and (other := stem(plain)) != term:
                    yield other

    def _rules(self, language: str) -> tuple[frozenset[str], Callable[[str], str]]:
        """The stop words and the stemmer of a language."""
        known = self._known_rules.get(language)
        if known is None:
            import Stemmer

            stop, stem = self.stop_list, str
            if self.settings.language == AUTO:
                dropped = self.settings.stop_words and language not in _TOLD_BUT_KEPT
                mine = f"{language}:" if dropped else "-"
                stop = frozenset(w.removeprefix(mine) for w in stop if w.startswith(mine))
            if self.settings.stemming and language in Stemmer.algorithms():
                # The memo of the analyzer remembers stems already.
                stem = Stemmer.Stemmer(language, 0).stemWord
            known = self._known_rules[language] = stop, stem
        return known


class _Memo(dict[str, tuple[str, ...]]):
    """Terms of each word already seen; a plain dict for speed, computed where missing."""

    def __init__(self, analyze: Callable[[str], tuple[str, ...]], busy: threading.RLock) -> None:
        super().__init__()
        self._analyze, self._busy = analyze, busy

    def __missing__(self, word: str) -> tuple[str, ...]:
        with self._busy:
            terms = self._analyze(word)
        if len(word) <= _MEMO_WORD_LENGTH:
            if len(self) >= _MEMO_ENTRIES:
                self.clear()
            self[word] = terms
        return terms


def _fold(word: str, *, turkish: bool, ascii_digits_only: bool) -> str:
    """NFKC, lower case, a plain apostrophe, nothing invisible."""
    if word.isascii() and not turkish:
        return word.lower()
    if not unicodedata.is_normalized("NFKC", word):
        word = unicodedata.normalize("NFKC", word)
    # str.lower makes "i" and a combining dot of "İ"; in Turkish the lower case of "I" is "ı".
    word = word.replace("İ", "i")
    if turkish:
        word = word.replace("I", "ı")
    if ascii_digits_only:
        word = word.translate(ascii_digits())
    # Lower-casing and removing joiners can leave a sequence that composes further.
    return unicodedata.normalize("NFKC", word.translate(_INVISIBLE).lower())


@cache
def word_pattern(ascii_only: bool, splits_apostrophe: bool) -> re.Pattern[str]:
    """What a word is; the ASCII pattern finds the same words in ASCII text, sooner."""
    if ascii_only:
        run, cjk = "[A-Za-z0-9]+", ""
    else:
        letters = rf"[^\W_{CJK}{LIKE_MARKS}]"
        marks = f"[{mark_ranges()}{LIKE_MARKS}]"
        run, cjk = f"{letters}+(?:{marks}+{letters}*)*", f"[{CJK}]{marks}*|"
    return re.compile(cjk + run + ("" if splits_apostrophe else f"(?:['’]{run})*"))


def _languages() -> tuple[frozenset[str], frozenset[str]]:
    """The languages that have a stemmer, and those that have a list of stop words."""
    import Stemmer
    from stop_words import AVAILABLE_LANGUAGES

    lists = frozenset(AVAILABLE_LANGUAGES) | {"english"}
    lists |= {name for name, same in _SAME_STOP_WORDS.items() if same in lists}
    return frozenset(Stemmer.algorithms()), lists


def _stop_words(language: str, fold: Callable[[str], list[str]]) -> frozenset[str]:
    """The stop words of a language in folded form."""
    language = _SAME_STOP_WORDS.get(language, language)
    if language == "english":
        return ENGLISH_STOP_WORDS
    from stop_words import get_stop_words

    listed = chain(get_stop_words(language), _DANISH if language == "danish" else ())
    # The lists hold phrases and punctuation too; only an entry that is one word can be met.
    return frozenset(chain.from_iterable(f for w in listed if len(f := fold(w)) == 1))
