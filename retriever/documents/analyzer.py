"""The analyzer: turns text into index terms, the same way for passages and for queries.

The text is divided into words. Scripts without spaces and identifiers are divided further. Each
word is folded, loses its possessive (a final 's in English), and is dropped if it is a stop word.
Other words are stemmed, and also enter without their accents. docs/reference/words.md defines a
word.

The whole terms of a unit (``3.11.2``, ``c++``) follow the terms of its parts. Stop words in
capitals (``IT``) follow all others; only these terms have capital letters. The division ``plain``
is that of earlier releases: each CJK character is a word, and words have no parts and keep their
accents.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from importlib.util import find_spec
from itertools import chain
from typing import Any, Literal, NamedTuple

from indexes.bm25 import LABEL
from retriever.documents.division import (
    APOSTROPHES,
    FOLDED_SIGNS,
    LONGEST_WHOLE,
    ascii_digits,
    divide,
    join_compound,
    normalize,
    separate_units,
    unit_parts,
    whole_pieces,
    without_accents,
    word_pattern,
)
from retriever.documents.languages import (
    AMBIGUOUS_FUNCTION_WORDS,
    DEFAULT_LANGUAGES,
    ENGLISH_FUNCTION_WORDS,
    QUERY_FUNCTION_WORDS,
    SAMPLE_WORDS,
    SCRIPT_OF,
    function_words,
    languages_by_function_words,
    possible_languages,
    query_language_choices,
    script_of,
    text_languages,
)
from retriever.errors import ConfigError, require_several
from retriever.settings import check_settings, setting

NO_LANGUAGE = "none"
AUTO = "auto"
# Values of settings that an index of an earlier release does not store.
PLAIN: dict[str, Any] = {"division": "plain", "detection": "words", "terms": "parts"}
# The list of Lucene's EnglishAnalyzer. The 1,333 words of the package `stop-words` ("able", "act",
# "affected", ...) cost retrieval quality.
_ENGLISH_LIST = """
    a an and are as at be but by for if in into is it no not of on or such that the their then
    there these they this to was will with
"""
ENGLISH_STOP_WORDS = frozenset(_ENGLISH_LIST.split())
# Snowball has two stemmers for each of these languages; their stop words are the same.
_SAME_STOP_WORDS = {"porter": "english", "dutch_porter": "dutch"}
_APOSTROPHE_SEPARATES = frozenset({"catalan", "french", "italian", "turkish"})
_HAS_POSSESSIVE = frozenset({"english", "porter"})
# Function words that the Danish list lacks and the Norwegian list has.
_DANISH = ("både", "før", "hver", "kan", "kun", "så", "ved")
# Languages whose lists hold hundreds of content words. The lists serve detection only, and their
# words are not dropped.
_DETECTION_ONLY = frozenset({"vietnamese", "persian"})

_MEMO_ENTRIES = 1_000_000
_MEMO_WORD_LENGTH = 255
# Number of combinations of languages whose terms are cached.
_MEMOS = 64

_Count = Callable[[Iterable[str]], Mapping[str, int]]
# A phrase as `retriever.search.syntax` reads it.
_QUOTED = re.compile(r'(?<!\S)["“”]([^"“”]*)["“”]')
_PLAIN_SIGNS: dict[int, Any] = str.maketrans("’", "'", "\u00ad\u200c\u200d")
# Characters before and after a word in capitals that are inspected for emphasis.
_EMPHASIS_CONTEXT = 40
_SENTENCE_END = ".!?:;"
_OPENING_SIGNS = "([{\"'“‘`*_"
# Signs that may stand inside a unit.
_UNIT_SIGNS = "-&.:'’‘/"
_CLOSING_SIGNS = ")]}\"'”’`*_"


@dataclass(frozen=True, slots=True)
class AnalyzerSettings:
    """Settings of an analyzer; stored with the index.

    Attributes:
        language: ``auto`` to detect the language of each passage, a Snowball language ("english",
            "german", …), or "none" for lower-cased words. With "none", `stemming` and `stop_words`
            become False.
        stemming: reduce words to stems; needs a Snowball stemmer for the language.
        stop_words: drop stop words; needs a stop-word list for the language.
        division: how scripts without spaces are divided. ``icu`` adds the words that ICU finds,
            ``grams`` has character n-grams alone, ``plain`` is that of earlier releases. ``auto``
            becomes ``icu`` where ICU is installed, else ``grams``.
        detection: how ``auto`` detects the language of a passage. ``ngrams`` uses function words
            and py3langid. ``words`` uses function words alone, as earlier releases did; it is set
            wherever `language` names a language.
        terms: ``whole`` adds terms such as ``3.11.2``, ``c++`` and ``IT`` to their parts.
            ``parts`` has the parts alone, as in earlier releases and with the division ``plain``.

    Raises:
        ConfigError: the language is unknown, or has no stemmer or no stop-word list and the
            setting that needs it is on.
    """

    language: str = setting(
        AUTO,
        "Language of the texts. auto detects it for each text; none turns stemming and stop "
        "words off.",
        section="BM25",
    )
    stemming: bool = setting(True, "Reduce words to their stems.")
    stop_words: bool = setting(True, "Drop stop words such as `the` and `of`.")
    division: Literal["auto", "icu", "grams", "plain"] = setting("auto", "Division into words.")
    detection: Literal["ngrams", "words"] = setting("ngrams", "How languages are told.")
    terms: Literal["whole", "parts"] = setting("whole", "Whole terms beside their parts.")

    def __post_init__(self) -> None:
        check_settings(self)
        if self.language != AUTO:
            # Nothing is detected, so the settings equal those of an earlier release.
            object.__setattr__(self, "detection", "words")
        if self.division == "plain":
            object.__setattr__(self, "terms", "parts")
        if self.language == NO_LANGUAGE:
            object.__setattr__(self, "stemming", False)
            object.__setattr__(self, "stop_words", False)
        if self.language in (NO_LANGUAGE, AUTO):
            return
        stemmers, lists = _available_languages()
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

    def to_json(self) -> dict[str, Any]:
        """Return the values as JSON, as the release that chose them wrote them; see `PLAIN`."""
        values = asdict(self)
        for name in ("detection", "terms"):
            if values[name] == PLAIN[name]:
                del values[name]
        return values

    def renewed(self) -> AnalyzerSettings:
        """Return the settings with the terms of this release instead of an earlier one."""
        newest = AnalyzerSettings()
        division = newest.division if self.division == "plain" else self.division
        return replace(self, division=division, terms=newest.terms).resolved()

    def resolved(self) -> AnalyzerSettings:
        """Return the settings with the installed division instead of ``auto``."""
        if self.division != "auto":
            return self
        return replace(self, division="grams" if find_spec("icu4py") is None else "icu")


def reconcile_settings(
    requested: AnalyzerSettings | None, stored: AnalyzerSettings
) -> AnalyzerSettings | None:
    """Return the requested settings in the stored form if the caller chose nothing else.

    None requests the stored settings. `detection` and `terms` are no choice of the caller. The
    division ``auto`` accepts any stored division.
    """
    if requested is None:
        return stored
    same_reading = replace(requested, detection=stored.detection, terms=stored.terms)
    if replace(same_reading, division=stored.division) != stored:
        return requested.resolved()
    return stored if requested.division == "auto" else same_reading


class Analyzer:
    """Turns text into terms; deterministic, and the same for passages and for queries.

    An analyzer remembers the terms of the words it has seen, up to a million. Threads may share
    it.

    Args:
        settings: by default, each text is analyzed in its own language.
        stop_list: stop words, in the form of the attribute `stop_list` of an earlier analyzer;
            None takes the list of the language. An index stores its list, so a new release of a
            word list cannot change the results of its queries.

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
        self._is_plain = self.settings.division == "plain"
        self._is_whole = self.settings.terms == "whole"
        self._pattern = partial(word_pattern, is_plain=self._is_plain, is_whole=self._is_whole)
        if stop_list is not None:
            require_several("stop_list", stop_list)
            self.stop_list = frozenset(stop_list)
        elif language == AUTO:
            languages = sorted(SCRIPT_OF.keys() & _available_languages()[1])
            self.stop_list = frozenset(
                chain.from_iterable(
                    function_words(name, _stop_words(name, self._is_plain)) for name in languages
                )
            )
        elif self.settings.stop_words:
            self.stop_list = _stop_words(language, self._is_plain)
        else:
            self.stop_list = frozenset()
        # The tables hold no reference to the analyzer. A reference cycle would keep an unused
        # analyzer, with a megabyte of words, until cycles are collected.
        words = partial(_TermTable, self.settings, self.stop_list, is_whole=self._is_whole)
        self._term_tables = lru_cache(_MEMOS)(words)

    @cached_property
    def identity(self) -> str:
        """A hash that is equal for analyzers that give every text the same terms."""
        facts = json.dumps([self.settings.to_json(), sorted(self.stop_list)])
        return hashlib.sha256(facts.encode()).hexdigest()

    def tokens(self, text: str) -> list[str]:
        """Return the terms of `text` in the order of its words, repeated as often as they occur."""
        return self.analyzed(text)[0]

    def analyzed(
        self, text: str, label: str = "", context: str = ""
    ) -> tuple[list[str], tuple[str, ...]]:
        """Return the terms of a text, and its languages; none if the settings name the language.

        The distinct terms of `label` follow, each prefixed with `LABEL`. They are read in the
        languages of the text. Terms of `context`, the title and headings in the text, are left out.
        """
        _, units, term_table = self._split_units(text)
        terms = list(chain.from_iterable(map(term_table.__getitem__, units)))
        if not term_table.capitals.isdisjoint(units):
            terms += [term for term, _, _ in _emphasized_spans(text, units, term_table.capitals)]
        if label:
            splits = not _APOSTROPHE_SEPARATES.isdisjoint(term_table.languages)
            pattern = self._pattern(label.isascii(), splits)
            label_terms = chain.from_iterable(map(term_table.__getitem__, pattern.findall(label)))
            context_units = pattern.findall(context)
            context_terms = frozenset(
                chain.from_iterable(map(term_table.__getitem__, context_units))
            )
            distinct = dict.fromkeys(term for term in label_terms if term not in context_terms)
            terms += map(LABEL.__add__, distinct)
        return terms, term_table.languages if self.settings.language == AUTO else ()

    def languages(self, text: str) -> tuple[str, ...]:
        """Return the languages of a text; none if the settings name the language."""
        return self._split_units(text)[2].languages if self.settings.language == AUTO else ()

    def words(self, text: str) -> list[str]:
        """Return the words of a text as written.

        In scripts without spaces, each run of characters is one word.
        """
        # Only apostrophes depend on the language, and function words suffice to detect it.
        units = self._split_units(text, languages_by_function_words)[1]
        return separate_units(units) if self._is_whole else units

    def query_tokens(
        self, text: str, index_languages: Mapping[str, int], count: _Count | None = None
    ) -> list[str]:
        """Return the terms of a query to an index.

        Function words of the query, such as "how do I", are dropped where other words remain. A
        function word in quotation marks or in capitals stays (docs/reference/ranking.md). Where the
        query does not tell its language, it has the terms of each language that is not rare in the
        index.

        Args:
            text: the query.
            index_languages: the number of passages of the index in each language.
            count: returns the number of passages with each term. With it, a word without a passage
                also gets its terms in the rare languages, as far as they occur.
        """
        if self.settings.language != AUTO:
            pattern, _, term_table = self._split_units(text)
            return self._query_terms(text, pattern, term_table)[0]
        ascii_only = text.isascii()
        terms = list[str]()
        whole = list[str]()
        choices = iter([tuple(index_languages)])
        if len(index_languages) != 1:
            whole = self._pattern(ascii_only, False).findall(text)
            sample = separate_units(whole) if self._is_whole else whole
            choices = query_language_choices(
                sample, ascii_only, self._languages_by_word, index_languages
            )
        dropped_units = set(whole)
        for languages in choices:
            splits = not _APOSTROPHE_SEPARATES.isdisjoint(languages)
            pattern = self._pattern(ascii_only, splits)
            language_terms, function_units = self._query_terms(
                text, pattern, self._term_tables(languages)
            )
            dropped_units &= function_units
            earlier_terms = frozenset(terms)
            terms += [term for term in language_terms if term not in earlier_terms]
        if count is None or len(set(map(SCRIPT_OF.get, index_languages))) == len(index_languages):
            return terms
        if all((frequencies := count(terms)).values()):
            return terms
        units = [unit for unit in whole if unit not in dropped_units]
        alternatives = self._terms_in_all_languages(units, index_languages, frequencies).difference(
            terms
        )
        alternative_counts = count(sorted(alternatives))
        return terms + [term for term in alternative_counts if alternative_counts[term]]

    def _terms_in_all_languages(
        self,
        units: Iterable[str],
        passage_counts: Mapping[str, int],
        frequencies: Mapping[str, int],
    ) -> set[str]:
        """Return the terms, in all languages of an index, of units whose own terms are in none."""
        # With equal counts no language is rare.
        equal_counts = dict.fromkeys(passage_counts, 1)
        return {
            term
            for unit in units
            if (unit_terms := self.query_tokens(unit, passage_counts))
            and not any(map(frequencies.get, unit_terms))
            for term in self.query_tokens(unit, equal_counts)
        }

    def _query_terms(
        self, text: str, pattern: re.Pattern[str], term_table: _TermTable
    ) -> tuple[list[str], set[str]]:
        """Return the terms of a query, and its function words that have none."""
        units = pattern.findall(text)
        capitals = []
        if not term_table.capitals.isdisjoint(units):
            capitals = [term for term, _, _ in _emphasized_spans(text, units, term_table.capitals)]
        dropped_units = (
            self._function_units(text, units, pattern, term_table)
            if self.settings.stop_words and len(units) > 1
            else set()
        )
        remaining = [term_table[unit] for unit in units if unit not in dropped_units]
        if dropped_units and not any(remaining):
            dropped_units = set()
            remaining = list(map(term_table.__getitem__, units))
        return [*chain.from_iterable(remaining), *capitals], dropped_units

    def _function_units(
        self, text: str, units: list[str], pattern: re.Pattern[str], term_table: _TermTable
    ) -> set[str]:
        """Return the units of a query that are function words."""
        folded = list(map(str.lower, units))
        listed, unclear = term_table.function_words
        if listed.isdisjoint(separate_units(folded) if self._is_whole else folded):
            return set()
        is_listed = [
            False,
            *(
                word in listed or ("-" in word and listed.issuperset(word.split("-")))
                for word in folded
            ),
            False,
        ]
        quoted = {unit for phrase in _QUOTED.findall(text) for unit in pattern.findall(phrase)}
        has_cases = not text.isupper()
        dropped_units = set()
        for number, (unit, word) in enumerate(zip(units, folded, strict=True)):
            is_beside = is_listed[number] or is_listed[number + 2]
            # A capital letter that begins a sentence is no emphasis, and "I" is none anywhere.
            is_letter = len(unit) == 1 and (number == 0 or unit == "I")
            is_emphasized = has_cases and unit.isupper() and not is_letter
            is_function_word = is_listed[number + 1] or (word in unclear and is_beside)
            if is_function_word and not is_emphasized and unit not in quoted:
                dropped_units.add(unit)
        return dropped_units

    def forms(self, word: str, index_languages: Iterable[str]) -> frozenset[str]:
        """Return the terms of a word in the languages of an index.

        A passage with the word has one of them. Empty if the word is a stop word in a language.
        """
        auto = self.settings.language == AUTO
        languages = possible_languages(word, index_languages) if auto else {self.settings.language}
        # The terms are not cached: most are words that nobody writes.
        spans_by_language = [
            self._term_tables((language,)).term_spans(word) for language in sorted(languages)
        ]
        first_terms = [next((term for term, _, _ in terms), None) for terms in spans_by_language]
        return frozenset() if None in first_terms else frozenset(filter(None, first_terms))

    def spans(
        self,
        text: str,
        terms_to_find: Set[str] | None = None,
        index_languages: Iterable[str] | None = None,
    ) -> Iterator[tuple[str, int, int]]:
        """Yield each term with its place, as `text[start:end]`, in the order of `tokens`.

        Offsets count characters of `text` as given, normalized or not. Terms of one word, and of
        characters in a script without spaces, overlap. With `terms_to_find`, words that have none
        of these terms are left out. With `index_languages`, the text is read in each language of
        an index, one after the other. No language is detected then, since that can take longer
        than a query.
        """
        for pattern, term_table in self._readings(text, index_languages):
            for match in pattern.finditer(text):
                if terms_to_find is None or not terms_to_find.isdisjoint(term_table[match.group()]):
                    for term, start, stop in term_table.term_spans(match.group()):
                        yield term, match.start() + start, match.start() + stop
            if terms_to_find is None or not term_table.capitals.isdisjoint(terms_to_find):
                for span in _emphasized_spans(text, pattern.findall(text), term_table.capitals):
                    if terms_to_find is None or span[0] in terms_to_find:
                        yield span

    def _readings(
        self, text: str, index_languages: Iterable[str] | None
    ) -> Iterator[tuple[re.Pattern[str], _TermTable]]:
        """Yield the pattern of units and the table of terms for each reading of a text."""
        if index_languages is None or self.settings.language != AUTO:
            pattern, _, term_table = self._split_units(text)
            yield pattern, term_table
            return
        language_sets: list[tuple[str, ...]] = [(language,) for language in index_languages]
        for languages in language_sets or [()]:
            splits = not _APOSTROPHE_SEPARATES.isdisjoint(languages)
            yield self._pattern(text.isascii(), splits), self._term_tables(languages)

    def _split_units(
        self, text: str, languages_of: Callable[..., tuple[str, ...]] | None = None
    ) -> tuple[re.Pattern[str], list[str], _TermTable]:
        """Return the pattern of units, the units of a text, and the table of their terms."""
        ascii_only = text.isascii()
        language = self.settings.language
        pattern = self._pattern(ascii_only, language in _APOSTROPHE_SEPARATES)
        units = pattern.findall(text)
        if language != AUTO:
            return pattern, units, self._term_tables((language,))
        if languages_of is None:
            by_words = self.settings.detection == "words"
            languages_of = languages_by_function_words if by_words else text_languages
        sample = units
        if self._is_whole and "-" in text:
            sample = " ".join(units[:SAMPLE_WORDS]).replace("-", " ").split()
        languages = languages_of(sample, ascii_only, self._languages_by_word)
        if not _APOSTROPHE_SEPARATES.isdisjoint(languages):
            pattern = self._pattern(ascii_only, True)
            units = pattern.findall(text)
        return pattern, units, self._term_tables(languages)

    @cached_property
    def _languages_by_word(self) -> dict[str, tuple[str, ...]]:
        """The languages of each function word."""
        languages_by_word: dict[str, tuple[str, ...]] = {}
        for entry in chain(self.stop_list, map("english:".__add__, ENGLISH_FUNCTION_WORDS)):
            language, _, word = entry.partition(":")
            languages_by_word[word] = (*languages_by_word.get(word, ()), language)
        # A capital letter by itself is a symbol.
        capitals = {
            word.capitalize(): languages
            for word, languages in languages_by_word.items()
            if len(word) > 1
        }
        return languages_by_word | capitals


class _TermRule(NamedTuple):
    """The way from a word to a term."""

    language: str
    stop_words: frozenset[str]
    stem: Callable[[str], str]


@dataclass(eq=False, repr=False)
class _TermTable(dict[str, tuple[str, ...]]):
    """The terms of units of texts in some languages, computed when missing; a dict, for speed."""

    settings: AnalyzerSettings
    stop_list: frozenset[str]
    languages: tuple[str, ...]
    is_whole: bool
    # Rules by the script of a word.
    rules: dict[str | None, _TermRule] = field(default_factory=dict)

    @cached_property
    def function_words(self) -> tuple[frozenset[str], frozenset[str]]:
        """The function words of queries, and the words that are so only beside another one."""
        listed, unclear = (
            {word for language in self.languages for word in table.get(language, ())}
            for table in (QUERY_FUNCTION_WORDS, AMBIGUOUS_FUNCTION_WORDS)
        )
        signs = APOSTROPHES if self.is_whole else "’"
        listed |= {word.replace("'", sign) for word in listed for sign in signs}
        return frozenset(listed), frozenset(unclear)

    @cached_property
    def common_words(self) -> frozenset[str]:
        """The stop words and the function words of queries."""
        stop_words = (self.rule(script).stop_words for script in map(SCRIPT_OF.get, self.languages))
        return self.function_words[0].union(*stop_words)

    @cached_property
    def capitals(self) -> frozenset[str]:
        """Stop words and function words in capitals, which are terms where they are emphasized."""
        if not self.settings.stop_words or not self.is_whole:
            return frozenset()
        listed = set(self.common_words)
        if "english" in self.languages:
            listed |= ENGLISH_FUNCTION_WORDS
        signs = frozenset(APOSTROPHES)
        # Words of scripts without capitals are not lower-case either.
        cased = (word for word in listed if word.islower() and signs.isdisjoint(word))
        return frozenset(map(str.upper, cased)) - {"I"}

    def __missing__(self, unit: str) -> tuple[str, ...]:
        first, hyphen, second = unit.partition("-")
        if unit[1:].islower() and unit.isascii() and unit.isalpha():
            # A faster way for most words.
            terms = tuple(self._terms_of_word(unit))
        elif hyphen and unit.isascii() and first.isalpha() and second.isalpha():
            terms = self._terms_of_compound(first, second)
        else:
            form, parts = unit_parts(unit) if self.is_whole else (unit, [(unit, 0)])
            if parts == [(form, 0)]:
                terms = tuple([term for term, _, _ in self._terms_of_part(form)])
            else:
                # The terms of most parts are cached.
                of_parts = chain.from_iterable([self[part] for part, _ in parts])
                terms = (*of_parts, *[term for term, _, _ in self._whole_terms(form, parts)])
        if len(unit) <= _MEMO_WORD_LENGTH:
            if len(self) >= _MEMO_ENTRIES:
                self.clear()
            self[unit] = terms
        return terms

    def _terms_of_compound(self, first: str, second: str) -> tuple[str, ...]:
        """Return the terms of two words of letters with a hyphen, as `term_spans`, but faster."""
        compound = f"{first}-{second}"
        terms = self[first] + self[second]
        if len(compound) <= LONGEST_WHOLE and not self._joins_common_words(compound, False):
            terms += tuple(self._terms_of_word(join_compound(compound)))
        if not compound.isupper():
            terms += tuple([word for word in (first, second) if word in self.capitals])
        return terms

    def term_spans(self, unit: str) -> Iterator[tuple[str, int, int]]:
        """Yield the terms of a unit with their offsets in it."""
        form, parts = unit_parts(unit) if self.is_whole else (unit, [(unit, 0)])
        for part, place in parts:
            for term, start, stop in self._terms_of_part(part):
                yield term, place + start, place + stop
        if parts != [(form, 0)]:
            yield from self._whole_terms(form, parts)

    def _terms_of_part(self, part: str) -> Iterator[tuple[str, int, int]]:
        division = self.settings.division
        for text, start, stop, is_word in divide(part, division, self.is_whole):
            if is_word:
                for term in self._terms_of_word(text):
                    yield term, start, stop
                # The term of "U.S."
                if len(text) < stop - start and text in self.capitals:
                    yield text, start, stop
            elif term := _fold(text, is_whole=self.is_whole):
                yield term, start, stop

    def _whole_terms(
        self, unit: str, parts: Sequence[tuple[str, int]]
    ) -> Iterator[tuple[str, int, int]]:
        """Yield the terms of a unit that its parts do not have."""
        for text, start, stop, is_word in whole_pieces(unit):
            if not is_word:
                yield _fold(text, is_whole=self.is_whole), start, stop
            elif not self._joins_common_words(unit[start:stop], unit.count("-") > 1):
                for term in self._terms_of_word(text):
                    yield term, start, stop
        # A stop word in capitals is emphasized in "IT-Support", not in "AT&T".
        if not unit.isupper():
            for part, place in parts:
                if part in self.capitals:
                    yield part, place, place + len(part)

    def _terms_of_word(self, text: str) -> Iterator[str]:
        is_plain = self.settings.division == "plain"
        script = script_of(text)
        language, stop_words, stem = self.rules.get(script) or self.rule(script)
        folded = _fold(text, language == "turkish", not is_plain, self.is_whole)
        splits = language in _APOSTROPHE_SEPARATES
        for word in word_pattern(folded.isascii(), splits, True).findall(folded):
            bare = word.removesuffix("'s") if language in _HAS_POSSESSIVE else word
            if bare in stop_words or word in stop_words:
                continue
            yield (term := stem(bare))
            if not (is_plain or bare.isascii()):
                plain = without_accents(bare)
                if plain != bare and plain not in stop_words and (other := stem(plain)) != term:
                    yield other

    def _joins_common_words(self, compound: str, is_long: bool) -> bool:
        """Return whether a compound is never written as one word, such as "state-of-the-art"."""
        words = compound.lower().split("-")
        if is_long:
            return not self.common_words.isdisjoint(words)
        return self.common_words.issuperset(words)

    def rule(self, script: str | None) -> _TermRule:
        """Return the rule for words of a script; the settings may name its language."""
        import Stemmer

        language = self.settings.language
        stop_words = self.stop_list
        stem = str
        if language == AUTO:
            candidates = (name for name in self.languages if SCRIPT_OF.get(name) == script)
            language = next(candidates, DEFAULT_LANGUAGES.get(script, ""))
            drops_stop_words = self.settings.stop_words and language not in _DETECTION_ONLY
            prefix = f"{language}:" if drops_stop_words else "-"
            stop_words = frozenset(
                w.removeprefix(prefix) for w in stop_words if w.startswith(prefix)
            )
        if self.settings.stemming and language in Stemmer.algorithms():
            # The table caches stems already. A call holds the interpreter's lock, which other
            # threads need.
            stem = Stemmer.Stemmer(language, 0).stemWord
        rule = self.rules[script] = _TermRule(language, stop_words, stem)
        return rule


def _emphasized_spans(
    text: str, units: Iterable[str], capitals: frozenset[str]
) -> Iterator[tuple[str, int, int]]:
    """Yield the stop words of a text that are emphasized by capitals, with their offsets.

    Words in capitals among other such words are a heading or a shout. A single letter is a word
    where it begins neither a sentence nor a line: "vitamin A".
    """
    for word in sorted(capitals.intersection(units)):
        start = text.find(word)
        while start >= 0:
            stop = start + len(word)
            if _is_emphasized(text, start, stop):
                yield word, start, stop
            start = text.find(word, stop)


def _is_emphasized(text: str, start: int, stop: int) -> bool:
    """Return whether a word in capitals is a unit and differs from the words beside it."""
    sign = text[stop : stop + 1]
    following = text[stop + 1 : stop + 2]
    if sign.isalnum() or (sign and sign in "_+#") or (following.isalnum() and sign in _UNIT_SIGNS):
        return False
    line = text[max(0, start - _EMPHASIS_CONTEXT) : start].rpartition("\n")[2]
    if line and not (line[-1].isspace() or line[-1] in _OPENING_SIGNS):
        return False
    before = line.split()[-1:]
    if before and before[0][-1] in _SENTENCE_END:
        before = []
    is_quoted = line[-1:] in _OPENING_SIGNS and sign in _CLOSING_SIGNS and line and sign
    is_letter = stop - start == 1
    if is_letter and not is_quoted and not any(map(str.isalnum, "".join(before))):
        return False
    after = (
        text[stop : stop + _EMPHASIS_CONTEXT].partition("\n")[0].split()[:1]
        if sign.isspace()
        else []
    )
    cased = [word for word in before + after if word.lower() != word.upper()]
    return not cased or not all(map(str.isupper, cased))


def _fold(
    word: str,
    turkish: bool = False,
    ascii_digits_only: bool = True,
    is_whole: bool = False,
) -> str:
    """Return a word in NFKC and lower case, with plain apostrophes and no invisible characters."""
    if word.isascii() and not turkish:
        return word.lower()
    word = normalize("NFKC", word)
    # str.lower makes "i" and a combining dot of "İ"; in Turkish the lower case of "I" is "ı".
    word = word.replace("İ", "i")
    if turkish:
        word = word.replace("I", "ı")
    if ascii_digits_only:
        word = word.translate(ascii_digits())
    # Lower-casing and removing joiners can leave a sequence that composes further.
    return normalize("NFKC", word.translate(FOLDED_SIGNS if is_whole else _PLAIN_SIGNS).lower())


def _available_languages() -> tuple[frozenset[str], frozenset[str]]:
    """Return the languages that have a stemmer, and those that have a list of stop words."""
    import Stemmer
    from stop_words import AVAILABLE_LANGUAGES

    lists = frozenset(AVAILABLE_LANGUAGES) | {"english"}
    lists |= {name for name, same in _SAME_STOP_WORDS.items() if same in lists}
    return frozenset(Stemmer.algorithms()), lists


@cache
def _stop_words(language: str, is_plain: bool) -> frozenset[str]:
    """Return the stop words of a language in folded form."""
    turkish = language == "turkish"
    splits = language in _APOSTROPHE_SEPARATES
    language = _SAME_STOP_WORDS.get(language, language)
    if language == "english":
        return ENGLISH_STOP_WORDS
    from stop_words import get_stop_words

    stop_words = set()
    for entry in chain(get_stop_words(language), _DANISH if language == "danish" else ()):
        folded = _fold(entry, turkish, not is_plain)
        # The lists also hold phrases and punctuation. Only an entry that is one word can match.
        if len(words := word_pattern(folded.isascii(), splits, True).findall(folded)) == 1:
            stop_words.update(words)
    return frozenset(stop_words)
