"""Synonyms of one's own: groups of phrases, each of which finds the others when it is typed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from retriever.documents.division import divide, normalized
from retriever.errors import BadInputError, ConfigError, SourceError

if TYPE_CHECKING:
    from retriever.documents.analyzer import Analyzer

# Limits of a file of synonyms: bytes; groups; phrases of a group; words of a phrase.
_MOST_BYTES = 1_000_000
_MOST_GROUPS = 10_000
_MOST_PHRASES = 50
_MOST_WORDS = 10
# First letters by which phrases are found, before stems are compared.
_FIRST = 2
# Words of a query that are compared, and groups that it meets.
_MOST_QUERY_WORDS = 200
_MOST_MATCHES = 20
# Signs that are stripped from the ends of words.
_PUNCTUATION = ".,;:!?()[]{}\"'“”‘«»*-"


@dataclass(frozen=True, eq=False)
class Synonyms:
    """Groups of phrases of the same meaning.

    Attributes:
        groups: each of 2 to 50 distinct phrases of at most ten words; at most 10,000 groups.

    Raises:
        ConfigError: a group is something else.
    """

    groups: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        if len(self.groups) > _MOST_GROUPS:
            raise ConfigError(
                f"synonyms: expected at most {_MOST_GROUPS:,} groups, found {len(self.groups):,}"
            )
        for number, group in enumerate(self.groups, start=1):
            if fault := _fault(group):
                raise ConfigError(f"synonyms: group {number}: {fault}")

    @cached_property
    def _spaceless(self) -> list[tuple[int, str]]:
        """Phrases in scripts without spaces, joined, each with the number of its group."""
        return [
            (number, "".join(words))
            for number, group in enumerate(self.groups)
            for words in map(_words, group)
            if any(map(is_spaceless, words))
        ]

    @cached_property
    def _phrases(self) -> dict[str, list[tuple[int, tuple[str, ...]]]]:
        """Groups' numbers and phrases by the first letters of the phrase."""
        phrases = defaultdict(list)
        for number, group in enumerate(self.groups):
            for phrase in group:
                words = _words(phrase)
                if not any(map(is_spaceless, words)):
                    phrases[words[0][:_FIRST]].append((number, words))
        return dict(phrases)

    def find(
        self, text: str, analyzer: Analyzer, languages: Mapping[str, int]
    ) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
        """The phrases that a text has, each with the words of the other phrases of its groups.

        Words are equal in any of their forms. If several phrases begin at one word, the longest
        counts, and the search goes on after it.
        """
        words = _words(text)[:_MOST_QUERY_WORDS]
        joined = "".join(words)
        within = [(number, phrase) for number, phrase in self._spaceless if phrase in joined]
        for number, phrase in within[:_MOST_MATCHES]:
            yield (phrase,), self._alternatives(number, {phrase})

        @cache
        def forms(word: str) -> frozenset[str]:
            return analyzer.forms(word, languages)

        @cache
        def phrases_from(word: str) -> list[tuple[int, tuple[str, ...]]]:
            likely = self._phrases.get(word[:_FIRST], ())
            return [(number, phrase) for number, phrase in likely if _equal(word, phrase[0], forms)]

        place = matches = 0
        while place < len(words) and matches < _MOST_MATCHES:
            own = [
                (number, phrase)
                for number, phrase in phrases_from(words[place])
                if len(words) >= place + len(phrase)
                and all(
                    _equal(word, other, forms)
                    for word, other in zip(words[place:], phrase, strict=False)
                )
            ]
            longest = max((len(phrase) for _, phrase in own), default=0)
            numbers = {number for number, phrase in own if len(phrase) == longest}
            same = {" ".join(phrase) for _, phrase in own}
            for number in sorted(numbers):
                yield words[place : place + longest], self._alternatives(number, same)
                matches += 1
            place += longest or 1

    def _alternatives(self, number: int, same: Set[str]) -> list[tuple[str, ...]]:
        """The words of the phrases of a group without those of `same`."""
        phrases = dict.fromkeys(map(_words, self.groups[number]))
        return [words for words in phrases if " ".join(words) not in same]


def load_synonyms(path: str | Path) -> Synonyms:
    """Read a file of synonyms: UTF-8, a group a line, its phrases separated by commas.

    What follows ``#`` at the beginning of a line or after white space is a comment.

    Raises:
        SourceError: the file cannot be read.
        BadInputError: a line is something else, or the file is too large; with file and line.
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
        written = _without_comment(text)
        if not written:
            continue
        group = [" ".join(phrase.split()) for phrase in written.split(",")]
        if fault := _fault(group):
            raise BadInputError(f"{path}:{number}: {fault}")
        groups.append(group)
        if len(groups) > _MOST_GROUPS:
            raise BadInputError(
                f"{path}:{number}: expected at most {_MOST_GROUPS:,} groups; leave out the rest"
            )
    return Synonyms(groups)


def is_spaceless(word: str) -> bool:
    """Whether a word is of a script without spaces."""
    return not any(piece.is_word for piece in divide(word, "grams"))


def _without_comment(line: str) -> str:
    for place, character in enumerate(line):
        if character == "#" and (place == 0 or line[place - 1].isspace()):
            return line[:place].strip()
    return line.strip()


def _fault(group: object) -> str | None:
    """The fault of a group; None if it is sound."""
    if isinstance(group, str) or not isinstance(group, Sequence):
        return f"expected phrases, found {group!r:.60}"
    if not 2 <= len(group) <= _MOST_PHRASES:
        number = f"{len(group)} phrase{'s' * (len(group) != 1)}"
        return f"expected 2 to {_MOST_PHRASES} phrases separated by commas, found {number}"
    for phrase in group:
        if not isinstance(phrase, str) or "=>" in phrase:
            return f"expected a phrase, found {phrase!r:.60}; separate phrases by commas"
        if not 1 <= len(_words(phrase)) <= _MOST_WORDS:
            return f"expected a phrase of 1 to {_MOST_WORDS} words, found {phrase!r:.60}"
    return None


def _words(text: str) -> tuple[str, ...]:
    """The words of a phrase, in lower case."""
    folded = normalized("NFKC", text).lower().replace("’", "'")
    stripped = (word.strip(_PUNCTUATION) for word in folded.split())
    return tuple(word for word in stripped if any(map(str.isalnum, word)))


def _equal(word: str, other: str, forms: Callable[[str], frozenset[str]]) -> bool:
    """Whether two words are equal in any of their forms; "c" and "c++" are not."""
    if word == other:
        return True
    return (word + other).replace("'", "").isalnum() and not forms(word).isdisjoint(forms(other))
