"""The postings of one segment: for each term, the passages that hold it and how often.

The files are in docs/index-format.md. A position is a passage of the segment, 0 to n-1 in the order
of adding. Merging writes, byte for byte, what building the postings of the remaining passages
would.
"""

from __future__ import annotations

import mmap
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import count, groupby, pairwise, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.compiled import compiled
from indexes.errors import DamagedIndexError
from indexes.files import GrowingArray, damaged, map_array, map_bytes, save_array
from indexes.folder.checksums import UNGUARDED, BlockGuard, unguarded

if TYPE_CHECKING:
    from indexes.bm25.scoring import SearchableSegment

COUNTS = "postings.counts.npy"
POSITIONS = "postings.positions.npy"
FREQUENCIES = "postings.frequencies.npy"
LENGTHS = "postings.lengths.npy"
TERMS = "postings.terms.utf8"
OFFSETS = "postings.offsets.npy"

# Terms whose bytes are checked together, in 0.1 ms; of more terms, a search first finds these.
_TOGETHER = 2**15
# The place of a term that is not there.
_UNKNOWN = -1
# Terms whose place is cached after a lookup.
_REMEMBERED = 65_536


class Read(NamedTuple):
    """The postings of some terms, in place; those of other terms may be among them."""

    positions: NDArray[np.uint32]  # (p,) ascending within a term
    frequencies: NDArray[np.unsignedinteger]  # (p,) 1 or more
    ranges: NDArray[np.int64]  # (terms, 2): where each term begins and ends, C-contiguous
    counts: NDArray[np.int64]  # (terms,) how many postings each term has

    @classmethod
    def of(
        cls,
        positions: NDArray[np.uint32],
        frequencies: NDArray[np.unsignedinteger],
        counts: NDArray[np.int64],
    ) -> Read:
        """Postings of nothing but these terms, one term's after the other's."""
        ends = np.cumsum(counts)
        return cls(positions, frequencies, np.stack([ends - counts, ends], axis=1), counts)

    def joined(self) -> Read:
        """The same without other terms, one term's after the other's; a copy unless it is one."""
        held = [slice(start, stop) for start, stop in self.ranges.tolist() if start < stop]
        if len(held) == 1:
            return Read.of(self.positions[held[0]], self.frequencies[held[0]], self.counts)
        # The empty slice gives the types where no term is known.
        held.insert(0, slice(0))
        return Read.of(
            np.concatenate([self.positions[part] for part in held]),
            np.concatenate([self.frequencies[part] for part in held]),
            self.counts,
        )


class Postings:
    """Immutable postings of one segment, in memory or memory-mapped.

    Check `lengths`, (n,) uint32, by `check_lengths` before you read them; `total_length` is their
    sum. `files` holds arrays and bytes by name, `guards` what checks them.
    """

    def __init__(
        self,
        files: Mapping[str, Any],
        total_length: int,
        folder: Path | None = None,
        guards: Mapping[str, BlockGuard] | None = None,
    ) -> None:
        self._files = files
        self._guards = defaultdict(lambda: UNGUARDED, guards or {})
        self._terms: bytes | mmap.mmap = files[TERMS]
        self._offsets: NDArray[np.int64] = files[OFFSETS]
        self._positions: NDArray[np.uint32] = files[POSITIONS]
        self._frequencies: NDArray[np.unsignedinteger] = files[FREQUENCIES]
        self.lengths: NDArray[np.uint32] = files[LENGTHS]
        self.total_length = total_length
        # A memoryview returns single numbers several times faster than an array.
        self._steps = self._offsets.reshape(-1).data
        self._found: dict[str, int] = {}
        self._folder = folder

    @classmethod
    def build(cls, token_lists: Iterable[Sequence[str]]) -> Postings:
        """Postings of passages given as lists of terms, in their order; sorted once."""
        term_ids: defaultdict[str, int] = defaultdict(count().__next__)
        tokens = array("I")
        sizes = array("I")
        for terms in token_lists:
            tokens.extend(map(term_ids.__getitem__, terms))
            sizes.append(len(terms))
        # Any str can be a term, so lone surrogates must have bytes too.
        spellings = [term.encode("utf-8", "surrogatepass") for term in term_ids]
        by_bytes = sorted(range(len(spellings)), key=spellings.__getitem__)
        rank = np.empty(len(spellings), np.int64)
        rank[by_bytes] = np.arange(len(spellings))
        lengths = np.array(sizes, "<u4")
        n = len(lengths)
        keys = rank[np.array(tokens, np.int64)] * n
        keys += np.repeat(np.arange(n), lengths)
        keys, frequencies = np.unique(keys, return_counts=True)
        offsets = np.zeros((len(spellings) + 1, 2), "<i8")
        spellings.sort()
        offsets[1:, 0] = np.cumsum([len(spelling) for spelling in spellings])
        offsets[:, 1] = np.searchsorted(keys, np.arange(len(spellings) + 1) * n)
        files: dict[str, Any] = {
            TERMS: b"".join(spellings),
            OFFSETS: offsets,
            POSITIONS: (keys % max(n, 1)).astype("<u4"),
            FREQUENCIES: frequencies.astype(
                np.min_scalar_type(frequencies.max(initial=1)).newbyteorder("<")
            ),
            LENGTHS: lengths,
        }
        return cls(files, int(lengths.sum(dtype=np.int64)))

    @classmethod
    def open(
        cls, folder: Path, guard: Callable[[str, NDArray[Any]], BlockGuard] = unguarded
    ) -> Postings:
        """Map the postings that `write` left in `folder`, in a time apart from their size."""
        counts = map_array(folder / COUNTS, ("<i8",), (4,))
        n, terms, postings, total_length = (int(value) for value in counts)
        if min(n, terms) < 0 or not terms <= postings <= total_length:
            raise damaged(folder / COUNTS, f"impossible counts {counts.tolist()}")
        offsets = map_array(folder / OFFSETS, ("<i8",), (terms + 1, 2))
        text = map_bytes(folder / TERMS)
        if offsets[0].tolist() != [0, 0] or offsets[-1].tolist() != [len(text), postings]:
            raise damaged(folder / OFFSETS, "first or last offset disagrees with the other files")
        files: dict[str, Any] = {
            TERMS: text,
            OFFSETS: offsets,
            POSITIONS: map_array(folder / POSITIONS, ("<u4",), (postings,)),
            FREQUENCIES: map_array(folder / FREQUENCIES, ("|u1", "<u2", "<u4"), (postings,)),
            LENGTHS: map_array(folder / LENGTHS, ("<u4",), (n,)),
        }
        arrays = {**files, TERMS: np.frombuffer(text, np.uint8)}
        guards = {name: guard(name, values) for name, values in arrays.items()}
        return cls(files, total_length, folder, guards)

    def write(self, folder: Path) -> None:
        """Write the files into an existing folder; no fsync is done."""
        counts = [len(self), len(self._offsets) - 1, len(self._positions), self.total_length]
        for name, values in {**self._files, COUNTS: np.array(counts, "<i8")}.items():
            if name == TERMS:
                (folder / name).write_bytes(values[:])
            else:
                save_array(folder / name, values)

    def __len__(self) -> int:
        """The number of passages n, those without tokens included."""
        return len(self.lengths)

    def stretch(
        self, first: int, last: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.unsignedinteger], NDArray[np.int64]]:
        """The postings of the terms `first` to `last` - 1, in the order of `vocabulary`."""
        self._guards[OFFSETS].check(first, last + 1)
        starts = self._offsets[first : last + 1, 1]
        if not 0 <= starts[0] <= starts[-1] <= len(self._positions) or (np.diff(starts) < 1).any():
            raise self._damaged(OFFSETS, "postings offsets do not ascend")
        self._guards[POSITIONS].check(int(starts[0]), int(starts[-1]))
        self._guards[FREQUENCIES].check(int(starts[0]), int(starts[-1]))
        positions = self._positions[starts[0] : starts[-1]]
        if len(positions) and int(positions.max()) >= len(self):
            raise self._damaged(POSITIONS, f"a position of {len(self)} or more")
        return positions, self._frequencies[starts[0] : starts[-1]], np.diff(starts)

    def postings_of(self, index: int) -> int:
        """How many passages hold the term with this place in `vocabulary`, once that was read."""
        return int(self._steps[2 * index + 3] - self._steps[2 * index + 1])

    def read(self, terms: Iterable[str]) -> Read:
        """The postings of some terms, each given once, in their order; to be checked by `check`."""
        ranges = []
        for term in terms:
            # In one step: another thread may clear the cache.
            place = self._found.get(term)
            if place is None:
                place = self._search(term.encode("utf-8", "surrogatepass"))
                if len(self._found) >= _REMEMBERED:
                    self._found.clear()
                self._found[term] = place
            start = stop = 0
            if place != _UNKNOWN:
                start = self._steps[2 * place + 1]
                stop = self._steps[2 * place + 3]
                if not 0 <= start < stop <= len(self._positions):
                    raise self._damaged(OFFSETS, f"term {place} has postings {start} to {stop}")
                self._guards[POSITIONS].check(start, stop)
                self._guards[FREQUENCIES].check(start, stop)
            ranges.append((start, stop))
        placed = np.array(ranges, np.int64).reshape(-1, 2)
        return Read(self._positions, self._frequencies, placed, placed[:, 1] - placed[:, 0])

    def check(self, read: Read) -> None:
        """Check what `read` has returned, joined."""
        positions = read.positions
        frequencies = read.frequencies
        counts = read.counts
        if not len(positions):
            return
        ends = np.cumsum(counts[counts > 0])
        ascend = positions[1:] > positions[:-1]
        # The first position of a term may be lower than the last of the term before.
        ascend[ends[:-1] - 1] = True
        if not ascend.all() or positions[ends - 1].max() >= len(self):
            raise self._damaged(POSITIONS, "positions of a term do not ascend below n")
        if not frequencies.all():
            raise self._damaged(FREQUENCIES, "a term has a frequency of zero")

    def lengths_of(
        self, positions: NDArray[np.uint32], frequencies: NDArray[np.unsignedinteger]
    ) -> NDArray[np.uint32]:
        """The lengths of the passages at `positions`, which hold a term `frequencies` times."""
        self.check_lengths(positions)
        lengths = self.lengths[positions]
        if (lengths < frequencies).any():
            raise self._damaged(
                LENGTHS, "a passage is shorter than the frequency of one of its terms"
            )
        return lengths

    def check_lengths(self, positions: NDArray[np.integer] | Read | None = None) -> None:
        """Check the lengths of these passages, of those of some postings, or of all."""
        guard = self._guards[LENGTHS]
        if guard.complete:
            return
        if positions is None:
            guard.check()
            return
        if isinstance(positions, Read):
            positions = positions.joined().positions
        if positions.max(initial=0) >= len(self):
            raise self._damaged(POSITIONS, f"a position of {len(self)} or more")
        guard.check_rows(positions)

    def vocabulary(self) -> Iterator[bytes]:
        """Every term as UTF-8, ascending."""
        self._guards[OFFSETS].check()
        self._guards[TERMS].check()
        return map(self._spelling, range(len(self._offsets) - 1))

    def beginning(self, prefix: str) -> Iterator[tuple[str, int]]:
        """The terms that begin with a text, ascending, with the number of passages that hold each.

        Deleted passages count.
        """
        spelling = prefix.encode("utf-8", "surrogatepass")
        # No byte of a term is as high as this one.
        first = self._first_not_below(spelling)
        last = self._first_not_below(spelling + b"\xff")
        if first == last:
            return
        self._guards[OFFSETS].check(first, last + 1)
        self._guards[TERMS].check(self._steps[2 * first], self._steps[2 * last])
        for place in range(first, last):
            yield self._spelling(place).decode("utf-8", "surrogatepass"), self.postings_of(place)

    def _first_not_below(self, spelling: bytes) -> int:
        """The place of the first term that is not below some bytes."""
        low = 0
        high = len(self._offsets) - 1
        while low < high:
            middle = (low + high) // 2
            self._guards[OFFSETS].check(middle, middle + 2)
            self._guards[TERMS].check(self._steps[2 * middle], self._steps[2 * middle + 2])
            if self._spelling(middle) < spelling:
                low = middle + 1
            else:
                high = middle
        return low

    def document_frequencies(self, live: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """(t,) the number of passages that hold each term, in the order of `vocabulary`."""
        self._guards[OFFSETS].check()
        starts = self._offsets[:, 1]
        if any(low >= high for low, high in pairwise(starts.tolist())):
            raise self._damaged(OFFSETS, "postings offsets do not ascend")
        if live is None or not len(self._positions):
            return np.diff(starts)
        self._guards[POSITIONS].check()
        if int(self._positions.max()) >= len(self):
            raise self._damaged(POSITIONS, f"a position of {len(self)} or more")
        counted = live[self._positions].astype(np.int64)
        frequencies: NDArray[np.int64] = np.add.reduceat(counted, starts[:-1])
        return frequencies

    def _search(self, wanted: bytes) -> int:
        """The place of a term among all terms, from 0, or `_UNKNOWN`."""
        offsets = self._guards[OFFSETS]
        terms = self._guards[TERMS]
        low = 0
        high = len(self._offsets) - 1
        while high - low > _TOGETHER and not (offsets.complete and terms.complete):
            middle = (low + high) // 2
            offsets.check(middle, middle + 2)
            terms.check(self._steps[2 * middle], self._steps[2 * middle + 2])
            low, high = (middle, high) if self._spelling(middle) <= wanted else (low, middle)
        offsets.check(low, high + 1)
        begin = self._steps[2 * low]
        end = self._steps[2 * high]
        if not 0 <= begin <= end <= len(self._terms):
            raise self._damaged(OFFSETS, f"impossible bytes of term {low}")
        terms.check(begin, end)
        place: int = find_term(self._terms, self._offsets, low, high, wanted)
        if place < _UNKNOWN:
            raise self._damaged(OFFSETS, f"impossible bytes of term {_UNKNOWN - 1 - place}")
        return place

    def _spelling(self, place: int) -> bytes:
        start = self._steps[2 * place]
        stop = self._steps[2 * place + 2]
        if not 0 <= start <= stop <= len(self._terms):
            raise self._damaged(OFFSETS, f"impossible bytes of term {place}")
        return self._terms[start:stop]

    def _damaged(self, name: str, problem: str) -> DamagedIndexError:
        return damaged(self._folder / name if self._folder else Path(name), problem)


def find_by_python(
    terms: bytes | mmap.mmap, offsets: NDArray[np.int64], low: int, high: int, wanted: bytes
) -> int:
    """The place of a term from `low` to before `high`."""
    # A memoryview returns single numbers several times faster than an array.
    steps = offsets.reshape(-1).data
    begin = steps[2 * low]
    end = steps[2 * high]
    while low < high:
        middle = (low + high) // 2
        start = steps[2 * middle]
        stop = steps[2 * middle + 2]
        if not begin <= start <= stop <= end:
            return _UNKNOWN - 1 - middle
        spelling = terms[start:stop]
        if spelling < wanted:
            low = middle + 1
        elif spelling > wanted:
            high = middle
        else:
            return middle
    return _UNKNOWN


find_term = find_by_python if compiled is None else compiled.find


# Postings of a block; a single term can have more.
_BLOCK = 4_000_000


def merge_postings(segments: Sequence[SearchableSegment], folder: Path) -> None:
    """Write the postings of all live passages into an existing folder; no fsync is done."""
    sources = [one.postings for one in segments]
    for source in sources:
        source.check_lengths()
    places = merged_positions(segments)
    lengths = [one.of_live(one.postings.lengths) for one in segments]
    kind = max((source._frequencies.dtype for source in sources), key=lambda one: one.itemsize)
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
    if (narrowest := np.min_scalar_type(largest).newbyteorder("<")) != kind:
        wide = np.load(folder / FREQUENCIES, mmap_mode="r", allow_pickle=False)
        narrow = np.asarray(wide).astype(narrowest)
        del wide
        (folder / FREQUENCIES).unlink()
        save_array(folder / FREQUENCIES, narrow)
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


def merged_positions(segments: Sequence[SearchableSegment]) -> list[NDArray[np.int64]]:
    """For each segment, (n,) int64: the new position of each passage, -1 for a deleted one."""
    first = 0
    positions = []
    for one in segments:
        kept = np.ones(len(one.postings), np.bool_) if one.live is None else one.live
        positions.append(np.where(kept, first - 1 + np.cumsum(kept), -1))
        first += int(np.count_nonzero(kept))
    return positions


def _blocks(
    sources: Sequence[Postings],
) -> Iterator[tuple[list[bytes], list[list[tuple[int, int]]]]]:
    """The terms of all sources, ascending, in blocks of a limited number of postings."""
    # Each term with the number of its source and its place there.
    streams = [zip(one.vocabulary(), repeat(number), count()) for number, one in enumerate(sources)]
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
            terms = []
            held = [[] for _ in sources]
            size = 0
    if terms:
        yield terms, held


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
