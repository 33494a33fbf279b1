"""The layer search: which set of layers has the best mean vector for pairs or questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eval.datasets.pairs import ScoredPairs, find_contained, read_pairs, read_sts
from eval.datasets.question_forms import read_question_set
from eval.datasets.question_set import QuestionSet
from eval.figures import new_figure
from eval.layers.search import (
    Baseline,
    Gain,
    Head,
    HeadPairs,
    LayerReport,
    LayerTask,
    PoolObjective,
    load_head,
    search_given,
    search_shuffled,
)
from eval.layers.subsets import PairGrams, layer_subsets, pair_grams
from eval.metrics.comparison import interval
from eval.metrics.correlation import CORRELATIONS, Correlation, pair_correlation
from eval.progress import Progress, silent
from eval.reports import Report, ReportedResult, Section, Table, csv_lines, environment
from eval.settings import LayerSearchSettings
from eval.vectors import distinct, embed, split_layers
from retriever.encoders import Encoder, EncoderSettings, parse_encoder
from retriever.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Pairs whose products between layers are computed together.
_PAIRS_AT_ONCE = 1024

Cell = str | int | float | tuple[int, ...] | None
Row = tuple[Cell, ...]
LayerData = str | Path | Sequence[str | Path] | ScoredPairs | QuestionSet
"""Files of scored pairs, a folder of questions with candidates, or loaded pairs or questions.

With the protocol ``paper``, a folder is that of a similarity test."""


class DataSource(NamedTuple):
    """Data to search or to test on; questions without a relevant passage are left out."""

    name: str
    content: ScoredPairs | QuestionSet

    @property
    def units(self) -> int:
        """Number of pairs, or of questions."""
        content = self.content
        return len(content if isinstance(content, ScoredPairs) else content.questions)

    def objective(self, name: str | None) -> Correlation | PoolObjective:
        """Return the objective of this name; None is Spearman's correlation, or AP."""
        if isinstance(self.content, ScoredPairs):
            return pair_correlation(self.content.gold, name, self.name)
        if name in CORRELATIONS:
            raise ConfigError(
                "objective: expected a measure of rankings for questions, such as AP, RR or "
                f"nDCG@10, found {name}, which needs a file of scored pairs"
            )
        return PoolObjective(self.content.questions, name or "AP")

    def to_json(self) -> dict[str, object]:
        """Return name and size as JSON values."""
        return {"from": self.name, "units": self.units}


@dataclass(frozen=True, slots=True, eq=False)
class LayerSearchResult(ReportedResult):
    """The result of a layer search.

    Attributes:
        encoder: text form of the encoder with the best set of layers.
        objective: name of the measure that chooses the best set.
        unit: "pairs" or "questions".
        held_out_data: None if the choice was tested on a part of the search data, or not at all.
        layer_report: the best sets, their gains, and the effects of sizes and layers.
        command: reproduces the result; may be empty.
    """

    encoder: str
    objective: str
    unit: str
    hidden_states: int
    search_data: DataSource
    held_out_data: DataSource | None
    layer_report: LayerReport
    settings: LayerSearchSettings
    command: str = ""

    def report(self) -> Report:
        """Return the result for a reader."""
        result = self.layer_report
        remarks = _shuffled_remarks(result) if result.shuffles else _gain_remarks(result.gain)
        return Report(
            name="layers",
            title=f"Layers of {self.encoder.split('::')[0]}",
            sections=(
                Section(
                    facts=dict(self._facts()),
                    tables=tuple(_tables(result)),
                    remarks=(*remarks, f"encoder: {self.encoder}"),
                    brief=True,
                ),
            ),
            data={
                "encoder": self.encoder,
                "objective": self.objective,
                "unit": self.unit,
                "protocol": self.settings.protocol,
                "hidden_states": self.hidden_states,
                "search_data": self.search_data.to_json(),
                "held_out_data": self.held_out_data and self.held_out_data.to_json(),
                **asdict(result),
            },
            command=self.command,
            environment=environment(self.settings.loading.device),
            files={
                "sets.csv": lambda: csv_lines(
                    ("layers", "search", "held_out"),
                    [
                        (_join(set_score.layers), *astuple(set_score)[1:])
                        for set_score in result.top
                    ],
                )
            },
            figures={"effects": self.figure},
        )

    def figure(self) -> Figure:
        """Draw the effects of the number of layers and of leaving each layer out.

        As in Hosseini et al. 2023, Figs. 2 to 4. Raises MissingExtraError without matplotlib.
        """
        held_out = "the best set, on held-out data"
        by_size = {"best": "best set", "mean": "mean of the sets", "held_out": held_out}
        by_layer = {"without": "best set without it", "with_layer": "best set with it"}
        by_layer["held_out_without"] = held_out
        sizes = map(asdict, self.layer_report.sizes)
        layers = map(asdict, self.layer_report.layers)
        figure = new_figure(11, 4.2)
        left, right = figure.subplots(1, 2)
        left.axhline(
            self.layer_report.baseline.search, color="grey", linewidth=1, label="last layer only"
        )
        for axes, place, label, effects, curves in (
            (left, "size", "number of layers", list(sizes), by_size),
            (right, "layer", "hidden state left out (0: embeddings)", list(layers), by_layer),
        ):
            places = [effect[place] for effect in effects]
            for style, (name, text) in zip(("o-", "s--", "^:"), curves.items(), strict=True):
                # None becomes NaN, where matplotlib leaves a gap.
                values = np.array([effect[name] for effect in effects], np.float64)
                if not np.isnan(values).all():
                    axes.plot(places, values, style, label=text)
            axes.set(xlabel=label, ylabel=self.objective, xticks=places)
            axes.grid(alpha=0.3)
            axes.legend(fontsize="small")
        return figure

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield (
            "sets",
            f"{self.layer_report.subsets:,} of {self.hidden_states} hidden states (0: embeddings)",
        )
        searched = self.search_data
        held_out = self.held_out_data
        count = f"{searched.units:,} {self.unit}"
        yield "objective", f"{self.objective} over {count} of {searched.name}"
        if held_out is not None:
            yield "held-out data", f"{held_out.units:,} {self.unit} of {held_out.name}"
        if self.unit == "questions":
            yield "left out", "questions without a relevant passage"


def search_layers(
    data: LayerData,
    settings: LayerSearchSettings | None = None,
    *,
    test: LayerData | None = None,
    progress: Progress = silent,
    command: str = "",
) -> LayerSearchResult:
    """Try every set of hidden states, averaged as in BERT-LC, and test the best one.

    Args:
        data: pairs or questions to choose layers on; the protocol ``paper`` also tests on them.
        settings: encoder, objective and protocol.
        test: data to test the choice on. For a folder of questions, name `settings.test_split`.
        progress: shows the progress of each stage.
        command: reproduces the result, for the report.

    Raises:
        ConfigError: settings that contradict each other, the data or the model.
        SourceError: a file is malformed, or a question set has no candidates.
        BadInputError: there are fewer than two pairs, or gold scores are all equal.
        Exception: see `Encoder.load`.
    """
    settings = settings or LayerSearchSettings()
    requested = _checked_encoder(settings.encoder)
    search_source, test_source = _read(data, test, settings)
    objective = search_source.objective(settings.objective)
    sources = [(search_source, objective)]
    if test_source is not None:
        # Fails before anything is encoded if the test data do not fit the objective.
        sources.append((test_source, test_source.objective(objective.name)))
    if settings.protocol == "paper":
        _check_dev_size(settings.dev_size, objective.units)
    encoder = settings.loading.load(
        replace(requested, layers="all", fusion="concat", head=False, normalize=False)
    )
    head = load_head(requested, settings.loading)
    subsets = layer_subsets(encoder.depth + 1, settings.max_layers)
    tasks = [
        _encode_task(encoder, source, objective, head, settings.loading.cache, progress)
        for source, objective in sources
    ]
    if settings.protocol == "paper":
        layer_report = search_shuffled(tasks[0], subsets, settings, progress)
    else:
        held_out_task = tasks[1] if len(tasks) > 1 else None
        layer_report = search_given(tasks[0], held_out_task, subsets, settings, progress)
    return LayerSearchResult(
        encoder=_encoder_text(requested, encoder, layer_report.best.layers),
        objective=objective.name,
        unit=objective.unit,
        hidden_states=encoder.depth + 1,
        search_data=search_source,
        held_out_data=test_source,
        layer_report=layer_report,
        settings=settings,
        command=command,
    )


def _check_dev_size(dev_size: int, pairs: int) -> None:
    if not 2 <= dev_size <= pairs - 2:
        raise ConfigError(
            f"dev-size: expected 2 to {max(pairs - 2, 2)} of the {pairs} pairs, found {dev_size}; "
            "give more pairs or another size"
        )


def _read(
    data: LayerData, test: LayerData | None, settings: LayerSearchSettings
) -> tuple[DataSource, DataSource | None]:
    """Read the data to search on, and the data to test the choice on."""
    split = settings.split
    test_split = settings.test_split
    paper = settings.protocol == "paper"
    search_source = _load_source(data, split, all_splits=paper)
    is_pairs = isinstance(search_source.content, ScoredPairs)
    is_question_folder = not is_pairs and not isinstance(data, QuestionSet)
    for is_wrong, message in (
        (
            paper and (not is_pairs or test is not None),
            "protocol: paper merges and divides scored pairs; name files of pairs or the folder of "
            "a similarity test, and no data to test on (--test)",
        ),
        (
            (split or test_split) and not is_question_folder,
            f"{'split' if split else 'test-split'}: it names a split of a folder of questions; for "
            "scored pairs name the file to test on (--test), and load questions to test on",
        ),
        (
            not is_pairs and not isinstance(test, QuestionSet | None),
            "test: it names a file of scored pairs; for a folder of questions name the split to "
            "test on (--test-split)",
        ),
        (
            test_split == (split or "dev"),
            f"test-split: expected a split that the search does not use, found {test_split}; name "
            "another split",
        ),
    ):
        if is_wrong:
            raise ConfigError(message)
    if test is None:
        return search_source, None if test_split is None else _load_source(data, test_split)
    test_source = _load_source(test, None)
    # Only files are compared: a caller who passes loaded pairs twice means it.
    if (
        isinstance(test, str | Path)
        and isinstance(search_source.content, ScoredPairs)
        and isinstance(test_source.content, ScoredPairs)
        and find_contained([search_source.content, test_source.content])
    ):
        raise ConfigError(
            f"test: expected pairs that the search does not use, found {Path(test)} again; name "
            "another file"
        )
    return search_source, test_source


def _load_source(data: LayerData, split: str | None, *, all_splits: bool = False) -> DataSource:
    """Read data; `all_splits` joins the splits of the folder of a similarity test."""
    if isinstance(data, ScoredPairs):
        return DataSource("pairs", data)
    if isinstance(data, QuestionSet):
        return _pool_source(data)
    paths = [Path(data)] if isinstance(data, str | Path) else [Path(path) for path in data]
    names = ", ".join(map(str, paths))
    if not any(path.is_dir() for path in paths):
        return DataSource(names, read_pairs(paths))
    if len(paths) > 1:
        raise ConfigError(
            f"data: expected one folder, or files of scored pairs, found {names}; name one folder, "
            "or files only"
        )
    if all_splits and split is None:
        return DataSource(names, read_sts(paths[0]).everything())
    return _pool_source(read_question_set(paths[0], split or "dev"), names)


def _pool_source(questions: QuestionSet, folder: str = "") -> DataSource:
    name = folder or questions.name
    if questions.corpus:
        raise SourceError(
            f"{name}: expected questions with candidates, found a whole corpus to rank; add a "
            f"file candidates.{questions.split}.jsonl, or take another set"
        )
    return DataSource(f"{name} ({questions.split})", questions.answered())


def _encode_task(
    encoder: Encoder,
    data: DataSource,
    objective: Correlation | PoolObjective,
    head: Head | None,
    cache: Path | None,
    progress: Progress,
) -> LayerTask:
    """Encode the texts of the data; vectors stay in memory only if there is a head."""
    content = data.content
    queries = isinstance(content, QuestionSet)
    pairs = content.pairs() if isinstance(content, QuestionSet) else (content.left, content.right)
    size = _PAIRS_AT_ONCE if head is None else max(len(pairs[0]), 1)
    blocks = [
        [side[start : start + size] for side in pairs] for start in range(0, len(pairs[0]), size)
    ]
    done = progress("encoding texts", sum(len(set(side)) for block in blocks for side in block))
    grams = []
    with ExitStack() as stack:
        # A text in several blocks is encoded for the first block, and cached for the others.
        folder = cache or Path(stack.enter_context(TemporaryDirectory()))

        def layers(texts: Sequence[str], query: bool) -> NDArray[np.float32]:
            embedded = embed(encoder, texts, folder, query=query, done=done)
            return split_layers(embedded.vectors, encoder.depth)

        for left, right in blocks:
            if head is None:
                grams.append(pair_grams(layers(left, queries), layers(right, False)))
                continue
            first, first_rows = distinct(left)
            second, second_rows = distinct(right)
            vectors = np.concatenate([layers(first, queries), layers(second, False)])
            pair_rows = np.stack([first_rows, len(first) + second_rows])
            return LayerTask(HeadPairs(vectors, pair_rows, head), objective)
    triangles = np.concatenate([gram.triangles for gram in grams], axis=2)
    return LayerTask(PairGrams(encoder.depth + 1, triangles), objective)


def _checked_encoder(form: str) -> EncoderSettings:
    """Parse an encoder, and refuse the settings that the search decides."""
    settings = parse_encoder(form)
    for name, allowed, reason in (
        ("layers", (None,), "the search chooses the layers"),
        ("fusion", (None, "mean"), "the search takes means of layers"),
        ("dimensions", (None,), "the search compares whole vectors"),
        ("static", (None,), "a static encoder has no layers to choose from"),
    ):
        value = getattr(settings, name)
        if value not in allowed:
            raise ConfigError(f"{name}: found {value}, but {reason}; leave it out")
    return settings


def _encoder_text(requested: EncoderSettings, encoder: Encoder, layers: Sequence[int]) -> str:
    """Return the text form of the requested encoder with these layers."""
    # A head that was not requested is one that the model's own files add.
    head = requested.head or encoder.spec.settings.head
    model = requested.model or encoder.spec.model
    return f"{replace(requested, model=model, fusion=None, head=head)}::lc:{_join(layers)}"


def _tables(result: LayerReport) -> Iterator[Table]:
    shuffled = bool(result.shuffles)
    search = "mean search" if shuffled else "search"
    sets = [*map(astuple, result.top), ("last layer", *astuple(result.baseline)[1:])]
    columns = ("layers", search, "held out")
    yield _table(f"Best sets{' by the mean over shuffles' if shuffled else ''}", columns, sets)
    if shuffled:
        shuffles: list[Row] = []
        for number, shuffle in enumerate(result.shuffles, 1):
            best = shuffle.best
            gain = shuffle.gain
            cells = (gain.best, gain.baseline, f"{gain.gain:+.4f}", _interval(gain))
            shuffles.append((number, best.layers, best.search, *cells))
        names = ("shuffle", "best layers", "search", "held out", "last layer", "gain")
        yield _table("Shuffles", (*names, "95% interval"), shuffles)
    baselines: list[Row] = []
    for baseline in (Baseline("last layer", result.baseline, result.gain), *result.others):
        layers, value, _ = astuple(baseline.score) if baseline.score else (None,) * 3
        gain = baseline.gain
        held_out = gain.baseline if gain.held_out else None
        row = (baseline.name, layers, value, held_out, f"{gain.gain:+.4f}", _interval(gain))
        baselines.append((*row, gain.spread))
    title = "Gain of the best sets over baselines, mean over shuffles"
    yield _table(
        title if shuffled else "Gain of the best set over baselines",
        ("baseline", *columns, "gain", "95% interval", "standard deviation of the gain"),
        baselines,
    )
    sizes = ("number of layers", "sets", "best", "mean", "held out", "best layers")
    yield _table("Effect of the number of layers", sizes, list(map(astuple, result.sizes)))
    effects = ("layer", "best with", "best without", "held out with", "held out without")
    yield _table("Effect of each layer", effects, list(map(astuple, result.layers)))


def _gain_remarks(gain: Gain) -> Iterator[str]:
    low = gain.low or 0.0
    high = gain.high or 0.0
    where = "on held-out data"
    if not gain.held_out:
        where = "on the search data"
        yield (
            "the gain is optimistic: it is measured on the data that the layers were chosen on; "
            "name held-out data with --test or --test-split"
        )
    yield (
        f"gain {where}: {gain.best:.4f} against {gain.baseline:.4f} for the last layer, "
        f"{gain.gain:+.4f}, 95% interval {_interval(gain)} ({gain.resamples:,} resamples)"
        + ("" if low > 0 or high < 0 else "; the interval includes 0")
    )


def _shuffled_remarks(result: LayerReport) -> Iterator[str]:
    winners = "; ".join(f"{_join(layers)} ({times})" for layers, times in result.wins)
    yield f"best layers (shuffles): {winners}"
    gain = result.gain
    yield (
        f"held out, mean over {len(result.shuffles)} shuffles ({result.search_units:,} pairs to "
        f"search on, {result.held_out_units:,} to test on): {gain.best:.4f} against "
        f"{gain.baseline:.4f} for the last layer, {gain.gain:+.4f}, standard deviation "
        f"{gain.spread:.4f}"
    )


def _table(title: str, columns: Sequence[str], rows: Sequence[Row]) -> Table:
    """Return a table without the columns that are empty in all rows."""
    filled_columns = [
        place for place in range(len(columns)) if any(row[place] is not None for row in rows)
    ]
    return Table(
        tuple(columns[place] for place in filled_columns),
        tuple(tuple(_cell(row[place]) for place in filled_columns) for row in rows),
        title,
    )


def _cell(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.4f}"
    if isinstance(cell, tuple):
        return _join(cell)
    return f"{cell:,}" if isinstance(cell, int) else cell


def _join(layers: Sequence[int]) -> str:
    return ",".join(map(str, layers))


def _interval(gain: Gain) -> str | None:
    if gain.low is None or gain.high is None:
        return None
    return interval(gain.low, gain.high, scale=1, digits=4, sign="+")
