"""Sentences of a corpus for probing sets: their tokens, and samples of distinct sentences.

Tokens are separated by spaces and, as in SentEval's probing sets, punctuation around a word is a
token of its own.
"""

from __future__ import annotations

import heapq
import re
import unicodedata
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain

SHORTEST, LONGEST = 5, 28
"""Minimum and maximum number of tokens of a sentence, as in SentEval's probing sets."""

# Separate from their words in tokenized text.
_CLITICS = frozenset({"'s", "'re", "'ve", "'ll", "'d", "'m", "’s", "’re", "’ve", "’ll", "’d", "’m"})
_SAME_CHARACTER = re.compile(r"(.)\1*", re.DOTALL)


def tokens_of(text: str) -> tuple[str, ...]:
    """The tokens of a text.

    Between two spaces, the text from the first letter or digit to the last is one token
    ("well-known", "3.5", "don't"); a run of the same punctuation mark before or after it is another
    ("..."). A separate clitic ("'s") is one token.
    """
    return tuple(chain.from_iterable(map(_tokens, text.split())))


def _tokens(chunk: str) -> tuple[str, ...]:
    if chunk.isalnum() or chunk.lower() in _CLITICS:
        return (chunk,)
    inside = [place for place, sign in enumerate(chunk) if _in_word(sign)]
    first, last = (inside[0], inside[-1] + 1) if inside else (len(chunk), len(chunk))
    before, word, after = chunk[:first], chunk[first:last], chunk[last:]
    return (*_runs(before), *([word] if word else ()), *_runs(after))


def _runs(signs: str) -> list[str]:
    return [match.group() for match in _SAME_CHARACTER.finditer(signs)]


def _in_word(sign: str) -> bool:
    return sign.isalnum() or unicodedata.category(sign)[0] == "M"


def is_word(token: str) -> bool:
    """Whether a token has a letter or digit."""
    return any(sign.isalnum() for sign in token)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence and its random numbers.

    The three numbers are a hash of the seed and the tokens in any case, so they do not depend on
    where and how often the sentence occurs in the corpus.

    Attributes:
        tokens: `SHORTEST` to `LONGEST` of them.
        rank: 0 to 2^64 - 1; sentences with the lowest ranks are drawn.
        order: 0 to 2^64 - 1; sort key of the instances.
        choice: 0 to 2^64 - 1; for random choices of a task.
    """

    tokens: tuple[str, ...]
    rank: int
    order: int
    choice: int


def sentence_of(text: str, seed: int) -> Sentence | None:
    """A text as a sentence; None if it has too few or too many tokens."""
    tokens = tokens_of(text)
    if not SHORTEST <= len(tokens) <= LONGEST:
        return None
    key = f"{seed} {folded(tokens)}".encode("utf-8", "surrogatepass")
    digest = blake2b(key, digest_size=24).digest()
    rank, order, choice = (int.from_bytes(digest[at : at + 8]) for at in (0, 8, 16))
    return Sentence(tokens, rank, order, choice)


def folded(tokens: tuple[str, ...]) -> str:
    """The tokens as one case-folded text: equal for sentences that count as the same."""
    return " ".join(tokens).casefold()


class Sample:
    """A random sample of distinct sentences from a stream: those with the lowest ranks.

    It does not depend on the order of the stream or on repetitions.

    Args:
        size: maximum number of sentences.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._heap: list[tuple[int, Sentence]] = []
        self._ranks: set[int] = set()

    def offer(self, sentence: Sentence) -> None:
        """Keep the sentence if its rank is among the lowest so far."""
        if sentence.rank in self._ranks:
            return
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, (-sentence.rank, sentence))
        elif sentence.rank < -self._heap[0][0]:
            dropped, _ = heapq.heapreplace(self._heap, (-sentence.rank, sentence))
            self._ranks.remove(-dropped)
        else:
            return
        self._ranks.add(sentence.rank)

    def __len__(self) -> int:
        return len(self._heap)

    def sentences(self) -> list[Sentence]:
        """The sample by rank, ascending."""
        return [sentence for _, sentence in sorted(self._heap, key=lambda pair: -pair[0])]
