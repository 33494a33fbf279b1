"""Rerankers on frozen vectors: a head, trained by pairwise hinge loss (Ma et al. 2019).

Its folder has the weights of the head, and a `reranker.json` with its encoder, settings and
training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.files import whole_folder
from retriever.encoders.model_folders import MALFORMED
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, EncoderMismatchError, require_torch
from retriever.rerankers.folders import MANIFEST, check_target, file_digest, form_of, read_manifest
from retriever.training.loop import EarlyStopping, Epoch, seeded
from retriever.training.sampling import JudgedPools, epoch_batches
from retriever.training.settings import HeadSettings, HeadTrainingSettings

if TYPE_CHECKING:
    import torch

    from retriever.rerankers.scorers import InteractionHead
    from retriever.training.sampling import TripleBatch

KIND = "head"
# Key in `training` of the manifest: whether a search with the map of the head is better.
QUERY_MAP = "query_map"
_FORM = form_of(KIND, encoder=dict, head=dict, training=dict)
Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]
# A function that scores pairs; see `InteractionHead.score`.
Scorer = Callable[[Vectors, Vectors, Rows, Rows], Vectors]


class TrainedHead(NamedTuple):
    """A head with the weights of the best epoch on dev; ties go to the earliest epoch."""

    head: InteractionHead
    settings: HeadTrainingSettings
    curve: tuple[Epoch, ...]
    # Number of the best epoch; 0 is the untrained head.
    best: int


def train_head(
    settings: HeadTrainingSettings,
    head_settings: HeadSettings,
    questions: Vectors,
    passages: Vectors,
    pools: JudgedPools,
    dev_score: Callable[[Scorer], float],
) -> TrainedHead:
    """Train a head, and keep its weights of the best epoch on dev, the untrained ones included.

    The same seed gives the same bits on the same machine.

    Args:
        settings: how to train.
        head_settings: the head.
        questions: (questions, dimensions) vectors.
        passages: (passages, dimensions) vectors.
        pools: rows of relevant and other passages for each question.
        dev_score: returns the quality of a scorer on dev; higher is better.
    """
    import torch

    from retriever.rerankers.scorers import InteractionHead

    question_vectors = torch.from_numpy(questions)
    passage_vectors = torch.from_numpy(passages)
    with seeded(question_vectors.device, settings.seed):
        head = InteractionHead(head_settings, questions.shape[1])
        weights = list(head.parameters())
        # Weights decay towards their start if the head starts as the cosine, otherwise to zero.
        towards = torch.clone if head_settings.starts_as_cosine else torch.zeros_like
        targets = [towards(weight.detach()) for weight in weights]
        optimizer = torch.optim.Adam(weights, settings.learning_rate, fused=True)
        parameters = dict(head.named_parameters())
        stopping: EarlyStopping[Epoch] = EarlyStopping(
            parameters, _best_epoch, settings.epochs, settings.patience
        )
        stopping.record(Epoch(0, 0.0, 0.0, dev_score(head.score)))
        while not stopping.finished:
            number = len(stopping.curve)
            random = np.random.default_rng([settings.seed, number])
            batches = epoch_batches(pools, settings.sampling, random)
            loss, active_share = _train_epoch(
                head, optimizer, targets, settings, question_vectors, passage_vectors, batches
            )
            stopping.record(Epoch(number, loss, active_share, dev_score(head.score)))
    stopping.restore_selected()
    best = _best_epoch(stopping.curve)
    return TrainedHead(head.eval(), settings, tuple(stopping.curve), best.epoch)


def _best_epoch(curve: Sequence[Epoch]) -> Epoch:
    return max(curve, key=lambda epoch: epoch.dev)


def _train_epoch(
    head: InteractionHead,
    optimizer: torch.optim.Optimizer,
    targets: Sequence[torch.Tensor],
    settings: HeadTrainingSettings,
    questions: torch.Tensor,
    passages: torch.Tensor,
    batches: Iterable[TripleBatch],
) -> tuple[float, float]:
    """Train on the batches of an epoch; return the mean loss and the share of positive losses."""
    import torch

    from retriever.rerankers.scorers import hinge

    decay = settings.learning_rate * settings.weight_decay
    loss = 0.0
    active = 0
    triples = 0
    head.train()
    for batch in batches:
        # All negatives drawn at random may happen to be relevant.
        if not len(batch.positive):
            continue
        rows = (torch.from_numpy(batch.question), torch.from_numpy(batch.passage))
        losses = hinge(head.pairs(questions, passages, *rows), batch, settings.margin)
        optimizer.zero_grad()
        losses.mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            for weight, target in zip(head.parameters(), targets, strict=True):
                weight.lerp_(target, decay)
        loss += float(losses.detach().sum())
        active += int(losses.count_nonzero())
        triples += len(losses)
    return loss / max(triples, 1), active / max(triples, 1)


class QueryMap:
    """The map M of a bilinear head u^T M v: u^T M replaces a query vector u.

    A search with the map ranks all passages as the head does. Mapped vectors keep their length, so
    that scores stay cosines; the length of a query vector changes no ranking.

    Args:
        matrix: (dimensions, dimensions) float32.
        spec: the encoder whose vectors it maps; None for any encoder with these dimensions.
    """

    def __init__(self, matrix: Vectors, spec: EncoderSpec | None = None) -> None:
        self.matrix = np.ascontiguousarray(matrix, np.float32)
        self.spec = spec

    def __call__(self, vectors: Vectors) -> Vectors:
        """Map (queries, dimensions) float32 to the same shape; zero stays zero."""
        mapped = vectors @ self.matrix
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        mapped_lengths = np.linalg.norm(mapped, axis=1, keepdims=True)
        factors = lengths / np.where(mapped_lengths > 0, mapped_lengths, 1)
        scaled: Vectors = mapped * factors.astype(np.float32)
        return scaled

    def check(self, spec: EncoderSpec) -> None:
        """Raise EncoderMismatchError unless the map is for vectors of this encoder."""
        if self.spec is not None:
            check_trained_with(self.spec, spec, "query map")


def load_query_map(folder: str | Path) -> QueryMap:
    """Load the query map that `retriever train reranker --system bilinear:linear` wrote.

    Torch is not needed.

    Returns:
        A query map, for `Index.query_map`.

    Raises:
        ModelError: the folder holds no such reranker, or a file is missing or altered.
        ConfigError: the folder holds another head, or its training did not show that a search with
            the map is better.
    """
    manifest, spec, arrays = _read_head(Path(folder))
    head = manifest["head"]
    trial = manifest["training"].get(QUERY_MAP)
    if not is_query_map(head):
        raise ConfigError(
            f"{folder}: expected a query map, which is the head bilinear:linear, found another "
            "head; train one with `retriever train reranker --system bilinear:linear`"
        )
    if not isinstance(trial, dict) or trial.get("better") is not True:
        raise ConfigError(
            f"{folder}: expected a query map that improved held-out questions, found no such "
            "result of its training; use the folder with --rerank, or train on more questions"
        )
    matrix = arrays.get("matrix")
    if matrix is None or matrix.shape != (spec.dimensions, spec.dimensions):
        raise _FORM.altered(Path(folder) / _FORM.arrays, "no matrix of its encoder's dimensions")
    return QueryMap(matrix, spec)


def is_query_map(head: Mapping[str, Any]) -> bool:
    """Return whether a head with these settings is a map of query vectors."""
    return (head.get("interaction"), head.get("head")) == ("bilinear", "linear")


class HeadReranker:
    """A head and the encoder whose vectors it scores; `training` is for information only."""

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
        """Return the reranker of a training on vectors of an encoder.

        `data` describes the training data, for information only.
        """
        training = {
            **(data or {}),
            "settings": asdict(trained.settings),
            "best_epoch": trained.best,
            "curve": [asdict(epoch) for epoch in trained.curve],
        }
        return cls(spec, trained.head, training)

    @property
    def settings(self) -> HeadSettings:
        """The settings of the head."""
        return self.head.settings

    @classmethod
    def load(cls, folder: Path) -> HeadReranker:
        """Read the folder of a reranker that `save` wrote."""
        require_torch("a reranker of vectors")
        import torch

        from retriever.rerankers.scorers import InteractionHead

        manifest, spec, arrays = _read_head(folder)
        try:
            # The device "meta" allocates no memory for wrong sizes.
            with torch.device("meta"):
                head = InteractionHead(HeadSettings(**manifest["head"]), spec.dimensions)
            weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
            head.load_state_dict(weights, assign=True)
        except (ConfigError, RuntimeError, *MALFORMED) as error:
            raise _FORM.altered(folder / MANIFEST, " ".join(str(error).split())) from error
        return cls(spec, head.eval(), manifest["training"])

    def save(self, folder: Path) -> None:
        """Write the reranker; the folder appears complete, or not at all."""
        check_target(folder, KIND)
        with whole_folder(folder) as new:
            state = self.head.state_dict()
            _FORM.write_arrays(new, {name: weight.numpy() for name, weight in state.items()})
            settings = {
                "format": _FORM.version,
                "kind": KIND,
                "weights": file_digest(new / _FORM.arrays),
                "encoder": self.spec.to_json(),
                "head": asdict(self.settings),
                "training": dict(self.training),
            }
            _FORM.write_settings(new, settings)

    def score(
        self, query: str, vector: Vectors | None, passages: Sequence[str], vectors: Vectors | None
    ) -> Vectors:
        """Return one score for each passage; see `retriever.search.reranking.Reranker`."""
        assert vector is not None
        assert vectors is not None
        rows = np.arange(len(vectors))
        return self.head.score(vector[None], vectors, np.zeros_like(rows), rows)

    def check(self, spec: EncoderSpec) -> None:
        """Raise EncoderMismatchError unless the head was trained with this encoder."""
        check_trained_with(self.spec, spec, "reranker")


def check_trained_with(own: EncoderSpec, spec: EncoderSpec, what: str) -> None:
    """Raise EncoderMismatchError if `what` was trained with another encoder than `spec`."""
    if spec.fingerprint != own.fingerprint:
        raise EncoderMismatchError(
            f"expected vectors of the encoder {own} ({own.fingerprint}), which the {what} was "
            f"trained with, found {spec} ({spec.fingerprint}); use that encoder or train a {what} "
            "with this one"
        )


def _read_head(folder: Path) -> tuple[dict[str, Any], EncoderSpec, dict[str, Vectors]]:
    """Return the manifest, the encoder and the weights of a head."""
    manifest = read_manifest(folder, _FORM)
    arrays = _FORM.read_arrays(folder)
    path = folder / _FORM.arrays
    if file_digest(path) != manifest["weights"]:
        raise _FORM.altered(path, f"another SHA-256 than {MANIFEST} says")
    try:
        return manifest, EncoderSpec.from_json(manifest["encoder"]), arrays
    except (ConfigError, *MALFORMED) as error:
        raise _FORM.altered(folder / MANIFEST, " ".join(str(error).split())) from error
