"""What experiments on sets of sentences share: how encoders or hidden states are scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from eval.datasets.classification import ClassificationTask
from eval.datasets.pairs import STSTask
from eval.metrics.comparison import Difference, Score, Value, check_baseline, compare_values
from eval.metrics.correlation import Correlation, CorrelationName
from eval.metrics.significance import holm, percentile_interval, resampling_weights
from eval.progress import Done, Progress, ignore
from eval.sentences.result import EncoderScore, LayerGrid, SetScores
from eval.settings import Resampling, SentenceSettings
from eval.vectors import LayerEncoders, SentenceEncoders, TextVectors
from retriever.errors import ConfigError, require_several

Floats = NDArray[np.float64]

ACCURACY = "accuracy"
_CELLS_AT_ONCE = 2**20

S = TypeVar("S", STSTask, ClassificationTask)


class VectorScore(NamedTuple):
    """The vectors of one encoder on a set; all but two fields are as in `EncoderScore`."""

    values: Mapping[str, Value]
    # (seeds, examples); `tested` are the rows of the examples, if not all.
    predictions: Floats
    extra: Mapping[str, float]
    details: dict[str, Any]
    note: str = ""
    tested: NDArray[np.int64] | None = None
    cut: int = 0


Compared = Mapping[str, Mapping[str, Score]]
"""Measure to encoder to its score beside the baseline."""


@dataclass(frozen=True, slots=True)
class ScoredSet:
    """A set of sentences and how encoders are scored on it."""

    name: str
    measures: tuple[str, ...]
    # Distinct texts, and those that fitted encoders are fitted on.
    texts: list[str]
    fit_on: list[str]
    # What scoring is called, and the number of its steps for one encoder.
    stage: tuple[str, int]
    score: Callable[[TextVectors, Done], VectorScore]
    compare: Callable[[Mapping[str, VectorScore], str, Progress], Compared]
    # The facts of the set, and the columns of the rows that were tested.
    describe: Callable[[Any], tuple[dict[str, str], Mapping[str, Sequence[object]]]]


def load_sets(argument: str, given: Sequence[str | Path | S], read: Callable[[Path], S]) -> list[S]:
    """The sets of an experiment: paths are read, loaded sets are taken as they are."""
    require_several(argument, given)
    sets = [read(Path(one)) if isinstance(one, str | Path) else one for one in given]
    names = [one.name for one in sets]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two data sets are called {name}: name each once, or rename one of the folders"
            )
    return sets


def score_sets(
    sets: Sequence[ScoredSet], names: Sequence[str], settings: SentenceSettings, progress: Progress
) -> tuple[tuple[SetScores, ...], tuple[LayerGrid, ...], str | None]:
    """The scores of encoders and their baseline, or the grids of hidden states."""
    if settings.poolings:
        layers = LayerEncoders(names, settings.poolings, settings.loading)
        return (), tuple(grid for one in sets for grid in _grids(one, layers, progress)), None
    baseline = check_baseline(settings.baseline, names, "encoders")
    encoders = SentenceEncoders(names, settings.loading)
    return tuple(_set_scores(one, encoders, baseline, progress) for one in sets), (), baseline


def _set_scores(
    of: ScoredSet, encoders: SentenceEncoders, baseline: str, progress: Progress
) -> SetScores:
    done = progress(f"{of.name}: vectors", len(of.texts) * len(encoders.names))
    scored: Done | None = None
    scores: dict[str, VectorScore] = {}
    vectors = encoders.vectors(of.texts, of.fit_on, done)
    for name, one in zip(encoders.names, vectors, strict=True):
        scored = scored or progress(f"{of.name}: {of.stage[0]}", of.stage[1] * len(encoders.names))
        scores[name] = of.score(one, scored)._replace(cut=one.cut)
    values = of.compare(scores, baseline, progress)
    facts, examples = of.describe(next(iter(scores.values())).tested)
    return SetScores(of.name, facts, len(of.texts), examples, encoder_scores(scores, values))


def encoder_scores(scores: Mapping[str, VectorScore], values: Compared) -> tuple[EncoderScore, ...]:
    """What a result says of each encoder; `values` are by measure."""
    return tuple(
        EncoderScore(
            encoder=name,
            cut=one.cut,
            values={measure: by_encoder[name] for measure, by_encoder in values.items()},
            extra=one.extra,
            note=one.note,
            details=one.details,
            examples=one.predictions.mean(axis=0),
        )
        for name, one in scores.items()
    )


def _grids(of: ScoredSet, layers: LayerEncoders, progress: Progress) -> Iterator[LayerGrid]:
    """A grid of hidden states and poolings for each model and measure."""
    texts = of.texts
    done = progress(f"{of.name}: vectors", len(texts) * len(layers.names) * len(layers.poolings))
    states_in_all = sum(layers.depth(model) + 1 for model in layers.names) * len(layers.poolings)
    scored: Done | None = None
    columns: dict[str, list[list[list[Value]]]] = {model: [] for model in layers.names}
    cut: dict[str, int] = {}
    vectors = layers.vectors(texts, done=done)
    for (model, _), found in zip(product(layers.names, layers.poolings), vectors, strict=True):
        scored = scored or progress(f"{of.name}: {of.stage[0]}", of.stage[1] * states_in_all)
        column = []
        for layer in range(found.vectors.shape[1]):
            values = of.score(TextVectors(texts, found.vectors[:, layer]), scored).values
            column.append([values[measure] for measure in of.measures])
        columns[model].append(column)
        cut[model] = found.cut
    for model, by_pooling in columns.items():
        # (value and spread, measures, states, poolings); a spread of None becomes NaN.
        cells = np.array(by_pooling, np.float64).T
        for place, measure in enumerate(of.measures):
            values, spread = cells[:, place]
            yield LayerGrid(
                name=of.name,
                encoder=model,
                measure=measure,
                poolings=layers.poolings,
                values=values,
                spread=None if np.isnan(spread).any() else spread,
                cut=cut[model],
                texts=len(texts),
            )


class Part(NamedTuple):
    """Gold scores of pairs that are correlated separately; the weights of all parts sum to 1."""

    gold: Floats
    weight: float


def compare_correlations(
    parts: Sequence[Part],
    scores: Mapping[str, VectorScore],
    name: CorrelationName,
    baseline: str,
    resampling: Resampling,
    done: Done = ignore,
) -> dict[str, Score]:
    """The correlations of encoders with intervals, and their differences from a baseline.

    Pairs are drawn within each part, the same for all encoders; p of a difference is (1 + 2 m) /
    (1 + resamples), where m draws are on the rarer side of 0.
    """
    rows = np.concatenate([one.predictions for one in scores.values()])
    owners = np.repeat(np.arange(len(scores)), [len(one.predictions) for one in scores.values()])
    pairs = rows.shape[1]
    drawn = np.zeros((resampling.resamples, len(rows)))
    random = np.random.default_rng(resampling.seed)
    start = 0
    for gold, weight in parts:
        columns = rows[:, start : start + len(gold)]
        objective = Correlation(gold, name)
        first = 0
        for weights in resampling_weights(len(gold), len(drawn), random, _CELLS_AT_ONCE):
            last = first + len(weights)
            drawn[first:last] += weight * objective.resampled(columns, weights)
            done(len(weights))
            first = last
        start += len(gold)
    means = {one: drawn[:, owners == place].mean(axis=1) for place, one in enumerate(scores)}
    differences = {
        encoder: one - means[baseline] for encoder, one in means.items() if encoder != baseline
    }
    rarer = [min((one <= 0).sum(), (one >= 0).sum()) for one in differences.values()]
    p_values = [min(1.0, (1 + 2 * int(count)) / (1 + len(drawn))) for count in rarer]
    tested = dict(zip(differences, zip(p_values, holm(p_values), strict=True), strict=True))
    found = {}
    for encoder, one in scores.items():
        value, spread = one.values[name]
        difference = None
        if encoder in differences:
            interval = percentile_interval(differences[encoder], pairs)
            moved = value - scores[baseline].values[name][0]
            difference = Difference(moved, *interval, *tested[encoder])
        interval = percentile_interval(means[encoder], pairs)
        found[encoder] = Score(value, spread, *interval, difference)
    return found


def compare_accuracies(
    scores: Mapping[str, VectorScore], baseline: str, resampling: Resampling
) -> dict[str, Score]:
    """The accuracies of encoders with intervals, and their differences from a baseline.

    p is that of the randomization test over the share of right tests of each example: McNemar's
    exact test where each is tested once. Intervals count each example once, accuracies each test.
    """
    correct = {name: one.predictions[0] for name, one in scores.items()}
    found = compare_values(correct, baseline, resampling)
    for name, one in scores.items():
        value, spread = one.values[ACCURACY]
        found[name] = replace(found[name], value=value, spread=spread)
    return found
