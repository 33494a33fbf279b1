"""Choosing layers on one part of the data, and testing the choice on another.

Search and held-out data are either given, or drawn from one set of pairs as in Hosseini et al.
2023: shuffle, choose on the first 350 pairs, test on the rest, five times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.layers.effects import (
    HeldOut,
    LayerEffect,
    SizeEffect,
    layer_effects,
    mean_layer_effects,
    mean_size_effects,
    size_effects,
)
from eval.layers.fused import FusedPairs
from eval.layers.search import Task, best_first, comparable, subset_values
from eval.layers.subsets import LayerSubsets, layer_mask
from eval.metrics.correlation import Correlation
from eval.metrics.significance import percentile_interval, resampling_weights
from eval.progress import Progress, silent
from retriever.errors import ConfigError

# Up to this many cosines every set is tried on the held-out data too, to rank the chosen one.
_RANKED_COSINES = 10**9
# Where a vector is made for each set, a cosine costs some thousand times as much.
_FUSED_COST = 1000


@dataclass(frozen=True, slots=True)
class SetScore:
    """One set of layers.

    Attributes:
        layers: ascending.
        search: its objective on the search data.
        held_out: its objective on the held-out data; None if there is none.
        held_out_rank: 1 + the number of sets with a higher objective there; None if not all were
            tried.
    """

    layers: tuple[int, ...]
    search: float
    held_out: float | None
    held_out_rank: int | None


@dataclass(frozen=True, slots=True)
class Gain:
    """The best set against a baseline.

    Attributes:
        held_out: whether it is measured on held-out data; otherwise it is optimistic, because the
            set was chosen on the data it is measured on.
        best, baseline: the objectives of the two.
        gain: their difference.
        low, high: its 95% interval, by a paired bootstrap over the units.
        resamples: of the bootstrap.
    """

    held_out: bool
    best: float
    baseline: float
    gain: float
    low: float
    high: float
    resamples: int


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the best set is compared with beside the last layer (Tables 3 and 4 of the paper).

    Attributes:
        name: "last 4 layers", or "random layers": one seeded draw of as many as the best set has.
        score: of the set, which may be larger than the sets that were tried.
        gain: of the best set over it, as `LayerReport.gain`.
    """

    name: str
    score: SetScore
    gain: Gain


@dataclass(frozen=True, slots=True)
class LayerReport:
    """One search.

    Attributes:
        search_units, held_out_units: numbers of pairs or questions.
        subsets: number of sets that were tried.
        best: the best set on the search data; of equal ones that with fewer layers, then that with
            the smaller bit mask.
        baseline: the last layer only.
        top: the best sets, best first.
        gain: over the last layer, on the held-out data, or on the search data if there is none.
        others: further baselines.
        sizes: one for each number of layers, ascending.
        layers: one for each hidden state, ascending.
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


@dataclass(frozen=True, slots=True)
class MeanBaseline:
    """A baseline over shuffles.

    Attributes:
        name: see `Baseline`.
        test: mean of its held-out objective.
        gain, gain_spread: mean and standard deviation of the best set's held-out gain over it.
    """

    name: str
    test: float
    gain: float
    gain_spread: float


@dataclass(frozen=True, slots=True)
class ShuffledReport:
    """The paper's protocol: a search per shuffle, and their common results.

    Attributes:
        shuffles: one report each.
        wins: the sets that were best in a shuffle and their numbers of shuffles, most frequent
            first.
        best: by the mean objective over the shuffles' search data. It has no held-out objective,
            because pairs that one shuffle searches on are tested on in another.
        baseline, top: by the same mean.
        sizes, layers: means over the shuffles.
        test_best, test_baseline: means over the shuffles of the held-out objective of each one's
            best set and of the last layer, which the paper reports.
        gain, gain_spread: mean and standard deviation (n - 1; 0 for one shuffle) of the held-out
            gains over the last layer.
        others: further baselines.
    """

    shuffles: tuple[LayerReport, ...]
    wins: tuple[tuple[tuple[int, ...], int], ...]
    best: SetScore
    baseline: SetScore
    top: tuple[SetScore, ...]
    sizes: tuple[SizeEffect, ...]
    layers: tuple[LayerEffect, ...]
    test_best: float
    test_baseline: float
    gain: float
    gain_spread: float
    others: tuple[MeanBaseline, ...]


def search_given(
    search: Task,
    held_out: Task | None,
    subsets: LayerSubsets,
    *,
    top: int,
    resamples: int,
    seed: int,
    progress: Progress = silent,
) -> LayerReport:
    """Choose layers on one task and test them on another.

    Args:
        search: the task that layers are chosen on.
        held_out: the task that they are tested on; None if there is none.
        subsets: the sets to try.
        top: number of best sets to report.
        resamples: of the bootstrap.
        seed: of the bootstrap.
        progress: of the search.
    """
    values = subset_values(search, subsets, progress("scoring sets of layers", len(subsets)))
    return _report(search, held_out, subsets, values, top, resamples, seed, progress)


def search_shuffled(
    everything: Task,
    subsets: LayerSubsets,
    *,
    dev_size: int = 350,
    shuffles: int = 5,
    top: int,
    resamples: int,
    seed: int,
    progress: Progress = silent,
) -> ShuffledReport:
    """The protocol of the paper's STS tables.

    Args:
        everything: all pairs; the objective is a `Correlation`.
        subsets: the sets to try.
        dev_size: number of pairs to choose on, at least 2, leaving at least 2.
        shuffles: their number, at least 1.
        top: number of best sets to report.
        resamples: of the bootstrap.
        seed: of the shuffles and of the bootstrap.
        progress: of the searches.

    Raises:
        ConfigError: `dev_size` leaves too few pairs on one side, or the objective is over
            questions.
        BadInputError: the gold scores of one side are all equal.
    """
    grams, objective = everything.grams, everything.objective
    if not isinstance(objective, Correlation):
        raise ConfigError(
            f"protocol: expected scored pairs to shuffle, found {objective.unit}; give their splits"
        )
    check_division(grams.pairs, dev_size)
    total = np.zeros(len(subsets))
    reports = []
    for shuffle in range(shuffles):
        order = np.random.default_rng([seed, shuffle]).permutation(grams.pairs)
        sides = (order[:dev_size], order[dev_size:])
        search, held_out = (Task(grams.take(side), objective.take(side)) for side in sides)
        label = f"shuffle {shuffle + 1} of {shuffles}"
        values = subset_values(search, subsets, progress(label, len(subsets)))
        drawn = [seed, shuffle, 1]
        reports.append(_report(search, held_out, subsets, values, top, resamples, drawn, progress))
        total += values
    mean = total / shuffles
    gains = [report.gain for report in reports]
    wins = Counter(report.best.layers for report in reports)
    best = tuple(
        SetScore(subsets.layers(place), float(mean[place]), None, None)
        for place in best_first(mean, top)
    )
    return ShuffledReport(
        shuffles=tuple(reports),
        wins=tuple(wins.most_common()),
        best=best[0],
        baseline=SetScore(subsets.layers(subsets.last), float(mean[subsets.last]), None, None),
        top=best,
        sizes=mean_size_effects([report.sizes for report in reports]),
        layers=mean_layer_effects([report.layers for report in reports]),
        test_best=float(np.mean([gain.best for gain in gains])),
        test_baseline=float(np.mean([gain.baseline for gain in gains])),
        gain=float(np.mean([gain.gain for gain in gains])),
        gain_spread=_spread(gains),
        others=tuple(
            MeanBaseline(
                same[0].name,
                float(np.mean([one.gain.baseline for one in same])),
                float(np.mean([one.gain.gain for one in same])),
                _spread([one.gain for one in same]),
            )
            for same in zip(*(report.others for report in reports), strict=True)
        ),
    )


def _spread(gains: Sequence[Gain]) -> float:
    return float(np.std([gain.gain for gain in gains], ddof=1)) if len(gains) > 1 else 0.0


def check_division(pairs: int, dev_size: int) -> None:
    """Refuse a division of the pairs that leaves fewer than two on one side.

    Raises:
        ConfigError: it does; names the valid range.
    """
    if not 2 <= dev_size <= pairs - 2:
        raise ConfigError(
            f"dev-size: expected 2 to {max(pairs - 2, 2)} of the {pairs} pairs, found {dev_size}; "
            "give more pairs or another size"
        )


def _report(
    search: Task,
    held_out: Task | None,
    subsets: LayerSubsets,
    values: NDArray[np.float64],
    top: int,
    resamples: int,
    seed: int | list[int],
    progress: Progress,
) -> LayerReport:
    everywhere = None
    if held_out is not None and _cost(held_out) * len(subsets) <= _RANKED_COSINES:
        done = progress("scoring sets of layers on held-out data", len(subsets))
        everywhere = subset_values(held_out, subsets, done)
    ordered = None if everywhere is None else comparable(everywhere)
    tested = HeldOut(held_out, subsets, everywhere)

    def score(place: int) -> SetScore:
        rank = None if ordered is None else 1 + int((ordered > ordered[place]).sum())
        return SetScore(subsets.layers(place), float(values[place]), tested(place), rank)

    order = best_first(values, top).tolist()
    best, baseline = score(order[0]), score(subsets.last)

    def gain_over(other: SetScore) -> Gain:
        ours = best.search if best.held_out is None else best.held_out
        theirs = other.search if other.held_out is None else other.held_out
        masks = layer_mask(best.layers), layer_mask(other.layers)
        low, high = bootstrap_gain(held_out or search, *masks, resamples, seed)
        return Gain(held_out is not None, ours, theirs, ours - theirs, low, high, resamples)

    others = []
    for name, layers in _baselines(subsets.hidden_states, len(best.layers), seed).items():
        mask = np.array([layer_mask(layers)])
        value = None if held_out is None else float(held_out.values(mask)[0])
        rank = None
        if ordered is not None and value is not None:
            rank = 1 + int((ordered > comparable(np.array(value))).sum())
        other = SetScore(layers, float(search.values(mask)[0]), value, rank)
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
        sizes=size_effects(subsets, values, tested),
        layers=layer_effects(subsets, values, tested),
    )


def _cost(task: Task) -> int:
    """Of the cosines under one set, in cosines from products between layers."""
    return task.grams.pairs * (_FUSED_COST if isinstance(task.grams, FusedPairs) else 1)


def _baselines(hidden_states: int, size: int, seed: int | list[int]) -> dict[str, tuple[int, ...]]:
    """The layers of each further baseline."""
    drawn = np.random.default_rng([*np.atleast_1d(seed).tolist(), 4])
    random = drawn.choice(hidden_states, size, replace=False)
    return {
        "last 4 layers": tuple(range(max(hidden_states - 4, 0), hidden_states)),
        "random layers": tuple(sorted(random.tolist())),
    }


def bootstrap_gain(
    task: Task, best: int, baseline: int, resamples: int, seed: int | list[int]
) -> tuple[float, float]:
    """The 95% interval of the objective of one set minus that of another.

    Pairs or questions are drawn with replacement, the same for both sets, and the objective is
    recomputed on each draw; see `percentile_interval`. Of one question it is the whole range.

    Args:
        task: the pairs or questions.
        best: bit mask of the one set.
        baseline: bit mask of the other.
        resamples: number of draws, at least 1.
        seed: of the draws.
    """
    units = task.objective.units
    if units == 1:
        return -1.0, 1.0
    cosines = task.grams.cosines(np.array([best, baseline]))
    random = np.random.default_rng(seed)
    gains = []
    for weights in resampling_weights(units, resamples, random):
        values = task.objective.resampled(cosines, weights)
        gains.append(values[:, 0] - values[:, 1])
    return percentile_interval(np.concatenate(gains), units)
