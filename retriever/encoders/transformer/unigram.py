"""Unigram tokenization of XLM-RoBERTa, with a trie of pieces from the model's file.

Source: Kudo 2018, Subword Regularization, Sec. 3.2. A word becomes the pieces with the highest sum
of log probabilities. Ids and offsets equal those of XLMRobertaTokenizer in transformers.

`tokenizers` builds its trie of 250,002 pieces at each start. `python benchmarks/pieces.py`, on a
busy machine of two cores: 2.8 s and 299 MB until the first text is divided, here 0.17 s and 16 MB,
then 120,000 and 144,000 tokens a second.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from retriever.encoders.model_folders import ModelFolder
from retriever.encoders.transformer.tokenizer import PairTokenizer
from retriever.encoders.transformer.tokenizer_classes import NO_LIMIT, WORD_START
from retriever.encoders.transformer.unigram_vocabulary import UnigramVocabulary, WordDivision

# A word with its mark, which no piece has in another place.
_MARKED_WORD = re.compile(f"{WORD_START}[^{WORD_START}]*")
# Words whose pieces are cached: 6 MB.
_CACHED_WORDS = 20_000
# Characters of words that are divided at once, at some 100 bytes each.
_BATCH_CHARACTERS = 2**16


class Unigram(PairTokenizer):
    """XLM-RoBERTa's tokenizer, with exactly the ids of transformers. Threads may share it."""

    max_length = NO_LIMIT

    def __init__(self, folder: ModelFolder) -> None:
        from tokenizers import pre_tokenizers

        self._vocabulary = UnigramVocabulary(folder.path)
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
