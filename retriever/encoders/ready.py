"""Ready vectors as an encoder: a table of texts and their vectors that another program computed.

::

    NAME.npy             (texts, dimensions) floating point
    NAME.texts.jsonl     beside it, one JSON string per line: the text of each row

The encoder is the table: it looks texts up and has no vector for others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.registry import (
    EncoderModel,
    Kind,
    LoadContext,
    plain_settings,
    refuse_settings,
)
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.errors import SourceError

# A text is one piece, its row, so that any window holds it.
_WINDOW = 512
_OWN = ("model", "normalize", "max_length")


def texts_file_of(path: Path) -> Path:
    """The file with the texts of the rows."""
    return path.with_suffix(".texts.jsonl")


class ReadyModel(EncoderModel):
    """Looks the vectors of texts up.

    Args:
        path: the .npy file, which stays on disk.

    Attributes:
        dimensions: components of a vector.
        weights: SHA-256 over both files, in hexadecimal.

    Raises:
        SourceError: a file cannot be read, is malformed, or does not fit the other.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._vectors = _open_vectors(self._path)
        self.dimensions = int(self._vectors.shape[1])
        self._rows = self._read_texts()
        self.weights = _digest(self._path, texts_file_of(self._path))

    def spec(self, asked: EncoderSettings) -> EncoderSpec:
        """The specification of the vectors, for settings that name this file as the model.

        Raises:
            ConfigError: a setting is for encoders that run.
        """
        refuse_settings(
            asked, _OWN, "is a file of ready vectors, which has no such setting; leave it out"
        )
        settings = plain_settings(asked, max_length=asked.max_length or _WINDOW)
        return EncoderSpec(settings, self.weights, self.dimensions)

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[list[int]]:
        """The row of each text, its only piece.

        Raises:
            SourceError: a text has no vector; counts them and names the first.
        """
        missing = [text for text in texts if text not in self._rows]
        if missing:
            raise SourceError(
                f"{self._path}: {len(missing):,} of {len(texts):,} texts have no vector, the first "
                f"is {missing[0][:80]!r}; add their rows, and the texts to "
                f"{texts_file_of(self._path).name}"
            )
        return [[self._rows[text]] for text in texts]

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """The whole text."""
        return [(0, len(text))] if text else []

    def embed(self, pieces: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """(texts, dimensions) float32, not normalized, of what `tokenize` gave.

        Raises:
            SourceError: a vector holds NaN, infinity or a number beyond float32.
        """
        rows = [row for (row,) in pieces]
        with np.errstate(over="ignore"):
            found = self._vectors[rows].astype(np.float32)
        for row, vector in zip(rows, found, strict=True):
            if not np.isfinite(vector).all():
                raise SourceError(
                    f"{self._path}: row {row + 1:,}: expected numbers that float32 holds, found "
                    "NaN, infinity or one too large; compute the vector again"
                )
        return found

    def _read_texts(self) -> dict[str, int]:
        path = texts_file_of(self._path)
        rows: dict[str, int] = {}
        number = 0
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    self._add(rows, number, line)
        except OSError as error:
            raise SourceError(
                f"{path}: cannot be read ({error.strerror}); write the text of each row of "
                f"{self._path.name} into it, one JSON string per line"
            ) from error
        if number != len(self._vectors):
            raise SourceError(
                f"{path}: expected {len(self._vectors):,} lines, one for each row of "
                f"{self._path.name}, found {number:,}"
            )
        return rows

    def _add(self, rows: dict[str, int], number: int, line: bytes) -> None:
        """Note the row of a text; a text may repeat with an equal vector."""
        where = f"{texts_file_of(self._path)}:{number}"
        try:
            text = json.loads(line)
        except (ValueError, RecursionError):
            text = None
        if not isinstance(text, str):
            raise SourceError(f"{where}: expected a text as a JSON string, found {line[:40]!r}")
        first = rows.setdefault(text, number - 1)
        if first == number - 1 or number > len(self._vectors):
            return
        if not np.array_equal(self._vectors[first], self._vectors[number - 1]):
            raise SourceError(
                f"{where}: has the text of line {first + 1} and another vector; leave one out"
            )


def _open_vectors(path: Path) -> NDArray[np.floating]:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise SourceError(
            f"{path}: cannot be read as a NumPy file ({error}); write it with numpy.save"
        ) from error
    if found.ndim != 2 or found.dtype.kind != "f" or 0 in found.shape:
        raise SourceError(
            f"{path}: expected (texts, dimensions) floating point numbers, found an array of shape "
            f"{found.shape} and type {found.dtype}"
        )
    vectors: NDArray[np.floating] = found
    return vectors


def _digest(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _load(asked: EncoderSettings, _: LoadContext) -> tuple[EncoderSpec, ReadyModel]:
    model = ReadyModel(asked.model or "")
    return model.spec(asked), model


KIND = Kind(load=_load, weights=lambda asked, download: ReadyModel(asked.model or "").weights)
