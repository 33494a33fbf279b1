"""The postings of one segment: for each term, the passages that hold it and how often.

docs/reference/index-format.md describes the files. A position is a passage of the segment, 0 to n-1
in the order of adding.
"""

from __future__ import annotations

import mmap
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import UNGUARDED, BlockGuard, unguarded
from indexes.compiled import compiled
from indexes.errors import DamagedIndexError
from indexes.files import damaged, map_array, map_bytes, save_array

if TYPE_CHECKING:
    pass

COUNTS = "postings.counts.npy"
POSITIONS = "postings.positions.npy"
FREQUENCIES = "postings.frequencies.npy"
LENGTHS = "postings.lengths.npy"
TERMS = "postings.terms.utf8"
OFFSETS = "postings.offsets.npy"

# Terms whose bytes are checked together, in 0.1 ms; a lookup among more terms narrows them first.
_CHECKED_TOGETHER = 2**15
# The place of a term that no passage holds.
_UNKNOWN = -1


class TermPostings(NamedTuple):
    """The postings of the terms of a query, in place: postings of other terms lie between them."""

    positions: NDArray[np.uint32]  # (p,) ascending within a term
    frequencies: NDArray[np.unsignedinteger]  # (p,) 1 or more
    ranges: NDArray[np.int64]  # (terms, 2) start and stop of each term, C-contiguous
    counts: NDArray[np.int64]  # (terms,) number of postings of each term

    @classmethod
    def of(
        cls,
        positions: NDArray[np.uint32],
        frequencies: NDArray[np.unsignedinteger],
        counts: NDArray[np.int64],
    ) -> TermPostings:
        """Make the postings of terms that follow each other without a gap."""
        ends = np.cumsum(counts)
        return cls(positions, frequencies, np.stack([ends - counts, ends], axis=1), counts)

    def joined(self) -> TermPostings:
        """Return the postings without gaps; a copy unless only one term has postings."""
        slices = [slice(start, stop) for start, stop in self.ranges.tolist() if start < stop]
        if len(slices) == 1:
            (only,) = slices
            return TermPostings.of(self.positions[only], self.frequencies[only], self.counts)
        # The empty slice gives the types if no term has postings.
        slices.insert(0, slice(0))
        return TermPostings.of(
            np.concatenate([self.positions[term] for term in slices]),
            np.concatenate([self.frequencies[term] for term in slices]),
            self.counts,
        )


class Postings:
    """Immutable postings of one segment, in memory or memory-mapped.

    Call `check_lengths` before you read `lengths`, (n,) uint32; `total_length` is their sum.
    `files` holds arrays and bytes by file name, `guards` what compares them with checksums.
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
        self._flat_offsets = self._offsets.reshape(-1).data
        self._folder = folder

    @classmethod
    def build(cls, token_lists: Iterable[Sequence[str]]) -> Postings:
        """Build the postings of passages, given as lists of terms in the order of the passages."""
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
        """Map the postings that `write` left in `folder`, in constant time."""
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
        """Write the files into an existing folder, without fsync."""
        counts = [len(self), len(self._offsets) - 1, len(self._positions), self.total_length]
        for name, values in {**self._files, COUNTS: np.array(counts, "<i8")}.items():
            if name == TERMS:
                (folder / name).write_bytes(values[:])
            else:
                save_array(folder / name, values)

    def __len__(self) -> int:
        """Return the number of passages n, including passages without terms."""
        return len(self.lengths)

    def stretch(
        self, first: int, last: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.unsignedinteger], NDArray[np.int64]]:
        """Return positions, frequencies and counts of the terms `first` to `last` - 1.

        Terms are numbered in the order of `vocabulary`.
        """
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

    def count_postings(self, place: int) -> int:
        """Return how many passages hold the term at a place in `vocabulary`, which was read."""
        return int(self._flat_offsets[2 * place + 3] - self._flat_offsets[2 * place + 1])

    def read(self, terms: Iterable[str]) -> TermPostings:
        """Find the postings of distinct terms, in the order of the terms.

        Pass the result to `check` before you rely on it.
        """
        offsets = self._flat_offsets
        size = len(self._positions)
        positions_guard = self._guards[POSITIONS]
        frequencies_guard = self._guards[FREQUENCIES]
        ranges = []
        for term in terms:
            place = self._find_place(term.encode("utf-8", "surrogatepass"))
            start = stop = 0
            if place != _UNKNOWN:
                start = offsets[2 * place + 1]
                stop = offsets[2 * place + 3]
                if not 0 <= start < stop <= size:
                    raise self._damaged(OFFSETS, f"term {place} has postings {start} to {stop}")
                positions_guard.check(start, stop)
                frequencies_guard.check(start, stop)
            ranges.append((start, stop))
        spans = np.array(ranges, np.int64).reshape(-1, 2)
        counts = spans[:, 1] - spans[:, 0]
        return TermPostings(self._positions, self._frequencies, spans, counts)

    def check(self, postings: TermPostings) -> None:
        """Check postings that `read` has returned, joined.

        Raises:
            DamagedIndexError: positions do not ascend below n, or a frequency is zero.
        """
        positions, frequencies, _, counts = postings
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
        """Return the lengths of passages that hold a term `frequencies` times."""
        self.check_lengths(positions)
        lengths = self.lengths[positions]
        if (lengths < frequencies).any():
            raise self._damaged(
                LENGTHS, "a passage is shorter than the frequency of one of its terms"
            )
        return lengths

    def check_lengths(self, positions: NDArray[np.integer] | TermPostings | None = None) -> None:
        """Check the lengths of passages, of the passages in postings, or of all passages."""
        guard = self._guards[LENGTHS]
        if guard.complete:
            return
        if positions is None:
            guard.check()
            return
        if isinstance(positions, TermPostings):
            positions = positions.joined().positions
        if positions.max(initial=0) >= len(self):
            raise self._damaged(POSITIONS, f"a position of {len(self)} or more")
        guard.check_rows(positions)

    def vocabulary(self) -> Iterator[bytes]:
        """Yield every term as UTF-8, ascending."""
        self._guards[OFFSETS].check()
        self._guards[TERMS].check()
        return map(self._spelling, range(len(self._offsets) - 1))

    def beginning(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield the terms that begin with a text, ascending, and how many passages hold each.

        Deleted passages count.
        """
        spelling = prefix.encode("utf-8", "surrogatepass")
        first = self._first_not_below(spelling)
        # No byte of a term is as high as this one.
        last = self._first_not_below(spelling + b"\xff")
        if first == last:
            return
        self._guards[OFFSETS].check(first, last + 1)
        self._guards[TERMS].check(self._flat_offsets[2 * first], self._flat_offsets[2 * last])
        for place in range(first, last):
            yield self._spelling(place).decode("utf-8", "surrogatepass"), self.count_postings(place)

    def _first_not_below(self, spelling: bytes) -> int:
        """Return the place of the first term that is not below the bytes of `spelling`."""
        low = 0
        high = len(self._offsets) - 1
        while low < high:
            middle = (low + high) // 2
            self._guards[OFFSETS].check(middle, middle + 2)
            self._guards[TERMS].check(
                self._flat_offsets[2 * middle], self._flat_offsets[2 * middle + 2]
            )
            if self._spelling(middle) < spelling:
                low = middle + 1
            else:
                high = middle
        return low

    def document_frequencies(self, live: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """Return (t,) the number of passages that hold each term, in the order of `vocabulary`."""
        self._guards[OFFSETS].check()
        starts = self._offsets[:, 1]
        if any(low >= high for low, high in pairwise(starts.tolist())):
            raise self._damaged(OFFSETS, "postings offsets do not ascend")
        if live is None or not len(self._positions):
            return np.diff(starts)
        self._guards[POSITIONS].check()
        if int(self._positions.max()) >= len(self):
            raise self._damaged(POSITIONS, f"a position of {len(self)} or more")
        is_live = live[self._positions].astype(np.int64)
        frequencies: NDArray[np.int64] = np.add.reduceat(is_live, starts[:-1])
        return frequencies

    def _find_place(self, term: bytes) -> int:
        """Return the place of a term among all terms, from 0, or `_UNKNOWN`."""
        low = 0
        high = len(self._offsets) - 1
        if not (self._guards[OFFSETS].complete and self._guards[TERMS].complete):
            low, high = self._narrow(term)
        place: int = find_term(self._terms, self._offsets, low, high, term)
        if place < _UNKNOWN:
            raise self._damaged(OFFSETS, f"impossible bytes of term {_UNKNOWN - 1 - place}")
        return place

    def _narrow(self, term: bytes) -> tuple[int, int]:
        """Return a range of places that a term can have, after a check of their bytes."""
        offsets = self._guards[OFFSETS]
        terms = self._guards[TERMS]
        low = 0
        high = len(self._offsets) - 1
        while high - low > _CHECKED_TOGETHER:
            middle = (low + high) // 2
            offsets.check(middle, middle + 2)
            terms.check(self._flat_offsets[2 * middle], self._flat_offsets[2 * middle + 2])
            if self._spelling(middle) <= term:
                low = middle
            else:
                high = middle
        offsets.check(low, high + 1)
        begin = self._flat_offsets[2 * low]
        end = self._flat_offsets[2 * high]
        if not 0 <= begin <= end <= len(self._terms):
            raise self._damaged(OFFSETS, f"impossible bytes of term {low}")
        terms.check(begin, end)
        return low, high

    def _spelling(self, place: int) -> bytes:
        """Return the bytes of the term at a place."""
        start = self._flat_offsets[2 * place]
        stop = self._flat_offsets[2 * place + 2]
        if not 0 <= start <= stop <= len(self._terms):
            raise self._damaged(OFFSETS, f"impossible bytes of term {place}")
        return self._terms[start:stop]

    def _damaged(self, name: str, problem: str) -> DamagedIndexError:
        return damaged(self._folder / name if self._folder else Path(name), problem)


def find_by_python(
    terms: bytes | mmap.mmap, offsets: NDArray[np.int64], low: int, high: int, term: bytes
) -> int:
    """Return the place of a term between `low` and `high`, or `_UNKNOWN`.

    `_UNKNOWN` - 1 - place says that the bytes of the term at that place are impossible.
    """
    # A memoryview returns single numbers several times faster than an array.
    flat_offsets = offsets.reshape(-1).data
    begin = flat_offsets[2 * low]
    end = flat_offsets[2 * high]
    while low < high:
        middle = (low + high) // 2
        start = flat_offsets[2 * middle]
        stop = flat_offsets[2 * middle + 2]
        if not begin <= start <= stop <= end:
            return _UNKNOWN - 1 - middle
        spelling = terms[start:stop]
        if spelling < term:
            low = middle + 1
        elif spelling > term:
            high = middle
        else:
            return middle
    return _UNKNOWN


find_term = find_by_python if compiled is None else compiled.find
