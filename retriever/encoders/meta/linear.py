"""Word meta-vectors that are a linear map of each source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """A word's meta-vector is sum_j weights[j] * matrices[j] @ (x_j - means[j]).

    Attributes:
        matrices: per source (d_meta, d_j) float32.
        means: per source (d_j,) float32.
        weights: (sources,) float32.
    """

    matrices: tuple[NDArray[np.float32], ...]
    means: tuple[NDArray[np.float32], ...]
    weights: NDArray[np.float32]
