"""Fine-tuning a cross-encoder in domain by pairwise hinge loss (Ma et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from retriever.encoders.transformer.batching import token_batches
from retriever.rerankers.cross.model import CrossEncoder
from retriever.rerankers.cross.optimizer import optimizer_of, trained_weights
from retriever.rerankers.cross.settings import (
    CrossEpoch,
    CrossTrainingSettings,
    Step,
    kept_epoch,
)
from retriever.rerankers.training.averaging import WeightAverage
from retriever.rerankers.training.checkpoint import Checkpoint, TrainingState
from retriever.rerankers.training.sampling import (
    JudgedPools,
    TripleBatch,
    batches_in_epoch,
    epoch_batches,
)

if TYPE_CHECKING:
    import torch

# Pieces of a forward pass; a batch of questions takes several.
_PIECES = 2048


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
    checkpoint: Checkpoint | None = None,
    on_step: Callable[[Step], object] = _silent,
    on_epoch: Callable[[CrossEpoch], object] = _silent,
) -> tuple[CrossEpoch, ...]:
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
        checkpoint: the state to resume from, and where to save states; None saves nothing.
        on_step: called after each step.
        on_epoch: called after each epoch, and first for the epochs before a checkpoint.

    Returns:
        The learning curve.

    Raises:
        BadInputError: no question has a relevant passage and another one.
        ConfigError: the checkpoint is of other settings or data.
    """
    import torch

    device = model.backbone.device
    model.autocast = settings.precision == "bfloat16" or (
        settings.precision == "auto" and quick_bfloat16(device)
    )
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(settings.seed)
        model.head.apply(_reset)
        training = _Training(model, questions, passages, pools, settings)
        if checkpoint is not None and (state := checkpoint.read()) is not None:
            training.restore(state)
        for epoch in training.curve:
            on_epoch(epoch)
        while not training.finished:
            for step in training.steps():
                on_step(step)
                if checkpoint is not None and checkpoint.due():
                    checkpoint.write(training.state())
            training.end_epoch(dev_score)
            on_epoch(training.curve[-1])
            if checkpoint is not None:
                checkpoint.write(training.state())
        training.use_kept()
    return tuple(training.curve)


def quick_bfloat16(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 faster than float32."""
    import torch

    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return device.type == "cpu" and bool(
        torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    )


class _Training:
    """A model, its optimizer and its progress."""

    def __init__(
        self,
        model: CrossEncoder,
        questions: Sequence[str],
        passages: Sequence[str],
        pools: JudgedPools,
        settings: CrossTrainingSettings,
    ) -> None:
        self._model = model
        self._device = model.backbone.device
        self._questions = questions
        self._passages = passages
        self._pools = pools
        self._settings = settings
        self._in_epoch = batches_in_epoch(pools, settings.sampling)
        self._total = settings.epochs * self._in_epoch
        self._weights = trained_weights(model, settings)
        self._optimizer = optimizer_of(self._weights, settings)
        self._average = WeightAverage(self._weights, settings.averaging)
        self._kept: dict[str, torch.Tensor] = {}
        self.curve: list[CrossEpoch] = []
        self._done = 0
        self._losses: list[float] = []
        self._active: list[float] = []

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or the last ones were worse."""
        kept = self._kept_epoch()
        return len(self.curve) >= self._settings.epochs or (
            kept is not None and len(self.curve) - kept.epoch >= self._settings.patience
        )

    def steps(self) -> Iterator[Step]:
        """The rest of the current epoch."""
        model, settings = self._model, self._settings
        model.backbone.model.train()
        model.head.train()
        chance = np.random.default_rng([settings.seed, len(self.curve)])
        skipped = self._done - len(self.curve) * self._in_epoch
        for number, batch in enumerate(epoch_batches(self._pools, settings.sampling, chance)):
            if number >= skipped:
                # Negatives that were drawn at random may all happen to answer.
                if len(batch.positive):
                    self._step(batch)
                self._done += 1
                self._average.follow(self._done)
                yield Step(self._done, self._total, len(batch.question))

    def _step(self, batch: TripleBatch) -> None:
        import torch

        factor = self._rate()
        for group in self._optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        scores = self._scores(batch)
        gaps = scores[torch.from_numpy(batch.positive)] - scores[torch.from_numpy(batch.negative)]
        losses = torch.relu(self._settings.margin - gaps)
        loss = losses.mean()
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._weights.values(), self._settings.clip)
        self._optimizer.step()
        self._losses.append(float(loss.detach()))
        self._active.append(float((losses > 0).float().mean()))

    def _rate(self) -> float:
        """Linear warm-up, then linear decay: the factor of the learning rates."""
        warm = max(1.0, self._settings.warmup * self._total)
        return min(1.0, (self._done + 1) / warm) * (1 - self._done / self._total)

    def _scores(self, batch: TripleBatch) -> torch.Tensor:
        """The score of each pair, computed in parts of like length."""
        import torch

        pairs = self._model.backbone.tokenize_pairs(
            [self._questions[row] for row in batch.question],
            [self._passages[row] for row in batch.passage],
            self._model.max_length,
        )
        parts = list(token_batches([len(ids) for ids in pairs.ids], _PIECES))
        scores = torch.cat([self._model.forward(pairs, rows) for rows in parts])
        return scores[torch.from_numpy(np.argsort(np.concatenate(parts)))]

    def end_epoch(self, dev_score: Callable[[CrossEncoder], float]) -> None:
        """Keep the record, and the averaged weights unless dev is worse."""
        with self._average.applied():
            dev = dev_score(self._model)
        losses, active = self._losses or [0.0], self._active or [0.0]
        record = CrossEpoch(
            len(self.curve) + 1, float(np.mean(losses)), float(np.mean(active)), dev
        )
        self.curve.append(record)
        self._losses, self._active = [], []
        if self._kept_epoch() == record:
            self._kept = {name: one.clone() for name, one in self._average.values.items()}

    def _kept_epoch(self) -> CrossEpoch | None:
        return kept_epoch(self.curve, self._settings.tolerance)

    def use_kept(self) -> None:
        """Give the model the weights that are kept."""
        self._average.write(self._kept)

    def state(self) -> TrainingState:
        """Everything that the rest of the training depends on."""
        import torch

        tensors = {f"weights/{name}": one.detach() for name, one in self._weights.items()}
        tensors |= {f"average/{name}": one for name, one in self._average.values.items()}
        tensors |= {f"kept/{name}": one for name, one in self._kept.items()}
        for name, weight in self._weights.items():
            for key, value in self._optimizer.state.get(weight, {}).items():
                tensors[f"optimizer/{key}/{name}"] = value
        tensors["chance"] = torch.get_rng_state()
        if self._device.type == "cuda":
            tensors["chance/cuda"] = torch.cuda.get_rng_state(self._device)
        values = {
            "done": self._done,
            "curve": [asdict(one) for one in self.curve],
            "losses": self._losses,
            "active": self._active,
        }
        return TrainingState(tensors, values)

    def restore(self, state: TrainingState) -> None:
        """Resume from a state of the same training."""
        import torch

        values = state.values
        self._done = values["done"]
        self.curve = [CrossEpoch(**one) for one in values["curve"]]
        self._losses, self._active = list(values["losses"]), list(values["active"])
        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(state.tensors[f"weights/{name}"])
        kept: dict[str, dict[str, Any]] = {}
        for path, value in state.tensors.items():
            kind, _, rest = path.partition("/")
            if kind == "kept":
                self._kept[rest] = value.to(self._device)
            elif kind == "average":
                self._average.values[rest].copy_(value)
            elif kind == "optimizer":
                key, _, name = rest.partition("/")
                # Adam counts its steps on the CPU.
                kept.setdefault(name, {})[key] = value if key == "step" else value.to(self._device)
        for name, one in kept.items():
            self._optimizer.state[self._weights[name]] = one
        torch.set_rng_state(state.tensors["chance"])
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(state.tensors["chance/cuda"], self._device)


def _reset(module: torch.nn.Module) -> None:
    """New weights for a layer of the MLP, from the seed."""
    reset = getattr(module, "reset_parameters", None)
    if reset is not None:
        reset()
