"""Fusing dense and BM25 scores of the same candidates: pure functions on arrays.

Both components are known for every candidate, so no score is ever missing. A candidate that
shares no term with the query has BM25 score 0 and no BM25 rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from retriever.errors import ConfigError
from retriever.settings import check_settings, setting

Scores = NDArray[np.float64]
Method = Literal["convex", "rrf"]
# Of the embeddings, where an index has no other.
DEFAULT_WEIGHT = 0.6
# The setting of an index that has another; see `retriever.index.fit`.
FIT = "fit"
_USED_BY: dict[str, Method] = {"alpha": "convex", "normalization": "convex", "rrf_k": "rrf"}


@dataclass(frozen=True, slots=True)
class FusionSettings:
    """How the hybrid mode combines its two components.

    Attributes:
        method: ``convex`` is alpha * dense + (1 - alpha) * bm25 of normalized scores; ``rrf`` is
            reciprocal rank fusion (Cormack, Clarke and Buettcher, 2009).
        alpha: weight of the dense component in ``convex``, 0 to 1; None for what an index says
            (`retriever.index.fit`), or 0.6.
        normalization: ``min-max`` maps the candidates' scores to [0, 1]; ``z-score`` to mean 0
            and standard deviation 1.
        rrf_k: the constant of ``rrf``, more than 0.

    Raises:
        ConfigError: a value that is out of range, or that the method does not use.
    """

    method: Method = setting("convex", "How hybrid combines its components.")
    alpha: float | None = setting(None, "Weight of the dense component.", low=0, high=1)
    normalization: Literal["min-max", "z-score"] = setting("min-max", "How scores are scaled.")
    rrf_k: float = setting(60.0, "Constant of rrf.", low=0, low_open=True)

    def __post_init__(self) -> None:
        check_settings(self)
        # A setting that is given its default cannot be told from one that is left out.
        given = [one.name for one in fields(self) if getattr(self, one.name) != one.default]
        check_used(self.method, given)

    @property
    def weight(self) -> float:
        """The weight of the dense component."""
        return DEFAULT_WEIGHT if self.alpha is None else self.alpha

    def completed(self, weight: float) -> FusionSettings:
        """These settings, with a weight of the dense component where none is given."""
        if self.method == "rrf" or self.alpha is not None:
            return self
        return replace(self, alpha=weight)


def check_used(method: Method, given: Iterable[str]) -> None:
    """Refuse a setting, of those that were asked for, that the method does not use."""
    for name in given:
        user = _USED_BY.get(name, method)
        if user != method:
            raise ConfigError(
                f"{name}: it belongs to {user} fusion, found fusion {method}; leave one of them out"
            )


def fuse(
    dense: Scores, bm25: Scores, matches: NDArray[np.bool_], settings: FusionSettings
) -> Scores:
    """One score per candidate, (n,), from its two components; `bm25` is 0 where nothing matches.

    In [0, 1] for ``convex`` with ``min-max``, in (0, 2 / (rrf_k + 1)] for ``rrf``.
    """
    if settings.method == "rrf":
        by_dense = settings.rrf_k + ranks(dense)
        by_bm25 = settings.rrf_k + ranks(bm25, matches)
        return 1 / by_dense + np.where(matches, 1 / by_bm25, 0.0)
    normalize = min_max if settings.normalization == "min-max" else z_score
    return settings.weight * normalize(dense) + (1 - settings.weight) * normalize(bm25)


def ranks(scores: Scores, ranked: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """The rank of each score among those marked in `ranked`: 1 for the highest, 0 for unranked.

    Equal scores share the best of their ranks. None ranks all.
    """
    ordered = np.sort(scores if ranked is None else scores[ranked])
    found = len(ordered) + 1 - np.searchsorted(ordered, scores, side="right")
    return found if ranked is None else np.where(ranked, found, 0)


def min_max(scores: Scores) -> Scores:
    """Map to [0, 1]; if all are equal, to 1 if they are positive, else to 0."""
    if len(scores) == 0:
        return scores
    low = scores.min()
    high = scores.max()
    if high == low:
        return np.full(len(scores), float(high > 0))
    return np.asarray((scores - low) / (high - low), np.float64)


def z_score(scores: Scores) -> Scores:
    """Subtract the mean and divide by the population standard deviation; 0 if all are equal."""
    if len(scores) == 0:
        return scores
    deviation = scores.std()
    if deviation == 0:
        return np.zeros(len(scores))
    return np.asarray((scores - scores.mean()) / deviation, np.float64)
