"""Unigram tokenization of XLM-RoBERTa, with a trie of pieces from the model's file.

Source: Kudo 2018, Subword Regularization, Sec. 3.2. A word becomes the pieces with the highest sum
of log probabilities. Ids and offsets equal those of XLMRobertaTokenizer in transformers.

`tokenizers` builds its trie of 250,002 pieces at each start. `python benchmarks/pieces.py`, on a
busy machine of two cores: 2.8 s and 299 MB until the first text is divided, here 0.17 s and 16 MB,
then 120,000 and 144,000 tokens a second.
"""

from __future__ import annotations

import math
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.model_folders import UNIGRAM_SETTINGS, WEIGHTS_FILE, ModelFolder, read_json
from retriever.encoders.transformer.character_map import check_character_map
from retriever.encoders.transformer.tokenizer import PairTokenizer
from retriever.encoders.transformer.tokenizer_classes import NO_LIMIT, WORD_START
from retriever.errors import ModelError

# A word with its mark, which no piece has in another place.
_MARKED_WORD = re.compile(f"{WORD_START}[^{WORD_START}]*")
# Bits of a code point in the key of an edge; the bits above are the number of the parent node.
_CHARACTER_BITS = 21
# The log probability of an unknown character is so far below that of the rarest piece.
_UNKNOWN_PENALTY = 10.0
# Words whose pieces are cached: 6 MB.
_CACHED_WORDS = 20_000
# Characters of words that are divided at once, at some 100 bytes each.
_BATCH_CHARACTERS = 2**16
_SPACE = ord(" ")
Integers = NDArray[np.int64]


class WordDivision(NamedTuple):
    """The ids of a word's pieces, and the end of each piece in the word."""

    ids: tuple[int, ...]
    stops: tuple[int, ...]


class Unigram(PairTokenizer):
    """XLM-RoBERTa's tokenizer, with exactly the ids of transformers. Threads may share it."""

    max_length = NO_LIMIT

    def __init__(self, folder: ModelFolder) -> None:
        from tokenizers import pre_tokenizers

        self._vocabulary = Vocabulary(folder.path)
        self._begin = self._vocabulary.begin
        self._end = self._vocabulary.end
        self._special_ids = self._vocabulary.special_ids
        self.highest_id = max(len(self._vocabulary.scores) - 1, *self._special_ids.values())
        longest_first = sorted(self._special_ids, key=len, reverse=True)
        self._special = re.compile(f"({'|'.join(map(re.escape, longest_first))})")
        self._pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.WhitespaceSplit(),
                pre_tokenizers.Metaspace(replacement=WORD_START, prepend_scheme="always"),
            ]
        )
        self._divisions: dict[str, WordDivision] = {}
        self._busy = threading.Lock()

    def tokenize(self, texts: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        """Return the piece ids of each text with special tokens, cut to `max_length` ids."""
        rows = [[self._begin, *ids, self._end] for ids in self._read_ids(texts)]
        if max_length is None:
            return rows
        return [
            [*ids[: max_length - 1], self._end] if len(ids) > max_length else ids for ids in rows
        ]

    def tokenize_with_offsets(
        self, texts: Sequence[str]
    ) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
        """Return the ids of whole texts and their offsets, (0, 0) for special tokens around."""
        ids = []
        offsets = []
        for text in texts:
            text_ids, text_offsets = self._read_offsets(text)
            ids.append([self._begin, *text_ids, self._end])
            offsets.append([(0, 0), *text_offsets, (0, 0)])
        return ids, offsets

    def piece_offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, stop) character offsets of each piece, without special tokens."""
        return self._read_offsets(text)[1]

    def piece_names(self, ids: Sequence[int]) -> list[str]:
        """Return pieces in the tokenizer's spelling."""
        special = {id_: token for token, id_ in self._special_ids.items()}
        return [special.get(id_) or self._piece_texts[id_] for id_ in ids]

    @cached_property
    def _piece_texts(self) -> list[str]:
        return self._vocabulary.read_pieces()

    def _read_pairs(
        self, left: Sequence[str], right: Sequence[str], max_length: int | None
    ) -> tuple[list[list[int]], list[list[int]]]:
        pairs = []
        for left_ids, right_ids in zip(self._read_ids(left), self._read_ids(right), strict=True):
            if max_length is not None:
                _cut_longest_first(left_ids, right_ids, max_length - 4)
            separators = [self._end, self._end]
            pairs.append([self._begin, *left_ids, *separators, *right_ids, self._end])
        return pairs, [[0] * len(ids) for ids in pairs]

    def _read_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text without special tokens around it."""
        words_of_texts = [list(self._split(text)) for text in texts]
        with self._busy:
            divisions = self._divide({word for words in words_of_texts for word in words})
            return [
                [id_ for word in words for id_ in divisions[word].ids] for words in words_of_texts
            ]

    def _split(self, text: str) -> Iterator[str]:
        """Yield the words of a text, normalized and marked, and its special tokens."""
        for segment in self._special.split(text):
            if segment in self._special_ids:
                yield segment
                continue
            for word in self._vocabulary.normalizer.normalize_str(segment).split():
                if WORD_START not in word:
                    yield WORD_START + word
                else:
                    marked = word if word.startswith(WORD_START) else WORD_START + word
                    yield from _MARKED_WORD.findall(marked)

    def _divide(self, words: Iterable[str]) -> Mapping[str, WordDivision]:
        """Return the cached divisions of words; it has at least those of `words`."""
        if len(self._divisions) > _CACHED_WORDS:
            self._divisions = {}
        if not self._divisions:
            for token, id_ in self._special_ids.items():
                self._divisions[token] = WordDivision((id_,), (len(token),))
        batch: list[str] = []
        characters = 0
        for word in words:
            if word in self._divisions:
                continue
            if characters + len(word) > _BATCH_CHARACTERS:
                self._divisions.update(self._vocabulary.divide(batch))
                batch = []
                characters = 0
            batch.append(word)
            characters += len(word)
        self._divisions.update(self._vocabulary.divide(batch))
        return self._divisions

    def _read_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids and offsets of a text without special tokens around it."""
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        start = 0
        words = set(self._split(text))
        with self._busy:
            divisions = self._divide(words)
            for segment in self._special.split(text):
                if segment in self._special_ids:
                    ids.append(self._special_ids[segment])
                    offsets.append((start, start + len(segment)))
                else:
                    encoding = self._align(segment, divisions)
                    ids += encoding.ids
                    offsets += [(start + first, start + last) for first, last in encoding.offsets]
                start += len(segment)
        return ids, offsets

    def _align(self, segment: str, divisions: Mapping[str, WordDivision]) -> Any:
        """Return a segment's encoding, whose offsets `tokenizers` follows through all changes."""
        from tokenizers import PreTokenizedString, Token

        def make_tokens(word: str) -> list[Token]:
            division = divisions[word]
            # `tokenizers` counts bytes.
            stops = [len(word[:stop].encode()) for stop in division.stops]
            spans = pairwise((0, *stops))
            return [Token(id_, "", span) for id_, span in zip(division.ids, spans, strict=True)]

        parts = PreTokenizedString(segment)
        parts.normalize(self._vocabulary.normalizer.normalize)
        self._pre_tokenizer.pre_tokenize(parts)
        parts.tokenize(make_tokens)
        return parts.to_encoding()


def _cut_longest_first(left: list[int], right: list[int], limit: int) -> None:
    """Cut the longer list, then both, to `limit` ids in all; as `tokenizers` does, in place."""
    if len(left) + len(right) <= limit:
        return
    shorter, longer = (left, right) if len(left) <= len(right) else (right, left)
    rest = len(shorter) if len(shorter) > limit else max(len(shorter), limit - len(shorter))
    if len(shorter) + rest > limit:
        rest = limit // 2 + limit % 2
        del shorter[limit // 2 :]
    del longer[rest:]


def _to_codes(text: str) -> Integers:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)


class Vocabulary:
    """The trie of all pieces, their scores, special tokens, and the table of replaced characters.

    Attributes:
        scores: (pieces,) log probabilities.
        characters: table of replaced characters, in the form of SentencePiece.
        begin: id before a text.
        end: id after a text.
        special_ids: id of each special token by its text.
    """

    def __init__(self, path: Path) -> None:
        from safetensors import safe_open
        from tokenizers import normalizers

        self._path = path
        try:
            with safe_open(path / WEIGHTS_FILE, "numpy") as tensors:
                self._edges: Integers = tensors.get_tensor("unigram.edges")
                self._pieces: NDArray[np.int32] = tensors.get_tensor("unigram.pieces")
                self.scores = tensors.get_tensor("unigram.scores").astype(np.float64)
                self.characters = tensors.get_tensor("unigram.characters").tobytes()
            self._require_sound()
            check_character_map(self.characters)
            self.normalizer = normalizers.Precompiled(self.characters)
        except Exception as error:
            # The libraries raise the base class.
            raise ModelError(
                f"{path / WEIGHTS_FILE}: its pieces cannot be read ({error!r}); copy or install "
                "the model again"
            ) from error
        self._unknown_score = float(self.scores.min()) - _UNKNOWN_PENALTY
        self._read_special_tokens()

    def _require_sound(self) -> None:
        shapes = [self._edges.shape, self._pieces.shape, self.scores.shape]
        if shapes[0] != shapes[1] or any(len(shape) != 1 or shape == (0,) for shape in shapes):
            raise ValueError(f"shapes {shapes}")
        if self._edges.dtype != np.int64 or self._pieces.dtype != np.int32:
            raise ValueError(f"types {self._edges.dtype}, {self._pieces.dtype}")
        if not (np.diff(self._edges) > 0).all():
            raise ValueError("edges out of order")
        # A node is the end of an edge, and its number is one above the row of the edge.
        parents = self._edges >> _CHARACTER_BITS
        codes = self._edges & (1 << _CHARACTER_BITS) - 1
        if (parents > np.arange(len(parents))).any() or codes.max() > sys.maxunicode:
            raise ValueError("an edge from no node, or with no character")
        if self._pieces.min() < -1 or self._pieces.max() >= len(self.scores):
            raise ValueError("a piece without a score")
        if not np.isfinite(self.scores).all():
            raise ValueError("a score that is not a number")

    def _read_special_tokens(self) -> None:
        """Set the ids of special tokens, which the settings name."""
        path = self._path / UNIGRAM_SETTINGS
        settings = read_json(path)
        try:
            special: dict[str, int] = dict(settings["special"])
            roles = [settings[role] for role in ("begin", "end", "unknown")]
        except (LookupError, TypeError, ValueError) as error:
            raise ModelError(f"{path}: {error!r}; copy or install the model again") from error
        if not special or "" in special:
            raise ModelError(f"{path}: no special tokens; copy or install the model again")
        for id_ in [*roles, *special.values()]:
            if type(id_) is not int or not 0 <= id_ < len(self.scores):
                raise ModelError(
                    f"{path}: expected ids below {len(self.scores):,}, found {id_!r:.40}; copy or "
                    "install the model again"
                )
        self.begin, self.end, self._unknown = roles
        self.special_ids = special

    def read_pieces(self) -> list[str]:
        """Return the text of each piece; empty for an id without one."""
        texts = [""]
        pieces = [""] * len(self.scores)
        character_bits = (1 << _CHARACTER_BITS) - 1
        for edge, id_ in zip(self._edges.tolist(), self._pieces.tolist(), strict=True):
            texts.append(texts[edge >> _CHARACTER_BITS] + chr(edge & character_bits))
            if id_ >= 0:
                pieces[id_] = texts[-1]
        return pieces

    def has_word(self, word: str) -> bool:
        """Return whether a word, or the end of one, is a single piece."""
        return any(self._has_piece(mark + word) for mark in (WORD_START, ""))

    def _has_piece(self, text: str) -> bool:
        codes = _to_codes(text)
        starts, stops, ids = self._match(codes)
        return bool(((starts == 0) & (stops == len(codes)) & (ids >= 0)).any())

    def divide(self, words: Sequence[str]) -> dict[str, WordDivision]:
        """Return the most probable pieces of each word."""
        # Spaces, which no piece contains, stand between words.
        codes = _to_codes(" ".join(words))
        previous, pieces = self._find_best_paths(codes)
        divisions = {}
        start = 0
        for word in words:
            divisions[word] = self._follow_path(previous, pieces, start, start + len(word))
            start += len(word) + 1
        return divisions

    def _match(self, codes: Integers) -> tuple[Integers, Integers, Integers]:
        """Return start, stop and id of each piece in the characters, by start, then by stop."""
        positions = np.flatnonzero(codes != _SPACE)
        is_known = codes == _SPACE
        nodes = np.zeros_like(positions)
        starts = []
        stops = []
        ids = []
        for length in count(1):
            inside = positions + length <= len(codes)
            positions = positions[inside]
            keys = nodes[inside] << _CHARACTER_BITS | codes[positions + length - 1]
            rows = np.minimum(np.searchsorted(self._edges, keys), len(self._edges) - 1)
            has_edge = self._edges[rows] == keys
            positions = positions[has_edge]
            rows = rows[has_edge]
            if not len(rows):
                break
            nodes = rows + 1
            is_piece = self._pieces[rows] >= 0
            starts.append(positions[is_piece])
            stops.append(positions[is_piece] + length)
            ids.append(self._pieces[rows[is_piece]])
            if length == 1:
                is_known[starts[0]] = True
        unknown = np.flatnonzero(~is_known)
        starts.append(unknown)
        stops.append(unknown + 1)
        ids.append(np.full(len(unknown), -1, np.int32))
        all_starts = np.concatenate(starts)
        order = np.argsort(all_starts, kind="stable")
        return all_starts[order], np.concatenate(stops)[order], np.concatenate(ids)[order]

    def _find_best_paths(self, codes: Integers) -> tuple[list[int], list[int]]:
        """Return for each position the start and the id of the last piece of the best path to it.

        The search is Viterbi's. If two paths have equal sums, the first in the order of `_match`
        wins. Sums are in double precision and begin anew at each word, as in `tokenizers`.
        """
        starts, stops, ids = self._match(codes)
        scores = np.where(ids < 0, self._unknown_score, self.scores[ids])
        totals = [-math.inf] * (len(codes) + 1)
        for start in [0, *(np.flatnonzero(codes == _SPACE) + 1).tolist()]:
            totals[start] = 0.0
        previous = [0] * (len(codes) + 1)
        pieces = [0] * (len(codes) + 1)
        rows = zip(starts.tolist(), stops.tolist(), ids.tolist(), scores.tolist(), strict=True)
        for start, stop, id_, score in rows:
            total = totals[start] + score
            if total > totals[stop]:
                totals[stop] = total
                previous[stop] = start
                pieces[stop] = id_
        return previous, pieces

    def _follow_path(
        self, previous: Sequence[int], pieces: Sequence[int], start: int, stop: int
    ) -> WordDivision:
        """Return the pieces of one word; consecutive unknown characters are one piece."""
        ids: list[int] = []
        stops: list[int] = []
        position = stop
        while position > start:
            id_ = self._unknown if pieces[position] < 0 else pieces[position]
            if not (ids and id_ == ids[-1] == self._unknown):
                ids.append(id_)
                stops.append(position - start)
            position = previous[position]
        return WordDivision(tuple(ids[::-1]), tuple(stops[::-1]))
