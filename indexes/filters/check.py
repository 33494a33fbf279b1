"""The stored values of metadata compared with the documents that they must agree with."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.filters.columns import Value, collected_values, one_zero, unpacked
from indexes.segments.segment import Segment
from indexes.store.connection import DATABASE_FILE

_UNREADABLE = (AttributeError, TypeError, ValueError)


def metadata_problems(
    connection: sqlite3.Connection, folder: Path, segments: Sequence[Segment]
) -> Iterator[str]:
    """Recompute the values of metadata from all documents.

    Args:
        connection: inside a transaction, to an index of the newest format.
        folder: of the index.
        segments: all live ones.

    Yields:
        One line for each field and segment whose values are not as they should be.
    """
    database = folder / DATABASE_FILE
    names = dict(connection.execute("SELECT field, name FROM fields"))
    numbers = {name: field for field, name in names.items()}
    known = {segment.number for segment in segments}
    for (number,) in connection.execute("SELECT DISTINCT segment FROM metadata_values").fetchall():
        if number not in known:
            yield f"{database}: values of metadata for segment {number}, which does not exist"
    for segment in segments:
        expected: dict[str, int] = {}
        try:
            for found in collected_values(connection, segment):
                for name, by_value in found.items():
                    for key, held in by_value.items():
                        total = expected.get(name, 0) + _digest(key, np.array(held, np.int64))
                        expected[name] = total % 2**64
        except _UNREADABLE:
            # The checksum of a document's row tells which.
            continue
        for name in expected.keys() - numbers.keys():
            yield f"{database}: the metadata field {name!r} is not registered"
        live = np.zeros(len(segment.ids), np.bool_)
        live[segment.positions_of(_passages(connection, segment))] = True
        stored: dict[str, int] = {}
        wrong: dict[str, str] = {}
        rows = connection.execute(
            "SELECT field, type, value, passages, checksum FROM metadata_values WHERE segment = ?",
            (segment.number,),
        )
        for field, kind, value, packed, checksum in rows:
            name = names.get(field, f"number {field}")
            try:
                bitmap = unpacked(segment.number, field, kind, value, packed, checksum)
                positions = np.asarray(bitmap.to_array(), np.int64)
                kept = positions[live[positions]]
            except (*_UNREADABLE, IndexError) as error:
                wrong.setdefault(name, f"{error}; `retriever compact` repairs it")
                continue
            if len(kept):
                total = stored.get(name, 0) + _digest(Value(kind, value), kept)
                stored[name] = total % 2**64
        for name in sorted(expected.keys() | stored.keys()):
            if name not in wrong and expected.get(name) != stored.get(name):
                wrong[name] = (
                    "its values are not those of the documents; `retriever index --recreate` "
                    "repairs it"
                )
        for name, problem in sorted(wrong.items()):
            yield f"{database}: metadata field {name!r}, segment {segment.number}: {problem}"


def _digest(key: Value, positions: NDArray[np.int64]) -> int:
    """A 64-bit number; its sum over values and passages depends on no order, only on what is there.

    So two sides of any size are compared in little memory.
    """
    named = hashlib.blake2b(repr(tuple(one_zero(key))).encode(), digest_size=8).digest()
    mixed = positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= np.uint64(int.from_bytes(named, "little"))
    # The finalizer of SplitMix64.
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))


def _passages(connection: sqlite3.Connection, segment: Segment) -> NDArray[np.int64]:
    rows = connection.execute(
        "SELECT passage FROM passages WHERE passage BETWEEN ? AND ? ORDER BY passage", segment.ends
    )
    return np.fromiter((row[0] for row in rows), np.int64)
