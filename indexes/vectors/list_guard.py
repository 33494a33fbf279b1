"""Inverted lists at the end of a structure's file, checked before they are first read.

FAISS writes the codes of the first list, its ids, those of the second list, and so on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.files.checksums import BlockGuard

LIST_ID_BYTES = 8


class ListGuard:
    """Checks lists, each once.

    Args:
        guard: of the bytes of the file.
        sizes: (lists,) int64: how many vectors each list holds.
        code_bytes: of each vector.
        start: where the first list begins.
    """

    def __init__(
        self, guard: BlockGuard, sizes: NDArray[np.int64], code_bytes: int, start: int
    ) -> None:
        self._guard = guard
        self._starts = start + np.cumsum(np.append(0, sizes * (code_bytes + LIST_ID_BYTES)))
        self._ids = self._starts[:-1] + sizes * code_bytes
        self._seen = sizes == 0

    @property
    def end(self) -> int:
        """Where the last list ends."""
        return int(self._starts[-1])

    def check(self, lists: NDArray[np.int64]) -> None:
        """Check these lists, of any shape; -1 is passed over.

        Raises:
            DamagedIndexError: one is not as it was written.
        """
        if self._guard.complete:
            return
        wanted = lists[lists >= 0]
        for number in np.unique(wanted[~self._seen[wanted]]).tolist():
            self._guard.check_range(int(self._starts[number]), int(self._starts[number + 1]))
            self._seen[number] = True

    def check_ids(self) -> None:
        """Check the ids of all lists; raises as `check`."""
        stops = self._starts[1:]
        held = self._ids < stops
        self._guard.check_ranges(self._ids[held], stops[held])


def sizes_of(core: Any) -> NDArray[np.int64]:
    """(lists,) int64: how many vectors each inverted list of a FAISS index holds."""
    inverted = core.invlists
    return np.array([inverted.list_size(number) for number in range(core.nlist)], np.int64)
