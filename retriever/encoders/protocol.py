"""What an index needs of an encoder, and encoders that a program passes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, EncoderMismatchError, require_several

Done = Callable[[int, int], None]

# Texts whose vectors identify an encoder.
PROBES = (
    "The cat sat on the mat.",
    "How do I read a file line by line?",
    "In 1969 two people walked on the moon; 650 million watched.",
)
# Vectors of the same encoder have at least this cosine, whatever computed them.
_SAME = 0.999
_NO_WINDOW = 10**9 - 1


class LoadedEncoder(Protocol):
    """An encoder as indexing and searching use it; `Encoder` is one.

    What `tokenize` and `truncate` give of a text is read by `encode_pieces` alone; its length is
    a number of pieces.
    """

    spec: EncoderSpec

    def tokenize(self, texts: Sequence[str], *, query: bool = False) -> list[Any]:
        """The pieces of each text, however long."""

    def truncate(self, texts: Sequence[str], *, query: bool = False) -> list[Any]:
        """The pieces of each text, cut to the window."""

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of each piece of a text."""

    def encode(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        """(texts, dimensions) float32."""

    def encode_pieces(self, pieces: Sequence[Any], done: Done = ...) -> NDArray[np.float32]:
        """(texts, dimensions) float32, of what `tokenize` or `truncate` gave."""


class PieceEncoder(Protocol):
    """What an `Encoder` is made of: a tokenizer, and pieces to vectors.

    Attributes:
        dimensions: components of a vector.
    """

    dimensions: int

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[Any]:
        """The pieces of each text: ids with special tokens, or else what `embed` reads.

        Args:
            texts: with the prompt of the encoder's own settings.
            max_length: the number of pieces at which they are cut; None leaves them whole.
            query: whether they are queries, for a model whose parts have prompts of their own.
        """

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of each piece, special tokens left out."""

    def embed(self, pieces: Sequence[Any]) -> NDArray[np.float32]:
        """(texts, dimensions) for one batch of what `tokenize` gave; not normalized."""


class TextEncoder(Protocol):
    """Anything that turns texts into vectors: your own class, or a `SentenceTransformer`.

    Optional attributes: `name`, a string; `dimensions`, an int; `encode_query` and
    `encode_document`, which replace `encode` for queries and passages; and a Hugging Face
    `tokenizer` with `max_seq_length`, the window in word pieces at which long texts are split.
    Without a tokenizer texts are not split. Vectors are brought to length 1.
    """

    def encode(self, sentences: list[str], /) -> Any:
        """(texts, dimensions) finite numbers, a row for each text."""


def probe_lists(encoder: LoadedEncoder) -> list[list[float]]:
    """The encoder's vectors of the probe texts as nested lists; empty if it has none."""
    probes: NDArray[np.float32] | None = getattr(encoder, "probes", None)
    return [] if probes is None else probes.tolist()


def same_vectors(stored: Any, found: NDArray[np.float32]) -> bool:
    """Whether vectors of the probe texts are of one encoder.

    Args:
        stored: as nested lists; None or empty for none.
        found: (texts, dimensions) float32.
    """
    known = np.array(stored or [], np.float32)
    if known.shape != found.shape:
        return False
    lengths = np.linalg.norm(known, axis=1) * np.linalg.norm(found, axis=1)
    return bool(((known * found).sum(axis=1) >= _SAME * lengths).all())


def adopt(encoder: LoadedEncoder | TextEncoder) -> LoadedEncoder:
    """An encoder in the form that an index uses.

    Raises:
        ConfigError: it gives no finite vectors of one length.
    """
    if isinstance(encoder, AdoptedEncoder) or hasattr(encoder, "encode_pieces"):
        return encoder  # type: ignore[return-value]
    return AdoptedEncoder(encoder)


@dataclass(frozen=True, slots=True)
class _Text:
    """A text, and how many pieces it has."""

    text: str
    pieces: int

    def __len__(self) -> int:
        return self.pieces


class AdoptedEncoder:
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

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._tokenizer = getattr(encoder, "tokenizer", None)
        window = getattr(encoder, "max_seq_length", None)
        if not callable(self._tokenizer) or not window:
            self._tokenizer, window = None, _NO_WINDOW
        self.name = _name_of(encoder)
        self._busy = threading.Lock()
        self._dimensions: int | None = getattr(encoder, "dimensions", None)
        self.probes = self._vectors(list(PROBES), query=False)
        digest = hashlib.sha256(np.round(self.probes, 2).tobytes()).hexdigest()
        self.spec = EncoderSpec(
            EncoderSettings(model=self.name, max_length=int(window)),
            f"{EncoderSpec.PROBED}{digest}",
            self.probes.shape[1],
        )
        self._dimensions = self.spec.dimensions

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

    def tokenize(self, texts: Sequence[str], *, query: bool = False) -> list[_Text]:
        """Each text with the number of its word pieces, or of its words without a tokenizer."""
        if self._tokenizer is None:
            return [_Text(text, len(text.split())) for text in texts]
        pieces = self._tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
        return [_Text(text, len(row)) for text, row in zip(texts, pieces, strict=True)]

    def truncate(self, texts: Sequence[str], *, query: bool = False) -> list[_Text]:
        """Each text, cut at the window."""
        found = []
        for text, whole in zip(texts, self.tokenize(texts), strict=True):
            excess = len(whole) - self.spec.max_length
            if excess > 0:
                offsets = self.piece_offsets(text)
                kept = max(1, len(offsets) - excess)
                found.append(_Text(text[: offsets[kept - 1][1]], self.spec.max_length))
            else:
                found.append(whole)
        return found

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
        self, pieces: Sequence[_Text], done: Done = lambda texts, pieces: None
    ) -> NDArray[np.float32]:
        """As `encode`, of what `tokenize` or `truncate` gave."""
        vectors = self._vectors([piece.text for piece in pieces], query=False)
        done(len(pieces), sum(map(len, pieces)))
        return vectors

    def _vectors(self, texts: list[str], *, query: bool) -> NDArray[np.float32]:
        special = "encode_query" if query else "encode_document"
        encode = getattr(self._encoder, special, None) or self._encoder.encode
        with self._busy:
            vectors = np.array(encode(texts), np.float32)
        width = self._dimensions or (vectors.shape[1] if vectors.ndim == 2 else "dimensions")
        if vectors.shape != (len(texts), width):
            raise ConfigError(
                f"encoder {self.name}: expected vectors of shape ({len(texts)}, {width}), found "
                f"{vectors.shape}"
            )
        if not np.isfinite(vectors).all():
            raise ConfigError(
                f"encoder {self.name}: expected finite numbers, found NaN or infinity"
            )
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        np.divide(vectors, lengths, out=vectors, where=lengths > 0)
        return vectors


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
