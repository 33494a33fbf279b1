"""Metadata as columns: for each top-level field a small code a passage, and what each code means.

A filter then is evaluated once for each distinct value of a field, and not once a document. This
module holds the parts that need no database; `column_rows` keeps the columns in step with
the documents, `indexes.filters.applying` filters with them.

Codes are uint16. Code 0 says that the document lacks the field, or that there is no such passage.
They lie in chunks of `CHUNK` passage ids, little-endian; what a stored chunk lacks at its end is 0.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.compiled import compiled
from indexes.store.documents import MetadataChange, metadata_json

CHUNK = 16384
# How many there can be.
CODES = 65_536
# The metadata of a document that lacks the field.
ABSENT = "{}"


@dataclass(frozen=True, slots=True)
class Limits:
    """What is kept as a column; a field beyond that is given up, and filtered by its documents.

    So is a field of which a value or a name holds a NUL.

    Attributes:
        fields: how many are kept.
        values: distinct values of a field, at most 65,535.
        length: characters of a value, as `fields_of` writes it.
    """

    fields: int = 256
    values: int = 4096
    length: int = 1024


LIMITS = Limits()


@dataclass(slots=True)
class Cells:
    """What a change says of one field: a value for each of some passages.

    Attributes:
        passages: their ids; a later one counts where one comes twice.
        values: as `fields_of` writes them, or `ABSENT`, as many.
    """

    passages: list[int]
    values: list[str]


def fields_of(metadata: str) -> dict[str, str]:
    """For each top-level field of a JSON object, a JSON object that holds it alone.

    Names end at a NUL, as they do for releases of SQLite; fields that are one so are kept together.

    Raises:
        ValueError, TypeError, AttributeError: it is no JSON object.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, value in json.loads(metadata).items():
        found.setdefault(name.partition("\0")[0], {})[name] = value
    return {field: metadata_json(alone) for field, alone in found.items()}


def cells_of(changes: Iterable[MetadataChange]) -> dict[str, Cells]:
    """What changes of documents' metadata say of each field that they change.

    Raises:
        What `fields_of` raises.
    """
    cells: dict[str, Cells] = {}
    for change in changes:
        before, after = fields_of(change.before), fields_of(change.after)
        for field, value in (dict.fromkeys(before, ABSENT) | after).items():
            if before.get(field) != value:
                cell = cells.setdefault(field, Cells([], []))
                cell.passages += change.passages
                cell.values += [value] * len(change.passages)
    return cells


def pack(field: str, chunk: int, codes: NDArray[np.uint16]) -> tuple[bytes, int]:
    """The (n,) codes of a chunk, n at most `CHUNK`, as they are stored, and their checksum."""
    used = np.flatnonzero(codes)
    blob = codes[: used[-1] + 1 if len(used) else 0].astype("<u2").tobytes()
    return blob, _checksum(field, chunk, blob)


def unpack(field: str, chunk: int, blob: bytes, checksum: int) -> NDArray[np.uint16]:
    """(n,) uint16, n at most `CHUNK`, read-only: the codes of a stored chunk.

    Raises:
        ValueError, TypeError: they are not as they were written.
    """
    if _checksum(field, chunk, blob) != checksum or len(blob) > 2 * CHUNK:
        raise ValueError(f"the codes of field {field!r} in chunk {chunk} were altered")
    return np.frombuffer(blob, "<u2").astype(np.uint16, copy=False)


def spread(
    truth: NDArray[np.bool_], codes: NDArray[np.uint16], places: NDArray[np.int64] | slice
) -> NDArray[np.bool_]:
    """(m,) bool: for the codes at some places what `truth`, (`CODES`,) bool, says of them.

    Args:
        truth: says of each code whether it counts.
        codes: (n,).
        places: (m,) from 0 to below n, or a range of them.

    Raises:
        IndexError, ValueError: a place that does not exist.
    """
    if compiled is None:
        return truth[codes[places]]
    if isinstance(places, slice):
        some = np.ascontiguousarray(codes[places])
        mask = np.empty(len(some), np.bool_)
        compiled.spread(truth, some, mask)
    else:
        mask = np.empty(len(places), np.bool_)
        compiled.spread_at(truth, codes, places, mask)
    return mask


def pick(truth: NDArray[np.bool_], codes: NDArray[np.uint16], at_most: int) -> NDArray[np.int64]:
    """(m,) int64, ascending: the places of those of (n,) codes that `truth` says so of.

    Args:
        truth: (`CODES`,) bool.
        codes: C-contiguous.
        at_most: no less than m.

    Raises:
        ValueError: there are more.
    """
    if compiled is None:
        return np.flatnonzero(truth[codes])
    places = np.empty(at_most, np.int64)
    return places[: compiled.pick(truth, codes, places)]


def _checksum(field: str, chunk: int, blob: bytes) -> int:
    return zlib.crc32(blob, zlib.crc32(f"{field} {chunk}".encode()))
