"""WordPiece tokenization of BERT and MPNet without transformers, which takes seconds to import."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retriever.encoders.model_folders import ModelFolder, read_json
from retriever.encoders.registry import EncoderModel, Span
from retriever.encoders.transformer.bert import UnsupportedModelError
from retriever.errors import ModelError

if TYPE_CHECKING:
    from retriever.encoders.fusion.pooling import Fuser
    from retriever.encoders.settings import EncoderSettings
    from retriever.encoders.transformer.backbone import Backbone

_FILE = "tokenizer.json"
_CLASSES = ("BertTokenizer", "BertTokenizerFast", "MPNetTokenizer", "MPNetTokenizerFast")
# The settings of transformers' class that change its normalizer, by their name in the file.
_NORMALIZER = {
    "lowercase": ("do_lower_case", True),
    "strip_accents": ("strip_accents", None),
    "handle_chinese_chars": ("tokenize_chinese_chars", True),
}
_SPECIAL = ("bos", "eos", "cls", "sep", "pad", "unk", "mask")
_PROBE = "a"
_NO_LIMIT = 10**9


@dataclass(frozen=True, slots=True)
class PiecePairs:
    """Pairs of texts as word pieces with token types; `cut` of them lost their end."""

    ids: list[list[int]]
    types: list[list[int]]
    cut: int


class PairReader(ABC):
    """A tokenizer that reads pairs of texts."""

    def tokenize_pairs(
        self, left: Sequence[str], right: Sequence[str], max_length: int
    ) -> PiecePairs:
        """Word pieces of pairs of texts; of a pair that is too long the longer text is cut."""
        ids, types = self._read_pairs(left, right, None)
        long = [row for row, one in enumerate(ids) if len(one) > max_length]
        if long:
            ends = [left[row] for row in long], [right[row] for row in long]
            for row, one, kinds in zip(long, *self._read_pairs(*ends, max_length), strict=True):
                ids[row] = one
                types[row] = kinds
        return PiecePairs(ids, types, len(long))

    @abstractmethod
    def _read_pairs(
        self, left: Sequence[str], right: Sequence[str], max_length: int | None
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Ids and token types of each pair, cut at `max_length` ids if given."""


class WordPieces(PairReader):
    """Gives exactly the ids that transformers' tokenizer gives. Threads may share it."""

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
        """Word-piece ids of each text with special tokens; cut at `max_length` ids if given."""
        with self._busy:
            found = [one.ids for one in self._tokenizer.encode_batch_fast(list(texts))]
        if max_length is None:
            return found
        return [
            [*ids[: max_length - 1], ids[-1]] if len(ids) > max_length else ids for ids in found
        ]

    def tokenize_with_offsets(
        self, texts: Sequence[str]
    ) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
        """Ids of whole texts, and offsets of each piece, (0, 0) for special tokens."""
        with self._busy:
            found = self._tokenizer.encode_batch(list(texts))
        return [one.ids for one in found], [one.offsets for one in found]

    def _read_pairs(
        self, left: Sequence[str], right: Sequence[str], max_length: int | None
    ) -> tuple[list[list[int]], list[list[int]]]:
        with self._busy:
            # The length is a state of the tokenizer.
            if max_length is not None:
                self._tokenizer.enable_truncation(max_length)
            try:
                found = self._tokenizer.encode_batch_fast(list(zip(left, right, strict=True)))
            finally:
                self._tokenizer.no_truncation()
        return [one.ids for one in found], [one.type_ids for one in found]

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of each word piece, special tokens left out."""
        with self._busy:
            offsets: list[tuple[int, int]] = self._tokenizer.encode(
                text, add_special_tokens=False
            ).offsets
        return offsets


class PieceModel(EncoderModel):
    """A transformer, which reads the word pieces of its tokenizer, in torch or without it."""

    _tokenizer: WordPieces | Backbone
    _settings: EncoderSettings
    _fuser: Fuser

    @property
    def word_dimensions(self) -> int:
        """Those of a vector, if a piece has one of its own: see `Fuser.fuses_pieces`."""
        return self.dimensions if self._fuser.fuses_pieces else 0

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[list[int]]:
        """Word-piece ids of each text with special tokens; cut at `max_length` ids if given."""
        if self._settings.wk_preset == "released":
            # The published code cuts the ids themselves: a text that is cut has no [SEP].
            return [ids[:max_length] for ids in self._tokenizer.tokenize(texts)]
        return self._tokenizer.tokenize(texts, max_length)

    def piece_offsets(self, text: str) -> list[Span]:
        """(start, stop) character offsets of each word piece, special tokens left out."""
        return self._tokenizer.piece_offsets(text)

    def tokenize_with_offsets(
        self, texts: Sequence[str], *, query: bool = False
    ) -> tuple[list[list[int]], list[list[Span]]]:
        """Ids of whole texts, and offsets of each piece, (0, 0) for special tokens."""
        return self._tokenizer.tokenize_with_offsets(texts)


def _load(path: Path) -> tuple[Any, dict[str, Any], int]:
    """The tokenizer of a folder, its settings and its highest id, if transformers reads the same.

    `tokenizers` reads its file as it is; transformers builds the tokenizer from settings, too.
    """
    import tokenizers

    if not (path / _FILE).is_file() or not (path / "tokenizer_config.json").is_file():
        raise UnsupportedModelError("no tokenizer.json with a tokenizer_config.json")
    try:
        settings: dict[str, Any] = read_json(path / "tokenizer_config.json")
        if settings.get("tokenizer_class") not in _CLASSES:
            raise UnsupportedModelError("a tokenizer of another class than BERT's and MPNet's")
        file = read_json(path / _FILE)
        same = (
            file["model"]["type"] == "WordPiece"
            and file["normalizer"]["type"] == "BertNormalizer"
            and file["normalizer"]["clean_text"] is True
            and file["pre_tokenizer"]["type"] == "BertPreTokenizer"
            and all(
                file["normalizer"][name] == settings.get(theirs, usual)
                for name, (theirs, usual) in _NORMALIZER.items()
            )
        )
        special = [settings.get(f"{one}_token") for one in _SPECIAL]
        named = {one.get("content") if isinstance(one, dict) else one for one in special}
        added = {one["content"] for one in file["added_tokens"]}
        if not same or not added <= named | {"<unk>"}:
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
        # The library raises plain exceptions.
        raise UnsupportedModelError(f"{path / _FILE}: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer, settings, highest_id
