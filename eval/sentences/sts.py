"""Many encoders on tests of similarity: the correlations of each, and how sure they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from eval.datasets.sentences.tasks import STSTask
from eval.metrics.correlation import CorrelationName, Correlations
from eval.sentences.aggregation import STSScore, sts_correlations, sts_texts
from eval.sentences.comparison import Part, Resampling, compare_correlations
from eval.sentences.result import EncoderScore, LayerGrid, SetScores, layer_grid
from eval.sentences.supervised import RelatednessScore, RelatednessSettings, score_relatedness
from eval.vectors.embedding import TextVectors
from eval.vectors.encoders import LayerEncoders, SentenceEncoders, SentenceVectors
from retriever.errors import BadInputError

Floats = NDArray[np.float64]
Aggregation = Literal["all", "mean", "wmean"]
Stage = Callable[[str, int], Callable[[int], object]]
STS_MEASURES: tuple[CorrelationName, ...] = ("spearman", "pearson")


@dataclass(frozen=True, slots=True)
class STSSettings:
    """How tests of similarity are scored.

    Attributes:
        aggregation: how the parts of a test become one number, see `eval.sentences.aggregation`.
        supervised: how a softmax layer is trained over the vectors; None correlates cosines. Then
            a test counts as one list.
    """

    aggregation: Aggregation = "all"
    supervised: RelatednessSettings | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """One encoder on a test."""

    score: STSScore | RelatednessScore
    cut: int

    @property
    def predictions(self) -> Floats:
        """(seeds, pairs) cosines, or the scores that were predicted."""
        one = self.score
        return one.cosines[None] if isinstance(one, STSScore) else one.predictions

    def value(self, measure: CorrelationName, settings: STSSettings) -> tuple[float, float | None]:
        """The correlation, and its standard deviation over the seeds."""
        one = self.score
        if isinstance(one, STSScore):
            summed: Correlations = getattr(one, settings.aggregation)
            return getattr(summed, measure), None
        spread: float | None = None if one.spread is None else getattr(one.spread, measure)
        return getattr(one.mean, measure), spread


def check_sts(task: STSTask, settings: STSSettings) -> None:
    """Refuse a test that cannot be scored, before anything is encoded.

    Raises:
        BadInputError: a part has fewer than two pairs, or gold scores that are all equal; the
            supervised protocol is asked for, and there is no training or dev part.
    """
    texts = sts_texts(task)
    sts_correlations(task, TextVectors(texts, np.zeros((len(texts), 1), np.float32)))
    if settings.supervised is not None and (task.train is None or task.dev is None):
        lacking = "training" if task.train is None else "dev"
        raise BadInputError(
            f"{task.name}: the supervised protocol needs training, dev and test pairs; found no "
            f"{lacking} pairs; leave out the set or --supervised"
        )


def score_sts_set(
    task: STSTask,
    encoders: SentenceEncoders,
    settings: STSSettings,
    baseline: str,
    resampling: Resampling,
    stage: Stage,
) -> SetScores:
    """Every encoder on one test.

    Args:
        task: the test.
        encoders: those that are to be fitted are fitted on the texts of the test pairs.
        settings: how to score.
        baseline: the encoder that others are compared with.
        resampling: how often pairs are drawn.
        stage: begins a part of the work, of so many steps.

    Raises:
        BadInputError: see `check_sts`.
    """
    texts = sts_texts(task, supervised=settings.supervised is not None)
    done = stage(f"{task.name}: vectors", len(texts) * len(encoders.names))
    scored: Callable[[int], object] | None = None
    found: dict[str, _Found] = {}
    for one in encoders.vectors(texts, sts_texts(task), done):
        scored = scored or stage(f"{task.name}: scores", len(encoders.names))
        found[one.name] = _Found(_score(task, one, settings), one.cut)
        scored(1)
    parts = _parts(task, settings)
    done = stage(f"{task.name}: resamples", resampling.resamples * len(parts) * len(STS_MEASURES))
    predictions = {name: one.predictions for name, one in found.items()}
    values = {
        measure: compare_correlations(
            parts,
            {name: one.value(measure, settings) for name, one in found.items()},
            predictions,
            measure,
            baseline,
            resampling,
            done,
        )
        for measure in STS_MEASURES
    }
    return SetScores(
        name=task.name,
        facts=_facts(task, settings),
        texts=len(texts),
        examples=_columns(task),
        scores=tuple(
            EncoderScore(
                encoder=name,
                cut=one.cut,
                values={measure: values[measure][name] for measure in STS_MEASURES},
                extra=_extra(one.score),
                note="",
                details=_details(one.score),
                examples=one.predictions.mean(axis=0),
            )
            for name, one in found.items()
        ),
    )


def sts_grids(
    task: STSTask, layers: LayerEncoders, settings: STSSettings, stage: Stage
) -> Iterator[LayerGrid]:
    """Every hidden state and pooling on one test: a grid for each model and measure."""
    texts = sts_texts(task, supervised=settings.supervised is not None)
    count = len(layers.names) * len(layers.poolings)
    done = stage(f"{task.name}: vectors", len(texts) * count)
    columns: dict[str, list[list[_Found]]] = {name: [] for name in layers.names}
    states_in_all = sum(layers.depth(name) + 1 for name in layers.names) * len(layers.poolings)
    scored: Callable[[int], object] | None = None
    for _, found in layers.vectors(texts, done):
        scored = scored or stage(f"{task.name}: scores", states_in_all)
        states = found.vectors.of(texts)
        column = []
        for layer in range(states.shape[1]):
            one = _layer(found, texts, states[:, layer])
            column.append(_Found(_score(task, one, settings), found.cut))
            scored(1)
        columns[found.name].append(column)
    for name, by_pooling in columns.items():
        for measure in STS_MEASURES:
            cells = [[one.value(measure, settings) for one in column] for column in by_pooling]
            yield layer_grid(
                task.name, name, measure, layers.poolings, cells, by_pooling[0][0].cut, len(texts)
            )


def _layer(
    found: SentenceVectors, texts: Sequence[str], states: NDArray[np.float32]
) -> SentenceVectors:
    return SentenceVectors(found.name, TextVectors(texts, states), found.cut)


def _score(
    task: STSTask, one: SentenceVectors, settings: STSSettings
) -> STSScore | RelatednessScore:
    if settings.supervised is None:
        return sts_correlations(task, one.vectors)
    return score_relatedness(task, one.vectors, settings.supervised)


def _parts(task: STSTask, settings: STSSettings) -> list[Part]:
    golds = [subset.pairs.gold for subset in task.subsets]
    if settings.supervised is not None or settings.aggregation == "all":
        return [Part(np.concatenate(golds), 1.0)]
    if settings.aggregation == "mean":
        return [Part(gold, 1 / len(golds)) for gold in golds]
    pairs = sum(map(len, golds))
    return [Part(gold, len(gold) / pairs) for gold in golds]


def _facts(task: STSTask, settings: STSSettings) -> dict[str, str]:
    pairs = sum(len(subset.pairs) for subset in task.subsets)
    facts = {"pairs": f"{pairs:,}"}
    if len(task.subsets) > 1:
        listed = (f"{subset.name} {len(subset.pairs):,}" for subset in task.subsets)
        facts["parts"] = ", ".join(listed)
    if settings.supervised is not None and task.train and task.dev:
        facts["pairs to train on"] = f"{len(task.train):,}, and {len(task.dev):,} dev"
    return facts


def _columns(task: STSTask) -> dict[str, Sequence[object]]:
    pairs = [(subset.name, subset.pairs) for subset in task.subsets]
    return {
        "part": [name for name, part in pairs for _ in part.left],
        "sentence1": [text for _, part in pairs for text in part.left],
        "sentence2": [text for _, part in pairs for text in part.right],
        "gold": [score for _, part in pairs for score in part.gold.tolist()],
    }


def _extra(score: STSScore | RelatednessScore) -> dict[str, float]:
    """The parts of a test, where it has several."""
    if isinstance(score, RelatednessScore) or len(score.subsets) < 2:
        return {}
    return {
        f"{subset.name} {measure}": getattr(subset.score, measure)
        for measure in STS_MEASURES
        for subset in score.subsets
    }


def _details(score: STSScore | RelatednessScore) -> dict[str, object]:
    if isinstance(score, RelatednessScore):
        seeds = [
            {**asdict(one), "dev_pearson": dev}
            for one, dev in zip(score.seeds, score.dev, strict=True)
        ]
        return {"seeds": seeds}
    return {
        "all": asdict(score.all),
        "mean": asdict(score.mean),
        "wmean": asdict(score.wmean),
        "parts": [
            {"name": one.name, "pairs": one.pairs, **asdict(one.score)} for one in score.subsets
        ],
    }
