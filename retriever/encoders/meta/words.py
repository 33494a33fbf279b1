"""The words of a text, and the pieces of any tokenizer that belong to them.

A word is a run of letters and digits of any script with its combining marks and inner apostrophes,
or one CJK character (as the analyzer has it), or, between these, a run of other characters
without space: punctuation, symbols, emoji. So every character but white space is in one word, as
every piece but special tokens is pooled by an encoder alone.

A piece belongs to every word that it shares a character with, by character offsets in the text as
it was given. Offsets hold where a tokenizer strips accents, changes case or writes bytes. A word
is the mean of its pieces; a tokenizer that makes one piece of several words gives them all its
vector; special tokens and prompts belong to no word.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from retriever.documents.analyzer import word_pattern

Integers = NDArray[np.int64]
Span = tuple[int, int]

_RUN = re.compile(r"\S+")


@dataclass(frozen=True, slots=True, eq=False)
class WordBatch:
    """Words of several sentences by every source.

    Attributes:
        vectors: per source (words, d_j) float32, length 1 or zero if the source lacks the word.
        sentences: (words,) int64, ascending, index of the sentence.
        types: (words,) int64, id of the word's form (lower-cased text), equal for equal words in
            the batch.
    """

    vectors: tuple[NDArray[np.float32], ...]
    sentences: Integers
    types: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Which pieces make which words of one text; a piece or a word may occur several times.

    Attributes:
        pieces: (pairs,) positions of pieces, ascending.
        words: (pairs,) positions of words.
    """

    pieces: Integers
    words: Integers


def word_spans(text: str) -> list[Span]:
    """(start, stop) of each word, ascending and disjoint; together all but white space."""
    spans: list[Span] = []
    last = 0
    for match in word_pattern(text.isascii(), False).finditer(text):
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
    return [_form(text[start:stop].lower()) for start, stop in spans]


def _form(word: str) -> int:
    digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def align(words: Sequence[Sequence[Span]], pieces: Sequence[Sequence[Span]]) -> list[Alignment]:
    """Find the words of each text's pieces, many texts at once.

    Args:
        words: (start, stop) of each text's words, ascending and disjoint.
        pieces: (start, stop) of its pieces; empty spans, as of special tokens, have no word.
    """
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
    starts, stops = piece_edges[:, 0], piece_edges[:, 1]
    first = np.searchsorted(word_edges[:, 1], starts, side="right")
    last = np.searchsorted(word_edges[:, 0], stops, side="left")
    covered = np.where(starts < stops, np.maximum(last - first, 0), 0)
    found = np.repeat(np.arange(len(covered)), covered)
    ordinal = np.arange(len(found)) - np.repeat(np.cumsum(covered) - covered, covered)
    owners = first[found] + ordinal
    word_starts = np.cumsum(word_counts) - word_counts
    piece_stops = np.cumsum(piece_counts)
    bounds = np.searchsorted(found, piece_stops)
    aligned, start = [], 0
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
