"""Fine-tuning a cross-encoder in domain (Ma et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from retriever.encoders.computing import apply_by_length
from retriever.rerankers.cross import CrossEncoder
from retriever.training.checkpoint import Checkpoint
from retriever.training.loop import (
    Epoch,
    Step,
    TrainingTask,
    fine_tune,
    seeded,
    silent,
    uses_bfloat16,
)
from retriever.training.sampling import TrainingSet, TripleBatch, batches_in_epoch, epoch_batches
from retriever.training.settings import CrossTrainingSettings

if TYPE_CHECKING:
    import torch


def train_cross_encoder(
    model: CrossEncoder,
    data: TrainingSet,
    settings: CrossTrainingSettings,
    dev_score: Callable[[CrossEncoder], float],
    *,
    keep_head: bool = False,
    checkpoint: Checkpoint | None = None,
    on_step: Callable[[Step], object] = silent,
    on_epoch: Callable[[Epoch], object] = silent,
) -> tuple[Epoch, ...]:
    """Train a cross-encoder, and keep its weights of the best epoch on dev.

    Args:
        model: the cross-encoder, which is changed.
        data: questions and passages.
        settings: how to train.
        dev_score: returns the quality of the model on dev; higher is better.
        keep_head: start from the MLP of the model, and keep it if no epoch is better.
        checkpoint: where to save progress.
        on_step: called after each step.
        on_epoch: called after each epoch.
    """
    model.autocast = uses_bfloat16(settings.precision, model.backbone.device)
    with seeded(model.backbone.device, settings.seed):
        if not keep_head:
            model.head.dense.reset_parameters()
            model.head.out.reset_parameters()
        return fine_tune(
            _CrossTask(model, data, settings, dev_score),
            settings,
            untrained=keep_head,
            checkpoint=checkpoint,
            on_step=on_step,
            on_epoch=on_epoch,
        )


class _CrossTask(TrainingTask[TripleBatch]):
    """Pairs scored by a cross-encoder."""

    def __init__(
        self,
        model: CrossEncoder,
        data: TrainingSet,
        settings: CrossTrainingSettings,
        dev_score: Callable[[CrossEncoder], float],
    ) -> None:
        super().__init__(model.backbone, {"head": model.head}, settings, lambda: dev_score(model))
        self._model = model
        self._data = data
        self._settings = settings
        self.steps = batches_in_epoch(data.pools, settings.sampling)

    def batches(self, generator: np.random.Generator) -> Iterator[TripleBatch]:
        return epoch_batches(self._data.pools, self._settings.sampling, generator)

    def losses(self, batch: TripleBatch) -> torch.Tensor | None:
        """Return the hinge loss of each triple; batches have pairs of similar length."""
        from retriever.rerankers.scorers import hinge

        # All negatives drawn at random may happen to be relevant.
        if not len(batch.positive):
            return None
        pairs = self._model.backbone.tokenize_pairs(
            [self._data.questions[row] for row in batch.question],
            [self._data.passages[row] for row in batch.passage],
            self._model.max_length,
        )
        lengths = [len(ids) for ids in pairs.ids]
        scores: torch.Tensor = apply_by_length(
            lengths, lambda rows: self._model.forward(pairs, rows)
        )
        return hinge(scores, batch, self._settings.margin)
