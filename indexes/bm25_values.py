"""What each posting of a query adds to the score of its passage."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from indexes.bm25_variants import BM25Settings, weights
from indexes.compiled import compiled
from indexes.postings import Postings, Read

# Variants whose weight is f / (f + k1 * norm) and nothing else.
_PLAIN = ("lucene", "robertson")


def posting_values(
    settings: BM25Settings,
    postings: Postings,
    read: Read,
    factors: NDArray[np.float64],
    mean_length: float,
) -> NDArray[np.float64]:
    """(p,) float64: the factor of the term times its weight in the passage.

    Args:
        settings: the variant and its parameters.
        postings: of the segment.
        read: p of its postings.
        factors: (terms,) float64, the idf of each term times its repetitions in the query.
        mean_length: of the passages of the corpus.

    Raises:
        DamagedIndexError: the postings or the lengths are impossible.
    """
    values = np.empty(len(read.positions))
    if not len(values):
        return values
    if compiled is not None and settings.variant in _PLAIN:
        postings.check_lengths(read.positions)
        slope, constant = settings.b / mean_length, 1 - settings.b
        lengths = postings.lengths
        if compiled.weigh(*read, factors, lengths, slope, constant, settings.k1, values):
            return values
        # What is impossible is named below.
    postings.check(read)
    lengths = postings.lengths_of(read.positions, read.frequencies)
    values = np.repeat(factors, read.counts)
    values *= weights(settings, read.frequencies, lengths, mean_length)
    return values
