"""WordPiece tokenization of BERT and MPNet without transformers, which imports for seconds."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retriever.encoders.model_folders import ModelFolder, read_json
from retriever.encoders.transformer.tensors import UnsupportedModelError
from retriever.errors import ModelError

_FILE = "tokenizer.json"
_TOKENIZER_CLASSES = ("BertTokenizer", "BertTokenizerFast", "MPNetTokenizer", "MPNetTokenizerFast")
# Settings of the normalizer by their name in tokenizer.json: name in transformers, and default.
_NORMALIZER = {
    "lowercase": ("do_lower_case", True),
    "strip_accents": ("strip_accents", None),
    "handle_chinese_chars": ("tokenize_chinese_chars", True),
}
_SPECIAL = ("bos", "eos", "cls", "sep", "pad", "unk", "mask")
# Text that shows the special tokens around a text.
_PROBE = "a"
_NO_LIMIT = 10**9


@dataclass(frozen=True, slots=True)
class PiecePairs:
    """Pairs of texts as word pieces with token types, and the number of pairs that were cut."""

    ids: list[list[int]]
    types: list[list[int]]
    cut: int


class PairReader(ABC):
    """A tokenizer of texts and of pairs of texts."""

    max_length: int  # Maximum number of ids of a text.

    @abstractmethod
    def tokenize(self, texts: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        """Return the ids of each text with special tokens, cut to `max_length` ids."""

    @abstractmethod
    def tokenize_with_offsets(
        self, texts: Sequence[str]
    ) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
        """Return the ids of whole texts and their offsets, (0, 0) for special tokens."""

    @abstractmethod
    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, stop) character offsets of each piece, without special tokens."""

    @abstractmethod
    def piece_names(self, ids: Sequence[int]) -> list[str]:
        """Return pieces in the tokenizer's spelling."""

    def tokenize_pairs(
        self, left: Sequence[str], right: Sequence[str], max_length: int
    ) -> PiecePairs:
        """Return the word pieces of pairs; cut the longer text of a pair above `max_length`."""
        ids, types = self._read_pairs(left, right, None)
        long = [row for row, row_ids in enumerate(ids) if len(row_ids) > max_length]
        if long:
            cut_pairs = self._read_pairs(
                [left[row] for row in long], [right[row] for row in long], max_length
            )
            for row, row_ids, row_types in zip(long, *cut_pairs, strict=True):
                ids[row] = row_ids
                types[row] = row_types
        return PiecePairs(ids, types, len(long))

    @abstractmethod
    def _read_pairs(
        self, left: Sequence[str], right: Sequence[str], max_length: int | None
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return ids and token types of each pair, cut to `max_length` ids if it is set."""


class Tokenizer(PairReader):
    """A tokenizer with exactly the ids of transformers' tokenizer. Threads may share it."""

    def __init__(self, folder: ModelFolder) -> None:
        self._tokenizer, settings, self.highest_id = _load(folder.path)
        self._busy = threading.Lock()
        longest = settings.get("model_max_length") or _NO_LIMIT
        if not isinstance(longest, int | float) or not longest >= 1:
            raise UnsupportedModelError(f"{longest!r:.40} as model_max_length")
        self.max_length = int(min(longest, _NO_LIMIT))
        whole = self._tokenizer.encode(_PROBE)
        bare = self._tokenizer.encode(_PROBE, add_special_tokens=False)
        if whole.ids[1:-1] != bare.ids or not bare.ids or any(whole.type_ids):
            raise UnsupportedModelError("special tokens other than [CLS] and [SEP] around a text")

    def tokenize(self, texts: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        """Return the word-piece ids of each text with special tokens, cut to `max_length` ids."""
        with self._busy:
            encodings = self._tokenizer.encode_batch_fast(list(texts))
        ids_of_texts: list[list[int]] = [encoding.ids for encoding in encodings]
        if max_length is None:
            return ids_of_texts
        return [
            [*ids[: max_length - 1], ids[-1]] if len(ids) > max_length else ids
            for ids in ids_of_texts
        ]

    def tokenize_with_offsets(
        self, texts: Sequence[str]
    ) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
        """Return the ids of whole texts and their offsets, (0, 0) for special tokens."""
        with self._busy:
            encodings = self._tokenizer.encode_batch(list(texts))
        return [encoding.ids for encoding in encodings], [
            encoding.offsets for encoding in encodings
        ]

    def _read_pairs(
        self, left: Sequence[str], right: Sequence[str], max_length: int | None
    ) -> tuple[list[list[int]], list[list[int]]]:
        with self._busy:
            # Truncation is a state of the tokenizer.
            if max_length is not None:
                self._tokenizer.enable_truncation(max_length)
            try:
                encodings = self._tokenizer.encode_batch_fast(list(zip(left, right, strict=True)))
            finally:
                self._tokenizer.no_truncation()
        return [encoding.ids for encoding in encodings], [
            encoding.type_ids for encoding in encodings
        ]

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, stop) character offsets of each word piece, without special tokens."""
        with self._busy:
            offsets: list[tuple[int, int]] = self._tokenizer.encode(
                text, add_special_tokens=False
            ).offsets
        return offsets

    def piece_names(self, ids: Sequence[int]) -> list[str]:
        """Return word pieces in the tokenizer's spelling."""
        return [self._tokenizer.id_to_token(id_) for id_ in ids]


def _load(path: Path) -> tuple[Any, dict[str, Any], int]:
    """Return the tokenizer of a folder, its settings and its highest id.

    `tokenizers` reads only its file, and transformers also the settings beside it.

    Raises:
        UnsupportedModelError: transformers would read another tokenizer.
    """
    import tokenizers

    if not (path / _FILE).is_file() or not (path / "tokenizer_config.json").is_file():
        raise UnsupportedModelError("no tokenizer.json with a tokenizer_config.json")
    try:
        settings: dict[str, Any] = read_json(path / "tokenizer_config.json")
        if settings.get("tokenizer_class") not in _TOKENIZER_CLASSES:
            raise UnsupportedModelError("a tokenizer of another class than BERT's and MPNet's")
        file = read_json(path / _FILE)
        special_tokens = [settings.get(f"{role}_token") for role in _SPECIAL]
        special_texts = {
            entry.get("content") if isinstance(entry, dict) else entry for entry in special_tokens
        }
        added_texts = {entry["content"] for entry in file["added_tokens"]}
        if not _has_plain_components(file, settings) or not added_texts <= special_texts | {
            "<unk>"
        }:
            raise UnsupportedModelError(f"{path}: tokenizer.json differs from the settings beside")
        vocabulary = file["model"]["vocab"]
        unknown = file["model"].get("unk_token", "[UNK]")
        if unknown not in vocabulary:
            raise ModelError(
                f"{path / _FILE}: expected the piece {unknown!r:.60} for unknown words in its "
                "vocabulary, found none"
            )
        last_id = max(vocabulary.values())
        highest_id = int(max(last_id, *(token["id"] for token in file["added_tokens"]), 0))
        tokenizer = tokenizers.Tokenizer.from_file(str(path / _FILE))
    except (ModelError, UnsupportedModelError):
        raise
    except Exception as error:
        # The library raises the base class.
        raise UnsupportedModelError(f"{path / _FILE}: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer, settings, highest_id


def _has_plain_components(file: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Return whether the parts of a tokenizer are BERT's, with the normalizer of the settings."""
    return (
        file["model"]["type"] == "WordPiece"
        and file["normalizer"]["type"] == "BertNormalizer"
        and file["normalizer"]["clean_text"] is True
        and file["pre_tokenizer"]["type"] == "BertPreTokenizer"
        and all(
            file["normalizer"][name] == settings.get(setting_name, default)
            for name, (setting_name, default) in _NORMALIZER.items()
        )
    )
