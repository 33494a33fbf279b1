"""The FAISS structure of a segment as one file, built once and memory-mapped to be searched.

The file is what FAISS writes, then 1,024 bytes of JSON that say what it is. They hold a CRC-32 of
every byte that FAISS follows without looking: sizes, centroids, tables, the links of a graph. FAISS
itself is loaded with the first search, which is also when the CRC-32 is checked.

The CRC-32 leaves out codes and ids at the end of the file. They are compared with the checksums of
the segment (see `indexes.files.checksums`): a list before it is first read, those of a graph with
the first search. In a structure without checksums any code is a vector, only a worse one, and an
id that does not exist is found when it is returned. All scores come from the kept vectors.
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

from indexes.errors import FormatVersionError
from indexes.files.checksums import BlockGuard, unguarded
from indexes.files.faults import damaged, storage_errors
from indexes.progress import Stage, no_progress
from indexes.vectors.build import build_index
from indexes.vectors.choice import FLAT, StructureSpec
from indexes.vectors.library import load_faiss
from indexes.vectors.search.lists import ID_BYTES, ListGuard, sizes_of
from indexes.vectors.search.searcher import Searcher
from indexes.vectors.unwrapped import code_bytes, unwrap

_TRAILER_BYTES = 1024
_NUMBERS = ("passages", "dimensions", "bytes", "guarded")
_CHUNK = 1 << 20
# Types whose lists, or vectors, are the end of the file and hold nothing that FAISS follows.
_LISTS_AT_THE_END = ("IndexIVFFlat", "IndexIVFScalarQuantizer", "IndexIVFPQ")
_CODES_AT_THE_END = ("IndexHNSWFlat", "IndexHNSWSQ")

# Makes a guard from the name and content of a file: `SegmentSums.guard`.
Guarding = Callable[[str, NDArray[Any]], BlockGuard]


@dataclass(frozen=True, slots=True)
class StructureFacts:
    """What the end of a structure file says of the rest.

    Attributes:
        name, factory: see `indexes.vectors.choice.StructureSpec`.
        passages: how many vectors the file holds.
        dimensions: of each vector.
        bytes: how long what FAISS wrote is.
        guarded: how many of them, from the start, the sum covers.
        faiss: the release that wrote the file.
    """

    name: str
    factory: str
    passages: int
    dimensions: int
    bytes: int
    guarded: int
    faiss: str


@dataclass(frozen=True)
class Structure:
    """A structure file, opened; several threads may search it.

    It can be searched for as long as it lives, though a merge may have removed the file meanwhile.

    Attributes:
        path: the file.
        facts: what it holds.
        crc32: of the facts and of the bytes guarded.
        descriptor: the open file, closed with the object.
        guard: gives what checks the content of the file.
    """

    path: Path
    facts: StructureFacts
    crc32: int
    descriptor: int
    guard: Guarding = unguarded
    _opening: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.descriptor)

    @property
    def searcher(self) -> Searcher:
        """The searcher; FAISS checks and reads the file on first use.

        Raises:
            DamagedIndexError: the file was altered.
            FormatVersionError: another release of FAISS wrote it, which this one cannot read.
            MissingExtraError: FAISS is not installed.
        """
        with self._opening:
            return self._searcher

    @cached_property
    def _searcher(self) -> Searcher:
        faiss = load_faiss()
        with storage_errors(self.path):
            if _crc32(self.descriptor, self.facts) != self.crc32:
                raise damaged(self.path, "its content was altered (its CRC-32 differs)")
        # Before FAISS 1.11 only inverted lists could be mapped.
        mapped = getattr(faiss, "IO_FLAG_MMAP_IFC", 0)
        # A path to the open file, whether or not it still has a name.
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        try:
            index = faiss.read_index(f"/dev/fd/{self.descriptor}", mapped)
        except RuntimeError as error:
            raise FormatVersionError(
                f"{self.path}: FAISS {self.facts.faiss} wrote it, and FAISS {faiss.__version__} "
                "cannot read it; install that release or build the structure again"
            ) from error
        found, expected = (index.ntotal, index.d), (self.facts.passages, self.facts.dimensions)
        if found != expected:
            raise damaged(self.path, _other_vectors(expected, found))
        return Searcher(index, self.path, self._guarded(faiss, index))

    def _guarded(self, faiss: Any, index: Any) -> ListGuard | None:
        """What checks the lists of an index before they are read; the end of any other is checked.

        None if nothing is left to check.
        """
        start, end = self.facts.guarded, self.facts.bytes
        content = mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ)
        guard = self.guard(self.path.name, np.frombuffer(content, np.uint8))
        if guard.complete or start >= end:
            return None
        core = unwrap(index)[1]
        if _unguarded(faiss, index) and type(core).__name__ in _LISTS_AT_THE_END:
            lists = ListGuard(guard, sizes_of(core), code_bytes(core), start)
            if lists.end == end:
                return lists
        guard.check_range(start, end)
        return None


def write_structure(
    path: Path,
    vectors: NDArray[np.float32],
    spec: StructureSpec,
    seed: int = 0,
    stage: Stage = no_progress,
) -> None:
    """Build a structure from the vectors of a segment and write it; not flushed to the disk.

    Args:
        path: the file to make; an existing one is replaced.
        vectors: (n, d) float32, C-contiguous; may be memory-mapped.
        spec: as `indexes.vectors.choice.resolve` gives it for n and d; not `flat`.
        seed: equal vectors, seed, FAISS and one thread give equal files.
        stage: receives the progress.

    Raises:
        ConfigError: FAISS cannot build it.
        MissingExtraError: FAISS is not installed.
        StorageError: the disk is full or the folder cannot be written; the file is removed.
        ValueError: `spec` is flat, which has no file.
    """
    if spec.name == FLAT:
        raise ValueError("flat has no file: the vectors themselves are scanned")
    faiss = load_faiss()
    index = build_index(vectors, spec, seed, stage)
    with storage_errors(path):
        try:
            with path.open("wb") as file:
                # FAISS's own writer loses the reason when the disk is full.
                faiss.write_index(index, faiss.PyCallbackIOWriter(file.write, _CHUNK))
                size = file.tell()
            facts = StructureFacts(
                spec.name,
                spec.factory,
                len(vectors),
                vectors.shape[1],
                size,
                size - _unguarded(faiss, index),
                faiss.__version__,
            )
            with path.open("r+b") as file:
                trailer = {**asdict(facts), "crc32": _crc32(file.fileno(), facts)}
                file.seek(0, os.SEEK_END)
                file.write(json.dumps(trailer).encode().ljust(_TRAILER_BYTES))
        except OSError:
            path.unlink(missing_ok=True)
            raise


def open_structure(
    path: Path, passages: int, dimensions: int, guard: Guarding = unguarded
) -> Structure:
    """Open a structure file; reads only its last kilobyte.

    Args:
        path: a file of `write_structure`.
        passages: how many vectors it must hold.
        dimensions: that they must have.
        guard: see `indexes.files.checksums.SegmentSums.guard`.

    Raises:
        DamagedIndexError: the file is missing, of another form, or of other vectors.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise damaged(path, "the file is missing") from error
    try:
        facts, crc32 = _read_facts(path, descriptor)
        found, expected = (facts.passages, facts.dimensions), (passages, dimensions)
        if found != expected:
            raise damaged(path, _other_vectors(expected, found))
    except BaseException:
        os.close(descriptor)
        raise
    return Structure(path, facts, crc32, descriptor, guard)


def _read_facts(path: Path, descriptor: int) -> tuple[StructureFacts, int]:
    """What the end of the file says, and the sum there."""
    try:
        size = os.fstat(descriptor).st_size
        if size < _TRAILER_BYTES:
            raise damaged(path, f"expected {_TRAILER_BYTES} bytes or more, found {size}")
        trailer = os.pread(descriptor, _TRAILER_BYTES, size - _TRAILER_BYTES)
    except IsADirectoryError as error:
        raise damaged(path, "the file is missing") from error
    try:
        held = json.loads(trailer)
        crc32 = int(held.pop("crc32"))
        numbers = {key: int(held[key]) for key in _NUMBERS}
        facts = StructureFacts(**{**held, **numbers})
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise damaged(path, "it does not end like a structure file") from error
    if size != facts.bytes + _TRAILER_BYTES:
        raise damaged(path, f"expected {facts.bytes + _TRAILER_BYTES} bytes, found {size}")
    return facts, crc32


def _other_vectors(expected: tuple[int, int], found: tuple[int, int]) -> str:
    return (
        f"expected {expected[0]} vectors of {expected[1]} dimensions, "
        f"found {found[0]} of {found[1]}"
    )


def _crc32(descriptor: int, facts: StructureFacts) -> int:
    """CRC-32 of what the end of the file says and of the bytes that it says to check."""
    total = zlib.crc32(json.dumps(asdict(facts)).encode())
    place, end = 0, min(facts.guarded, facts.bytes)
    while place < end and (chunk := os.pread(descriptor, min(end - place, _CHUNK), place)):
        total = zlib.crc32(chunk, total)
        place += len(chunk)
    return total


def _unguarded(faiss: Any, index: Any) -> int:
    """How many bytes at the end of what FAISS writes can hold anything without harm."""
    if isinstance(faiss.downcast_index(index), faiss.IndexRefine):
        return 0
    core = unwrap(index)[1]
    kind = type(core).__name__
    if kind in _LISTS_AT_THE_END:
        return int(index.ntotal) * (code_bytes(core) + ID_BYTES)
    if kind in _CODES_AT_THE_END:
        return int(index.ntotal) * code_bytes(core)
    return 0
