"""Pieces of a Unigram tokenizer: their trie, their scores, and the division of words into them."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.model_folders import UNIGRAM_SETTINGS, WEIGHTS_FILE, read_json
from retriever.encoders.transformer.character_map import check_character_map
from retriever.encoders.transformer.tokenizer_classes import WORD_START
from retriever.errors import ModelError

# Bits of a code point in the key of an edge; the bits above are the number of the parent node.
_CHARACTER_BITS = 21
# An unknown character has this much less log probability than the rarest piece.
_UNKNOWN_PENALTY = 10.0
_SPACE = ord(" ")
Integers = NDArray[np.int64]


class WordDivision(NamedTuple):
    """The ids of a word's pieces, and the character offset at which each piece ends."""

    ids: tuple[int, ...]
    stops: tuple[int, ...]


class UnigramVocabulary:
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


def _to_codes(text: str) -> Integers:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
