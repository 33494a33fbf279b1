"""(question, positive, negative) triples for pairwise training, a batch of questions at a time.

A batch names each (question, passage) pair once, and its triples by positions of pairs. A model
scores pairs, so the number of triples hardly affects the cost.
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
    """A uniform sample of the items of a stream; `seen` counts all items."""

    def __init__(self, size: int, seed: int) -> None:
        self.items: list[T] = []
        self.seen = 0
        self._size = size
        self._chance = random.Random(seed)

    def add(self, item: T) -> None:
        """Add the next item of the stream."""
        self.seen += 1
        # Vitter's algorithm R: the n-th item replaces a random one with probability size / n.
        if len(self.items) < self._size:
            self.items.append(item)
        elif (place := self._chance.randrange(self.seen)) < self._size:
            self.items[place] = item


@dataclass(frozen=True, slots=True, eq=False)
class JudgedPools:
    """Rows of relevant and other passages: question i has starts[i] to starts[i + 1]."""

    positive_starts: Rows
    positives: Rows
    negative_starts: Rows
    negatives: Rows
    passages: int

    @classmethod
    def of(
        cls, positives: Sequence[Sequence[int]], negatives: Sequence[Sequence[int]], passages: int
    ) -> JudgedPools:
        """Make pools from lists of positives and of negatives for each question."""
        return cls(*_flatten(positives), *_flatten(negatives), passages)

    def __len__(self) -> int:
        return len(self.positive_starts) - 1

    def part(self, questions: Rows) -> JudgedPools:
        """Return the pools of questions, in their order."""
        positive_sizes, _, positives = _gather(self.positive_starts, self.positives, questions)
        negative_sizes, _, negatives = _gather(self.negative_starts, self.negatives, questions)
        return JudgedPools(
            _starts(positive_sizes), positives, _starts(negative_sizes), negatives, self.passages
        )

    def trainable(self, source: NegativeSource, in_batch: bool = False) -> Rows:
        """Return the questions to train on with negatives of a source, ascending.

        With `in_batch`, passages of other questions are negatives too.
        """
        is_trainable = np.diff(self.positive_starts) > 0
        if source not in ("random", "batch") and not in_batch:
            is_trainable &= np.diff(self.negative_starts) > 0
        return np.flatnonzero(is_trainable)

    def relevant(self, questions: Rows, passages: Rows) -> NDArray[np.bool_]:
        """Return whether passages are positives of questions, (questions, passages) bool.

        `passages` are (passages,) for all questions, or (questions, passages).
        """
        _, owner, rows = _gather(self.positive_starts, self.positives, questions)
        places = np.arange(len(questions))[:, None] * self.passages + passages
        return np.isin(places, owner * self.passages + rows)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSet:
    """Questions and passages, and their pools by row."""

    questions: list[str]
    passages: list[str]
    pools: JudgedPools

    def digest(self) -> str:
        """Return the SHA-256 over texts and pools, in hexadecimal."""
        digest = hashlib.sha256(json.dumps([self.questions, self.passages]).encode())
        for part in ("positive_starts", "positives", "negative_starts", "negatives"):
            digest.update(getattr(self.pools, part).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class TripleBatch:
    """The pairs of a batch of questions, and their triples."""

    # Rows of each pair.
    question: Rows
    passage: Rows
    # Pairs of each triple: the first should score higher than the second.
    positive: Rows
    negative: Rows

    def __len__(self) -> int:
        return len(self.question)


def epoch_batches(
    pools: JudgedPools,
    settings: SamplingSettings,
    generator: np.random.Generator,
    *,
    in_batch: bool = False,
) -> Iterator[TripleBatch]:
    """Yield every `trainable` question once, in random order, in batches.

    Positives come first, then negatives, both by question. Triples are sorted by their positive.
    """
    order = generator.permutation(pools.trainable(settings.negatives, in_batch))
    if len(order) == 0:
        raise BadInputError(
            "expected questions with relevant and irrelevant passages, found none; check the "
            "judgments, or draw negatives with --negatives random --set count=50 or --negatives "
            "hard"
        )
    for start in range(0, len(order), settings.batch):
        yield _batch(pools, order[start : start + settings.batch], settings, generator)


def batches_in_epoch(
    pools: JudgedPools, settings: SamplingSettings, *, in_batch: bool = False
) -> int:
    """Return the number of batches of `epoch_batches`."""
    questions = len(pools.trainable(settings.negatives, in_batch))
    return -(-questions // settings.batch)


def _batch(
    pools: JudgedPools, questions: Rows, settings: SamplingSettings, generator: np.random.Generator
) -> TripleBatch:
    owner_p, rows_p = _draw(
        pools.positive_starts, pools.positives, questions, settings.positives, generator
    )
    if settings.negatives == "batch":
        owner_n = rows_n = np.zeros(0, np.int64)
    elif settings.negatives == "random":
        owner_n, rows_n = _random(pools, questions, settings.count or 1, generator)
    else:
        owner_n, rows_n = _draw(
            pools.negative_starts, pools.negatives, questions, settings.count, generator
        )
    sizes = np.bincount(owner_n, minlength=len(questions))
    starts = len(owner_p) + np.cumsum(sizes) - sizes
    # Repeat each positive for each negative of its question.
    repeats = sizes[owner_p]
    return TripleBatch(
        questions[np.concatenate([owner_p, owner_n])],
        np.concatenate([rows_p, rows_n]),
        np.repeat(np.arange(len(owner_p)), repeats),
        np.repeat(starts[owner_p], repeats) + _places(repeats),
    )


def _draw(
    starts: Rows, values: Rows, selected: Rows, count: int | None, generator: np.random.Generator
) -> tuple[Rows, Rows]:
    """Draw up to `count` values of each selected row, without repetition.

    Return the position of each value's row in `selected`, ascending, and the values.
    """
    sizes, owner, pool_values = _gather(starts, values, selected)
    if count is None:
        return owner, pool_values
    # Shuffle the values of each row, and take the first.
    order = np.lexsort((generator.random(len(owner)), owner))
    first_places = order[_places(sizes) < count]
    return owner[first_places], pool_values[first_places]


def _gather(starts: Rows, values: Rows, selected: Rows) -> tuple[Rows, Rows, Rows]:
    """Return the number of values of each selected row, the owner of each value, and the values.

    An owner is a position in `selected`; owners ascend.
    """
    sizes = starts[selected + 1] - starts[selected]
    owner = np.repeat(np.arange(len(selected)), sizes)
    return sizes, owner, values[np.repeat(starts[selected], sizes) + _places(sizes)]


def _random(
    pools: JudgedPools, questions: Rows, count: int, generator: np.random.Generator
) -> tuple[Rows, Rows]:
    """Draw `count` passages for each question, and omit relevant ones."""
    rows = generator.integers(pools.passages, size=(len(questions), count))
    is_negative = ~pools.relevant(questions, rows)
    return np.nonzero(is_negative)[0], rows[is_negative]


def _places(sizes: Rows) -> Rows:
    """Return 0 to size - 1 for each size, one after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _flatten(lists: Sequence[Sequence[int]]) -> tuple[Rows, Rows]:
    sizes = np.array([len(row_list) for row_list in lists], np.int64)
    return _starts(sizes), np.array([row for row_list in lists for row in row_list], np.int64)


def _starts(sizes: Rows) -> Rows:
    return np.concatenate([[0], np.cumsum(sizes)])
