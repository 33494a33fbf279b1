"""Scores as cells of tables: values with spreads and marks, intervals, and tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from eval.reports.model import Table

if TYPE_CHECKING:
    from eval.metrics.comparison import Score

_AGAINST = ("difference", "95% interval", "p", "Holm")
_COUNTS = ("better", "worse")
# Below it the coverage of 95% intervals is nearer 90% on most measures, and lower where values are
# equal on most queries (`benchmarks/interval_coverage.py`).
_FEW = 20


def percent(value: float, spread: float | None = None) -> str:
    """A value times 100, with ± its standard deviation."""
    return f"{100 * value:.2f}" + ("" if spread is None else f" ± {100 * spread:.2f}")


def score_cell(score: Score) -> str:
    """A score times 100 with ± its spread, and * where it differs significantly."""
    mark = score.difference is not None and score.difference.significant
    return f"{percent(score.value, score.spread)}{'*' if mark else ''}"


def interval(
    low: float, high: float, *, scale: float = 100, digits: int = 2, sign: str = ""
) -> str:
    """An interval as text.

    Args:
        low: its lower end.
        high: its upper end.
        scale: multiplies both.
        digits: after the point.
        sign: "+" shows the sign of positive numbers.
    """
    return f"{scale * low:{sign}.{digits}f} to {scale * high:{sign}.{digits}f}"


def few_remark(count: int, of: str) -> Iterator[str]:
    """Says that intervals are too short where there are few queries; nothing otherwise."""
    if count < _FEW:
        yield (
            f"intervals from fewer than {_FEW} {of} are often too short, above all where most "
            "values are equal"
        )


def comparison_table(
    title: str, of: str, scores: Mapping[str, Score], *, scale: float = 100, digits: int = 2
) -> Table:
    """Systems with intervals, and with differences from the baseline where there are several.

    Args:
        title: caption.
        of: the name of the first column, such as "system".
        scores: system to score.
        scale: multiplies the values.
        digits: of values, after the point.
    """
    counted = any(one.difference and one.difference.better is not None for one in scores.values())
    against = (*_AGAINST, *(_COUNTS if counted else ())) if len(scores) > 1 else ()
    rows = [(name, *_cells(score, len(against), scale, digits)) for name, score in scores.items()]
    return Table((of, "value", "95% interval", *against), tuple(rows), title)


def _cells(score: Score, against: int, scale: float, digits: int) -> Iterator[str]:
    spread = "" if score.spread is None else f" ± {scale * score.spread:.{digits}f}"
    yield f"{scale * score.value:.{digits}f}{spread}"
    yield interval(score.low, score.high, scale=scale, digits=digits)
    one = score.difference
    if one is not None:
        yield f"{scale * one.value:+.{digits}f}"
        yield interval(one.low, one.high, scale=scale, digits=digits, sign="+")
        yield f"{one.p:.4f}"
        yield f"{one.adjusted:.4f}"
        if one.better is not None and one.worse is not None:
            yield f"{one.better:,}"
            yield f"{one.worse:,}"
    elif against:
        yield from ("baseline", *[""] * (against - 1))
