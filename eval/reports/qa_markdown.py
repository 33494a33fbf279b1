"""The report of an evaluation on a question set as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eval.metrics.comparison import Score
from eval.qa.result import QAResult
from eval.reports.markdown import escaped, printable, table
from eval.reports.qa_summary import TIES, remarks_on, score_table, statistics_rows, system_note

_SINGLE = ("system", "mean", "95% interval")
_AGAINST = ("difference", "95% interval", "p", "Holm", "better", "worse")


def markdown(result: QAResult, files: Sequence[str], remarks: Sequence[str]) -> Iterator[str]:
    """The lines of report.md.

    Args:
        result: what to report.
        files: what was written beside it, as relative paths.
        remarks: on what was not written.
    """
    yield f"# {escaped(f'{result.questions.name}, {result.questions.split}')}"
    yield ""
    # Indented, so that nothing in it can end the block.
    yield from (f"    {printable(line)}" for line in result.command.splitlines())
    yield from table(*score_table(result))
    yield ""
    yield from (f"- {escaped(remark)}" for remark in remarks_on(result))
    yield f"- {TIES}"
    yield from (f"- {escaped(remark)}" for remark in remarks)
    yield ""
    yield "## Systems"
    yield from table(
        ("system", "note", "seconds"),
        [(one.name, system_note(one), f"{one.seconds:,.1f}") for one in result.systems],
        align="---",
    )
    for measure, scores in result.comparison.scores.items():
        yield ""
        yield f"## {measure}"
        several = len(scores) > 1
        yield from table(
            (*_SINGLE, *_AGAINST) if several else _SINGLE,
            [(name, *_compared(score, several=several)) for name, score in scores.items()],
        )
    yield ""
    yield (
        "Intervals are bootstrapped over questions. Differences are from "
        f"{escaped(result.comparison.baseline)}; p is of a paired randomisation test, and Holm "
        "is p after his correction for the number of systems."
    )
    yield ""
    yield "## Data"
    yield from table(("", ""), statistics_rows(result), align="---")
    yield ""
    yield "## Environment"
    yield from table(("", ""), list(result.environment.items()), align="---")
    yield ""
    yield "## Files"
    for file in files:
        shown = file.startswith("figures/") and file.endswith(".png")
        yield f"- {'!' if shown else ''}[{escaped(file)}]({file})"


def _compared(score: Score, *, several: bool) -> Iterator[str]:
    yield f"{100 * score.mean:.2f}"
    yield f"{100 * score.low:.2f} to {100 * score.high:.2f}"
    one = score.difference
    if one is not None:
        yield f"{100 * one.mean:+.2f}"
        yield f"{100 * one.low:+.2f} to {100 * one.high:+.2f}"
        yield f"{one.p:.4f}"
        yield f"{one.adjusted:.4f}"
        yield f"{one.better:,}"
        yield f"{one.worse:,}"
    elif several:
        yield from ("baseline", *[""] * (len(_AGAINST) - 1))
