"""Training heads on the frozen embeddings of a question set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.qa.pairs import EmbeddedPairs
from eval.qa.training import DevScore, TrainingSet
from eval.vectors.cache import embed
from retriever.encoders.encoder import Encoder
from retriever.rerankers.head.settings import HeadSettings
from retriever.rerankers.head.training import (
    Epoch,
    HeadTrainingSettings,
    Scorer,
    TrainedHead,
    train_head,
)
from retriever.rerankers.training.sampling import JudgedPools


@dataclass(frozen=True, slots=True)
class HeadPlan:
    """What to train, and how.

    Attributes:
        head: interaction, and linear or MLP.
        training: loss, optimiser, epochs, seed.
    """

    head: HeadSettings = field(default_factory=HeadSettings)
    training: HeadTrainingSettings = field(default_factory=HeadTrainingSettings)

    def of(self, interaction: str, head: str) -> HeadPlan:
        """The same training of another head, by the names in `HeadSettings`."""
        changed = replace(self.head, interaction=interaction, head=head)  # type: ignore[arg-type]
        return replace(self, head=changed)

    def seeded(self, seed: int) -> HeadPlan:
        """The same with another seed."""
        return replace(self, training=replace(self.training, seed=seed))


@dataclass(frozen=True, slots=True, eq=False)
class TrainingVectors:
    """The texts of a `TrainingSet` as vectors.

    Attributes:
        questions: (n, d) float32.
        passages: (m, d) float32.
    """

    questions: NDArray[np.float32]
    passages: NDArray[np.float32]


def training_vectors(
    encoder: Encoder,
    train: TrainingSet,
    cache: Path | None,
    begin: Callable[[int], Callable[[int], object]] = lambda texts: lambda done: None,
) -> TrainingVectors:
    """Encode what a head is trained on.

    Args:
        encoder: of both.
        train: questions and passages.
        cache: where vectors are kept; None keeps none.
        begin: told the number of texts, and gives what is told of those that are done.
    """
    done = begin(len(train.questions) + len(train.passages))
    return TrainingVectors(
        embed(encoder, train.questions, cache, query=True, done=done).vectors,
        embed(encoder, train.passages, cache, done=done).vectors,
    )


def fit_head(
    plan: HeadPlan,
    vectors: TrainingVectors,
    pools: JudgedPools,
    dev_pairs: EmbeddedPairs,
    dev: DevScore,
    done: Callable[[Epoch], object] = lambda epoch: None,
) -> TrainedHead:
    """Train a head, and keep the epoch with the best MAP on dev.

    Args:
        plan: what and how.
        vectors: of the training set.
        pools: of the training set.
        dev_pairs: the vectors of `dev.questions`.
        dev: what epochs are chosen on.
        done: told after each epoch.
    """

    def dev_score(score: Scorer) -> float:
        return dev(
            score(
                dev_pairs.questions,
                dev_pairs.passages,
                dev_pairs.question_rows,
                dev_pairs.passage_rows,
            )
        )

    return train_head(
        plan.training, plan.head, vectors.questions, vectors.passages, pools, dev_score, done
    )


def head_scores(score: Scorer, pairs: EmbeddedPairs) -> NDArray[np.float32]:
    """(pairs,) scores, in the order of `QuestionSet.pairs`."""
    return score(pairs.questions, pairs.passages, pairs.question_rows, pairs.passage_rows)
