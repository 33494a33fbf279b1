"""Attention-weighted meta-embeddings: UNSUP and SUP of Takahashi and Bollegala (2022).

A source i has a projection A_i (d_meta, d_i) and a weight α_i: φ_i(w, s) = α_i A_i f_i(w, s). UNSUP
trains them so that the projections of a word by two sources agree and those of other words do not
(Eqs. 6 to 10), SUP so that cosines are gold similarities (Eq. 15).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from retriever.encoders.meta.linear import Projection
from retriever.encoders.meta.settings import UnsupSettings, WordPooling
from retriever.encoders.meta.sources import WordBatch

if TYPE_CHECKING:
    import torch

# Pairs are made within blocks of this many words: all of a small batch, and a work that grows with
# the words of a large one, not with their square.
BLOCK = 1024


class Words:
    """A batch of words as tensors; `present` says per source which of the words it has."""

    def __init__(self, batch: WordBatch) -> None:
        import torch

        self.vectors = [torch.from_numpy(vectors) for vectors in batch.vectors]
        self.present = [(vectors != 0).any(1) for vectors in self.vectors]
        self.sentences = torch.from_numpy(batch.sentences)
        self.types = torch.from_numpy(batch.types)


class AttentionModel:
    """Projections, orthogonal at random, and weights, equal; `tensors` are trained, by name."""

    def __init__(self, widths: Sequence[int], settings: UnsupSettings) -> None:
        import torch

        self._sources = len(widths)
        dimensions = settings.dimensions or max(widths)
        chance = torch.Generator().manual_seed(settings.seed)
        self.tensors: dict[str, torch.Tensor] = {}
        for source, width in enumerate(widths):
            matrix = torch.empty(dimensions, width)
            torch.nn.init.orthogonal_(matrix, generator=chance)
            self.tensors[f"matrix {source}"] = matrix
        if settings.weights:
            self.tensors["weights"] = torch.zeros(self._sources)
        for tensor in self.tensors.values():
            tensor.requires_grad_()

    @property
    def matrices(self) -> list[torch.Tensor]:
        """A_j of each source, (d_meta, d_j)."""
        return [self.tensors[f"matrix {source}"] for source in range(self._sources)]

    @property
    def weights(self) -> torch.Tensor:
        """(sources,) α of sum 1; without trained ones, equal ones."""
        import torch

        if "weights" not in self.tensors:
            return torch.full((self._sources,), 1 / self._sources)
        return self.tensors["weights"].softmax(0)

    def projected(self, words: Words) -> list[torch.Tensor]:
        """φ of each source, (words, d_meta), with weights of mean 1: Eq. 1 is Eq. 2 with 1."""
        return [
            factor * (vectors @ matrix.T)
            for factor, vectors, matrix in zip(
                self.weights * self._sources, words.vectors, self.matrices, strict=True
            )
        ]

    def sentences(self, words: Words, count: int, pooling: WordPooling) -> torch.Tensor:
        """The meta-vectors of sentences, over the words that any source has (Eq. 3)."""
        import torch

        known = torch.stack(words.present).any(0)
        vectors = torch.stack(self.projected(words)).mean(0)[known]
        return pool(vectors, words.sentences[known], count, pooling)

    def projection(self) -> Projection:
        """The same map of words, up to a constant factor."""
        matrices = tuple(matrix.detach().numpy().copy() for matrix in self.matrices)
        means = tuple(np.zeros(matrix.shape[1], np.float32) for matrix in matrices)
        return Projection(matrices, means, self.weights.detach().numpy().copy())


def pair_means(
    projected: Sequence[torch.Tensor],
    present: Sequence[torch.Tensor],
    sentences: torch.Tensor,
    types: torch.Tensor,
    margin: float,
    block: int = BLOCK,
) -> list[torch.Tensor]:
    """What the pairs of all i < j of sources cost: d² of the same word, else max(0, margin - d²).

    A pair is φ_i(w, s) and φ_j(w', s') of words of a batch that source i and source j have.
    Both (w, w') and (w', w) are pairs, and each pair counts the same in the mean of its term, of
    whatever sources. Two occurrences of a form in one sentence are no pair: they are neither the
    same word nor different ones.

    A pushed pair costs margin - min(d², margin): the squared distance that Eq. 10 subtracts, which
    has no bound, counts up to the margin. A cosine has bounds too, but does not depend on positive
    factors of the two vectors, so that the weights of the sources would not be trained.

    Per source, `projected` is (words, d_meta) and `present` (words,) bool; `types` is the form of
    each word. Pairs are among `block` consecutive words. The four means, 0 without a pair, are of
    the same word (Eq. 6), different words of a sentence (Eq. 7), a word in different sentences
    (Eq. 8) and different words of different ones (Eq. 9).
    """
    import torch

    zero = projected[0].new_zeros(())
    sums, counts = [zero] * 4, [0] * 4

    def add(term: int, costs: torch.Tensor, selected: torch.Tensor) -> None:
        sums[term] = sums[term] + costs.masked_fill(~selected, 0).sum()
        counts[term] += int(selected.sum())

    for start in range(0, len(sentences), block):
        rows = slice(start, start + block)
        same_sentence = sentences[rows, None] == sentences[None, rows]
        same_form = types[rows, None] == types[None, rows]
        pushed = (
            same_sentence & ~same_form,
            ~same_sentence & same_form,
            ~(same_sentence | same_form),
        )
        for i, j in combinations(range(len(projected)), 2):
            left, right = projected[i][rows], projected[j][rows]
            has_left, has_right = present[i][rows], present[j][rows]
            add(0, (left - right).square().sum(1), has_left & has_right)
            lengths = left.square().sum(1)[:, None] + right.square().sum(1)
            costs = (margin - torch.addmm(lengths, left, right.T, alpha=-2)).relu()
            both = has_left[:, None] & has_right
            for term, pairs in enumerate(pushed, 1):
                add(term, costs, pairs & both)
    return [total / max(count, 1) for total, count in zip(sums, counts, strict=True)]


def orthogonality(matrix: torch.Tensor) -> torch.Tensor:
    """||A Aᵀ - I||² of a (d_meta, d) projection A if d_meta < d, else ||Aᵀ A - I||².

    Eq. 10 has Aᵀ A in any case: its rank is at most d_meta, so that the term is never below
    d - d_meta.
    """
    import torch

    rows, columns = matrix.shape
    gram = matrix @ matrix.T if rows < columns else matrix.T @ matrix
    return (gram - torch.eye(len(gram), dtype=gram.dtype)).square().sum()


def pool(
    words: torch.Tensor, sentences: torch.Tensor, count: int, pooling: WordPooling
) -> torch.Tensor:
    """(count, d) sentence vectors of (words, d); zero for one without words (Eqs. 4 and 5)."""
    import torch

    sizes = torch.bincount(sentences, minlength=count)[:, None]
    zeros = words.new_zeros(count, words.shape[1])
    if pooling == "mean":
        return zeros.index_add(0, sentences, words) / sizes.clamp_min(1)
    # Rows that no word belongs to stay what they are.
    rows = sentences[:, None].expand_as(words)
    return zeros.scatter_reduce(0, rows, words, "amax", include_self=False)


def unsup_loss(model: AttentionModel, words: Words, settings: UnsupSettings) -> torch.Tensor:
    """The loss of a batch, () (see `fit_attention`)."""
    pull, within, same_word, across = pair_means(
        model.projected(words), words.present, words.sentences, words.types, settings.margin
    )
    pushes = settings.lambda_ * within + settings.mu * same_word + settings.nu * across
    return pull + pushes + settings.xi * sum(map(orthogonality, model.matrices))
