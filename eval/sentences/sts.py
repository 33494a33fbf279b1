"""Scoring encoders on tests of semantic textual similarity.

Cosines are rounded to 1e-10, so that pairs of identical texts tie. sentence-transformers does not
round; its Spearman correlation may differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.datasets.pairs import ScoredPairs, STSTask, read_sts
from eval.metrics.correlation import CORRELATED_DECIMALS, CORRELATIONS, correlations, cosines
from eval.progress import Done, Progress, silent
from eval.sentences.experiment import (
    CorrelatedPart,
    ScoredSet,
    ScoresByMeasure,
    VectorScore,
    compare_correlations,
    load_sets,
    score_sets,
)
from eval.sentences.result import SentenceResult
from eval.sentences.supervised import score_relatedness, supervised_parts
from eval.settings import Aggregation, STSSettings
from eval.vectors import TextVectors, fitted_remark, named_encoders
from retriever.errors import BadInputError

Floats = NDArray[np.float64]
AGGREGATIONS: dict[Aggregation, str] = {
    "all": "the pairs of all parts of a test as one list",
    "mean": "the mean over the parts of a test",
    "wmean": "the mean over the parts of a test, weighted by their pairs",
}


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
        tests: folders or files, see `read_sts`, or loaded tests; at least one.
        encoders: text forms. Encoders that need a fit are fitted on the texts of each test's pairs.
        settings: aggregation, protocol and resampling.
        progress: shows the progress of each stage.
        command: reproduces the result, for the report.

    Raises:
        ConfigError: an encoder or the baseline is unknown, or two tests have the same name.
        SourceError: a test cannot be read.
        BadInputError: a part of a test has fewer than two pairs or gold scores that are all equal,
            or the supervised protocol lacks training or dev pairs.
        TypeError: one string instead of several.
        Exception: see `Encoder.load`.
    """
    settings = settings or STSSettings()
    names = named_encoders(encoders)
    tasks = load_sets("tests", tests, read_sts)
    for task in tasks:
        # Refuses an incomplete test before anything is encoded.
        texts = sts_texts(task)
        sts_correlations(task, TextVectors(texts, np.zeros((len(texts), 1), np.float32)))
        if settings.supervised is not None:
            supervised_parts(task)
    sets, grids, baseline = score_sets(
        [_make_scored_set(task, settings) for task in tasks], names, settings, progress
    )
    facts, protocol = _describe_protocol(settings)
    return SentenceResult(
        kind="sts",
        title=f"Semantic textual similarity: {', '.join(task.name for task in tasks)}",
        settings=facts,
        remarks=(protocol, *fitted_remark(names, "the texts of its test pairs, without scores")),
        measures=CORRELATIONS,
        sets=sets,
        grids=grids,
        baseline=baseline,
        device=settings.loading.device,
        command=command,
    )


def sts_texts(task: STSTask, *, supervised: bool = False) -> list[str]:
    """Return each distinct text of a test and, if `supervised`, of its training and dev pairs."""
    parts = [subset.pairs for subset in task.subsets]
    if supervised:
        parts += [part for part in (task.train, task.dev) if part is not None]
    return list(dict.fromkeys(text for part in parts for text in (*part.left, *part.right)))


def sts_correlations(
    task: STSTask, vectors: TextVectors, aggregation: Aggregation = "all"
) -> VectorScore:
    """Correlate cosines of pairs with their gold scores, for each part and for the whole test."""
    part_cosines = [pair_cosines(subset.pairs, vectors) for subset in task.subsets]
    parts: list[dict[str, Any]] = []
    for subset, scores in zip(task.subsets, part_cosines, strict=True):
        try:
            correlated = correlations(scores, subset.pairs.gold)
        except BadInputError as error:
            raise BadInputError(f"{task.name}, part {subset.name}: {error}") from error
        parts.append({"name": subset.name, "pairs": len(subset.pairs), **correlated})
    all_cosines = np.concatenate(part_cosines)
    sizes = [values["pairs"] for values in parts]
    by_measure = {measure: [values[measure] for values in parts] for measure in CORRELATIONS}
    aggregated: dict[str, dict[str, float]] = {
        "all": correlations(all_cosines, task.tested().gold),
        "mean": {name: float(np.mean(values)) for name, values in by_measure.items()},
        "wmean": {
            name: float(np.average(values, weights=sizes)) for name, values in by_measure.items()
        },
    }
    extra = {
        f"{values['name']} {measure}": values[measure]
        for measure in CORRELATIONS
        for values in parts
        if len(parts) > 1
    }
    return VectorScore(
        values={measure: (aggregated[aggregation][measure], None) for measure in CORRELATIONS},
        predictions=all_cosines[None],
        extra=extra,
        details={**aggregated, "parts": parts},
    )


def pair_cosines(pairs: ScoredPairs, vectors: TextVectors) -> Floats:
    """Return (pairs,) float64 cosines, rounded to 1e-10; 0 for a zero vector."""
    unrounded = cosines(vectors.of(pairs.left), vectors.of(pairs.right))
    rounded: Floats = np.round(unrounded, CORRELATED_DECIMALS)
    return rounded


def _make_scored_set(task: STSTask, settings: STSSettings) -> ScoredSet:
    def score(vectors: TextVectors, done: Done) -> VectorScore:
        if settings.supervised is None:
            scored = sts_correlations(task, vectors, settings.aggregation)
        else:
            scored = score_relatedness(task, vectors, settings.supervised)
        done(1)
        return scored

    def describe(_: None) -> tuple[dict[str, str], dict[str, Sequence[object]]]:
        pairs = [(part.name, len(part.pairs)) for part in task.subsets]
        all_pairs = task.tested()
        facts = {"pairs": f"{len(all_pairs):,}"}
        if len(pairs) > 1:
            facts["parts"] = ", ".join(f"{name} {count:,}" for name, count in pairs)
        if settings.supervised is not None and task.train and task.dev:
            facts["training pairs"] = f"{len(task.train):,}, and {len(task.dev):,} dev"
        return facts, {
            "part": [name for name, count in pairs for _ in range(count)],
            "sentence1": all_pairs.left,
            "sentence2": all_pairs.right,
            "gold": all_pairs.gold.tolist(),
        }

    texts = sts_texts(task, supervised=settings.supervised is not None)
    compare = partial(_compare_test, task, settings)
    return ScoredSet(
        task.name, CORRELATIONS, texts, sts_texts(task), ("scores", 1), score, compare, describe
    )


def _compare_test(
    task: STSTask,
    settings: STSSettings,
    scores: Mapping[str, VectorScore],
    baseline: str,
    progress: Progress,
) -> ScoresByMeasure:
    """Compare encoders by a bootstrap over the pairs of each part that is correlated."""
    golds = [subset.pairs.gold for subset in task.subsets]
    resampling = settings.resampling
    if settings.aggregation == "all":
        golds = [np.concatenate(golds)]
    weights = [1 if settings.aggregation == "mean" else len(gold) for gold in golds]
    parts = [
        CorrelatedPart(gold, weight / sum(weights))
        for gold, weight in zip(golds, weights, strict=True)
    ]
    steps = resampling.resamples * len(parts) * len(CORRELATIONS)
    done = progress(f"{task.name}: resamples", steps)
    return {
        measure: compare_correlations(parts, scores, measure, baseline, resampling, done)
        for measure in CORRELATIONS
    }


def _describe_protocol(settings: STSSettings) -> tuple[dict[str, str], str]:
    """Return the facts of a report on these settings, and its remark on the protocol."""
    resampling_facts = {} if settings.poolings else settings.resampling_fact()
    if settings.supervised is not None:
        seeds = f"{settings.supervised.seeds}"
        return (
            {"protocol": "supervised (SentEval)", "seeds": seeds, **resampling_facts},
            "correlations of the scores that a softmax layer over |u - v| and u * v predicts, "
            "trained on the set's training pairs (SentEval's supervised protocol); all pairs as "
            "one list",
        )
    name = f"{settings.aggregation}: {AGGREGATIONS[settings.aggregation]}"
    return (
        {"protocol": "cosine", "aggregation": name, **resampling_facts},
        f"correlations of cosines; aggregation {name}",
    )
