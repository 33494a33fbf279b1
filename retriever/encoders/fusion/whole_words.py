"""The whole words that word pieces belong to, by character offsets.

Words are those of the analyzer: letters and digits of any script with their marks and inner
apostrophes, and each CJK ideograph by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from retriever.documents.analyzer import NO_LANGUAGE, Analyzer, AnalyzerSettings

Span = tuple[int, int]


def word_spans(text: str) -> list[Span]:
    """(start, stop) of each word of the text, ascending, disjoint."""
    analyzer = Analyzer(AnalyzerSettings(NO_LANGUAGE))
    # A word whose normal form consists of several words is listed several times.
    return list(dict.fromkeys((start, stop) for _, start, stop in analyzer.spans(text)))


def word_of_pieces(pieces: Sequence[Span], words: Sequence[Span]) -> NDArray[np.int64]:
    """The word of each piece: the first one that it shares a character with.

    Args:
        pieces: (start, stop) of each piece; (0, 0) for special tokens.
        words: (start, stop), ascending, disjoint.

    Returns:
        (pieces,) positions in `words`; -1 for special tokens, punctuation and spaces.
    """
    stops = [stop for _, stop in words]
    found = np.full(len(pieces), -1, np.int64)
    for place, (start, stop) in enumerate(pieces):
        word = bisect_right(stops, start)
        if start < stop and word < len(words) and words[word][0] < stop:
            found[place] = word
    return found


def word_vectors(
    states: NDArray[np.floating], owners: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The mean vector of each word's pieces, layer by layer.

    Args:
        states: (layers, pieces, width).
        owners: (pieces,) the word of each piece, -1 for none.

    Returns:
        (words,) the words that have a piece, ascending, and their vectors (layers, words, width).
    """
    words, places = np.unique(owners[owners >= 0], return_inverse=True)
    shares = np.zeros((len(words), len(owners)))
    shares[places, np.flatnonzero(owners >= 0)] = 1
    shares /= shares.sum(axis=1, keepdims=True)
    return words, shares @ states.astype(np.float64)
