"""What the examples of a task of classification are like, whatever encodes them."""

from __future__ import annotations

import numpy as np

from eval.datasets.sentences.tasks import ClassificationTask
from eval.transfer.classifiers import Rows
from eval.transfer.data import ClassificationData, classification_data, task_texts
from eval.vectors.embedding import TextVectors


def without_features(task: ClassificationTask) -> ClassificationData:
    """The classes and splits of a task, with features of zero.

    Raises:
        BadInputError: a split is missing or empty, or there is one class only.
    """
    texts = task_texts(task)
    return classification_data(task, TextVectors(texts, np.zeros((len(texts), 1), np.float32)))


def task_facts(task: ClassificationTask, tested: Rows) -> dict[str, str]:
    """What a report says of a task, of which these rows were tested."""
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
