"""Vectors that others compute: by an object that a program passes, or in a file.

Ready vectors are a table of texts and their vectors::

    NAME.npy             (texts, dimensions) floating point
    NAME.texts.jsonl     beside it, one JSON string per line: the text of each row

That encoder looks texts up, and has no vector for others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.computing import scale_to_unit
from retriever.encoders.model_folders import PASSAGE_PROMPTS
from retriever.encoders.registry import (
    EncoderModel,
    Kind,
    LoadContext,
    SizedText,
    plain_settings,
    refuse_settings,
)
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import PROBES, EncoderSpec, TextEncoder
from retriever.errors import ConfigError, SourceError

# A text is one piece, its row, so that any window holds it.
_WINDOW = 512
_OWN = ("model", "normalize", "max_length")
_NO_WINDOW = 10**9 - 1
# What encodes passages and what encodes queries, where an encoder has it.
_METHODS = ("encode_document", "encode_query")


class ReadyModel(EncoderModel):
    """Looks the vectors of texts up."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        # The texts of the rows.
        self._texts = self._path.with_suffix(".texts.jsonl")
        self._vectors = _open_vectors(self._path)
        self.dimensions = int(self._vectors.shape[1])
        self._rows = self._read_texts()
        digest = hashlib.sha256()
        for one in (self._path, self._texts):
            with one.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        self.weights = digest.hexdigest()

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[list[int]]:
        """The row of each text, its only piece."""
        missing = [text for text in texts if text not in self._rows]
        if missing:
            raise SourceError(
                f"{self._path}: {len(missing):,} of {len(texts):,} texts have no vector, the first "
                f"is {missing[0][:80]!r}; add their rows, and the texts to "
                f"{self._texts.name}"
            )
        return [[self._rows[text]] for text in texts]

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """The whole text."""
        return [(0, len(text))] if text else []

    def embed(self, pieces: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """(texts, dimensions) float32, not normalized, of what `tokenize` gave."""
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
        """The row of each text; a text may repeat with an equal vector."""
        try:
            lines = self._texts.read_bytes().splitlines()
        except OSError as error:
            raise SourceError(
                f"{self._texts}: cannot be read ({error.strerror}); write the text of each row of "
                f"{self._path.name} into it, one JSON string per line"
            ) from error
        if len(lines) != len(self._vectors):
            raise SourceError(
                f"{self._texts}: expected {len(self._vectors):,} lines, one for each row of "
                f"{self._path.name}, found {len(lines):,}"
            )
        rows: dict[str, int] = {}
        for row, line in enumerate(lines):
            where = f"{self._texts}:{row + 1}"
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
    found: NDArray[np.floating]
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
    return found


def _load(asked: EncoderSettings, _: LoadContext) -> tuple[EncoderSpec, ReadyModel]:
    reason = "is a file of ready vectors, which has no such setting; leave it out"
    refuse_settings(asked, _OWN, reason)
    model = ReadyModel(asked.model or "")
    settings = plain_settings(asked, max_length=asked.max_length or _WINDOW)
    return EncoderSpec(settings, model.weights, model.dimensions), model


KIND = Kind(load=_load, weights=lambda asked, download: ReadyModel(asked.model or "").weights)


class GivenModel(EncoderModel):
    """An object with `encode` that a program passes."""

    # It makes batches of its own.
    batch_pieces = 10**9

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._tokenizer = getattr(encoder, "tokenizer", None)
        window = getattr(encoder, "max_seq_length", None)
        if not callable(self._tokenizer) or not window:
            self._tokenizer = None
            window = _NO_WINDOW
        # The prompts that it puts before passages and before queries.
        self._prompts = _prompt_of(encoder, query=False), _prompt_of(encoder, query=True)
        self._width: int | None = getattr(encoder, "dimensions", None)
        self.name = _name_of(encoder)
        self.probes = scale_to_unit(self._vectors(list(PROBES), query=False))
        self.dimensions = self._width = self.probes.shape[1]
        digest = hashlib.sha256(np.round(self.probes, 2).tobytes()).hexdigest()
        settings = EncoderSettings(model=self.name, max_length=int(window))
        self.spec = EncoderSpec(settings, f"{EncoderSpec.PROBED}{digest}", self.dimensions)

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[SizedText]:
        """Each text with the number of its word pieces, or of its words without a tokenizer."""
        if self._tokenizer is None:
            return [SizedText(text, max(1, len(text.split())), query) for text in texts]
        if not texts:
            return []
        prompt = self._prompts[query]
        prompted = [prompt + text for text in texts]
        piece_ids = self._tokenizer(prompted, truncation=False, verbose=False)["input_ids"]
        sized = []
        for text, ids in zip(texts, piece_ids, strict=True):
            excess = 0 if max_length is None else max(0, len(ids) - max_length)
            start_of_text = self._without_last(text, excess) if excess else text
            sized.append(SizedText(start_of_text, len(ids) - excess, query))
        return sized

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of each word piece, or word, of a text."""
        words = (word.span() for word in re.finditer(r"\S+", text))
        if self._tokenizer is None:
            return list(words)
        if not getattr(self._tokenizer, "is_fast", True):
            # Tokenizers in Python have no offsets.
            return [offset for word in words for offset in self._divide_word(text, *word)]
        encoded = self._tokenizer(
            text,
            add_special_tokens=False,
            truncation=False,
            return_offsets_mapping=True,
            verbose=False,
        )
        return [(int(start), int(stop)) for start, stop in encoded["offset_mapping"]]

    def _without_last(self, text: str, pieces: int) -> str:
        """A text without its last pieces."""
        offsets = self.piece_offsets(text)[:-pieces]
        return text[: offsets[-1][1]] if offsets else ""

    def _divide_word(self, text: str, start: int, stop: int) -> list[tuple[int, int]]:
        """Equal parts of a word, as many as it has pieces."""
        pieces = len(self._tokenizer.tokenize(text[start:stop]))  # type: ignore[union-attr]
        ends = [start + (stop - start) * part // max(1, pieces) for part in range(pieces + 1)]
        return list(pairwise(ends))

    def embed(self, pieces: Sequence[SizedText]) -> NDArray[np.float32]:
        """(texts, dimensions) float32, not normalized."""
        vectors = np.zeros((len(pieces), self.dimensions), np.float32)
        for query in (False, True):
            rows = [row for row, one in enumerate(pieces) if one.query is query]
            if rows:
                vectors[rows] = self._vectors([pieces[row].text for row in rows], query=query)
        return vectors

    def _vectors(self, texts: list[str], *, query: bool) -> NDArray[np.float32]:
        encode = getattr(self._encoder, _METHODS[query], None) or self._encoder.encode
        with np.errstate(over="ignore"):
            vectors = np.array(encode(texts), np.float32)
        width = self._width or (vectors.shape[1] if vectors.ndim == 2 else "dimensions")
        if vectors.shape != (len(texts), width):
            raise ConfigError(
                f"encoder {self.name}: expected vectors of shape ({len(texts)}, {width}), found "
                f"{vectors.shape}"
            )
        is_finite = np.isfinite(vectors)
        if not is_finite.all():
            row = int(is_finite.all(axis=1).argmin())
            value = vectors[row][~is_finite[row]][0]
            raise ConfigError(
                f"encoder {self.name}: expected numbers that float32 holds, found {value} in the "
                f"vector of the text {texts[row][:60]!r}"
            )
        return vectors


def _prompt_of(encoder: TextEncoder, *, query: bool) -> str:
    """The prompt that a `SentenceTransformer` puts before its texts; empty without one."""
    prompts = getattr(encoder, "prompts", None)
    if not isinstance(prompts, Mapping):
        return ""
    names = [getattr(encoder, "default_prompt_name", None)]
    if hasattr(encoder, _METHODS[query]):
        names = [*(["query"] if query else PASSAGE_PROMPTS), *names]
    return next((str(prompts[name] or "") for name in names if name in prompts), "")


def _name_of(encoder: TextEncoder) -> str:
    card = getattr(encoder, "model_card_data", None)
    for name in (getattr(encoder, "name", None), getattr(card, "base_model", None)):
        if isinstance(name, str) and name:
            return name
    return type(encoder).__name__
