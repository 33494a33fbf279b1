"""Scoring encoders on tests of semantic textual similarity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from eval.datasets.pairs import contained, joined_pairs
from eval.datasets.sts import STSTask, read_sts
from eval.metrics.correlation import CorrelationName, Correlations
from eval.metrics.significance import Resampling
from eval.progress import Done, Progress, silent
from eval.sentences.aggregation import STSScore, sts_correlations, sts_texts
from eval.sentences.comparison import Part, compare_correlations
from eval.sentences.experiment import Value, check_baseline, load_sets, score_states
from eval.sentences.result import EncoderScore, LayerGrid, SentenceResult, SetScores
from eval.sentences.supervised import RelatednessScore, RelatednessSettings, score_relatedness
from eval.vectors import (
    LayerEncoders,
    Loading,
    SentenceEncoders,
    TextVectors,
    fitted_remark,
    named_encoders,
)
from retriever.encoders.settings import Pooling
from retriever.errors import BadInputError, ConfigError

Floats = NDArray[np.float64]
Aggregation = Literal["all", "mean", "wmean"]
STS_MEASURES: tuple[CorrelationName, ...] = ("spearman", "pearson")
AGGREGATIONS: dict[Aggregation, str] = {
    "all": "the pairs of all parts of a test as one list",
    "mean": "the mean over the parts of a test",
    "wmean": "the mean over the parts of a test, weighted by their pairs",
}


@dataclass(frozen=True, slots=True)
class STSSettings:
    """How tests of similarity are scored.

    Attributes:
        aggregation: how the parts of a test become one number, see `eval.sentences.aggregation`.
        supervised: how a softmax layer is trained over the vectors, with a test as one list; None
            correlates cosines.
        poolings: score every hidden state of each encoder's model with these poolings, instead of
            the encoder's own vectors; empty scores the encoders.
        baseline: the encoder that the others are compared with; None takes the first.
        resampling: of intervals and p-values.
        loading: where models come from, and where vectors are cached.

    Raises:
        ConfigError: the aggregation is unknown, or settings contradict each other.
    """

    aggregation: Aggregation = "all"
    supervised: RelatednessSettings | None = None
    poolings: tuple[Pooling, ...] = ()
    baseline: str | None = None
    resampling: Resampling = field(default_factory=Resampling)
    loading: Loading = field(default_factory=Loading)

    def __post_init__(self) -> None:
        if self.aggregation not in AGGREGATIONS:
            raise ConfigError(
                f"aggregation: expected {', '.join(AGGREGATIONS)}, found {self.aggregation!r}"
            )
        if self.supervised is not None and self.aggregation != "all":
            raise ConfigError(
                f"aggregation: found {self.aggregation}, but the supervised protocol takes all "
                "pairs of a test as one list; leave it out"
            )
        if self.poolings and self.baseline is not None:
            raise ConfigError(
                "baseline: it compares encoders, but every hidden state is scored; leave it out"
            )


def score_sts(
    tests: Sequence[str | Path | STSTask],
    encoders: Sequence[str],
    settings: STSSettings | None = None,
    *,
    progress: Progress = silent,
    command: str = "",
) -> SentenceResult:
    """Correlate the similarity of two sentences under encoders with human scores.

    Args:
        tests: folders or files, see `read_sts`, or tests that are loaded; at least one.
        encoders: text forms; those that are fitted are fitted on the texts of each test's pairs.
        settings: how they are scored; None takes the defaults.
        progress: of long stages.
        command: reproduces the result, for its report.

    Raises:
        ConfigError: an encoder or the baseline is unknown, two tests have the same name, or all
            pairs of one are in another.
        SourceError: a test cannot be read.
        BadInputError: a part of a test has fewer than two pairs or gold scores that are all equal,
            or the supervised protocol lacks training or dev pairs.
        TypeError: one string instead of several.
        What `Encoder.load` raises.
    """
    settings = settings or STSSettings()
    names = named_encoders(encoders)
    tasks = load_sets("tests", tests, read_sts)
    twice = contained([joined_pairs([part.pairs for part in task.subsets]) for task in tasks])
    if twice is not None:
        one, other = (tasks[place].name for place in twice)
        raise ConfigError(f"{one}: all of its pairs are in {other} too; name each pair once")
    for task in tasks:
        check_sts(task, settings)
    sets: list[SetScores] = []
    grids: list[LayerGrid] = []
    baseline = None
    if settings.poolings:
        layers = LayerEncoders(names, settings.poolings, settings.loading)
        grids = [grid for task in tasks for grid in _grids(task, layers, settings, progress)]
    else:
        baseline = check_baseline(settings.baseline, names)
        loaded = SentenceEncoders(names, settings.loading)
        sets = [_set(task, loaded, settings, baseline, progress) for task in tasks]
    return SentenceResult(
        kind="sts",
        title=f"Semantic textual similarity: {', '.join(task.name for task in tasks)}",
        settings=_facts_of(settings),
        remarks=(
            _protocol(settings),
            *fitted_remark(names, "the texts of its test pairs, without scores"),
        ),
        measures=STS_MEASURES,
        sets=tuple(sets),
        grids=tuple(grids),
        baseline=baseline,
        device=settings.loading.device,
        command=command,
    )


def check_sts(task: STSTask, settings: STSSettings) -> None:
    """Refuse a test that cannot be scored, before anything is encoded.

    Raises:
        BadInputError: see `score_sts`.
    """
    texts = sts_texts(task)
    sts_correlations(task, TextVectors(texts, np.zeros((len(texts), 1), np.float32)))
    if settings.supervised is not None and (task.train is None or task.dev is None):
        lacking = "training" if task.train is None else "dev"
        raise BadInputError(
            f"{task.name}: the supervised protocol needs training, dev and test pairs; found no "
            f"{lacking} pairs; leave out the set or --supervised"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """One encoder on a test."""

    score: STSScore | RelatednessScore
    cut: int

    @property
    def predictions(self) -> Floats:
        """(seeds, pairs) cosines, or predicted scores."""
        one = self.score
        return one.cosines[None] if isinstance(one, STSScore) else one.predictions

    def value(self, measure: CorrelationName, settings: STSSettings) -> Value:
        """The correlation, and its standard deviation over the seeds."""
        one = self.score
        if isinstance(one, STSScore):
            aggregated: Correlations = getattr(one, settings.aggregation)
            return getattr(aggregated, measure), None
        spread: float | None = None if one.spread is None else getattr(one.spread, measure)
        return getattr(one.mean, measure), spread


def _set(
    task: STSTask,
    encoders: SentenceEncoders,
    settings: STSSettings,
    baseline: str,
    progress: Progress,
) -> SetScores:
    """Every encoder on one test."""
    texts = sts_texts(task, supervised=settings.supervised is not None)
    done = progress(f"{task.name}: vectors", len(texts) * len(encoders.names))
    scored: Done | None = None
    found: dict[str, _Found] = {}
    for one in encoders.vectors(texts, sts_texts(task), done):
        scored = scored or progress(f"{task.name}: scores", len(encoders.names))
        found[one.name] = _Found(_score(task, one.vectors, settings), one.cut)
        scored(1)
    parts, resampling = _parts(task, settings), settings.resampling
    done = progress(
        f"{task.name}: resamples", resampling.resamples * len(parts) * len(STS_MEASURES)
    )
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


def _grids(
    task: STSTask, layers: LayerEncoders, settings: STSSettings, progress: Progress
) -> Iterator[LayerGrid]:
    """Every hidden state and pooling on one test."""

    def score(vectors: TextVectors, done: Done) -> list[Value]:
        found = _Found(_score(task, vectors, settings), 0)
        done(1)
        return [found.value(measure, settings) for measure in STS_MEASURES]

    texts = sts_texts(task, supervised=settings.supervised is not None)
    return score_states(task.name, texts, layers, STS_MEASURES, score, ("scores", 1), progress)


def _score(
    task: STSTask, vectors: TextVectors, settings: STSSettings
) -> STSScore | RelatednessScore:
    if settings.supervised is None:
        return sts_correlations(task, vectors)
    return score_relatedness(task, vectors, settings.supervised)


def _parts(task: STSTask, settings: STSSettings) -> list[Part]:
    golds = [subset.pairs.gold for subset in task.subsets]
    if settings.supervised is not None or settings.aggregation == "all":
        return [Part(np.concatenate(golds), 1.0)]
    if settings.aggregation == "mean":
        return [Part(gold, 1 / len(golds)) for gold in golds]
    pairs = sum(map(len, golds))
    return [Part(gold, len(gold) / pairs) for gold in golds]


def _protocol(settings: STSSettings) -> str:
    if settings.supervised is not None:
        return (
            "correlations of the scores that a softmax layer over |u - v| and u * v predicts, "
            "trained on the set's training pairs (SentEval's supervised protocol); all pairs as "
            "one list"
        )
    name = settings.aggregation
    return f"correlations of cosines; aggregation {name}: {AGGREGATIONS[name]}"


def _facts_of(settings: STSSettings) -> dict[str, str]:
    facts = {"protocol": "cosine" if settings.supervised is None else "supervised (SentEval)"}
    if settings.supervised is None:
        facts["aggregation"] = f"{settings.aggregation}: {AGGREGATIONS[settings.aggregation]}"
    else:
        facts["seeds"] = f"{settings.supervised.seeds}"
    if not settings.poolings:
        resampling = settings.resampling
        facts["resamples"] = f"{resampling.resamples:,}, seed {resampling.seed}"
    return facts


def _facts(task: STSTask, settings: STSSettings) -> dict[str, str]:
    pairs = sum(len(subset.pairs) for subset in task.subsets)
    facts = {"pairs": f"{pairs:,}"}
    if len(task.subsets) > 1:
        listed = (f"{subset.name} {len(subset.pairs):,}" for subset in task.subsets)
        facts["parts"] = ", ".join(listed)
    if settings.supervised is not None and task.train and task.dev:
        facts["training pairs"] = f"{len(task.train):,}, and {len(task.dev):,} dev"
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
    """The parts of a test, if it has several."""
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
