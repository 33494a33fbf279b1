"""The words of sentences, as several sources see them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class WordBatch:
    """Words of several sentences by every source.

    Attributes:
        vectors: per source (words, d_j) float32, of length 1, or zero if the source lacks the word.
        sentences: (words,) int64, ascending, index of the sentence within the batch.
        types: (words,) int64, id of the word's form, equal for equal words within the batch.
    """

    vectors: tuple[NDArray[np.float32], ...]
    sentences: NDArray[np.int64]
    types: NDArray[np.int64]
