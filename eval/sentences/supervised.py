"""The supervised protocol of STS-B and SICK-R: a softmax layer over integer scores (SentEval).

The target of a score y is divided between its two neighboring integers, with floor(y) + 1 - y for
the lower integer (Tai et al. 2015, Eq. 15). The prediction is the mean of the integers under the
softmax. Two things differ from SentEval's code. The integers span the training scores; SentEval
numbers them from 1, although STS-B begins at 0. Features are scaled to deviation 1 on the training
pairs; with the small features of unit vectors, training makes no progress.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eval.datasets.pairs import ScoredPairs, STSTask
from eval.metrics.comparison import Value, mean_and_spread
from eval.metrics.correlation import CORRELATIONS, correlations
from eval.sentences.experiment import VectorScore
from eval.sentences.parallel_training import epoch_batches, first_weights, scaling_of
from eval.settings import RelatednessSettings
from eval.vectors import TextVectors
from retriever.errors import BadInputError

if TYPE_CHECKING:
    import torch

# Pairs of a step.
_BATCH = 64
# Learning rate of Adam.
_RATE = 0.001
_EPOCHS = 1000
# Epochs between two evaluations on dev; training ends at the fourth without a gain.
_EPOCHS_BETWEEN_LOOKS = 50
_PATIENCE = 3


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
        name: mean_and_spread([seed[name] for seed in seeds]) for name in CORRELATIONS
    }
    details = [{**seed, "dev_pearson": dev} for seed, dev in zip(seeds, best.tolist(), strict=True)]
    return VectorScore(values, predictions, extra={}, details={"seeds": details})


def supervised_parts(task: STSTask) -> tuple[ScoredPairs, ScoredPairs, ScoredPairs]:
    """Return the pairs to train on, to stop by, and to test on.

    Raises:
        BadInputError: a part is missing, or its gold scores are all equal.
    """
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
    """Return |u - v| and u * v side by side: (pairs, 2 d) float32."""
    return np.concatenate([np.abs(left - right), left * right], axis=-1)


def soft_targets(gold: NDArray[np.float64]) -> tuple[int, NDArray[np.float32]]:
    """Return the lowest integer, and (pairs, integers) float32 shares with the score as mean."""
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
    """Return (seeds, test pairs) predictions, and (seeds,) best Pearson correlations on dev."""
    import torch

    low, targets = soft_targets(gold)
    inputs = train.shape[1]
    count = targets.shape[1]
    data = torch.from_numpy(train), torch.from_numpy(targets)
    randoms = [np.random.default_rng([seed, 0]) for seed in range(seeds)]
    weight, bias = (
        torch.from_numpy(
            np.stack([first_weights(inputs, (height, count), random) for random in randoms])
        ).requires_grad_()
        for height in (inputs, 1)
    )
    optimizer = torch.optim.Adam([weight, bias], lr=_RATE)
    rows = [np.arange(len(train))] * seeds
    numbers = np.arange(low, low + count, dtype=np.float64)

    def predict(features: NDArray[np.float32]) -> NDArray[np.float64]:
        with torch.inference_mode():
            shares = torch.softmax(torch.from_numpy(features) @ weight + bias, dim=-1)
        return np.asarray(shares.double().numpy() @ numbers)

    best = np.full(seeds, -np.inf)
    predictions = np.zeros((seeds, len(test)))
    fruitless = np.zeros(seeds, np.int64)
    for _ in range(0, _EPOCHS, _EPOCHS_BETWEEN_LOOKS):
        for _ in range(_EPOCHS_BETWEEN_LOOKS):
            _train_epoch(optimizer, (weight, bias), data, epoch_batches(rows, _BATCH, randoms))
        on_test = predict(test)
        for seed, row in enumerate(predict(dev)):
            if fruitless[seed] > _PATIENCE:
                continue
            dev_correlation = correlations(row, dev_gold)["pearson"]
            if dev_correlation > best[seed]:
                best[seed] = dev_correlation
                predictions[seed] = on_test[seed]
            else:
                fruitless[seed] += 1
        if (fruitless > _PATIENCE).all():
            break
    return predictions, best


def _train_epoch(
    optimizer: torch.optim.Optimizer,
    layer: tuple[torch.Tensor, torch.Tensor],
    data: tuple[torch.Tensor, torch.Tensor],
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]],
) -> None:
    """Take one step per batch; `layer` is weight and bias, `data` features and soft targets."""
    import torch

    weight, bias = layer
    features, targets = data
    for rows, present in batches:
        logits = torch.baddbmm(bias, features[rows], weight)
        # Cross entropy; the entropy of the target is constant, and left out.
        losses = -(targets[rows] * torch.log_softmax(logits, dim=-1)).sum(dim=-1)
        optimizer.zero_grad()
        torch.autograd.backward(((losses * present).sum(dim=1) / present.sum(dim=1)).sum())
        optimizer.step()
