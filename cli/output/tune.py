"""The report of `retriever tune layers` as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cli.output.tables import table

if TYPE_CHECKING:
    from eval.layers.effects import LayerEffect, SizeEffect
    from eval.layers.protocol import Gain, LayerReport, SetScore, ShuffledReport

Cell = str | int | float | None


def report_lines(report: LayerReport | ShuffledReport, facts: Mapping[str, Any]) -> Iterator[str]:
    """The report, with what `cli.commands.tune.layers` knows beside it."""
    from eval.layers.protocol import LayerReport

    data = facts["search_data"]
    yield (
        f"{facts['subsets']:,} sets of {facts['hidden_states']} hidden states (0: embeddings); "
        f"{facts['objective']} over {data['units']:,} {facts['unit']} of {data['from']}"
    )
    for side in ("search_data", "held_out_data"):
        if facts[side] and facts[side]["left_out"]:
            yield (
                f"left out: {facts[side]['left_out']:,} questions of {facts[side]['from']} that "
                "nothing answers"
            )
    yield ""
    if isinstance(report, LayerReport):
        yield from _given(report, facts)
    else:
        yield from _shuffled(report)
    yield ""
    yield from _sizes(report.sizes)
    yield ""
    yield from _layers(report.layers)
    yield ""
    yield f"encoder: {facts['encoder']}"


def _given(report: LayerReport, facts: Mapping[str, Any]) -> Iterator[str]:
    rows = [(*_set(score), score.held_out, score.held_out_rank) for score in report.top]
    baseline = report.baseline
    rows.append(("last layer", baseline.search, baseline.held_out, baseline.held_out_rank))
    yield from _table(("layers", "search", "held out", "rank there"), rows)
    yield ""
    held_out = facts["held_out_data"]
    if held_out:
        yield (
            f"gain on held-out data, {held_out['units']:,} {facts['unit']} of {held_out['from']}:"
        )
    else:
        yield (
            "gain on the search data itself, not held out, so it is too good (held-out data: "
            "--test or --test-split):"
        )
    yield f"  {_gain(report.gain)}"


def _shuffled(report: ShuffledReport) -> Iterator[str]:
    yield from _table(
        ("layers", "mean search"),
        [*map(_set, report.top), ("last layer", report.baseline.search)],
    )
    yield ""
    yield from _table(
        ("shuffle", "best layers", "search", "held out", "last layer", "gain", "95% interval"),
        [
            (
                number,
                _join(one.best.layers),
                one.best.search,
                one.gain.best,
                one.gain.baseline,
                f"{one.gain.gain:+.4f}",
                _interval(one.gain),
            )
            for number, one in enumerate(report.shuffles, 1)
        ],
    )
    yield ""
    won = "; ".join(f"{_join(layers)} ({times})" for layers, times in report.wins)
    first = report.shuffles[0]
    yield f"won: {won}"
    yield (
        f"held out, mean of {len(report.shuffles)} shuffles ({first.search_units:,} pairs to "
        f"search, {first.held_out_units:,} to test):"
    )
    yield (
        f"  {report.test_best:.4f} against {report.test_baseline:.4f} of the last layer: "
        f"{report.gain:+.4f}, standard deviation {report.gain_spread:.4f}"
    )


def _sizes(sizes: Sequence[SizeEffect]) -> Iterator[str]:
    yield from _table(
        ("number of layers", "sets", "best", "mean", "held out", "best layers"),
        [
            (
                effect.size,
                effect.sets,
                effect.best,
                effect.mean,
                effect.held_out,
                _join(effect.best_layers) if effect.best_layers else None,
            )
            for effect in sizes
        ],
    )


def _layers(layers: Sequence[LayerEffect]) -> Iterator[str]:
    yield from _table(
        ("layer", "best without", "best with", "held out without", "held out with"),
        [
            (
                effect.layer,
                effect.without,
                effect.with_layer,
                effect.held_out_without,
                effect.held_out_with,
            )
            for effect in layers
        ],
    )


def _set(score: SetScore) -> tuple[str, float]:
    return _join(score.layers), score.search


def _join(layers: Sequence[int]) -> str:
    return ",".join(map(str, layers))


def _gain(gain: Gain) -> str:
    said = (
        f"{gain.best:.4f} against {gain.baseline:.4f} of the last layer: {gain.gain:+.4f}, "
        f"95% interval {_interval(gain)} ({gain.resamples:,} resamples)"
    )
    return said if gain.low > 0 or gain.high < 0 else f"{said}; no difference is shown"


def _interval(gain: Gain) -> str:
    return f"{gain.low:+.4f} to {gain.high:+.4f}"


def _table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """Aligned columns; those that are empty throughout are left out."""
    shown = [place for place in range(len(header)) if any(row[place] is not None for row in rows)]
    yield from table(
        [header[place] for place in shown], [[_cell(row[place]) for place in shown] for row in rows]
    )


def _cell(cell: Cell) -> str:
    if cell is None:
        return ""
    return (
        f"{cell:.4f}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else cell
    )
