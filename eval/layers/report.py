"""The report of a layer search.

Beside the files of every report it has ``sets.csv``, the best sets with their objectives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from eval.layers.protocol import Gain, LayerReport, SetScore, ShuffledReport
from eval.metrics.comparison import interval
from eval.reports import Report, Section, csv_lines, environment
from eval.tables import Table

if TYPE_CHECKING:
    from eval.layers.effects import LayerEffect, SizeEffect
    from eval.layers.evaluation import LayerSearchResult

Cell = str | int | float | None


def layer_report(result: LayerSearchResult) -> Report:
    """The report of a result; see `LayerSearchResult.report`."""
    found = result.found
    if isinstance(found, LayerReport):
        tables, remarks = [_sets(found), _baselines(found)], list(_gain(found, result))
    else:
        tables = [_mean_sets(found), _shuffles(found), _mean_baselines(found)]
        remarks = list(_shuffled_gain(found))
    return Report(
        name="layers",
        title=f"Layers of {result.encoder.split('::')[0]}",
        sections=(
            Section(
                facts=dict(_facts(result)),
                tables=(*tables, _size_table(found.sizes), _layer_table(found.layers)),
                remarks=(*remarks, f"encoder: {result.encoder}"),
                brief=True,
            ),
        ),
        data=result.data(),
        command=result.command,
        environment=environment(result.settings.loading.device),
        files={"sets.csv": lambda: _csv(found.top)},
        figures={"effects": result.figure},
    )


def _facts(result: LayerSearchResult) -> Iterator[tuple[str, str]]:
    yield "sets", f"{result.subsets:,} of {result.hidden_states} hidden states (0: embeddings)"
    data = result.search_data
    yield "objective", f"{result.objective} over {data.units:,} {result.unit} of {data.name}"
    if result.held_out_data is not None:
        data = result.held_out_data
        yield "held-out data", f"{data.units:,} {result.unit} of {data.name}"
    for one in (result.search_data, result.held_out_data):
        if one is not None and one.left_out:
            questions = "question" if one.left_out == 1 else "questions"
            yield (
                f"left out of {one.name}",
                f"{one.left_out:,} {questions} without a relevant passage",
            )


def _sets(found: LayerReport) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (_join(one.layers), one.search, one.held_out, one.held_out_rank) for one in found.top
    ]
    last = found.baseline
    rows.append(("last layer", last.search, last.held_out, last.held_out_rank))
    return _table("Best sets", ("layers", "search", "held out", "held-out rank"), rows)


def _baselines(found: LayerReport) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            _join(score.layers),
            score.search,
            score.held_out,
            score.held_out_rank,
            f"{gain.gain:+.4f}",
            _interval(gain),
        )
        for name, score, gain in (
            ("last layer", found.baseline, found.gain),
            *((one.name, one.score, one.gain) for one in found.others),
        )
    ]
    columns = ("baseline", "layers", "search", "held out", "held-out rank", "gain", "95% interval")
    return _table("Gain of the best set over baselines", columns, rows)


def _mean_baselines(found: ShuffledReport) -> Table:
    last = ("last layer", found.test_baseline, f"{found.gain:+.4f}", found.gain_spread)
    others = [(one.name, one.test, f"{one.gain:+.4f}", one.gain_spread) for one in found.others]
    columns = ("baseline", "held out", "gain", "standard deviation of the gain")
    return _table(
        "Gain of the best sets over baselines, mean over shuffles", columns, [last, *others]
    )


def _mean_sets(found: ShuffledReport) -> Table:
    rows: list[tuple[Cell, ...]] = [(_join(one.layers), one.search) for one in found.top]
    rows.append(("last layer", found.baseline.search))
    return _table("Best sets by the mean over shuffles", ("layers", "mean search"), rows)


def _shuffles(found: ShuffledReport) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            number,
            _join(one.best.layers),
            one.best.search,
            one.gain.best,
            one.gain.baseline,
            f"{one.gain.gain:+.4f}",
            _interval(one.gain),
        )
        for number, one in enumerate(found.shuffles, 1)
    ]
    columns = ("shuffle", "best layers", "search", "held out", "last layer", "gain", "95% interval")
    return _table("Shuffles", columns, rows)


def _size_table(sizes: Sequence[SizeEffect]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            one.size,
            one.sets,
            one.best,
            one.mean,
            one.held_out,
            _join(one.best_layers) if one.best_layers else None,
        )
        for one in sizes
    ]
    columns = ("number of layers", "sets", "best", "mean", "held out", "best layers")
    return _table("Effect of the number of layers", columns, rows)


def _layer_table(layers: Sequence[LayerEffect]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (one.layer, one.without, one.with_layer, one.held_out_without, one.held_out_with)
        for one in layers
    ]
    columns = ("layer", "best without", "best with", "held out without", "held out with")
    return _table("Effect of each layer", columns, rows)


def _gain(found: LayerReport, result: LayerSearchResult) -> Iterator[str]:
    one = found.gain
    where = "on held-out data"
    if not one.held_out:
        where = "on the search data"
        yield (
            "the gain is optimistic: it is measured on the data that the layers were chosen on; "
            "name held-out data with --test or --test-split"
        )
    yield (
        f"gain {where}: {one.best:.4f} against {one.baseline:.4f} for the last layer, "
        f"{one.gain:+.4f}, 95% interval {_interval(one)} ({one.resamples:,} resamples)"
        + ("" if one.low > 0 or one.high < 0 else "; the interval includes 0")
    )


def _shuffled_gain(found: ShuffledReport) -> Iterator[str]:
    won = "; ".join(f"{_join(layers)} ({times})" for layers, times in found.wins)
    yield f"best layers (shuffles): {won}"
    first = found.shuffles[0]
    yield (
        f"held out, mean over {len(found.shuffles)} shuffles ({first.search_units:,} pairs to "
        f"search on, {first.held_out_units:,} to test on): {found.test_best:.4f} against "
        f"{found.test_baseline:.4f} for the last layer, {found.gain:+.4f}, standard deviation "
        f"{found.gain_spread:.4f}"
    )


def _csv(sets: Sequence[SetScore]) -> Iterator[str]:
    return csv_lines(
        ["layers", "search", "held_out", "held_out_rank"],
        [
            (
                _join(one.layers),
                repr(one.search),
                "" if one.held_out is None else repr(one.held_out),
                "" if one.held_out_rank is None else one.held_out_rank,
            )
            for one in sets
        ],
    )


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    """A table without the columns that are empty in all rows."""
    shown = [place for place in range(len(columns)) if any(row[place] is not None for row in rows)]
    return Table(
        tuple(columns[place] for place in shown),
        tuple(tuple(_cell(row[place]) for place in shown) for row in rows),
        title,
    )


def _cell(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.4f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def _join(layers: Sequence[int]) -> str:
    return ",".join(map(str, layers))


def _interval(gain: Gain) -> str:
    return interval(gain.low, gain.high, scale=1, digits=4, sign="+")
