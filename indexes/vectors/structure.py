"""The search structure of a segment: built, measured, written to one file, mapped to be searched.

The file is what FAISS writes, then 1,024 bytes of JSON that say what it is, with a CRC-32 of every
byte that FAISS follows without looking. Any code is a vector, and an id that does not exist is
found when it is returned.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
import warnings
import weakref
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import ConfigError, FormatVersionError, MissingExtraError
from indexes.files import damaged, present, storage_errors
from indexes.folder.checksums import BlockGuard, unguarded
from indexes.protocol import Stage, StructureSettings, no_progress
from indexes.vectors.choice import AUTO, Choice, resolve, training_size
from indexes.vectors.flat import Measured, Nearest, SegmentStructure, search_flat
from indexes.vectors.library import FLAT, code_bytes, count_gpus, faiss_reason, load_faiss, unwrap
from indexes.vectors.search import ID_BYTES, ListGuard, Searcher, open_searcher, sizes_of

STRUCTURE_FILE = "structure.faiss"
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
    """What the end of a structure file says of the rest."""

    name: str
    factory: str
    passages: int
    dimensions: int
    bytes: int
    guarded: int  # the first of them, which the CRC-32 covers
    faiss: str  # the release that wrote them


@dataclass(frozen=True)
class Structure:
    """A structure file, opened, searched by several threads for as long as the object lives."""

    path: Path
    facts: StructureFacts
    crc32: int  # of the facts and of the bytes guarded
    descriptor: int  # closed with the object
    guard: Guarding = unguarded
    _opening: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.descriptor)

    @property
    def searcher(self) -> Searcher:
        """The searcher; FAISS checks and reads the file on first use."""
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
        expected = (self.facts.passages, self.facts.dimensions)
        _require_shape(self.path, expected, (index.ntotal, index.d))
        return open_searcher(index, self.path, self._guarded(faiss, index))

    def _guarded(self, faiss: Any, index: Any) -> ListGuard | None:
        """What checks inverted lists before they are read; other structures are checked."""
        start = self.facts.guarded
        end = self.facts.bytes
        content = mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ)
        guard = self.guard(self.path.name, np.frombuffer(content, np.uint8))
        if guard.complete or start >= end:
            return None
        core = unwrap(index)[1]
        if _unguarded(faiss, index) and type(core).__name__ in _LISTS_AT_THE_END:
            lists = ListGuard(guard, sizes_of(core), code_bytes(core), start)
            if lists.end == end:
                return lists
        guard.check(start, end)
        return None


def write_structure(
    path: Path,
    vectors: NDArray[np.float32],
    choice: Choice,
    stage: Stage = no_progress,
) -> None:
    """Build a structure from the vectors of a segment and write it; not flushed to the disk."""
    faiss = load_faiss()
    index = build_index(vectors, choice, stage)
    with path.open("w+b") as file:
        # FAISS's own writer loses the reason when the disk is full.
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write, _CHUNK))
        size = file.tell()
        guarded = size - _unguarded(faiss, index)
        (n, d) = vectors.shape
        name = choice.name
        facts = StructureFacts(name, choice.factory, n, d, size, guarded, faiss.__version__)
        file.flush()
        trailer = {**asdict(facts), "crc32": _crc32(file.fileno(), facts)}
        file.write(json.dumps(trailer).encode().ljust(_TRAILER_BYTES))


def open_structure(
    path: Path, passages: int, dimensions: int, guard: Guarding = unguarded
) -> Structure:
    """Open a structure file; reads only its last kilobyte."""
    with present(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            facts, crc32 = _read_facts(path, descriptor)
            _require_shape(path, (passages, dimensions), (facts.passages, facts.dimensions))
        except BaseException:
            os.close(descriptor)
            raise
    return Structure(path, facts, crc32, descriptor, guard)


def _read_facts(path: Path, descriptor: int) -> tuple[StructureFacts, int]:
    """What the end of the file says, and the sum there."""
    size = os.fstat(descriptor).st_size
    if size < _TRAILER_BYTES:
        raise damaged(path, f"expected {_TRAILER_BYTES} bytes or more, found {size}")
    trailer = os.pread(descriptor, _TRAILER_BYTES, size - _TRAILER_BYTES)
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


def _require_shape(path: Path, expected: tuple[int, int], found: tuple[int, int]) -> None:
    if found != expected:
        (n, d) = expected
        (other_n, other_d) = found
        raise damaged(path, f"expected {n} vectors of {d} dimensions, found {other_n} of {other_d}")


def _crc32(descriptor: int, facts: StructureFacts) -> int:
    """CRC-32 of what the end of the file says and of the bytes that it says to check."""
    total = zlib.crc32(json.dumps(asdict(facts)).encode())
    place = 0
    end = min(facts.guarded, facts.bytes)
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


_ADDED_AT_ONCE = 65_536
# Any other type FAISS would copy from CPU to CPU and back.
_ON_GPUS = ("IndexIVFFlat", "IndexIVFPQ", "IndexIVFScalarQuantizer")


def build_index(vectors: NDArray[np.float32], choice: Choice, stage: Stage) -> Any:
    """A FAISS index over all vectors, by inner product, at positions 0 to n - 1."""
    faiss = load_faiss()
    index = _empty(faiss, vectors.shape[1], choice)
    sample = _sample(vectors, int(getattr(unwrap(index)[1], "nlist", 0)))
    if count_gpus(faiss) and type(unwrap(index)[1]).__name__ in _ON_GPUS:
        try:
            on_gpus = faiss.index_cpu_to_all_gpus(index)
            _fill(on_gpus, sample, vectors, stage)
            return faiss.index_gpu_to_cpu(on_gpus)
        except RuntimeError as error:
            # A size of code that GPUs do not have, or too little memory there.
            warnings.warn(
                f"FAISS cannot build {choice.name} on the GPU ({faiss_reason(error)}); the CPU "
                "does it",
                stacklevel=2,
            )
            index = _empty(faiss, vectors.shape[1], choice)
    try:
        _fill(index, sample, vectors, stage)
    except RuntimeError as error:
        raise ConfigError(
            f"index type {choice.name!r}: FAISS cannot build it from {len(vectors):,} vectors "
            f"({faiss_reason(error)}); choose another, such as auto"
        ) from error
    return index


def _empty(faiss: Any, d: int, choice: Choice) -> Any:
    index = faiss.index_factory(d, choice.factory, faiss.METRIC_INNER_PRODUCT)
    core = unwrap(index)[1]
    for holder in (core, getattr(core, "pq", None)):
        clustering = getattr(holder, "cp", None)
        if clustering is not None:
            clustering.seed = 0
            # `resolve` says once that there are few; FAISS would say so each time.
            clustering.min_points_per_centroid = 1
    if hasattr(core, "do_polysemous_training"):
        # It takes most of the training, and serves a kind of search that is never used.
        core.do_polysemous_training = False
    return index


def _sample(vectors: NDArray[np.float32], lists: int) -> NDArray[np.float32]:
    size = training_size(len(vectors), lists)
    if size == len(vectors):
        return vectors
    chosen = np.random.default_rng(0).choice(len(vectors), size, replace=False, shuffle=False)
    return vectors[np.sort(chosen)]


def _fill(
    index: Any, sample: NDArray[np.float32], vectors: NDArray[np.float32], stage: Stage
) -> None:
    trained = stage("training the search structure", 1)
    index.train(np.ascontiguousarray(sample))
    trained(1)
    added = stage("building the search structure", len(vectors))
    for start in range(0, len(vectors), _ADDED_AT_ONCE):
        part = np.ascontiguousarray(vectors[start : start + _ADDED_AT_ONCE])
        index.add(part)
        added(len(part))


Found = Sequence[Nearest]

# Length of the noise against that of the passage's vector: their cosine is about 0.9.
_NOISE = 0.5
_ROUNDING = 1e-6
# Queries that a recall is measured with.
SAMPLED_QUERIES = 200


def recall_at(found: Found, exact: Found, k: int = 10) -> float:
    """Recall@k: the share of the k best vectors that was found; equal scores count alike."""
    hits = wanted = 0
    for (_, scores), (_, best) in zip(found, exact, strict=True):
        least = best[:k]
        if len(least):
            last = float(least[-1])
            floor = last - _ROUNDING * max(1.0, abs(last))
            hits += min(len(least), int(np.count_nonzero(scores[:k] >= floor)))
            wanted += len(least)
    return hits / wanted if wanted else 1.0


def sample_queries(
    vectors: NDArray[np.float32], count: int = SAMPLED_QUERIES, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(q, d) queries like real ones, and (q,) the positions, ascending, that they are made from."""
    # A structure was trained on stored vectors: noise of half their length is added to them.
    chance = np.random.default_rng(seed)
    own = np.sort(chance.choice(len(vectors), min(count, len(vectors)), replace=False))
    chosen = vectors[own].astype(np.float64)
    noise = chance.standard_normal(chosen.shape)
    # The noise itself is never zero, as what is scaled by a zero vector is.
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    noise *= np.linalg.norm(chosen, axis=1, keepdims=True)
    return (chosen + _NOISE * noise).astype(np.float32), own.astype(np.int64)


def measure(
    searcher: Searcher,
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    own: NDArray[np.int64],
) -> list[Measured]:
    """Recall@10 against exact search, effort by effort, up to the first that finds everything."""
    exact = _without(search_flat(vectors, queries, 11), own)
    measured: list[Measured] = []
    for effort in searcher.efforts:
        found = searcher.search(vectors, queries, 11, effort=effort)
        measured.append(Measured(effort, recall_at(_without(found, own), exact)))
        if measured[-1].recall == 1:
            break
    return measured


def _without(found: Found, own: NDArray[np.int64]) -> Found:
    """Results without the passage that each query was made from."""
    return [
        (positions[positions != mine], scores[positions != mine])
        for (positions, scores), mine in zip(found, own, strict=True)
    ]


def build_structure(
    folder: Path,
    vectors: NDArray[np.float32],
    settings: StructureSettings,
    stage: Stage = no_progress,
) -> SegmentStructure:
    """Choose a structure for the vectors of a new segment, write it and measure it."""
    choice = buildable_choice(settings, *vectors.shape)
    if choice.name == FLAT:
        return SegmentStructure(FLAT, choice.reasons)
    write_structure(folder / STRUCTURE_FILE, vectors, choice, stage=stage)
    structure = open_structure(folder / STRUCTURE_FILE, *vectors.shape)
    measured = measure(structure.searcher, vectors, *sample_queries(vectors))
    return SegmentStructure(choice.name, choice.reasons, tuple(measured), structure)


def buildable_choice(settings: StructureSettings, passages: int, dimensions: int) -> Choice:
    """The structure that `build_structure` builds for this number of vectors."""
    choice = settings.choice(passages, dimensions)
    if choice.name != FLAT:
        try:
            load_faiss()
        except MissingExtraError:
            if settings.index_type != AUTO:
                raise
            # BM25 needs no FAISS, and an index that only BM25 searches is merged without it.
            reasons = (*choice.reasons, "FAISS is not installed: flat")
            return replace(resolve(FLAT, passages, dimensions, None), reasons=reasons)
    return choice
