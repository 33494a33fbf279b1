"""The specification of an encoder's vectors, and the interface of encoders."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

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

Done = Callable[[int, int], object]

# Texts whose vectors identify an encoder.
PROBES = (
    "The cat sat on the mat.",
    "How do I read a file line by line?",
    "In 1969 two people walked on the moon; 650 million watched.",
)
# Vectors of the same encoder have at least this cosine, whichever engine computed them.
_LEAST_COSINE = 0.999
# Settings that older releases did not have. Their default does not enter a fingerprint.
_LATER_SETTINGS = ("wk_words", "wk_layers")
_DECLARED = declared_settings(EncoderSettings)


@dataclass(frozen=True)
class EncoderSpec:
    """Everything that decides the vector of a text; stored with every index.

    Attributes:
        settings: the model, the window and everything that differs from mean pooling of the last
            layer; layer 0 is the embeddings.
        weights: SHA-256 over the model's weights and tokenizer, in hexadecimal. For an encoder that
            a program passes, `PROBED` and a hash of the vectors of fixed texts.
        dimensions: number of components of a vector.
        model: name of the model: a label, not an identity.
        max_length: window in word pieces, special tokens and prompt included.

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
        """Read the dictionary that `to_json` of this or an older release returned.

        Raises:
            ConfigError: a key is missing, or a setting is impossible.
        """
        try:
            if "model" in value:
                # A release that knew only the mean of the last layer.
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
        """Return a dictionary of JSON values, for `from_json`."""
        return {"encoder": str(self), "weights": self.weights, "dimensions": self.dimensions}

    @property
    def is_given(self) -> bool:
        """Whether a program passes the encoder, so it cannot be loaded by name."""
        return self.weights.startswith(self.PROBED)

    def effective_value(self, name: str) -> Any:
        """Return the value of a setting by its field: named value, else default, else None."""
        return self._effective_values[name]

    # Its name in earlier releases.
    meaning = effective_value

    @cached_property
    def _effective_values(self) -> dict[str, Any]:
        unused = SECTIONS[SBERT_WK]
        if self.settings.static is not None:
            unused += SECTIONS[TRANSFORMER] + SECTIONS[COMPUTING]
        elif self.settings.fusion == "sbert-wk":
            unused = ("layers", "pooling")
        # Indexes rely on these defaults, which never change.
        defaults = {
            name: None if name in unused else declared.meaning
            for name, declared in _DECLARED.items()
        }
        return defaults | self.settings.named | {"dimensions": self.dimensions}

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits, equal if and only if equal texts get equal vectors.

        The model's name is left out, since a copy of the same weights is the same encoder. Backend
        and number format are left out, since they change vectors only by rounding.
        """
        # The number of dimensions is part of `identity` below.
        ignored = ("model", "dimensions", *SECTIONS[COMPUTING])
        values = {
            name: value for name, value in self._effective_values.items() if name not in ignored
        }
        # Fingerprints of older releases contain the default number format.
        values["dtype"] = None if self.settings.static is not None else _DECLARED["dtype"].meaning
        for name in _LATER_SETTINGS:
            if values[name] in (None, _DECLARED[name].meaning):
                del values[name]
        identity = {"settings": values, "weights": self.weights, "dimensions": self.dimensions}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        """Return the canonical text form of the settings."""
        return str(self.settings)


class TextEncoder(Protocol):
    """An object that turns texts into vectors: your own class, or a `SentenceTransformer`.

    Optional attributes are `name`, a string, and `dimensions`, an int. `encode_query` and
    `encode_document` replace `encode` for queries and passages. A Hugging Face `tokenizer` with
    `max_seq_length`, the window in word pieces, prompt included, splits long texts. Without a
    tokenizer texts are not split. Vectors are scaled to length 1.
    """

    def encode(self, sentences: list[str], /) -> Any:
        """Return (texts, dimensions) finite numbers, a row for each text."""


def same_vectors(stored: Any, measured: NDArray[np.float32] | None) -> bool:
    """Return whether two sets of vectors of the probe texts are of the same encoder."""
    expected = np.array(stored or [], np.float32)
    if measured is None or expected.shape != measured.shape:
        return False
    lengths = np.linalg.norm(expected, axis=1) * np.linalg.norm(measured, axis=1)
    return bool(((expected * measured).sum(axis=1) >= _LEAST_COSINE * lengths).all())
