"""(question, positive, negative) triples for pairwise training, a batch of questions at a time.

A batch names each (question, passage) pair once and its triples by positions in the pairs: a model
scores pairs, and triples cost next to nothing however many a pool gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from retriever.errors import BadInputError, ConfigError

NegativeSource = Literal["pool", "random", "hard"]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """What a question is trained with in an epoch.

    Attributes:
        negatives: ``pool`` draws from the passages of the question's pool that do not answer it,
            ``random`` from all passages but its positives, ``hard`` from the passages that BM25
            ranks highest among those; whoever makes the `JudgedPools` puts those into it.
        count: how many negatives a question gets in an epoch, all of its positives the same; None
            takes all there are (not with ``random``).
        positives: how many positives at most; None takes all.
        questions: in a batch.

    Raises:
        ConfigError: a value that is out of range.
    """

    negatives: NegativeSource = "pool"
    count: int | None = None
    positives: int | None = None
    questions: int = 32

    def __post_init__(self) -> None:
        if self.negatives not in ("pool", "random", "hard"):
            raise ConfigError(f"negatives: expected pool, random or hard, found {self.negatives!r}")
        for name in ("count", "positives", "questions"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}: expected 1 or more, found {value}")
        if self.negatives == "random" and self.count is None:
            raise ConfigError(
                "count: random negatives need a number of them for each question; set --count"
            )


@dataclass(frozen=True, slots=True, eq=False)
class JudgedPools:
    """The relevant and other passages of each of n questions, as rows of a table of passages.

    The passages of question i are positives[positive_starts[i]:positive_starts[i + 1]], and
    likewise the negatives.

    Attributes:
        positive_starts: (n + 1,) ascending.
        positives: rows of passages.
        negative_starts: (n + 1,) ascending.
        negatives: rows of passages.
        passages: rows of the table.
    """

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

    def trainable(self, source: NegativeSource) -> Rows:
        """The questions that give a triple, ascending."""
        some = np.diff(self.positive_starts) > 0
        if source != "random":
            some &= np.diff(self.negative_starts) > 0
        return np.flatnonzero(some)


@dataclass(frozen=True, slots=True, eq=False)
class TripleBatch:
    """The pairs of some questions, and their triples.

    Attributes:
        question: (pairs,) int64, the question of each pair.
        passage: (pairs,) int64, its passage.
        positive: (triples,) int64, the pair of each triple that is to score higher.
        negative: (triples,) int64, the pair that is to score lower.
    """

    question: Rows
    passage: Rows
    positive: Rows
    negative: Rows


def epoch_batches(
    pools: JudgedPools, settings: SamplingSettings, chance: np.random.Generator
) -> Iterator[TripleBatch]:
    """Every question that gives a triple once, in random order, a batch at a time.

    In a batch the positives come first, then the negatives, both by question; each positive of a
    question makes a triple with each of its negatives.

    Raises:
        BadInputError: no question gives a triple.
    """
    order = chance.permutation(pools.trainable(settings.negatives))
    if len(order) == 0:
        raise BadInputError(
            "expected questions with a passage that answers and one that does not, found none; "
            "check the judgments, or draw negatives from all passages (--negatives random "
            "--count 50) or by BM25 (--negatives hard)"
        )
    for start in range(0, len(order), settings.questions):
        yield _batch(pools, order[start : start + settings.questions], settings, chance)


def batches_in_epoch(pools: JudgedPools, settings: SamplingSettings) -> int:
    """How many batches `epoch_batches` gives."""
    return -(-len(pools.trainable(settings.negatives)) // settings.questions)


def _batch(
    pools: JudgedPools,
    questions: Rows,
    settings: SamplingSettings,
    chance: np.random.Generator,
) -> TripleBatch:
    owner_p, rows_p = _draw(
        pools.positive_starts, pools.positives, questions, settings.positives, chance
    )
    if settings.negatives == "random":
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
    sizes = starts[chosen + 1] - starts[chosen]
    owner = np.repeat(np.arange(len(chosen)), sizes)
    places = _places(sizes)
    taken = values[np.repeat(starts[chosen], sizes) + places]
    if count is None:
        return owner, taken
    # Shuffled within each owner, whose first ones are kept.
    order = np.lexsort((chance.random(len(owner)), owner))
    kept = order[places < count]
    return owner[kept], taken[kept]


def _random(
    pools: JudgedPools, questions: Rows, count: int, chance: np.random.Generator
) -> tuple[Rows, Rows]:
    """`count` passages of each question, without those that happen to be relevant."""
    owner = np.repeat(np.arange(len(questions)), count)
    rows = chance.integers(pools.passages, size=len(owner))
    sizes = pools.positive_starts[questions + 1] - pools.positive_starts[questions]
    answers = np.repeat(np.arange(len(questions)), sizes) * pools.passages
    answers += pools.positives[np.repeat(pools.positive_starts[questions], sizes) + _places(sizes)]
    kept = ~np.isin(owner * pools.passages + rows, answers)
    return owner[kept], rows[kept]


def _places(sizes: Rows) -> Rows:
    """0 to size - 1 for each size, one after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _flat(lists: Sequence[Sequence[int]]) -> tuple[Rows, Rows]:
    starts = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(one) for one in lists], out=starts[1:])
    return starts, np.array([row for one in lists for row in one], np.int64)
