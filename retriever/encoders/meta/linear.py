"""Meta-embeddings as linear maps: how they are found from covariances, and how they are applied.

Every method gives each source j a matrix P_j, a mean m_j and a weight, and the meta-vector of a
word is ``sum_j weight_j P_j (x_j - m_j)`` over the sources that have the word. A word that a source
lacks is at that source's mean: it contributes nothing, here and in covariances.

Sources: CONC and AVG are Coates and Bollegala 2018, SVD is Yin and Schütze 2016, GCCA is Rastogi et
al. 2015 with the eigenproblem of Bach and Jordan 2002, all of sentences in Poerner et al. 2020 and
of words in Takahashi and Bollegala 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.computing import reduce_segments
from retriever.encoders.meta.settings import WordPooling
from retriever.errors import ConfigError, require_extra

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]

# A component of relatively less variance, or a relatively smaller eigenvalue, is rounding.
_RANK = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """What maps the vectors of a word by its sources to its meta-vector."""

    # Per source (d_meta, d_j), and (d_j,) that is taken from its vectors before the map.
    matrices: tuple[Floats, ...]
    means: tuple[Floats, ...]
    weights: Floats

    @property
    def dimensions(self) -> int:
        """Components of a meta-vector."""
        return len(self.matrices[0])


def project(vectors: Sequence[Floats], projection: Projection) -> Floats:
    """(words, d_meta) float32; of a word that a source lacks its vector is zeros."""
    total = _contribution(vectors[0], has_words(vectors[0]), 0, projection)
    for number, x in enumerate(vectors[1:], start=1):
        total += _contribution(x, has_words(x), number, projection)
    return total


def pooled(
    vectors: Sequence[Floats],
    sentences: Integers,
    count: int,
    projection: Projection,
    pooling: WordPooling,
) -> Floats:
    """(count, d_meta) float32, the meta-vector of each sentence; zeros for one without words.

    Words are those that some source has; `sentences` has the sentence of each, ascending. The mean
    commutes with the map, which is then applied to one vector per source.
    """
    present = [has_words(x) for x in vectors]
    known = np.logical_or.reduce(present)
    words = np.bincount(sentences[known], minlength=count)
    if pooling == "mean":
        total = np.zeros((count, projection.dimensions), np.float32)
        for number, (x, has) in enumerate(zip(vectors, present, strict=True)):
            sums = reduce_segments(np.add, x, np.bincount(sentences, minlength=count))
            total += _contribution(
                sums, np.bincount(sentences[has], minlength=count), number, projection
            )
        total /= np.maximum(words, 1).astype(np.float32)[:, None]
        return total
    if not known.all():
        vectors = [x[known] for x in vectors]
    metas = project(vectors, projection)
    return reduce_segments(np.maximum, metas, words)


def has_words(vectors: Floats) -> NDArray[np.bool_]:
    """(words,) whether the source has each word: its vector is not zero."""
    present: NDArray[np.bool_] = np.any(vectors != 0, axis=1)
    return present


def _contribution(
    x: Floats, times: NDArray[np.integer] | NDArray[np.bool_], number: int, projection: Projection
) -> Floats:
    """One source's part, of sums of as many vectors as `times` says."""
    matrix = projection.matrices[number]
    found: Floats = x @ matrix.T
    # In place: for every word of a batch, memory costs as much as the product.
    found -= np.multiply.outer(times.astype(np.float32), matrix @ projection.means[number])
    found *= projection.weights[number]
    return found


@dataclass(slots=True, eq=False)
class Moments:
    """Sums over words, from which means and covariances follow; grows with the widths alone."""

    widths: tuple[int, ...]
    # Scalar products of the sources' components, each source's followed by a column that is 1 where
    # it has the word.
    gram: Doubles
    # Number of words that some source has.
    words: int = 0

    @classmethod
    def empty(cls, widths: Sequence[int]) -> Moments:
        """Of no word."""
        size = sum(widths) + len(widths)
        return cls(tuple(widths), np.zeros((size, size)))

    def add(self, vectors: Sequence[Floats]) -> None:
        """Take in words, per source (words, d_j)."""
        columns: list[NDArray[np.floating]] = []
        known = np.zeros(len(vectors[0]), bool)
        for x in vectors:
            present = has_words(x)
            known |= present
            columns += [x, present[:, None].astype(np.float32)]
        rows = np.concatenate(columns, axis=1).astype(np.float64)
        self.gram += rows.T @ rows
        self.words += int(known.sum())

    def means(self) -> list[Doubles]:
        """The mean of each source's vectors over the words that it has."""
        found = []
        for block, ones in self._blocks():
            count = self.gram[ones, ones]
            found.append(self.gram[block, ones] / max(count, 1.0))
        return found

    def shares(self) -> list[float]:
        """The share of words that each source has."""
        return [self.gram[ones, ones] / max(self.words, 1) for _, ones in self._blocks()]

    def covariance(self, means: Sequence[Doubles]) -> Doubles:
        """(sum of d_j, likewise) float64, over all words; what a source lacks is at its mean."""
        # Takes from each component its mean where the source has the word.
        centering = np.zeros((sum(self.widths), len(self.gram)))
        start = 0
        for (block, ones), mean in zip(self._blocks(), means, strict=True):
            rows = slice(start, start + len(mean))
            centering[rows, block] = np.eye(len(mean))
            centering[rows, ones] = -mean
            start = rows.stop
        found = centering @ self.gram @ centering.T / max(self.words, 1)
        return (found + found.T) / 2

    def _blocks(self) -> list[tuple[slice, int]]:
        """Where each source's components are, and the column that counts its words."""
        found = []
        start = 0
        for width in self.widths:
            found.append((slice(start, start + width), start + width))
            start += width + 1
        return found


def concatenation(widths: Sequence[int]) -> Projection:
    """CONC: the sources' vectors one after the other (Eqs. 11, 12)."""
    starts = np.cumsum([0, *widths]).tolist()
    return _plain(
        [
            np.eye(starts[-1], width, -start, dtype=np.float32)
            for start, width in zip(starts[:-1], widths, strict=True)
        ],
        widths,
    )


def average(widths: Sequence[int]) -> Projection:
    """AVG: the sum of the sources' vectors, padded with zeros to the longest (Eqs. 13, 14)."""
    return _plain([np.eye(max(widths), width, dtype=np.float32) for width in widths], widths)


def _plain(matrices: Sequence[Floats], widths: Sequence[int]) -> Projection:
    means = tuple(np.zeros(width, np.float32) for width in widths)
    return Projection(tuple(matrices), means, np.ones(len(widths), np.float32))


def svd(moments: Moments, dimensions: int | None) -> Projection:
    """SVD: the first right singular vectors of the centered concatenation.

    Rows have the most variance first; the component of each with the greatest amount is positive.
    By default there are as many as the widest source has, or the rank where that is less.
    """
    means = moments.means()
    values, columns = np.linalg.eigh(moments.covariance(means))
    values = values[::-1]
    columns = columns[:, ::-1]
    rank = int((values > _RANK * max(values.max(initial=0), np.finfo(np.float64).tiny)).sum())
    kept = _dimensions(dimensions, max(moments.widths), rank, "the rank of the corpus's covariance")
    return _split(columns[:, :kept], moments.widths, means)


def gcca(
    moments: Moments, dimensions: int | None, regularization: float, names: Sequence[str]
) -> Projection:
    """GCCA: directions in which the sources agree.

    Eigenvectors of ``C theta = rho D theta`` with the greatest rho above 0, C being the covariance
    between different sources and D that within each, ``Sigma_jj + tau sigma_j I`` with sigma_j the
    mean of the diagonal of Sigma_jj; ``theta' D theta = 1``. Of two sources with tau = 0, rho are
    the canonical correlations. Rows have the greatest rho first, their signs and default number as
    of `svd`; `regularization` is tau, `names` are those of the sources, for errors.
    """
    require_extra("sentences", "gcca", "scipy")
    from scipy.linalg import block_diag, eigh

    means = moments.means()
    covariance = moments.covariance(means)
    edges = np.cumsum([0, *moments.widths]).tolist()
    within = []
    for name, (start, stop) in zip(names, pairwise(edges), strict=True):
        block = covariance[start:stop, start:stop]
        spread = float(np.trace(block)) / len(block)
        if spread <= _RANK:
            raise ConfigError(
                f"gcca: expected vectors that differ, found the same one for every word of the "
                f"corpus in {name}; leave the source out or fit on more texts"
            )
        regular = block + regularization * spread * np.eye(len(block))
        least = float(np.linalg.eigvalsh(regular)[0])
        if least <= _RANK * spread:
            raise ConfigError(
                f"gcca: the covariance of {name} is singular (constant or repeated components, or "
                f"fewer words than its {len(block)} dimensions); give --set regularization above 0"
            )
        within.append(regular)
    blocks = block_diag(*[covariance[s:e, s:e] for s, e in pairwise(edges)])
    values, columns = eigh(covariance - blocks, block_diag(*within))
    values = values[::-1]
    columns = columns[:, ::-1]
    positive = int((values > _RANK).sum())
    kept = _dimensions(
        dimensions, max(moments.widths), positive, "the number of eigenvalues above 0"
    )
    return _split(columns[:, :kept], moments.widths, means)


def _dimensions(asked: int | None, usual: int, most: int, what: str) -> int:
    if most == 0:
        raise ConfigError(
            f"dimensions: {what} is 0, so there is nothing to project on; fit on more texts"
        )
    if asked is None:
        return min(usual, most)
    if asked > most:
        raise ConfigError(
            f"dimensions: expected at most {most}, {what}, found {asked}; ask for fewer or fit on "
            "more texts"
        )
    return asked


def _split(columns: Doubles, widths: Sequence[int], means: Sequence[Doubles]) -> Projection:
    greatest = np.abs(columns).argmax(axis=0)
    columns = columns * np.sign(columns[greatest, np.arange(columns.shape[1])])
    matrices = np.split(columns.T, np.cumsum(widths)[:-1], axis=1)
    return Projection(
        tuple(np.ascontiguousarray(matrix, np.float32) for matrix in matrices),
        tuple(mean.astype(np.float32) for mean in means),
        np.ones(len(widths), np.float32),
    )
