"""Fine-tuning a cross-encoder in domain by pairwise hinge loss (Ma et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from retriever.encoders.transformer.batching import TRAINING_PIECES, token_batches
from retriever.rerankers.cross.model import CrossEncoder
from retriever.rerankers.cross.settings import CrossTrainingSettings
from retriever.training.checkpoint import Checkpoint
from retriever.training.loop import adamw, fine_tune, reset, seeded, uses_bfloat16
from retriever.training.sampling import (
    JudgedPools,
    TripleBatch,
    batches_in_epoch,
    epoch_batches,
)
from retriever.training.settings import Epoch, Step

if TYPE_CHECKING:
    import torch


def _silent(_: object) -> None:
    """Do nothing."""


def train_cross_encoder(
    model: CrossEncoder,
    questions: Sequence[str],
    passages: Sequence[str],
    pools: JudgedPools,
    settings: CrossTrainingSettings,
    dev_score: Callable[[CrossEncoder], float],
    *,
    keep_head: bool = False,
    checkpoint: Checkpoint | None = None,
    on_step: Callable[[Step], object] = _silent,
    on_epoch: Callable[[Epoch], object] = _silent,
) -> tuple[Epoch, ...]:
    """Train; the model ends with the weights of the last epoch that is not worse on dev.

    How much worse, says `settings.tolerance`. What dev scores and what is kept is the average of
    the weights that `settings.averaging` says.

    The same seed gives the same weights on the same machine, interrupted or not.

    Args:
        model: whose backbone was loaded for training.
        questions: texts; row i is question i of the pools.
        passages: texts, by row.
        pools: which passages answer a question, and which do not.
        settings: how.
        dev_score: higher is better; called after each epoch.
        keep_head: start from the MLP that the model has, and count the model as epoch 0, which is
            kept if no epoch is better; else the MLP starts at random.
        checkpoint: the state to resume from, and where to save states; None saves nothing.
        on_step: called after each step.
        on_epoch: called after each epoch, and first for the epochs before a checkpoint.

    Returns:
        The learning curve.

    Raises:
        BadInputError: no question has a relevant passage and another one.
        ConfigError: the checkpoint is of other settings or data.
    """
    model.autocast = uses_bfloat16(settings.precision, model.backbone.device)
    with seeded(model.backbone.device, settings.seed):
        if not keep_head:
            model.head.apply(reset)
        return fine_tune(
            _CrossTask(model, questions, passages, pools, settings, dev_score),
            settings,
            untrained=keep_head,
            checkpoint=checkpoint,
            on_step=on_step,
            on_epoch=on_epoch,
        )


class _CrossTask:
    """Pairs scored by a cross-encoder, and the hinge loss of their triples."""

    def __init__(
        self,
        model: CrossEncoder,
        questions: Sequence[str],
        passages: Sequence[str],
        pools: JudgedPools,
        settings: CrossTrainingSettings,
        dev_score: Callable[[CrossEncoder], float],
    ) -> None:
        self._model = model
        self._questions = questions
        self._passages = passages
        self._pools = pools
        self._settings = settings
        self._dev_score = dev_score
        self.device = model.backbone.device
        self.steps = batches_in_epoch(pools, settings.sampling)
        backbone = model.backbone.trained_weights(words=settings.train_word_embeddings)
        self.weights = {f"backbone.{name}": one for name, one in backbone.items()}
        self.weights |= {f"head.{name}": one for name, one in model.head.named_parameters()}

    def optimizer(self) -> torch.optim.Optimizer:
        """The MLP has a rate of its own."""
        settings = self._settings
        rates = {"head": settings.head_learning_rate, "backbone": settings.learning_rate}
        return adamw(
            self.weights, lambda name: rates[name.partition(".")[0]], settings.weight_decay
        )

    def train(self) -> None:
        """Switch dropout on."""
        self._model.backbone.model.train()
        self._model.head.train()

    def batches(self, chance: np.random.Generator) -> Iterator[TripleBatch]:
        """As `epoch_batches`."""
        return epoch_batches(self._pools, self._settings.sampling, chance)

    def size(self, batch: TripleBatch) -> int:
        """Pairs that are scored."""
        return len(batch.question)

    def losses(self, batch: TripleBatch) -> torch.Tensor | None:
        """The hinge of each triple."""
        import torch

        # All negatives drawn at random may happen to be relevant.
        if not len(batch.positive):
            return None
        scores = self._scores(batch)
        gaps = scores[torch.from_numpy(batch.positive)] - scores[torch.from_numpy(batch.negative)]
        return torch.relu(self._settings.margin - gaps)

    def _scores(self, batch: TripleBatch) -> torch.Tensor:
        """The score of each pair, computed in parts of like length."""
        import torch

        pairs = self._model.backbone.tokenize_pairs(
            [self._questions[row] for row in batch.question],
            [self._passages[row] for row in batch.passage],
            self._model.max_length,
        )
        parts = list(token_batches([len(ids) for ids in pairs.ids], TRAINING_PIECES))
        scores = torch.cat([self._model.forward(pairs, rows) for rows in parts])
        return scores[torch.from_numpy(np.argsort(np.concatenate(parts)))]

    def dev(self) -> float:
        """The caller's score."""
        return self._dev_score(self._model)
