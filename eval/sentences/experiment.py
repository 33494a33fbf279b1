"""Scoring of encoders, or of hidden states, on sets of sentences."""

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
# Numbers in an array of resamples: 8 MiB of float64.
_CELLS_AT_ONCE = 2**20

S = TypeVar("S", STSTask, ClassificationTask)


class VectorScore(NamedTuple):
    """The scores of one encoder's vectors on a set; see `EncoderScore` for most fields.

    Attributes:
        predictions: (seeds, examples).
        tested: rows of the examples in the set; None for all.
    """

    values: Mapping[str, Value]
    predictions: Floats
    extra: Mapping[str, float]
    details: dict[str, Any]
    note: str = ""
    tested: NDArray[np.int64] | None = None
    cut: int = 0


ScoresByMeasure = Mapping[str, Mapping[str, Score]]
"""Measure to encoder to its score and its difference from the baseline."""


@dataclass(frozen=True, slots=True)
class ScoredSet:
    """A set of sentences and the functions that score encoders on it.

    Attributes:
        texts: distinct texts.
        fit_on: texts to fit encoders on that need a fit.
        stage: name of the scoring, and its number of steps for one encoder.
        score: scores the vectors of one encoder.
        compare: compares the scores of encoders with a baseline.
        describe: returns the facts of the set, and columns of the tested rows.
    """

    name: str
    measures: tuple[str, ...]
    texts: list[str]
    fit_on: list[str]
    stage: tuple[str, int]
    score: Callable[[TextVectors, Done], VectorScore]
    compare: Callable[[Mapping[str, VectorScore], str, Progress], ScoresByMeasure]
    describe: Callable[[Any], tuple[dict[str, str], Mapping[str, Sequence[object]]]]


def load_sets(
    argument: str, sources: Sequence[str | Path | S], read: Callable[[Path], S]
) -> list[S]:
    """Return the sets of an experiment: paths are read, loaded sets are used as they are.

    Raises:
        ConfigError: two sets have the same name.
    """
    require_several(argument, sources)
    sets = [read(Path(source)) if isinstance(source, str | Path) else source for source in sources]
    names = [source.name for source in sets]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two data sets are called {name}: name each once, or rename one of the folders"
            )
    return sets


def score_sets(
    sets: Sequence[ScoredSet], names: Sequence[str], settings: SentenceSettings, progress: Progress
) -> tuple[tuple[SetScores, ...], tuple[LayerGrid, ...], str | None]:
    """Return the scores of encoders and their baseline, or the grids of hidden states."""
    if settings.poolings:
        layers = LayerEncoders(names, settings.poolings, settings.loading)
        return (
            (),
            tuple(
                grid for scored_set in sets for grid in _layer_grids(scored_set, layers, progress)
            ),
            None,
        )
    baseline = check_baseline(settings.baseline, names, "encoders")
    encoders = SentenceEncoders(names, settings.loading)
    return (
        tuple(_set_scores(scored_set, encoders, baseline, progress) for scored_set in sets),
        (),
        baseline,
    )


def _set_scores(
    scored_set: ScoredSet, encoders: SentenceEncoders, baseline: str, progress: Progress
) -> SetScores:
    done = progress(f"{scored_set.name}: vectors", len(scored_set.texts) * len(encoders.names))
    done_steps: Done | None = None
    scores: dict[str, VectorScore] = {}
    vectors = encoders.vectors(scored_set.texts, scored_set.fit_on, done)
    for name, text_vectors in zip(encoders.names, vectors, strict=True):
        done_steps = done_steps or progress(
            f"{scored_set.name}: {scored_set.stage[0]}", scored_set.stage[1] * len(encoders.names)
        )
        scores[name] = scored_set.score(text_vectors, done_steps)._replace(cut=text_vectors.cut)
    values = scored_set.compare(scores, baseline, progress)
    facts, examples = scored_set.describe(next(iter(scores.values())).tested)
    return SetScores(
        scored_set.name, facts, len(scored_set.texts), examples, encoder_scores(scores, values)
    )


def encoder_scores(
    scores: Mapping[str, VectorScore], values: ScoresByMeasure
) -> tuple[EncoderScore, ...]:
    """Join the scores of each encoder with its comparison by measure, `values`."""
    return tuple(
        EncoderScore(
            encoder=name,
            cut=score.cut,
            values={measure: by_encoder[name] for measure, by_encoder in values.items()},
            extra=score.extra,
            note=score.note,
            details=score.details,
            examples=score.predictions.mean(axis=0),
        )
        for name, score in scores.items()
    )


def _layer_grids(
    scored_set: ScoredSet, layers: LayerEncoders, progress: Progress
) -> Iterator[LayerGrid]:
    """Yield a grid of hidden states and poolings for each model and measure."""
    texts = scored_set.texts
    done = progress(
        f"{scored_set.name}: vectors", len(texts) * len(layers.names) * len(layers.poolings)
    )
    states_in_all = sum(layers.depth(model) + 1 for model in layers.names) * len(layers.poolings)
    done_steps: Done | None = None
    columns: dict[str, list[list[list[Value]]]] = {model: [] for model in layers.names}
    cut: dict[str, int] = {}
    vectors = layers.vectors(texts, done=done)
    for (model, _), state_vectors in zip(
        product(layers.names, layers.poolings), vectors, strict=True
    ):
        done_steps = done_steps or progress(
            f"{scored_set.name}: {scored_set.stage[0]}", scored_set.stage[1] * states_in_all
        )
        column = []
        for layer in range(state_vectors.vectors.shape[1]):
            values = scored_set.score(
                TextVectors(texts, state_vectors.vectors[:, layer]), done_steps
            ).values
            column.append([values[measure] for measure in scored_set.measures])
        columns[model].append(column)
        cut[model] = state_vectors.cut
    for model, by_pooling in columns.items():
        # (value and spread, measures, states, poolings); a spread of None becomes NaN.
        cells = np.array(by_pooling, np.float64).T
        for place, measure in enumerate(scored_set.measures):
            values, spread = cells[:, place]
            yield LayerGrid(
                name=scored_set.name,
                encoder=model,
                measure=measure,
                poolings=layers.poolings,
                values=values,
                spread=None if np.isnan(spread).any() else spread,
                cut=cut[model],
                texts=len(texts),
            )


class CorrelatedPart(NamedTuple):
    """Gold scores of pairs that are correlated separately; the weights of all parts sum to 1."""

    gold: Floats
    weight: float


def compare_correlations(
    parts: Sequence[CorrelatedPart],
    scores: Mapping[str, VectorScore],
    name: CorrelationName,
    baseline: str,
    resampling: Resampling,
    done: Done = ignore,
) -> dict[str, Score]:
    """Return the correlations of encoders with intervals and differences from a baseline.

    Pairs are drawn within each part, the same for all encoders. The p-value of a difference is
    (1 + 2 m) / (1 + resamples), where m resamples lie on the rarer side of 0.
    """
    rows = np.concatenate([score.predictions for score in scores.values()])
    owners = np.repeat(
        np.arange(len(scores)), [len(score.predictions) for score in scores.values()]
    )
    pairs = rows.shape[1]
    resampled = _resampled_correlations(parts, rows, name, resampling, done)
    means = {
        encoder: resampled[:, owners == place].mean(axis=1) for place, encoder in enumerate(scores)
    }
    differences = {
        encoder: values - means[baseline]
        for encoder, values in means.items()
        if encoder != baseline
    }
    rarer = [min((gains <= 0).sum(), (gains >= 0).sum()) for gains in differences.values()]
    p_values = [min(1.0, (1 + 2 * int(count)) / (1 + len(resampled))) for count in rarer]
    tested = dict(zip(differences, zip(p_values, holm(p_values), strict=True), strict=True))
    compared = {}
    for encoder, score in scores.items():
        value, spread = score.values[name]
        difference = None
        if encoder in differences:
            interval = percentile_interval(differences[encoder], pairs)
            gain = value - scores[baseline].values[name][0]
            difference = Difference(gain, *interval, *tested[encoder])
        interval = percentile_interval(means[encoder], pairs)
        compared[encoder] = Score(value, spread, *interval, difference)
    return compared


def _resampled_correlations(
    parts: Sequence[CorrelatedPart],
    rows: Floats,
    name: CorrelationName,
    resampling: Resampling,
    done: Done,
) -> Floats:
    """Return (resamples, rows) weighted means of the correlations of parts, for (rows, pairs)."""
    resampled = np.zeros((resampling.resamples, len(rows)))
    random = np.random.default_rng(resampling.seed)
    start = 0
    for gold, weight in parts:
        columns = rows[:, start : start + len(gold)]
        objective = Correlation(gold, name)
        first = 0
        for weights in resampling_weights(len(gold), len(resampled), random, _CELLS_AT_ONCE):
            last = first + len(weights)
            resampled[first:last] += weight * objective.resampled(columns, weights)
            done(len(weights))
            first = last
        start += len(gold)
    return resampled


def compare_accuracies(
    scores: Mapping[str, VectorScore], baseline: str, resampling: Resampling
) -> dict[str, Score]:
    """Return the accuracies of encoders with intervals and differences from a baseline.

    The randomization test runs over the share of correct tests of each example. Where each example
    is tested once, this is McNemar's exact test. Intervals count each example once, accuracies
    count each test.
    """
    correct = {name: score.predictions[0] for name, score in scores.items()}
    compared = compare_values(correct, baseline, resampling)
    for name, score in scores.items():
        value, spread = score.values[ACCURACY]
        compared[name] = replace(compared[name], value=value, spread=spread)
    return compared
