"""What an evaluation of systems on a question set comes to."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata

from eval.datasets.qa.question_set import QuestionSet
from eval.datasets.qa.statistics import SetStatistics
from eval.metrics.comparison import Comparison, Run, compare_seeds


@dataclass(frozen=True, slots=True)
class SystemResult:
    """What one system ranked.

    Attributes:
        name: the system's, such as "uv:mlp".
        runs: question to passage to score, higher is better; one run for each seed of a system that
            is trained, else one.
        note: what a reader should know, such as "alpha 0.7, chosen on dev"; or empty.
        curves: for each seed, the dev score after each epoch, the first before training where there
            is one; empty for a system that is not trained.
        seconds: what it took to train and to rank.
    """

    name: str
    runs: tuple[Run, ...]
    note: str = ""
    curves: tuple[tuple[float, ...], ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class QAResult:
    """An evaluation.

    Attributes:
        questions: the split that was ranked, questions without an answer included.
        statistics: of it.
        measures: in the order of the report, as `eval.metrics.ranking` names them.
        systems: in the order of the report.
        comparison: of the systems by each measure; of several seeds each question's mean.
        spread: measure to system to the standard deviation (n - 1) of its seeds' means; only
            systems with several seeds.
        command: what prints it again.
        environment: name to version of what decides the figures.
    """

    questions: QuestionSet
    statistics: SetStatistics
    measures: tuple[str, ...]
    systems: tuple[SystemResult, ...]
    comparison: Comparison
    spread: Mapping[str, Mapping[str, float]]
    command: str
    environment: Mapping[str, str]

    @classmethod
    def of(
        cls,
        questions: QuestionSet,
        statistics: SetStatistics,
        measures: tuple[str, ...],
        systems: Sequence[SystemResult],
        *,
        baseline: str | None,
        count_unanswered: bool,
        resamples: int,
        seed: int,
        command: str,
        environment: Mapping[str, str],
    ) -> QAResult:
        """Compare what systems ranked.

        Args:
            questions: see the attributes, as the others that are not named here.
            statistics: see there.
            measures: see there.
            systems: at least one.
            baseline: a system's name; None takes the first.
            count_unanswered: count questions that nothing answers as zero, rather than leave them
                out.
            resamples: of bootstrap and randomisation test.
            seed: of both.
            command: see there.
            environment: see there.

        Raises:
            BadInputError: no question is left.
        """
        comparison, spread = compare_seeds(
            {system.name: system.runs for system in systems},
            {question.id: question.grades for question in questions.questions},
            measures,
            baseline=baseline,
            keep_without_positive=count_unanswered,
            resamples=resamples,
            seed=seed,
        )
        return cls(
            questions,
            statistics,
            measures,
            tuple(systems),
            comparison,
            spread,
            command,
            environment,
        )


def environment(device: str | None) -> dict[str, str]:
    """Name to version of what decides the figures."""
    packages = ("layer-retriever", "torch", "transformers", "faiss-cpu", "numpy")
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return {**found, "device": device or "default"}
