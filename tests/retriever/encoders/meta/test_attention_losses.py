"""Terms against sums over pairs one by one, gradients against finite differences."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

from retriever.encoders.meta.attention.losses import (
    cosine_error,
    distance,
    hinge,
    neg_squared,
    orthogonality,
    pair_means,
    pool,
    squared,
)

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


def _pair_by_pair(projected, present, pull, push, block=1024):
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
                costs[0].append(pull(gap))
            elif same_sentence and not same_type:
                costs[1].append(push(gap))
            elif same_type and not same_sentence:
                costs[2].append(push(gap))
            elif not same_type:
                costs[3].append(push(gap))
    return [float(np.mean(one)) if one else 0.0 for one in costs]


@pytest.mark.parametrize(
    ("pull", "push", "plain_pull", "plain_push"),
    [
        (squared, hinge(6.0), lambda d: d, lambda d: max(0.0, 6.0 - d)),
        (squared, neg_squared, lambda d: d, lambda d: -d),
        (distance, distance, np.sqrt, np.sqrt),
    ],
)
@pytest.mark.parametrize("block", [1024, 3])
def test_means_are_those_over_the_pairs(pull, push, plain_pull, plain_push, block):
    projected, present = _projected(), _present()
    found = pair_means(projected, present, SENTENCES, TYPES, pull=pull, push=push, block=block)
    expected = _pair_by_pair(projected, present, plain_pull, plain_push, block)
    np.testing.assert_allclose([float(term) for term in found], expected, rtol=1e-12)


def test_a_word_that_a_source_lacks_is_in_no_pair_of_it():
    projected, present = _projected(), _present()
    changed = [one.clone() for one in projected]
    changed[0][1] += 100
    changed[1][6] += 100
    means = partial(pair_means, pull=squared, push=neg_squared)
    assert means(projected, present, SENTENCES, TYPES) == means(changed, present, SENTENCES, TYPES)


def test_terms_without_a_pair_are_zero():
    projected = [one[:3] for one in _projected(2)]
    present = [one[:3] for one in _present(2)]
    pairs = partial(pair_means, projected, present, pull=squared, push=neg_squared)
    one_word_each = pairs(torch.tensor([0, 1, 2]), torch.tensor([1, 1, 2]))
    assert one_word_each.within == 0
    assert one_word_each.same_word < 0
    assert one_word_each.across < 0
    one_sentence = pairs(torch.tensor([0, 0, 0]), torch.tensor([1, 2, 3]))
    assert one_sentence.within < 0
    assert one_sentence.same_word == one_sentence.across == 0
    empty = pair_means(
        [one[:0] for one in projected],
        [one[:0] for one in present],
        torch.zeros(0, dtype=torch.int64),
        torch.zeros(0, dtype=torch.int64),
        pull=squared,
        push=neg_squared,
    )
    assert [float(term) for term in empty] == [0, 0, 0, 0]


@pytest.mark.parametrize("push", [hinge(6.0), neg_squared, distance])
@pytest.mark.parametrize("term", range(4))
def test_gradients_of_the_terms_equal_finite_differences(push, term):
    def mean(*projected: torch.Tensor) -> torch.Tensor:
        return pair_means(projected, _present(), SENTENCES, TYPES, pull=squared, push=push)[term]

    inputs = [one.requires_grad_() for one in _projected()]
    assert torch.autograd.gradcheck(mean, inputs)


def test_the_gradient_of_a_distance_of_zero_is_zero():
    point = torch.zeros(3, requires_grad=True)
    distance(point.square().sum()).backward()
    assert point.grad is not None
    assert point.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("shape", "smaller"), [((3, 5), True), ((3, 5), False), ((5, 3), True)])
def test_orthogonality_and_its_gradient(shape, smaller):
    matrix = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    a = matrix.numpy()
    gram = a @ a.T if smaller and shape[0] < shape[1] else a.T @ a
    expected = np.linalg.norm(gram - np.eye(len(gram)), "fro") ** 2
    assert float(orthogonality(matrix, smaller=smaller)) == pytest.approx(expected)
    term = partial(orthogonality, smaller=smaller)
    assert torch.autograd.gradcheck(term, [matrix.requires_grad_()])


def test_a_projection_on_fewer_dimensions_has_no_loss_by_its_rows_and_one_by_its_columns():
    matrix = torch.eye(5, dtype=torch.float64)[:3]
    assert orthogonality(matrix) == 0
    assert orthogonality(matrix, smaller=False) == 5 - 3


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_pooling_and_its_gradient(pooling):
    words = _projected(1)[0]
    sentences = torch.tensor([0, 0, 0, 2, 2, 3, 3, 3])
    found = pool(words, sentences, 5, pooling)
    reduce = {"mean": np.mean, "max": np.max}[pooling]
    for sentence in range(5):
        rows = words.numpy()[sentences.numpy() == sentence]
        # Not what padding with zeros would give: the maximum of negative components is negative.
        expected = reduce(rows, 0) if len(rows) else np.zeros(4)
        np.testing.assert_allclose(found[sentence].numpy(), expected, rtol=1e-12)
    assert torch.autograd.gradcheck(
        lambda one: pool(one, sentences, 5, pooling), [words.requires_grad_()]
    )


def test_the_cosine_error_is_the_mean_squared_one():
    pooled = _projected(1)[0]
    gold = torch.tensor([0.1, 0.9, 0.5, 0.0], dtype=torch.float64)
    a, b = pooled.numpy()[0::2], pooled.numpy()[1::2]
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    expected = np.mean((cosines - gold.numpy()) ** 2)
    assert float(cosine_error(pooled, gold)) == pytest.approx(expected, rel=1e-12)
    assert torch.autograd.gradcheck(lambda one: cosine_error(one, gold), [pooled.requires_grad_()])


def test_the_cosine_with_a_sentence_without_words_is_zero():
    pooled = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    assert cosine_error(pooled, torch.tensor([0.5])) == 0.25
