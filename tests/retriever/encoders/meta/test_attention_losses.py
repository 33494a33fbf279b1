"""Terms against sums over pairs one by one."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

from retriever.encoders.meta.attention import orthogonality, pair_means, pool

SENTENCES = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
TYPES = torch.tensor([4, 5, 4, 5, 6, 4, 7, 8])


def _projected(sources: int = 3, seed: int = 0) -> list[torch.Tensor]:
    chance = torch.Generator().manual_seed(seed)
    return [
        torch.randn(len(TYPES), 4, dtype=torch.float64, generator=chance) for _ in range(sources)
    ]


def _present(sources: int = 3) -> list[torch.Tensor]:
    present = [torch.ones(len(TYPES), dtype=torch.bool) for _ in range(sources)]
    present[0][1] = present[1][6] = False
    return present


def _pair_by_pair(projected, present, margin, block):
    """The four means, by the definitions."""
    costs: list[list[float]] = [[], [], [], []]
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        for a, b in product(range(len(TYPES)), repeat=2):
            if not (present[i][a] and present[j][b]) or a // block != b // block:
                continue
            gap = float(np.sum((projected[i][a].numpy() - projected[j][b].numpy()) ** 2))
            same_sentence = bool(SENTENCES[a] == SENTENCES[b])
            same_type = bool(TYPES[a] == TYPES[b])
            if a == b:
                costs[0].append(gap)
            elif same_sentence and not same_type:
                costs[1].append(max(0.0, margin - gap))
            elif same_type and not same_sentence:
                costs[2].append(max(0.0, margin - gap))
            elif not same_type:
                costs[3].append(max(0.0, margin - gap))
    return [float(np.mean(one)) if one else 0.0 for one in costs]


@pytest.mark.parametrize("block", [1024, 3])
@pytest.mark.parametrize("margin", [6.0, 1.5])
def test_means_are_those_over_the_pairs(margin, block):
    projected, present = _projected(), _present()
    found = pair_means(projected, present, SENTENCES, TYPES, margin, block)
    expected = _pair_by_pair(projected, present, margin, block)
    np.testing.assert_allclose([float(term) for term in found], expected, rtol=1e-12)


@pytest.mark.parametrize("term", range(4))
def test_gradients_of_the_terms_equal_finite_differences(term):
    def mean(*projected: torch.Tensor) -> torch.Tensor:
        return pair_means(projected, _present(), SENTENCES, TYPES, 6.0)[term]

    assert torch.autograd.gradcheck(mean, [one.requires_grad_() for one in _projected()])


def test_terms_without_a_pair_are_zero():
    projected = [one[:3] for one in _projected(2)]
    present = [one[:3] for one in _present(2)]
    pairs = partial(pair_means, projected, present, margin=60.0)
    one_word_each = pairs(torch.tensor([0, 1, 2]), torch.tensor([1, 1, 2]))
    assert [float(term) > 0 for term in one_word_each] == [True, False, True, True]
    one_sentence = pairs(torch.tensor([0, 0, 0]), torch.tensor([1, 2, 3]))
    assert [float(term) > 0 for term in one_sentence] == [True, True, False, False]
    empty = pair_means(
        [one[:0] for one in projected],
        [one[:0] for one in present],
        torch.zeros(0, dtype=torch.int64),
        torch.zeros(0, dtype=torch.int64),
        margin=6.0,
    )
    assert [float(term) for term in empty] == [0, 0, 0, 0]


@pytest.mark.parametrize("shape", [(3, 5), (5, 3)])
def test_orthogonality(shape):
    matrix = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    a = matrix.numpy()
    gram = a @ a.T if shape[0] < shape[1] else a.T @ a
    expected = np.linalg.norm(gram - np.eye(len(gram)), "fro") ** 2
    assert float(orthogonality(matrix)) == pytest.approx(expected)
    assert orthogonality(torch.eye(5, dtype=torch.float64)[: shape[0], : shape[1]]) == 0


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_pooling(pooling):
    words = _projected(1)[0]
    sentences = torch.tensor([0, 0, 0, 2, 2, 3, 3, 3])
    found = pool(words, sentences, 5, pooling)
    reduce = {"mean": np.mean, "max": np.max}[pooling]
    for sentence in range(5):
        rows = words.numpy()[sentences.numpy() == sentence]
        # Not what padding with zeros would give: the maximum of negative components is negative.
        expected = reduce(rows, 0) if len(rows) else np.zeros(4)
        np.testing.assert_allclose(found[sentence].numpy(), expected, rtol=1e-12)
