"""What encoders are trained on: scored pairs, labeled pairs, and questions with judged passages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.training.settings import Objective
from retriever.errors import BadInputError, ConfigError
from retriever.training.sampling import JudgedPools, TrainingSet


@dataclass(frozen=True, slots=True, eq=False)
class ScoredExamples:
    """Pairs of texts with their similarity.

    Attributes:
        left, right: the texts.
        scores: (pairs,) float32 in [0, 1].
    """

    left: list[str]
    right: list[str]
    scores: NDArray[np.float32]

    @classmethod
    def of(
        cls, left: Sequence[str], right: Sequence[str], gold: NDArray[np.float64]
    ) -> ScoredExamples:
        """From scores of any scale: the lowest one becomes 0, the highest 1.

        Raises:
            BadInputError: all scores are equal.
        """
        low, high = float(gold.min()), float(gold.max())
        if low == high:
            raise BadInputError(
                f"expected pairs with different scores to train on, found {low:g} for all "
                f"{len(gold)} pairs; check the scores"
            )
        return cls(list(left), list(right), ((gold - low) / (high - low)).astype(np.float32))

    def __len__(self) -> int:
        return len(self.left)

    def digest(self) -> str:
        """SHA-256 over texts and scores, in hexadecimal."""
        return _digest([self.left, self.right, self.scores.tolist()])


@dataclass(frozen=True, slots=True, eq=False)
class LabeledExamples:
    """Pairs of texts with a class, such as entailment.

    Attributes:
        left, right: the texts.
        labels: (pairs,) int64, places in `names`.
        names: of the classes, ascending.
    """

    left: list[str]
    right: list[str]
    labels: NDArray[np.int64]
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, left: Sequence[str], right: Sequence[str], labels: Sequence[str]
    ) -> LabeledExamples:
        """From the names of the classes.

        Raises:
            BadInputError: there is only one class.
        """
        names = tuple(sorted(set(labels)))
        if len(names) < 2:
            raise BadInputError(
                f"expected pairs of at least two classes to train on, found only {names[0]!r} "
                f"in {len(labels)} pairs; check the labels"
            )
        return cls(list(left), list(right), np.array([names.index(one) for one in labels]), names)

    def __len__(self) -> int:
        return len(self.left)

    def digest(self) -> str:
        """SHA-256 over texts and labels, in hexadecimal."""
        return _digest([self.left, self.right, self.labels.tolist(), self.names])


Examples = ScoredExamples | LabeledExamples | TrainingSet
_KINDS: Mapping[Objective, tuple[type[Examples], str]] = {
    "sts": (ScoredExamples, "pairs with scores"),
    "nli": (LabeledExamples, "pairs with labels"),
    "mnr": (TrainingSet, "questions or anchors with passages"),
    "hinge": (TrainingSet, "questions or anchors with passages"),
}


def check_objective(objective: Objective, examples: Examples) -> None:
    """Refuse examples that an objective cannot be trained on.

    Raises:
        ConfigError: they are of another kind; names the objectives that fit.
    """
    kind, name = _KINDS[objective]
    if not isinstance(examples, kind):
        fitting = [one for one, (other, _) in _KINDS.items() if isinstance(examples, other)]
        found = _KINDS[fitting[0]][1]
        raise ConfigError(
            f"objective: {objective} is trained on {name}, found {found}; choose "
            f"{' or '.join(fitting)}"
        )


def natural_objective(examples: Examples) -> Objective:
    """The objective of a kind of examples where none is named."""
    return next(name for name, (kind, _) in _KINDS.items() if isinstance(examples, kind))


def paired_texts(
    anchors: Sequence[str], positives: Sequence[str], negatives: Sequence[str | None]
) -> TrainingSet:
    """Anchors with their passages; equal texts are one anchor or one passage.

    A text that is among the positives of an anchor is none of its negatives.

    Args:
        anchors: one for each pair.
        positives: beside them.
        negatives: beside them; None where there is none.
    """
    questions = {text: row for row, text in enumerate(dict.fromkeys(anchors))}
    used = [*positives, *(one for one in negatives if one is not None)]
    passages = {text: row for row, text in enumerate(dict.fromkeys(used))}
    right: list[dict[int, None]] = [{} for _ in questions]
    wrong: list[dict[int, None]] = [{} for _ in questions]
    for anchor, positive, negative in zip(anchors, positives, negatives, strict=True):
        row = questions[anchor]
        right[row][passages[positive]] = None
        if negative is not None:
            wrong[row][passages[negative]] = None
    pools = JudgedPools.of(
        [list(rows) for rows in right],
        [
            [row for row in rows if row not in answers]
            for rows, answers in zip(wrong, right, strict=True)
        ],
        len(passages),
    )
    return TrainingSet(list(questions), list(passages), pools)


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
