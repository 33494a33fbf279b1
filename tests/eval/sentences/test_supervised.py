"""The supervised protocol of STS-B and SICK-R against plain torch code, and what it learns."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from eval.datasets.pairs import PairSubset, ScoredPairs, STSTask
from eval.sentences import supervised
from eval.sentences.supervised import score_relatedness, soft_targets
from eval.settings import RelatednessSettings
from eval.vectors import TextVectors
from retriever.errors import BadInputError

QUICK = RelatednessSettings(seeds=2)
LOOK, EPOCHS, PATIENCE = 5, 40, 3


def sample(sizes=(160, 60, 40, 30), width=5, seed=0):
    """Return pairs whose score depends on |u - v| and not on the cosine."""
    random = np.random.default_rng(seed)
    parts, texts, table = [], [], []
    for number, size in enumerate(sizes):
        left = [f"{number} left {row}" for row in range(size)]
        right = [f"{number} right {row}" for row in range(size)]
        u, v = random.standard_normal((2, size, width))
        gold = np.clip(5 - 2.5 * np.abs(u[:, 0] - v[:, 0]), 0, 5)
        parts.append(ScoredPairs(gold, left, right))
        texts += [*left, *right]
        table += [u, v]
    train, dev, *test = parts
    subsets = tuple(PairSubset(str(place), pairs) for place, pairs in enumerate(test))
    task = STSTask("sample", subsets, train, dev)
    return task, TextVectors(texts, np.concatenate(table).astype(np.float32) / 50)


@given(st.lists(st.floats(0, 5), min_size=2, max_size=20))
def test_soft_targets_divide_a_score_between_two_neighboring_grades(scores):
    gold = np.array(scores)
    low, targets = soft_targets(gold)
    assert low == np.floor(gold.min())
    np.testing.assert_allclose(targets.sum(axis=1), 1, atol=1e-6)
    assert (targets >= 0).all()
    np.testing.assert_allclose(targets @ np.arange(low, low + targets.shape[1]), gold, atol=1e-5)
    assert targets.shape[1] == max(np.ceil(gold.max()) - low + 1, 2)
    places = [np.flatnonzero(row) for row in targets]
    assert all(place[-1] - place[0] <= 1 for place in places)


def plain(task, vectors, seed):
    """Train one seed with torch's own layers, as the reference."""

    def features(pairs):
        u, v = vectors.of(pairs.left), vectors.of(pairs.right)
        return np.concatenate([np.abs(u - v), u * v], axis=1)

    test = [subset.pairs for subset in task.subsets]
    sides = [features(part) for part in (task.train, task.dev)]
    sides.append(np.concatenate([features(part) for part in test]))
    mean, deviation = sides[0].mean(axis=0), sides[0].std(axis=0)
    train, dev, tested = (torch.tensor((side - mean) / deviation) for side in sides)
    low, targets = soft_targets(task.train.gold)
    random = np.random.default_rng([seed, 0])
    layer = torch.nn.Linear(train.shape[1], targets.shape[1])
    limit = 1 / np.sqrt(train.shape[1])
    shape = (train.shape[1], targets.shape[1])
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(random.uniform(-limit, limit, shape).T))
        layer.bias.copy_(torch.tensor(random.uniform(-limit, limit, (1, shape[1])))[0])
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.001)
    target_shares = torch.tensor(targets)
    numbers = torch.arange(low, low + targets.shape[1]).float()
    best, best_layer, fruitless, epoch = -2.0, None, 0, 0
    while epoch < EPOCHS and fruitless <= PATIENCE:
        for _ in range(LOOK):
            order = random.permutation(len(train))
            for start in range(0, len(order), 64):
                rows = torch.tensor(order[start : start + 64])
                shares = torch.softmax(layer(train[rows]), dim=1)
                loss = -(target_shares[rows] * shares.log()).sum(dim=1).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        epoch += LOOK
        with torch.no_grad():
            scores = torch.softmax(layer(dev), dim=1) @ numbers
        correlation = scipy.stats.pearsonr(scores.numpy(), task.dev.gold)[0]
        if correlation > best:
            best, best_layer = correlation, copy.deepcopy(layer)
        else:
            fruitless += 1
    with torch.no_grad():
        return best, (torch.softmax(best_layer(tested), dim=1) @ numbers).numpy()


def test_score_relatedness_of_each_seed_equals_plain_torch_training(monkeypatch):
    monkeypatch.setattr(supervised, "_EPOCHS_BETWEEN_LOOKS", LOOK)
    monkeypatch.setattr(supervised, "_EPOCHS", EPOCHS)
    task, vectors = sample()
    score = score_relatedness(task, vectors, QUICK)
    gold = np.concatenate([subset.pairs.gold for subset in task.subsets])
    assert len(score.predictions) == len(score.details["seeds"]) == 2
    for seed, seed_values in enumerate(score.details["seeds"]):
        best, predictions = plain(task, vectors, seed)
        assert seed_values["dev_pearson"] == pytest.approx(best, abs=1e-4)
        np.testing.assert_allclose(score.predictions[seed], predictions, atol=2e-3)
        expected = scipy.stats.pearsonr(predictions, gold)[0]
        assert seed_values["pearson"] == pytest.approx(expected, abs=1e-3)
    for name, value in score.values.items():
        seeds = [seed_values[name] for seed_values in score.details["seeds"]]
        assert value == pytest.approx((np.mean(seeds), np.std(seeds, ddof=1)))


def test_missing_train_or_dev_pairs_are_refused_by_name():
    task, vectors = sample()
    constant = replace(task.dev, gold=np.full(60, 2.0))
    for changed, message in (
        ({"train": None}, "found no training pairs"),
        ({"dev": None}, "found no dev pairs"),
        ({"dev": constant}, "expected dev pairs with gold scores that differ"),
    ):
        with pytest.raises(BadInputError, match=message):
            score_relatedness(replace(task, **changed), vectors, QUICK)
