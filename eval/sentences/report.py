"""The report of an evaluation of encoders on sets of sentences.

Beside the files of every report it has ``examples.SET.csv`` for each set: the examples with the
value of each under every encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from eval.metrics.comparison import SIGNIFICANT, comparison_table, percent, score_cell
from eval.reports import FileNames, Report, Section, csv_lines, environment
from eval.sentences.figures import sentence_figures
from eval.tables import Table

if TYPE_CHECKING:
    from eval.sentences.result import LayerGrid, SentenceResult, SetScores


def sentence_report(result: SentenceResult) -> Report:
    """The report of a result; see `SentenceResult.report`."""
    remarks = tuple(_remarks(result))
    return Report(
        name=result.kind,
        title=result.title,
        sections=(
            Section(
                facts={**result.settings, **{of.name: _said(of.facts) for of in result.sets}},
                tables=(*_overview(result), *_grids(result)),
                remarks=remarks,
                brief=True,
            ),
            *(
                Section(of.name, facts=of.facts, tables=tuple(_set_tables(result, of)))
                for of in result.sets
            ),
        ),
        data={
            "kind": result.kind,
            "settings": dict(result.settings),
            "measures": list(result.measures),
            "baseline": result.baseline,
            "remarks": list(remarks),
            "sets": [_set_data(one) for one in result.sets],
            "by_layer": [_grid_data(one) for one in result.grids],
        },
        command=result.command,
        environment=environment(result.device),
        files=_example_files(result),
        figures=sentence_figures(result),
    )


def _said(facts: Mapping[str, str]) -> str:
    """Facts on one line."""
    return "; ".join(f"{name} {text}" for name, text in facts.items())


def _overview(result: SentenceResult) -> Iterator[Table]:
    """Encoders by sets, a table for each measure, with the mean over sets if there are several."""
    if not result.sets:
        return
    names = [one.name for one in result.sets]
    # Over sizes of the same set a mean says nothing.
    mean = ("mean",) if len(names) > 1 and result.sets[0].curve is None else ()
    for measure in result.measures:
        rows = []
        for place, score in enumerate(result.sets[0].scores):
            scores = [one.scores[place].values[measure] for one in result.sets]
            cells = [score_cell(one) for one in scores]
            if mean:
                cells.append(percent(float(np.mean([one.value for one in scores]))))
            rows.append((score.encoder, *cells))
        yield Table(("encoder", *names, *mean), tuple(rows), f"{measure} × 100")


def _grids(result: SentenceResult) -> Iterator[Table]:
    """Layers by poolings, a table for each set, model and measure."""
    several = len({grid.encoder for grid in result.grids}) > 1
    for grid in result.grids:
        of = f"{grid.name}, {grid.encoder}" if several else grid.name
        rows = []
        for layer, row in enumerate(grid.values.tolist()):
            spreads = [None] * len(row) if grid.spread is None else grid.spread[layer].tolist()
            rows.append((str(layer), *map(percent, row, spreads)))
        yield Table(
            ("hidden state", *grid.poolings),
            tuple(rows),
            f"{of}: {grid.measure} × 100 by hidden state (0: embeddings) and pooling",
        )


def _set_tables(result: SentenceResult, of: SetScores) -> Iterator[Table]:
    """Everything that is known of one set: intervals and tests by measure, and further numbers."""
    for measure in result.measures:
        scores = {score.encoder: score.values[measure] for score in of.scores}
        yield comparison_table(f"{of.name}: {measure} × 100", "encoder", scores)
    names = list(of.scores[0].extra)
    if names:
        rows = tuple(
            (score.encoder, *(percent(score.extra[name]) for name in names)) for score in of.scores
        )
        yield Table(("encoder", *names), rows, f"{of.name}: further values × 100")


def _remarks(result: SentenceResult) -> Iterator[str]:
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
            else "a paired randomization test over examples"
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
            f"{grid.name}, {grid.encoder}: {grid.measure} is highest for hidden state {layer} with "
            f"{pooling} pooling; optimistic: chosen on the data it is measured on"
        )


def _cut(result: SentenceResult) -> Iterator[str]:
    cuts: dict[str, list[tuple[str, int, int]]] = {}
    for one in result.sets:
        for score in one.scores:
            cuts.setdefault(score.encoder, []).append((one.name, score.cut, one.texts))
    for grid in result.grids:
        cuts.setdefault(grid.encoder, []).append((grid.name, grid.cut, grid.texts))
    cut_any = False
    for encoder, counts in cuts.items():
        listed = [
            f"{cut:,} of {texts:,} texts of {name}"
            for name, cut, texts in dict.fromkeys(counts)
            if cut
        ]
        if listed:
            cut_any = True
            yield f"{encoder}: longer than its window, and cut: {', '.join(listed)}"
    if not cut_any:
        yield "no text is longer than an encoder's window"


def _set_data(of: SetScores) -> dict[str, object]:
    return {
        "set": of.name,
        "facts": dict(of.facts),
        "texts": of.texts,
        "scores": [
            {
                "encoder": score.encoder,
                "cut": score.cut,
                "values": {name: asdict(value) for name, value in score.values.items()},
                "extra": dict(score.extra),
                "note": score.note,
                "details": dict(score.details),
            }
            for score in of.scores
        ],
    }


def _grid_data(grid: LayerGrid) -> dict[str, object]:
    layer, pooling = grid.best
    return {
        "set": grid.name,
        "encoder": grid.encoder,
        "measure": grid.measure,
        "poolings": list(grid.poolings),
        "values": grid.values.tolist(),
        "spread": None if grid.spread is None else grid.spread.tolist(),
        "best": {"hidden_state": layer, "pooling": pooling},
        "cut": grid.cut,
        "texts": grid.texts,
    }


def _example_files(result: SentenceResult) -> dict[str, Callable[[], Iterable[str]]]:
    names = FileNames()
    return {
        f"examples.{names.claim(one.name, ['.csv'])[0]}": partial(_examples, one)
        for one in result.sets
    }


def _examples(of: SetScores) -> Iterator[str]:
    values = [[repr(value) for value in score.examples.tolist()] for score in of.scores]
    return csv_lines(
        [*of.examples, *(score.encoder for score in of.scores)],
        zip(*of.examples.values(), *values, strict=True),
    )
