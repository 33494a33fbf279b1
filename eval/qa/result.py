"""The result of an evaluation on a question set: report, figures and runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_set import Question, QuestionSet, statistics
from eval.figures import learning_figure
from eval.metrics.comparison import (
    SIGNIFICANT,
    Comparison,
    compare_systems,
    comparison_table,
    few_remark,
    score_cell,
    shortened,
)
from eval.metrics.measures import PoolMeasures
from eval.metrics.trec import check_run, run_lines
from eval.qa.systems import QASettings
from eval.reports import (
    FileNames,
    Files,
    Report,
    ReportedResult,
    Section,
    Table,
    csv_lines,
    environment,
)
from retriever.errors import BadInputError

Floats = NDArray[np.float64]

TIES = (
    "scores are compared as 32-bit floats, and equal ones rank by descending passage id, as in "
    "trec_eval"
)
_LONGEST_QUESTION = 80


@dataclass(frozen=True, slots=True, eq=False)
class SystemResult:
    """The rankings of one system.

    Attributes:
        name: text of the system, such as "uv:mlp".
        pools: the questions, each with its ranked passages or documents as candidates.
        scores: for each seed (pairs,) float64, pool after pool; higher is better.
        note: a remark for the reader, such as "alpha 0.7, chosen on dev"; may be empty.
        curves: for each seed the dev AP before training and after each epoch; empty for a system
            that is not trained.
        seconds: time to train and to rank; shared work counts for the first system.
    """

    name: str
    pools: tuple[Question, ...]
    scores: tuple[Floats, ...]
    note: str = ""
    curves: tuple[tuple[float, ...], ...] = ()
    seconds: float = 0.0

    def run(self, seed: int = 0) -> dict[str, list[tuple[str, float]]]:
        """Return the ranking of a seed as `write_run` takes it: equal scores by descending id."""
        scores = iter(self.scores[seed].tolist())
        ranked = {}
        for pool in self.pools:
            descending = sorted([(next(scores), id_) for id_ in pool.candidates], reverse=True)
            if descending:
                ranked[pool.id] = [(id_, score) for score, id_ in descending]
        return ranked


@dataclass(frozen=True, slots=True, eq=False)
class QAResult(ReportedResult):
    """The rankings of systems on `questions`, and their comparison.

    `questions` includes questions without a relevant passage. `remarks` apply to all systems, such
    as texts that were cut.
    """

    questions: QuestionSet
    statistics: Mapping[str, Any]
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
        command: str = "",
        remarks: tuple[str, ...] = (),
    ) -> QAResult:
        """Compare the rankings of systems by measures; BadInputError if no question is left."""
        answered = np.array([question.answered for question in questions.questions])
        counts = settings.without_positive == "count"
        counted = np.ones(len(answered), np.bool_) if counts else answered
        if not counted.any():
            raise BadInputError(
                f"{questions.name} {questions.split}: expected a question with a relevant passage, "
                "found none; check the judgments"
            )
        prepared: dict[int, PoolMeasures] = {}
        values = {}
        missing = {}
        for system in systems:
            # Systems with the same pools share all computations that do not depend on scores.
            key = id(system.pools)
            if key not in prepared:
                prepared[key] = PoolMeasures(system.pools, measures)
            system_values = prepared[key](np.stack(system.scores))
            values[system.name] = {name: table[:, counted] for name, table in system_values.items()}
            ranked = np.array([bool(pool.candidates) for pool in system.pools])
            missing[system.name] = int((counted & ~ranked).sum())
        comparison = compare_systems(
            values,
            tuple(
                question.id
                for question, is_counted in zip(questions.questions, counted, strict=True)
                if is_counted
            ),
            without_positive=int((~answered).sum()),
            excluded=not counts,
            missing=missing,
            baseline=settings.baseline,
            resampling=settings.resampling,
        )
        counts_of = statistics(questions)
        return cls(questions, counts_of, tuple(systems), comparison, settings, command, remarks)

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures, in the order of the report."""
        return tuple(self.comparison.scores)

    def report(self) -> Report:
        """Return the report, with runs and values by question as files."""
        runs, unwritten = _runs(self.systems)
        comparison = self.comparison
        different = _difference_table(self)
        curves = {system.name: system.curves for system in self.systems if system.curves}
        means = tuple(
            (name, *(score_cell(scores[name]) for scores in comparison.scores.values()))
            for name in comparison.names
        )
        sections = [
            Section(facts=_facts(self.statistics), brief=True),
            Section(
                # In the form of Table 3 of Ma et al. (2019).
                tables=(Table(("system", *self.measures), means, "Means × 100"),),
                remarks=(*_remarks(self), TIES, *unwritten),
                brief=True,
            ),
            Section("Systems", tables=(_system_table(self),), brief=True),
            *(
                Section(measure, tables=(comparison_table(f"{measure} × 100", "system", scores),))
                for measure, scores in comparison.scores.items()
            ),
            Section(
                "Tests",
                remarks=(
                    "intervals are of Student's t over questions; differences are from "
                    f"{comparison.baseline}; p is that of a paired randomization test, and Holm is "
                    "p after Holm's correction for the number of systems",
                    *few_remark(len(comparison.queries), "questions"),
                ),
            ),
        ]
        if different.rows:
            sections.append(Section("Largest differences", tables=(different,), brief=True))
        return Report(
            name="qa",
            title=f"{self.questions.name}, {self.questions.split}",
            sections=tuple(sections),
            data=_json_data(self),
            command=self.command,
            environment=environment(self.settings.loading.device),
            files={**runs, "per_question.csv": lambda: _per_question(self)},
            figures={"learning": lambda: learning_figure(curves)} if curves else {},
        )


def _facts(counts: Mapping[str, Any]) -> dict[str, str]:
    passages = counts["passages"]
    answered = counts["answered"]
    facts = {
        "questions": f"{counts['questions']:,}, {answered:,} of them with a relevant passage",
        "relevant passages": f"{counts['answers']:.2f} per question that has one",
        "passages": "the whole corpus" if passages is None else f"{passages:,}",
    }
    for name, key in (
        ("candidates per question", "pool"),
        ("words per question", "question_words"),
        ("words per passage", "passage_words"),
    ):
        if (spread := counts[key]) is not None:
            least = spread["least"]
            mean = spread["mean"]
            greatest = spread["greatest"]
            facts[name] = f"{mean:,.1f} on average, from {least:,} to {greatest:,}"
    return facts


def _remarks(result: QAResult) -> Iterator[str]:
    comparison = result.comparison
    treatment = "are left out" if comparison.excluded else "count as zero"
    yield (
        f"means over {len(comparison.queries):,} questions; {comparison.without_positive:,} "
        f"questions without a relevant passage {treatment}"
    )
    if result.questions.corpus:
        yield (
            f"the first {result.settings.data.depth:,} hits of each question are ranked and "
            "measured (--depth), also by measures that look further"
        )
    if any(len(system.scores) > 1 for system in result.systems):
        yield "±: standard deviation of the means of several seeds"
    if len(result.systems) > 1:
        yield (
            f"*: differs from {comparison.baseline} with p < {SIGNIFICANT:g}, by a paired "
            "randomization test with Holm's correction over the systems"
        )
    for name, missing in comparison.missing.items():
        if missing:
            yield f"{name}: ranks nothing for {missing:,} questions, which count as zero"
    yield from result.remarks


def _system_table(result: QAResult) -> Table:
    rows = []
    for system in result.systems:
        seeds = f"{len(system.scores)} seeds" if len(system.scores) > 1 else ""
        note = "; ".join(part for part in (system.note, seeds) if part)
        rows.append((system.name, note, f"{system.seconds:,.1f}"))
    return Table(("system", "note", "seconds"), tuple(rows), left=(0, 1))


def _difference_table(result: QAResult) -> Table:
    measure = result.measures[0]
    comparison = result.comparison
    texts = {question.id: question.text for question in result.questions.questions}
    rows = tuple(
        (name, f"{100 * difference:+.2f}", query, shortened(texts[query], _LONGEST_QUESTION))
        for name in comparison.names
        if name != comparison.baseline
        for query, difference in comparison.most_different(measure, name, result.settings.top)
    )
    title = f"Questions with the largest differences from {comparison.baseline} in {measure} × 100"
    return Table(("system", "difference", "question", "text"), rows, title, left=(0, 2, 3))


def _json_data(result: QAResult) -> Mapping[str, object]:
    """Return JSON values; lists of ``per_question`` are in the order of its ``questions``."""
    comparison = result.comparison
    return {
        "data_set": result.questions.name,
        "split": result.questions.split,
        "statistics": dict(result.statistics),
        "ties": TIES,
        "remarks": list(result.remarks),
        "counted": len(comparison.queries),
        "without_answer": comparison.without_positive,
        "without_answer_excluded": comparison.excluded,
        "measures": list(result.measures),
        "baseline": comparison.baseline,
        "systems": [
            {
                "name": system.name,
                "seeds": len(system.scores),
                "missing": comparison.missing[system.name],
                "note": system.note,
                "seconds": system.seconds,
                "curves": [list(curve) for curve in system.curves],
                "scores": {
                    measure: asdict(scores[system.name])
                    for measure, scores in comparison.scores.items()
                },
            }
            for system in result.systems
        ],
        "per_question": {
            "questions": list(comparison.queries),
            "values": {
                measure: dict(zip(comparison.names, values.tolist(), strict=True))
                for measure, values in comparison.values.items()
            },
        },
    }


def _per_question(result: QAResult) -> Iterator[str]:
    texts = {question.id: question.text for question in result.questions.questions}
    comparison = result.comparison
    columns = [f"{measure} {name}" for measure in comparison.values for name in comparison.names]
    values = [row for table in comparison.values.values() for row in table.tolist()]
    return csv_lines(
        ["question", "text", *columns],
        (
            [query, texts[query], *map(repr, row)]
            for query, *row in zip(comparison.queries, *values, strict=True)
        ),
    )


def _runs(systems: Sequence[SystemResult]) -> tuple[Files, list[str]]:
    """Return the files of the runs, and a remark on each run that cannot be written."""
    files = {}
    remarks = []
    names = FileNames()
    for system in systems:
        several = len(system.scores) > 1
        endings = [f".seed-{seed}.run" if several else ".run" for seed in range(len(system.scores))]
        for seed, name in enumerate(names.claim(system.name, endings)):
            run = system.run(seed)
            try:
                check_run(run)
            except BadInputError as error:
                remarks.append(f"runs/{name} was not written: {error}")
                continue
            files[f"runs/{name}"] = partial(run_lines, run, name.removesuffix(".run"))
    return files, remarks
