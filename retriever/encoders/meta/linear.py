"""Meta-embeddings as linear maps: fitting from covariances, and application.

Every method gives each source j a matrix P_j, a mean m_j and a weight. The meta-vector of a word is
``sum_j weight_j P_j (x_j - m_j)`` over the sources that have the word. A source without the word
counts as its mean. Such a source contributes nothing, to the vector and to covariances.

Sources: CONC and AVG are Coates and Bollegala 2018, SVD is Yin and Schütze 2016. GCCA is Rastogi et
al. 2015 with the eigenproblem of Bach and Jordan 2002. Poerner et al. 2020 apply them to sentences,
Takahashi and Bollegala 2022 to words.
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

# Relative variance or eigenvalue below which a component is rounding noise.
_NOISE_LEVEL = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """A linear map from the source vectors of a word to its meta-vector."""

    # For each source, a (d_meta, d_j) matrix, and a (d_j,) mean to subtract before the map.
    matrices: tuple[Floats, ...]
    means: tuple[Floats, ...]
    weights: Floats

    @property
    def dimensions(self) -> int:
        """Number of components of a meta-vector."""
        return len(self.matrices[0])


def project(vectors: Sequence[Floats], projection: Projection) -> Floats:
    """Return (words, d_meta) float32 meta-vectors. A source without the word has zeros."""
    total = _source_contribution(vectors[0], has_words(vectors[0]), 0, projection)
    for number, x in enumerate(vectors[1:], start=1):
        total += _source_contribution(x, has_words(x), number, projection)
    return total


def pool_words(
    vectors: Sequence[Floats],
    sentences: Integers,
    count: int,
    projection: Projection,
    pooling: WordPooling,
) -> Floats:
    """Return the meta-vector of each sentence, (count, d_meta) float32; zeros without words.

    `sentences` has the sentence of each word, ascending. Words without any source are ignored. The
    mean commutes with the map, which is therefore applied to one vector per source.
    """
    present = [has_words(x) for x in vectors]
    has_word = np.logical_or.reduce(present)
    word_counts = np.bincount(sentences[has_word], minlength=count)
    if pooling == "mean":
        meta_vectors = np.zeros((count, projection.dimensions), np.float32)
        for number, (x, has_source) in enumerate(zip(vectors, present, strict=True)):
            sums = reduce_segments(np.add, x, np.bincount(sentences, minlength=count))
            meta_vectors += _source_contribution(
                sums, np.bincount(sentences[has_source], minlength=count), number, projection
            )
        meta_vectors /= np.maximum(word_counts, 1).astype(np.float32)[:, None]
        return meta_vectors
    if not has_word.all():
        vectors = [x[has_word] for x in vectors]
    meta_vectors = project(vectors, projection)
    return reduce_segments(np.maximum, meta_vectors, word_counts)


def has_words(vectors: Floats) -> NDArray[np.bool_]:
    """Return (words,) whether the source has each word: its vector is not zero."""
    present: NDArray[np.bool_] = np.any(vectors != 0, axis=1)
    return present


def _source_contribution(
    x: Floats, counts: NDArray[np.integer] | NDArray[np.bool_], number: int, projection: Projection
) -> Floats:
    """Return the contribution of source `number`; row i of `x` is a sum of `counts[i]` vectors."""
    matrix = projection.matrices[number]
    contribution: Floats = x @ matrix.T
    # In place, since for every word of a batch memory costs as much as the product.
    contribution -= np.multiply.outer(counts.astype(np.float32), matrix @ projection.means[number])
    contribution *= projection.weights[number]
    return contribution


@dataclass(slots=True, eq=False)
class Moments:
    """Sums over words that determine means and covariances; their size depends on widths only."""

    widths: tuple[int, ...]
    # Inner products of the sources' components. The components of a source are followed by a column
    # that is 1 if it has the word.
    gram: Doubles
    # Number of words that some source has.
    words: int = 0

    @classmethod
    def empty(cls, widths: Sequence[int]) -> Moments:
        """Return the moments of no word."""
        size = sum(widths) + len(widths)
        return cls(tuple(widths), np.zeros((size, size)))

    def add(self, vectors: Sequence[Floats]) -> None:
        """Add words, with (words, d_j) vectors for each source."""
        columns: list[NDArray[np.floating]] = []
        has_word = np.zeros(len(vectors[0]), bool)
        for x in vectors:
            present = has_words(x)
            has_word |= present
            columns += [x, present[:, None].astype(np.float32)]
        rows = np.concatenate(columns, axis=1).astype(np.float64)
        self.gram += rows.T @ rows
        self.words += int(has_word.sum())

    def means(self) -> list[Doubles]:
        """Return the mean of each source's vectors over the words that it has."""
        source_means = []
        for block, count_column in self._blocks():
            count = self.gram[count_column, count_column]
            source_means.append(self.gram[block, count_column] / max(count, 1.0))
        return source_means

    def shares(self) -> list[float]:
        """Return the share of words that each source has."""
        counts = [self.gram[count_column, count_column] for _, count_column in self._blocks()]
        return [count / max(self.words, 1) for count in counts]

    def covariance(self, means: Sequence[Doubles]) -> Doubles:
        """Return the square float64 covariance of all components, sum of d_j rows.

        A word that a source lacks counts as the mean of the source.
        """
        # Subtracts the mean from each component if the source has the word.
        centering = np.zeros((sum(self.widths), len(self.gram)))
        start = 0
        for (block, count_column), mean in zip(self._blocks(), means, strict=True):
            rows = slice(start, start + len(mean))
            centering[rows, block] = np.eye(len(mean))
            centering[rows, count_column] = -mean
            start = rows.stop
        product = centering @ self.gram @ centering.T / max(self.words, 1)
        return (product + product.T) / 2

    def _blocks(self) -> list[tuple[slice, int]]:
        """Return the columns of each source's components, and the column that counts its words."""
        blocks = []
        start = 0
        for width in self.widths:
            blocks.append((slice(start, start + width), start + width))
            start += width + 1
        return blocks


def concatenation(widths: Sequence[int]) -> Projection:
    """Return CONC, the concatenation of the sources' vectors (Eqs. 11, 12)."""
    starts = np.cumsum([0, *widths]).tolist()
    return _without_means(
        [
            np.eye(starts[-1], width, -start, dtype=np.float32)
            for start, width in zip(starts[:-1], widths, strict=True)
        ],
        widths,
    )


def average(widths: Sequence[int]) -> Projection:
    """Return AVG, the sum of the vectors, padded with zeros to the widest (Eqs. 13, 14)."""
    return _without_means(
        [np.eye(max(widths), width, dtype=np.float32) for width in widths], widths
    )


def _without_means(matrices: Sequence[Floats], widths: Sequence[int]) -> Projection:
    means = tuple(np.zeros(width, np.float32) for width in widths)
    return Projection(tuple(matrices), means, np.ones(len(widths), np.float32))


def svd(moments: Moments, dimensions: int | None) -> Projection:
    """Fit SVD: the first right singular vectors of the centered concatenation.

    Rows are ordered by variance, the highest first. The largest component of each is positive. The
    default number is the width of the widest source, or the rank if that is less.
    """
    means = moments.means()
    eigenvalues, eigenvectors = np.linalg.eigh(moments.covariance(means))
    eigenvalues = eigenvalues[::-1]
    eigenvectors = eigenvectors[:, ::-1]
    highest = max(eigenvalues.max(initial=0), np.finfo(np.float64).tiny)
    rank = int((eigenvalues > _NOISE_LEVEL * highest).sum())
    dimension_count = _choose_dimensions(
        dimensions, max(moments.widths), rank, "the rank of the corpus's covariance"
    )
    return _make_projection(eigenvectors[:, :dimension_count], moments.widths, means)


def gcca(
    moments: Moments, dimensions: int | None, regularization: float, names: Sequence[str]
) -> Projection:
    """Fit GCCA: directions in which the sources agree.

    Rows are the eigenvectors of ``C theta = rho D theta`` with the highest rho above 0, the highest
    first, and ``theta' D theta = 1``. C is the covariance between different sources. D is the
    covariance within each source, ``Sigma_jj + tau sigma_j I``, where sigma_j is the mean of the
    diagonal of Sigma_jj. For two sources and tau = 0, rho are the canonical correlations. Signs and
    default number are as in `svd`. `regularization` is tau; `names` of sources are for errors.
    """
    require_extra("sentences", "gcca", "scipy")
    from scipy.linalg import block_diag, eigh

    means = moments.means()
    covariance = moments.covariance(means)
    edges = np.cumsum([0, *moments.widths]).tolist()
    regularized_blocks = []
    for name, (start, stop) in zip(names, pairwise(edges), strict=True):
        block = covariance[start:stop, start:stop]
        mean_variance = float(np.trace(block)) / len(block)
        if mean_variance <= _NOISE_LEVEL:
            raise ConfigError(
                f"gcca: expected vectors that differ, found the same one for every word of the "
                f"corpus in {name}; leave the source out or fit on more texts"
            )
        regularized_block = block + regularization * mean_variance * np.eye(len(block))
        least_eigenvalue = float(np.linalg.eigvalsh(regularized_block)[0])
        if least_eigenvalue <= _NOISE_LEVEL * mean_variance:
            raise ConfigError(
                f"gcca: the covariance of {name} is singular (constant or repeated components, or "
                f"fewer words than its {len(block)} dimensions); give --set regularization above 0"
            )
        regularized_blocks.append(regularized_block)
    within_covariance = block_diag(*[covariance[s:e, s:e] for s, e in pairwise(edges)])
    eigenvalues, eigenvectors = eigh(
        covariance - within_covariance, block_diag(*regularized_blocks)
    )
    eigenvalues = eigenvalues[::-1]
    eigenvectors = eigenvectors[:, ::-1]
    positive_count = int((eigenvalues > _NOISE_LEVEL).sum())
    dimension_count = _choose_dimensions(
        dimensions, max(moments.widths), positive_count, "the number of eigenvalues above 0"
    )
    return _make_projection(eigenvectors[:, :dimension_count], moments.widths, means)


def _choose_dimensions(requested: int | None, default: int, limit: int, limit_name: str) -> int:
    if limit == 0:
        raise ConfigError(
            f"dimensions: {limit_name} is 0, so there is nothing to project on; fit on more texts"
        )
    if requested is None:
        return min(default, limit)
    if requested > limit:
        raise ConfigError(
            f"dimensions: expected at most {limit}, {limit_name}, found {requested}; ask for "
            "fewer or fit on more texts"
        )
    return requested


def _make_projection(
    directions: Doubles, widths: Sequence[int], means: Sequence[Doubles]
) -> Projection:
    """Make a projection on (components, d_meta) directions; their largest component is positive."""
    largest_rows = np.abs(directions).argmax(axis=0)
    directions = directions * np.sign(directions[largest_rows, np.arange(directions.shape[1])])
    matrices = np.split(directions.T, np.cumsum(widths)[:-1], axis=1)
    return Projection(
        tuple(np.ascontiguousarray(matrix, np.float32) for matrix in matrices),
        tuple(mean.astype(np.float32) for mean in means),
        np.ones(len(widths), np.float32),
    )
