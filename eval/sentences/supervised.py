"""The supervised protocol of STS-B and SICK-R: a softmax layer over integer scores (SentEval).

The target of a score y is divided between its two neighboring integers, with floor(y) + 1 - y for
the lower one (Tai et al. 2015, Eq. 15); the prediction is the mean of the integers under the
softmax. Two things differ from SentEval's code: the integers span the training scores, where it
numbers those of STS-B from 1 although they begin at 0; and features are scaled to deviation 1 on
the training pairs, since those of unit vectors are so small that training makes no progress.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eval.datasets.pairs import ScoredPairs, STSTask
from eval.metrics.comparison import Value, mean_and_spread
from eval.metrics.correlation import CORRELATIONS, correlations
from eval.sentences.experiment import VectorScore
from eval.settings import RelatednessSettings
from eval.vectors import TextVectors
from retriever.errors import BadInputError

if TYPE_CHECKING:
    import torch


# Of the training: pairs of a step, rate of Adam, epochs, and epochs between two looks at dev. One
# look more without a gain than `_PATIENCE` ends it.
_BATCH = 64
_RATE = 0.001
_EPOCHS = 1000
_LOOK = 50
_PATIENCE = 3
# A feature whose deviation is below this share of the largest one is constant up to rounding.
_CONSTANT = 1e-6


def score_relatedness(
    task: STSTask, vectors: TextVectors, settings: RelatednessSettings
) -> VectorScore:
    """Train on the training pairs of a test, stop early by dev, and predict the test pairs."""
    parts = supervised_parts(task)
    train, dev, test = (
        pair_features(vectors.of(part.left), vectors.of(part.right)) for part in parts
    )
    scaling = scaling_of(train)
    predictions, best = _train(
        scaling(train), scaling(dev), scaling(test), parts[0].gold, parts[1].gold, settings.seeds
    )
    seeds = [correlations(row, parts[2].gold) for row in predictions]
    values: dict[str, Value] = {
        name: mean_and_spread([one[name] for one in seeds]) for name in CORRELATIONS
    }
    details = [{**one, "dev_pearson": dev} for one, dev in zip(seeds, best.tolist(), strict=True)]
    return VectorScore(values, predictions, extra={}, details={"seeds": details})


def supervised_parts(task: STSTask) -> tuple[ScoredPairs, ScoredPairs, ScoredPairs]:
    """The pairs to train on, to stop by, and to test on; a missing or constant one is refused."""
    if task.train is None or task.dev is None:
        lacking = "training" if task.train is None else "dev"
        raise BadInputError(
            f"{task.name}: the supervised protocol needs training, dev and test pairs; found no "
            f"{lacking} pairs; leave out the set or --supervised"
        )
    parts = task.train, task.dev, task.tested()
    for name, part in zip(("training", "dev", "test"), parts, strict=True):
        if len(part) < 2 or (part.gold == part.gold[0]).all():
            raise BadInputError(
                f"{task.name}: expected {name} pairs with gold scores that differ; nothing can be "
                "learned from, or correlated with, a constant"
            )
    return parts


def pair_features(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """|u - v| and u * v beside each other: (pairs, 2 d) float32."""
    return np.concatenate([np.abs(left - right), left * right], axis=-1)


def soft_targets(gold: NDArray[np.float64]) -> tuple[int, NDArray[np.float32]]:
    """The lowest integer, and (pairs, integers) float32 shares whose mean integer is the score."""
    low = int(np.floor(gold.min()))
    count = max(int(np.ceil(gold.max())) - low + 1, 2)
    below = np.minimum(np.floor(gold).astype(np.int64) - low, count - 2)
    rows = np.arange(len(gold))
    targets = np.zeros((len(gold), count), np.float32)
    upper = gold - low - below
    targets[rows, below] = 1 - upper
    targets[rows, below + 1] = upper
    return low, targets


def _train(
    train: NDArray[np.float32],
    dev: NDArray[np.float32],
    test: NDArray[np.float32],
    gold: NDArray[np.float64],
    dev_gold: NDArray[np.float64],
    seeds: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(seeds, test pairs) predictions, and (seeds,) the best Pearson correlation on dev."""
    import torch

    low, targets = soft_targets(gold)
    inputs = train.shape[1]
    count = targets.shape[1]
    x = torch.from_numpy(train)
    y = torch.from_numpy(targets)
    randoms = [np.random.default_rng([seed, 0]) for seed in range(seeds)]
    weight, bias = (
        torch.from_numpy(
            np.stack([first_weights(inputs, (height, count), one) for one in randoms])
        ).requires_grad_()
        for height in (inputs, 1)
    )
    optimizer = torch.optim.Adam([weight, bias], lr=_RATE)
    rows = [np.arange(len(train))] * seeds
    numbers = np.arange(low, low + count, dtype=np.float64)

    def predict(features: NDArray[np.float32]) -> NDArray[np.float64]:
        with torch.inference_mode():
            shares = torch.softmax(torch.from_numpy(features) @ weight + bias, dim=-1)
        means: NDArray[np.float64] = shares.double().numpy() @ numbers
        return means

    best = np.full(seeds, -np.inf)
    predictions = np.zeros((seeds, len(test)))
    fruitless = np.zeros(seeds, np.int64)
    for _ in range(0, _EPOCHS, _LOOK):
        for _ in range(_LOOK):
            for places, real in epoch_batches(rows, _BATCH, randoms):
                logits = torch.baddbmm(bias, x[places], weight)
                # The entropy of the target, which no weight changes, is left out.
                losses = -(y[places] * torch.log_softmax(logits, dim=-1)).sum(dim=-1)
                optimizer.zero_grad()
                torch.autograd.backward(((losses * real).sum(dim=1) / real.sum(dim=1)).sum())
                optimizer.step()
        on_test = predict(test)
        for seed, row in enumerate(predict(dev)):
            if fruitless[seed] > _PATIENCE:
                continue
            found = correlations(row, dev_gold)["pearson"]
            if found > best[seed]:
                best[seed] = found
                predictions[seed] = on_test[seed]
            else:
                fruitless[seed] += 1
        if (fruitless > _PATIENCE).all():
            break
    return predictions, best


# What the training of many small models side by side needs: each has its own rows of a shared
# table of features, and a step of all models is one batched product.


class Scaling(NamedTuple):
    """Scales features to mean 0 and standard deviation 1 on the training rows."""

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    def __call__(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """(rows, features) float32, C-contiguous; a new array."""
        scaled: NDArray[np.float32] = features - self.mean
        scaled /= self.deviation
        return scaled


def scaling_of(features: NDArray[np.float32]) -> Scaling:
    """The scaling of training rows, (rows, features) float32."""
    mean = features.mean(axis=0, dtype=np.float64)
    squares = np.einsum("ij,ij->j", features, features, dtype=np.float64) / len(features)
    deviation = np.sqrt(np.maximum(squares - mean**2, 0))
    varies = deviation > _CONSTANT * max(float(deviation.max(initial=0)), 1e-30)
    return Scaling(mean.astype(np.float32), np.where(varies, deviation, 1.0).astype(np.float32))


def epoch_batches(
    rows: Sequence[NDArray[np.int64]], size: int, randoms: Sequence[np.random.Generator]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """One epoch, where each model sees its rows once in its own random order: (models, size) rows,
    and (models, size) float32 with 0 for padding where a model has no rows left.
    """
    import torch

    steps = math.ceil(max(len(one) for one in rows) / size)
    places = np.zeros((len(rows), steps * size), np.int64)
    real = np.zeros((len(rows), steps * size), np.float32)
    for model, (own, random) in enumerate(zip(rows, randoms, strict=True)):
        places[model, : len(own)] = random.permutation(own)
        real[model, : len(own)] = 1
    for start in range(0, steps * size, size):
        part = slice(start, start + size)
        yield torch.from_numpy(places[:, part].copy()), torch.from_numpy(real[:, part].copy())


def first_weights(
    inputs: int, shape: Sequence[int], random: np.random.Generator
) -> NDArray[np.float32]:
    """Uniform within ±1/sqrt(inputs), as torch initializes a linear layer."""
    limit = 1 / math.sqrt(inputs)
    return random.uniform(-limit, limit, tuple(shape)).astype(np.float32)
