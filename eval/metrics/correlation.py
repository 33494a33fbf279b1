"""Cosines of vectors, and their correlation with gold scores, for many rows of scores at once.

Spearman's correlation is Pearson's of average ranks. It is exact: its sums are of integers, over
scores that are rounded to 1e-10 first. A correlation with a constant is 0.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from retriever.errors import BadInputError, ConfigError

Floats = NDArray[np.float64]

CorrelationName = Literal["spearman", "pearson"]
CORRELATIONS: tuple[CorrelationName, ...] = get_args(CorrelationName)

# Decimals of a cosine that is correlated with scores. Identical texts have a cosine of 1 only up to
# the rounding of float64, and must tie.
CORRELATED_DECIMALS = 10
# Decimals of a cosine that ranks candidates, as in an index. The vectors of texts that are the same
# to the encoder differ in the seventh digit between batches.
RANKED_DECIMALS = 6
# Adding 1.5 · 2^52 to a number below 2^51 leaves its nearest integer in the low bits of the sum.
_TO_INTEGER = 1.5 * 2.0**52
_TO_INTEGER_BITS = int(np.float64(_TO_INTEGER).view(np.int64))
# Relative variance below which scores count as constant.
_CONSTANT = 1e-24


def cosines(left: NDArray[np.floating], right: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return (pairs,) float64 cosines of the rows of two (pairs, d) arrays; 0 for a zero vector."""
    left = left.astype(np.float64)
    right = right.astype(np.float64)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    products = np.einsum("ij,ij->i", left, right)
    similarities: NDArray[np.float64] = np.divide(
        products, lengths, out=np.zeros_like(products), where=lengths > 0
    )
    return similarities


def correlations(scores: Floats, gold: Floats) -> dict[str, float]:
    """Return both correlations of (pairs,) scores below 1e4 with gold scores, by name."""
    return {name: float(Correlation(gold, name)(scores[None].copy())[0]) for name in CORRELATIONS}


class Correlation:
    """Correlation with (pairs,) finite gold scores, at least two of them different."""

    unit = "pairs"

    def __init__(self, gold: Floats, name: CorrelationName = "spearman") -> None:
        if len(gold) < 2:
            raise BadInputError(
                f"expected at least 2 scored pairs, found {len(gold)}; add pairs to the file"
            )
        if (gold == gold[0]).all():
            raise BadInputError(
                f"expected gold scores that differ, found {gold[0]:g} for all {len(gold)} pairs; "
                "nothing correlates with a constant, so check the scores"
            )
        self.name = name
        self.units = len(gold)
        self._gold = gold.astype(np.float64)
        if name == "pearson":
            self._centered = self._gold - self._gold.mean()
            self._spread = float(self._centered @ self._centered)
            return
        equal_weights = np.ones((1, self.units))
        # Doubled, an average rank is a whole number.
        self._doubled = np.rint(2 * _weighted_ranks(equal_weights, _Groups(self._gold))[0]).astype(
            np.int64
        )
        self._positions = 2 * np.arange(self.units, dtype=np.float64) + 1 - self.units
        self._spread = float(((self._doubled - (self.units + 1.0)) ** 2).sum())

    def take(self, pairs: NDArray[np.int64]) -> Correlation:
        """Return the same correlation over the pairs at these positions."""
        return Correlation(self._gold[pairs], self.name)

    def __call__(self, cosines: Floats) -> Floats:
        """Return (rows,) correlations of (rows, pairs) cosines, which may be overwritten."""
        if self.name == "spearman":
            return self._spearman(cosines)
        cosines -= cosines.mean(axis=1, keepdims=True)
        spread = np.einsum("ij,ij->i", cosines, cosines)
        return _ratio(cosines @ self._centered, spread, self._spread)

    def resampled(self, cosines: Floats, weights: Floats) -> Floats:
        """Return (resamples, rows) correlations; (resamples, pairs) weights count the draws."""
        if self.name == "spearman":
            gold = _weighted_ranks(weights, _Groups(self._gold))
            rows = (_Groups(row) for row in np.round(cosines, CORRELATED_DECIMALS))
            values = [
                _weighted_pearson(weights, _weighted_ranks(weights, row), gold) for row in rows
            ]
        else:
            values = [_weighted_pearson(weights, row, self._gold) for row in cosines]
        return np.stack(values, axis=1)

    def _spearman(self, cosines: Floats) -> Floats:
        bits = int(self._doubled.max()).bit_length()
        low = (1 << bits) - 1
        keys = _whole(cosines)
        # Each key has its pair's gold rank in its low bits, so that sorting the keys puts the gold
        # ranks in the order of the cosines without a gather; np.sort of int64 is vectorized.
        keys <<= bits
        keys |= self._doubled
        keys.sort(axis=1)
        gold = (keys & low).astype(np.float64)
        products = gold @ self._positions
        spread = np.full(len(keys), float(self._positions @ self._positions))
        # Keys of one sign that agree above the low bits differ by no more than the low bits.
        tied = (keys[:, 1:] ^ keys[:, :-1]).view(np.uint64) <= low
        if tied.any():
            _average_ties(tied, gold, self._positions, products, spread)
        return _ratio(products, spread, self._spread)


def pair_correlation(gold: Floats, name: str | None, source: str) -> Correlation:
    """Return the correlation of this name, Spearman's if None; `source` is for messages."""
    if name not in (None, *CORRELATIONS):
        raise ConfigError(
            f"objective: expected {' or '.join(CORRELATIONS)} for scored pairs, found {name}; "
            "measures of rankings need a folder of questions"
        )
    try:
        return Correlation(gold, name or "spearman")
    except BadInputError as error:
        raise BadInputError(f"{source}: {error}") from error


def _whole(cosines: Floats) -> NDArray[np.int64]:
    """Convert cosines to integers in units of 1e-10, in place."""
    cosines *= 10.0**CORRELATED_DECIMALS
    cosines += _TO_INTEGER
    whole: NDArray[np.int64] = cosines.view(np.int64)
    whole -= _TO_INTEGER_BITS
    return whole


def _average_ties(
    tied: NDArray[np.bool_], gold: Floats, positions: Floats, products: Floats, spread: Floats
) -> None:
    """Correct `products` and `spread`, in place, for the average ranks of tied cosines.

    `tied` marks a cosine that equals the next; `positions` are doubled centered ranks without ties.
    """
    subsets, pairs = gold.shape
    # False before and after each row, so that no run continues into the next row.
    padded = np.zeros((subsets, pairs + 1), np.bool_)
    padded[:, 1:-1] = tied
    flat = padded.ravel()
    edges = np.flatnonzero(flat[1:] != flat[:-1])
    rows, first = np.divmod(edges[0::2], pairs + 1)
    last = edges[1::2] % (pairs + 1)
    length = last - first + 1
    run = np.repeat(np.arange(len(length)), length)
    place = np.arange(len(run)) - np.repeat(np.cumsum(length) - length, length) + first[run]
    average = (positions[first] + positions[last]) / 2
    moved = (average[run] - positions[place]) * gold[rows[run], place]
    products += np.bincount(rows[run], moved, minlength=subsets)
    lengths = length.astype(np.float64)
    spread -= np.bincount(rows, (lengths**3 - lengths) / 3, minlength=subsets)


def _ratio(products: Floats, spread: Floats, gold_spread: float) -> Floats:
    constant = spread <= _CONSTANT * gold_spread
    return np.where(
        constant, 0.0, products / np.sqrt(np.where(constant, 1.0, spread) * gold_spread)
    )


class _Groups:
    """Values by rank: their order, the start of each group of equal values, the group of each."""

    def __init__(self, values: Floats) -> None:
        self.order = np.argsort(values, kind="stable")
        ascending = values[self.order]
        new = np.concatenate([[True], ascending[1:] != ascending[:-1]])
        self.starts = np.flatnonzero(new)
        self.group = np.empty(len(values), np.int64)
        self.group[self.order] = np.cumsum(new) - 1


def _weighted_ranks(weights: Floats, values: _Groups) -> Floats:
    """Return (resamples, pairs) average ranks from 1; a pair occurs as often as its weight."""
    counts = np.add.reduceat(weights[:, values.order], values.starts, axis=1)
    averages = np.cumsum(counts, axis=1) - (counts - 1) / 2
    ranks: Floats = averages[:, values.group]
    return ranks


def _weighted_pearson(weights: Floats, left: Floats, right: Floats) -> Floats:
    total = weights.sum(axis=1, keepdims=True)

    def centered(values: Floats) -> Floats:
        mean: Floats = (weights * values).sum(axis=1, keepdims=True) / total
        return values - mean

    x = centered(left)
    y = centered(right)
    product = (weights * x * y).sum(axis=1)
    return _ratio(product, (weights * x * x).sum(axis=1) * (weights * y * y).sum(axis=1), 1.0)
