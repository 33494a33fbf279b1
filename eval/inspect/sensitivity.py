"""The effect of SBERT-WK's window and start layer on scored pairs.

Wang and Kuo 2020, Fig. 3. The model runs once over the texts: each batch of hidden states is fused
with every setting, and only cosines are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eval.datasets.pairs import ScoredPairs, read_pairs
from eval.inspect.figures import sensitivity_figure
from eval.inspect.layers import unit_vectors
from eval.inspect.states import StatesEncoder, all_states, cut_warning
from eval.inspect.weights import as_sbert_wk
from eval.metrics.correlation import Correlation, pair_correlation
from eval.progress import Notify, Progress, ignore, silent
from eval.reports import Report, ReportedResult, Section, environment
from eval.tables import Table
from eval.vectors import Loading
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings, first_state, sbert_wk
from retriever.encoders.loading.resolution import sbert_wk_settings
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.transformer.states import TextStates
from retriever.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAIRS = 16

# A window and a start layer.
Cell = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A correlation with gold scores for each window and start layer.

    Attributes:
        windows: ascending.
        start_layers: ascending.
        values: for each window a row, for each start layer a value in [-1, 1]; None for
            combinations that the preset does not allow.
        baseline: of the last hidden state, mean-pooled over all pieces of a text.
    """

    windows: tuple[int, ...]
    start_layers: tuple[int, ...]
    values: tuple[tuple[float | None, ...], ...]
    baseline: float


@dataclass(frozen=True, slots=True, eq=False)
class SensitivityInspection(ReportedResult):
    """The result of `inspect_sensitivity`.

    Attributes:
        encoder: text form without window and start layer.
        preset: "paper" or "released".
        objective: name of the correlation.
        source: of the pairs.
        pairs: their number.
        asked: the windows that were asked for.
        found: the correlations.
        device: as asked for.
        command: reproduces the result; may be empty.
    """

    encoder: str
    preset: str
    objective: str
    source: str
    pairs: int
    asked: tuple[int, ...]
    found: Sensitivity
    device: str | None = None
    command: str = ""

    def report(self) -> Report:
        """A table with a row for each window."""
        model = self.encoder.split("::")[0]
        data = {
            "encoder": self.encoder,
            "preset": self.preset,
            "objective": self.objective,
            "from": self.source,
            "pairs": self.pairs,
            "windows": self.found.windows,
            "start_layers": self.found.start_layers,
            "values": self.found.values,
            "baseline": self.found.baseline,
        }
        return Report(
            name="inspect-sensitivity",
            title=f"SBERT-WK ({self.preset}) of {model}: {self.objective} over {self.pairs:,} "
            f"pairs of {self.source}",
            sections=(
                Section(tables=(self._table(),), remarks=tuple(self._remarks()), brief=True),
            ),
            data=data,
            command=self.command,
            environment=environment(self.device),
            figures={"sensitivity": self.figure},
        )

    def figure(self) -> Figure:
        """The correlation over both settings; see `sensitivity_figure`."""
        return sensitivity_figure(self.found, self.objective)

    def _table(self) -> Table:
        rows = [
            (str(window), *("-" if value is None else f"{value:.4f}" for value in row))
            for window, row in zip(self.found.windows, self.found.values, strict=True)
        ]
        columns = ("window", *(f"start {start}" for start in self.found.start_layers))
        return Table(columns, tuple(rows))

    def _remarks(self) -> Iterator[str]:
        impossible = sorted(set(self.asked) - set(self.found.windows))
        if impossible:
            yield f"too few layers for window {', '.join(map(str, impossible))}"
        yield f"last layer, mean over all pieces: {self.found.baseline:.4f}"


def inspect_sensitivity(
    pairs: str | Path | Sequence[str | Path] | ScoredPairs,
    encoder: str = "",
    *,
    windows: Sequence[int] = (1, 2, 3, 4),
    start_layers: Sequence[int] | None = None,
    objective: str = "spearman",
    loading: Loading | None = None,
    progress: Progress = silent,
    notify: Notify = ignore,
    command: str = "",
) -> SensitivityInspection:
    """Correlate SBERT-WK's cosines with gold scores for each window and start layer.

    Args:
        pairs: a file of scored pairs or several, see `read_pairs`, or pairs that are loaded.
        encoder: text form; the fusion is SBERT-WK without being named.
        windows: numbers of neighboring layers on each side, each at least 1.
        start_layers: lowest fused hidden states; None takes all that a window allows.
        objective: ``spearman`` or ``pearson``.
        loading: where the model comes from.
        progress: of the pairs.
        notify: called with a warning if texts are cut at the window.
        command: reproduces the result, for its report.

    Raises:
        ConfigError: the encoder has another fusion, a window, a start layer or a head, or no window
            or start layer is possible.
        SourceError: a file is malformed.
        BadInputError: there are fewer than two pairs, or gold scores are all equal.
        What `Encoder.load` raises.
    """
    asked = _checked(encoder)
    if isinstance(pairs, ScoredPairs):
        read, source = pairs, "the given pairs"
    else:
        paths = [Path(pairs)] if isinstance(pairs, str | Path) else list(map(Path, pairs))
        read, source = read_pairs(paths), ", ".join(map(str, paths))
    goal = pair_correlation(read.gold, objective, source)
    # A window and a start layer that every model allows.
    loading = loading or Loading()
    model = loading.load(replace(asked, window=1, start_layer=0, head=False))
    base = sbert_wk_settings(model.spec.settings, model.depth)
    grid = settings_grid(base, model.depth, windows, start_layers)
    found = sensitivity(model, read, goal, grid, progress("scoring pairs", len(read)))
    cut = sum(len(ids) > model.spec.max_length for ids in model.tokenize([*read.left, *read.right]))
    if cut:
        notify(cut_warning(cut, model))
    return SensitivityInspection(
        encoder=str(replace(model.spec.settings, window=None, start_layer=None)),
        preset=base.preset,
        objective=goal.name,
        source=source,
        pairs=len(read),
        asked=tuple(windows),
        found=found,
        device=loading.device,
        command=command,
    )


def settings_grid(
    base: SBERTWKSettings,
    depth: int,
    windows: Sequence[int],
    start_layers: Sequence[int] | None,
) -> dict[Cell, SBERTWKSettings]:
    """The resolved settings of each window with each start layer, as far as the preset allows them.

    Args:
        base: the other settings.
        depth: number of transformer layers.
        windows: at least one, each at least 1.
        start_layers: None takes all that a window allows.

    Raises:
        ConfigError: a start layer that no window allows, or no window that is possible.
    """
    smallest = replace(base, window=min(windows))
    if start_layers is None:
        replace(smallest, start_layer=0).resolved(depth)
    else:
        for start in start_layers:
            replace(smallest, start_layer=start).resolved(depth)
    grid = {}
    for window, start in product(
        sorted(set(windows)), range(depth) if start_layers is None else sorted(set(start_layers))
    ):
        try:
            grid[window, start] = replace(base, window=window, start_layer=start).resolved(depth)
        except ConfigError:
            continue
    return grid


def sensitivity(
    encoder: StatesEncoder,
    pairs: ScoredPairs,
    objective: Correlation,
    grid: Mapping[Cell, SBERTWKSettings],
    done: Callable[[int], object] = lambda pairs: None,
) -> Sensitivity:
    """The correlation of the pairs' cosines with their scores, for every setting.

    Args:
        encoder: computes the hidden states; its mask selects the pieces that are fused.
        pairs: at least two.
        objective: correlation with their scores.
        grid: from `settings_grid`.
        done: called with the number of pairs after each batch.
    """
    values = objective(pair_cosines(encoder, pairs, list(grid.values()), done)).tolist()
    found = dict(zip(grid, values, strict=False))
    windows = tuple(sorted({window for window, _ in grid}))
    starts = tuple(sorted({start for _, start in grid}))
    return Sensitivity(
        windows,
        starts,
        tuple(tuple(found.get((window, start)) for start in starts) for window in windows),
        values[-1],
    )


def pair_cosines(
    encoder: StatesEncoder,
    pairs: ScoredPairs,
    settings: Sequence[SBERTWKSettings],
    done: Callable[[int], object] = lambda pairs: None,
) -> NDArray[np.float64]:
    """The cosine of each pair for each setting, then for the mean of the last hidden state.

    Returns:
        (settings + 1, pairs) in the order of both; 1 for equal texts, but 0 with a zero vector.
    """
    lengths = [len(left) + len(right) for left, right in zip(pairs.left, pairs.right, strict=True)]
    order = sorted(range(len(pairs)), key=lengths.__getitem__)
    texts = [text for pair in order for text in (pairs.left[pair], pairs.right[pair])]
    states = all_states(encoder, texts)
    cosines = np.empty((len(settings) + 1, len(pairs)))
    for first in range(0, len(order), _PAIRS):
        batch = order[first : first + _PAIRS]
        vectors = unit_vectors(_vectors(list(islice(states, 2 * len(batch))), settings))
        left, right = vectors[:, 0::2], vectors[:, 1::2]
        # Padding rounds equal texts differently, which must not decide their order.
        equal = [pairs.left[pair] == pairs.right[pair] for pair in batch]
        right[:, equal] = left[:, equal]
        cosines[:, batch] = np.clip((left * right).sum(axis=-1), -1, 1)
        done(len(batch))
    return cosines


def _checked(form: str) -> EncoderSettings:
    """The settings of the encoder, without what the grid decides."""
    asked = as_sbert_wk(form)
    for name, option in (("window", "--windows"), ("start_layer", "--start-layers")):
        if getattr(asked, name) is not None:
            raise ConfigError(
                f"{name.replace('_', '-')}: found {getattr(asked, name)}, but several values are "
                f"compared; name them with {option}"
            )
    if asked.head:
        raise ConfigError(
            "head: SBERT-WK's vectors are compared as they are before a head; leave it out"
        )
    return asked


def _vectors(
    texts: Sequence[TextStates], settings: Sequence[SBERTWKSettings]
) -> NDArray[np.float32]:
    """(settings + 1, texts, width) of one batch."""
    import torch

    layers, _, width = texts[0].states.shape
    longest = max(len(one.kept) for one in texts)
    states = np.zeros((layers, len(texts), longest, width), np.float32)
    kept = np.zeros((len(texts), longest), np.bool_)
    for row, one in enumerate(texts):
        states[:, row, : len(one.kept)] = one.states
        kept[row, : len(one.kept)] = one.kept
    hidden, places = list(torch.from_numpy(states)), torch.from_numpy(kept)
    found = [sbert_wk(hidden[first_state(one) :], places, one).numpy() for one in settings]
    return np.stack([*found, np.stack(list(_last_means(texts)))])


def _last_means(texts: Sequence[TextStates]) -> Iterator[NDArray[np.float32]]:
    for one in texts:
        yield one.states[-1].mean(axis=0)
