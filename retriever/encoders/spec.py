"""What decides a vector: the whole specification of an encoder, as one immutable value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from retriever.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """Everything that decides which vector a text gets; stored with every index.

    Attributes:
        model: the name or folder that the model was asked for by; a label, not an identity.
        weights: SHA-256 over the model's weights and tokenizer, in hexadecimal.
        layers: hidden states that are read; ``last`` is the top transformer layer.
        pooling: how the word pieces of a text become one vector; ``mean`` over all of them,
            special tokens included.
        normalize: whether vectors have Euclidean length 1.
        max_length: the window in word pieces, special tokens included; at least 8.
        dimensions: components of a vector.

    Raises:
        ConfigError: a value that is impossible.
    """

    model: str
    weights: str
    dimensions: int
    max_length: int
    layers: str = "last"
    pooling: str = "mean"
    normalize: bool = True

    def __post_init__(self) -> None:
        if self.layers != "last":
            raise ConfigError(f"layers: expected 'last', found {self.layers!r}")
        if self.pooling != "mean":
            raise ConfigError(f"pooling: expected 'mean', found {self.pooling!r}")
        if self.max_length < 8:
            raise ConfigError(f"max_length: expected at least 8, found {self.max_length}")

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EncoderSpec:
        """Read what `to_json` wrote.

        Raises:
            ConfigError: an unknown or missing key.
        """
        known = {field.name for field in fields(cls)}
        for what, keys in (("unknown", set(value) - known), ("missing", known - set(value))):
            if keys:
                raise ConfigError(f"encoder: {what} setting {sorted(keys)[0]!r}")
        return cls(**value)

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON values; `from_json` reads it."""
        return asdict(self)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits, equal exactly where equal texts get equal vectors.

        The model's label does not enter: a copy of the same weights elsewhere is the same encoder.
        """
        identity = self.to_json()
        del identity["model"]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{self.model} ({self.layers} layer, {self.pooling}, {self.max_length} pieces)"
