"""The correlations of a test of similarity: of each part, and of the parts together.

The parts of a test are aggregated as ``all`` (all pairs as one list; Gao et al. 2021, Hosseini et
al. 2023), or as ``mean`` or ``wmean`` (the mean of the parts' correlations, plain or weighted by
their pairs), which SentEval prints. The three differ by several points: name the one you report.

Cosines are float64 and rounded to 1e-10 before they are correlated, so that pairs of identical
texts tie; the cosine with a zero vector is 0; a correlation with a constant is 0.
sentence-transformers does not round, so rounding errors order its ties: where several pairs are
identical texts, its Spearman correlation may differ (by 1e-4 for 2 such pairs of 200).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.datasets.pairs import ScoredPairs
from eval.datasets.sts import PairSubset, STSTask
from eval.metrics.correlation import CORRELATED_DECIMALS, Correlations, correlations, cosines
from eval.vectors import TextVectors
from retriever.errors import BadInputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SubsetScore:
    """The correlations of one part of a test."""

    name: str
    pairs: int
    score: Correlations


@dataclass(frozen=True, slots=True, eq=False)
class STSScore:
    """The correlations of a test.

    Attributes:
        task: its name.
        subsets: of each part, in the order of the task.
        all: of all pairs as one list.
        mean: the mean over the parts.
        wmean: the mean over the parts, weighted by their numbers of pairs.
        cosines: (pairs,) float64, part after part; for paired tests.
        gold: (pairs,) float64 beside them.
    """

    task: str
    subsets: tuple[SubsetScore, ...]
    all: Correlations
    mean: Correlations
    wmean: Correlations
    cosines: Floats
    gold: Floats


def sts_texts(task: STSTask, *, supervised: bool = False) -> list[str]:
    """Each distinct text of a test and, if `supervised`, of its training and dev pairs."""
    parts = [subset.pairs for subset in task.subsets]
    if supervised:
        parts += [part for part in (task.train, task.dev) if part is not None]
    return list(dict.fromkeys(text for part in parts for text in (*part.left, *part.right)))


def sts_correlations(task: STSTask, vectors: TextVectors) -> STSScore:
    """Correlate the cosines of a test's pairs with their gold scores.

    Args:
        task: the test.
        vectors: of at least `sts_texts(task)`.

    Raises:
        BadInputError: a part has fewer than two pairs, or gold scores that are all equal.
    """
    found = [pair_cosines(subset.pairs, vectors) for subset in task.subsets]
    scores = tuple(
        SubsetScore(subset.name, len(subset.pairs), _correlate(task, subset, part))
        for subset, part in zip(task.subsets, found, strict=True)
    )
    everywhere = np.concatenate(found)
    gold = np.concatenate([subset.pairs.gold for subset in task.subsets])
    table = np.array([[one.score.pearson, one.score.spearman] for one in scores])
    counts = np.array([one.pairs for one in scores], np.float64)
    return STSScore(
        task=task.name,
        subsets=scores,
        all=correlations(everywhere, gold),
        mean=Correlations(*table.mean(axis=0).tolist()),
        wmean=Correlations(*np.average(table, axis=0, weights=counts).tolist()),
        cosines=everywhere,
        gold=gold,
    )


def pair_cosines(pairs: ScoredPairs, vectors: TextVectors) -> Floats:
    """(pairs,) float64 cosines, rounded to 1e-10; 0 with a zero vector."""
    found = cosines(vectors.of(pairs.left), vectors.of(pairs.right))
    rounded: Floats = np.round(found, CORRELATED_DECIMALS)
    return rounded


def _correlate(task: STSTask, subset: PairSubset, found: Floats) -> Correlations:
    gold = subset.pairs.gold
    if len(gold) < 2:
        raise BadInputError(
            f"{task.name}, part {subset.name}: expected at least 2 scored pairs, found "
            f"{len(gold)}; add pairs or leave the part out"
        )
    if (gold == gold[0]).all():
        raise BadInputError(
            f"{task.name}, part {subset.name}: expected gold scores that differ, found "
            f"{gold[0]:g} for all {len(gold)} pairs; nothing correlates with a constant, so "
            "check the scores or leave the part out"
        )
    return correlations(found, gold)
