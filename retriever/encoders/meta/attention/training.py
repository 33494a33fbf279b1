"""Training of a meta-embedding: epochs, early stopping, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from retriever.encoders.meta.attention.model import AttentionModel
from retriever.encoders.meta.attention.settings import AttentionSettings, History, MetaEpoch
from retriever.encoders.meta.linear import Projection
from retriever.errors import BadInputError, ConfigError

if TYPE_CHECKING:
    import torch

    from retriever.training.checkpoint import Checkpoint, TrainingState

Batch = TypeVar("Batch")


class Training(Generic[Batch]):
    """A model, its optimizer and its progress.

    Args:
        model: is trained.
        settings: how.
        loss: of a batch.
        evaluate: the loss on held-out data and the score of the model, None where there is none.
    """

    def __init__(
        self,
        model: AttentionModel,
        settings: AttentionSettings,
        loss: Callable[[Batch], torch.Tensor],
        evaluate: Callable[[], tuple[float | None, float | None]],
    ) -> None:
        import torch

        self._model = model
        self._settings = settings
        self._loss = loss
        self._evaluate = evaluate
        self._optimizer = torch.optim.AdamW(
            list(model.tensors.values()),
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self._kept: dict[str, torch.Tensor] = {}
        self._curve: list[MetaEpoch] = []
        self._checkpoint: Checkpoint | None = None

    def resume(self, folder: Path, identity: Mapping[str, Any]) -> None:
        """Save the state after each epoch, and resume from the one that is there.

        Args:
            folder: of the checkpoint.
            identity: what the training depends on beside its settings and widths.

        Raises:
            ConfigError: the checkpoint is of another training.
        """
        from retriever.training.checkpoint import Checkpoint

        shapes = {name: list(one.shape) for name, one in self._model.tensors.items()}
        settings = {"settings": asdict(self._settings), "shapes": shapes}
        self._checkpoint = Checkpoint(folder, {**identity, **settings})
        if (state := self._checkpoint.read()) is not None:
            self._restore(state)

    def run(
        self, epochs: Callable[[int], Iterable[Batch]], done: Callable[[MetaEpoch], object]
    ) -> tuple[Projection, History]:
        """Train to the end.

        Args:
            epochs: the batches of an epoch, numbered from 1.
            done: called after each epoch, and first for those before the checkpoint.

        Returns:
            The projection of the best epoch, and all epochs.

        Raises:
            BadInputError: an epoch has no batch.
            ConfigError: the training diverged.
        """
        import torch

        for epoch in self._curve:
            done(epoch)
        finite = bool(self._curve) or self._end_epoch(None, done)
        while finite and not self._finished:
            finite = self._end_epoch(self._train(epochs(len(self._curve))), done)
        if not finite and (self._model.variant != "printed" or not self._curve):
            raise self._diverged("is not finite")
        best, last = self._best, self._curve[-1]
        if finite and best.epoch == 0 and _worth(last) < _worth(best) and best.score is None:
            raise self._diverged("on held-out sentences is never lower than before training")
        with torch.no_grad():
            for name, value in self._kept.items():
                self._model.tensors[name].copy_(value)
        return self._model.projection(), History(tuple(self._curve), best.epoch, not finite)

    @property
    def _best(self) -> MetaEpoch:
        """The first of equal ones."""
        return max(self._curve, key=_worth)

    @property
    def _finished(self) -> bool:
        done = len(self._curve) - 1
        return done >= min(self._settings.epochs, self._best.epoch + self._settings.patience)

    def _train(self, batches: Iterable[Batch]) -> float:
        """Mean loss of an epoch, which ends early if it is not finite."""
        losses = []
        for batch in batches:
            loss = self._loss(batch)
            losses.append(float(loss.detach()))
            if not math.isfinite(losses[-1]):
                break
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
        if not losses:
            raise BadInputError(
                f"epoch {len(self._curve)}: expected batches of sentences, found none"
            )
        return float(np.mean(losses))

    def _end_epoch(self, loss: float | None, done: Callable[[MetaEpoch], object]) -> bool:
        """Record an epoch and save the state; False and neither if a value is not finite."""
        import torch

        tensors = self._model.tensors
        if not all(bool(one.isfinite().all()) for one in tensors.values()):
            return False
        with torch.no_grad():
            held_out, score = self._evaluate()
            weights = tuple(self._model.weights.tolist())
        if not all(value is None or math.isfinite(value) for value in (loss, held_out, score)):
            return False
        epoch = MetaEpoch(len(self._curve), loss, held_out, score, weights)
        self._curve.append(epoch)
        if self._best is epoch:
            self._kept = {name: one.detach().clone() for name, one in tensors.items()}
        if self._checkpoint is not None:
            self._checkpoint.write(self._state())
        done(epoch)
        return True

    def _diverged(self, what: str) -> ConfigError:
        rate = self._settings.learning_rate
        return ConfigError(
            f"learning_rate: the training diverged in epoch {len(self._curve)}, the loss {what}; "
            f"expected a lower rate, found {rate:g}"
        )

    def _state(self) -> TrainingState:
        from retriever.training.checkpoint import TrainingState

        tensors = {f"weights/{name}": one.detach() for name, one in self._model.tensors.items()}
        tensors |= {f"kept/{name}": one for name, one in self._kept.items()}
        for name, one in self._model.tensors.items():
            for key, value in self._optimizer.state.get(one, {}).items():
                tensors[f"optimizer/{key}/{name}"] = value
        return TrainingState(tensors, {"curve": [asdict(epoch) for epoch in self._curve]})

    def _restore(self, state: TrainingState) -> None:
        import torch

        for values in state.values["curve"]:
            self._curve.append(MetaEpoch(**{**values, "weights": tuple(values["weights"])}))
        with torch.no_grad():
            for path, value in state.tensors.items():
                kind, _, rest = path.partition("/")
                if kind == "weights":
                    self._model.tensors[rest].copy_(value)
                elif kind == "kept":
                    self._kept[rest] = value
                else:
                    key, _, name = rest.partition("/")
                    self._optimizer.state[self._model.tensors[name]][key] = value


def _worth(epoch: MetaEpoch) -> float:
    """Higher is better: the score, else the negative loss on held-out data."""
    if epoch.score is not None:
        return epoch.score
    return -(epoch.held_out or 0.0)
