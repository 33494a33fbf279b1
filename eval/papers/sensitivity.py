"""SBERT-WK's window and start layer on scored pairs: Fig. 3 of Wang and Kuo (2020)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eval.datasets.pairs import PairSubset, STSTask, read_pairs
from eval.figures import new_figure
from eval.inspect.layers import color_curves, cut_warning
from eval.inspect.words import as_sbert_wk
from eval.progress import Notify, Progress, ignore, silent
from eval.reports import Report, ReportedResult, Section, Table, environment
from eval.sentences.sts import score_sts
from eval.settings import Loading, Resampling, STSSettings
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings
from retriever.encoders.settings import SBERT_WK, SECTIONS, EncoderSettings
from retriever.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WINDOWS = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True, eq=False)
class SensitivityInspection(ReportedResult):
    """Pearson's correlation with gold scores by window and start layer of SBERT-WK."""

    encoder: str
    preset: str
    source: str
    pairs: int
    windows: tuple[int, ...]
    start_layers: tuple[int, ...]
    # A row for each window; None where the preset does not allow the start layer.
    values: tuple[tuple[float | None, ...], ...]
    # Of the last layer, mean-pooled.
    baseline: float
    command: str = ""

    def report(self) -> Report:
        """A table with a row for each window."""
        rows = tuple(
            (str(window), *("-" if value is None else f"{value:.4f}" for value in row))
            for window, row in zip(self.windows, self.values, strict=True)
        )
        columns = ("window", *(f"start {start}" for start in self.start_layers))
        remark = f"last layer, mean over all pieces: {self.baseline:.4f}"
        data = {"objective": "pearson", **asdict(self)}
        data["from"] = data.pop("source")
        return Report(
            name="sensitivity",
            title=f"SBERT-WK ({self.preset}) of {self.encoder.split('::')[0]}: pearson over "
            f"{self.pairs:,} pairs of {self.source}",
            sections=(Section(tables=(Table(columns, rows),), remarks=(remark,), brief=True),),
            data=data,
            command=self.command,
            environment=environment(None),
            figures={"sensitivity": self.figure},
        )

    def figure(self) -> Figure:
        """The correlation over the window and over the start layer, as in Fig. 3."""
        figure = new_figure(11, 4.4)
        left, right = figure.subplots(1, 2, sharey=True)
        values = np.array(self.values, dtype=np.float64)
        color_curves(left, len(self.start_layers))
        color_curves(right, len(self.windows))
        for column, start in enumerate(self.start_layers):
            left.plot(self.windows, values[:, column], "o-", label=f"start layer {start}")
        for row, window in enumerate(self.windows):
            right.plot(self.start_layers, values[row], "o-", label=f"window {window}")
        left.set(xlabel="window m", ylabel="pearson", xticks=self.windows)
        right.set(xlabel="start layer (0: embeddings)", xticks=self.start_layers)
        right.yaxis.set_tick_params(labelleft=True)
        for axes in (left, right):
            axes.axhline(self.baseline, color="grey", linestyle="--", label="last layer, mean")
            axes.grid(alpha=0.3)
            axes.legend(fontsize="x-small", ncols=2)
        return figure


def inspect_sensitivity(
    pairs: Path,
    encoder: str,
    *,
    progress: Progress = silent,
    notify: Notify = ignore,
    command: str = "",
) -> SensitivityInspection:
    """Correlate SBERT-WK's cosines with gold scores for each window and start layer."""
    asked = as_sbert_wk(encoder)
    if asked.window is not None or asked.start_layer is not None or asked.head:
        raise ConfigError(
            f"model: expected SBERT-WK without a window, start layer and head, found {encoder}; "
            "several windows and start layers are compared, without a head"
        )
    read = read_pairs([pairs])
    # A window and a start layer that every model allows.
    model = Loading().load(replace(asked, window=1, start_layer=0, head=False))
    grid = list(settings_grid(asked, model.depth))
    forms = [replace(asked, window=window, start_layer=start, head=False) for window, start in grid]
    unweighted = dict.fromkeys(SECTIONS[SBERT_WK])
    last = replace(asked, fusion="mean", layers="last", pooling="mean", head=False, **unweighted)
    forms.append(replace(last, special_tokens="keep"))
    task = STSTask(str(pairs), (PairSubset("test", read),))
    scored = STSSettings(resampling=Resampling(100))
    found = score_sts([task], list(map(str, forms)), scored, progress=progress).sets[0].scores
    values = [one.values["pearson"].value for one in found]
    by_setting = dict(zip(grid, values[:-1], strict=True))
    windows, starts = (tuple(sorted(set(numbers))) for numbers in zip(*grid, strict=True))
    cut = found[-1].cut
    if cut:
        notify(cut_warning(cut, model))
    return SensitivityInspection(
        encoder=str(replace(model.spec.settings, window=None, start_layer=None)),
        preset=asked.wk_preset or "paper",
        source=str(pairs),
        pairs=len(read),
        windows=windows,
        start_layers=starts,
        values=tuple(
            tuple(by_setting.get((window, start)) for start in starts) for window in windows
        ),
        baseline=values[-1],
        command=command,
    )


def settings_grid(asked: EncoderSettings, depth: int) -> Iterator[tuple[int, int]]:
    """Every window and start layer that the preset allows."""
    for window, start in product(WINDOWS, range(depth)):
        with suppress(ConfigError):
            SBERTWKSettings.of(replace(asked, window=window, start_layer=start), depth)
            yield window, start
