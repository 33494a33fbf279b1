"""The analyzer: from text to index terms, the same for passages and for queries.

The steps, in order:

1. *Words.* A word is a run of letters and digits of any script with their combining marks, so
   that a decomposed "é" or a Devanagari vowel sign does not split it. An apostrophe between two
   of them belongs to the word ("don't", as in UAX #29 and Lucene's StandardTokenizer), except in
   Catalan, French, Italian and Turkish, where it separates an article or a suffix from the word
   ("l'avion" is "l", "avion"). Every CJK ideograph and kana is a word of its own. All else
   separates words: space, punctuation, the underscore, symbols, emoji. Scripts written without
   spaces other than CJK (Thai, Lao, Khmer, Burmese) are not segmented.
2. *Form.* NFKC, lower case, ’ as ', without soft hyphens and zero-width joiners.
3. *Possessive* (English): a final 's is removed.
4. *Stop words* are dropped. English has the 33 words of Lucene's EnglishAnalyzer: the `stop-words`
   package lists 1,333 for English ("able", "act", "affected", …), which costs retrieval quality.
   Other languages have the list of that package.
5. *Stemming* with the language's Snowball stemmer (PyStemmer).
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import chain

from retriever.errors import ConfigError, require_several
from retriever.settings import check_settings, setting

NO_LANGUAGE = "none"
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

_MEMO_ENTRIES = 1_000_000
_MEMO_WORD_LENGTH = 255

_CJK = (
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u3096\u309d-\u309f\u30a1-\u30fa"
    "\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d"
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
# Marks that Unicode does not call marks: half-width kana voicing, soft hyphen, zero-width joiners.
_LIKE_MARKS = "\uff9e\uff9f\u00ad\u200c\u200d"
_INVISIBLE = str.maketrans("’", "'", "\u00ad\u200c\u200d")


@dataclass(frozen=True, slots=True)
class AnalyzerSettings:
    """What an analyzer does; stored with the index.

    Attributes:
        language: a Snowball language ("english", "german", …), or "none" for lower-cased words
            without stemming and stop words, whatever the other two say (they become False).
        stemming: reduce words to stems; needs a Snowball stemmer for the language.
        stop_words: drop stop words; needs a stop-word list for the language.

    Raises:
        ConfigError: the language is unknown, or has no stemmer or no stop-word list and the
            setting that needs it is on.
    """

    language: str = setting("english", "Language of the texts.")
    stemming: bool = setting(True, "Reduce words to stems.")
    stop_words: bool = setting(True, "Drop stop words.")

    def __post_init__(self) -> None:
        check_settings(self)
        if self.language == NO_LANGUAGE:
            object.__setattr__(self, "stemming", False)
            object.__setattr__(self, "stop_words", False)
            return
        stemmers, lists = _languages()
        if self.language not in stemmers | lists:
            raise ConfigError(
                f"unknown language {self.language!r}; use one of "
                f"{', '.join(sorted((stemmers & lists) | {NO_LANGUAGE}))}; without stop words also "
                f"{', '.join(sorted(stemmers - lists))}; without stemming also "
                f"{', '.join(sorted(lists - stemmers))}"
            )
        if self.stemming and self.language not in stemmers:
            raise ConfigError(f"no stemmer for {self.language!r}: turn stemming off")
        if self.stop_words and self.language not in lists:
            raise ConfigError(f"no stop-word list for {self.language!r}: turn stop words off")


class Analyzer:
    """Turns text into terms; deterministic, and the same for passages and for queries.

    An analyzer remembers the terms of the words it has seen, up to a million. Threads may share
    it.

    Args:
        settings: defaults to English.
        stop_list: the stop words themselves, as an earlier analyzer's `stop_list` gave them;
            None takes the language's. An index keeps its own, so that another release of a
            word list cannot change what its queries mean.

    Attributes:
        stop_list: the stop words in folded form; empty without `settings.stop_words`.

    Raises:
        ConfigError: see `AnalyzerSettings`.
    """

    def __init__(
        self, settings: AnalyzerSettings | None = None, stop_list: Iterable[str] | None = None
    ) -> None:
        self.settings = settings or AnalyzerSettings()
        self._splits_apostrophe = self.settings.language in _APOSTROPHE_SEPARATES
        if stop_list is not None:
            require_several("stop_list", stop_list)
            self.stop_list = frozenset(stop_list)
        elif self.settings.stop_words:
            self.stop_list = _stop_words(self.settings.language, self._folded_words)
        else:
            self.stop_list = frozenset()
        self._memo = _Memo(self._word_analysis())

    @cached_property
    def identity(self) -> str:
        """Equal for analyzers that give every text the same terms."""
        facts = json.dumps([asdict(self.settings), sorted(self.stop_list)])
        return hashlib.sha256(facts.encode()).hexdigest()

    def tokens(self, text: str) -> list[str]:
        """The terms of `text` in the order of its words, repeated as often as they occur."""
        words = self._pattern(text).findall(text)
        return list(chain.from_iterable(map(self._memo.__getitem__, words)))

    def spans(self, text: str) -> Iterator[tuple[str, int, int]]:
        """Each term with the word it comes from, as `text[start:end]`, in the order of `tokens`.

        Offsets count characters of `text` as given, normalized or not. The rare word whose NFKC
        form is several words ("½" is "1" and "2") gives several terms with one span.
        """
        for match in self._pattern(text).finditer(text):
            for term in self._memo[match.group()]:
                yield term, match.start(), match.end()

    def _pattern(self, text: str) -> re.Pattern[str]:
        return word_pattern(text.isascii(), self._splits_apostrophe)

    def _folded_words(self, word: str) -> list[str]:
        folded = _fold(word, turkish=self.settings.language == "turkish")
        return self._pattern(folded).findall(folded)

    def _word_analysis(self) -> Callable[[str], tuple[str, ...]]:
        """The function from a word as written to its terms (none for a stop word)."""
        possessive = self.settings.language in _HAS_POSSESSIVE
        stem: Callable[[str], str] | None = None
        if self.settings.stemming:
            import Stemmer

            # The memo of the analyzer remembers stems already.
            stem = Stemmer.Stemmer(self.settings.language, 0).stemWord
        stop, fold = self.stop_list, self._folded_words

        def analyze(word: str) -> tuple[str, ...]:
            terms = []
            for folded in fold(word):
                bare = folded.removesuffix("'s") if possessive else folded
                if bare in stop or folded in stop:
                    continue
                terms.append(stem(bare) if stem else bare)
            return tuple(terms)

        return analyze


class _Memo(dict[str, tuple[str, ...]]):
    """Terms of each word already seen; a plain dict for speed, computed where missing."""

    def __init__(self, analyze: Callable[[str], tuple[str, ...]]) -> None:
        super().__init__()
        self._analyze = analyze
        # A stemmer serves one thread at a time.
        self._busy = threading.Lock()

    def __missing__(self, word: str) -> tuple[str, ...]:
        with self._busy:
            terms = self._analyze(word)
        if len(word) <= _MEMO_WORD_LENGTH:
            if len(self) >= _MEMO_ENTRIES:
                self.clear()
            self[word] = terms
        return terms


def _fold(word: str, *, turkish: bool) -> str:
    """NFKC, lower case, a plain apostrophe, nothing invisible."""
    if word.isascii() and not turkish:
        return word.lower()
    if not unicodedata.is_normalized("NFKC", word):
        word = unicodedata.normalize("NFKC", word)
    # str.lower makes "i" and a combining dot of "İ"; in Turkish the lower case of "I" is "ı".
    word = word.replace("İ", "i")
    if turkish:
        word = word.replace("I", "ı")
    # Lower-casing and removing joiners can leave a sequence that composes further.
    return unicodedata.normalize("NFKC", word.translate(_INVISIBLE).lower())


@cache
def word_pattern(ascii_only: bool, splits_apostrophe: bool) -> re.Pattern[str]:
    """What a word is; the ASCII pattern finds the same words in ASCII text, sooner."""
    if ascii_only:
        run, cjk = "[A-Za-z0-9]+", ""
    else:
        letters = rf"[^\W_{_CJK}{_LIKE_MARKS}]"
        marks = f"[{_mark_ranges()}{_LIKE_MARKS}]"
        run, cjk = f"{letters}+(?:{marks}+{letters}*)*", f"[{_CJK}]{marks}*|"
    return re.compile(cjk + run + ("" if splits_apostrophe else f"(?:['’]{run})*"))


@cache
def _mark_ranges() -> str:
    """The marks of Unicode, for which `re` has no name, as the inside of a set."""
    ranges: list[list[int]] = []
    for code in range(0x300, sys.maxunicode + 1):
        # Planes 2 to 13 hold ideographs or nothing: skipping them keeps this to milliseconds.
        if 0x20000 <= code < 0xE0000:
            continue
        if code >= 0xF0000:
            break
        if unicodedata.category(chr(code))[0] == "M":
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


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

    # The lists hold phrases and punctuation too; only an entry that is one word can be met.
    return frozenset(
        chain.from_iterable(f for w in get_stop_words(language) if len(f := fold(w)) == 1)
    )
