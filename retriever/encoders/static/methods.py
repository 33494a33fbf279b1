"""From word vectors to sentence vectors, without a forward pass.

Texts come as one flat array of word ids and the number of words of each text. A text without words
has the zero vector. A text's vector depends on the others of its batch by rounding at most.

Sources: SIF is Arora, Liang and Ma 2017 (A Simple but Tough-to-Beat Baseline for Sentence
Embeddings); uSIF Ethayarajh 2018 (Unsupervised Random Walk Sentence Embeddings); p-mean Rücklé,
Eger, Peyrard and Gurevych 2018 (Concatenated Power Mean Word Embeddings).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.settings import Static

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
# A component of relatively less variance than this is rounding.
_NO_VARIANCE = 1e-12


@dataclass(frozen=True, slots=True)
class Fitted:
    """What SIF and uSIF learn from a corpus.

    Attributes:
        weights: (words,) float32, positive.
        components: (count, dimensions) float32, orthonormal rows, the most variance first.
        shares: (count,) float32 in (0, 1], how much of the projection on each is removed.
        parameters: the numbers that they come from, for a person.
    """

    weights: Floats
    components: Floats
    shares: Floats
    parameters: Mapping[str, float | int | None] = field(default_factory=dict)


def sentence_vectors(
    method: Static, vectors: Floats, ids: Integers, counts: Integers, fitted: Fitted | None
) -> Floats:
    """One vector a text.

    Args:
        method: which one.
        vectors: (words, d) float32.
        ids: (sum of counts,) the words of all texts, one text after the other.
        counts: (texts,) how many are each text's.
        fitted: what `sif` and `usif` need.

    Returns:
        (texts, d) float32, of `p-mean` (texts, 3 d); not normalized.
    """
    if method == "average":
        return average(vectors, ids, counts)
    if method == "p-mean":
        return power_means(vectors, ids, counts)
    assert fitted is not None
    plain = before_removal(method, vectors, ids, counts, fitted.weights)
    return remove_components(plain, fitted.components, fitted.shares)


def before_removal(
    method: Static, vectors: Floats, ids: Integers, counts: Integers, weights: Floats
) -> Floats:
    """What `sif` or `usif` remove components from, and fit them on; as `sentence_vectors`."""
    if method == "usif":
        return scaled_average(vectors, ids, counts, weights)
    return weighted_average(vectors, ids, counts, weights)


def flatten(pieces: Sequence[Sequence[int]], words: int) -> tuple[Integers, Integers]:
    """The known words of some texts, those below `words`, as flat ids and counts."""
    lengths = np.array([len(row) for row in pieces], np.int64)
    ids = np.fromiter(chain.from_iterable(pieces), np.int64, int(lengths.sum()))
    known = ids < words
    if known.all():
        return ids, lengths
    texts = np.repeat(np.arange(len(lengths)), lengths)
    return ids[known], np.bincount(texts[known], minlength=len(lengths))


def average(vectors: Floats, ids: Integers, counts: Integers) -> Floats:
    """The mean of each text's word vectors, (texts, d) float32."""
    return _mean(vectors[ids], counts)


def weighted_average(vectors: Floats, ids: Integers, counts: Integers, weights: Floats) -> Floats:
    """The weighted sum of word vectors over the number of words, (texts, d) float32."""
    return _mean(vectors[ids] * weights[ids, None], counts)


def scaled_average(vectors: Floats, ids: Integers, counts: Integers, weights: Floats) -> Floats:
    """As `weighted_average`, each dimension first scaled to length 1 over the text's words.

    So does the code that was published with uSIF. A dimension that is 0 in all words stays so; of
    a text of one word only the signs are left.
    """
    rows = vectors[ids]
    lengths = np.sqrt(_segments(np.add, rows * rows, counts))
    inverse = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    rows *= np.repeat(inverse, counts, axis=0)
    rows *= weights[ids, None]
    return _mean(rows, counts)


def power_means(vectors: Floats, ids: Integers, counts: Integers) -> Floats:
    """Minimum, mean and maximum over the words: the power means of -inf, 1 and inf.

    Returns:
        (texts, 3 d) float32, the three one after the other.
    """
    rows = vectors[ids]
    least, most = (_segments(ufunc, rows, counts) for ufunc in (np.minimum, np.maximum))
    return np.concatenate([least, _mean(rows, counts), most], axis=1)


def sif_weights(probabilities: NDArray[np.float64], a: float) -> Floats:
    """``a / (a + p(w))`` (Arora et al., Algorithm 1); a word of probability 0 weighs 1."""
    return (a / (a + probabilities)).astype(np.float32)


def usif_a(probabilities: NDArray[np.float64], length: float) -> float:
    """The parameter that uSIF derives (Ethayarajh) where SIF has to be given one.

    ``a = (1 - alpha) / (alpha Z)`` with ``Z = |V| / 2`` and alpha the part of the vocabulary whose
    probability is above ``1 - (1 - 1/|V|)^n``.

    Args:
        probabilities: of the words of V, each above 0; their sum is 1.
        length: n, the mean number of words of a text, at least 1.

    Returns:
        Above 0; infinite where no word is so probable.
    """
    size = len(probabilities)
    threshold = 1 - (1 - 1 / size) ** length
    alpha = float(np.mean(probabilities > threshold))
    return (1 - alpha) / (alpha * size / 2) if alpha else math.inf


def usif_weights(probabilities: NDArray[np.float64], a: float) -> Floats:
    """``a / (a/2 + p(w))`` (Ethayarajh); 2 for every word where a is infinite."""
    return (1 / (0.5 + probabilities / a)).astype(np.float32)


def principal_components(
    gram: NDArray[np.float64], count: int
) -> tuple[Floats, NDArray[np.float64]]:
    """The first right singular vectors of a matrix, not centred, from its inner products.

    Args:
        gram: (d, d), the transposed matrix times the matrix.
        count: how many, 0 to d.

    Returns:
        (k, d) float32 and the k squared singular values, the greatest first; k is less than
        `count` where the matrix has a lower rank. The greatest number of each vector is positive.
    """
    values, columns = np.linalg.eigh(gram)
    values, columns = values[::-1][:count], columns[:, ::-1][:, :count]
    kept = values > _NO_VARIANCE * max(values.max(initial=0), np.finfo(np.float64).tiny)
    values, rows = values[kept], columns[:, kept].T
    greatest = np.abs(rows).argmax(axis=1, keepdims=True)
    rows = rows * np.sign(np.take_along_axis(rows, greatest, axis=1))
    return np.ascontiguousarray(rows, np.float32), values


def component_shares(method: Static, squares: NDArray[np.float64]) -> Floats:
    """How much of each projection is removed.

    All of it in SIF; in uSIF ``lambda_i = sigma_i^2 / sum_j sigma_j^2``, the sum over those that
    are removed (Ethayarajh's piecewise common component removal).

    Args:
        method: ``sif`` or ``usif``.
        squares: the squared singular values.
    """
    shares = squares / squares.sum() if method == "usif" else np.ones(len(squares))
    return shares.astype(np.float32, copy=False)


def remove_components(sentences: Floats, components: Floats, shares: Floats) -> Floats:
    """Take from each vector a share of its projection on each component, (texts, d) float32."""
    if not len(components):
        return sentences
    projections: Floats = (sentences @ components.T) * shares
    removed: Floats = sentences - projections @ components
    return removed


def _mean(rows: Floats, counts: Integers) -> Floats:
    total = _segments(np.add, rows, counts)
    total /= np.maximum(counts, 1).astype(np.float32)[:, None]
    return total


def _segments(ufunc: np.ufunc, rows: Floats, counts: Integers) -> Floats:
    """Reduce the rows of each text; zeros where there are none."""
    result = np.zeros((len(counts), rows.shape[1]), np.float32)
    # An empty segment would get the next one's first row.
    filled = np.flatnonzero(counts)
    if len(filled):
        starts = (np.cumsum(counts) - counts)[filled]
        result[filled] = ufunc.reduceat(rows, starts, axis=0)
    return result
