"""Words by how unevenly they change from layer to layer.

Wang and Kuo 2020, Sec. III and Table I: the population variance of a word's adjacent-layer cosines,
averaged over its occurrences. With the paper's models function words are found at the low end and
content words at the high one. Other models may have it the other way round.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from eval.inspect.layer_similarity import unit_vectors
from eval.inspect.states import InspectedText
from eval.inspect.whole_words import word_of_pieces, word_spans, word_vectors


@dataclass(frozen=True, slots=True)
class WordVariance:
    """A word of a corpus.

    Attributes:
        word: in lower case and normal form NFKC.
        count: how often it occurs, at least 1.
        variance: the mean over its occurrences, at least 0.
    """

    word: str
    count: int
    variance: float


@dataclass(frozen=True, slots=True)
class VarianceGroups:
    """Words of the lowest, the middle and the highest third by variance.

    Attributes:
        low: the lowest first.
        middle: those closest to the middle, the lowest first.
        high: the highest first.
    """

    low: tuple[WordVariance, ...]
    middle: tuple[WordVariance, ...]
    high: tuple[WordVariance, ...]


def adjacent_variance(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """The population variance of each word's cosines between neighbouring layers.

    Args:
        vectors: (layers, words, width), at least two layers.

    Returns:
        (words,) float64, at least 0; a cosine with a zero vector is 0.
    """
    units = unit_vectors(vectors)
    cosines = np.stack([(low * high).sum(axis=-1) for low, high in pairwise(units)])
    variance: NDArray[np.float64] = cosines.var(axis=0)
    return variance


def text_variances(one: InspectedText) -> list[tuple[str, float]]:
    """The words of a text and their variances, in order of place.

    A word's vectors are the means over its pieces. The word in which a text was cut is left out.
    """
    states = one.states
    spans = word_spans(one.text)
    owners = word_of_pieces(states.spans, spans)
    owners[~states.kept] = -1
    read = max((states.spans[place][1] for place in np.flatnonzero(states.kept)), default=0)
    words, vectors = word_vectors(states.states, owners)
    found = []
    for word, variance in zip(words, adjacent_variance(vectors).tolist(), strict=True):
        start, stop = spans[word]
        if stop <= read:
            surface = unicodedata.normalize("NFKC", one.text[start:stop]).lower()
            found.append((surface, variance))
    return found


def word_variances(texts: Iterable[InspectedText], min_count: int) -> list[WordVariance]:
    """The words that occur at least `min_count` times, by ascending variance, then by word."""
    counts: dict[str, int] = {}
    totals: dict[str, float] = {}
    for one in texts:
        for word, variance in text_variances(one):
            counts[word] = counts.get(word, 0) + 1
            totals[word] = totals.get(word, 0.0) + variance
    found = [
        WordVariance(word, count, totals[word] / count)
        for word, count in counts.items()
        if count >= min_count
    ]
    return sorted(found, key=lambda one: (one.variance, one.word))


def variance_groups(words: Sequence[WordVariance], top: int) -> VarianceGroups:
    """At most `top` words of each third; no word is in two groups.

    Args:
        words: by ascending variance.
        top: at least 1.
    """
    low, high = round(len(words) / 3), round(2 * len(words) / 3)
    middle = words[low:high]
    skipped = max(0, len(middle) - top) // 2
    return VarianceGroups(
        tuple(words[:low][:top]),
        tuple(middle[skipped : skipped + top]),
        tuple(words[high:][::-1][:top]),
    )
