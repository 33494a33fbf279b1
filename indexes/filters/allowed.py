"""Which passages of a segment a search may return, found out as far as it asks.

A search through inverted lists meets few of a million passages, one by words those that hold them.
No others need to be judged for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from indexes.errors import ConfigError

Mask = NDArray[np.bool_]
# One of so many is few.
_FEW = 32
# Of (m,) positions, or with None of all n: which are allowed, as a new array.
Judge = Callable[[NDArray[np.integer] | None], Mask]


class Allowed:
    """Some of the n passages of a segment; what is judged of all at once is remembered.

    Args:
        size: n.
        judge: always the same judgement of the same passage.
        at_most: how many can be allowed; None for n.
        find: gives all that are allowed, ascending, sooner than `judge` does; None where nothing
            does.

    Attributes:
        at_most: the same, as a number.
    """

    def __init__(
        self,
        size: int,
        judge: Judge,
        at_most: int | None = None,
        find: Callable[[], NDArray[np.int64]] | None = None,
    ) -> None:
        self._size = size
        self._judge = judge
        self._find = find
        self.at_most = size if at_most is None else at_most

    @classmethod
    def of(cls, mask: Mask) -> Allowed:
        """Those of an (n,) bool mask that does not change any more.

        Raises:
            ConfigError: it is no such mask.
        """
        if mask.dtype != np.bool_ or mask.ndim != 1:
            raise ConfigError(
                f"mask: expected one boolean a passage, found {mask.dtype} {mask.shape}"
            )
        at_most = int(np.count_nonzero(mask))
        return cls(len(mask), lambda at: mask.copy() if at is None else mask[at], at_most)

    def __len__(self) -> int:
        return self._size

    def at(self, positions: NDArray[np.integer]) -> Mask:
        """(m,) bool: which of (m,) positions below n are allowed."""
        return self.mask[positions] if "mask" in vars(self) else self._judge(positions)

    @cached_property
    def mask(self) -> Mask:
        """(n,) bool, read-only: which of all are allowed."""
        mask = self._judge(None)
        mask.flags.writeable = False
        return mask

    @cached_property
    def count(self) -> int:
        """How many are allowed."""
        return len(self.positions) if self.is_few else int(np.count_nonzero(self.mask))

    @property
    def is_few(self) -> bool:
        """Whether they are known to be few, and so are sooner handled as positions."""
        return _FEW * self.at_most <= self._size

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """(m,) int64, ascending, read-only: those that are allowed."""
        positions = np.flatnonzero(self.mask) if self._find is None else self._find()
        positions.flags.writeable = False
        return positions
