"""Result of an evaluation of encoders on sets of sentences, with its report and its figures."""

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

# Panels side by side in a figure.
_COLUMNS = 4
# Most rows of a heat map whose cells have readable numbers.
_NUMBERED_ROWS = 30


@dataclass(frozen=True, slots=True, eq=False)
class EncoderScore:
    """One encoder on one set.

    Attributes:
        cut: number of texts longer than the encoder's window.
        values: measure to score.
        extra: name to a further number, as a share.
        examples: (examples,) cosine or predicted score of a pair, or share of correct tests of an
            example.
    """

    encoder: str
    cut: int
    values: Mapping[str, Score]
    extra: Mapping[str, float]
    note: str
    details: Mapping[str, object]
    examples: Floats


@dataclass(frozen=True, slots=True, eq=False)
class SetScores:
    """All encoders on one set, in the order of the command.

    Attributes:
        texts: number of distinct texts.
        examples: columns of the tested examples.
        curve: name of the set and number of training examples, if there are several sizes.
    """

    name: str
    facts: Mapping[str, str]
    texts: int
    examples: Mapping[str, Sequence[object]]
    scores: tuple[EncoderScore, ...]
    curve: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LayerGrid:
    """Every hidden state of a model with several poolings, on one set by one measure.

    Attributes:
        values: (hidden states, poolings) float64.
        spread: their standard deviations over seeds; None for one seed.
        cut: number of texts longer than the model's window.
        texts: number of distinct texts.
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
        """Hidden state and pooling of the highest value; of equal values, the first."""
        layer, column = divmod(int(np.argmax(self.values)), len(self.poolings))
        return layer, self.poolings[column]


@dataclass(frozen=True, slots=True, eq=False)
class SentenceResult(ReportedResult):
    """An evaluation.

    Attributes:
        kind: "sts", "transfer" or "probe".
        settings: name to text, such as the aggregation or the protocol.
        sets: scores of the encoders' own vectors; empty if hidden states were scored.
        grids: scores of hidden states; may be empty.
        baseline: the encoder that the other encoders are compared with; None without a comparison.
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
        """Return the result for a reader, with the values of examples as files."""
        remarks = tuple(_result_remarks(self))
        names = FileNames()
        brief = {
            set_scores.name: "; ".join(f"{name} {text}" for name, text in set_scores.facts.items())
            for set_scores in self.sets
        }
        return Report(
            name=self.kind,
            title=self.title,
            sections=(
                Section(
                    facts={**self.settings, **brief},
                    tables=(*_overview_tables(self), *_grid_tables(self)),
                    remarks=remarks,
                    brief=True,
                ),
                *(
                    Section(
                        set_scores.name,
                        facts=set_scores.facts,
                        tables=tuple(_set_tables(self, set_scores)),
                    )
                    for set_scores in self.sets
                ),
            ),
            data={
                "kind": self.kind,
                "settings": dict(self.settings),
                "measures": list(self.measures),
                "baseline": self.baseline,
                "remarks": list(remarks),
                "sets": [_set_data(set_scores) for set_scores in self.sets],
                "by_layer": [_grid_data(set_scores) for set_scores in self.grids],
            },
            command=self.command,
            environment=environment(self.device),
            files={
                f"examples.{names.claim(set_scores.name, ['.csv'])[0]}": partial(
                    _example_lines, set_scores
                )
                for set_scores in self.sets
            },
            figures=sentence_figures(self),
        )


def _overview_tables(result: SentenceResult) -> Iterator[Table]:
    """Yield a table of encoders by sets for each measure, with the mean over several sets."""
    if not result.sets:
        return
    names = [set_scores.name for set_scores in result.sets]
    # A mean over sizes of the same set means nothing.
    mean = ("mean",) if len(names) > 1 and result.sets[0].curve is None else ()
    for measure in result.measures:
        rows = []
        for place, score in enumerate(result.sets[0].scores):
            scores = [set_scores.scores[place].values[measure] for set_scores in result.sets]
            cells = [score_cell(set_scores) for set_scores in scores]
            if mean:
                cells.append(percent(float(np.mean([set_scores.value for set_scores in scores]))))
            rows.append((score.encoder, *cells))
        yield Table(("encoder", *names, *mean), tuple(rows), f"{measure} × 100")


def _grid_tables(result: SentenceResult) -> Iterator[Table]:
    """Yield a table of hidden states by poolings for each set, model and measure."""
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


def _set_tables(result: SentenceResult, set_scores: SetScores) -> Iterator[Table]:
    """Yield the tables of one set: intervals and tests by measure, and further numbers."""
    for measure in result.measures:
        scores = {score.encoder: score.values[measure] for score in set_scores.scores}
        yield comparison_table(f"{set_scores.name}: {measure} × 100", "encoder", scores)
    names = list(set_scores.scores[0].extra)
    if names:
        rows = tuple(
            (score.encoder, *(percent(score.extra[name]) for name in names))
            for score in set_scores.scores
        )
        yield Table(("encoder", *names), rows, f"{set_scores.name}: further values × 100")


def _result_remarks(result: SentenceResult) -> Iterator[str]:
    yield from result.remarks
    values = [
        value
        for set_scores in result.sets
        for score in set_scores.scores
        for value in score.values.values()
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
    yield from _cut_remarks(result)
    for set_scores in result.sets:
        for score in set_scores.scores:
            if score.note:
                yield f"{set_scores.name}, {score.encoder}: {score.note}"
    for grid in result.grids:
        layer, pooling = grid.best
        yield (
            f"{grid.name}, {grid.encoder}: {grid.measure} is highest for hidden state {layer} with "
            f"{pooling} pooling; optimistic: chosen on the data it is measured on"
        )


def _cut_remarks(result: SentenceResult) -> Iterator[str]:
    cuts: dict[str, dict[str, None]] = {}
    counts = [
        (score.encoder, set_scores.name, score.cut, set_scores.texts)
        for set_scores in result.sets
        for score in set_scores.scores
    ]
    counts += [(grid.encoder, grid.name, grid.cut, grid.texts) for grid in result.grids]
    for encoder, name, cut, texts in counts:
        if cut:
            # The same grid occurs once for each measure.
            cuts.setdefault(encoder, {})[f"{cut:,} of {texts:,} texts of {name}"] = None
    for encoder, listed in cuts.items():
        yield f"{encoder}: longer than its window, and cut: {', '.join(listed)}"
    if not cuts:
        yield "no text is longer than an encoder's window"


def _set_data(set_scores: SetScores) -> dict[str, object]:
    scores = [asdict(score) for score in set_scores.scores]
    for score in scores:
        del score["examples"]
    return {
        "set": set_scores.name,
        "facts": dict(set_scores.facts),
        "texts": set_scores.texts,
        "scores": scores,
    }


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


def _example_lines(set_scores: SetScores) -> Iterator[str]:
    values = [[repr(value) for value in score.examples.tolist()] for score in set_scores.scores]
    return csv_lines(
        [*set_scores.examples, *(score.encoder for score in set_scores.scores)],
        zip(*set_scores.examples.values(), *values, strict=True),
    )


def sentence_figures(result: SentenceResult) -> dict[str, Callable[[], Figure]]:
    """Return the name of each figure that the result has values for, and its function."""
    figures: dict[str, Callable[[], Figure]] = {}
    models = list(dict.fromkeys(grid.encoder for grid in result.grids))
    for measure in result.measures:
        if any(set_scores.curve for set_scores in result.sets):
            figures[f"sizes-{measure}"] = partial(sizes_figure, result.sets, measure)
        for number, model in enumerate(models, 1):
            grids = [
                set_scores
                for set_scores in result.grids
                if (set_scores.encoder, set_scores.measure) == (model, measure)
            ]
            name = f"layers-{measure}" + (f"-{number}" if len(models) > 1 else "")
            figures[name] = partial(layers_figure, grids)
    return figures


def sizes_figure(sets: Sequence[SetScores], measure: str) -> Figure:
    """Draw each encoder by the number of training examples, as Fig. 1 of Hosseini et al. (2023).

    Panels show the measure with 95% intervals, and the error reduction against the last layer.
    """
    curves: dict[str, dict[int, SetScores]] = {}
    for set_scores in sets:
        if set_scores.curve is not None:
            name, size = set_scores.curve
            curves.setdefault(name, {})[size] = set_scores
    figure = new_figure(max(3.2 * len(curves), 6.4), 6.6)
    axes = panels(figure, [*curves] * 2, columns=len(curves))
    for sets_by_size, values, errors in zip(
        curves.values(), axes[: len(curves)], axes[len(curves) :], strict=True
    ):
        train_sizes = sorted(sets_by_size)
        ordered = [sets_by_size[size] for size in train_sizes]
        for place, score in enumerate(ordered[0].scores):
            scores_by_size = [set_scores.scores[place] for set_scores in ordered]
            middle, half_widths = _percentages(
                [set_scores.values[measure] for set_scores in scores_by_size]
            )
            label = short_label(score.encoder)
            values.errorbar(
                train_sizes, middle, yerr=half_widths, fmt=".-", capsize=2, alpha=0.8, label=label
            )
            reductions = [
                set_scores.extra["error reduction"] * 100 for set_scores in scores_by_size
            ]
            errors.plot(train_sizes, reductions, ".-", alpha=0.8, label=label)
        for panel in (values, errors):
            panel.set_xscale("log")
            panel.set_xticks(train_sizes, [f"{set_scores:,}" for set_scores in train_sizes])
            panel.set_xticks([], minor=True)
            panel.grid(alpha=0.3)
    axes[0].set_ylabel(f"{measure} × 100, 95% interval", fontsize="small")
    axes[len(curves)].set_ylabel("error reduction × 100", fontsize="small")
    figure.supxlabel("examples learned from", fontsize="small")
    plain_text(*axes[0].legend(fontsize="x-small").get_texts())
    return figure


def layers_figure(grids: Sequence[LayerGrid]) -> Figure:
    """Draw hidden states by poolings as heat maps, as Fig. 1 of Ma et al. (2019)."""
    states, poolings = grids[0].values.shape
    columns = min(_COLUMNS, len(grids))
    rows = -(-len(grids) // columns)
    size = (1.3 + 0.6 * poolings, 1.0 + max(0.27 * min(states, _NUMBERED_ROWS), 1.6))
    figure = new_figure(max(columns * size[0], 4.0), rows * size[1] + 0.6)
    numbered = states <= _NUMBERED_ROWS
    for axes, grid in zip(panels(figure, [grid.name for grid in grids]), grids, strict=True):
        image = heat_map(axes, grid.values * 100, 1, numbers=numbered)
        figure.colorbar(image, ax=axes).ax.tick_params(labelsize="x-small")
        axes.set_xticks(range(poolings), grid.poolings)
        axes.set_yticks(range(0, states, 1 if numbered else 2))
    figure.supylabel("hidden state (0: embeddings)", fontsize="small")
    title = f"{short_label(grids[0].encoder)}, {grids[0].measure} × 100"
    plain_text(figure.suptitle(title, fontsize="medium"))
    return figure


def _percentages(values: Sequence[Score]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the values and (2, values) lengths of their intervals below and above, × 100."""
    middle = np.array([value.value for value in values]) * 100
    ends = np.array([(value.low, value.high) for value in values]).T * 100
    # Where examples are tested unequally often, a value may lie outside its interval.
    return middle, np.maximum([middle - ends[0], ends[1] - middle], 0)
