"""The report of an evaluation on a question set, as files: for people, for programs, for figures.

::

    report.md           tables, and how they came about
    report.json         all of it
    per_question.csv    each question's value by each measure and system
    runs/               TREC runs, one for each system and seed
    figures/            PNG and SVG, where matplotlib is installed
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path

from eval.metrics.trec import write_run
from eval.qa.result import QAResult, SystemResult
from eval.reports.files import check_report_folder, finish_report, make_folder, write_text
from eval.reports.qa_figures import draw_figures
from eval.reports.qa_markdown import markdown
from eval.reports.qa_summary import TIES
from retriever.errors import BadInputError, StorageError

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_FILE = 100


def write_report(folder: Path, result: QAResult) -> list[Path]:
    """Write a report; files of the same names are replaced, others in the folder stay.

    A run whose ids have white space cannot be written, nor a figure without matplotlib: report.md
    says so then.

    Returns:
        The files, report.md last.

    Raises:
        StorageError: the folder or a file of it cannot be written.
    """
    check_report_folder(folder)
    make_folder(folder / "runs")
    remarks: list[str] = []
    runs = _write_runs(folder / "runs", result.systems, remarks)
    written = [*runs, folder / "report.json", folder / "per_question.csv"]
    write_text(written[-2], json.dumps(result_json(result), indent=1, allow_nan=False) + "\n")
    write_text(written[-1], _per_question(result))
    return finish_report(
        folder,
        written,
        lambda figures: draw_figures(figures, result),
        lambda files, undrawn: markdown(result, files, [*remarks, *undrawn]),
    )


def result_json(result: QAResult) -> dict[str, object]:
    """All of a result but the rankings and the texts, as objects that JSON has; numbers finite.

    ``per_question`` holds lists in the order of its ``questions``, those that are counted.
    """
    found = result.comparison
    scores = {
        name: {measure: asdict(one[name]) for measure, one in found.scores.items()}
        for name in found.missing
    }
    for measure, spread in result.spread.items():
        for name, value in spread.items():
            scores[name][measure]["spread"] = value
    return {
        "data_set": result.questions.name,
        "split": result.questions.split,
        "command": result.command,
        "environment": dict(result.environment),
        "statistics": result.statistics.to_json(),
        "ties": TIES,
        "counted": found.queries,
        "without_answer": found.without_positive,
        "without_answer_excluded": found.excluded,
        "measures": list(result.measures),
        "baseline": found.baseline,
        "systems": [
            {
                "name": system.name,
                "seeds": len(system.runs),
                "missing": found.missing[system.name],
                "note": system.note,
                "seconds": system.seconds,
                "curves": [list(curve) for curve in system.curves],
                "scores": scores[system.name],
            }
            for system in result.systems
        ],
        "per_question": {
            "questions": _counted(result),
            "values": {
                measure: {name: list(one.values()) for name, one in values.items()}
                for measure, values in found.per_query.items()
            },
        },
    }


def _counted(result: QAResult) -> list[str]:
    """Ids of the questions that are counted, in the order of all values by question."""
    values = result.comparison.per_query[result.measures[0]]
    return list(values[result.comparison.baseline])


def _per_question(result: QAResult) -> str:
    texts = {question.id: question.text for question in result.questions.questions}
    values = {
        f"{measure} {name}": one
        for measure, systems in result.comparison.per_query.items()
        for name, one in systems.items()
    }
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["question", "text", *values])
    for question in _counted(result):
        writer.writerow(
            [question, texts[question], *(repr(one[question]) for one in values.values())]
        )
    return text.getvalue()


def _write_runs(folder: Path, systems: Sequence[SystemResult], remarks: list[str]) -> list[Path]:
    written = []
    for system, names in zip(systems, _run_names(systems), strict=True):
        for run, name in zip(system.runs, names, strict=True):
            ranked = {
                question: sorted(scores.items(), key=lambda one: (one[1], one[0]), reverse=True)
                for question, scores in run.items()
            }
            try:
                write_run(folder / name, ranked, name.removesuffix(".run"))
            except StorageError:
                raise
            except BadInputError as error:
                remarks.append(f"runs/{name} was not written: {error}")
            else:
                written.append(folder / name)
    return written


def _run_names(systems: Sequence[SystemResult]) -> Iterator[list[str]]:
    """The files of each system's runs: no two the same, also where case does not count."""
    taken: set[str] = set()
    for system in systems:
        stem = _UNSAFE.sub("-", system.name)[:_LONGEST_FILE].strip("-.") or "system"
        for number in count(1):
            named = stem if number == 1 else f"{stem}-{number}"
            seeds = range(len(system.runs))
            names = [f"{named}.seed-{seed}.run" for seed in seeds]
            if len(names) == 1:
                names = [f"{named}.run"]
            if taken.isdisjoint(name.lower() for name in names):
                break
        taken.update(name.lower() for name in names)
        yield names
