"""Classification tasks as features and class numbers, ready for a classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from eval.datasets.classification import ClassificationTask, LabeledTexts
from eval.layers.search import LayerFusion
from eval.sentences.supervised import pair_features
from eval.vectors import TextVectors
from retriever.errors import BadInputError

Rows = NDArray[np.int64]

_LAYOUTS = (("all",), ("train", "test"), ("train", "dev", "test"))


@dataclass(frozen=True, slots=True, eq=False)
class ClassificationData:
    """A classification task under one encoder.

    Attributes:
        name: of the task.
        classes: the labels of the training split in order, then those that it lacks in order; the
            number of a class is its place.
        features: (examples, features) float32, split after split: the vector of a text, or
            |u - v| and u * v of a pair.
        labels: (examples,) int64, the number of each example's class.
        splits: split to its rows, {"all"}, {"train", "test"} or {"train", "dev", "test"}.
        pairs: whether the examples are pairs of texts.
    """

    name: str
    classes: tuple[str, ...]
    features: NDArray[np.float32]
    labels: Rows
    splits: Mapping[str, Rows]
    pairs: bool

    def with_features(self, features: NDArray[np.float32]) -> ClassificationData:
        """The same examples with other features."""
        return ClassificationData(
            self.name, self.classes, features, self.labels, self.splits, self.pairs
        )


def task_texts(task: ClassificationTask) -> list[str]:
    """Each distinct text of a task."""
    parts = task.splits.values()
    return list(dict.fromkeys(text for part in parts for text in (*part.left, *(part.right or ()))))


def classification_data(task: ClassificationTask, vectors: TextVectors) -> ClassificationData:
    """The features and classes of a task.

    Args:
        task: texts and labels.
        vectors: of at least `task_texts(task)`.

    Raises:
        BadInputError: a split is missing or empty, or the training texts have only one class.
    """
    labels, splits, classes = _labels(task)
    features = [_features(part, vectors) for part in _parts(task)]
    return ClassificationData(
        task.name, classes, np.concatenate(features), labels, splits, _is_pairs(task)
    )


@dataclass(frozen=True, slots=True, eq=False)
class LayerData:
    """A classification task with the vectors of every layer instead of features.

    Attributes:
        data: the task, without features.
        left: (examples, hidden states, width) float32, of each text or a pair's first text.
        right: like `left`, of a pair's second text; None for single texts.
        fusion: what a set of layers becomes.
    """

    data: ClassificationData
    left: NDArray[np.float32]
    right: NDArray[np.float32] | None
    fusion: LayerFusion = field(default_factory=LayerFusion)

    @property
    def hidden_states(self) -> int:
        """Number of layers, including the embeddings."""
        return int(self.left.shape[1])

    def features(self, layers: Sequence[int]) -> NDArray[np.float32]:
        """Features of some layers, fused (Hosseini et al. 2023); they are not normalized."""
        chosen = list(layers)
        left = self.fusion(self.left[:, chosen])
        if self.right is None:
            return left
        return pair_features(left, self.fusion(self.right[:, chosen]))

    def of(self, layers: Sequence[int]) -> ClassificationData:
        """The task with the features of these layers."""
        return self.data.with_features(self.features(layers))


def layer_data(
    task: ClassificationTask, vectors: TextVectors, fusion: LayerFusion | None = None
) -> LayerData:
    """The vectors of every layer of a task.

    Args:
        task: texts and labels.
        vectors: (hidden states, width) for each of at least `task_texts(task)`.
        fusion: what a set of layers becomes; None is the mean.

    Raises:
        BadInputError: as `classification_data`.
    """
    labels, splits, classes = _labels(task)
    none = np.zeros((len(labels), 0), np.float32)
    data = ClassificationData(task.name, classes, none, labels, splits, _is_pairs(task))
    left = vectors.of([text for part in _parts(task) for text in part.left])
    fusion = fusion or LayerFusion()
    if not data.pairs:
        return LayerData(data, left, None, fusion)
    second = [text for part in _parts(task) for text in part.right or ()]
    return LayerData(data, left, vectors.of(second), fusion)


def _parts(task: ClassificationTask) -> list[LabeledTexts]:
    return list(task.splits.values())


def _is_pairs(task: ClassificationTask) -> bool:
    return any(part.right is not None for part in _parts(task))


def _features(part: LabeledTexts, vectors: TextVectors) -> NDArray[np.float32]:
    left = vectors.of(part.left)
    return left if part.right is None else pair_features(left, vectors.of(part.right))


def _labels(task: ClassificationTask) -> tuple[Rows, dict[str, Rows], tuple[str, ...]]:
    """The class of each example, the rows of each split, and the classes."""
    if not any(set(task.splits) == set(layout) for layout in _LAYOUTS):
        wanted = "; or ".join(", ".join(layout) for layout in _LAYOUTS)
        raise BadInputError(
            f"{task.name}: expected the splits {wanted}; found {', '.join(task.splits) or 'none'}; "
            "add the missing split"
        )
    for name, part in task.splits.items():
        if not len(part):
            raise BadInputError(f"{task.name}: the split {name} is empty; add texts to it")
    learned = task.splits["all"] if "all" in task.splits else task.splits["train"]
    classes = tuple(sorted(set(learned.labels)))
    if len(classes) < 2:
        raise BadInputError(
            f"{task.name}: expected at least 2 classes to tell apart, found {classes[0]!r} alone "
            f"in all {len(learned)} texts; check the labels"
        )
    everywhere = {label for part in task.splits.values() for label in part.labels}
    classes += tuple(sorted(everywhere - set(classes)))
    number = {label: place for place, label in enumerate(classes)}
    splits: dict[str, Rows] = {}
    labels: list[int] = []
    for name, part in task.splits.items():
        splits[name] = np.arange(len(labels), len(labels) + len(part))
        labels += [number[label] for label in part.labels]
    return np.array(labels, np.int64), splits, classes


def without_features(task: ClassificationTask) -> ClassificationData:
    """The classes and splits of a task, with features of zero.

    Raises:
        BadInputError: a split is missing or empty, or there is only one class.
    """
    texts = task_texts(task)
    return classification_data(task, TextVectors(texts, np.zeros((len(texts), 1), np.float32)))


def task_facts(task: ClassificationTask, tested: Rows) -> dict[str, str]:
    """What a report says about a task of which these rows were tested."""
    data = without_features(task)
    majority = np.bincount(data.labels[tested]).max() / len(tested)
    splits = ", ".join(f"{name} {len(part):,}" for name, part in task.splits.items())
    return {
        "splits": splits,
        "classes": f"{len(data.classes):,}",
        "tested examples": f"{len(tested):,}, of which {100 * majority:.2f}% are of one class",
    }


def tested_columns(task: ClassificationTask, tested: Rows) -> dict[str, list[object]]:
    """Split, label and texts of the examples that were tested, as columns."""
    rows = [
        (split, label, left, right)
        for split, part in task.splits.items()
        for label, left, right in zip(
            part.labels, part.left, part.right or [""] * len(part), strict=True
        )
    ]
    columns = list(zip(*(rows[int(row)] for row in tested), strict=True))
    named: dict[str, list[object]] = {
        name: list(column)
        for name, column in zip(("split", "label", "text", "text2"), columns, strict=True)
    }
    if all(part.right is None for part in task.splits.values()):
        del named["text2"]
    return named
