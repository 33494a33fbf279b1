"""The analyzer: from text to index terms, the same for passages and for queries.

docs/ranking.md says what a word is. In order: words, scripts without spaces, identifiers, form,
possessives (a final 's in English), stop words, stems, and words without their accents. The
division ``plain`` is that of earlier releases: each CJK character is a word, and words have no
parts and keep their accents.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from importlib.util import find_spec
from itertools import chain
from typing import Any, Literal, NamedTuple

from indexes import LABEL
from retriever.documents.division import (
    ascii_digits,
    divide,
    normalized,
    without_accents,
    word_pattern,
)
from retriever.documents.languages import (
    AMBIGUOUS_FUNCTION_WORDS,
    DEFAULT_LANGUAGES,
    ENGLISH_FUNCTION_WORDS,
    QUERY_FUNCTION_WORDS,
    SCRIPT_OF,
    function_words,
    languages_by_function_words,
    possible_languages,
    query_choices,
    script_of,
    text_languages,
)
from retriever.errors import ConfigError, require_several
from retriever.settings import check_settings, setting

NO_LANGUAGE = "none"
AUTO = "auto"
# What the settings of an index of an earlier release do not name.
PLAIN: dict[str, Any] = {"division": "plain", "detection": "words"}
# Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET: the 1,333 of the package `stop-words` ("able",
# "act", "affected", ...) cost retrieval quality.
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
# A phrase as `retriever.search.syntax` reads it.
_QUOTED = re.compile(r'(?<!\S)["“”]([^"“”]*)["“”]')
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
        detection: how ``auto`` tells the language of a passage: ``ngrams`` by function words and
            py3langid; ``words`` as in earlier releases, and where the settings name the language.

    Raises:
        ConfigError: the language is unknown, or has no stemmer or no stop-word list and the
            setting that needs it is on.
    """

    language: str = setting(AUTO, "Language of the texts.")
    stemming: bool = setting(True, "Reduce words to stems.")
    stop_words: bool = setting(True, "Drop stop words.")
    division: Literal["auto", "icu", "grams", "plain"] = setting("auto", "Division into words.")
    detection: Literal["ngrams", "words"] = setting("ngrams", "How languages are told.")

    def __post_init__(self) -> None:
        check_settings(self)
        if self.language != AUTO:
            # Nothing is told, so these settings equal those of earlier releases.
            object.__setattr__(self, "detection", "words")
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

    def to_json(self) -> dict[str, Any]:
        """As they are stored, beside `PLAIN`; those of an earlier release as it wrote them."""
        values = asdict(self)
        if self.detection == "words":
            del values["detection"]
        return values

    def resolved(self) -> AnalyzerSettings:
        """With what is installed here in place of the division ``auto``."""
        if self.division != "auto":
            return self
        return replace(self, division="grams" if find_spec("icu4py") is None else "icu")


def as_held(asked: AnalyzerSettings | None, held: AnalyzerSettings) -> AnalyzerSettings | None:
    """Return what is asked for, read as the index is if all that a caller chooses is the same."""
    if asked is None:
        return held
    same = replace(asked, division=held.division, detection=held.detection) == held
    if not same:
        return asked.resolved()
    return held if asked.division == "auto" else replace(asked, detection=held.detection)


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
        self._is_plain = self.settings.division == "plain"
        if stop_list is not None:
            require_several("stop_list", stop_list)
            self.stop_list = frozenset(stop_list)
        elif language == AUTO:
            named = sorted(SCRIPT_OF.keys() & _languages()[1])
            self.stop_list = frozenset(
                chain.from_iterable(
                    function_words(one, _stop_words(one, self._is_plain)) for one in named
                )
            )
        elif self.settings.stop_words:
            self.stop_list = _stop_words(language, self._is_plain)
        else:
            self.stop_list = frozenset()
        # They know no analyzer: a cycle would keep one that nobody needs, with a megabyte of words,
        # until cycles are collected.
        self._words = lru_cache(_MEMOS)(partial(_Words, self.settings, self.stop_list))

    @cached_property
    def identity(self) -> str:
        """Equal for analyzers that give every text the same terms."""
        facts = json.dumps([self.settings.to_json(), sorted(self.stop_list)])
        return hashlib.sha256(facts.encode()).hexdigest()

    def tokens(self, text: str) -> list[str]:
        """The terms of `text` in the order of its words, repeated as often as they occur."""
        return self.analyzed(text)[0]

    def analyzed(self, text: str, label: str = "") -> tuple[list[str], tuple[str, ...]]:
        """The terms of a text, and its languages; none if the settings name the language.

        The distinct terms of a label, read in the languages of the text, follow with `LABEL`
        before them.
        """
        _, units, words = self._read(text)
        terms = list(chain.from_iterable(map(words.__getitem__, units)))
        if label:
            splits = not _APOSTROPHE_SEPARATES.isdisjoint(words.languages)
            pattern = word_pattern(label.isascii(), splits, self._is_plain)
            label_terms = chain.from_iterable(map(words.__getitem__, pattern.findall(label)))
            terms += map(LABEL.__add__, dict.fromkeys(label_terms))
        return terms, words.languages if self.settings.language == AUTO else ()

    def languages(self, text: str) -> tuple[str, ...]:
        """The languages of a text; none if the settings name the language."""
        return self._read(text)[2].languages if self.settings.language == AUTO else ()

    def words(self, text: str) -> list[str]:
        """The words of a text as written; of scripts without spaces, what stands between others."""
        # Only apostrophes depend on the language: a query needs no more than function words.
        return self._read(text, languages_by_function_words)[1]

    def query_tokens(
        self, text: str, held: Mapping[str, int], count: _Count | None = None
    ) -> list[str]:
        """The terms of a query to an index that holds so many passages of each language.

        Function words of the query, such as "how do I", have no terms where other words remain;
        one in quotation marks or in capitals does (docs/ranking.md). Where the query does not tell
        which language it is in, it has the terms of each but rare ones. By the number of passages
        with each term, a word of which there is no term also has those that there are in any of
        them.
        """
        if self.settings.language != AUTO:
            pattern, _, words = self._read(text)
            units, _ = self._query_units(text, pattern, words)
            return list(chain.from_iterable(map(words.__getitem__, units)))
        ascii_only, terms = text.isascii(), list[str]()
        whole, choices = list[str](), iter([tuple(held)])
        if len(held) != 1:
            whole = word_pattern(ascii_only, False, self._is_plain).findall(text)
            choices = query_choices(whole, ascii_only, self._known, held)
        dropped = set(whole)
        for languages in choices:
            splits = not _APOSTROPHE_SEPARATES.isdisjoint(languages)
            pattern = word_pattern(ascii_only, splits, self._is_plain)
            words = self._words(languages)
            units, function_units = self._query_units(text, pattern, words)
            dropped &= function_units
            new = chain.from_iterable(map(words.__getitem__, units))
            found = frozenset(terms)
            terms += [term for term in new if term not in found]
        if count is None or len(set(map(SCRIPT_OF.get, held))) == len(held):
            return terms
        if all((frequencies := count(terms)).values()):
            return terms
        every = dict.fromkeys(held, 1)  # None of them is rare.
        others = {
            term
            for unit in whole
            if unit not in dropped
            and (own := self.query_tokens(unit, held))
            and not any(map(frequencies.get, own))
            for term in self.query_tokens(unit, every)
        }
        more = count(sorted(others.difference(terms)))
        return terms + [term for term in more if more[term]]

    def _query_units(
        self, text: str, pattern: re.Pattern[str], words: _Words
    ) -> tuple[list[str], set[str]]:
        """The units of a query that have terms, and the function words that have none."""
        units = pattern.findall(text)
        if not self.settings.stop_words:
            return units, set()
        folded = list(map(str.lower, units))
        listed, unclear = words.function_words
        if listed.isdisjoint(folded):
            return units, set()
        is_listed = [False, *(word in listed for word in folded), False]
        quoted = {unit for phrase in _QUOTED.findall(text) for unit in pattern.findall(phrase)}
        has_cases = not text.isupper()
        dropped = set()
        for place, (unit, word) in enumerate(zip(units, folded, strict=True)):
            is_beside = is_listed[place] or is_listed[place + 2]
            # A capital letter that begins a sentence is no emphasis, and "I" is none anywhere.
            is_letter = len(unit) == 1 and (place == 0 or unit == "I")
            is_emphasized = has_cases and unit.isupper() and not is_letter
            is_function_word = word in listed or (word in unclear and is_beside)
            if is_function_word and not is_emphasized and unit not in quoted:
                dropped.add(unit)
        remaining = [unit for unit in units if unit not in dropped]
        if not any(map(words.__getitem__, remaining)):
            return units, set()
        return remaining, dropped

    def forms(self, word: str, held: Iterable[str]) -> frozenset[str]:
        """The terms of which a passage with a word has one, in the languages of an index.

        Empty if the word is a stop word in one of them.
        """
        auto = self.settings.language == AUTO
        languages = possible_languages(word, held) if auto else {self.settings.language}
        # Nothing is remembered of them: most are words that nobody writes.
        placed = [self._words((language,)).placed(word) for language in sorted(languages)]
        first = [next((term for term, _, _ in terms), None) for terms in placed]
        return frozenset() if None in first else frozenset(filter(None, first))

    def spans(
        self, text: str, wanted: Set[str] | None = None, held: Iterable[str] | None = None
    ) -> Iterator[tuple[str, int, int]]:
        """Each term with its place, as `text[start:end]`, in the order of `tokens`.

        Offsets count characters of `text` as given, normalized or not. Terms of one word, and of
        characters in a script without spaces, overlap. Words without a `wanted` term are left out.
        With the languages that an index has, the text is read in each of them, one after the other:
        no language is told, which can take longer than a query.
        """
        for pattern, words in self._readings(text, held):
            for match in pattern.finditer(text):
                if wanted is None or not wanted.isdisjoint(words[match.group()]):
                    for term, start, stop in words.placed(match.group()):
                        yield term, match.start() + start, match.start() + stop

    def _readings(
        self, text: str, held: Iterable[str] | None
    ) -> Iterator[tuple[re.Pattern[str], _Words]]:
        """Yield what finds the units of a text and what has their terms, for each reading of it."""
        if held is None or self.settings.language != AUTO:
            pattern, _, words = self._read(text)
            yield pattern, words
            return
        alone: list[tuple[str, ...]] = [(language,) for language in held]
        for languages in alone or [()]:
            splits = not _APOSTROPHE_SEPARATES.isdisjoint(languages)
            yield word_pattern(text.isascii(), splits, self._is_plain), self._words(languages)

    def _read(
        self, text: str, languages_of: Callable[..., tuple[str, ...]] | None = None
    ) -> tuple[re.Pattern[str], list[str], _Words]:
        """Return the pattern of units, the units of a text, and the words with their terms."""
        ascii_only, language = text.isascii(), self.settings.language
        pattern = word_pattern(ascii_only, language in _APOSTROPHE_SEPARATES, self._is_plain)
        units = pattern.findall(text)
        if language != AUTO:
            return pattern, units, self._words((language,))
        if languages_of is None:
            by_words = self.settings.detection == "words"
            languages_of = languages_by_function_words if by_words else text_languages
        languages = languages_of(units, ascii_only, self._known)
        if not _APOSTROPHE_SEPARATES.isdisjoint(languages):
            pattern = word_pattern(ascii_only, True, self._is_plain)
            units = pattern.findall(text)
        return pattern, units, self._words(languages)

    @cached_property
    def _known(self) -> dict[str, tuple[str, ...]]:
        """The languages of each function word."""
        known: dict[str, tuple[str, ...]] = {}
        for one in chain(self.stop_list, map("english:".__add__, ENGLISH_FUNCTION_WORDS)):
            language, _, word = one.partition(":")
            known[word] = (*known.get(word, ()), language)
        # A capital letter by itself is a symbol.
        capitals = {word.capitalize(): found for word, found in known.items() if len(word) > 1}
        return known | capitals


class _Rule(NamedTuple):
    """How a word becomes a term."""

    language: str
    stop_words: frozenset[str]
    stem: Callable[[str], str]


@dataclass(eq=False, repr=False)
class _Words(dict[str, tuple[str, ...]]):
    """The terms of units of texts in some languages, computed where missing: a dict, for speed."""

    settings: AnalyzerSettings
    stop_list: frozenset[str]
    languages: tuple[str, ...]
    # By the script of a word.
    rules: dict[str | None, _Rule] = field(default_factory=dict)

    @cached_property
    def function_words(self) -> tuple[frozenset[str], frozenset[str]]:
        """The words that are function words in queries, and those that are beside such words."""
        listed, unclear = (
            {word for language in self.languages for word in table.get(language, ())}
            for table in (QUERY_FUNCTION_WORDS, AMBIGUOUS_FUNCTION_WORDS)
        )
        listed |= {word.replace("'", "’") for word in listed}
        return frozenset(listed), frozenset(unclear)

    def __missing__(self, unit: str) -> tuple[str, ...]:
        terms = tuple([term for term, _, _ in self.placed(unit)])
        if len(unit) <= _MEMO_WORD_LENGTH:
            if len(self) >= _MEMO_ENTRIES:
                self.clear()
            self[unit] = terms
        return terms

    def placed(self, unit: str) -> Iterator[tuple[str, int, int]]:
        """The terms of a unit with their places in it."""
        is_plain = self.settings.division == "plain"
        for text, start, stop, is_word in divide(unit, self.settings.division):
            if not is_word:
                if term := _fold(text):
                    yield term, start, stop
                continue
            script = script_of(text)
            language, stop_words, stem = self.rules.get(script) or self.rule(script)
            folded = _fold(text, language == "turkish", not is_plain)
            splits = language in _APOSTROPHE_SEPARATES
            for word in word_pattern(folded.isascii(), splits, True).findall(folded):
                bare = word.removesuffix("'s") if language in _HAS_POSSESSIVE else word
                if bare in stop_words or word in stop_words:
                    continue
                yield (term := stem(bare)), start, stop
                if not (is_plain or bare.isascii()):
                    plain = without_accents(bare)
                    if plain != bare and plain not in stop_words and (other := stem(plain)) != term:
                        yield other, start, stop

    def rule(self, script: str | None) -> _Rule:
        """How words of a script become terms, whose language may be that of the settings."""
        import Stemmer

        language, stop_words, stem = self.settings.language, self.stop_list, str
        if language == AUTO:
            here = (one for one in self.languages if SCRIPT_OF.get(one) == script)
            language = next(here, DEFAULT_LANGUAGES.get(script, ""))
            dropped = self.settings.stop_words and language not in _TOLD_BUT_KEPT
            mine = f"{language}:" if dropped else "-"
            stop_words = frozenset(w.removeprefix(mine) for w in stop_words if w.startswith(mine))
        if self.settings.stemming and language in Stemmer.algorithms():
            # The dict remembers stems already; a call holds the interpreter's lock, for threads.
            stem = Stemmer.Stemmer(language, 0).stemWord
        rule = self.rules[script] = _Rule(language, stop_words, stem)
        return rule


def _fold(word: str, turkish: bool = False, ascii_digits_only: bool = True) -> str:
    """NFKC, lower case, a plain apostrophe, nothing invisible."""
    if word.isascii() and not turkish:
        return word.lower()
    word = normalized("NFKC", word)
    # str.lower makes "i" and a combining dot of "İ"; in Turkish the lower case of "I" is "ı".
    word = word.replace("İ", "i")
    if turkish:
        word = word.replace("I", "ı")
    if ascii_digits_only:
        word = word.translate(ascii_digits())
    # Lower-casing and removing joiners can leave a sequence that composes further.
    return normalized("NFKC", word.translate(_INVISIBLE).lower())


def _languages() -> tuple[frozenset[str], frozenset[str]]:
    """The languages that have a stemmer, and those that have a list of stop words."""
    import Stemmer
    from stop_words import AVAILABLE_LANGUAGES

    lists = frozenset(AVAILABLE_LANGUAGES) | {"english"}
    lists |= {name for name, same in _SAME_STOP_WORDS.items() if same in lists}
    return frozenset(Stemmer.algorithms()), lists


@cache
def _stop_words(language: str, is_plain: bool) -> frozenset[str]:
    """The stop words of a language in folded form."""
    turkish, splits = language == "turkish", language in _APOSTROPHE_SEPARATES
    language = _SAME_STOP_WORDS.get(language, language)
    if language == "english":
        return ENGLISH_STOP_WORDS
    from stop_words import get_stop_words

    found = set()
    for listed in chain(get_stop_words(language), _DANISH if language == "danish" else ()):
        folded = _fold(listed, turkish, not is_plain)
        # The lists hold phrases and punctuation too; only an entry that is one word can be met.
        if len(words := word_pattern(folded.isascii(), splits, True).findall(folded)) == 1:
            found.update(words)
    return frozenset(found)
