"""The encoders of a meta-embedding, their words, and what each says of these.

A word is one of the analyzer, or, between these, a run of other characters without space:
punctuation, symbols, emoji. A piece belongs to every word that it shares a character with, by
offsets in the text as it was given, which hold where a tokenizer strips accents, changes case or
writes bytes. A word is the mean of its pieces; special tokens and prompts belong to no word.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.documents.division import word_pattern
from retriever.encoders.computing import scale_to_unit
from retriever.encoders.meta.linear import Floats, Integers
from retriever.encoders.meta.settings import Level
from retriever.encoders.registry import EncoderModel, Span, after_prompt
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError

_RUN = re.compile(r"\S+")
# Bounds the memory of one batch's vectors of words, to about 50 MB for each source.
_BATCH_PIECES = 16384


@dataclass(frozen=True, slots=True, eq=False)
class WordBatch:
    """Words of several sentences by every source."""

    # Per source (words, d_j), length 1 or zero if the source lacks the word.
    vectors: tuple[NDArray[np.float32], ...]
    # (words,) ascending, the sentence of each, and the id of its form in lower case.
    sentences: Integers
    types: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Pairs of a piece, ascending, and a word of one text that it is part of, by position."""

    pieces: Integers
    words: Integers


def word_spans(text: str) -> list[Span]:
    """(start, stop) of each word, ascending and disjoint; together all but white space."""
    spans: list[Span] = []
    last = 0
    for match in word_pattern(text.isascii(), False, True).finditer(text):
        start, stop = match.span()
        if last < start:
            spans.extend(run.span() for run in _RUN.finditer(text, last, start))
        spans.append((start, stop))
        last = stop
    if last < len(text):
        spans.extend(run.span() for run in _RUN.finditer(text, last))
    return spans


def word_types(text: str, spans: Sequence[Span]) -> list[int]:
    """A number for each word's form in lower case, the same in any text and on any machine."""
    words = (text[start:stop].lower().encode("utf-8", "surrogatepass") for start, stop in spans)
    digests = (hashlib.blake2b(word, digest_size=8).digest() for word in words)
    return [int.from_bytes(digest, "little", signed=True) for digest in digests]


def align(words: Sequence[Sequence[Span]], pieces: Sequence[Sequence[Span]]) -> list[Alignment]:
    """Find the words of each text's pieces, many texts at once; empty spans have no word."""
    if not words:
        return []
    limits = [
        max((stop for _, stop in chain(*both)), default=0)
        for both in zip(words, pieces, strict=True)
    ]
    # Texts one after the other, so that one search serves them all.
    offsets = np.cumsum([0, *(limit + 1 for limit in limits)])
    word_counts = np.array([len(one) for one in words], np.int64)
    piece_counts = np.array([len(one) for one in pieces], np.int64)
    word_edges = _edges(words, word_counts, offsets)
    piece_edges = _edges(pieces, piece_counts, offsets)
    starts = piece_edges[:, 0]
    stops = piece_edges[:, 1]
    first = np.searchsorted(word_edges[:, 1], starts, side="right")
    last = np.searchsorted(word_edges[:, 0], stops, side="left")
    covered = np.where(starts < stops, np.maximum(last - first, 0), 0)
    found = np.repeat(np.arange(len(covered)), covered)
    ordinal = np.arange(len(found)) - np.repeat(np.cumsum(covered) - covered, covered)
    owners = first[found] + ordinal
    word_starts = np.cumsum(word_counts) - word_counts
    piece_stops = np.cumsum(piece_counts)
    bounds = np.searchsorted(found, piece_stops)
    aligned = []
    start = 0
    for text, stop in enumerate(bounds.tolist()):
        first_piece = int(piece_stops[text] - piece_counts[text])
        aligned.append(
            Alignment(found[start:stop] - first_piece, owners[start:stop] - word_starts[text])
        )
        start = stop
    return aligned


def _edges(spans: Sequence[Sequence[Span]], counts: Integers, offsets: Integers) -> Integers:
    """(spans, 2) starts and stops, those of each text moved by its offset."""
    flat = chain.from_iterable(chain.from_iterable(one) for one in spans)
    edges = np.fromiter(flat, np.int64, 2 * int(counts.sum())).reshape(-1, 2)
    edges += np.repeat(offsets[:-1], counts)[:, None]
    return edges


@dataclass(frozen=True, slots=True)
class Source:
    """One encoder of a meta-embedding."""

    spec: EncoderSpec
    model: EncoderModel

    def __post_init__(self) -> None:
        if self.spec.settings.dimensions is not None:
            raise ConfigError(
                f"dimensions: a source gives whole vectors, found {self.spec}; leave it out"
            )
        if self.model.not_a_source:
            raise ConfigError(f"source: {self.spec.model} {self.model.not_a_source}")

    def reader(self) -> object:
        """Sources with the same one read the same pieces of every text."""
        settings = self.spec.settings
        return self.model.reader, settings.query_prompt, settings.passage_prompt

    def read(self, texts: Sequence[str], *, query: bool) -> tuple[list[Any], list[list[Span]]]:
        """The pieces of each text, however long, and the offsets of each piece."""
        settings = self.spec.settings
        prompt = (settings.query_prompt if query else settings.passage_prompt) or ""
        prompted = [prompt + text for text in texts]
        pieces, offsets = self.model.tokenize_with_offsets(prompted, query=query)
        if prompt:
            offsets = [after_prompt(row, len(prompt)) for row in offsets]
        return list(pieces), offsets

    def words(
        self, pieces: Sequence[Any], aligned: Sequence[Alignment], counts: Integers
    ) -> Floats:
        """The sum of each word's pieces, for words of all texts one after the other."""
        found = np.zeros((int(counts.sum()), self.model.word_dimensions), np.float32)
        firsts = np.cumsum(counts) - counts
        for texts, states in self.model.piece_batches(pieces):
            starts = np.arange(len(texts)) * states.shape[1]
            here = [aligned[text] for text in texts]
            rows = _joined([one.pieces + start for one, start in zip(here, starts, strict=True)])
            owners = _joined([one.words + firsts[t] for one, t in zip(here, texts, strict=True)])
            if not len(rows):
                continue
            order = np.argsort(owners, kind="stable")
            runs = np.flatnonzero(np.diff(owners[order], prepend=-1))
            flat = states.reshape(-1, states.shape[2])
            found[owners[order][runs]] = np.add.reduceat(flat[rows[order]], runs, axis=0)
        return found

    def texts(self, pieces: Sequence[Any]) -> Floats:
        """(texts, width) float32, the vector of each text; zeros of one without pieces."""
        found = np.zeros((len(pieces), self.model.dimensions), np.float32)
        rows = [row for row, one in enumerate(pieces) if len(one)]
        if rows:
            found[rows] = self.model.embed([pieces[row] for row in rows])
        return found


@dataclass(frozen=True, slots=True)
class MetaPieces:
    """A text as its sources read it. Equal texts in the same role are equal."""

    text: str
    query: bool
    # Its pieces by each reader of `Sources`.
    readings: tuple[Any, ...] = field(compare=False)
    # Its words, and for each reader those of its pieces; empty at the level of sentences.
    spans: tuple[Span, ...] = field(compare=False)
    aligned: tuple[Alignment, ...] = field(compare=False)

    def __len__(self) -> int:
        """The greatest number of pieces that a source has."""
        return max(map(len, self.readings))


class Sources:
    """Several encoders that read the same texts, at one level; `window` is the smallest one."""

    def __init__(self, sources: Sequence[Source], level: Level | None = None) -> None:
        if len(sources) < 2:
            raise ConfigError(f"source: expected two or more, found {len(sources)}; name another")
        wordless = [str(one.spec) for one in sources if not one.model.word_dimensions]
        if level == "word" and wordless:
            raise ConfigError(
                f"level: {wordless[0]} has no vectors of words (SBERT-WK, a head, the vector of a "
                "special token, or ready vectors); use --level sentence"
            )
        self._sources = tuple(sources)
        self.specs = tuple(one.spec for one in sources)
        self.level: Level = level or ("sentence" if wordless else "word")
        models = [one.model for one in sources]
        words = self.level == "word"
        self.widths = tuple(one.word_dimensions if words else one.dimensions for one in models)
        self.window = min(spec.max_length for spec in self.specs)
        # Engines without torch divide a batch themselves, and need work for every core.
        in_torch = any(one.runs_in_torch for one in models)
        self.batch_pieces = None if in_torch else _BATCH_PIECES
        readers: dict[object, int] = {}
        self._reader_of = [readers.setdefault(one.reader(), len(readers)) for one in sources]
        self._readers = [sources[self._reader_of.index(number)] for number in range(len(readers))]

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[MetaPieces]:
        """The pieces of each text by every source; cut at `max_length` if given."""
        return [
            one if max_length is None or len(one) <= max_length else self._cut(one, max_length)
            for one in self._read(texts, query)
        ]

    def piece_offsets(self, text: str) -> list[Span]:
        """(start, stop) of each piece of the source that has the most pieces of a text."""
        _, offsets = self._offsets(text, query=False)
        return max(offsets, key=len)

    def vectors(self, batch: Sequence[MetaPieces]) -> tuple[tuple[Floats, ...], Integers]:
        """Per source (rows, d_j) float32 of length 1 or zero, and (rows,) the text of each row.

        A row is a word, or at the level of sentences a text. Sources that share a backbone share
        one forward pass.
        """
        words = self.level == "word"
        counts = np.array([len(one.spans) if words else 1 for one in batch], np.int64)
        found = []
        for source, reader in zip(self._sources, self._reader_of, strict=True):
            pieces = [one.readings[reader] for one in batch]
            if words:
                found.append(source.words(pieces, [b.aligned[reader] for b in batch], counts))
            else:
                found.append(source.texts(pieces))
        return tuple(map(scale_to_unit, found)), np.repeat(np.arange(len(batch)), counts)

    def _read(self, texts: Sequence[str], query: bool) -> list[MetaPieces]:
        reads = [reader.read(texts, query=query) for reader in self._readers]
        readings = list(zip(*(pieces for pieces, _ in reads), strict=True))
        spans: list[list[Span]] = [[] for _ in texts]
        aligned: list[tuple[Alignment, ...]] = [() for _ in texts]
        if self.level == "word" and texts:
            spans = [word_spans(text) for text in texts]
            aligned = list(zip(*(align(spans, offsets) for _, offsets in reads), strict=True))
        return [
            MetaPieces(text, query, readings[row], tuple(spans[row]), aligned[row])
            for row, text in enumerate(texts)
        ]

    def _cut(self, whole: MetaPieces, max_length: int) -> MetaPieces:
        """The text up to the last word that leaves every source within the window."""
        text = whole.text
        query = whole.query
        stops = [stop for _, stop in word_spans(text)]
        while True:
            sizes, offsets = self._offsets(text, query=query)
            limit = len(text)
            for size, spans in zip(sizes, offsets, strict=True):
                if size > max_length:
                    # What has no place in the text, such as special tokens, stays.
                    room = max_length - (size - len(spans))
                    limit = min(limit, spans[max(room, 0)][0] if spans else 0)
            if limit == len(text):
                return self._read([text], query)[0]
            stops = [stop for stop in stops if stop <= limit]
            # A single word that is longer than the window is cut inside.
            shorter = text[: stops[-1]] if stops else text[:limit]
            if len(shorter) == len(text):
                return self._read([text], query)[0]
            text = shorter

    def _offsets(self, text: str, *, query: bool) -> tuple[list[int], list[list[Span]]]:
        """The number of pieces of each reader, and the offsets of those that have a place."""
        sizes = []
        found = []
        for reader in self._readers:
            (pieces,), (offsets,) = reader.read([text], query=query)
            sizes.append(len(pieces))
            found.append([span for span in offsets if span[0] < span[1]])
        return sizes, found


def _joined(parts: Sequence[Integers]) -> Integers:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
