"""A trained head in a folder of its own.

::

    reranker.json      encoder, what the head computes, how it was trained; written last
    head.safetensors   its weights
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexes import whole_folder
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, EncoderMismatchError, ModelError
from retriever.rerankers.head.training import TrainedHead
from retriever.rerankers.manifest import (
    MANIFEST,
    altered,
    check_target,
    read_manifest,
    write_manifest,
)

if TYPE_CHECKING:
    from retriever.rerankers.head.model import InteractionHead
    from retriever.rerankers.head.settings import HeadSettings

KIND = "head"
_WEIGHTS = "head.safetensors"
_KEYS = {"encoder": dict, "head": dict, "training": dict}
Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]


class HeadReranker:
    """A head and the encoder whose vectors it scores.

    Args:
        spec: of the encoder.
        head: the weights.
        training: how it was trained, as JSON values, for a person; decides nothing.

    Attributes:
        spec: as given.
        training: as given.
    """

    def __init__(
        self, spec: EncoderSpec, head: InteractionHead, training: Mapping[str, Any]
    ) -> None:
        self.spec = spec
        self.training = training
        self._head = head

    @classmethod
    def of(
        cls, spec: EncoderSpec, trained: TrainedHead, data: Mapping[str, Any] | None = None
    ) -> HeadReranker:
        """From a training.

        Args:
            spec: of the encoder that made the vectors.
            trained: what came of it.
            data: what it was trained on, as JSON values, for a person.
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
        """What the head computes."""
        return self._head.settings

    @classmethod
    def load(cls, folder: Path) -> HeadReranker:
        """Read what `save` wrote.

        Raises:
            ModelError: a file is missing, altered or of another form, or written by a newer
                release.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load

        from retriever.rerankers.head.model import InteractionHead

        manifest = read_manifest(folder, KIND, _KEYS)
        path = folder / _WEIGHTS
        try:
            content = path.read_bytes()
            tensors = load(content)
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{path}: {altered(' '.join(str(error).split()))}") from error
        if hashlib.sha256(content).hexdigest() != manifest["weights"]:
            raise ModelError(f"{path}: {altered(f'another SHA-256 than {MANIFEST} says')}")
        try:
            spec = EncoderSpec.from_json(manifest["encoder"])
            head = InteractionHead(_head_settings(manifest["head"]), spec.dimensions)
            head.load_state_dict(tensors)
        except (ConfigError, TypeError, AttributeError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise ModelError(f"{folder / MANIFEST}: {altered(reason)}") from error
        return cls(spec, head.eval(), manifest["training"])

    def save(self, folder: Path) -> None:
        """Write the reranker; the folder appears complete, or not at all.

        Raises:
            ConfigError: the folder holds something other than a reranker, is a file, or is in a
                folder that does not exist.
            StorageError: the disk is full or cannot be written.
        """
        from safetensors.torch import save

        check_target(folder, KIND)
        content = save(self._head.state_dict())
        values = {
            "encoder": self.spec.to_json(),
            "head": asdict(self.settings),
            "training": dict(self.training),
        }
        with whole_folder(folder) as new:
            (new / _WEIGHTS).write_bytes(content)
            write_manifest(new, KIND, hashlib.sha256(content).hexdigest(), values)

    def check_encoder(self, spec: EncoderSpec) -> None:
        """Refuse the vectors of another encoder.

        Raises:
            EncoderMismatchError: the encoder is not the one that the head was trained with.
        """
        if spec.fingerprint != self.spec.fingerprint:
            raise EncoderMismatchError(
                f"expected vectors of the encoder {self.spec} ({self.spec.fingerprint}), which the "
                f"reranker was trained with, found {spec} ({spec.fingerprint}); use that encoder "
                "or train a reranker with this one"
            )

    def score(
        self,
        questions: Vectors,
        passages: Vectors,
        question_rows: Rows | None = None,
        passage_rows: Rows | None = None,
    ) -> Vectors:
        """Score pairs; see `InteractionHead.score`."""
        return self._head.score(questions, passages, question_rows, passage_rows)


def _head_settings(value: Mapping[str, Any]) -> HeadSettings:
    """Read the settings of a head.

    Raises:
        ConfigError: a setting is unknown, missing or impossible.
    """
    from retriever.rerankers.head.settings import HeadSettings

    names = {field.name for field in fields(HeadSettings)}
    for what, keys in (("unknown", value.keys() - names), ("missing", names - value.keys())):
        if keys:
            raise ConfigError(f"head: {what} setting {min(keys)!r}")
    return HeadSettings(**value)
