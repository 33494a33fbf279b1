"""The trained tensors of a meta-embedding, and the words they are applied to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from retriever.encoders.meta.attention.settings import AttentionSettings, UnsupSettings, Variant
from retriever.encoders.meta.linear import Projection
from retriever.encoders.meta.sources import WordBatch
from retriever.errors import BadInputError

if TYPE_CHECKING:
    import torch


class Words:
    """A batch of words as tensors.

    Attributes:
        vectors: per source (words, d_j).
        present: per source (words,) bool, whether the source has the word.
        sentences: (words,) int64.
        types: (words,) int64.

    Raises:
        BadInputError: the arrays do not fit each other or the widths, or are not finite.
    """

    def __init__(self, batch: WordBatch, widths: Sequence[int]) -> None:
        import torch

        words = len(batch.sentences)
        expected = [(words, width) for width in widths]
        found = [vectors.shape for vectors in batch.vectors]
        if found != expected or len(batch.types) != words:
            raise BadInputError(
                f"words: expected vectors of shapes {expected} and {words} types, found {found} "
                f"and {len(batch.types)}"
            )
        for source, vectors in enumerate(batch.vectors):
            if not np.isfinite(vectors).all():
                raise BadInputError(
                    f"words: expected finite vectors, found others of source {source}"
                )
        self.vectors = [torch.from_numpy(vectors) for vectors in batch.vectors]
        self.present = [(vectors != 0).any(1) for vectors in self.vectors]
        self.sentences = torch.from_numpy(batch.sentences)
        self.types = torch.from_numpy(batch.types)

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def known(self) -> torch.Tensor:
        """(words,) bool, whether any source has the word."""
        import torch

        return torch.stack(self.present).any(0)


class AttentionModel:
    """Projections, weights and coefficients.

    Args:
        widths: d_j of each source.
        settings: what is trained, and how it starts: projections orthogonal at random, weights
            equal; of the variant ``released`` all uniform, the projections between ±d_j^(-1/2) and
            the others between ±1.

    Attributes:
        tensors: what is trained, by name.

    Raises:
        BadInputError: fewer than two sources.
    """

    def __init__(self, widths: Sequence[int], settings: AttentionSettings) -> None:
        import torch

        if len(widths) < 2:
            raise BadInputError(f"sources: expected two or more, found {len(widths)}")
        self.variant: Variant = "stable"
        coefficients: list[float] = []
        if isinstance(settings, UnsupSettings):
            self.variant = settings.variant
            coefficients = [settings.lambda_, settings.mu, settings.nu, settings.xi]
        self._weighted = settings.weights
        self._sources = len(widths)
        dimensions = settings.dimensions or max(widths)
        chance = torch.Generator().manual_seed(settings.seed)

        def uniform(bound: float, *shape: int) -> torch.Tensor:
            return torch.empty(shape).uniform_(-bound, bound, generator=chance)

        self.tensors: dict[str, torch.Tensor] = {}
        for source, width in enumerate(widths):
            if self.variant == "released":
                matrix = uniform(width**-0.5, dimensions, width)
            else:
                matrix = torch.empty(dimensions, width)
                torch.nn.init.orthogonal_(matrix, generator=chance)
            self.tensors[f"matrix {source}"] = matrix
        if settings.weights:
            released = self.variant == "released"
            start = uniform(1.0, self._sources) if released else torch.zeros(self._sources)
            self.tensors["weights"] = start
        if self.variant == "printed":
            self.tensors["coefficients"] = torch.tensor(coefficients)
        elif self.variant == "released":
            self.tensors["coefficients"] = uniform(1.0, 3)
        for tensor in self.tensors.values():
            tensor.requires_grad_()

    @property
    def matrices(self) -> list[torch.Tensor]:
        """A_j of each source, (d_meta, d_j)."""
        return [self.tensors[f"matrix {source}"] for source in range(self._sources)]

    @property
    def weights(self) -> torch.Tensor:
        """(sources,) α; without trained ones, equal ones."""
        import torch

        if self.variant == "released":
            return self.tensors["weights"] if self._weighted else torch.ones(self._sources)
        if not self._weighted:
            return torch.full((self._sources,), 1 / self._sources)
        return self.tensors["weights"].softmax(0)

    def projected(self, words: Words) -> list[torch.Tensor]:
        """φ of each source, (words, d_meta)."""
        factors = self.weights
        if self.variant == "stable" or not (self._weighted or self.variant == "released"):
            # Eq. 1 is Eq. 2 with weights of 1.
            factors = factors * self._sources
        return [
            factor * (vectors @ matrix.T)
            for factor, vectors, matrix in zip(factors, words.vectors, self.matrices, strict=True)
        ]

    def words(self, projected: Sequence[torch.Tensor]) -> torch.Tensor:
        """Word meta-vectors: the mean over the sources (Eq. 3), or their concatenation."""
        import torch

        if self.variant == "released":
            return torch.cat(list(projected), 1)
        return torch.stack(list(projected)).mean(0)

    def projection(self) -> Projection:
        """The same map of words, up to a constant factor."""
        matrices = [matrix.detach().numpy().copy() for matrix in self.matrices]
        if self.variant == "released":
            # Source j fills rows j d_meta to (j + 1) d_meta of the concatenation.
            rows = len(matrices[0])
            for source, matrix in enumerate(matrices):
                wide = np.zeros((rows * self._sources, matrix.shape[1]), np.float32)
                wide[source * rows : (source + 1) * rows] = matrix
                matrices[source] = wide
        means = tuple(np.zeros(matrix.shape[1], np.float32) for matrix in matrices)
        return Projection(tuple(matrices), means, self.weights.detach().numpy().copy())
