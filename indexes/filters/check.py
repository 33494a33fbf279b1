"""The stored values of metadata compared with the documents that they are to agree with."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.filters.columns import Value, collected_values, unpacked
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
        try:
            expected = collected_values(connection, segment)
        except _UNREADABLE:
            # The checksum of a document's row tells which.
            continue
        for name in expected.keys() - numbers.keys():
            yield f"{database}: the metadata field {name!r} is not registered"
        stored: dict[str, set[Value]] = {}
        rows = connection.execute(
            "SELECT field, type, value, passages, checksum FROM metadata_values WHERE segment = ?",
            (segment.number,),
        )
        live = np.zeros(len(segment.ids), np.bool_)
        live[segment.positions_of(_passages(connection, segment))] = True
        wrong: dict[str, str] = {}
        for field, kind, value, packed, checksum in rows:
            name = names.get(field, f"number {field}")
            try:
                found = unpacked(segment.number, field, kind, value, packed, checksum)
                positions = np.asarray(found.to_array(), np.int64)
                kept = positions[live[positions]].tolist()
            except (*_UNREADABLE, IndexError) as error:
                wrong.setdefault(name, str(error))
                continue
            key = Value(kind, value)
            wanted = expected.get(name, {}).get(key, ())
            if kept and kept != list(wanted):
                wrong.setdefault(name, f"other passages have {value!r:.60} than documents say")
            if kept:
                stored.setdefault(name, set()).add(key)
        for name, by_value in expected.items():
            if name not in wrong and by_value.keys() - stored.get(name, set()):
                wrong[name] = "a value that documents have is missing"
        for name, problem in sorted(wrong.items()):
            yield (
                f"{database}: metadata field {name!r}, segment {segment.number}: {problem}; "
                "`retriever compact` mends it"
            )


def _passages(connection: sqlite3.Connection, segment: Segment) -> NDArray[np.int64]:
    rows = connection.execute(
        "SELECT passage FROM passages WHERE passage BETWEEN ? AND ? ORDER BY passage", segment.ends
    )
    return np.fromiter((row[0] for row in rows), np.int64)
