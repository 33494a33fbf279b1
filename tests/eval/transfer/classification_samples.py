"""Clouds of points as classification tasks."""

import numpy as np

from eval.transfer.protocols import ClassificationData, LayerData


def clouds(examples=240, width=12, classes=2, seed=0, apart=1.0, splits=None, pairs=False):
    """Points around a center per class, of features that differ in scale.

    `splits` are shares that go to train, dev and test (or train and test); None for one split.
    """
    random = np.random.default_rng(seed)
    labels = np.arange(examples) % classes
    labels = labels[random.permutation(examples)]
    centers = random.standard_normal((classes, width)) * apart
    scales = np.geomspace(0.1, 10, width)
    features = (centers[labels] + 2 * random.standard_normal((examples, width))) * scales + 1
    if splits is None:
        rows = {"all": np.arange(examples)}
    else:
        names = ("train", "test") if len(splits) == 2 else ("train", "dev", "test")
        ends = np.rint(np.cumsum([0, *splits]) * examples).astype(int)
        rows = {name: np.arange(ends[place], ends[place + 1]) for place, name in enumerate(names)}
    return ClassificationData(
        "clouds",
        tuple(map(str, range(classes))),
        features.astype(np.float32),
        labels.astype(np.int64),
        rows,
        pairs,
    )


def layered(data, hidden_states=4, seed=0, good=1, pairs=False):
    """Return the examples with hidden states in which one layer separates the classes best."""
    random = np.random.default_rng(seed)
    shape = (len(data.labels), hidden_states, data.features.shape[1])

    def side():
        states = random.standard_normal(shape) * np.geomspace(0.5, 2, hidden_states)[:, None]
        states[:, good] += data.features / data.features.std(axis=0)
        return states.astype(np.float32)

    return LayerData(data, side(), side() if pairs else None)
