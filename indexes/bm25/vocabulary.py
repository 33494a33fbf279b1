"""The terms of one segment, sorted as UTF-8 bytes, and where the postings of each begin.

The files are those of `postings`: the joined terms, and for each term where its bytes and
its postings begin.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.compiled import compiled
from indexes.errors import DamagedIndexError
from indexes.files.checksums import UNGUARDED, BlockGuard
from indexes.files.faults import damaged

TERMS = "postings.terms.utf8"
OFFSETS = "postings.offsets.npy"

# Terms remembered to begin a search with; a fixed number, so that the first query stays quick.
_FENCES = 1024
_UNKNOWN, _UNSEEN = -1, -2
# Terms whose place is remembered once they were looked up.
_REMEMBERED = 65_536


class Vocabulary:
    """Immutable; in memory or memory-mapped.

    Args:
        terms: the bytes of all terms, joined.
        offsets: (t+1, 2) int64: where the bytes and the postings of each term begin.
        folder: of the files, for errors; None where they are in memory.
        terms_guard, offsets_guard: check what is read.
    """

    def __init__(
        self,
        terms: bytes | mmap.mmap,
        offsets: NDArray[np.int64],
        folder: Path | None = None,
        terms_guard: BlockGuard = UNGUARDED,
        offsets_guard: BlockGuard = UNGUARDED,
    ) -> None:
        self._terms = terms
        self._offsets = offsets
        # A memoryview gives single numbers several times sooner than an array.
        self._steps = offsets.reshape(-1).data
        self._folder = folder
        self._terms_guard = terms_guard
        self._offsets_guard = offsets_guard
        self._fences: list[bytes] | None = None
        self._found: dict[str, int | None] = {}

    def __len__(self) -> int:
        """The number of terms t."""
        return len(self._offsets) - 1

    def __iter__(self) -> Iterator[bytes]:
        """Every term as UTF-8, ascending.

        Raises:
            DamagedIndexError: the terms or their offsets are not as they were written.
        """
        self._offsets_guard.check_all()
        self._terms_guard.check_all()
        return map(self._spelling, range(len(self)))

    def find(self, term: str) -> int | None:
        """The place of a term among all terms, from 0; None if it is not there.

        Raises:
            DamagedIndexError: what the search reads is impossible.
        """
        # In one step: another thread may clear what is remembered.
        found = self._found.get(term, _UNSEEN)
        if found != _UNSEEN:
            return found
        place = self._search(term.encode("utf-8", "surrogatepass"))
        if len(self._found) >= _REMEMBERED:
            self._found.clear()
        self._found[term] = place
        return place

    def postings_of(self, place: int) -> tuple[int, int]:
        """Where the postings of the term with this place begin and end.

        What `find` has returned is checked; of other terms `starts` is to be asked before.
        """
        return self._steps[2 * place + 1], self._steps[2 * place + 3]

    def starts(self, first: int, last: int) -> NDArray[np.int64]:
        """(last - first + 1,) int64: where the postings of the terms `first` to `last` begin.

        Those of a `last` that is the number of terms would begin where all end.

        Raises:
            DamagedIndexError: they are not as they were written.
        """
        self._offsets_guard.check_range(first, last + 1)
        return self._offsets[first : last + 1, 1]

    def _search(self, wanted: bytes) -> int | None:
        size = len(self)
        step = size // _FENCES + 1
        if self._fences is None:
            self._fences = self._spellings(np.arange(0, size, step))
        fence = bisect_right(self._fences, wanted)
        low, high = max(0, (fence - 1) * step), min(size, fence * step)
        if low == high:
            return None
        self._offsets_guard.check_near(low, high + 1)
        begin, end = self._steps[2 * low], self._steps[2 * high]
        if not 0 <= begin <= end <= len(self._terms):
            raise self._damaged(low)
        self._terms_guard.check_near(begin, end)
        place = _find(self._terms, self._offsets, low, high, wanted)
        if place < _UNKNOWN:
            raise self._damaged(_UNKNOWN - 1 - place)
        return None if place == _UNKNOWN else place

    def _spellings(self, places: NDArray[np.int64]) -> list[bytes]:
        """Many terms at once, whose bytes are checked sooner than one after the other."""
        self._offsets_guard.check_rows(np.concatenate([places, places + 1]))
        starts, stops = self._offsets[places, 0], self._offsets[places + 1, 0]
        held = (starts >= 0) & (starts < stops) & (stops <= len(self._terms))
        self._terms_guard.check_ranges(starts[held], stops[held])
        return [self._spelling(place) for place in places.tolist()]

    def _spelling(self, place: int) -> bytes:
        start, stop = self._steps[2 * place], self._steps[2 * place + 2]
        if not 0 <= start <= stop <= len(self._terms):
            raise self._damaged(place)
        return self._terms[start:stop]

    def _damaged(self, place: int) -> DamagedIndexError:
        path = self._folder / OFFSETS if self._folder else Path(OFFSETS)
        return damaged(path, f"impossible bytes of term {place}")


def find_by_python(
    terms: bytes | mmap.mmap, offsets: NDArray[np.int64], low: int, high: int, wanted: bytes
) -> int:
    """The place of a term from `low` to before `high`.

    Returns:
        Its place; -1 if it is not there; -2 - p where the bytes of the term p are impossible.
    """
    # A memoryview gives single numbers several times sooner than an array.
    steps = offsets.reshape(-1).data
    begin, end = steps[2 * low], steps[2 * high]
    while low < high:
        middle = (low + high) // 2
        start, stop = steps[2 * middle], steps[2 * middle + 2]
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


_find = find_by_python if compiled is None else compiled.find
