"""The losses of attention-weighted meta-embeddings (Takahashi and Bollegala 2022, Sec. 3).

Functions of PyTorch tensors of one dtype, differentiable; a term without a pair is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import torch

# Pairs are made within blocks of this many words: all of a small batch, and a work that grows with
# the words of a large one, not with their square.
BLOCK = 1024


class PairMeans(NamedTuple):
    """Means over pairs of a word by one source and a word by another, () each.

    Attributes:
        pull: the same word (Eq. 6).
        within: different words of a sentence (Eq. 7).
        same_word: a word in different sentences (Eq. 8).
        across: different words in different sentences (Eq. 9).
    """

    pull: torch.Tensor
    within: torch.Tensor
    same_word: torch.Tensor
    across: torch.Tensor


def pair_means(
    projected: Sequence[torch.Tensor],
    present: Sequence[torch.Tensor],
    sentences: torch.Tensor,
    types: torch.Tensor,
    *,
    pull: Callable[[torch.Tensor], torch.Tensor],
    push: Callable[[torch.Tensor], torch.Tensor],
    block: int = BLOCK,
) -> PairMeans:
    """What the pairs of all i < j of sources cost.

    A pair is φ_i(w, s) and φ_j(w', s') of words of a batch that source i and source j have.
    Both (w, w') and (w', w) are pairs, and each pair counts the same in the mean of its term, of
    whatever sources. Two occurrences of a form in one sentence are no pair: they are neither the
    same word nor different ones.

    Args:
        projected: per source (words, d_meta).
        present: per source (words,) bool, whether the source has the word.
        sentences: (words,) int64.
        types: (words,) int64, the form of each word.
        pull: cost of a squared distance, of pairs of the first term.
        push: likewise of the other three.
        block: number of consecutive words among which pairs are made.
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
            add(0, pull((left - right).square().sum(1)), has_left & has_right)
            lengths = left.square().sum(1)[:, None] + right.square().sum(1)
            costs = push(torch.addmm(lengths, left, right.T, alpha=-2))
            both = has_left[:, None] & has_right
            for term, pairs in enumerate(pushed, 1):
                add(term, costs, pairs & both)
    return PairMeans(*(total / max(count, 1) for total, count in zip(sums, counts, strict=True)))


def squared(distances: torch.Tensor) -> torch.Tensor:
    """The cost d² (Eq. 6)."""
    return distances


def neg_squared(distances: torch.Tensor) -> torch.Tensor:
    """The cost -d² (Eq. 10)."""
    return -distances


def hinge(margin: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """The cost max(0, margin - d²) of a squared distance.

    It is margin - min(d², margin): the squared distance that Eq. 10 subtracts, which has no bound,
    counts up to the margin. A cosine has bounds too, but does not depend on positive factors of
    the two vectors, so that the weights of the sources would not be trained.
    """
    return lambda squared: (margin - squared).relu()


def distance(squared: torch.Tensor) -> torch.Tensor:
    """The distance of a squared distance; at 0 its gradient is 0."""
    return squared.clamp_min(1e-12).sqrt()


def orthogonality(matrix: torch.Tensor, *, smaller: bool = True) -> torch.Tensor:
    """||A Aᵀ - I||² of a (d_meta, d) projection if d_meta < d, else ||Aᵀ A - I||².

    Args:
        matrix: A.
        smaller: False takes Aᵀ A in any case, as Eq. 10. Its rank is at most d_meta, so that the
            term is never below d - d_meta.
    """
    import torch

    rows, columns = matrix.shape
    gram = matrix @ matrix.T if smaller and rows < columns else matrix.T @ matrix
    return (gram - torch.eye(len(gram), dtype=gram.dtype)).square().sum()


def pool(
    words: torch.Tensor,
    sentences: torch.Tensor,
    count: int,
    pooling: Literal["mean", "max"],
) -> torch.Tensor:
    """Sentence vectors, (count, d); zero for a sentence without words (Eqs. 4 and 5).

    Args:
        words: (words, d).
        sentences: (words,) int64 below `count`.
        count: number of sentences.
        pooling: over the words of a sentence; there is no padding.
    """
    import torch

    sizes = torch.bincount(sentences, minlength=count)[:, None]
    zeros = words.new_zeros(count, words.shape[1])
    if pooling == "mean":
        return zeros.index_add(0, sentences, words) / sizes.clamp_min(1)
    # Rows that no word belongs to stay what they are.
    rows = sentences[:, None].expand_as(words)
    return zeros.scatter_reduce(0, rows, words, "amax", include_self=False)


def cosine_error(pooled: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
    """Mean squared error of the cosines (Eq. 15).

    Args:
        pooled: (2n, d) sentence vectors; 2k and 2k + 1 are pair k. The cosine with zero is 0.
        gold: (n,) similarities from 0 to 1.
    """
    return (pair_cosines(pooled) - gold).square().mean()


def pair_cosines(pooled: torch.Tensor) -> torch.Tensor:
    """(n,) cosines of the sentences 2k and 2k + 1."""
    import torch

    return torch.nn.functional.cosine_similarity(pooled[0::2], pooled[1::2])
