"""The postings of one segment: for each term, the passages that hold it and how often.

Files, written once and then memory-mapped:

========================  =================  ========  =============================================
file                      type               shape     content
========================  =================  ========  =============================================
postings.counts.npy       int64              (4,)      passages n, terms t, postings p, total length
postings.terms.utf8       bytes                        the terms, sorted as UTF-8 bytes, joined
postings.offsets.npy      int64              (t+1, 2)  where each term's bytes and postings begin
postings.positions.npy    uint32             (p,)      passages, ascending within a term
postings.frequencies.npy  uint8, 16 or 32    (p,)      occurrences of the term there, at least 1
postings.lengths.npy      uint32             (n,)      terms of each passage, repetitions counted
========================  =================  ========  =============================================

A position is a passage of the segment, 0 to n-1 in the order of adding. Numbers are little-endian.
Opening reads headers and four numbers, whatever the size; a lookup reads what it returns. What it
reads is compared with the sums of the segment before, see `indexes.segment_sums`.
"""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.block_sums import UNGUARDED, BlockGuard, unguarded
from indexes.durable import save_array
from indexes.errors import DamagedIndexError
from indexes.mapping import damaged, map_array, map_bytes

# Terms remembered to begin a search with; a fixed number, so that the first query stays quick.
_FENCES = 1024
# Terms whose place is remembered once they were looked up.
_REMEMBERED = 65_536

COUNTS = "postings.counts.npy"
TERMS = "postings.terms.utf8"
OFFSETS = "postings.offsets.npy"
POSITIONS = "postings.positions.npy"
FREQUENCIES = "postings.frequencies.npy"
LENGTHS = "postings.lengths.npy"


# The passages that hold a term, and how often each does.
_Held = tuple[NDArray[np.uint32], NDArray[np.unsignedinteger]]


class PostingsBuilder:
    """Collects the passages of one segment, about four bytes a token, and sorts them once."""

    def __init__(self) -> None:
        self._term_ids: defaultdict[str, int] = defaultdict(count().__next__)
        self._tokens = array("I")
        self._lengths = array("I")

    def add(self, tokens: Sequence[str]) -> int:
        """Append one passage, with or without tokens; returns its position."""
        self._tokens.extend(map(self._term_ids.__getitem__, tokens))
        self._lengths.append(len(tokens))
        return len(self._lengths) - 1

    def finish(self) -> Postings:
        """The postings of all passages added, in memory."""
        # Any str can be a term, so lone surrogates must have bytes too.
        spellings = [term.encode("utf-8", "surrogatepass") for term in self._term_ids]
        by_bytes = sorted(range(len(spellings)), key=spellings.__getitem__)
        rank = np.empty(len(spellings), np.int64)
        rank[by_bytes] = np.arange(len(spellings))
        lengths = np.array(self._lengths, "<u4")
        n = len(lengths)
        keys = rank[np.array(self._tokens, np.int64)] * n
        keys += np.repeat(np.arange(n), lengths)
        keys, frequencies = np.unique(keys, return_counts=True)
        offsets = np.zeros((len(spellings) + 1, 2), "<i8")
        spellings.sort()
        offsets[1:, 0] = np.cumsum([len(spelling) for spelling in spellings])
        offsets[:, 1] = np.searchsorted(keys, np.arange(len(spellings) + 1) * n)
        return Postings(
            terms=b"".join(spellings),
            offsets=offsets,
            positions=(keys % max(n, 1)).astype("<u4"),
            frequencies=frequencies.astype(narrowest(int(frequencies.max(initial=1)))),
            lengths=lengths,
            total_length=int(lengths.sum(dtype=np.int64)),
        )


class Postings:
    """Immutable postings of one segment, in memory or memory-mapped.

    Attributes:
        lengths: (n,) uint32, the number of tokens of each passage; for `check_lengths` to check
            before they are read.
        total_length: the sum of `lengths`, stored when the segment was built.
    """

    def __init__(
        self,
        *,
        terms: bytes | mmap.mmap,
        offsets: NDArray[np.int64],
        positions: NDArray[np.uint32],
        frequencies: NDArray[np.unsignedinteger],
        lengths: NDArray[np.uint32],
        total_length: int,
        folder: Path | None = None,
        guards: Mapping[str, BlockGuard] | None = None,
    ) -> None:
        guards = guards or {}
        self._terms_guard = guards.get(TERMS, UNGUARDED)
        self._offsets_guard = guards.get(OFFSETS, UNGUARDED)
        self._positions_guard = guards.get(POSITIONS, UNGUARDED)
        self._frequencies_guard = guards.get(FREQUENCIES, UNGUARDED)
        self._lengths_guard = guards.get(LENGTHS, UNGUARDED)
        self.lengths = lengths
        self.total_length = total_length
        self._terms = terms
        self._offsets = offsets
        # A memoryview gives single numbers several times sooner than an array.
        self._steps = offsets.reshape(-1).data
        self._positions = positions
        self._frequencies = frequencies
        self._folder = folder
        self._fences: list[bytes] | None = None
        self._found: dict[str, _Held] = {}

    @classmethod
    def build(cls, token_lists: Iterable[Sequence[str]]) -> Postings:
        """Postings of passages given as lists of terms, in their order."""
        builder = PostingsBuilder()
        for tokens in token_lists:
            builder.add(tokens)
        return builder.finish()

    @classmethod
    def open(
        cls, folder: Path, guard: Callable[[str, NDArray[Any]], BlockGuard] = unguarded
    ) -> Postings:
        """Map the postings that `write` left in `folder`; the time does not depend on their size.

        Args:
            folder: holds the files.
            guard: see `indexes.segment_sums.SegmentSums.guard`.

        Raises:
            DamagedIndexError: a file is missing, not of the kind expected, or of a size that
                disagrees with the others.
        """
        counts = map_array(folder / COUNTS, ("<i8",), (4,))
        n, terms, postings, total_length = (int(value) for value in counts)
        if min(n, terms) < 0 or not terms <= postings <= total_length:
            raise damaged(folder / COUNTS, f"impossible counts {counts.tolist()}")
        offsets = map_array(folder / OFFSETS, ("<i8",), (terms + 1, 2))
        text = map_bytes(folder / TERMS)
        if offsets[0].tolist() != [0, 0] or offsets[-1].tolist() != [len(text), postings]:
            raise damaged(folder / OFFSETS, "first or last offset disagrees with the other files")
        positions = map_array(folder / POSITIONS, ("<u4",), (postings,))
        frequencies = map_array(folder / FREQUENCIES, ("|u1", "<u2", "<u4"), (postings,))
        lengths = map_array(folder / LENGTHS, ("<u4",), (n,))
        arrays = {
            TERMS: np.frombuffer(text, np.uint8),
            OFFSETS: offsets,
            POSITIONS: positions,
            FREQUENCIES: frequencies,
            LENGTHS: lengths,
        }
        return cls(
            terms=text,
            offsets=offsets,
            positions=positions,
            frequencies=frequencies,
            lengths=lengths,
            total_length=total_length,
            folder=folder,
            guards={name: guard(name, values) for name, values in arrays.items()},
        )

    def write(self, folder: Path) -> None:
        """Write the files into an existing folder; no fsync is done."""
        counts = [len(self), self.vocabulary_size, len(self._positions), self.total_length]
        arrays = {
            COUNTS: np.array(counts, "<i8"),
            OFFSETS: self._offsets,
            POSITIONS: self._positions,
            FREQUENCIES: self._frequencies,
            LENGTHS: self.lengths,
        }
        for name, values in arrays.items():
            save_array(folder / name, values)
        (folder / TERMS).write_bytes(self._terms[:])

    def __len__(self) -> int:
        """The number of passages n, those without tokens included."""
        return len(self.lengths)

    @property
    def vocabulary_size(self) -> int:
        """The number of distinct terms."""
        return len(self._offsets) - 1

    @property
    def frequency_type(self) -> np.dtype[np.unsignedinteger]:
        """What frequencies are stored as."""
        return self._frequencies.dtype

    def stretch(
        self, first: int, last: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.unsignedinteger], NDArray[np.int64]]:
        """The postings of the terms `first` to `last` - 1, in the order of `vocabulary`.

        Returns:
            Positions and frequencies of all of them, and (terms,) how many each has.

        Raises:
            DamagedIndexError: the postings are impossible.
        """
        self._offsets_guard.check_range(first, last + 1)
        starts = self._offsets[first : last + 1, 1]
        if not 0 <= starts[0] <= starts[-1] <= len(self._positions) or (np.diff(starts) < 1).any():
            raise self._damaged(OFFSETS, "postings offsets do not ascend")
        self._check_postings(int(starts[0]), int(starts[-1]))
        positions = self._positions[starts[0] : starts[-1]]
        if len(positions) and int(positions.max()) >= len(self):
            raise self._damaged(POSITIONS, f"a position of {len(self)} or more")
        return positions, self._frequencies[starts[0] : starts[-1]], np.diff(starts)

    def postings_of(self, index: int) -> int:
        """How many passages hold the term with this place in `vocabulary`, once that was read."""
        return self._steps[2 * index + 3] - self._steps[2 * index + 1]

    def lookup(self, term: str) -> _Held:
        """The positions that hold `term`, ascending, and how often each does (1 or more).

        Both arrays are read-only views or empty, of equal length; unknown terms have none.

        Raises:
            DamagedIndexError: what the search or the result reads is impossible.
        """
        found = self._found.get(term)
        if found is None:
            found = self._look_up(term)
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[term] = found
        return found

    def _look_up(self, term: str) -> _Held:
        wanted = term.encode("utf-8", "surrogatepass")
        low, high = self._between_fences(wanted)
        while low < high:
            middle = (low + high) // 2
            spelling = self._spelling(middle)
            if spelling < wanted:
                low = middle + 1
            elif spelling > wanted:
                high = middle
            else:
                return self._postings(middle)
        return self._positions[:0], self._frequencies[:0]

    def lengths_of(
        self, positions: NDArray[np.uint32], frequencies: NDArray[np.unsignedinteger]
    ) -> NDArray[np.uint32]:
        """The lengths of the passages at `positions`, which hold a term `frequencies` times.

        Raises:
            DamagedIndexError: a passage is shorter than its term is frequent.
        """
        self.check_lengths(positions)
        lengths = self.lengths[positions]
        if (lengths < frequencies).any():
            raise self._damaged(LENGTHS, "a passage is shorter than one of its terms is frequent")
        return lengths

    def check_lengths(self, positions: NDArray[np.integer] | None = None) -> None:
        """Check the lengths of these passages, or of all.

        Raises:
            DamagedIndexError: they are not as they were written.
        """
        if positions is None:
            self._lengths_guard.check_all()
        else:
            self._lengths_guard.check_rows(positions)

    def vocabulary(self) -> Iterator[bytes]:
        """Every term as UTF-8, ascending.

        Raises:
            DamagedIndexError: the terms or their offsets are not as they were written.
        """
        self._offsets_guard.check_all()
        self._terms_guard.check_all()
        return map(self._spelling, range(self.vocabulary_size))

    def document_frequencies(self, alive: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """(t,) the number of passages that hold each term, in the order of `vocabulary`.

        Args:
            alive: (n,) bool, the passages to count; None for all.

        Raises:
            DamagedIndexError: the postings are impossible.
        """
        self._offsets_guard.check_all()
        starts = self._offsets[:, 1]
        if any(low >= high for low, high in pairwise(starts.tolist())):
            raise self._damaged(OFFSETS, "postings offsets do not ascend")
        if alive is None or not len(self._positions):
            return np.diff(starts)
        self._positions_guard.check_all()
        if int(self._positions.max()) >= len(self):
            raise self._damaged(POSITIONS, f"a position of {len(self)} or more")
        counted = alive[self._positions].astype(np.int64)
        frequencies: NDArray[np.int64] = np.add.reduceat(counted, starts[:-1])
        return frequencies

    def _between_fences(self, wanted: bytes) -> tuple[int, int]:
        """The range of terms that can hold `wanted`: the first steps of the search, remembered."""
        size = self.vocabulary_size
        step = size // _FENCES + 1
        if self._fences is None:
            self._check_spellings(np.arange(0, size, step))
            self._fences = [self._spelling(index) for index in range(0, size, step)]
        place = bisect_right(self._fences, wanted)
        return max(0, (place - 1) * step), min(size, place * step)

    def _check_spellings(self, indexes: NDArray[np.int64]) -> None:
        """Check many terms at once, which is quicker than one after the other."""
        self._offsets_guard.check_rows(np.concatenate([indexes, indexes + 1]))
        starts, stops = self._offsets[indexes, 0], self._offsets[indexes + 1, 0]
        held = (starts >= 0) & (starts < stops) & (stops <= len(self._terms))
        self._terms_guard.check_ranges(starts[held], stops[held])

    def _spelling(self, index: int) -> bytes:
        self._offsets_guard.check_range(index, index + 2)
        start, stop = self._steps[2 * index], self._steps[2 * index + 2]
        if not 0 <= start <= stop <= len(self._terms):
            raise self._damaged(OFFSETS, f"term {index} has bytes {start} to {stop}")
        self._terms_guard.check_range(start, stop)
        return self._terms[start:stop]

    def _postings(self, index: int) -> _Held:
        self._offsets_guard.check_range(index, index + 2)
        start, stop = self._steps[2 * index + 1], self._steps[2 * index + 3]
        if not 0 <= start < stop <= len(self._positions):
            raise self._damaged(OFFSETS, f"term {index} has postings {start} to {stop}")
        self._check_postings(start, stop)
        positions = self._positions[start:stop]
        if positions[-1] >= len(self) or not (positions[1:] > positions[:-1]).all():
            raise self._damaged(POSITIONS, f"positions of term {index} do not ascend below n")
        frequencies = self._frequencies[start:stop]
        if not frequencies.all():
            raise self._damaged(FREQUENCIES, f"term {index} has a frequency of zero")
        return positions, frequencies

    def _check_postings(self, start: int, stop: int) -> None:
        self._positions_guard.check_range(start, stop)
        self._frequencies_guard.check_range(start, stop)

    def _damaged(self, name: str, problem: str) -> DamagedIndexError:
        return damaged(self._folder / name if self._folder else Path(name), problem)


def narrowest(largest: int) -> np.dtype[np.unsignedinteger]:
    """The smallest type of unsigned little-endian numbers that holds `largest`, a uint32."""
    return np.min_scalar_type(largest).newbyteorder("<")
