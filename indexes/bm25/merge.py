"""Postings of several segments as those of one, without the deleted passages.

What is written equals, byte for byte, what building the postings of the remaining passages anew
would write. Memory holds the vocabulary and a block of postings, never all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.postings import (
    COUNTS,
    FREQUENCIES,
    LENGTHS,
    POSITIONS,
    Postings,
    narrowest,
)
from indexes.bm25.vocabulary import OFFSETS, TERMS
from indexes.files.arrays import GrowingArray, save_array

# Postings of a block; a single term can have more.
_BLOCK = 4_000_000


def merge_postings(
    sources: Sequence[Postings], live: Sequence[NDArray[np.bool_] | None], folder: Path
) -> None:
    """Write the postings of all live passages into an existing folder; no fsync is done.

    Args:
        sources: in the order in which their passages follow each other.
        live: for each, (n,) bool, None where nothing was deleted.
        folder: must hold no postings yet.

    Raises:
        DamagedIndexError: postings are not as they were written.
        OSError: the disk is full or cannot be written.
    """
    for source in sources:
        source.check_lengths()
    places = _new_positions(sources, live)
    lengths = [
        source.lengths if kept is None else source.lengths[kept]
        for source, kept in zip(sources, live, strict=True)
    ]
    kind = max((source.frequency_type for source in sources), key=lambda dtype: dtype.itemsize)
    spellings: list[bytes] = []
    counts: list[NDArray[np.int64]] = []
    largest = 1
    with (
        GrowingArray(folder / POSITIONS, np.dtype("<u4")) as positions,
        GrowingArray(folder / FREQUENCIES, kind) as frequencies,
    ):
        for terms, ranges in _blocks(sources):
            block = _merged_block(sources, places, terms, ranges)
            held = np.bincount(block[0], minlength=len(terms))
            spellings += [term for term, kept in zip(terms, held, strict=True) if kept]
            counts.append(held[held > 0])
            positions.append(block[1])
            frequencies.append(block[2])
            largest = max(largest, int(block[2].max(initial=1)))
    # The most frequent passage of a term may be gone.
    if narrowest(largest) != kind:
        _narrow(folder / FREQUENCIES, narrowest(largest))
    held = np.concatenate([*counts, np.empty(0, np.int64)])
    offsets = np.zeros((len(spellings) + 1, 2), "<i8")
    offsets[1:, 0] = np.cumsum([len(spelling) for spelling in spellings])
    offsets[1:, 1] = np.cumsum(held)
    length = np.concatenate([*lengths, np.empty(0, "<u4")]).astype("<u4", copy=False)
    total = int(length.sum(dtype=np.int64))
    save_array(folder / OFFSETS, offsets)
    save_array(folder / LENGTHS, length)
    summary = [len(length), len(spellings), int(held.sum()), total]
    save_array(folder / COUNTS, np.array(summary, "<i8"))
    (folder / TERMS).write_bytes(b"".join(spellings))


def _new_positions(
    sources: Sequence[Postings], live: Sequence[NDArray[np.bool_] | None]
) -> list[NDArray[np.int64]]:
    """For each source, (n,) int64: the new position of each passage, -1 for a deleted one."""
    first, places = 0, []
    for source, mask in zip(sources, live, strict=True):
        kept = np.ones(len(source), np.bool_) if mask is None else mask
        places.append(np.where(kept, first - 1 + np.cumsum(kept), -1))
        first += int(kept.sum())
    return places


def _blocks(
    sources: Sequence[Postings],
) -> Iterator[tuple[list[bytes], list[list[tuple[int, int]]]]]:
    """The terms of all sources, ascending, in blocks of at most so many postings.

    Yields:
        The terms, and for each source which (place in the block, number in the source) it holds.
    """
    streams = [_numbered(source, number) for number, source in enumerate(sources)]
    terms: list[bytes] = []
    held: list[list[tuple[int, int]]] = [[] for _ in sources]
    size = 0
    for term, group in groupby(merge(*streams), key=lambda entry: entry[0]):
        for _, number, index in group:
            held[number].append((len(terms), index))
            size += sources[number].postings_of(index)
        terms.append(term)
        if size >= _BLOCK:
            yield terms, held
            terms, held, size = [], [[] for _ in sources], 0
    if terms:
        yield terms, held


def _numbered(source: Postings, number: int) -> Iterator[tuple[bytes, int, int]]:
    """Each term with the number of its source and its place there."""
    for index, term in enumerate(source.vocabulary()):
        yield term, number, index


def _merged_block(
    sources: Sequence[Postings],
    places: Sequence[NDArray[np.int64]],
    terms: Sequence[bytes],
    ranges: Sequence[Sequence[tuple[int, int]]],
) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.unsignedinteger]]:
    """The postings of a block: place of the term, position, frequency, in that order."""
    columns = []
    for source, place, held in zip(sources, places, ranges, strict=True):
        if not held:
            continue
        number, index = np.array(held, np.int64).T
        positions, frequencies, counts = source.stretch(int(index[0]), int(index[-1]) + 1)
        new = place[positions]
        kept = new >= 0
        columns.append((np.repeat(number, counts)[kept], new[kept], frequencies[kept]))
    number, position, frequency = (np.concatenate(column) for column in zip(*columns, strict=True))
    # Positions of a later source come later: a stable sort by the term alone orders them too.
    order = np.argsort(number, kind="stable")
    return number[order], position[order].astype("<u4"), frequency[order]


def _narrow(path: Path, dtype: np.dtype[np.unsignedinteger]) -> None:
    wide = np.load(path, mmap_mode="r", allow_pickle=False)
    narrow = np.asarray(wide).astype(dtype)
    del wide
    path.unlink()
    save_array(path, narrow)
