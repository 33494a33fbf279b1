"""Passages of a segment by value of a metadata field: the table `metadata_values`.

The format is in docs/reference/index-format.md. Bitmaps keep the positions of deleted passages
until the segment is merged.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import block_sums
from indexes.folder.documents import MetadataChange, stored_metadata

if TYPE_CHECKING:
    from pyroaring import BitMap

    from indexes.folder.segment import Segment
from indexes.metadata import UNKEPT, Value, values_of

# Passages whose metadata is read together.
_BATCH = 65_536


def write_values(
    connection: sqlite3.Connection, segment: int, fields: Mapping[str, Mapping[Value, Any]]
) -> None:
    """Store the values of a new segment, inside a transaction of the caller."""
    numbers = register_fields(connection, fields)
    connection.executemany(
        "INSERT INTO metadata_values VALUES (?, ?, ?, ?, ?, ?)",
        (
            _row(segment, numbers[name], key, positions)
            for name, by_value in fields.items()
            # In the order of the table's key, in which SQLite appends fastest.
            for key, positions in sorted(by_value.items())
        ),
    )


def change_values(
    connection: sqlite3.Connection, segment: int, changes: Sequence[MetadataChange]
) -> None:
    """Store changes of metadata, whose passages are positions, in the values of a segment."""
    from pyroaring import BitMap

    removed: dict[tuple[str, Value], list[int]] = {}
    added: dict[tuple[str, Value], list[int]] = {}
    for change in changes:
        # One document at a time: a field that keeps its value costs nothing.
        before = values_of([(change.passages, change.before)])
        after = values_of([(change.passages, change.after)])
        for fields, other, rows in ((before, after, removed), (after, before, added)):
            for name, by_value in fields.items():
                for key, positions in by_value.items():
                    if key not in other.get(name, {}):
                        rows.setdefault((name, key), []).extend(positions)
    changed = removed.keys() | added.keys()
    numbers = register_fields(connection, {name for name, _ in changed})
    for name, key in changed:
        field = numbers[name]
        bitmap = BitMap()
        for *_, stored in stored_values(connection, segment, field, "type = ? AND value = ?", *key):
            bitmap |= BitMap(stored)
        bitmap -= BitMap(removed.get((name, key), []))
        bitmap |= BitMap(added.get((name, key), []))
        connection.execute(
            "DELETE FROM metadata_values "
            "WHERE segment = ? AND field = ? AND type = ? AND value = ?",
            (segment, field, *key),
        )
        if bitmap:
            connection.execute(
                "INSERT INTO metadata_values VALUES (?, ?, ?, ?, ?, ?)",
                _row(segment, field, key, bitmap),
            )


def write_stored_values(
    connection: sqlite3.Connection, segment: int, ids: NDArray[np.int64]
) -> None:
    """Store the values of a new segment from the documents of its (n,) ascending passage ids."""
    stored = stored_metadata(connection, int(ids[0]), int(ids[-1]))
    positions = {passage: position for position, passage in enumerate(ids.tolist())}
    fields = values_of(([positions[passage]], metadata) for passage, metadata in stored)
    write_values(connection, segment, fields)


def apply_changes(
    connection: sqlite3.Connection, segments: Iterable[Segment], changes: Sequence[MetadataChange]
) -> None:
    """Store changes of metadata, whose passages are ids, in the values of all segments."""
    register_fields(connection, {name for change in changes for name in change.after})
    for segment in segments:
        changes_here = []
        for change in changes:
            positions = segment.positions_of(np.array(change.passages, np.int64)).tolist()
            if positions:
                changes_here.append(change._replace(passages=positions))
        if changes_here:
            change_values(connection, segment.number, changes_here)


def merge_values(
    connection: sqlite3.Connection, segment: int, sources: Mapping[int, NDArray[np.int64] | None]
) -> None:
    """Store the values of a merged segment, inside a transaction of the caller."""
    rows = connection.execute(
        "SELECT field, type, value, segment, passages, checksum FROM metadata_values "
        "WHERE segment IN (SELECT value FROM json_each(?)) ORDER BY field, type, value",
        (json.dumps(list(sources)),),
    )
    # Read and written in turns, since the number of rows grows with the number of values. No new
    # row belongs to a segment that is read.
    connection.executemany(
        "INSERT INTO metadata_values VALUES (?, ?, ?, ?, ?, ?)",
        _merged_rows(rows, segment, sources),
    )


def collected_values(
    connection: sqlite3.Connection, segment: Segment
) -> Iterator[dict[str, dict[Value, list[int]]]]:
    """Yield the values of a segment from the documents of its live passages, in batches."""
    rows = stored_metadata(connection, *segment.ends)
    while batch := list(islice(rows, _BATCH)):
        passages = np.array([passage for passage, _ in batch], np.int64)
        positions = segment.positions_of(passages).tolist()
        yield values_of(
            ([position], metadata) for position, (_, metadata) in zip(positions, batch, strict=True)
        )


def rebuild_values(connection: sqlite3.Connection, segments: Iterable[Segment]) -> None:
    """Store the values of segments again from documents, inside a transaction of the caller."""
    for segment in segments:
        drop_values(connection, [segment.number])
        # Each batch is stored as a segment of its own, which bounds the memory.
        batches = []
        for number, fields in enumerate(collected_values(connection, segment), start=1):
            batches.append(-number)
            write_values(connection, -number, fields)
        merge_values(connection, segment.number, dict.fromkeys(batches))
        drop_values(connection, batches)


def are_sound(connection: sqlite3.Connection) -> bool:
    """Whether every row of `metadata_values` is unaltered."""
    rows = connection.execute(
        "SELECT segment, field, type, value, passages, checksum FROM metadata_values"
    )
    try:
        return all(
            _checksum(segment, field, Value(kind, value), stored) == checksum
            for segment, field, kind, value, stored, checksum in rows
        )
    except (TypeError, ValueError):
        return False


def drop_values(connection: sqlite3.Connection, segments: Iterable[int]) -> None:
    """Remove the values of segments, inside a transaction of the caller."""
    connection.executemany(
        "DELETE FROM metadata_values WHERE segment = ?", [(number,) for number in segments]
    )


def register_fields(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, int]:
    """Return the numbers of fields; a new field gets a number."""
    names = list(names)
    connection.executemany(
        "INSERT OR IGNORE INTO fields (name) VALUES (?)", [(name,) for name in names]
    )
    return field_numbers(connection, names)


def field_numbers(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, int]:
    """Return the numbers of fields, without fields that no document has had."""
    rows = connection.execute(
        "SELECT name, field FROM fields WHERE name IN (SELECT value FROM json_each(?))",
        (json.dumps(list(names)),),
    )
    return dict(rows.fetchall())


def unpacked(
    segment: int, field: int, kind: str, value: Any, stored: int | bytes, checksum: int
) -> BitMap:
    """Return the positions in a row of `metadata_values`.

    Raises:
        ValueError: the row was altered.
    """
    from pyroaring import BitMap

    if _checksum(segment, field, Value(kind, value), stored) != checksum:
        raise ValueError(f"the passages with the value {value!r:.60} of a field were altered")
    return BitMap([stored]) if isinstance(stored, int) else BitMap.deserialize(stored)


def stored_values(
    connection: sqlite3.Connection, segment: int, field: int, which: str, *parameters: Any
) -> Iterator[tuple[str, Any, NDArray[np.uint32]]]:
    """Yield type, value and ascending positions of a field's rows that meet an SQL condition."""
    rows = connection.execute(
        "SELECT type, value, passages, checksum FROM metadata_values "  # noqa: S608
        f"WHERE segment = ? AND field = ? AND {which}",
        (segment, field, *parameters),
    )
    for kind, value, stored, checksum in rows:
        bitmap = unpacked(segment, field, kind, value, stored, checksum)
        yield kind, value, np.asarray(bitmap.to_array())


def unkept_positions(
    connection: sqlite3.Connection, segment: int, field: int
) -> NDArray[np.int64] | None:
    """Return the positions whose value of a field is not stored; None if there are none."""
    for *_, positions in stored_values(connection, segment, field, "type = ?", UNKEPT):
        return positions.astype(np.int64)
    return None


def one_zero(key: Value) -> Value:
    """Return the value with 0.0 in place of -0.0, which rows of earlier releases may have."""
    return Value(key.type, 0.0) if key.type == "real" and key.value == 0 else key


def _merged_rows(
    rows: Iterable[tuple[Any, ...]], segment: int, sources: Mapping[int, NDArray[np.int64] | None]
) -> Iterator[tuple[Any, ...]]:
    from pyroaring import BitMap

    for (field, *key), group in groupby(rows, key=lambda row: row[:3]):
        merged = BitMap()
        for _, kind, value, number, stored, checksum in group:
            old = unpacked(number, field, kind, value, stored, checksum)
            source = sources[number]
            if source is not None:
                new = source[np.asarray(old.to_array(), np.int64)]
                old = BitMap(new[new >= 0].astype(np.uint32))
            merged |= old
        if merged:
            yield _row(segment, field, Value(*key), merged)


def _row(
    segment: int, field: int, key: Value, positions: Sequence[int] | BitMap
) -> tuple[Any, ...]:
    key = one_zero(key)
    stored: int | bytes
    if len(positions) == 1:
        stored = int(positions[0])
    else:
        from pyroaring import BitMap

        bitmap = BitMap(positions)
        bitmap.run_optimize()
        stored = bitmap.serialize()
    return segment, field, *key, stored, _checksum(segment, field, key, stored)


def _checksum(segment: int, field: int, key: Value, stored: int | bytes) -> int:
    """Return a signed 64-bit number, as SQLite stores it."""
    total = 0
    if not isinstance(stored, int):
        total = int(block_sums(np.frombuffer(stored, np.uint8)).sum(dtype=np.uint64))
        stored = -1
    named = zlib.crc32(repr((segment, field, *key, stored)).encode())
    mixed = (named * 0x9E3779B97F4A7C15 + total) % 2**64
    return mixed - 2**64 if mixed >= 2**63 else mixed
