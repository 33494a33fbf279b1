"""What an index knows of an encoder: the specification of its vectors, and its interface."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.settings import (
    COMPUTING,
    SBERT_WK,
    SECTIONS,
    TRANSFORMER,
    EncoderSettings,
    parse_encoder,
)
from retriever.errors import ConfigError
from retriever.settings import declared_settings

if TYPE_CHECKING:
    from retriever.encoders.encoder import Encoder

Done = Callable[[int, int], object]

# Texts whose vectors identify an encoder.
PROBES = (
    "The cat sat on the mat.",
    "How do I read a file line by line?",
    "In 1969 two people walked on the moon; 650 million watched.",
)
# Vectors of the same encoder have at least this cosine, whatever computed them.
_SAME = 0.999
# Settings that older releases did not have: their plain meaning does not enter a fingerprint.
_LATER = ("wk_words", "wk_layers")
_DECLARED = declared_settings(EncoderSettings)


@dataclass(frozen=True)
class EncoderSpec:
    """Everything that decides which vector a text gets; stored with every index.

    Attributes:
        settings: with the model, the window and all that differs from plain mean pooling of the
            last layer; layers are counted from the embeddings (0).
        weights: SHA-256 over the model's weights and tokenizer, in hexadecimal; for an encoder
            that a program passes, `PROBED` and a hash of the vectors of fixed texts.
        dimensions: components of a vector.
        model: the name that the model was given by: a label, not an identity.
        max_length: the window in word pieces, special tokens and prompt included.

    Raises:
        ConfigError: the settings lack the model or the window.
    """

    PROBED: ClassVar = "probed:"

    settings: EncoderSettings
    weights: str
    dimensions: int
    model: str = field(init=False, repr=False, compare=False)
    max_length: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("model", "max_length"):
            value = getattr(self.settings, name)
            if value is None:
                raise ConfigError(f"encoder: missing setting {name.replace('_', '-')!r}")
            object.__setattr__(self, name, value)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EncoderSpec:
        """Read what `to_json` wrote, today or before layers could be chosen.

        Raises:
            ConfigError: a missing key, or a setting that is impossible.
        """
        try:
            if "model" in value:
                # When the mean of the last layer was all there was.
                settings = EncoderSettings(model=value["model"], max_length=value["max_length"])
            else:
                settings = parse_encoder(value["encoder"])
            spec = cls(settings, value["weights"], value["dimensions"])
        except KeyError as error:
            raise ConfigError(f"encoder: missing setting {error.args[0]!r}") from None
        if not isinstance(spec.weights, str):
            raise ConfigError(f"encoder: expected text as weights, found {spec.weights!r:.40}")
        if type(spec.dimensions) is not int or spec.dimensions < 1:
            raise ConfigError(
                f"encoder: expected a number of dimensions from 1 on, found {spec.dimensions!r:.40}"
            )
        return spec

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON values; `from_json` reads it."""
        return {"encoder": str(self), "weights": self.weights, "dimensions": self.dimensions}

    @property
    def is_given(self) -> bool:
        """Whether a program passes the encoder, so that it cannot be loaded by name."""
        return self.weights.startswith(self.PROBED)

    def meaning(self, name: str) -> Any:
        """The value of a setting, by its field's name, named or not; None if it has none."""
        return self._meanings[name]

    @cached_property
    def _meanings(self) -> dict[str, Any]:
        unused = SECTIONS[SBERT_WK]
        if self.settings.static is not None:
            unused += SECTIONS[TRANSFORMER] + SECTIONS[COMPUTING]
        elif self.settings.fusion == "sbert-wk":
            unused = ("layers", "pooling")
        # What a setting means that is not named never changes: indexes rely on it.
        plain = {name: None if name in unused else one.meaning for name, one in _DECLARED.items()}
        return plain | self.settings.named | {"dimensions": self.dimensions}

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits, equal if and only if equal texts get equal vectors.

        The model's label does not enter: a copy of the same weights elsewhere is the same encoder.
        Nor do the backend and the number format, which change a vector by rounding.
        """
        # The number of dimensions is in the identity itself.
        outside = ("model", "dimensions", *SECTIONS[COMPUTING])
        meanings = {name: one for name, one in self._meanings.items() if name not in outside}
        # As in fingerprints of releases that counted the number format.
        meanings["dtype"] = None if self.settings.static is not None else _DECLARED["dtype"].meaning
        for name in _LATER:
            if meanings[name] in (None, _DECLARED[name].meaning):
                del meanings[name]
        identity = {"settings": meanings, "weights": self.weights, "dimensions": self.dimensions}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        """The canonical text form of the settings."""
        return str(self.settings)


class TextEncoder(Protocol):
    """Anything that turns texts into vectors: your own class, or a `SentenceTransformer`.

    Optional attributes: `name`, a string; `dimensions`, an int; `encode_query` and
    `encode_document`, which replace `encode` for queries and passages; and a Hugging Face
    `tokenizer` with `max_seq_length`, the window in word pieces, prompt included, at which long
    texts are split.
    Without a tokenizer texts are not split. Vectors are brought to length 1.
    """

    def encode(self, sentences: list[str], /) -> Any:
        """(texts, dimensions) finite numbers, a row for each text."""


def probe_lists(encoder: Encoder) -> list[list[float]]:
    """The encoder's vectors of the probe texts as nested lists; empty if it has none."""
    probes = getattr(encoder, "probes", None)
    return [] if probes is None else probes.tolist()


def same_vectors(stored: Any, found: NDArray[np.float32] | None) -> bool:
    """Whether vectors of the probe texts are of one encoder."""
    known = np.array(stored or [], np.float32)
    if found is None or known.shape != found.shape:
        return False
    lengths = np.linalg.norm(known, axis=1) * np.linalg.norm(found, axis=1)
    return bool(((known * found).sum(axis=1) >= _SAME * lengths).all())
