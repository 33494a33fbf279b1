"""Which layers to take, and what that is worth on data that had no part in the choice.

Either the search data and the held-out data are given, or both are drawn from one heap of pairs as
in Hosseini et al. 2023: shuffle, choose on the first 350 pairs, test on the rest, five times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.layers.bootstrap import bootstrap_gain
from eval.layers.effects import (
    HeldOut,
    LayerEffect,
    SizeEffect,
    layer_effects,
    mean_layer_effects,
    mean_size_effects,
    size_effects,
)
from eval.layers.search import Task, best_first, comparable, search_layers
from eval.layers.subsets import LayerSubsets
from eval.metrics.correlation import Correlation
from retriever.errors import ConfigError

Stage = Callable[[str, int], Callable[[int], None]]

# Every set is tried on the held-out data too, to rank the chosen one, up to so many cosines.
_RANKED_COSINES = 10**9


@dataclass(frozen=True, slots=True)
class Settings:
    """What a report holds.

    Attributes:
        top: how many of the best sets.
        resamples: of the bootstrap.
        seed: of the bootstrap, and of the shuffles of the paper's protocol.
    """

    top: int = 10
    resamples: int = 1000
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SetScore:
    """One set of layers.

    Attributes:
        layers: ascending.
        search: its objective on the search data.
        held_out: its objective on the held-out data, if there is any.
        held_out_rank: 1 + how many sets have a higher objective there; None where not all were
            tried.
    """

    layers: tuple[int, ...]
    search: float
    held_out: float | None
    held_out_rank: int | None


@dataclass(frozen=True, slots=True)
class Gain:
    """The best set against the last layer.

    Attributes:
        held_out: whether on data that had no part in the choice; if not, the gain is optimistic.
        best, baseline: the objectives of the two.
        gain: their difference.
        low, high: its 95% interval, from percentiles of a paired bootstrap over the units.
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
class LayerReport:
    """One search.

    Attributes:
        search_units, held_out_units: how many pairs or questions.
        subsets: how many sets were tried.
        best: of the search data; ties go to fewer layers, then to the smaller bit mask.
        baseline: the last layer alone.
        top: the best sets, best first.
        gain: on the held-out data, or on the search data where there is none.
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
    sizes: tuple[SizeEffect, ...]
    layers: tuple[LayerEffect, ...]


@dataclass(frozen=True, slots=True)
class ShuffledReport:
    """The paper's protocol: a search for each shuffle, and what they have in common.

    Attributes:
        shuffles: one report each.
        wins: the sets that were best in a shuffle and how often, most often first.
        best: by the mean objective over the shuffles' search data. What one shuffle searches on,
            another tests on, so it has no held-out objective.
        baseline, top: by the same mean.
        sizes, layers: means over the shuffles.
        test_best, test_baseline: mean over shuffles of the held-out objective of each one's best
            set, and of the last layer: what the paper reports.
        gain, gain_spread: mean and standard deviation (n - 1; 0 for one shuffle) of the held-out
            gains.
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


def _no_stage(name: str, total: int) -> Callable[[int], None]:
    return lambda done: None


def search_given(
    search: Task,
    held_out: Task | None,
    subsets: LayerSubsets,
    settings: Settings,
    stage: Stage = _no_stage,
) -> LayerReport:
    """Choose layers on one task and test them on another.

    Args:
        search: what the choice is made on.
        held_out: what it is tested on; None where there is nothing.
        subsets: the sets to try.
        settings: what to report.
        stage: called with the name and the number of steps of each part; what it returns is
            called with the steps done.
    """
    values = search_layers(search, subsets, stage("searching", len(subsets)))
    return _report(search, held_out, subsets, values, settings, settings.seed, stage)


def search_shuffled(
    everything: Task,
    subsets: LayerSubsets,
    settings: Settings,
    dev_size: int = 350,
    shuffles: int = 5,
    stage: Stage = _no_stage,
) -> ShuffledReport:
    """The protocol of the paper's STS tables.

    Args:
        everything: all pairs; its objective is a `Correlation`.
        subsets: the sets to try.
        settings: what to report.
        dev_size: pairs to choose on, at least 2, leaving at least 2.
        shuffles: how often, at least 1.
        stage: as for `search_given`.

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
        order = np.random.default_rng([settings.seed, shuffle]).permutation(grams.pairs)
        sides = (order[:dev_size], order[dev_size:])
        search, held_out = (Task(grams.take(side), objective.take(side)) for side in sides)
        label = f"shuffle {shuffle + 1} of {shuffles}"
        values = search_layers(search, subsets, stage(label, len(subsets)))
        seed = [settings.seed, shuffle, 1]
        reports.append(_report(search, held_out, subsets, values, settings, seed, stage))
        total += values
    mean = total / shuffles
    gains = [report.gain for report in reports]
    wins = Counter(report.best.layers for report in reports)
    top = tuple(
        SetScore(subsets.layers(place), float(mean[place]), None, None)
        for place in best_first(mean, settings.top)
    )
    return ShuffledReport(
        shuffles=tuple(reports),
        wins=tuple(wins.most_common()),
        best=top[0],
        baseline=SetScore(subsets.layers(subsets.last), float(mean[subsets.last]), None, None),
        top=top,
        sizes=mean_size_effects([report.sizes for report in reports]),
        layers=mean_layer_effects([report.layers for report in reports]),
        test_best=float(np.mean([gain.best for gain in gains])),
        test_baseline=float(np.mean([gain.baseline for gain in gains])),
        gain=float(np.mean([gain.gain for gain in gains])),
        gain_spread=float(np.std([gain.gain for gain in gains], ddof=1)) if shuffles > 1 else 0.0,
    )


def check_division(pairs: int, dev_size: int) -> None:
    """Refuse a division of so many pairs that leaves fewer than two on one side.

    Raises:
        ConfigError: it does; the message names the valid range.
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
    settings: Settings,
    seed: int | list[int],
    stage: Stage,
) -> LayerReport:
    everywhere = None
    if held_out is not None and len(subsets) * held_out.grams.pairs <= _RANKED_COSINES:
        done = stage("ranking held-out", len(subsets))
        everywhere = search_layers(held_out, subsets, done)
    ordered = None if everywhere is None else comparable(everywhere)
    tested = HeldOut(held_out, subsets, everywhere)

    def score(place: int) -> SetScore:
        rank = None if ordered is None else 1 + int((ordered > ordered[place]).sum())
        return SetScore(subsets.layers(place), float(values[place]), tested(place), rank)

    order = best_first(values, settings.top).tolist()
    best, baseline = score(order[0]), score(subsets.last)
    judge = held_out or search
    ours = best.search if best.held_out is None else best.held_out
    theirs = baseline.search if baseline.held_out is None else baseline.held_out
    masks = int(subsets.masks[order[0]]), int(subsets.masks[subsets.last])
    low, high = bootstrap_gain(judge, *masks, settings.resamples, seed)
    return LayerReport(
        search_units=search.objective.units,
        held_out_units=None if held_out is None else held_out.objective.units,
        subsets=len(subsets),
        best=best,
        baseline=baseline,
        top=tuple(map(score, order)),
        gain=Gain(held_out is not None, ours, theirs, ours - theirs, low, high, settings.resamples),
        sizes=size_effects(subsets, values, tested),
        layers=layer_effects(subsets, values, tested),
    )
