"""Encoders that a program passes: any object with `encode`."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.computing import scale_to_unit
from retriever.encoders.registry import EncoderModel, SizedText
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import PROBES, Done, EncoderSpec, TextEncoder, same_vectors
from retriever.errors import ConfigError, EncoderMismatchError, require_several

_NO_WINDOW = 10**9 - 1


class AdoptedEncoder(EncoderModel):
    """Gives an object with `encode` the interface of `Encoder`; vectors get length 1.

    Threads may share it: it serves one at a time.

    Args:
        encoder: see `TextEncoder`.

    Attributes:
        spec: names it; in place of a hash of weights it has one of probe vectors.
        probes: (3, dimensions) float32: vectors of fixed texts, which tell encoders apart.

    Raises:
        ConfigError: the encoder gives no finite vectors of one length.
    """

    probes: NDArray[np.float32]

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._tokenizer = getattr(encoder, "tokenizer", None)
        window = getattr(encoder, "max_seq_length", None)
        if not callable(self._tokenizer) or not window:
            self._tokenizer, window = None, _NO_WINDOW
        self.name = _name_of(encoder)
        self._busy = threading.Lock()
        self._width: int | None = getattr(encoder, "dimensions", None)
        self.probes = self._vectors(list(PROBES), query=False)
        digest = hashlib.sha256(np.round(self.probes, 2).tobytes()).hexdigest()
        self.spec = EncoderSpec(
            EncoderSettings(model=self.name, max_length=int(window)),
            f"{EncoderSpec.PROBED}{digest}",
            self.probes.shape[1],
        )
        self.dimensions = self._width = self.spec.dimensions

    def require_same(self, spec: EncoderSpec, probes: Any, folder: object) -> None:
        """Take over the specification of an index that was made with this encoder.

        Args:
            spec: the index's.
            probes: vectors of the probe texts by the index's encoder, as nested lists.
            folder: of the index, for the error.

        Raises:
            EncoderMismatchError: it was made with another encoder.
        """
        if spec.model != self.name or not same_vectors(probes, self.probes):
            raise EncoderMismatchError(
                f"{folder}: the index was made with the encoder {spec.model!r} "
                f"({spec.dimensions} dimensions, {spec.weights[:18]}), but {self.name!r} "
                f"({self.spec.dimensions} dimensions, {self.spec.weights[:18]}) was given; open "
                "it with the encoder that made it, or index into another folder"
            )
        self.spec = spec

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[SizedText]:
        """Each text with the number of its word pieces, or of its words without a tokenizer."""
        if self._tokenizer is None:
            return [SizedText(text, len(text.split()), query) for text in texts]
        pieces = self._tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
        found = []
        for text, row in zip(texts, pieces, strict=True):
            if max_length is not None and len(row) > max_length:
                offsets = self.piece_offsets(text)
                kept = max(1, len(offsets) - (len(row) - max_length))
                found.append(SizedText(text[: offsets[kept - 1][1]], max_length, query))
            else:
                found.append(SizedText(text, len(row), query))
        return found

    def truncate(self, texts: Sequence[str], *, query: bool = False) -> list[SizedText]:
        """Each text, cut at the window."""
        return self.tokenize(texts, self.spec.max_length, query=query)

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of each word piece, or word, of a text."""
        if self._tokenizer is None:
            return list(_words(text))
        found = self._tokenizer(
            text,
            add_special_tokens=False,
            truncation=False,
            return_offsets_mapping=True,
            verbose=False,
        )
        return [(int(start), int(stop)) for start, stop in found["offset_mapping"]]

    def encode(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """(texts, dimensions) float32 of length 1; a vector of zeros stays.

        Raises:
            TypeError: `texts` is a single string.
            ConfigError: the encoder gives no finite vectors of one length.
        """
        require_several("texts", texts)
        return self._vectors(list(texts), query=query)

    def encode_pieces(
        self, pieces: Sequence[SizedText], done: Done = lambda texts, pieces: None
    ) -> NDArray[np.float32]:
        """As `encode`, of what `tokenize` or `truncate` gave."""
        vectors = self.embed(pieces)
        done(len(pieces), sum(map(len, pieces)))
        return vectors

    def embed(self, pieces: Sequence[SizedText]) -> NDArray[np.float32]:
        """(texts, dimensions) float32 of length 1; a vector of zeros stays."""
        vectors = np.zeros((len(pieces), self.dimensions), np.float32)
        for query in (False, True):
            rows = [row for row, one in enumerate(pieces) if one.query is query]
            if rows:
                vectors[rows] = self._vectors([pieces[row].text for row in rows], query=query)
        return vectors

    def _vectors(self, texts: list[str], *, query: bool) -> NDArray[np.float32]:
        special = "encode_query" if query else "encode_document"
        encode = getattr(self._encoder, special, None) or self._encoder.encode
        with self._busy:
            vectors = np.array(encode(texts), np.float32)
        width = self._width or (vectors.shape[1] if vectors.ndim == 2 else "dimensions")
        if vectors.shape != (len(texts), width):
            raise ConfigError(
                f"encoder {self.name}: expected vectors of shape ({len(texts)}, {width}), found "
                f"{vectors.shape}"
            )
        if not np.isfinite(vectors).all():
            raise ConfigError(
                f"encoder {self.name}: expected finite numbers, found NaN or infinity"
            )
        return scale_to_unit(vectors)


def _name_of(encoder: TextEncoder) -> str:
    card = getattr(encoder, "model_card_data", None)
    for name in (getattr(encoder, "name", None), getattr(card, "base_model", None)):
        if isinstance(name, str) and name:
            return name
    return type(encoder).__name__


def _words(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for word in text.split():
        start = text.index(word, start)
        yield start, start + len(word)
        start += len(word)
