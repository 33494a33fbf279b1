"""What the experiments on sets of sentences share: reading sets, the baseline, and scoring each
hidden state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from eval.progress import Done, Progress
from eval.sentences.result import LayerGrid
from eval.vectors import LayerEncoders, TextVectors
from retriever.errors import ConfigError, require_several

# The value of a measure, and its standard deviation over seeds if there are several.
Value = tuple[float, float | None]


class NamedSet(Protocol):
    """A set of sentences."""

    @property
    def name(self) -> str:
        """What reports call it."""


S = TypeVar("S", bound=NamedSet)


def load_sets(argument: str, given: Sequence[str | Path | S], read: Callable[[Path], S]) -> list[S]:
    """The sets of an experiment, in order.

    Args:
        argument: the name of `given`, for a message.
        given: paths, or sets that are loaded.
        read: reads a path.

    Raises:
        TypeError: one string instead of several.
        ConfigError: two sets have the same name, which a table could not distinguish.
        What `read` raises.
    """
    require_several(argument, given)
    sets = [read(Path(one)) if isinstance(one, str | Path) else one for one in given]
    names = [one.name for one in sets]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two data sets are called {name}: name each once, or rename one of the folders"
            )
    return sets


def check_baseline(baseline: str | None, encoders: Sequence[str]) -> str:
    """The encoder that the others are compared with; the first one if None.

    Raises:
        ConfigError: it is none of the encoders.
    """
    if baseline is None:
        return encoders[0]
    if baseline not in encoders:
        raise ConfigError(
            f"baseline: expected one of the encoders ({', '.join(encoders)}), found {baseline!r}"
        )
    return baseline


def score_states(
    name: str,
    texts: Sequence[str],
    layers: LayerEncoders,
    measures: Sequence[str],
    score: Callable[[TextVectors, Done], Sequence[Value]],
    stage: tuple[str, int],
    progress: Progress,
) -> Iterator[LayerGrid]:
    """Score every hidden state with every pooling on one set: a grid for each model and measure.

    Args:
        name: of the set.
        texts: its distinct texts.
        layers: the models.
        measures: their names.
        score: the value of each measure for the vectors of one hidden state; calls its second
            argument with the number of steps done.
        stage: what scoring is called, and the number of its steps for one hidden state.
        progress: of encoding and scoring.
    """
    done = progress(f"{name}: vectors", len(texts) * len(layers.names) * len(layers.poolings))
    states_in_all = sum(layers.depth(model) + 1 for model in layers.names) * len(layers.poolings)
    scored: Done | None = None
    columns: dict[str, list[list[Sequence[Value]]]] = {model: [] for model in layers.names}
    cut: dict[str, int] = {}
    for _, found in layers.vectors(texts, done):
        scored = scored or progress(f"{name}: {stage[0]}", stage[1] * states_in_all)
        states = found.vectors.of(texts)
        columns[found.name].append(
            [
                score(TextVectors(texts, states[:, layer]), scored)
                for layer in range(states.shape[1])
            ]
        )
        cut[found.name] = found.cut
    for model, by_pooling in columns.items():
        # (value and spread, measures, states, poolings); a spread of None becomes NaN.
        cells = np.array(by_pooling, np.float64).T
        for place, measure in enumerate(measures):
            values, spread = cells[:, place]
            yield LayerGrid(
                name=name,
                encoder=model,
                measure=measure,
                poolings=layers.poolings,
                values=values,
                spread=None if np.isnan(spread).any() else spread,
                cut=cut[model],
                texts=len(texts),
            )
