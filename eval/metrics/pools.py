"""The measures of `ranking` on the pools of the same questions, for scores again and again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.datasets.qa.question_set import Question
from eval.metrics.ranked_gains import Gains, Measure, Values, descending_keys, rank_columns
from eval.metrics.ranking import check_numbers, ideal_gains, parse_measures
from retriever.errors import BadInputError

# Pools of up to so many candidates share a matrix; larger ones with those of half their size.
_SMALL = 32
_CELLS = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Questions with pools of about the same size, as rows of one matrix.

    Attributes:
        questions: (rows,) their numbers.
        pairs: numbers of their pairs.
        slots: where each of these lies in the matrix, rows one after the other.
        gains: (rows, columns) of the candidates, filled up with zeros.
        divisors: measure to (rows,), see `Measure.divisors`.
    """

    questions: NDArray[np.int64]
    pairs: NDArray[np.int64]
    slots: NDArray[np.int64]
    gains: Gains
    divisors: Mapping[str, Values]

    def ranked(self, scores: NDArray[np.float32]) -> Gains:
        """Scores of all pairs to (rows, columns) gains in the order of the ranking."""
        # What fills up a row comes after its candidates, with an equal score too.
        matrix = np.full(self.gains.shape, -np.inf, dtype=np.float32)
        matrix.ravel()[self.slots] = scores[self.pairs]
        order = rank_columns(descending_keys(matrix))
        return np.take_along_axis(self.gains, order, axis=1)


class PoolMeasures:
    """Values of measures for each question; what does not depend on scores is prepared once.

    Equals `evaluate`: candidates rank by score, compared as 32-bit floats, then by id
    descending; judged passages that are not in the pool count in the divisors.

    Args:
        questions: at least one; the pairs are their pools, one after the other, each in the order
            of `Question.candidates`.
        measures: as `eval.metrics.ranking` names them.

    Raises:
        BadInputError: there is no question.
        ConfigError: a measure is unknown.
    """

    def __init__(self, questions: Sequence[Question], measures: Sequence[str]) -> None:
        self._measures = parse_measures(measures)
        if not questions:
            raise BadInputError("expected at least one question to rank for, found none")
        self._ids = [question.id for question in questions]
        self._sizes = np.array([len(one.candidates) for one in questions], dtype=np.int64)
        self._pairs = int(self._sizes.sum())
        self._groups = [
            _group(questions, self._sizes, members, self._measures)
            for members in _alike(self._sizes, [len(one.grades) for one in questions])
        ]

    def __call__(self, scores: NDArray[np.floating]) -> dict[str, Values]:
        """Measure to (questions,) float64 values in [0, 1], in the order of the questions.

        Args:
            scores: (pairs,); higher is better, infinite ones are allowed.

        Raises:
            BadInputError: there is not one score for each pair, or a score is NaN.
        """
        if scores.shape != (self._pairs,):
            raise BadInputError(
                f"expected scores of shape ({self._pairs},), one for each candidate of the "
                f"questions, found {scores.shape}"
            )
        check_numbers(scores, self._sizes, self._ids)
        with np.errstate(over="ignore", under="ignore"):
            rounded = scores.astype(np.float32)
        values = {name: np.empty(len(self._ids)) for name in self._measures}
        for group in self._groups:
            gains = group.ranked(rounded)
            for name, measure in self._measures.items():
                values[name][group.questions] = measure.values(gains, group.divisors[name])
        return values


def _alike(sizes: NDArray[np.int64], judged: Sequence[int]) -> Iterator[NDArray[np.int64]]:
    """Numbers of questions, in groups whose matrices are small and, if large, half full."""
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
    questions: Sequence[Question],
    sizes: NDArray[np.int64],
    members: NDArray[np.int64],
    measures: Mapping[str, Measure],
) -> _Group:
    chosen = [questions[number] for number in members]
    counts = sizes[members]
    columns = np.arange(counts.max())
    present = columns < counts[:, None]
    starts = np.cumsum(sizes) - sizes
    gains = np.zeros(present.shape, dtype=np.int64)
    # A negative grade marks a passage as judged, and gains nothing.
    gains[present] = [
        max(one.grades.get(candidate, 0), 0) for one in chosen for candidate in one.candidates
    ]
    ideal = ideal_gains([one.grades for one in chosen])
    return _Group(
        questions=members,
        pairs=(starts[members][:, None] + columns)[present],
        slots=np.flatnonzero(present),
        gains=gains,
        divisors={name: measure.divisors(ideal) for name, measure in measures.items()},
    )
