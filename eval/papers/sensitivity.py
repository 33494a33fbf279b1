"""The effect of SBERT-WK's window and start layer on scored pairs: Fig. 3 of Wang and Kuo (2020).

The model runs once over the texts: each batch of hidden states is fused with every setting, and
only cosines are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eval.datasets.pairs import ScoredPairs, read_pairs
from eval.figures import new_figure
from eval.inspect.layers import all_states, color_curves, cut_warning, unit_vectors
from eval.inspect.weights import as_sbert_wk
from eval.metrics.correlation import pair_correlation
from eval.progress import Notify, Progress, ignore, silent
from eval.reports import Report, ReportedResult, Section, environment
from eval.tables import Table
from eval.vectors import Loading
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings, first_state, sbert_wk
from retriever.encoders.transformer.model import TextStates
from retriever.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from retriever.encoders.encoder import Encoder

WINDOWS = (1, 2, 3, 4)
_PAIRS_AT_ONCE = 16


@dataclass(frozen=True, slots=True, eq=False)
class SensitivityInspection(ReportedResult):
    """Pearson's correlation with gold scores, a row for each window, a value for each start layer.

    A value is None for a combination that the preset does not allow. The baseline is the last
    hidden state, mean-pooled over all pieces of a text.
    """

    encoder: str
    preset: str
    source: str
    pairs: int
    windows: tuple[int, ...]
    start_layers: tuple[int, ...]
    values: tuple[tuple[float | None, ...], ...]
    baseline: float
    command: str = ""

    def report(self) -> Report:
        """A table with a row for each window."""
        rows = tuple(
            (str(window), *("-" if value is None else f"{value:.4f}" for value in row))
            for window, row in zip(self.windows, self.values, strict=True)
        )
        columns = ("window", *(f"start {start}" for start in self.start_layers))
        remarks = [f"last layer, mean over all pieces: {self.baseline:.4f}"]
        if impossible := sorted(set(WINDOWS) - set(self.windows)):
            remarks.insert(0, f"too few layers for window {', '.join(map(str, impossible))}")
        return Report(
            name="sensitivity",
            title=f"SBERT-WK ({self.preset}) of {self.encoder.split('::')[0]}: pearson over "
            f"{self.pairs:,} pairs of {self.source}",
            sections=(Section(tables=(Table(columns, rows),), remarks=tuple(remarks), brief=True),),
            data={
                "encoder": self.encoder,
                "preset": self.preset,
                "objective": "pearson",
                "from": self.source,
                "pairs": self.pairs,
                "windows": self.windows,
                "start_layers": self.start_layers,
                "values": self.values,
                "baseline": self.baseline,
            },
            command=self.command,
            environment=environment(None),
            figures={"sensitivity": self.figure},
        )

    def figure(self) -> Figure:
        """The correlation over the window and over the start layer, as in Fig. 3.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
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
    encoder: str = "",
    *,
    loading: Loading | None = None,
    progress: Progress = silent,
    notify: Notify = ignore,
    command: str = "",
) -> SensitivityInspection:
    """Correlate SBERT-WK's cosines with the gold scores of a file of pairs for each window and
    start layer; the fusion is SBERT-WK without being named.
    """
    asked = as_sbert_wk(encoder)
    if asked.window is not None or asked.start_layer is not None or asked.head:
        raise ConfigError(
            f"model: expected SBERT-WK without a window, start layer and head, found {encoder}; "
            "several windows and start layers are compared, without a head"
        )
    read = read_pairs([pairs])
    correlation = pair_correlation(read.gold, "pearson", str(pairs))
    # A window and a start layer that every model allows.
    model = (loading or Loading()).load(replace(asked, window=1, start_layer=0, head=False))
    base = SBERTWKSettings.of(model.spec.settings, model.depth)
    grid = settings_grid(base, model.depth)
    done = progress("scoring pairs", len(read))
    values = correlation(pair_cosines(model, read, list(grid.values()), done)).tolist()
    by_setting = dict(zip(grid, values[:-1], strict=True))
    windows, starts = (tuple(sorted(set(numbers))) for numbers in zip(*grid, strict=True))
    cut = sum(len(ids) > model.spec.max_length for ids in model.tokenize([*read.left, *read.right]))
    if cut:
        notify(cut_warning(cut, model))
    return SensitivityInspection(
        encoder=str(replace(model.spec.settings, window=None, start_layer=None)),
        preset=base.preset,
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


def settings_grid(base: SBERTWKSettings, depth: int) -> dict[tuple[int, int], SBERTWKSettings]:
    """Window and start layer to the resolved settings, of all that the preset allows."""
    replace(base, window=min(WINDOWS), start_layer=0).resolved(depth)
    grid = {}
    for window, start in product(WINDOWS, range(depth)):
        try:
            grid[window, start] = replace(base, window=window, start_layer=start).resolved(depth)
        except ConfigError:
            continue
    return grid


def pair_cosines(
    encoder: Encoder,
    pairs: ScoredPairs,
    settings: Sequence[SBERTWKSettings],
    done: Callable[[int], object] = lambda pairs: None,
) -> NDArray[np.float64]:
    """(settings + 1, pairs) cosines for each setting, then for the mean of the last hidden state; 1
    for equal texts, but 0 with a zero vector.
    """
    lengths = [len(left) + len(right) for left, right in zip(pairs.left, pairs.right, strict=True)]
    order = sorted(range(len(pairs)), key=lengths.__getitem__)
    texts = [text for pair in order for text in (pairs.left[pair], pairs.right[pair])]
    states = all_states(encoder, texts)
    cosines = np.empty((len(settings) + 1, len(pairs)))
    for first in range(0, len(order), _PAIRS_AT_ONCE):
        batch = order[first : first + _PAIRS_AT_ONCE]
        vectors = unit_vectors(_vectors(list(islice(states, 2 * len(batch))), settings))
        left, right = vectors[:, 0::2], vectors[:, 1::2]
        # Padding rounds equal texts differently, which must not decide their order.
        equal = [pairs.left[pair] == pairs.right[pair] for pair in batch]
        right[:, equal] = left[:, equal]
        cosines[:, batch] = np.clip((left * right).sum(axis=-1), -1, 1)
        done(len(batch))
    return cosines


def _vectors(
    texts: Sequence[TextStates], settings: Sequence[SBERTWKSettings]
) -> NDArray[np.float32]:
    """(settings + 1, texts, width) of one batch."""
    import torch

    layers, _, width = texts[0].states.shape
    longest = max(len(text.kept) for text in texts)
    states = np.zeros((layers, len(texts), longest, width), np.float32)
    kept = np.zeros((len(texts), longest), np.bool_)
    for row, text in enumerate(texts):
        states[:, row, : len(text.kept)] = text.states
        kept[row, : len(text.kept)] = text.kept
    hidden, places = list(torch.from_numpy(states)), torch.from_numpy(kept)
    fused = [sbert_wk(hidden[first_state(one) :], places, one).numpy() for one in settings]
    return np.stack([*fused, np.stack([text.states[-1].mean(axis=0) for text in texts])])
