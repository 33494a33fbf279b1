"""Tokenization of texts and pairs without transformers, which imports for seconds."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from retriever.encoders.fusion.pooling import SpecialTokens
from retriever.encoders.model_folders import ModelFolder
from retriever.encoders.transformer.tensors import UnsupportedModelError
from retriever.encoders.transformer.tokenizer_classes import PROBE
from retriever.encoders.transformer.tokenizer_file import read_tokenizer

# Most special tokens around a text. A few of them leave room for a text in every window.
_MOST_SPECIAL_TOKENS = 6


def find_special_tokens(
    ids: Sequence[int],
    text_ids: Sequence[int],
    types: Sequence[int],
    cls: int | None,
    sep: int | None,
) -> SpecialTokens:
    """Find the special tokens around a text.

    Args:
        ids: ids of a short text with special tokens.
        text_ids: ids of the same text without them.
        types: token types of `ids`; empty if the model is not given any.
        cls: id of [CLS]; None if there is none.
        sep: id of [SEP]; None if there is none.
    """
    ids = list(ids)
    text_ids = list(text_ids)
    before = next(
        (start for start in range(len(ids)) if ids[start : start + len(text_ids)] == text_ids),
        len(ids),
    )
    after = max(0, len(ids) - before - len(text_ids))
    special_ids = [(position, ids[position]) for position in range(before)]
    special_ids += [(position, ids[position]) for position in range(-after, 0)]
    token_types = [types[position] for position, _ in special_ids] if types else []
    return SpecialTokens(
        before,
        after,
        _find_token(special_ids, cls),
        _find_token(special_ids[::-1], sep),
        tuple(token_types) if any(token_types) else (),
    )


def _find_token(special_ids: Sequence[tuple[int, int]], token_id: int | None) -> int | None:
    return next((position for position, id_ in special_ids if id_ == token_id), None)


@dataclass(frozen=True, slots=True)
class PiecePairs:
    """Pairs of texts as word pieces with token types, and the number of pairs that were cut."""

    ids: list[list[int]]
    types: list[list[int]]
    cut: int


class PairTokenizer(ABC):
    """A tokenizer of texts and pairs of texts into word pieces.

    `Tokenizer` reads tokenizer.json, `Unigram` a trie, and `Backbone` calls transformers.
    """

    max_length: int  # Maximum number of ids of a text.
    special = SpecialTokens()  # The special tokens around a text.

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


class Tokenizer(PairTokenizer):
    """A model's tokenizer.json, with exactly the ids of transformers. Threads may share it."""

    def __init__(self, folder: ModelFolder) -> None:
        loaded = read_tokenizer(folder)
        self._tokenizer = loaded.tokenizer
        self._has_types = loaded.has_types
        self._busy = threading.Lock()
        self.max_length = loaded.max_length
        self.highest_id = loaded.highest_id
        whole = self._tokenizer.encode(PROBE)
        bare = self._tokenizer.encode(PROBE, add_special_tokens=False)
        self.special = find_special_tokens(whole.ids, bare.ids, (), loaded.cls, loaded.sep)
        special_count = self.special.before + self.special.after
        if not bare.ids or len(whole.ids) != special_count + len(bare.ids) or any(whole.type_ids):
            raise UnsupportedModelError("a tokenizer with other parts around a text than tokens")
        if special_count > _MOST_SPECIAL_TOKENS:
            raise UnsupportedModelError(f"a tokenizer with {special_count:,} tokens around a text")

    def tokenize(self, texts: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        """Return the ids of each text with special tokens, cut to `max_length` ids."""
        with self._busy:
            encodings = self._tokenizer.encode_batch_fast(list(texts))
        rows: list[list[int]] = [encoding.ids for encoding in encodings]
        if max_length is None:
            return rows
        after = self.special.after
        return [
            [*ids[: max_length - after], *ids[len(ids) - after :]] if len(ids) > max_length else ids
            for ids in rows
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
        ids = [encoding.ids for encoding in encodings]
        if not self._has_types:
            return ids, [[0] * len(row) for row in ids]
        return ids, [encoding.type_ids for encoding in encodings]

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, stop) character offsets of each piece, without special tokens."""
        with self._busy:
            offsets: list[tuple[int, int]] = self._tokenizer.encode(
                text, add_special_tokens=False
            ).offsets
        return offsets

    def piece_names(self, ids: Sequence[int]) -> list[str]:
        """Return word pieces in the tokenizer's spelling."""
        return [self._tokenizer.id_to_token(id_) for id_ in ids]
