"""User-defined synonyms: groups of phrases; a query with one of them also finds the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from retriever.documents.division import divide, normalize
from retriever.errors import BadInputError, ConfigError, SourceError

if TYPE_CHECKING:
    from retriever.documents.analyzer import Analyzer

# Limits of a file of synonyms: bytes, groups, phrases of a group, words of a phrase.
_MOST_BYTES = 1_000_000
_MOST_GROUPS = 10_000
_MOST_PHRASES = 50
_MOST_WORDS = 10
# Number of first letters by which phrases are looked up, before stems are compared.
_KEY_LETTERS = 2
# Maximum number of words of a query that are compared, and of groups that match.
_MOST_QUERY_WORDS = 200
_MOST_MATCHES = 20
# Signs that are removed from the ends of words.
_PUNCTUATION = ".,;:!?()[]{}\"'“”‘«»*-"


@dataclass(frozen=True, eq=False)
class Synonyms:
    """Groups of phrases with the same meaning.

    Attributes:
        groups: at most 10,000 groups, each of 2 to 50 distinct phrases of at most ten words.

    Raises:
        ConfigError: there are too many groups, or one is malformed.
    """

    groups: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        if len(self.groups) > _MOST_GROUPS:
            raise ConfigError(
                f"synonyms: expected at most {_MOST_GROUPS:,} groups, found {len(self.groups):,}"
            )
        for number, group in enumerate(self.groups, start=1):
            if fault := _group_fault(group):
                raise ConfigError(f"synonyms: group {number}: {fault}")

    def find(
        self, text: str, analyzer: Analyzer, languages: Mapping[str, int]
    ) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
        """Yield the phrases of a text, each with the words of the other phrases of its groups.

        Words are equal if any of their forms are. If several phrases begin at one word, the longest
        counts, and the next one begins after it.
        """
        words = _split_words(text)[:_MOST_QUERY_WORDS]
        yield from self._find_spaceless("".join(words))

        @cache
        def forms(word: str) -> frozenset[str]:
            return analyzer.forms(word, languages)

        @cache
        def phrases_from(word: str) -> list[tuple[int, tuple[str, ...]]]:
            likely = self._phrases.get(word[:_KEY_LETTERS], ())
            return [
                (number, phrase)
                for number, phrase in likely
                if _is_same_word(word, phrase[0], forms)
            ]

        start = matches = 0
        while start < len(words) and matches < _MOST_MATCHES:
            matching = [
                (number, phrase)
                for number, phrase in phrases_from(words[start])
                if len(words) >= start + len(phrase)
                and all(
                    _is_same_word(word, phrase_word, forms)
                    for word, phrase_word in zip(words[start:], phrase, strict=False)
                )
            ]
            longest = max((len(phrase) for _, phrase in matching), default=0)
            numbers = {number for number, phrase in matching if len(phrase) == longest}
            excluded = {" ".join(phrase) for _, phrase in matching}
            for number in sorted(numbers):
                yield words[start : start + longest], self._alternatives(number, excluded)
                matches += 1
            start += longest or 1

    def _find_spaceless(self, text: str) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
        """Yield the phrases in scripts without spaces of a text, as `find` does."""
        matching = [(number, phrase) for number, phrase in self._spaceless if phrase in text]
        for number, phrase in matching[:_MOST_MATCHES]:
            yield (phrase,), self._alternatives(number, {phrase})

    @cached_property
    def _spaceless(self) -> list[tuple[int, str]]:
        """Phrases in scripts without spaces, without any white space, with their group numbers."""
        return [
            (number, "".join(words))
            for number, group in enumerate(self.groups)
            for words in map(_split_words, group)
            if any(map(is_spaceless, words))
        ]

    @cached_property
    def _phrases(self) -> dict[str, list[tuple[int, tuple[str, ...]]]]:
        """Group numbers and words of all other phrases, by the first letters of the phrase."""
        phrases = defaultdict(list)
        for number, group in enumerate(self.groups):
            for phrase in group:
                words = _split_words(phrase)
                if not any(map(is_spaceless, words)):
                    phrases[words[0][:_KEY_LETTERS]].append((number, words))
        return dict(phrases)

    def _alternatives(self, number: int, excluded: Set[str]) -> list[tuple[str, ...]]:
        """Return the words of each phrase of a group that is not in `excluded`."""
        phrases = dict.fromkeys(map(_split_words, self.groups[number]))
        return [words for words in phrases if " ".join(words) not in excluded]


def load_synonyms(path: str | Path) -> Synonyms:
    """Read a file of synonyms: UTF-8, one group a line, its phrases separated by commas.

    A comment begins with ``#`` at the beginning of a line or after white space.

    Raises:
        SourceError: the file cannot be read.
        BadInputError: a line is malformed, or the file is too large; names file and line.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise SourceError(f"{path}: cannot read synonyms: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise BadInputError(f"{path}: expected at most {_MOST_BYTES:,} bytes; leave out some")
    groups = []
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise BadInputError(
                f"{path}:{number}: expected UTF-8, found other bytes; save the file as UTF-8"
            ) from None
        text = _remove_comment(text)
        if not text:
            continue
        group = [" ".join(phrase.split()) for phrase in text.split(",")]
        if fault := _group_fault(group):
            raise BadInputError(f"{path}:{number}: {fault}")
        groups.append(group)
        if len(groups) > _MOST_GROUPS:
            raise BadInputError(
                f"{path}:{number}: expected at most {_MOST_GROUPS:,} groups; leave out the rest"
            )
    return Synonyms(groups)


def is_spaceless(word: str) -> bool:
    """Return whether a word is in a script without spaces."""
    return not any(piece.is_word for piece in divide(word, "grams"))


def _remove_comment(line: str) -> str:
    for offset, character in enumerate(line):
        if character == "#" and (offset == 0 or line[offset - 1].isspace()):
            return line[:offset].strip()
    return line.strip()


def _group_fault(group: object) -> str | None:
    """Describe the fault of a group; None if it has none."""
    if isinstance(group, str) or not isinstance(group, Sequence):
        return f"expected phrases, found {group!r:.60}"
    if not 2 <= len(group) <= _MOST_PHRASES:
        number = f"{len(group)} phrase{'s' * (len(group) != 1)}"
        return f"expected 2 to {_MOST_PHRASES} phrases separated by commas, found {number}"
    for phrase in group:
        if not isinstance(phrase, str) or "=>" in phrase:
            return f"expected a phrase, found {phrase!r:.60}; separate phrases by commas"
        if not 1 <= len(_split_words(phrase)) <= _MOST_WORDS:
            return f"expected a phrase of 1 to {_MOST_WORDS} words, found {phrase!r:.60}"
    return None


def _split_words(text: str) -> tuple[str, ...]:
    """Return the words of a phrase in lower case, without punctuation."""
    lower = normalize("NFKC", text).lower().replace("’", "'")
    stripped = (word.strip(_PUNCTUATION) for word in lower.split())
    return tuple(word for word in stripped if any(map(str.isalnum, word)))


def _is_same_word(left: str, right: str, forms: Callable[[str], frozenset[str]]) -> bool:
    """Return whether two words are equal in any of their forms; "c" and "c++" are not."""
    if left == right:
        return True
    return (left + right).replace("'", "").isalnum() and not forms(left).isdisjoint(forms(right))
