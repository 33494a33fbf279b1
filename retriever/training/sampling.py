"""(question, positive, negative) triples for pairwise training, a batch of questions at a time.

A batch names each (question, passage) pair once and its triples by positions in the pairs: a model
scores pairs, and triples cost next to nothing however many a pool gives.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from retriever.errors import BadInputError
from retriever.training.settings import NegativeSource, SamplingSettings

Rows = NDArray[np.int64]
T = TypeVar("T")


class Reservoir(Generic[T]):
    """A sample of a stream, in which each item is with the same chance; `seen` counts them all."""

    def __init__(self, size: int, seed: int) -> None:
        self.items: list[T] = []
        self.seen = 0
        self._size = size
        self._chance = random.Random(seed)

    def add(self, item: T) -> None:
        """Take in the next item."""
        self.seen += 1
        # Vitter's algorithm R: the n-th item takes a random place with probability size / n.
        if len(self.items) < self._size:
            self.items.append(item)
        elif (place := self._chance.randrange(self.seen)) < self._size:
            self.items[place] = item


@dataclass(frozen=True, slots=True, eq=False)
class JudgedPools:
    """Rows of relevant and other passages, those of question i from starts[i] to starts[i + 1]."""

    positive_starts: Rows
    positives: Rows
    negative_starts: Rows
    negatives: Rows
    passages: int

    @classmethod
    def of(
        cls, positives: Sequence[Sequence[int]], negatives: Sequence[Sequence[int]], passages: int
    ) -> JudgedPools:
        """From a list of positives and one of negatives for each question."""
        return cls(*_flat(positives), *_flat(negatives), passages)

    def __len__(self) -> int:
        return len(self.positive_starts) - 1

    def part(self, questions: Rows) -> JudgedPools:
        """The pools of some questions, in this order."""
        right, _, positives = _taken(self.positive_starts, self.positives, questions)
        wrong, _, negatives = _taken(self.negative_starts, self.negatives, questions)
        return JudgedPools(_starts(right), positives, _starts(wrong), negatives, self.passages)

    def trainable(self, source: NegativeSource, in_batch: bool = False) -> Rows:
        """The questions that can be trained on with negatives of a source, ascending.

        With `in_batch` passages of other questions are negatives too.
        """
        some = np.diff(self.positive_starts) > 0
        if source not in ("random", "batch") and not in_batch:
            some &= np.diff(self.negative_starts) > 0
        return np.flatnonzero(some)

    def relevant(self, questions: Rows, passages: Rows) -> NDArray[np.bool_]:
        """Whether passages are positives of each question, (questions, passages) bool.

        `passages` are the same for all questions, or a row for each.
        """
        _, owner, rows = _taken(self.positive_starts, self.positives, questions)
        places = np.arange(len(questions))[:, None] * self.passages + passages
        return np.isin(places, owner * self.passages + rows)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSet:
    """The texts that the rows of `pools` name."""

    questions: list[str]
    passages: list[str]
    pools: JudgedPools

    def digest(self) -> str:
        """SHA-256 over texts and pools, in hexadecimal."""
        digest = hashlib.sha256(json.dumps([self.questions, self.passages]).encode())
        for part in ("positive_starts", "positives", "negative_starts", "negatives"):
            digest.update(getattr(self.pools, part).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class TripleBatch:
    """The pairs of some questions, and their triples."""

    # Of each pair.
    question: Rows
    passage: Rows
    # Of each triple the pair that is to score higher, and the one that is to score lower.
    positive: Rows
    negative: Rows

    def __len__(self) -> int:
        return len(self.question)


def epoch_batches(
    pools: JudgedPools,
    settings: SamplingSettings,
    chance: np.random.Generator,
    *,
    in_batch: bool = False,
) -> Iterator[TripleBatch]:
    """Every question that is `trainable` once, in random order, a batch at a time.

    Positives come first, then negatives, both by question; triples are sorted by their positive.
    """
    order = chance.permutation(pools.trainable(settings.negatives, in_batch))
    if len(order) == 0:
        raise BadInputError(
            "expected questions with a passage that answers and one that does not, found none; "
            "check the judgments, or draw negatives from all passages (--negatives random "
            "--set count=50) or by BM25 (--negatives hard)"
        )
    for start in range(0, len(order), settings.batch):
        yield _batch(pools, order[start : start + settings.batch], settings, chance)


def batches_in_epoch(
    pools: JudgedPools, settings: SamplingSettings, *, in_batch: bool = False
) -> int:
    """How many batches `epoch_batches` gives."""
    questions = len(pools.trainable(settings.negatives, in_batch))
    return -(-questions // settings.batch)


def _batch(
    pools: JudgedPools, questions: Rows, settings: SamplingSettings, chance: np.random.Generator
) -> TripleBatch:
    owner_p, rows_p = _draw(
        pools.positive_starts, pools.positives, questions, settings.positives, chance
    )
    if settings.negatives == "batch":
        owner_n = rows_n = np.zeros(0, np.int64)
    elif settings.negatives == "random":
        owner_n, rows_n = _random(pools, questions, settings.count or 1, chance)
    else:
        owner_n, rows_n = _draw(
            pools.negative_starts, pools.negatives, questions, settings.count, chance
        )
    sizes = np.bincount(owner_n, minlength=len(questions))
    starts = len(owner_p) + np.cumsum(sizes) - sizes
    # Each positive as often as its question has negatives, beside each of them.
    repeats = sizes[owner_p]
    return TripleBatch(
        questions[np.concatenate([owner_p, owner_n])],
        np.concatenate([rows_p, rows_n]),
        np.repeat(np.arange(len(owner_p)), repeats),
        np.repeat(starts[owner_p], repeats) + _places(repeats),
    )


def _draw(
    starts: Rows, values: Rows, chosen: Rows, count: int | None, chance: np.random.Generator
) -> tuple[Rows, Rows]:
    """Up to `count` of the values of each chosen row, none twice; who owns each, ascending."""
    sizes, owner, taken = _taken(starts, values, chosen)
    if count is None:
        return owner, taken
    # Shuffled within each owner, whose first ones are kept.
    order = np.lexsort((chance.random(len(owner)), owner))
    kept = order[_places(sizes) < count]
    return owner[kept], taken[kept]


def _taken(starts: Rows, values: Rows, chosen: Rows) -> tuple[Rows, Rows, Rows]:
    """How many values each chosen row has, who owns each of these, ascending, and the values."""
    sizes = starts[chosen + 1] - starts[chosen]
    owner = np.repeat(np.arange(len(chosen)), sizes)
    return sizes, owner, values[np.repeat(starts[chosen], sizes) + _places(sizes)]


def _random(
    pools: JudgedPools, questions: Rows, count: int, chance: np.random.Generator
) -> tuple[Rows, Rows]:
    """`count` passages of each question, without those that happen to be relevant."""
    rows = chance.integers(pools.passages, size=(len(questions), count))
    kept = ~pools.relevant(questions, rows)
    return np.nonzero(kept)[0], rows[kept]


def _places(sizes: Rows) -> Rows:
    """0 to size - 1 for each size, one after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _flat(lists: Sequence[Sequence[int]]) -> tuple[Rows, Rows]:
    sizes = np.array([len(one) for one in lists], np.int64)
    return _starts(sizes), np.array([row for one in lists for row in one], np.int64)


def _starts(sizes: Rows) -> Rows:
    return np.concatenate([[0], np.cumsum(sizes)])
