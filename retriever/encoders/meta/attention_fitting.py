"""UNSUP and SUP of Takahashi and Bollegala (2022): fitting, with early stopping and checkpoints."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.meta.attention import (
    AttentionModel,
    AttentionSettings,
    UnsupSettings,
    Words,
    cosine_error,
    pair_cosines,
    unsup_loss,
)
from retriever.encoders.meta.linear import Projection
from retriever.encoders.meta.sources import WordBatch
from retriever.errors import BadInputError, ConfigError

if TYPE_CHECKING:
    import torch

    from retriever.training.checkpoint import Checkpoint, TrainingState

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class MetaEpoch:
    """The result of an epoch of training.

    Attributes:
        epoch: from 1; 0 is before training.
        loss: mean over the batches as training met them; None before training.
        held_out: mean loss over the held-out batches; None if there are none.
        score: the dev score; None if there is none.
        weights: of the sources.
    """

    epoch: int
    loss: float | None
    held_out: float | None
    score: float | None
    weights: tuple[float, ...]

    @property
    def worth(self) -> float:
        """Higher is better: the score, else the negative loss on held-out data."""
        return -(self.held_out or 0.0) if self.score is None else self.score


@dataclass(frozen=True, slots=True)
class History:
    """The course of a training.

    Attributes:
        curve: all epochs, from the untrained projections on.
        best: the epoch that is kept, the earliest of equal ones: of the highest score if there is
            one, else of the lowest loss on held-out sentences.
    """

    curve: tuple[MetaEpoch, ...]
    best: int


@dataclass(frozen=True, slots=True, eq=False)
class ScoredPairs:
    """Pairs of sentences with gold similarities.

    Attributes:
        words: of the sentences; 2k and 2k + 1 are pair k.
        gold: (pairs,) float32 from 0 to 1.
    """

    words: WordBatch
    gold: NDArray[np.float32]

    def checked_gold(self) -> NDArray[np.float32]:
        """The gold similarities, of which there is one for each two sentences."""
        gold, sentences = self.gold, self.words.sentences
        if len(gold) == 0 or not (gold.min() >= 0 and gold.max() <= 1):
            raise BadInputError(
                "gold: expected similarities from 0 to 1 in each batch, found others"
            )
        if len(sentences) and sentences[-1] >= 2 * len(gold):
            raise BadInputError(
                f"gold: expected one similarity for each two sentences, found {len(gold)} for "
                f"{sentences[-1] + 1} sentences"
            )
        return gold


def fit_unsup(
    epochs: Callable[[int], Iterable[WordBatch]],
    widths: Sequence[int],
    settings: UnsupSettings,
    *,
    held_out: Sequence[WordBatch],
    score: Callable[[Projection], float] | None = None,
    done: Callable[[MetaEpoch], object] = lambda epoch: None,
    checkpoint: Path | None = None,
) -> tuple[Projection, History]:
    """Train projections and weights without labels (UNSUP).

    The loss of a batch is pull + λ within + μ same_word + ν across + ξ Σ_i orthogonality, where the
    four terms are means over pairs (`pair_means`). It is Eq. 10 with a lower bound: the
    coefficients are fixed, a pushed pair costs at most the margin, the weights are n softmax, so
    that equal weights are those of Eq. 1 whatever n is, and of A Aᵀ and Aᵀ A the one of full rank
    is drawn to I. Eq. 10 as it is printed falls without bound, and the authors' code turns each
    push into a pull.

    The same seed gives the same bits on the same machine and number of threads, also if training
    was interrupted and resumes. Zero rows, words that a source lacks, are in no pair of it.

    Args:
        epochs: the batches of epoch n, from 1, the same in each call. Pairs are made within each
            1,024 consecutive words of a batch.
        widths: d_j of each source, two or more.
        settings: how.
        held_out: batches for the loss that says which epoch is best; may be empty with `score`.
        score: higher is better; says which epoch is best, and may use labels.
        done: called after each epoch, and first for the epochs before a checkpoint.
        checkpoint: a folder for the state after each epoch, from which the same training resumes;
            the caller removes it.

    Returns:
        The projection of the best epoch, with means of 0 and weights of sum 1, and the course of
        the training.

    Raises:
        BadInputError: fewer than two sources, batches that do not fit them, values that are not
            finite, or no batches.
        ConfigError: the training diverged, or the checkpoint is of other settings or data.
    """
    if score is None and not held_out:
        raise BadInputError("expected held-out sentences or a dev score to stop by, found neither")
    model = AttentionModel(widths, settings)

    def loss(batch: WordBatch) -> torch.Tensor:
        return unsup_loss(model, Words(batch, widths), settings)

    def evaluate() -> tuple[float | None, float | None]:
        losses = [float(loss(batch)) for batch in held_out]
        error = float(np.mean(losses)) if losses else None
        return error, None if score is None else score(model.projection())

    training = _Training(model, settings, loss, evaluate)
    if checkpoint is not None:
        digest = _digest(array for batch in held_out for array in _arrays(batch))
        by = "loss" if score is None else "score"
        training.resume(checkpoint, {"method": "unsup", "stopped by": by, "held out": digest})
    return training.run(epochs, done)


def fit_sup(
    epochs: Callable[[int], Iterable[ScoredPairs]],
    widths: Sequence[int],
    settings: AttentionSettings,
    *,
    dev: Sequence[ScoredPairs],
    done: Callable[[MetaEpoch], object] = lambda epoch: None,
    checkpoint: Path | None = None,
) -> tuple[Projection, History]:
    """Train projections and weights on gold similarities (SUP, Eq. 15).

    The loss is the mean of (cos(m(s), m(s')) - r)² with sentence meta-vectors pooled as the
    settings say and r from 0 to 1. The paper scales cosines to the same range; here they are as
    they are, so that a similarity of 0 asks for orthogonal vectors and not for opposite ones. No
    term draws the projections to orthogonal ones. The epoch of the highest Pearson correlation on
    dev is kept. `dev` are pairs for the correlation, over all batches together; a constant cosine
    has 0. The other arguments and what is returned are those of `fit_unsup`.

    Raises:
        BadInputError: fewer than two sources, batches that do not fit them, values that are not
            finite, no pairs, or dev similarities that are all equal.
        ConfigError: the training diverged, or the checkpoint is of other settings or data.
    """
    gold = np.concatenate([np.zeros(0, np.float32), *(batch.checked_gold() for batch in dev)])
    if len(np.unique(gold)) < 2:
        raise BadInputError(
            f"dev: expected pairs of different gold similarities, found {len(gold)} of one"
        )
    model = AttentionModel(widths, settings)

    def pooled(batch: ScoredPairs) -> torch.Tensor:
        words = Words(batch.words, widths)
        return model.sentences(words, 2 * len(batch.gold), settings.pooling)

    def loss(batch: ScoredPairs) -> torch.Tensor:
        import torch

        gold = torch.from_numpy(batch.checked_gold())
        return cosine_error(pooled(batch), gold)

    def evaluate() -> tuple[float | None, float | None]:
        cosines = np.concatenate([pair_cosines(pooled(batch)).numpy() for batch in dev])
        error = float(np.mean(np.square(cosines - gold)))
        constant = np.ptp(cosines) == 0
        return error, 0.0 if constant else float(np.corrcoef(cosines, gold)[0, 1])

    training = _Training(model, settings, loss, evaluate)
    if checkpoint is not None:
        digest = _digest(one for batch in dev for one in (*_arrays(batch.words), batch.gold))
        training.resume(checkpoint, {"method": "sup", "dev": digest})
    return training.run(epochs, done)


def _digest(arrays: Iterable[NDArray[np.generic]]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _arrays(batch: WordBatch) -> Iterable[NDArray[np.generic]]:
    return (*batch.vectors, batch.sentences, batch.types)


class _Training(Generic[Batch]):
    """A model, its optimizer and its progress; `evaluate` gives loss and score on held-out data."""

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
        """Train to the end; see `fit_unsup`."""
        import torch

        for epoch in self._curve:
            done(epoch)
        if not self._curve:
            self._end_epoch(None, done)
        while len(self._curve) <= min(
            self._settings.epochs, self._best.epoch + self._settings.patience
        ):
            self._end_epoch(self._train(epochs(len(self._curve))), done)
        best, last = self._best, self._curve[-1]
        if best.epoch == 0 and last.worth < best.worth and best.score is None:
            raise self._diverged("on held-out sentences is never lower than before training")
        with torch.no_grad():
            for name, value in self._kept.items():
                self._model.tensors[name].copy_(value)
        return self._model.projection(), History(tuple(self._curve), best.epoch)

    @property
    def _best(self) -> MetaEpoch:
        """The first of equal ones."""
        return max(self._curve, key=lambda epoch: epoch.worth)

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

    def _end_epoch(self, loss: float | None, done: Callable[[MetaEpoch], object]) -> None:
        """Record an epoch and save the state."""
        import torch

        tensors = self._model.tensors
        finite = all(bool(one.isfinite().all()) for one in tensors.values())
        if finite:
            with torch.no_grad():
                held_out, score = self._evaluate()
                weights = tuple(self._model.weights.tolist())
            values = (loss, held_out, score)
            finite = all(value is None or math.isfinite(value) for value in values)
        if not finite:
            raise self._diverged("is not finite")
        epoch = MetaEpoch(len(self._curve), loss, held_out, score, weights)
        self._curve.append(epoch)
        if self._best is epoch:
            self._kept = {name: one.detach().clone() for name, one in tensors.items()}
        if self._checkpoint is not None:
            self._checkpoint.write(self._state())
        done(epoch)

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
