"""An encoder that looks the vectors of texts up in a file::

    NAME.npy             (texts, dimensions) floating point
    NAME.texts.jsonl     beside it, one JSON string per line: the text of each row

It has no vector for other texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.registry import (
    EncoderKind,
    EncoderModel,
    LoadContext,
    plain_settings,
    refuse_settings,
)
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.errors import SourceError

# Default window. Each text is a single piece, so any window holds it.
_WINDOW = 512
_ALLOWED_SETTINGS = ("model", "normalize", "max_length")


class VectorTableModel(EncoderModel):
    """A table of texts and their vectors."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._texts_path = self._path.with_suffix(".texts.jsonl")
        self._vectors = _open_vectors(self._path)
        self.dimensions = int(self._vectors.shape[1])
        self._rows = self._read_texts()
        digest = hashlib.sha256()
        for table_file in (self._path, self._texts_path):
            with table_file.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        self.weights = digest.hexdigest()

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[list[int]]:
        """Return the row number of each text as its single piece."""
        missing = [text for text in texts if text not in self._rows]
        if missing:
            raise SourceError(
                f"{self._path}: {len(missing):,} of {len(texts):,} texts have no vector, the first "
                f"is {missing[0][:80]!r}; add their rows, and the texts to "
                f"{self._texts_path.name}"
            )
        return [[self._rows[text]] for text in texts]

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the span of the whole text."""
        return [(0, len(text))] if text else []

    def embed(self, pieces: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Return (texts, dimensions) float32 vectors of texts from `tokenize`, not normalized."""
        rows = [row for (row,) in pieces]
        with np.errstate(over="ignore"):
            vectors = self._vectors[rows].astype(np.float32)
        for row, vector in zip(rows, vectors, strict=True):
            if not np.isfinite(vector).all():
                raise SourceError(
                    f"{self._path}: row {row + 1:,}: expected numbers that float32 holds, found "
                    "NaN, infinity or one too large; compute the vector again"
                )
        return vectors

    def _read_texts(self) -> dict[str, int]:
        """Map each text to its first row. A text may repeat with an equal vector."""
        try:
            lines = self._texts_path.read_bytes().splitlines()
        except OSError as error:
            raise SourceError(
                f"{self._texts_path}: cannot be read ({error.strerror}); write the text of each "
                f"row of {self._path.name} into it, one JSON string per line"
            ) from error
        if len(lines) != len(self._vectors):
            raise SourceError(
                f"{self._texts_path}: expected {len(self._vectors):,} lines, one for each row of "
                f"{self._path.name}, found {len(lines):,}"
            )
        rows: dict[str, int] = {}
        for row, line in enumerate(lines):
            where = f"{self._texts_path}:{row + 1}"
            try:
                text = json.loads(line)
            except (ValueError, RecursionError):
                text = None
            if not isinstance(text, str):
                raise SourceError(f"{where}: expected a text as a JSON string, found {line[:40]!r}")
            first = rows.setdefault(text, row)
            if first != row and not np.array_equal(self._vectors[first], self._vectors[row]):
                raise SourceError(
                    f"{where}: has the text of line {first + 1} and another vector; leave one out"
                )
        return rows


def _open_vectors(path: Path) -> NDArray[np.floating]:
    vectors: NDArray[np.floating]
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise SourceError(
            f"{path}: cannot be read as a NumPy file ({error}); write it with numpy.save"
        ) from error
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or 0 in vectors.shape:
        raise SourceError(
            f"{path}: expected (texts, dimensions) floating point numbers, found an array of shape "
            f"{vectors.shape} and type {vectors.dtype}"
        )
    return vectors


def _load(requested: EncoderSettings, _: LoadContext) -> tuple[EncoderSpec, VectorTableModel]:
    reason = "is a file of ready vectors, which has no such setting; leave it out"
    refuse_settings(requested, _ALLOWED_SETTINGS, reason)
    model = VectorTableModel(requested.model or "")
    settings = plain_settings(requested, max_length=requested.max_length or _WINDOW)
    return EncoderSpec(settings, model.weights, model.dimensions), model


KIND = EncoderKind(
    load=_load,
    weights=lambda requested, download: VectorTableModel(requested.model or "").weights,
)
