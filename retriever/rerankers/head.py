"""Rerankers on frozen vectors: a head is trained by pairwise hinge loss (Ma et al. 2019).

Its folder has its weights, and in `reranker.json` its encoder, what it computes, and its training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes import whole_folder
from retriever.encoders.model_folders import MALFORMED
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, EncoderMismatchError, require_torch
from retriever.rerankers.folders import MANIFEST, check_target, file_digest, form_of, read_manifest
from retriever.training.loop import EarlyStopping, Epoch, seeded
from retriever.training.sampling import JudgedPools, epoch_batches
from retriever.training.settings import HeadSettings, HeadTrainingSettings

if TYPE_CHECKING:
    from retriever.rerankers.scorers import InteractionHead

KIND = "head"
# In `training` of the manifest: whether searching with the map of the head is better.
QUERY_MAP = "query_map"
_FORM = form_of(KIND, encoder=dict, head=dict, training=dict)
Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]
# Scores pairs, as `InteractionHead.score` does.
Scorer = Callable[[Vectors, Vectors, Rows, Rows], Vectors]


class TrainedHead(NamedTuple):
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
) -> TrainedHead:
    """Train a head; the untrained one counts among those of which the best on dev is kept.

    The same seed gives the same bits on the same machine.
    """
    import torch

    from retriever.rerankers.scorers import InteractionHead, hinge

    u = torch.from_numpy(questions)
    v = torch.from_numpy(passages)
    with seeded(u.device, settings.seed):
        head = InteractionHead(head_settings, questions.shape[1])
        weights = list(head.parameters())
        towards = torch.clone if head_settings.starts_as_cosine else torch.zeros_like
        starts = [towards(weight.detach()) for weight in weights]
        decay = settings.learning_rate * settings.weight_decay
        optimizer = torch.optim.Adam(weights, settings.learning_rate, fused=True)
        stopping: EarlyStopping[Epoch] = EarlyStopping(
            dict(head.named_parameters()),
            lambda curve: max(curve, key=lambda one: one.dev),
            settings.epochs,
            settings.patience,
        )
        stopping.record(Epoch(0, 0.0, 0.0, dev_score(head.score)))
        while not stopping.finished:
            head.train()
            number = len(stopping.curve)
            chance = np.random.default_rng([settings.seed, number])
            loss = 0.0
            active = 0
            triples = 0
            for batch in epoch_batches(pools, settings.sampling, chance):
                # All negatives drawn at random may happen to be relevant.
                if not len(batch.positive):
                    continue
                rows = torch.from_numpy(batch.question), torch.from_numpy(batch.passage)
                losses = hinge(head.pairs(u, v, *rows), batch, settings.margin)
                optimizer.zero_grad()
                losses.mean().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                with torch.no_grad():
                    for weight, start in zip(weights, starts, strict=True):
                        weight.lerp_(start, decay)
                loss += float(losses.detach().sum())
                active += int(losses.count_nonzero())
                triples += len(losses)
            mean = loss / max(triples, 1)
            share = active / max(triples, 1)
            stopping.record(Epoch(number, mean, share, dev_score(head.score)))
    stopping.use_kept()
    best = max(stopping.curve, key=lambda one: one.dev)
    return TrainedHead(head.eval(), settings, tuple(stopping.curve), best.epoch)


class QueryMap:
    """The map M of a bilinear head u^T M v: u^T M takes the place of a query vector u.

    A search with it ranks all passages as the head does, since the length of a query vector changes
    no ranking; mapped vectors keep theirs, so that scores stay cosines.

    Args:
        matrix: (dimensions, dimensions) float32.
        spec: the encoder whose vectors it maps; None for any of these dimensions.
    """

    def __init__(self, matrix: Vectors, spec: EncoderSpec | None = None) -> None:
        self.matrix = np.ascontiguousarray(matrix, np.float32)
        self.spec = spec

    def __call__(self, vectors: Vectors) -> Vectors:
        """(queries, dimensions) float32 to the same shape; zero stays zero."""
        mapped = vectors @ self.matrix
        lengths, new = (np.linalg.norm(one, axis=1, keepdims=True) for one in (vectors, mapped))
        found: Vectors = mapped * (lengths / np.where(new > 0, new, 1)).astype(np.float32)
        return found

    def check(self, spec: EncoderSpec) -> None:
        """Raise EncoderMismatchError unless it maps vectors of this encoder."""
        if self.spec is not None:
            check_trained_with(self.spec, spec, "query map")


def load_query_map(folder: str | Path) -> QueryMap:
    """Load the query map that `retriever train reranker --system bilinear:linear` wrote.

    Needs no torch.

    Returns:
        What `Index.query_map` takes.

    Raises:
        ModelError: the folder holds no such reranker, or a file is missing or altered.
        ConfigError: the head is another one, or its training did not show that searching with the
            map is better than without.
    """
    manifest, spec, arrays = _read(Path(folder))
    head = manifest["head"]
    trial = manifest["training"].get(QUERY_MAP)
    if not is_query_map(head):
        raise ConfigError(
            f"{folder}: expected a query map, which is the head bilinear:linear, found another "
            "head; train one with `retriever train reranker --system bilinear:linear`"
        )
    if not isinstance(trial, dict) or trial.get("better") is not True:
        raise ConfigError(
            f"{folder}: expected a query map with which held-out questions found more, found one "
            "whose training does not say so; use the folder with --rerank, or train on more "
            "questions"
        )
    matrix = arrays.get("matrix")
    if matrix is None or matrix.shape != (spec.dimensions, spec.dimensions):
        raise _FORM.altered(Path(folder) / _FORM.arrays, "no matrix of its encoder's dimensions")
    return QueryMap(matrix, spec)


def is_query_map(head: Mapping[str, Any]) -> bool:
    """Whether a head with these settings is a map of query vectors."""
    return (head.get("interaction"), head.get("head")) == ("bilinear", "linear")


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

        manifest, spec, arrays = _read(folder)
        try:
            # Sizes that the arrays do not have take no memory there.
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
            _FORM.write_arrays(new, {name: one.numpy() for name, one in state.items()})
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
        """One score for each passage, as of `retriever.search.reranking.Reranker`."""
        assert vector is not None
        assert vectors is not None
        rows = np.arange(len(vectors))
        return self.head.score(vector[None], vectors, np.zeros_like(rows), rows)

    def check(self, spec: EncoderSpec) -> None:
        """Raise EncoderMismatchError unless the head was trained with this encoder."""
        check_trained_with(self.spec, spec, "reranker")


def check_trained_with(own: EncoderSpec, spec: EncoderSpec, what: str) -> None:
    """Refuse the vectors of another encoder than the one that something was trained with."""
    if spec.fingerprint != own.fingerprint:
        raise EncoderMismatchError(
            f"expected vectors of the encoder {own} ({own.fingerprint}), which the {what} was "
            f"trained with, found {spec} ({spec.fingerprint}); use that encoder or train a {what} "
            "with this one"
        )


def _read(folder: Path) -> tuple[dict[str, Any], EncoderSpec, dict[str, Vectors]]:
    """The manifest, the encoder and the weights of a head."""
    manifest = read_manifest(folder, _FORM)
    arrays = _FORM.read_arrays(folder)
    path = folder / _FORM.arrays
    if file_digest(path) != manifest["weights"]:
        raise _FORM.altered(path, f"another SHA-256 than {MANIFEST} says")
    try:
        return manifest, EncoderSpec.from_json(manifest["encoder"]), arrays
    except (ConfigError, *MALFORMED) as error:
        raise _FORM.altered(folder / MANIFEST, " ".join(str(error).split())) from error
