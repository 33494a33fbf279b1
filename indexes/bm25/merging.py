"""Merging the postings of several segments, block by block.

The files have the same bytes as the postings that `Postings.build` makes of the remaining passages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import count, groupby, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.postings import (
    COUNTS,
    FREQUENCIES,
    LENGTHS,
    OFFSETS,
    POSITIONS,
    TERMS,
    Postings,
)
from indexes.files import GrowingArray, save_array

if TYPE_CHECKING:
    from indexes.bm25.scoring import SearchableSegment

# Postings that are merged together; a single term can have more.
_MERGED_TOGETHER = 4_000_000


def merge_postings(segments: Sequence[SearchableSegment], folder: Path) -> None:
    """Write the postings of all live passages into an existing folder, without fsync."""
    sources = [segment.postings for segment in segments]
    for source in sources:
        source.check_lengths()
    new_positions = merged_positions(segments)
    lengths = [segment.of_live(segment.postings.lengths) for segment in segments]
    dtype = max((source._frequencies.dtype for source in sources), key=lambda dtype: dtype.itemsize)
    spellings: list[bytes] = []
    counts: list[NDArray[np.int64]] = []
    largest = 1
    with (
        GrowingArray(folder / POSITIONS, np.dtype("<u4")) as positions,
        GrowingArray(folder / FREQUENCIES, dtype) as frequencies,
    ):
        for terms, places in _term_blocks(sources):
            block = _merge_block(sources, new_positions, places)
            block_counts = np.bincount(block.terms, minlength=len(terms))
            spellings += [term for term, count in zip(terms, block_counts, strict=True) if count]
            counts.append(block_counts[block_counts > 0])
            positions.append(block.positions)
            frequencies.append(block.frequencies)
            largest = max(largest, int(block.frequencies.max(initial=1)))
    _narrow_frequencies(folder / FREQUENCIES, dtype, largest)
    all_counts = np.concatenate([*counts, np.empty(0, np.int64)])
    offsets = np.zeros((len(spellings) + 1, 2), "<i8")
    offsets[1:, 0] = np.cumsum([len(spelling) for spelling in spellings])
    offsets[1:, 1] = np.cumsum(all_counts)
    all_lengths = np.concatenate([*lengths, np.empty(0, "<u4")]).astype("<u4", copy=False)
    total_length = int(all_lengths.sum(dtype=np.int64))
    save_array(folder / OFFSETS, offsets)
    save_array(folder / LENGTHS, all_lengths)
    summary = [len(all_lengths), len(spellings), int(all_counts.sum()), total_length]
    save_array(folder / COUNTS, np.array(summary, "<i8"))
    (folder / TERMS).write_bytes(b"".join(spellings))


def merged_positions(segments: Sequence[SearchableSegment]) -> list[NDArray[np.int64]]:
    """Return for each segment (n,) the new position of each passage, -1 for a deleted one."""
    first = 0
    positions = []
    for segment in segments:
        live = np.ones(len(segment.postings), np.bool_) if segment.live is None else segment.live
        positions.append(np.where(live, first - 1 + np.cumsum(live), -1))
        first += int(np.count_nonzero(live))
    return positions


class _MergedBlock(NamedTuple):
    """Merged postings of several terms, by term, then position; (p,) each."""

    terms: NDArray[np.int64]  # number of the term in the block
    positions: NDArray[np.uint32]
    frequencies: NDArray[np.unsignedinteger]


def _term_blocks(
    sources: Sequence[Postings],
) -> Iterator[tuple[list[bytes], list[list[tuple[int, int]]]]]:
    """Yield the terms of all sources, ascending, in blocks of a limited number of postings.

    With each block come, for each source, pairs: the number of a term in the block, and its place
    in the source.
    """
    # Each term with the number of its source and its place there.
    streams = [
        zip(source.vocabulary(), repeat(number), count()) for number, source in enumerate(sources)
    ]
    terms: list[bytes] = []
    places: list[list[tuple[int, int]]] = [[] for _ in sources]
    size = 0
    for term, group in groupby(merge(*streams), key=lambda entry: entry[0]):
        for _, number, place in group:
            places[number].append((len(terms), place))
            size += sources[number].count_postings(place)
        terms.append(term)
        if size >= _MERGED_TOGETHER:
            yield terms, places
            terms = []
            places = [[] for _ in sources]
            size = 0
    if terms:
        yield terms, places


def _merge_block(
    sources: Sequence[Postings],
    new_positions: Sequence[NDArray[np.int64]],
    places: Sequence[Sequence[tuple[int, int]]],
) -> _MergedBlock:
    """Merge the postings of one block of `_term_blocks`; deleted passages are left out."""
    columns = []
    for source, new_of_source, pairs in zip(sources, new_positions, places, strict=True):
        if not pairs:
            continue
        numbers, source_places = np.array(pairs, np.int64).T
        first = int(source_places[0])
        last = int(source_places[-1])
        positions, frequencies, counts = source.stretch(first, last + 1)
        moved = new_of_source[positions]
        is_live = moved >= 0
        columns.append((np.repeat(numbers, counts)[is_live], moved[is_live], frequencies[is_live]))
    number, position, frequency = (np.concatenate(column) for column in zip(*columns, strict=True))
    # Positions of a later source come later: a stable sort by the term alone orders them too.
    order = np.argsort(number, kind="stable")
    return _MergedBlock(number[order], position[order].astype("<u4"), frequency[order])


def _narrow_frequencies(path: Path, dtype: np.dtype[Any], largest: int) -> None:
    """Rewrite frequencies in the narrowest type, since the largest ones may be deleted."""
    narrowest = np.min_scalar_type(largest).newbyteorder("<")
    if narrowest == dtype:
        return
    wide = np.load(path, mmap_mode="r", allow_pickle=False)
    narrow = np.asarray(wide).astype(narrowest)
    del wide
    path.unlink()
    save_array(path, narrow)
