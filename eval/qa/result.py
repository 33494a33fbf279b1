"""The result of an evaluation on a question set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_set import Question, QuestionSet, SetStatistics, statistics
from eval.metrics.comparison import Comparison, compare_systems
from eval.metrics.measures import PoolMeasures
from eval.qa.report import qa_report
from eval.qa.settings import QASettings
from eval.reports import Report, ReportedResult
from retriever.errors import BadInputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class SystemResult:
    """The rankings of one system.

    Attributes:
        name: of the system, such as "uv:mlp".
        pools: the questions, each with what was ranked for it as candidates.
        scores: for each seed (pairs,) float64, pool after pool in the order of
            `Question.candidates`; higher is better.
        note: what a reader should know, such as "alpha 0.7, chosen on dev"; may be empty.
        curves: for each seed the dev AP after each epoch; empty for a system that is not trained.
        first_epoch: of the curves; 0 is before training.
        seconds: to train and to rank; what systems share counts for the first of them.
    """

    name: str
    pools: tuple[Question, ...]
    scores: tuple[Floats, ...]
    note: str = ""
    curves: tuple[tuple[float, ...], ...] = ()
    first_epoch: int = 0
    seconds: float = 0.0

    def run(self, seed: int = 0) -> dict[str, list[tuple[str, float]]]:
        """The ranking of one seed, as `write_run` takes it: equal scores by descending id."""
        scores = self.scores[seed].tolist()
        ranked, start = {}, 0
        for pool in self.pools:
            stop = start + len(pool.candidates)
            found = zip(scores[start:stop], pool.candidates, strict=True)
            if pool.candidates:
                ranked[pool.id] = [(id_, score) for score, id_ in sorted(found, reverse=True)]
            start = stop
        return ranked


@dataclass(frozen=True, slots=True, eq=False)
class QAResult(ReportedResult):
    """An evaluation.

    Attributes:
        questions: the split that was ranked, including questions without a relevant passage.
        statistics: of the split.
        systems: in the order in which they were named.
        comparison: of the systems by each measure.
        settings: how they were ranked.
        command: reproduces the result; may be empty.
        remarks: what a reader should know of all systems, such as texts that were cut.
    """

    questions: QuestionSet
    statistics: SetStatistics
    systems: tuple[SystemResult, ...]
    comparison: Comparison
    settings: QASettings
    command: str = ""
    remarks: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        questions: QuestionSet,
        systems: Sequence[SystemResult],
        measures: Sequence[str],
        settings: QASettings,
        *,
        command: str = "",
        remarks: tuple[str, ...] = (),
    ) -> QAResult:
        """Compare the rankings of systems.

        Args:
            questions: see the attributes, as the next.
            systems: at least one.
            measures: canonical names.
            settings: baseline, resampling, and what becomes of questions without a relevant
                passage.
            command: see the attributes, as the next.
            remarks: see the attributes.

        Raises:
            BadInputError: no question is left.
        """
        answered = np.array([one.answered for one in questions.questions])
        counts = settings.without_positive == "count"
        counted = np.ones(len(answered), np.bool_) if counts else answered
        if not counted.any():
            raise BadInputError(
                f"{questions.name} {questions.split}: expected a question with a relevant passage, "
                "found none; check the judgments"
            )
        prepared: dict[int, PoolMeasures] = {}
        values, missing = {}, {}
        for system in systems:
            # Systems that rank the same pools share what does not depend on scores.
            key = id(system.pools)
            if key not in prepared:
                prepared[key] = PoolMeasures(system.pools, measures)
            found = prepared[key](np.stack(system.scores))
            values[system.name] = {name: one[:, counted] for name, one in found.items()}
            ranked = np.array([bool(one.candidates) for one in system.pools])
            missing[system.name] = int((counted & ~ranked).sum())
        comparison = compare_systems(
            values,
            tuple(one.id for one, kept in zip(questions.questions, counted, strict=True) if kept),
            without_positive=int((~answered).sum()),
            excluded=not counts,
            missing=missing,
            baseline=settings.baseline,
            resamples=settings.resampling.resamples,
            seed=settings.resampling.seed,
        )
        return cls(
            questions,
            statistics(questions),
            tuple(systems),
            comparison,
            settings,
            command,
            remarks,
        )

    @property
    def measures(self) -> tuple[str, ...]:
        """In the order of the report."""
        return tuple(self.comparison.scores)

    def report(self) -> Report:
        """The result for a reader, with runs and values by question as files."""
        return qa_report(self)
