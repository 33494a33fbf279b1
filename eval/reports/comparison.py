"""A comparison of runs for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from eval.reports.scores import comparison_table, few_remark
from eval.reports.text import printable, table_lines

if TYPE_CHECKING:
    from eval.metrics.comparison import Comparison

_SHOWN = 100


def comparison_lines(found: Comparison, queries: Mapping[str, str], top: int) -> Iterator[str]:
    """See `Comparison.text`."""
    treatment = "left out" if found.excluded else "counted as zero"
    yield (
        f"{len(found.queries):,} queries; {found.without_positive:,} without a relevant document, "
        f"{treatment}; 95% intervals"
    )
    yield from few_remark(len(found.queries), "queries")
    for run, missing in found.missing.items():
        if missing:
            said = (
                "query is missing and counts" if missing == 1 else "queries are missing and count"
            )
            yield f"{printable(run)}: {missing:,} {said} as zero"
    for measure, scores in found.scores.items():
        yield ""
        yield from table_lines(comparison_table("", measure, scores, scale=1, digits=4))
        for run in scores:
            different = found.most_different(measure, run, top)
            if different:
                yield f"greatest differences in {measure}, {printable(run)}:"
            for query, difference in different:
                text = printable(queries.get(query, ""))
                shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 2]} …"
                yield f"  {difference:+.4f}  {printable(query)}  {shown}".rstrip()
