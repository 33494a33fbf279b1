"""UNSUP and SUP of Takahashi and Bollegala (2022): fitting, with early stopping and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.meta.attention import AttentionModel, Words, unsup_loss
from retriever.encoders.meta.linear import Projection
from retriever.encoders.meta.settings import UnsupSettings
from retriever.encoders.meta.sources import WordBatch
from retriever.errors import BadInputError, ConfigError
from retriever.training.checkpoint import Checkpoint
from retriever.training.loop import EarlyStopping, silent

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class MetaEpoch:
    """The result of an epoch; 0 is before training. What there is not is None."""

    epoch: int
    # Mean over the batches as training met them, and over the held-out batches.
    loss: float | None
    held_out: float | None
    # On dev.
    score: float | None
    # Of the sources.
    weights: tuple[float, ...]

    @property
    def worth(self) -> float:
        """Higher is better: the score, else the negative loss on held-out data."""
        return -(self.held_out or 0.0) if self.score is None else self.score


@dataclass(frozen=True, slots=True)
class History:
    """All epochs of a training, and the number of the one that is kept."""

    curve: tuple[MetaEpoch, ...]
    best: int


@dataclass(frozen=True, slots=True, eq=False)
class ScoredPairs:
    """Pairs of sentences: 2k and 2k + 1 have the similarity gold[k], float32 from 0 to 1."""

    words: WordBatch
    gold: NDArray[np.float32]


Batch = WordBatch | ScoredPairs


def fit_attention(
    epochs: Callable[[int], Iterable[Batch]],
    widths: Sequence[int],
    settings: UnsupSettings,
    *,
    held_out: Sequence[WordBatch] = (),
    dev: Sequence[ScoredPairs] = (),
    done: Callable[[MetaEpoch], object] = silent,
    checkpoint: Checkpoint | None = None,
) -> tuple[Projection, History]:
    """Train projections and weights, on words without labels (UNSUP) or on scored pairs (SUP).

    UNSUP: the loss of a batch is pull + λ within + μ same_word + ν across + ξ Σ_i orthogonality,
    where the four terms are means over pairs (`pair_means`). It is Eq. 10 with a lower bound: the
    coefficients are fixed, a pushed pair costs at most the margin, the weights are n softmax, so
    that equal weights are those of Eq. 1 whatever n is, and of A Aᵀ and Aᵀ A the one of full rank
    is drawn to I. Eq. 10 as it is printed falls without bound, and the authors' code turns each
    push into a pull. Zero rows, words that a source lacks, are in no pair of it.

    SUP: the loss is the mean of (cos(m(s), m(s')) - r)² (Eq. 15) with sentence meta-vectors pooled
    as the settings say and r from 0 to 1. The paper scales cosines to the same range; here they are
    as they are, so that a similarity of 0 asks for orthogonal vectors and not for opposite ones. No
    term draws the projections to orthogonal ones.

    The same seed gives the same bits on the same machine and number of threads, also if training
    was interrupted and resumes.

    `epochs` gives the batches of epoch n, from 1, the same in each call. The loss on `held_out`
    says which epoch is best, or with `dev` Pearson's correlation with its gold scores, 0 where
    cosines are constant. `done` is called after each epoch, first for those before a checkpoint.
    The projection is that of the best epoch, the first of equal ones, with weights of sum 1.
    """
    return _Training(widths, settings, held_out, dev, checkpoint).run(epochs, done)


class _Training:
    """A model, its optimizer and its progress."""

    def __init__(
        self,
        widths: Sequence[int],
        settings: UnsupSettings,
        held_out: Sequence[WordBatch],
        dev: Sequence[ScoredPairs],
        checkpoint: Checkpoint | None,
    ) -> None:
        import torch

        gold = np.concatenate([batch.gold for batch in dev]) if dev else np.arange(2)
        if len(np.unique(gold)) < 2:
            raise BadInputError(
                f"dev: expected pairs of different gold similarities, found {len(gold)} of one"
            )
        self._model = model = AttentionModel(widths, settings)
        self._settings = settings
        self._held_out = held_out
        self._dev = dev
        self._checkpoint = checkpoint
        self._optimizer = torch.optim.AdamW(
            list(model.tensors.values()),
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self._stopping: EarlyStopping[MetaEpoch] = EarlyStopping(
            model.tensors,
            lambda curve: max(curve, key=lambda epoch: epoch.worth),
            settings.epochs,
            settings.patience,
        )

    def _cosines(self, batch: ScoredPairs) -> torch.Tensor:
        import torch

        count, pooling = 2 * len(batch.gold), self._settings.pooling
        pooled = self._model.sentences(Words(batch.words), count, pooling)
        return torch.nn.functional.cosine_similarity(pooled[0::2], pooled[1::2])

    def _loss(self, batch: Batch) -> torch.Tensor:
        import torch

        if isinstance(batch, WordBatch):
            return unsup_loss(self._model, Words(batch), self._settings)
        return (self._cosines(batch) - torch.from_numpy(batch.gold)).square().mean()

    def _evaluate(self) -> tuple[float | None, float | None]:
        """Loss on held-out data and score on dev; None of what there is not."""
        losses = [float(self._loss(batch)) for batch in self._held_out]
        error = float(np.mean(losses)) if losses else None
        if not self._dev:
            return error, None
        gold = np.concatenate([batch.gold for batch in self._dev])
        found = np.concatenate([self._cosines(batch).numpy() for batch in self._dev])
        return error, 0.0 if np.ptp(found) == 0 else float(np.corrcoef(found, gold)[0, 1])

    def run(
        self, epochs: Callable[[int], Iterable[Batch]], done: Callable[[MetaEpoch], object]
    ) -> tuple[Projection, History]:
        """Train to the end; see `fit_attention`."""
        stopping = self._stopping
        state = self._checkpoint.read() if self._checkpoint else None
        if state is None:
            self._end_epoch(None)
        else:
            tensors, values = state
            for one in values["curve"]:
                stopping.curve.append(MetaEpoch(**{**one, "weights": tuple(one["weights"])}))
            stopping.restore(tensors, self._optimizer)
        for epoch in stopping.curve:
            done(epoch)
        while not stopping.finished:
            self._end_epoch(self._train(epochs(len(stopping.curve))))
            done(stopping.curve[-1])
        best, last = stopping.kept, stopping.curve[-1]
        assert best is not None
        if best.epoch == 0 and last.worth < best.worth and best.score is None:
            raise self._diverged("on held-out sentences is never lower than before training")
        stopping.use_kept()
        return self._model.projection(), History(tuple(stopping.curve), best.epoch)

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
        return float(np.mean(losses))

    def _end_epoch(self, loss: float | None) -> None:
        """Record an epoch and save the state."""
        import torch

        finite = all(bool(one.isfinite().all()) for one in self._model.tensors.values())
        if finite:
            with torch.no_grad():
                held_out, score = self._evaluate()
                weights = tuple(self._model.weights.tolist())
            values = (loss, held_out, score)
            finite = all(value is None or math.isfinite(value) for value in values)
        if not finite:
            raise self._diverged("is not finite")
        curve = self._stopping.curve
        self._stopping.record(MetaEpoch(len(curve), loss, held_out, score, weights))
        if self._checkpoint is not None:
            tensors = self._stopping.tensors(self._optimizer)
            self._checkpoint.write(tensors, {"curve": [asdict(epoch) for epoch in curve]})

    def _diverged(self, what: str) -> ConfigError:
        return ConfigError(
            f"learning_rate: the training diverged in epoch {len(self._stopping.curve)}, the loss "
            f"{what}; expected a lower rate, found {self._settings.learning_rate:g}"
        )
