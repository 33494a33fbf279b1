"""Arrays and bytes in files: large ones mapped, small ones read, long ones written in parts.

A mapping holds a file descriptor until it is closed, so an index of many small segments
would need more of them than a process may have.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.files.faults import damaged

# Up to this size a file is read, which takes about as long as mapping it.
SMALL = 64 * 1024


def is_small(size: int) -> bool:
    """Whether a file of this many bytes is read, and checked, whole when it is opened."""
    return size <= SMALL


def file_facts(path: Path) -> dict[str, Any]:
    """Size in bytes and SHA-256 of a file, as the manifest of a segment holds them."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": digest}


def map_array(path: Path, dtypes: tuple[str, ...], shape: tuple[int, ...]) -> NDArray[Any]:
    """The array of an .npy file, read-only, of one of these types and of exactly this shape.

    The header is checked before anything is mapped, so that no array reaches beyond its file.

    Raises:
        DamagedIndexError: the file is missing, of another form or of another size.
    """
    try:
        with path.open("rb") as file:
            try:
                version = np.lib.format.read_magic(file)
                if version != (1, 0):
                    raise ValueError(f"format version {version}")
                found, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            # NumPy's header parser raises as many errors as Python's own, warnings included.
            except Exception as error:
                reason = " ".join(str(error).split())
                raise damaged(path, f"not a readable .npy file ({reason})") from error
            offset, size = file.tell(), os.fstat(file.fileno()).st_size
            if found != shape or fortran or dtype.str not in dtypes:
                raise damaged(
                    path, f"expected {'/'.join(dtypes)} {shape}, found {dtype.str} {found}"
                )
            expected = offset + dtype.itemsize * int(np.prod(shape, dtype=object))
            if size != expected:
                raise damaged(path, f"expected {expected} bytes, found {size}")
            if is_small(size):
                return np.frombuffer(file.read(), dtype).reshape(shape)
            # Not an np.memmap, of which indexing costs a subclass check each time.
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return np.frombuffer(mapped, dtype, offset=offset).reshape(shape)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise damaged(path, "the file is missing") from error


def each_once(values: NDArray[Any]) -> NDArray[Any]:
    """(m,) the values of an array of any shape, ascending.

    As `np.unique`, of which the first call of a process imports 10 ms of other code.
    """
    ordered = np.sort(values, axis=None)
    is_first = np.append(True, ordered[1:] != ordered[:-1])
    return np.asarray(ordered[is_first[: len(ordered)]])


def set_read_ahead(array: NDArray[Any], wanted: bool) -> None:
    """Tell the kernel whether to read ahead in the file of a mapped array, as it does at first.

    Where rows are read here and there, what is read ahead displaces what is needed from memory.
    An array in memory stays as it is.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    mapped = base.obj if isinstance(base, memoryview) else None
    if sys.platform != "win32" and isinstance(mapped, mmap.mmap):
        mapped.madvise(mmap.MADV_NORMAL if wanted else mmap.MADV_RANDOM)


def map_bytes(path: Path) -> bytes | mmap.mmap:
    """The content of a file, read-only.

    Raises:
        DamagedIndexError: the file is missing.
    """
    try:
        with path.open("rb") as file:
            if is_small(os.fstat(file.fileno()).st_size):
                return file.read()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise damaged(path, "the file is missing") from error


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write a C-contiguous array as .npy.

    `numpy.save` loses the reason when the disk is full (its OSError has no errno); a plain write
    keeps it.

    Raises:
        OSError: with errno set.
    """
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)


class GrowingArray:
    """An .npy file that is written in parts; use it as a context manager.

    Args:
        path: the file, replaced if it exists.
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
