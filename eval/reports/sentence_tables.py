"""The tables of an evaluation of encoders on sets of sentences, as text, for every form of report.

Values are multiplied by 100; ± is a standard deviation over seeds, * a difference from the baseline
that is significant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from eval.sentences.result import LayerGrid, SentenceResult, SetScores, Value

SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Cells of text.

    Attributes:
        title: above them.
        header: of the columns.
        rows: as many cells each.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def overview(result: SentenceResult) -> list[ReportTable]:
    """Encoders by sets, a table for each measure, with the mean over the sets if there are several.

    Empty where layers were looked at.
    """
    if not result.sets:
        return []
    names = [one.name for one in result.sets]
    mean = ("mean",) if len(names) > 1 else ()
    tables = []
    for measure in result.measures:
        rows = []
        for place, score in enumerate(result.sets[0].scores):
            values = [one.scores[place].values[measure] for one in result.sets]
            cells = [_marked(value) for value in values]
            if mean:
                cells.append(f"{100 * np.mean([value.value for value in values]):.2f}")
            rows.append((score.encoder, *cells))
        tables.append(ReportTable(f"{measure} × 100", ("encoder", *names, *mean), tuple(rows)))
    return tables


def grid_tables(result: SentenceResult) -> list[ReportTable]:
    """Layers by poolings, a table for each set, model and measure."""
    several = len({grid.encoder for grid in result.grids}) > 1
    return [_grid_table(grid, several=several) for grid in result.grids]


def set_tables(result: SentenceResult, of: SetScores) -> Iterator[ReportTable]:
    """All that is known of one set: intervals and tests by measure, and further numbers."""
    several = len(of.scores) > 1
    against = ("difference", "95% interval", "p", "Holm") if several else ()
    for measure in result.measures:
        rows = [
            (score.encoder, *_tested(score.values[measure], several=several)) for score in of.scores
        ]
        header = ("encoder", f"{measure} × 100", "95% interval", *against)
        yield ReportTable(f"{of.name}: {measure}", header, tuple(rows))
    names = list(of.scores[0].extra)
    if names:
        further = [
            (score.encoder, *(f"{100 * score.extra[name]:.2f}" for name in names))
            for score in of.scores
        ]
        yield ReportTable(f"{of.name}: further, × 100", ("encoder", *names), tuple(further))


def remarks_on(result: SentenceResult) -> Iterator[str]:
    """What a reader of the tables has to know, a sentence each."""
    yield from result.remarks
    values = [
        value for one in result.sets for score in one.scores for value in score.values.values()
    ]
    spreads = [value.spread for value in values] + [grid.spread for grid in result.grids]
    if any(spread is not None for spread in spreads):
        yield "±: standard deviation over seeds or divisions"
    if any(value.difference is not None for value in values):
        test = (
            "a paired bootstrap over pairs"
            if result.kind == "sts"
            else "a paired randomisation test over examples"
        )
        yield (
            f"*: differs from {result.baseline} with p < {SIGNIFICANT:g}, by {test} with Holm's "
            "correction over the encoders"
        )
    yield from _cut(result)
    for one in result.sets:
        for score in one.scores:
            if score.note:
                yield f"{one.name}, {score.encoder}: {score.note}"
    for grid in result.grids:
        layer, pooling = grid.best
        yield (
            f"{grid.name}, {grid.encoder}: the highest {grid.measure} is that of hidden state "
            f"{layer}, {pooling}; chosen on what is reported, so not a fair estimate"
        )


def _cut(result: SentenceResult) -> Iterator[str]:
    cuts: dict[str, list[tuple[str, int, int]]] = {}
    for one in result.sets:
        for score in one.scores:
            cuts.setdefault(score.encoder, []).append((one.name, score.cut, one.texts))
    for grid in result.grids:
        cuts.setdefault(grid.encoder, []).append((grid.name, grid.cut, grid.texts))
    said = False
    for encoder, counts in cuts.items():
        listed = [
            f"{cut:,} of {texts:,} texts of {name}"
            for name, cut, texts in dict.fromkeys(counts)
            if cut
        ]
        if listed:
            said = True
            yield f"{encoder}: cut at its window: {', '.join(listed)}"
    if not said:
        yield "no text was longer than an encoder's window"


def _marked(value: Value) -> str:
    mark = value.difference is not None and value.difference.adjusted < SIGNIFICANT
    return f"{_spread(value.value, value.spread)}{'*' if mark else ''}"


def _spread(value: float, spread: float | None) -> str:
    return f"{100 * value:.2f}" + ("" if spread is None else f" ± {100 * spread:.2f}")


def _tested(value: Value, *, several: bool) -> Iterator[str]:
    yield _spread(value.value, value.spread)
    yield f"{100 * value.low:.2f} to {100 * value.high:.2f}"
    one = value.difference
    if one is not None:
        yield f"{100 * one.value:+.2f}"
        yield f"{100 * one.low:+.2f} to {100 * one.high:+.2f}"
        yield f"{one.p:.4f}"
        yield f"{one.adjusted:.4f}"
    elif several:
        yield from ("baseline", "", "", "")


def _grid_table(grid: LayerGrid, *, several: bool) -> ReportTable:
    of = f"{grid.name}, {grid.encoder}" if several else grid.name
    rows: list[Sequence[str]] = []
    for layer, row in enumerate(grid.values.tolist()):
        spreads = [None] * len(row) if grid.spread is None else grid.spread[layer].tolist()
        rows.append([str(layer), *map(_spread, row, spreads)])
    return ReportTable(
        f"{of}: {grid.measure} × 100 by hidden state (0: embeddings) and pooling",
        ("hidden state", *grid.poolings),
        tuple(tuple(row) for row in rows),
    )
