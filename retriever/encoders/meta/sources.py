"""The source encoders of a meta-embedding, and their vectors of words.

Words are divided like in the analyzer. Other characters between them form words too, divided by
space: punctuation, symbols, emoji. A piece belongs to every word that it shares a character with.
Offsets in the original text decide this, also if a tokenizer strips accents, changes case or writes
bytes. A word is the mean of its pieces. Special tokens and prompts belong to no word.
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
# Pieces of a batch, whose vectors of words take about 50 MB for each source.
_BATCH_PIECES = 16384


@dataclass(frozen=True, slots=True, eq=False)
class WordBatch:
    """Words of several sentences, with their vectors by every source."""

    # For each source (words, d_j), of length 1, or zero if the source lacks the word.
    vectors: tuple[NDArray[np.float32], ...]
    # (words,) sentence of each word, ascending, and id of its lower-case form.
    sentences: Integers
    types: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Pairs of a piece and a word that contains it, by position in a text; pieces ascending."""

    pieces: Integers
    words: Integers


def word_spans(text: str) -> list[Span]:
    """Return the (start, stop) of each word, ascending and disjoint; they omit white space only."""
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
    """Return a number for each word's lower-case form, equal in all texts and on all machines."""
    words = (text[start:stop].lower().encode("utf-8", "surrogatepass") for start, stop in spans)
    digests = (hashlib.blake2b(word, digest_size=8).digest() for word in words)
    return [int.from_bytes(digest, "little", signed=True) for digest in digests]


def align(words: Sequence[Sequence[Span]], pieces: Sequence[Sequence[Span]]) -> list[Alignment]:
    """Find the words of each text's pieces, for many texts at once; empty spans have no word."""
    if not words:
        return []
    limits = [
        max((stop for _, stop in chain(*text_spans)), default=0)
        for text_spans in zip(words, pieces, strict=True)
    ]
    # Texts are laid one after the other, so one search serves them all.
    offsets = np.cumsum([0, *(limit + 1 for limit in limits)])
    word_counts = np.array([len(spans) for spans in words], np.int64)
    piece_counts = np.array([len(spans) for spans in pieces], np.int64)
    word_edges = _edges(words, word_counts, offsets)
    piece_edges = _edges(pieces, piece_counts, offsets)
    starts = piece_edges[:, 0]
    stops = piece_edges[:, 1]
    first = np.searchsorted(word_edges[:, 1], starts, side="right")
    last = np.searchsorted(word_edges[:, 0], stops, side="left")
    covered = np.where(starts < stops, np.maximum(last - first, 0), 0)
    piece_of_pair = np.repeat(np.arange(len(covered)), covered)
    ordinal = np.arange(len(piece_of_pair)) - np.repeat(np.cumsum(covered) - covered, covered)
    owners = first[piece_of_pair] + ordinal
    word_starts = np.cumsum(word_counts) - word_counts
    piece_stops = np.cumsum(piece_counts)
    bounds = np.searchsorted(piece_of_pair, piece_stops)
    aligned = []
    start = 0
    for text, stop in enumerate(bounds.tolist()):
        first_piece = int(piece_stops[text] - piece_counts[text])
        aligned.append(
            Alignment(
                piece_of_pair[start:stop] - first_piece, owners[start:stop] - word_starts[text]
            )
        )
        start = stop
    return aligned


def _edges(spans: Sequence[Sequence[Span]], counts: Integers, offsets: Integers) -> Integers:
    """Return (spans, 2) starts and stops, moved by the offset of each text."""
    flat = chain.from_iterable(chain.from_iterable(text_spans) for text_spans in spans)
    edges = np.fromiter(flat, np.int64, 2 * int(counts.sum())).reshape(-1, 2)
    edges += np.repeat(offsets[:-1], counts)[:, None]
    return edges


@dataclass(frozen=True, slots=True)
class MetaSource:
    """A source encoder of a meta-embedding."""

    spec: EncoderSpec
    model: EncoderModel

    def __post_init__(self) -> None:
        if self.spec.settings.dimensions is not None:
            raise ConfigError(
                f"dimensions: a source gives whole vectors, found {self.spec}; leave it out"
            )
        if self.model.not_a_source:
            raise ConfigError(f"source: {self.spec.model} {self.model.not_a_source}")

    def reader_key(self) -> object:
        """Return the identity of the reading: sources with an equal one read the same pieces."""
        settings = self.spec.settings
        return self.model.reader, settings.query_prompt, settings.passage_prompt

    def read(self, texts: Sequence[str], *, query: bool) -> tuple[list[Any], list[list[Span]]]:
        """Return the pieces of whole texts, and the offsets of each piece."""
        settings = self.spec.settings
        prompt = (settings.query_prompt if query else settings.passage_prompt) or ""
        prompted = [prompt + text for text in texts]
        pieces, offsets = self.model.tokenize_with_offsets(prompted, query=query)
        if prompt:
            offsets = [after_prompt(row, len(prompt)) for row in offsets]
        return list(pieces), offsets

    def embed_words(
        self, pieces: Sequence[Any], aligned: Sequence[Alignment], counts: Integers
    ) -> Floats:
        """Return the sum of each word's pieces, for the words of all texts one after the other."""
        sums = np.zeros((int(counts.sum()), self.model.word_dimensions), np.float32)
        firsts = np.cumsum(counts) - counts
        for texts, states in self.model.piece_batches(pieces):
            starts = np.arange(len(texts)) * states.shape[1]
            alignments = [aligned[text] for text in texts]
            rows = _concatenate(
                [
                    alignment.pieces + start
                    for alignment, start in zip(alignments, starts, strict=True)
                ]
            )
            owners = _concatenate(
                [
                    alignment.words + first
                    for alignment, first in zip(alignments, firsts[texts], strict=True)
                ]
            )
            if not len(rows):
                continue
            order = np.argsort(owners, kind="stable")
            runs = np.flatnonzero(np.diff(owners[order], prepend=-1))
            flat = states.reshape(-1, states.shape[2])
            sums[owners[order][runs]] = np.add.reduceat(flat[rows[order]], runs, axis=0)
        return sums

    def embed_texts(self, pieces: Sequence[Any]) -> Floats:
        """Return the vector of each text, (texts, width) float32; zeros without pieces."""
        vectors = np.zeros((len(pieces), self.model.dimensions), np.float32)
        rows = [row for row, text_pieces in enumerate(pieces) if len(text_pieces)]
        if rows:
            vectors[rows] = self.model.embed([pieces[row] for row in rows])
        return vectors


@dataclass(frozen=True, slots=True)
class MetaPieces:
    """The pieces of a text by all sources. Equal texts in the same role are equal."""

    text: str
    query: bool
    # Its pieces by each reader of `MetaSources`.
    readings: tuple[Any, ...] = field(compare=False)
    # Its words, and for each reader the words of its pieces; empty at the level of sentences.
    spans: tuple[Span, ...] = field(compare=False)
    aligned: tuple[Alignment, ...] = field(compare=False)

    def __len__(self) -> int:
        """Return the highest number of pieces of a source."""
        return max(map(len, self.readings))


class MetaSources:
    """Source encoders that read the same texts at one level; `window` is their smallest."""

    def __init__(self, sources: Sequence[MetaSource], level: Level | None = None) -> None:
        if len(sources) < 2:
            raise ConfigError(f"source: expected two or more, found {len(sources)}; name another")
        wordless = [str(source.spec) for source in sources if not source.model.word_dimensions]
        if level == "word" and wordless:
            raise ConfigError(
                f"level: {wordless[0]} has no vectors of words (SBERT-WK, a head, the vector of a "
                "special token, or ready vectors); use --level sentence"
            )
        self._sources = tuple(sources)
        self.specs = tuple(source.spec for source in sources)
        self.level: Level = level or ("sentence" if wordless else "word")
        models = [source.model for source in sources]
        has_words = self.level == "word"
        self.widths = tuple(
            model.word_dimensions if has_words else model.dimensions for model in models
        )
        self.window = min(spec.max_length for spec in self.specs)
        # Engines without torch divide batches themselves, and need pieces for every core.
        in_torch = any(model.runs_in_torch for model in models)
        sizes = [model.batch_pieces or _BATCH_PIECES for model in models]
        self.batch_pieces = None if in_torch else min(sizes)
        readers: dict[object, int] = {}
        self._reader_of = [
            readers.setdefault(source.reader_key(), len(readers)) for source in sources
        ]
        self._readers = [sources[self._reader_of.index(number)] for number in range(len(readers))]

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[MetaPieces]:
        """Return the pieces of each text by every source, cut to `max_length` if it is set."""
        return [
            pieces
            if max_length is None or len(pieces) <= max_length
            else self._cut(pieces, max_length)
            for pieces in self._read(texts, query)
        ]

    def piece_offsets(self, text: str) -> list[Span]:
        """Return the (start, stop) of each piece by the source with the most pieces."""
        _, offsets = self._offsets(text, query=False)
        return max(offsets, key=len)

    def vectors(self, batch: Sequence[MetaPieces]) -> tuple[tuple[Floats, ...], Integers]:
        """Return the vectors of words or texts by each source, and the text of each row.

        Vectors are (rows, d_j) float32 of length 1 or zero, and texts (rows,). A row is a word, or
        a text at the level of sentences. Sources with the same backbone share a forward pass.
        """
        words = self.level == "word"
        counts = np.array([len(text.spans) if words else 1 for text in batch], np.int64)
        source_vectors = []
        for source, reader in zip(self._sources, self._reader_of, strict=True):
            pieces = [text.readings[reader] for text in batch]
            if words:
                source_vectors.append(
                    source.embed_words(pieces, [text.aligned[reader] for text in batch], counts)
                )
            else:
                source_vectors.append(source.embed_texts(pieces))
        return tuple(map(scale_to_unit, source_vectors)), np.repeat(np.arange(len(batch)), counts)

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
        """Cut a text after the last word that fits into the window of every source."""
        text = whole.text
        query = whole.query
        stops = [stop for _, stop in word_spans(text)]
        while True:
            sizes, offsets = self._offsets(text, query=query)
            limit = len(text)
            for size, spans in zip(sizes, offsets, strict=True):
                if size > max_length:
                    # Pieces without a span in the text, such as special tokens, stay.
                    room = max_length - (size - len(spans))
                    limit = min(limit, spans[max(room, 0)][0] if spans else 0)
            if limit == len(text):
                return self._read([text], query)[0]
            stops = [stop for stop in stops if stop <= limit]
            # A single word longer than the window is divided.
            shorter = text[: stops[-1]] if stops else text[:limit]
            if len(shorter) == len(text):
                return self._read([text], query)[0]
            text = shorter

    def _offsets(self, text: str, *, query: bool) -> tuple[list[int], list[list[Span]]]:
        """Return the number of pieces of each reader, and the spans of those in the text."""
        sizes = []
        text_offsets = []
        for reader in self._readers:
            (pieces,), (offsets,) = reader.read([text], query=query)
            sizes.append(len(pieces))
            text_offsets.append([span for span in offsets if span[0] < span[1]])
        return sizes, text_offsets


def _concatenate(parts: Sequence[Integers]) -> Integers:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
