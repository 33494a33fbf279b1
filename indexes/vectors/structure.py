"""The file of a search structure: written once, and memory-mapped for searches.

The file holds what FAISS writes and a trailer: 1,024 bytes of JSON that describe it, with a CRC-32
of every byte that FAISS follows without a check. The other bytes are codes, each of which is a
vector, and ids, which are checked when FAISS returns them.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
import weakref
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import BlockGuard, unguarded
from indexes.errors import FormatVersionError
from indexes.files import damaged, present, storage_errors
from indexes.platforms import descriptor_path, open_binary, read_at
from indexes.protocol import Stage, no_progress
from indexes.vectors.build import build_index
from indexes.vectors.choice import Choice
from indexes.vectors.library import code_bytes, load_faiss, unwrap
from indexes.vectors.search import ID_BYTES, ListGuard, Searcher, list_sizes, open_searcher

STRUCTURE_FILE = "structure.faiss"
_TRAILER_BYTES = 1024
_INTEGER_FACTS = ("passages", "dimensions", "bytes", "guarded")
# Bytes per read or write.
_CHUNK_BYTES = 1 << 20
# Types whose file ends with the lists, or the vectors, which hold nothing that FAISS follows.
_TYPES_ENDING_IN_LISTS = ("IndexIVFFlat", "IndexIVFScalarQuantizer", "IndexIVFPQ")
_TYPES_ENDING_IN_CODES = ("IndexHNSWFlat", "IndexHNSWSQ")

# Makes a guard from the name and content of a file, as `SegmentSums.guard` does.
Guarding = Callable[[str, NDArray[Any]], BlockGuard]


@dataclass(frozen=True, slots=True)
class StructureFacts:
    """The facts in the trailer of a structure file."""

    name: str
    factory: str
    passages: int
    dimensions: int
    bytes: int
    guarded: int  # number of bytes, from the first, that the CRC-32 covers
    faiss: str  # the release that wrote the file


@dataclass(frozen=True)
class Structure:
    """An opened structure file; threads may share it, and it stays open while the object lives."""

    path: Path
    facts: StructureFacts
    crc32: int  # of the facts and the guarded bytes
    descriptor: int  # closed with the object
    guard: Guarding = unguarded
    _searcher_lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.descriptor)

    @property
    def searcher(self) -> Searcher:
        """The searcher; the file is checked and read on first use."""
        with self._searcher_lock:
            return self._searcher

    @cached_property
    def _searcher(self) -> Searcher:
        faiss = load_faiss()
        with storage_errors(self.path):
            if _crc32(self.descriptor, self.facts) != self.crc32:
                raise damaged(self.path, "its content was altered (its CRC-32 differs)")
        # Before FAISS 1.11 only inverted lists could be mapped.
        flags = getattr(faiss, "IO_FLAG_MMAP_IFC", 0)
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        try:
            index = faiss.read_index(descriptor_path(self.descriptor, self.path), flags)
        except RuntimeError as error:
            raise FormatVersionError(
                f"{self.path}: FAISS {self.facts.faiss} wrote it, and FAISS {faiss.__version__} "
                "cannot read it; install that release or build the structure again"
            ) from error
        expected = (self.facts.passages, self.facts.dimensions)
        _require_shape(self.path, expected, (index.ntotal, index.d))
        return open_searcher(index, self.path, self._list_guard(faiss, index))

    def _list_guard(self, faiss: Any, index: Any) -> ListGuard | None:
        """Return a guard that checks inverted lists on reading; check other structures now."""
        start = self.facts.guarded
        end = self.facts.bytes
        content = mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ)
        guard = self.guard(self.path.name, np.frombuffer(content, np.uint8))
        if guard.complete or start >= end:
            return None
        core = unwrap(index)[1]
        if _unguarded_bytes(faiss, index) and type(core).__name__ in _TYPES_ENDING_IN_LISTS:
            list_guard = ListGuard(guard, list_sizes(core), code_bytes(core), start)
            if list_guard.end == end:
                return list_guard
        guard.check(start, end)
        return None


def write_structure(
    path: Path,
    vectors: NDArray[np.float32],
    choice: Choice,
    stage: Stage = no_progress,
) -> None:
    """Build a structure from the vectors of a segment and write it without fsync."""
    faiss = load_faiss()
    index = build_index(vectors, choice, stage)
    with path.open("w+b") as file:
        # FAISS's own writer loses the reason when the disk is full.
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write, _CHUNK_BYTES))
        size = file.tell()
        guarded = size - _unguarded_bytes(faiss, index)
        n, d = vectors.shape
        facts = StructureFacts(choice.name, choice.factory, n, d, size, guarded, faiss.__version__)
        file.flush()
        trailer = {**asdict(facts), "crc32": _crc32(file.fileno(), facts)}
        file.write(json.dumps(trailer).encode().ljust(_TRAILER_BYTES))


def open_structure(
    path: Path, passages: int, dimensions: int, guard: Guarding = unguarded
) -> Structure:
    """Open a structure file; only its last kilobyte is read."""
    with present(path):
        descriptor = open_binary(path)
        try:
            facts, crc32 = _read_facts(path, descriptor)
            _require_shape(path, (passages, dimensions), (facts.passages, facts.dimensions))
        except BaseException:
            os.close(descriptor)
            raise
    return Structure(path, facts, crc32, descriptor, guard)


def _read_facts(path: Path, descriptor: int) -> tuple[StructureFacts, int]:
    """Read the facts and the CRC-32 in the trailer of a file."""
    size = os.fstat(descriptor).st_size
    if size < _TRAILER_BYTES:
        raise damaged(path, f"expected {_TRAILER_BYTES} bytes or more, found {size}")
    trailer = read_at(descriptor, _TRAILER_BYTES, size - _TRAILER_BYTES)
    try:
        fields = json.loads(trailer)
        crc32 = int(fields.pop("crc32"))
        integers = {key: int(fields[key]) for key in _INTEGER_FACTS}
        facts = StructureFacts(**{**fields, **integers})
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise damaged(path, "it does not end like a structure file") from error
    if size != facts.bytes + _TRAILER_BYTES:
        raise damaged(path, f"expected {facts.bytes + _TRAILER_BYTES} bytes, found {size}")
    return facts, crc32


def _require_shape(path: Path, expected: tuple[int, int], actual: tuple[int, int]) -> None:
    if actual != expected:
        raise damaged(
            path,
            f"expected {expected[0]} vectors of {expected[1]} dimensions, "
            f"found {actual[0]} of {actual[1]}",
        )


def _crc32(descriptor: int, facts: StructureFacts) -> int:
    """Return the CRC-32 of the facts and of the bytes that they guard."""
    crc32 = zlib.crc32(json.dumps(asdict(facts)).encode())
    offset = 0
    end = min(facts.guarded, facts.bytes)
    while offset < end and (chunk := read_at(descriptor, min(end - offset, _CHUNK_BYTES), offset)):
        crc32 = zlib.crc32(chunk, crc32)
        offset += len(chunk)
    return crc32


def _unguarded_bytes(faiss: Any, index: Any) -> int:
    """Count the bytes at the end of a file whose content FAISS need not trust."""
    if isinstance(faiss.downcast_index(index), faiss.IndexRefine):
        return 0
    core = unwrap(index)[1]
    type_name = type(core).__name__
    if type_name in _TYPES_ENDING_IN_LISTS:
        return int(index.ntotal) * (code_bytes(core) + ID_BYTES)
    if type_name in _TYPES_ENDING_IN_CODES:
        return int(index.ntotal) * code_bytes(core)
    return 0
