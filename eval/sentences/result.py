"""The result of an evaluation of encoders on sets of sentences, its report and its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eval.figures import heat_map, new_figure, panels, plain_text, short_label
from eval.metrics.comparison import SIGNIFICANT, Score, comparison_table, percent, score_cell
from eval.reports import FileNames, Report, ReportedResult, Section, Table, csv_lines, environment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

_COLUMNS = 4
# Numbers in the cells of more rows than these could not be read.
_NUMBERED_ROWS = 30


@dataclass(frozen=True, slots=True, eq=False)
class EncoderScore:
    """One encoder on one set; `cut` texts were longer than its window."""

    encoder: str
    cut: int
    values: Mapping[str, Score]
    # Further numbers, as shares.
    extra: Mapping[str, float]
    note: str
    details: Mapping[str, object]
    # (examples,) a pair's cosine or predicted score, or the share of tests that classify it right.
    examples: Floats


@dataclass(frozen=True, slots=True, eq=False)
class SetScores:
    """All encoders on one set, in the order in which they were named."""

    name: str
    facts: Mapping[str, str]
    # Number of distinct texts.
    texts: int
    # Columns of what was tested.
    examples: Mapping[str, Sequence[object]]
    scores: tuple[EncoderScore, ...]
    # The set's name and this number of examples, where it is learned from in several sizes.
    curve: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LayerGrid:
    """Every hidden state of a model with several poolings, on one set by one measure: `values` and
    their `spread` over seeds, if there are several, are (hidden states, poolings) float64.
    """

    name: str
    encoder: str
    measure: str
    poolings: tuple[str, ...]
    values: Floats
    spread: Floats | None
    cut: int
    texts: int

    @property
    def best(self) -> tuple[int, str]:
        """Hidden state and pooling of the highest value; the first one of equal ones."""
        layer, column = divmod(int(np.argmax(self.values)), len(self.poolings))
        return layer, self.poolings[column]


@dataclass(frozen=True, slots=True, eq=False)
class SentenceResult(ReportedResult):
    """An evaluation.

    Attributes:
        kind: "sts", "transfer" or "probe".
        settings: how it was made: name and text, such as the aggregation or the protocol.
        sets: of the encoders' own vectors; empty if layers were scored.
        grids: layer by layer; may be empty.
        baseline: the encoder that the others are compared with; None if nothing is compared.
        command: reproduces the result; may be empty.
    """

    kind: str
    title: str
    settings: Mapping[str, str]
    remarks: tuple[str, ...]
    measures: tuple[str, ...]
    sets: tuple[SetScores, ...] = ()
    grids: tuple[LayerGrid, ...] = ()
    baseline: str | None = None
    device: str | None = None
    command: str = ""

    def report(self) -> Report:
        """The result for a reader, with the values of examples as files."""
        remarks = tuple(_remarks(self))
        names = FileNames()
        brief = {
            of.name: "; ".join(f"{name} {text}" for name, text in of.facts.items())
            for of in self.sets
        }
        return Report(
            name=self.kind,
            title=self.title,
            sections=(
                Section(
                    facts={**self.settings, **brief},
                    tables=(*_overview(self), *_grids(self)),
                    remarks=remarks,
                    brief=True,
                ),
                *(
                    Section(of.name, facts=of.facts, tables=tuple(_set_tables(self, of)))
                    for of in self.sets
                ),
            ),
            data={
                "kind": self.kind,
                "settings": dict(self.settings),
                "measures": list(self.measures),
                "baseline": self.baseline,
                "remarks": list(remarks),
                "sets": [_set_data(one) for one in self.sets],
                "by_layer": [_grid_data(one) for one in self.grids],
            },
            command=self.command,
            environment=environment(self.device),
            files={
                f"examples.{names.claim(one.name, ['.csv'])[0]}": partial(_examples, one)
                for one in self.sets
            },
            figures=sentence_figures(self),
        )


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
    cuts: dict[str, dict[str, None]] = {}
    counted = [(one.encoder, of.name, one.cut, of.texts) for of in result.sets for one in of.scores]
    counted += [(one.encoder, one.name, one.cut, one.texts) for one in result.grids]
    for encoder, name, cut, texts in counted:
        if cut:
            # A grid is there once for each measure.
            cuts.setdefault(encoder, {})[f"{cut:,} of {texts:,} texts of {name}"] = None
    for encoder, listed in cuts.items():
        yield f"{encoder}: longer than its window, and cut: {', '.join(listed)}"
    if not cuts:
        yield "no text is longer than an encoder's window"


def _set_data(of: SetScores) -> dict[str, object]:
    scores = [asdict(one) for one in of.scores]
    for one in scores:
        del one["examples"]
    return {"set": of.name, "facts": dict(of.facts), "texts": of.texts, "scores": scores}


def _grid_data(grid: LayerGrid) -> dict[str, object]:
    layer, pooling = grid.best
    facts = asdict(grid)
    return {
        "set": facts.pop("name"),
        **facts,
        "values": grid.values.tolist(),
        "spread": None if grid.spread is None else grid.spread.tolist(),
        "best": {"hidden_state": layer, "pooling": pooling},
    }


def _examples(of: SetScores) -> Iterator[str]:
    values = [[repr(value) for value in score.examples.tolist()] for score in of.scores]
    return csv_lines(
        [*of.examples, *(score.encoder for score in of.scores)],
        zip(*of.examples.values(), *values, strict=True),
    )


def sentence_figures(result: SentenceResult) -> dict[str, Callable[[], Figure]]:
    """Name to what draws it, for all figures that the result has values for."""
    found: dict[str, Callable[[], Figure]] = {}
    models = list(dict.fromkeys(grid.encoder for grid in result.grids))
    for measure in result.measures:
        if any(one.curve for one in result.sets):
            found[f"sizes-{measure}"] = partial(sizes_figure, result.sets, measure)
        for number, model in enumerate(models, 1):
            grids = [one for one in result.grids if (one.encoder, one.measure) == (model, measure)]
            name = f"layers-{measure}" + (f"-{number}" if len(models) > 1 else "")
            found[name] = partial(layers_figure, grids)
    return found


def sizes_figure(sets: Sequence[SetScores], measure: str) -> Figure:
    """Each encoder by the number of examples that were learned from, with 95% intervals, and the
    reduction of error beside the model's last layer; Fig. 1 of Hosseini et al. (2023).
    """
    curves: dict[str, dict[int, SetScores]] = {}
    for one in sets:
        if one.curve is not None:
            name, size = one.curve
            curves.setdefault(name, {})[size] = one
    figure = new_figure(max(3.2 * len(curves), 6.4), 6.6)
    axes = panels(figure, [*curves] * 2, columns=len(curves))
    for of, values, errors in zip(
        curves.values(), axes[: len(curves)], axes[len(curves) :], strict=True
    ):
        learned = sorted(of)
        ordered = [of[size] for size in learned]
        for place, score in enumerate(ordered[0].scores):
            found = [one.scores[place] for one in ordered]
            middle, around = _percentages([one.values[measure] for one in found])
            label = short_label(score.encoder)
            values.errorbar(
                learned, middle, yerr=around, fmt=".-", capsize=2, alpha=0.8, label=label
            )
            reduced = [one.extra["error reduction"] * 100 for one in found]
            errors.plot(learned, reduced, ".-", alpha=0.8, label=label)
        for panel in (values, errors):
            panel.set_xscale("log")
            panel.set_xticks(learned, [f"{one:,}" for one in learned])
            panel.set_xticks([], minor=True)
            panel.grid(alpha=0.3)
    axes[0].set_ylabel(f"{measure} × 100, 95% interval", fontsize="small")
    axes[len(curves)].set_ylabel("error reduction × 100", fontsize="small")
    figure.supxlabel("examples learned from", fontsize="small")
    plain_text(*axes[0].legend(fontsize="x-small").get_texts())
    return figure


def layers_figure(grids: Sequence[LayerGrid]) -> Figure:
    """Hidden states by poolings as heat maps, a panel for each set; Fig. 1 of Ma et al. (2019)."""
    states, poolings = grids[0].values.shape
    columns = min(_COLUMNS, len(grids))
    rows = -(-len(grids) // columns)
    size = (1.3 + 0.6 * poolings, 1.0 + max(0.27 * min(states, _NUMBERED_ROWS), 1.6))
    figure = new_figure(max(columns * size[0], 4.0), rows * size[1] + 0.6)
    numbered = states <= _NUMBERED_ROWS
    for axes, grid in zip(panels(figure, [one.name for one in grids]), grids, strict=True):
        image = heat_map(axes, grid.values * 100, 1, numbers=numbered)
        figure.colorbar(image, ax=axes).ax.tick_params(labelsize="x-small")
        axes.set_xticks(range(poolings), grid.poolings)
        axes.set_yticks(range(0, states, 1 if numbered else 2))
    figure.supylabel("hidden state (0: embeddings)", fontsize="small")
    title = f"{short_label(grids[0].encoder)}, {grids[0].measure} × 100"
    plain_text(figure.suptitle(title, fontsize="medium"))
    return figure


def _percentages(values: Sequence[Score]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The values, and (2, values) the lengths of their intervals below and above, × 100."""
    middle = np.array([value.value for value in values]) * 100
    ends = np.array([(value.low, value.high) for value in values]).T * 100
    # Where examples are tested unequally often, a value may lie outside its interval.
    return middle, np.maximum([middle - ends[0], ends[1] - middle], 0)
