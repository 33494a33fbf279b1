"""An .npy file that is written in parts, its length known only at the end."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray


class GrowingArray:
    """Writes parts one after the other; use it as a context manager.

    Args:
        path: the file, replaced if it is there.
        dtype: of the array.
        columns: () for (n,), (d,) for (n, d).

    Raises:
        OSError: with errno set, where the disk is full.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], columns: tuple[int, ...] = ()) -> None:
        self._file = path.open("wb")
        self._dtype = dtype
        self._columns = columns
        self._rows = 0
        self._write_header()

    def append(self, part: NDArray[Any]) -> None:
        """Add rows.

        Raises:
            ValueError: they have another shape.
        """
        if part.shape[1:] != self._columns:
            raise ValueError(f"expected rows of shape {self._columns}, found {part.shape[1:]}")
        self._file.write(np.ascontiguousarray(part, self._dtype).data)
        self._rows += len(part)

    def __enter__(self) -> GrowingArray:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._file:
            if error is None:
                self._file.seek(0)
                self._write_header()

    def _write_header(self) -> None:
        # NumPy pads the header so that the first axis can grow in place.
        np.lib.format.write_array_header_1_0(
            self._file,
            {
                "descr": self._dtype.str,
                "fortran_order": False,
                "shape": (self._rows, *self._columns),
            },
        )
