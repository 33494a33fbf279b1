"""The result of `retriever eval qa` as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cli.output.safe_text import on_one_line
from cli.output.tables import table

if TYPE_CHECKING:
    from eval.qa.result import QAResult

_SHOWN = 80


def report_lines(result: QAResult, different: int = 3) -> Iterator[str]:
    """Statistics, scores, what the scores mean, notes.

    Args:
        result: of an evaluation.
        different: for each system, how many of the questions to show on which it differs most from
            the baseline by the first measure.
    """
    from eval.reports.qa_summary import remarks_on, score_table, statistics_rows, system_note

    yield on_one_line(f"{result.questions.name}, {result.questions.split}")
    for name, text in statistics_rows(result):
        yield f"  {name}: {text}"
    yield ""
    header, rows = score_table(result)
    # A place for the mark, so that numbers stay below each other.
    width = int(any(cell.endswith("*") for row in rows for cell in row[1:]))
    for row in rows:
        row[1:] = [cell if cell.endswith("*") else cell + width * " " for cell in row[1:]]
    header[1:] = [name + width * " " for name in header[1:]]
    yield from table(header, rows)
    yield ""
    yield from map(on_one_line, remarks_on(result))
    for system in result.systems:
        note = system_note(system)
        if note:
            yield on_one_line(f"{system.name}: {note}")
    if different:
        yield from _different(result, different)


def _different(result: QAResult, count: int) -> Iterator[str]:
    measure = result.measures[0]
    texts = {question.id: question.text for question in result.questions.questions}
    for system in result.systems:
        found = result.comparison.most_different(measure, system.name, count)
        if not found:
            continue
        yield ""
        yield on_one_line(
            f"{system.name} less {result.comparison.baseline}, {measure} × 100, where they differ "
            "most:"
        )
        for question, difference in found:
            text = on_one_line(f"{question}  {texts[question]}")
            shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 2]} …"
            yield f"  {100 * difference:+7.2f}  {shown}"
