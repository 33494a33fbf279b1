"""The report of an evaluation on a question set.

Beside the files of every report it has ``per_question.csv``, the value of each question by each
measure and system, and ``runs/``, a TREC run for each system and seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from eval.datasets.question_set import SetStatistics, Spread
from eval.metrics.comparison import SIGNIFICANT, comparison_table, few_remark, score_cell
from eval.metrics.trec import check_run, run_lines
from eval.qa.figures import qa_figures
from eval.reports import FileNames, Report, Section, csv_lines, environment
from eval.tables import Table
from retriever.errors import BadInputError

if TYPE_CHECKING:
    from eval.qa.result import QAResult, SystemResult

TIES = (
    "scores are compared as 32-bit floats, and equal ones rank by descending passage id, as in "
    "trec_eval"
)
_SHOWN = 80
Files = dict[str, Callable[[], Iterable[str]]]


def qa_report(result: QAResult) -> Report:
    """The report of a result; see `QAResult.report`."""
    runs, unwritten = _runs(result.systems)
    found = result.comparison
    different = _different(result)
    return Report(
        name="qa",
        title=f"{result.questions.name}, {result.questions.split}",
        sections=(
            Section(facts=_statistics(result.statistics), brief=True),
            Section(
                tables=(_scores(result),),
                remarks=(*_remarks(result), TIES, *unwritten),
                brief=True,
            ),
            Section("Systems", tables=(_systems(result),), brief=True),
            *(
                Section(measure, tables=(comparison_table(f"{measure} × 100", "system", scores),))
                for measure, scores in found.scores.items()
            ),
            Section(
                "Tests",
                remarks=(
                    "intervals are of Student's t over questions; differences are from "
                    f"{found.baseline}; p is that of a paired randomization test, and Holm is p "
                    "after Holm's correction for the number of systems",
                    *few_remark(len(found.queries), "questions"),
                ),
            ),
            *(
                [Section("Largest differences", tables=(different,), brief=True)]
                * bool(different.rows)
            ),
        ),
        data=_data(result),
        command=result.command,
        environment=environment(result.settings.loading.device),
        files={**runs, "per_question.csv": lambda: _per_question(result)},
        figures=qa_figures(result),
    )


def _statistics(of: SetStatistics) -> dict[str, str]:
    """What the set is like."""
    facts = {
        "questions": f"{of.questions:,}, {of.answered:,} of them with a relevant passage",
        "relevant passages": f"{of.answers:.2f} per question that has one",
        "passages": "the whole corpus" if of.passages is None else f"{of.passages:,}",
    }
    for name, one in (
        ("candidates per question", of.pool),
        ("words per question", of.question_words),
        ("words per passage", of.passage_words),
    ):
        if isinstance(one, Spread):
            facts[name] = f"{one.mean:,.1f} on average, from {one.least:,} to {one.greatest:,}"
    return facts


def _scores(result: QAResult) -> Table:
    """Systems by measures, in the form of Table 3 of Ma et al. (2019)."""
    rows = tuple(
        (
            system.name,
            *(score_cell(result.comparison.scores[one][system.name]) for one in result.measures),
        )
        for system in result.systems
    )
    return Table(("system", *result.measures), rows, "Means × 100")


def _remarks(result: QAResult) -> Iterator[str]:
    found = result.comparison
    treatment = "are left out" if found.excluded else "count as zero"
    yield (
        f"means over {len(found.queries):,} questions; {found.without_positive:,} questions "
        f"without a relevant passage {treatment}"
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
            f"*: differs from {found.baseline} with p < {SIGNIFICANT:g}, by a paired randomization "
            "test with Holm's correction over the systems"
        )
    for name, missing in found.missing.items():
        if missing:
            yield f"{name}: ranks nothing for {missing:,} questions, which count as zero"
    yield from result.remarks


def _systems(result: QAResult) -> Table:
    rows = tuple(
        (
            system.name,
            "; ".join(
                part
                for part in (
                    system.note,
                    f"{len(system.scores)} seeds" if len(system.scores) > 1 else "",
                )
                if part
            ),
            f"{system.seconds:,.1f}",
        )
        for system in result.systems
    )
    return Table(("system", "note", "seconds"), rows, left=(0, 1))


def _different(result: QAResult) -> Table:
    measure, found = result.measures[0], result.comparison
    texts = {question.id: question.text for question in result.questions.questions}
    rows = tuple(
        (name, f"{100 * difference:+.2f}", query, _shortened(texts[query]))
        for name in found.names
        if name != found.baseline
        for query, difference in found.most_different(measure, name, result.settings.top)
    )
    title = f"Questions with the largest differences from {found.baseline} in {measure} × 100"
    return Table(("system", "difference", "question", "text"), rows, title, left=(0, 2, 3))


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 2]} …"


def _data(result: QAResult) -> Mapping[str, object]:
    """``per_question`` holds lists in the order of its ``questions``, those that count."""
    found = result.comparison
    return {
        "data_set": result.questions.name,
        "split": result.questions.split,
        "statistics": result.statistics.to_json(),
        "ties": TIES,
        "remarks": list(result.remarks),
        "counted": len(found.queries),
        "without_answer": found.without_positive,
        "without_answer_excluded": found.excluded,
        "measures": list(result.measures),
        "baseline": found.baseline,
        "systems": [
            {
                "name": system.name,
                "seeds": len(system.scores),
                "missing": found.missing[system.name],
                "note": system.note,
                "seconds": system.seconds,
                "first_epoch": system.first_epoch,
                "curves": [list(curve) for curve in system.curves],
                "scores": {
                    measure: asdict(scores[system.name]) for measure, scores in found.scores.items()
                },
            }
            for system in result.systems
        ],
        "per_question": {
            "questions": list(found.queries),
            "values": {
                measure: dict(zip(found.names, values.tolist(), strict=True))
                for measure, values in found.values.items()
            },
        },
    }


def _per_question(result: QAResult) -> Iterator[str]:
    texts = {question.id: question.text for question in result.questions.questions}
    found = result.comparison
    columns = [f"{measure} {name}" for measure in found.values for name in found.names]
    values = [row for table in found.values.values() for row in table.tolist()]
    return csv_lines(
        ["question", "text", *columns],
        (
            [query, texts[query], *map(repr, row)]
            for query, *row in zip(found.queries, *values, strict=True)
        ),
    )


def _runs(systems: Iterable[SystemResult]) -> tuple[Files, list[str]]:
    """The files of the runs, and a remark on each that cannot be written."""
    files: Files = {}
    remarks = []
    names = FileNames()
    for system in systems:
        several = len(system.scores) > 1
        endings = [f".seed-{seed}.run" if several else ".run" for seed in range(len(system.scores))]
        for seed, name in enumerate(names.claim(system.name, endings)):
            try:
                check_run(system.run(seed))
            except BadInputError as error:
                remarks.append(f"runs/{name} was not written: {error}")
                continue
            files[f"runs/{name}"] = _run_file(system, seed, name.removesuffix(".run"))
    return files, remarks


def _run_file(system: SystemResult, seed: int, tag: str) -> Callable[[], Iterable[str]]:
    return lambda: run_lines(system.run(seed), tag)
