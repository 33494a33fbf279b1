"""Measures of the same pools of candidates, for many arrays of scores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from eval.metrics.measures import (
    Gains,
    Measure,
    Values,
    check_numbers,
    descending_keys,
    ideal_gains,
    parse_measures,
    rank_columns,
)
from retriever.errors import BadInputError

# Pools of up to this many candidates share a matrix; larger ones share it with those of half the
# size.
_SMALL = 32
_CELLS = 1 << 18


class Pool(Protocol):
    """Candidates to rank for a query, and judgments.

    Attributes:
        id: of the query.
        candidates: ids, descending, which is the order of equal scores in trec_eval.
        grades: document to grade, of everything judged for the query, in the pool or not.
    """

    @property
    def id(self) -> str: ...  # noqa: D102

    @property
    def candidates(self) -> Sequence[str]: ...  # noqa: D102

    @property
    def grades(self) -> Mapping[str, int]: ...  # noqa: D102


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Queries with pools of about the same size, as rows of one matrix.

    Attributes:
        queries: (rows,) their numbers.
        pairs: numbers of their pairs.
        slots: the place of each of these in the matrix, row after row.
        gains: (rows, columns) of the candidates, padded with zeros.
        divisors: measure to (rows,), see `Measure.divisors`.
    """

    queries: NDArray[np.int64]
    pairs: NDArray[np.int64]
    slots: NDArray[np.int64]
    gains: Gains
    divisors: Mapping[str, Values]

    def ranked(self, scores: NDArray[np.float32]) -> Gains:
        """(arrays, pairs) scores to (arrays times rows, columns) gains in ranked order."""
        # Padding ranks after the candidates, with an equal score too.
        matrix = np.full((len(scores), self.gains.size), -np.inf, dtype=np.float32)
        matrix[:, self.slots] = scores[:, self.pairs]
        gains = np.tile(self.gains, (len(scores), 1))
        order = rank_columns(descending_keys(matrix.reshape(gains.shape)))
        return np.take_along_axis(gains, order, axis=1)


class PoolMeasures:
    """Values of measures for each query; what does not depend on scores is prepared once.

    Equal to `evaluate`: candidates rank by score, compared as 32-bit floats, then by descending
    id; judged documents that are not in the pool count in the divisors.

    Args:
        pools: at least one; the pairs are their candidates, pool after pool.
        measures: names, see `eval.metrics.measures`.

    Attributes:
        names: the canonical names of the measures.

    Raises:
        BadInputError: there is no pool.
        ConfigError: a measure is unknown.
    """

    def __init__(self, pools: Sequence[Pool], measures: Sequence[str]) -> None:
        self._measures = parse_measures(measures)
        self.names = tuple(self._measures)
        if not pools:
            raise BadInputError("expected at least one question to rank for, found none")
        self._ids = [pool.id for pool in pools]
        self._sizes = np.array([len(pool.candidates) for pool in pools], dtype=np.int64)
        self._pairs = int(self._sizes.sum())
        self._groups = [
            _group(pools, self._sizes, members, self._measures)
            for members in _alike(self._sizes, [len(pool.grades) for pool in pools])
        ]

    def __call__(self, scores: NDArray[np.floating]) -> dict[str, Values]:
        """Measure to float64 values in [0, 1], in the order of the pools.

        Args:
            scores: (pairs,) or (arrays, pairs); higher is better, infinite ones are allowed.

        Returns:
            For each measure (queries,) or (arrays, queries).

        Raises:
            BadInputError: there is not one score for each pair, or a score is NaN.
        """
        if scores.shape[-1:] != (self._pairs,):
            raise BadInputError(
                f"expected scores of shape ({self._pairs},), one for each candidate of the "
                f"questions, found {scores.shape}"
            )
        rows = scores.reshape(math.prod(scores.shape[:-1]), self._pairs)
        for row in rows:
            check_numbers(row, self._sizes, self._ids)
        with np.errstate(over="ignore", under="ignore"):
            rounded = rows.astype(np.float32)
        values = {name: np.empty((len(rows), len(self._ids))) for name in self._measures}
        for group in self._groups:
            gains = group.ranked(rounded)
            for name, measure in self._measures.items():
                divisors = np.tile(group.divisors[name], len(rows))
                found = measure.values(gains, divisors)
                values[name][:, group.queries] = found.reshape(len(rows), -1)
        shape = (*scores.shape[:-1], len(self._ids))
        return {name: found.reshape(shape) for name, found in values.items()}


def _alike(sizes: NDArray[np.int64], judged: Sequence[int]) -> Iterator[NDArray[np.int64]]:
    """Numbers of queries, in groups whose matrices are small and, if large, half full."""
    by_size = np.argsort(sizes, kind="stable")
    start = widest = 0
    for end, number in enumerate(by_size.tolist()):
        size = int(sizes[number])
        widest = max(widest, size, judged[number])
        unlike = size > max(_SMALL, 2 * int(sizes[by_size[start]]))
        if end > start and (unlike or (end + 1 - start) * widest > _CELLS):
            yield by_size[start:end]
            start, widest = end, max(size, judged[number])
    yield by_size[start:]


def _group(
    pools: Sequence[Pool],
    sizes: NDArray[np.int64],
    members: NDArray[np.int64],
    measures: Mapping[str, Measure],
) -> _Group:
    chosen = [pools[number] for number in members]
    counts = sizes[members]
    columns = np.arange(counts.max())
    present = columns < counts[:, None]
    starts = np.cumsum(sizes) - sizes
    gains = np.zeros(present.shape, dtype=np.int64)
    # A negative grade marks a document as judged, and gains nothing.
    gains[present] = [
        max(one.grades.get(candidate, 0), 0) for one in chosen for candidate in one.candidates
    ]
    ideal = ideal_gains([one.grades for one in chosen])
    return _Group(
        queries=members,
        pairs=(starts[members][:, None] + columns)[present],
        slots=np.flatnonzero(present),
        gains=gains,
        divisors={name: measure.divisors(ideal) for name, measure in measures.items()},
    )
