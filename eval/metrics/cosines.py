"""The cosine of two vectors, and how far it is exact."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# To this many decimals cosines are rounded before they are correlated with scores: those of
# identical texts are 1 only up to the rounding of float64, and must tie.
CORRELATED_DECIMALS = 10
# To this many they are rounded before candidates are ranked by them, as an index does it: the
# vectors of texts that read the same to the encoder differ in the seventh digit by batch.
RANKED_DECIMALS = 6


def cosines(left: NDArray[np.floating], right: NDArray[np.floating]) -> NDArray[np.float64]:
    """(pairs,) cosines of the rows of two (pairs, d) arrays, in float64; 0 with a zero vector."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    products = np.einsum("ij,ij->i", left, right)
    found: NDArray[np.float64] = np.divide(
        products, lengths, out=np.zeros_like(products), where=lengths > 0
    )
    return found
