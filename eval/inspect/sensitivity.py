"""What SBERT-WK's window and start layer are worth on scored pairs.

Wang and Kuo 2020, Fig. 3. The model runs once over the texts: while a batch's hidden states are
alive they become a vector for every setting, and of the vectors only cosines are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product

import numpy as np
from numpy.typing import NDArray

from eval.datasets.sentences.pairs import ScoredPairs
from eval.inspect.layer_similarity import unit_vectors
from eval.inspect.states import StatesEncoder, all_states
from eval.metrics.correlation import Correlation
from retriever.errors import ConfigError
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings, first_state, sbert_wk
from retriever.encoders.transformer.states import TextStates

_PAIRS = 16

# A window and a start layer.
Cell = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A correlation with gold scores for each window and start layer.

    Attributes:
        windows: ascending.
        start_layers: ascending.
        values: for each window a row, for each start layer a value in [-1, 1]; None where the
            preset cannot have both.
        baseline: that of the mean of the last hidden state over all pieces of a text.
    """

    windows: tuple[int, ...]
    start_layers: tuple[int, ...]
    values: tuple[tuple[float | None, ...], ...]
    baseline: float


def settings_grid(
    base: SBERTWKSettings,
    depth: int,
    windows: Sequence[int],
    start_layers: Sequence[int] | None,
) -> dict[Cell, SBERTWKSettings]:
    """The settings of each window with each start layer, resolved; those that cannot be left out.

    Args:
        base: the rest of the settings.
        depth: transformer layers of the model.
        windows: at least one, each at least 1.
        start_layers: None takes all that are possible with a window.

    Raises:
        ConfigError: a start layer that is possible with none of the windows, or no window that
            is possible at all.
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
        encoder: what gives the hidden states; what it keeps of a text is what is fused.
        pairs: at least two.
        objective: made of their scores.
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
        # Equal texts are alike up to rounding, which must not decide their order.
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
