"""The exhaustive layer search of BERT-LC (Hosseini et al. 2023), and the test of its choice.

The search over means of layers is exact and needs no vectors. A head after the mean is no function
of the products between layers: each set costs a pass over all texts.
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

_OBJECTIVE_DECIMALS = 12
_THREADS = min(os.cpu_count() or 1, 8)
_TABLE_BYTES = 8 * 2**20
# Fits into the cache of a core, including sorted keys and ranks.
_RANKED_AT_ONCE = 2**15


Head = Callable[[Vectors], Vectors]
"""What (texts, width) means of layers go through."""


def asked_head(asked: EncoderSettings, loading: Loading) -> Head | None:
    """The head of an encoder that is asked for with one; ConfigError if it has none."""
    if not asked.head:
        return None
    # Its layers do not matter: a head takes the vector that they became.
    return loading.load(replace(asked, layers=None, fusion=None, pooling=None)).project


@dataclass(frozen=True, slots=True, eq=False)
class HeadPairs:
    """Pairs of texts with the vectors of all layers; the methods are those of `PairGrams`."""

    # (texts, hidden states, width), each text once, and (2, pairs) its rows.
    vectors: Vectors
    rows: NDArray[np.int64]
    head: Head

    @property
    def pairs(self) -> int:
        """Number of pairs of texts."""
        return int(self.rows.shape[1])

    def take(self, pairs: NDArray[np.int64]) -> HeadPairs:
        """The pairs at these positions, in this order, and only their texts."""
        texts, rows = np.unique(self.rows[:, pairs], return_inverse=True)
        return replace(self, vectors=self.vectors[texts], rows=rows.reshape(2, -1))

    def cosines(self, masks: Masks) -> Floats:
        """(subsets, pairs) cosines under each set."""
        held = masks[:, None] >> np.arange(self.vectors.shape[1]) & 1
        found = np.empty((len(masks), self.pairs))
        for number, chosen in enumerate(held.astype(bool)):
            projected = self.head(self.vectors[:, chosen].mean(axis=1))
            found[number] = cosines(*projected[self.rows])
        return found


class PoolObjective:
    """The mean of a measure over questions, as `eval qa` has it; used like a `Correlation`."""

    unit = "questions"

    def __init__(self, pools: Sequence[Question], name: str = "AP") -> None:
        self._measures = PoolMeasures(pools, [name])
        (self.name,) = self._measures.names
        self.units = len(pools)

    def __call__(self, cosines: Floats) -> Floats:
        """(subsets, pairs) cosines to (subsets,) means in [0, 1]."""
        means: Floats = self.per_question(cosines).mean(axis=1)
        return means

    def resampled(self, cosines: Floats, weights: Floats) -> Floats:
        """(resamples, subsets) means over the questions drawn; weights: (resamples, questions)."""
        sums: Floats = weights @ self.per_question(cosines).T
        sums /= weights.sum(axis=1, keepdims=True)
        return sums

    def per_question(self, cosines: Floats) -> Floats:
        """(subsets, pairs) cosines to (subsets, questions) values in [0, 1]."""
        return self._measures(np.round(cosines, RANKED_DECIMALS))[self.name]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Pairs of texts and the objective over their cosines."""

    grams: PairGrams | HeadPairs
    objective: Correlation | PoolObjective

    def values(self, masks: Masks) -> Floats:
        """(subsets,) the objective under a few sets of layers, given as bit masks."""
        return self.objective(self.grams.cosines(masks))


def subset_values(task: Task, subsets: LayerSubsets, done: Done = ignore) -> Floats:
    """(subsets,) the objective of every set of layers; a thread takes twice `_TABLE_BYTES`."""
    values = np.empty(len(subsets))
    if isinstance(task.grams, HeadPairs):
        for position in range(len(subsets)):
            values[position] = task.values(subsets.masks[position : position + 1])[0]
            done(1)
        return values
    blocks = SubsetCosines(task.grams, subsets, _TABLE_BYTES)
    rows = max(1, _RANKED_AT_ONCE // task.grams.pairs)

    def fill(number: int) -> int:
        positions, block = blocks.block(number)
        for start in range(0, len(block), rows):
            part = slice(start, start + rows)
            values[positions[part]] = task.objective(block[part])
        return len(block)

    with ThreadPoolExecutor(_THREADS) as pool:
        for finished in pool.map(fill, range(len(blocks))):
            done(finished)
    return values


def best_first(values: Floats, count: int) -> NDArray[np.int64]:
    """Positions of the `count` best sets: by value, then fewer layers, then smaller bit mask."""
    # Ties keep the order of `LayerSubsets`, because the sort is stable.
    order = np.argsort(-comparable(values), kind="stable")
    return order[:count].astype(np.int64)


def comparable(values: Floats) -> Floats:
    """Values without rounding noise, so that the order of a summation does not decide."""
    return np.round(values, _OBJECTIVE_DECIMALS)


@dataclass(frozen=True, slots=True)
class SetScore:
    """A set of layers and its objectives."""

    layers: tuple[int, ...]
    search: float
    held_out: float | None


@dataclass(frozen=True, slots=True)
class Gain:
    """The best set against a baseline, with the 95% interval of a paired bootstrap over units; over
    shuffles the means, with the standard deviation of the gain in place of an interval.
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
    """A set that the best one is compared with beside the last layer (Tables 3 and 4)."""

    name: str
    # None over shuffles, each of which draws its own random layers.
    score: SetScore | None
    gain: Gain


@dataclass(frozen=True, slots=True)
class SizeEffect:
    """Sets of one number of layers (Figs. 2 and 3), with the held-out objective of the best one."""

    size: int
    sets: int
    best: float
    mean: float
    held_out: float | None
    best_layers: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class LayerEffect:
    """The best objectives of sets with one layer, and of those without it, if any (Fig. 4)."""

    layer: int
    with_layer: float
    without: float | None
    held_out_with: float | None
    held_out_without: float | None


@dataclass(frozen=True, slots=True)
class LayerReport:
    """A search, or a search per shuffle and means over all; the best sets are by the search data.

    Over shuffles they have no held-out objective: pairs that one searches on, another tests on. The
    baseline is the last layer.
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
    # The sets that were best in a shuffle and their numbers of shuffles, most frequent first.
    wins: tuple[tuple[tuple[int, ...], int], ...] = ()


def search_given(
    search: Task,
    held_out: Task | None,
    subsets: LayerSubsets,
    settings: LayerSearchSettings,
    progress: Progress = silent,
) -> LayerReport:
    """Choose layers on one task, and test the best sets on another, if there is one."""
    values = subset_values(search, subsets, progress("scoring sets of layers", len(subsets)))
    return _report(search, held_out, subsets, values, settings, [settings.seed])


def search_shuffled(
    everything: Task,
    subsets: LayerSubsets,
    settings: LayerSearchSettings,
    progress: Progress = silent,
) -> LayerReport:
    """The protocol of the paper's STS tables: a search on `dev_size` pairs in each shuffle."""
    grams = everything.grams
    objective = everything.objective
    dev_size = settings.dev_size
    assert isinstance(objective, Correlation)
    total = np.zeros(len(subsets))
    reports = []
    for shuffle in range(settings.shuffles):
        order = np.random.default_rng([settings.seed, shuffle]).permutation(grams.pairs)
        sides = (order[:dev_size], order[dev_size:])
        search, held_out = (Task(grams.take(side), objective.take(side)) for side in sides)
        label = f"shuffle {shuffle + 1} of {settings.shuffles}"
        values = subset_values(search, subsets, progress(label, len(subsets)))
        drawn = [settings.seed, shuffle, 1]
        reports.append(_report(search, held_out, subsets, values, settings, drawn))
        total += values
    mean = total / settings.shuffles

    def score(place: int) -> SetScore:
        return SetScore(subsets.layers(place), float(mean[place]), None)

    best = tuple(map(score, best_first(mean, settings.top).tolist()))
    return replace(
        reports[0],
        best=best[0],
        baseline=score(subsets.last),
        top=best,
        gain=_mean_gain([report.gain for report in reports]),
        others=tuple(
            Baseline(same[0].name, None, _mean_gain([one.gain for one in same]))
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
    """The mean of each field over the searches that have a value; None if none has."""
    means: dict[str, Any] = {}
    for name in names:
        known = [value for one in effects if (value := getattr(one, name)) is not None]
        means[name] = float(np.mean(known)) if known else None
    return means


def _mean_gain(gains: Sequence[Gain]) -> Gain:
    best, baseline, gain = np.mean([(one.best, one.baseline, one.gain) for one in gains], axis=0)
    spread = float(np.std([one.gain for one in gains], ddof=1)) if len(gains) > 1 else 0.0
    return Gain(True, float(best), float(baseline), float(gain), None, None, None, spread)


def _report(
    search: Task,
    held_out: Task | None,
    subsets: LayerSubsets,
    values: Floats,
    settings: LayerSearchSettings,
    seed: list[int],
) -> LayerReport:
    def tested(place: int) -> float | None:
        return None if held_out is None else _value(held_out, int(subsets.masks[place]))

    def score(place: int) -> SetScore:
        return SetScore(subsets.layers(place), float(values[place]), tested(place))

    order = best_first(values, settings.top).tolist()
    best = score(order[0])
    baseline = score(subsets.last)

    def gain_over(other: SetScore) -> Gain:
        ours = best.search if best.held_out is None else best.held_out
        theirs = other.search if other.held_out is None else other.held_out
        masks = (layer_mask(best.layers), layer_mask(other.layers))
        count = settings.resamples
        low, high = bootstrap_gain(held_out or search, *masks, count, seed)
        return Gain(held_out is not None, ours, theirs, ours - theirs, low, high, count)

    others = []
    random = np.random.default_rng([*seed, 4])
    drawn = baseline_layers(subsets.hidden_states, len(best.layers), random)
    for name, layers in zip(("last 4 layers", "random layers"), drawn, strict=True):
        mask = layer_mask(layers)
        held_out_value = None if held_out is None else _value(held_out, mask)
        other = SetScore(layers, _value(search, mask), held_out_value)
        others.append(Baseline(name, other, gain_over(other)))
    return LayerReport(
        search_units=search.objective.units,
        held_out_units=None if held_out is None else held_out.objective.units,
        subsets=len(subsets),
        best=best,
        baseline=baseline,
        top=tuple(map(score, order)),
        gain=gain_over(baseline),
        others=tuple(others),
        sizes=_size_effects(subsets, values, tested),
        layers=_layer_effects(subsets, values, tested),
    )


def _value(task: Task, mask: int) -> float:
    return float(task.values(np.array([mask]))[0])


def _size_effects(
    subsets: LayerSubsets, values: Floats, tested: Callable[[int], float | None]
) -> tuple[SizeEffect, ...]:
    effects = []
    for size in np.unique(subsets.sizes).tolist():
        same = subsets.sizes == size
        best = _best(values, same)
        chosen = values[same]
        layers = subsets.layers(best)
        highest = float(values[best])
        mean = float(chosen.mean())
        effects.append(SizeEffect(size, len(chosen), highest, mean, tested(best), layers))
    return tuple(effects)


def _layer_effects(
    subsets: LayerSubsets, values: Floats, tested: Callable[[int], float | None]
) -> tuple[LayerEffect, ...]:
    effects = []
    for layer in range(subsets.hidden_states):
        has = (subsets.masks >> layer & 1).astype(np.bool_)
        best = _best(values, has)
        other = None if has.all() else _best(values, ~has)
        effects.append(
            LayerEffect(
                layer=layer,
                with_layer=float(values[best]),
                without=None if other is None else float(values[other]),
                held_out_with=tested(best),
                held_out_without=None if other is None else tested(other),
            )
        )
    return tuple(effects)


def _best(values: Floats, chosen: NDArray[np.bool_]) -> int:
    # Positions ascend, so ties are broken as for the best of all sets.
    places = np.flatnonzero(chosen)
    return int(places[np.argmax(comparable(values[places]))])


def bootstrap_gain(
    task: Task, best: int, baseline: int, resamples: int, seed: int | Sequence[int]
) -> tuple[float, float]:
    """The 95% interval of the objective of one set, a bit mask, minus that of another."""
    units = task.objective.units
    if units == 1:
        # One question says nothing of others.
        return -1.0, 1.0
    cosines = task.grams.cosines(np.array([best, baseline]))
    gains = []
    for weights in resampling_weights(units, resamples, np.random.default_rng(seed)):
        values = task.objective.resampled(cosines, weights)
        gains.append(values[:, 0] - values[:, 1])
    return percentile_interval(np.concatenate(gains), units)
