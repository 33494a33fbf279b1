"""Rerankers on frozen vectors: a head is trained by pairwise hinge loss (Ma et al. 2019).

Its folder has its weights, and in `reranker.json` its encoder, what it computes, and its training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexes import whole_folder
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, EncoderMismatchError, require_torch
from retriever.rerankers import MANIFEST, check_target, form_of, read_manifest
from retriever.training.loop import EarlyStopping, Epoch, silent
from retriever.training.sampling import JudgedPools, TripleBatch, epoch_batches
from retriever.training.settings import HeadSettings, HeadTrainingSettings

if TYPE_CHECKING:
    import torch

    from retriever.rerankers.scorers import InteractionHead

KIND = "head"
_FORM = form_of(KIND, encoder=dict, head=dict, training=dict)
Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]
# Scores pairs, as `InteractionHead.score` does.
Scorer = Callable[[Vectors, Vectors, Rows, Rows], Vectors]


@dataclass(frozen=True, slots=True, eq=False)
class TrainedHead:
    """A head with the weights of the epoch that is best on dev, the earliest of equal ones."""

    head: InteractionHead
    settings: HeadTrainingSettings
    curve: tuple[Epoch, ...]
    best: int


def train_head(
    settings: HeadTrainingSettings,
    head_settings: HeadSettings,
    questions: Vectors,
    passages: Vectors,
    pools: JudgedPools,
    dev_score: Callable[[Scorer], float],
    done: Callable[[Epoch], object] = silent,
) -> TrainedHead:
    """Train a head; the untrained one counts among those of which the best on dev is kept.

    The same seed gives the same bits on the same machine. PyTorch's random state is afterwards what
    it was before. `dev_score` gets the head's `score` after each epoch; higher is better.
    """
    import torch

    from retriever.rerankers.scorers import InteractionHead

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        head = InteractionHead(head_settings, questions.shape[1])
        steps = _Steps(head, settings, torch.from_numpy(questions), torch.from_numpy(passages))
        stopping: EarlyStopping[Epoch] = EarlyStopping(
            dict(head.named_parameters()),
            lambda curve: max(curve, key=lambda one: one.dev),
            settings.epochs,
            settings.patience,
        )
        stopping.record(Epoch(0, 0.0, 0.0, dev_score(head.score)))
        done(stopping.curve[0])
        while not stopping.finished:
            number = len(stopping.curve)
            loss, active = steps.epoch(pools, number)
            stopping.record(Epoch(number, loss, active, dev_score(head.score)))
            done(stopping.curve[-1])
    stopping.use_kept()
    best = max(stopping.curve, key=lambda one: one.dev)
    return TrainedHead(head.eval(), settings, tuple(stopping.curve), best.epoch)


class _Steps:
    """A head, its optimizer and the vectors it is trained on."""

    def __init__(
        self,
        head: InteractionHead,
        settings: HeadTrainingSettings,
        questions: torch.Tensor,
        passages: torch.Tensor,
    ) -> None:
        import torch

        self._head = head
        self._settings = settings
        self._vectors = questions, passages
        self._weights = list(head.parameters())
        towards = torch.clone if head.settings.starts_as_cosine else torch.zeros_like
        self._starts = [towards(weight.detach()) for weight in self._weights]
        rate = settings.learning_rate
        self._optimizer: torch.optim.Optimizer
        if settings.optimizer == "adam":
            self._optimizer = torch.optim.Adam(self._weights, rate, fused=True)
        else:
            self._optimizer = torch.optim.SGD(self._weights, rate, momentum=0.9, fused=True)

    def epoch(self, pools: JudgedPools, number: int) -> tuple[float, float]:
        """Mean loss and share of active triples."""
        self._head.train()
        chance = np.random.default_rng([self._settings.seed, number])
        loss, active, triples = 0.0, 0, 0
        for batch in epoch_batches(pools, self._settings.sampling, chance):
            # All negatives drawn at random may happen to be relevant.
            if len(batch.positive):
                losses = self._step(batch)
                loss += float(losses.sum())
                active += int(losses.count_nonzero())
                triples += len(losses)
        return loss / max(triples, 1), active / max(triples, 1)

    def _step(self, batch: TripleBatch) -> torch.Tensor:
        import torch

        from retriever.rerankers.scorers import hinge

        rows = torch.from_numpy(batch.question), torch.from_numpy(batch.passage)
        settings = self._settings
        losses = hinge(self._head.pairs(*self._vectors, *rows), batch, settings.margin)
        self._optimizer.zero_grad()
        losses.mean().backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        if settings.weight_decay:
            share = settings.learning_rate * settings.weight_decay
            with torch.no_grad():
                for weight, start in zip(self._weights, self._starts, strict=True):
                    weight.lerp_(start, share)
        return losses.detach()


class HeadReranker:
    """A head and the encoder whose vectors it scores; `training` is for a person."""

    reads_vectors = True

    def __init__(
        self, spec: EncoderSpec, head: InteractionHead, training: Mapping[str, Any]
    ) -> None:
        self.spec = spec
        self.head = head
        self.training = training

    @classmethod
    def of(
        cls, spec: EncoderSpec, trained: TrainedHead, data: Mapping[str, Any] | None = None
    ) -> HeadReranker:
        """From a training on vectors of an encoder; `data` says, for a person, what they are of."""
        training = {
            **(data or {}),
            "settings": asdict(trained.settings),
            "best_epoch": trained.best,
            "curve": [asdict(epoch) for epoch in trained.curve],
        }
        return cls(spec, trained.head, training)

    @property
    def settings(self) -> HeadSettings:
        """What the head computes."""
        return self.head.settings

    @classmethod
    def load(cls, folder: Path) -> HeadReranker:
        """Read what `save` wrote."""
        require_torch("a reranker of vectors")
        import torch

        from retriever.rerankers.scorers import InteractionHead

        manifest = read_manifest(folder, _FORM)
        arrays = _FORM.read_arrays(folder)
        path = folder / _FORM.arrays
        if _digest(path) != manifest["weights"]:
            raise _FORM.altered(path, f"another SHA-256 than {MANIFEST} says")
        try:
            spec = EncoderSpec.from_json(manifest["encoder"])
            head = InteractionHead(HeadSettings(**manifest["head"]), spec.dimensions)
            head.load_state_dict({name: torch.from_numpy(one) for name, one in arrays.items()})
        except (ConfigError, TypeError, AttributeError, RuntimeError) as error:
            raise _FORM.altered(folder / MANIFEST, " ".join(str(error).split())) from error
        return cls(spec, head.eval(), manifest["training"])

    def save(self, folder: Path) -> None:
        """Write the reranker; the folder appears complete, or not at all."""
        check_target(folder, KIND)
        with whole_folder(folder) as new:
            state = self.head.state_dict()
            _FORM.write_arrays(new, {name: one.numpy() for name, one in state.items()})
            settings = {
                "format": _FORM.version,
                "kind": KIND,
                "weights": _digest(new / _FORM.arrays),
                "encoder": self.spec.to_json(),
                "head": asdict(self.settings),
                "training": dict(self.training),
            }
            _FORM.write_settings(new, settings)

    def score(
        self, query: str, vector: Vectors | None, passages: Sequence[str], vectors: Vectors | None
    ) -> Vectors:
        """One score for each passage, as of `retriever.search.reranking.Reranker`."""
        assert vector is not None
        assert vectors is not None
        rows = np.arange(len(vectors))
        return self.head.score(vector[None], vectors, np.zeros_like(rows), rows)

    def check(self, spec: EncoderSpec) -> None:
        """Raise EncoderMismatchError unless the head was trained with this encoder."""
        if spec.fingerprint != self.spec.fingerprint:
            raise EncoderMismatchError(
                f"expected vectors of the encoder {self.spec} ({self.spec.fingerprint}), which the "
                f"reranker was trained with, found {spec} ({spec.fingerprint}); use that encoder "
                "or train a reranker with this one"
            )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
