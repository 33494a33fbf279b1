"""Fine-tuning a cross-encoder in domain (Ma et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from retriever.encoders.computing import in_parts
from retriever.rerankers.cross import CrossEncoder
from retriever.training.checkpoint import Checkpoint
from retriever.training.loop import Epoch, Step, Task, fine_tune, seeded, silent, uses_bfloat16
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
    """Train; with `keep_head` from the MLP of the model, which is kept if no epoch is better."""
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


class _CrossTask(Task[TripleBatch]):
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
        self.steps = batches_in_epoch(data.pools, settings.sampling, pointwise=settings.pointwise)
        # The number of layers above that of each weight, where rates decay.
        self._above = {} if settings.layer_decay == 1 else self._layers_above()

    def rate(self, name: str) -> float:
        return super().rate(name) * self._settings.layer_decay ** self._above.get(name, 0)

    def _layers_above(self) -> dict[str, int]:
        """Discriminative fine-tuning (Howard and Ruder 2018, Sec. 3.2): a rate for each layer.

        The rate of layer l of L is the learning rate times decay^(L - l). What is in no layer, such
        as the embeddings, is layer 0; a layer that is computed several times counts once.
        """
        layers = self._model.backbone.layers()
        number = {
            id(weight): layer
            for layer, module in enumerate(layers, start=1)
            for weight in module.parameters()
        }
        return {
            name: len(layers) - number.get(id(weight), 0)
            for name, weight in self.weights.items()
            if name.startswith("backbone.")
        }

    def batches(self, chance: np.random.Generator) -> Iterator[TripleBatch]:
        settings = self._settings
        return epoch_batches(
            self._data.pools, settings.sampling, chance, pointwise=settings.pointwise
        )

    def losses(self, batch: TripleBatch) -> torch.Tensor | None:
        """Of each triple (hinge), relevant passage (softmax) or pair (pointwise)."""
        from retriever.rerankers.scorers import hinge, pointwise, softmax

        settings = self._settings
        if settings.pointwise:
            return pointwise(self._scores(batch), batch)
        # All negatives drawn at random may happen to be relevant.
        if not len(batch.positive):
            return None
        scores = self._scores(batch)
        if settings.loss == "softmax":
            return softmax(scores, batch)
        return hinge(scores, batch, settings.margin)

    def _scores(self, batch: TripleBatch) -> torch.Tensor:
        """The score of each pair, computed in parts of like length."""
        pairs = self._model.backbone.tokenize_pairs(
            [self._data.questions[row] for row in batch.question],
            [self._data.passages[row] for row in batch.passage],
            self._model.max_length,
        )
        lengths = [len(ids) for ids in pairs.ids]
        scores: torch.Tensor = in_parts(lengths, lambda rows: self._model.forward(pairs, rows))
        return scores
