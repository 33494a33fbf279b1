"""The exhaustive layer search of BERT-LC (Hosseini et al. 2023), and the test of its choice.

The search over means of layers is exact and needs no vectors, only the products between layers. A
head after the mean is not a function of these products: each set costs a pass over all texts.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.datasets.question_set import Question
from eval.layers.subsets import (
    LayerSubsets,
    Masks,
    PairGrams,
    SubsetCosines,
    baseline_layers,
    layer_mask,
)
from eval.metrics.correlation import RANKED_DECIMALS, Correlation, cosines
from eval.metrics.measures import PoolMeasures
from eval.metrics.significance import percentile_interval, resampling_weights
from eval.progress import Done, Progress, ignore, silent
from eval.settings import LayerSearchSettings, Loading
from retriever.encoders import EncoderSettings

Vectors = NDArray[np.float32]
Floats = NDArray[np.float64]

# Decimals by which objectives are compared; further ones are rounding errors.
_OBJECTIVE_DECIMALS = 12
_THREADS = min(os.cpu_count() or 1, 8)
# Size of the table of low parts, see `SubsetCosines`.
_TABLE_BYTES = 8 * 2**20
# Number of cosines that are ranked together, so that keys and ranks fit into a core's cache.
_RANKED_COSINES = 2**15


Head = Callable[[Vectors], Vectors]
"""Function of (texts, width) means of layers, such as a Dense module of the model."""


def load_head(settings: EncoderSettings, loading: Loading) -> Head | None:
    """Load the head of an encoder, None if its settings have none.

    Raises:
        ConfigError: the model has no head.
    """
    if not settings.head:
        return None
    # A head takes the fused vector, so the choice of layers does not matter.
    return loading.load(replace(settings, layers=None, fusion=None, pooling=None)).project


@dataclass(frozen=True, slots=True, eq=False)
class HeadPairs:
    """Pairs of texts with the vectors of all layers, and the methods of `PairGrams`.

    Attributes:
        vectors: (texts, hidden states, width), each text once.
        rows: (2, pairs) rows of `vectors`.
        head: applied to each mean of layers.
    """

    vectors: Vectors
    rows: NDArray[np.int64]
    head: Head

    @property
    def pairs(self) -> int:
        """Number of pairs of texts."""
        return int(self.rows.shape[1])

    def take(self, pairs: NDArray[np.int64]) -> HeadPairs:
        """Return the pairs at these positions, in this order, with their texts alone."""
        texts, rows = np.unique(self.rows[:, pairs], return_inverse=True)
        return replace(self, vectors=self.vectors[texts], rows=rows.reshape(2, -1))

    def cosines(self, masks: Masks) -> Floats:
        """Return (subsets, pairs) cosines under each set."""
        indicators = masks[:, None] >> np.arange(self.vectors.shape[1]) & 1
        cosine_rows = np.empty((len(masks), self.pairs))
        for number, layers in enumerate(indicators.astype(bool)):
            projected = self.head(self.vectors[:, layers].mean(axis=1))
            cosine_rows[number] = cosines(*projected[self.rows])
        return cosine_rows


class PoolObjective:
    """The mean of a measure over questions, as in `eval qa`; has the methods of `Correlation`."""

    unit = "questions"

    def __init__(self, pools: Sequence[Question], name: str = "AP") -> None:
        self._measures = PoolMeasures(pools, [name])
        (self.name,) = self._measures.names
        self.units = len(pools)

    def __call__(self, cosines: Floats) -> Floats:
        """Return (subsets,) means in [0, 1] for (subsets, pairs) cosines."""
        means: Floats = self.per_question(cosines).mean(axis=1)
        return means

    def resampled(self, cosines: Floats, weights: Floats) -> Floats:
        """Return (resamples, subsets) means; (resamples, questions) weights count the draws."""
        sums: Floats = weights @ self.per_question(cosines).T
        sums /= weights.sum(axis=1, keepdims=True)
        return sums

    def per_question(self, cosines: Floats) -> Floats:
        """Return (subsets, questions) values in [0, 1] for (subsets, pairs) cosines."""
        return self._measures(np.round(cosines, RANKED_DECIMALS))[self.name]


@dataclass(frozen=True, slots=True, eq=False)
class LayerTask:
    """Pairs of texts and the objective over their cosines."""

    grams: PairGrams | HeadPairs
    objective: Correlation | PoolObjective

    def values(self, masks: Masks) -> Floats:
        """Return (subsets,) objectives of a few sets of layers, given as bit masks."""
        return self.objective(self.grams.cosines(masks))


def subset_values(task: LayerTask, subsets: LayerSubsets, done: Done = ignore) -> Floats:
    """Return (subsets,) objectives of all sets of layers; a thread needs twice `_TABLE_BYTES`."""
    values = np.empty(len(subsets))
    if isinstance(task.grams, HeadPairs):
        for position in range(len(subsets)):
            values[position] = task.values(subsets.masks[position : position + 1])[0]
            done(1)
        return values
    blocks = SubsetCosines(task.grams, subsets, _TABLE_BYTES)
    rows = max(1, _RANKED_COSINES // task.grams.pairs)

    def fill(number: int) -> int:
        positions, block = blocks.block(number)
        for start in range(0, len(block), rows):
            part = slice(start, start + rows)
            values[positions[part]] = task.objective(block[part])
        return len(block)

    with ThreadPoolExecutor(_THREADS) as pool:
        for scored_sets in pool.map(fill, range(len(blocks))):
            done(scored_sets)
    return values


def best_first(values: Floats, count: int) -> NDArray[np.int64]:
    """Return positions of the `count` best sets: by value, then fewer layers, then bit mask."""
    # Ties keep the order of `LayerSubsets`, because the sort is stable.
    order = np.argsort(-comparable(values), kind="stable")
    return order[:count].astype(np.int64)


def comparable(values: Floats) -> Floats:
    """Round values, so that the order of a summation does not decide."""
    return np.round(values, _OBJECTIVE_DECIMALS)


@dataclass(frozen=True, slots=True)
class SetScore:
    """A set of layers and its objectives."""

    layers: tuple[int, ...]
    search: float
    held_out: float | None


@dataclass(frozen=True, slots=True)
class Gain:
    """The best set against a baseline.

    One search has the 95% interval of a paired bootstrap over units. Several shuffles have means,
    and the standard deviation of the gain in place of an interval.
    """

    held_out: bool
    best: float
    baseline: float
    gain: float
    low: float | None
    high: float | None
    resamples: int | None
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """A set, beside the last layer, that the best one is compared with (Tables 3 and 4)."""

    name: str
    # None over shuffles: each draws its own random layers.
    score: SetScore | None
    gain: Gain


@dataclass(frozen=True, slots=True)
class SizeEffect:
    """All sets of one size (Figs. 2 and 3), with the held-out objective of the best one."""

    size: int
    sets: int
    best: float
    mean: float
    held_out: float | None
    best_layers: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class LayerEffect:
    """The best objectives of sets with a layer, and of sets without it, if any (Fig. 4)."""

    layer: int
    with_layer: float
    without: float | None
    held_out_with: float | None
    held_out_without: float | None


@dataclass(frozen=True, slots=True)
class LayerReport:
    """The result of one search, or the means over the searches of all shuffles.

    The best sets are those on the search data; the baseline is the last layer. Over shuffles, sets
    have no held-out objective: a pair that is searched on in one shuffle is held out in another.
    """

    search_units: int
    held_out_units: int | None
    subsets: int
    best: SetScore
    baseline: SetScore
    top: tuple[SetScore, ...]
    gain: Gain
    others: tuple[Baseline, ...]
    sizes: tuple[SizeEffect, ...]
    layers: tuple[LayerEffect, ...]
    shuffles: tuple[LayerReport, ...] = ()
    # Each set that was best in a shuffle, and in how many; most frequent first.
    wins: tuple[tuple[tuple[int, ...], int], ...] = ()


def search_given(
    search: LayerTask,
    held_out: LayerTask | None,
    subsets: LayerSubsets,
    settings: LayerSearchSettings,
    progress: Progress = silent,
) -> LayerReport:
    """Choose layers on `search`, and test the best sets on `held_out`, if there is one."""
    values = subset_values(search, subsets, progress("scoring sets of layers", len(subsets)))
    return _report_choice(search, held_out, subsets, values, settings, [settings.seed])


def search_shuffled(
    task: LayerTask,
    subsets: LayerSubsets,
    settings: LayerSearchSettings,
    progress: Progress = silent,
) -> LayerReport:
    """Search on `dev_size` pairs of each shuffle: the protocol of the paper's STS tables."""
    grams = task.grams
    objective = task.objective
    dev_size = settings.dev_size
    assert isinstance(objective, Correlation)
    value_sums = np.zeros(len(subsets))
    reports = []
    for shuffle in range(settings.shuffles):
        order = np.random.default_rng([settings.seed, shuffle]).permutation(grams.pairs)
        sides = (order[:dev_size], order[dev_size:])
        search, held_out = (LayerTask(grams.take(side), objective.take(side)) for side in sides)
        label = f"shuffle {shuffle + 1} of {settings.shuffles}"
        values = subset_values(search, subsets, progress(label, len(subsets)))
        bootstrap_seed = [settings.seed, shuffle, 1]
        reports.append(_report_choice(search, held_out, subsets, values, settings, bootstrap_seed))
        value_sums += values
    return _mean_report(reports, subsets, value_sums / settings.shuffles, settings.top)


def _mean_report(
    reports: Sequence[LayerReport], subsets: LayerSubsets, mean_values: Floats, top: int
) -> LayerReport:
    """Return the means over the reports of shuffles; the best sets are those of `mean`."""

    def score(position: int) -> SetScore:
        return SetScore(subsets.layers(position), float(mean_values[position]), None)

    best = tuple(map(score, best_first(mean_values, top).tolist()))
    return replace(
        reports[0],
        best=best[0],
        baseline=score(subsets.last),
        top=best,
        gain=_mean_gain([report.gain for report in reports]),
        others=tuple(
            Baseline(same[0].name, None, _mean_gain([baseline.gain for baseline in same]))
            for same in zip(*(report.others for report in reports), strict=True)
        ),
        sizes=tuple(
            replace(same[0], best_layers=None, **_means(same, "best", "mean", "held_out"))
            for same in zip(*(report.sizes for report in reports), strict=True)
        ),
        layers=tuple(
            replace(
                same[0],
                **_means(same, "with_layer", "without", "held_out_with", "held_out_without"),
            )
            for same in zip(*(report.layers for report in reports), strict=True)
        ),
        shuffles=tuple(reports),
        wins=tuple(Counter(report.best.layers for report in reports).most_common()),
    )


def _means(effects: Sequence[SizeEffect | LayerEffect], *names: str) -> dict[str, Any]:
    """Return the mean of each field over the effects that have a value; None if none has."""
    means: dict[str, Any] = {}
    for name in names:
        values = [value for effect in effects if (value := getattr(effect, name)) is not None]
        means[name] = float(np.mean(values)) if values else None
    return means


def _mean_gain(gains: Sequence[Gain]) -> Gain:
    columns = [(gain.best, gain.baseline, gain.gain) for gain in gains]
    best, baseline, mean_gain = np.mean(columns, axis=0).tolist()
    spread = float(np.std([gain.gain for gain in gains], ddof=1)) if len(gains) > 1 else 0.0
    return Gain(True, best, baseline, mean_gain, None, None, None, spread)


def _report_choice(
    search: LayerTask,
    held_out: LayerTask | None,
    subsets: LayerSubsets,
    values: Floats,
    settings: LayerSearchSettings,
    seed: list[int],
) -> LayerReport:
    """Report the best sets by `values` on the search data, and their values on held-out data."""

    def held_out_value(position: int) -> float | None:
        return None if held_out is None else _mask_value(held_out, int(subsets.masks[position]))

    def score(position: int) -> SetScore:
        return SetScore(subsets.layers(position), float(values[position]), held_out_value(position))

    order = best_first(values, settings.top).tolist()
    best = score(order[0])
    baseline = score(subsets.last)

    def gain_over(other: SetScore) -> Gain:
        best_value = best.search if best.held_out is None else best.held_out
        other_value = other.search if other.held_out is None else other.held_out
        masks = (layer_mask(best.layers), layer_mask(other.layers))
        count = settings.resamples
        low, high = bootstrap_gain(held_out or search, *masks, count, seed)
        gain = best_value - other_value
        return Gain(held_out is not None, best_value, other_value, gain, low, high, count)

    baselines = []
    random = np.random.default_rng([*seed, 4])
    drawn_layers = baseline_layers(subsets.hidden_states, len(best.layers), random)
    for name, layers in zip(("last 4 layers", "random layers"), drawn_layers, strict=True):
        mask = layer_mask(layers)
        held_out_score = None if held_out is None else _mask_value(held_out, mask)
        other = SetScore(layers, _mask_value(search, mask), held_out_score)
        baselines.append(Baseline(name, other, gain_over(other)))
    return LayerReport(
        search_units=search.objective.units,
        held_out_units=None if held_out is None else held_out.objective.units,
        subsets=len(subsets),
        best=best,
        baseline=baseline,
        top=tuple(map(score, order)),
        gain=gain_over(baseline),
        others=tuple(baselines),
        sizes=_size_effects(subsets, values, held_out_value),
        layers=_layer_effects(subsets, values, held_out_value),
    )


def _mask_value(task: LayerTask, mask: int) -> float:
    return float(task.values(np.array([mask]))[0])


def _size_effects(
    subsets: LayerSubsets, values: Floats, held_out_value: Callable[[int], float | None]
) -> tuple[SizeEffect, ...]:
    effects = []
    for size in np.unique(subsets.sizes).tolist():
        has_size = subsets.sizes == size
        best = _best_position(values, has_size)
        values_of_size = values[has_size]
        layers = subsets.layers(best)
        highest = float(values[best])
        mean = float(values_of_size.mean())
        effects.append(
            SizeEffect(size, len(values_of_size), highest, mean, held_out_value(best), layers)
        )
    return tuple(effects)


def _layer_effects(
    subsets: LayerSubsets, values: Floats, held_out_value: Callable[[int], float | None]
) -> tuple[LayerEffect, ...]:
    effects = []
    for layer in range(subsets.hidden_states):
        has_layer = (subsets.masks >> layer & 1).astype(np.bool_)
        best = _best_position(values, has_layer)
        best_without = None if has_layer.all() else _best_position(values, ~has_layer)
        effects.append(
            LayerEffect(
                layer=layer,
                with_layer=float(values[best]),
                without=None if best_without is None else float(values[best_without]),
                held_out_with=held_out_value(best),
                held_out_without=None if best_without is None else held_out_value(best_without),
            )
        )
    return tuple(effects)


def _best_position(values: Floats, is_candidate: NDArray[np.bool_]) -> int:
    # Positions ascend, so ties are broken as in `best_first`.
    positions = np.flatnonzero(is_candidate)
    return int(positions[np.argmax(comparable(values[positions]))])


def bootstrap_gain(
    task: LayerTask, best: int, baseline: int, resamples: int, seed: int | Sequence[int]
) -> tuple[float, float]:
    """Return the 95% interval of the gain of one set over another, given as bit masks."""
    units = task.objective.units
    if units == 1:
        # With one question the interval is the whole range.
        return -1.0, 1.0
    cosines = task.grams.cosines(np.array([best, baseline]))
    gains = []
    for weights in resampling_weights(units, resamples, np.random.default_rng(seed)):
        values = task.objective.resampled(cosines, weights)
        gains.append(values[:, 0] - values[:, 1])
    return percentile_interval(np.concatenate(gains), units)
