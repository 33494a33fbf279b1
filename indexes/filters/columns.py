"""Metadata by value: which passages of a segment have which value of which field, or any of some.

The table `metadata_values` is in docs/index-format.md. A value that is too long to be kept, or
holds a NUL (at which releases of SQLite end a text differently), is of the type `UNKEPT`. Bitmaps
keep the positions of deleted passages until the segment is merged.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import weakref
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from cachetools import LRUCache, cachedmethod
from numpy.typing import NDArray

from indexes.folder.checksums import block_sums
from indexes.folder.documents import MetadataChange, metadata_json, stored_metadata

if TYPE_CHECKING:
    from pyroaring import BitMap

    from indexes.folder.segment import Segment

UNKEPT = "unkept"
# Characters of the longest value that is kept.
LONGEST = 1024
# Passages whose metadata is read together.
_BATCH = 65_536


class Value(NamedTuple):
    """A value of a metadata field, as `json_each` gives it."""

    type: str  # JSON type, or `UNKEPT`
    value: int | float | str  # the JSON of an array or object; 1 and 0 for booleans


def values_of(
    documents: Iterable[tuple[Sequence[int], Mapping[str, Any]]],
) -> dict[str, dict[Value, list[int]]]:
    """The positions that have each value of each field."""
    # By Python's type first: 1, 1.0 and True are equal.
    found: dict[str, dict[type, dict[Any, list[int]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for positions, metadata in documents:
        for name, value in metadata.items():
            kind = type(value)
            if kind is list or kind is dict or kind is tuple:
                value = metadata_json(value)  # noqa: PLW2901
            found[name][kind][value] += positions
    fields: dict[str, dict[Value, list[int]]] = {}
    for name, kinds in found.items():
        # Names end at a NUL, as they do for releases of SQLite.
        cut = "\0" in name
        field = fields.setdefault(name.partition("\0")[0], {})
        for kind, by_value in kinds.items():
            for value, positions in by_value.items():
                if value is not None:
                    key = Value(UNKEPT, "") if cut else _key(kind, value)
                    field.setdefault(key, []).extend(positions)
    return fields


def write_values(
    connection: sqlite3.Connection, segment: int, fields: Mapping[str, Mapping[Value, Any]]
) -> None:
    """Store the values of a new segment; the caller is inside a transaction."""
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
    """Follow changes of the metadata of stored documents, in the rows of fields that changed."""
    from pyroaring import BitMap

    gone: dict[tuple[str, Value], list[int]] = {}
    come: dict[tuple[str, Value], list[int]] = {}
    for change in changes:
        # One document at a time: a field that keeps its value costs nothing.
        before = values_of([(change.passages, change.before)])
        after = values_of([(change.passages, change.after)])
        for found, among, rows in ((before, after, gone), (after, before, come)):
            for name, by_value in found.items():
                for key, positions in by_value.items():
                    if key not in among.get(name, {}):
                        rows.setdefault((name, key), []).extend(positions)
    touched = gone.keys() | come.keys()
    numbers = register_fields(connection, {name for name, _ in touched})
    for name, key in touched:
        field = numbers[name]
        bitmap = BitMap()
        for *_, held in stored_values(connection, segment, field, "type = ? AND value = ?", *key):
            bitmap |= BitMap(held)
        bitmap -= BitMap(gone.get((name, key), []))
        bitmap |= BitMap(come.get((name, key), []))
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


def merge_values(
    connection: sqlite3.Connection, segment: int, sources: Mapping[int, NDArray[np.int64] | None]
) -> None:
    """Store the values of a segment that is merged from others; the caller is in a transaction."""
    rows = connection.execute(
        "SELECT field, type, value, segment, passages, checksum FROM metadata_values "
        "WHERE segment IN (SELECT value FROM json_each(?)) ORDER BY field, type, value",
        (json.dumps(list(sources)),),
    )
    # Read and written in turns: the number of rows grows with the number of values. No new row is
    # of a segment that is read.
    connection.executemany(
        "INSERT INTO metadata_values VALUES (?, ?, ?, ?, ?, ?)",
        _merged_rows(rows, segment, sources),
    )


def collected_values(
    connection: sqlite3.Connection, segment: Segment
) -> Iterator[dict[str, dict[Value, list[int]]]]:
    """The values of a segment, from the documents of its live passages, batch by batch."""
    rows = stored_metadata(connection, *segment.ends)
    while batch := list(islice(rows, _BATCH)):
        passages = np.array([passage for passage, _ in batch], np.int64)
        positions = segment.positions_of(passages).tolist()
        yield values_of(
            ([position], metadata) for position, (_, metadata) in zip(positions, batch, strict=True)
        )


def rebuild_values(connection: sqlite3.Connection, segments: Iterable[Segment]) -> None:
    """Store the values of segments again, from documents; the caller is inside a transaction."""
    for segment in segments:
        drop_values(connection, [segment.number])
        # Each batch is kept as a segment of its own, so that memory does not grow with the segment.
        batches = []
        for number, found in enumerate(collected_values(connection, segment), start=1):
            batches.append(-number)
            write_values(connection, -number, found)
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
    """Remove the values of segments; the caller is inside a transaction."""
    connection.executemany(
        "DELETE FROM metadata_values WHERE segment = ?", [(number,) for number in segments]
    )


def register_fields(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, int]:
    """The numbers of fields, which get one where they have none yet."""
    names = list(names)
    connection.executemany(
        "INSERT OR IGNORE INTO fields (name) VALUES (?)", [(name,) for name in names]
    )
    return field_numbers(connection, names)


def field_numbers(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, int]:
    """The numbers of those of the fields that any document has had."""
    rows = connection.execute(
        "SELECT name, field FROM fields WHERE name IN (SELECT value FROM json_each(?))",
        (json.dumps(list(names)),),
    )
    return dict(rows.fetchall())


def unpacked(
    segment: int, field: int, kind: str, value: Any, stored: int | bytes, checksum: int
) -> BitMap:
    """The positions that a row of `metadata_values` holds."""
    from pyroaring import BitMap

    if _checksum(segment, field, Value(kind, value), stored) != checksum:
        raise ValueError(f"the passages with the value {value!r:.60} of a field were altered")
    return BitMap([stored]) if isinstance(stored, int) else BitMap.deserialize(stored)


def stored_values(
    connection: sqlite3.Connection, segment: int, field: int, which: str, *parameters: Any
) -> Iterator[tuple[str, Any, NDArray[np.uint32]]]:
    """Type, value and ascending positions in the rows of a field that meet an SQL condition."""
    rows = connection.execute(
        "SELECT type, value, passages, checksum FROM metadata_values "  # noqa: S608
        f"WHERE segment = ? AND field = ? AND {which}",
        (segment, field, *parameters),
    )
    for kind, value, stored, checksum in rows:
        held = unpacked(segment, field, kind, value, stored, checksum)
        yield kind, value, np.asarray(held.to_array())


def unkept_positions(
    connection: sqlite3.Connection, segment: int, field: int
) -> NDArray[np.int64] | None:
    """The positions with values of a field that are not kept; None if there are none."""
    for *_, held in stored_values(connection, segment, field, "type = ?", UNKEPT):
        return held.astype(np.int64)
    return None


def one_zero(key: Value) -> Value:
    """The value, with 0.0 in place of -0.0, which rows of earlier releases may have."""
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


def _key(kind: type, value: Any) -> Value:
    if kind is bool:
        return Value("true", 1) if value else Value("false", 0)
    if kind is int or kind is float:
        return Value("integer" if kind is int else "real", value)
    # metadata_json writes a NUL inside of an array or object as an escape.
    if len(value) > LONGEST or "\0" in value or (kind is not str and "\\u0000" in value):
        return Value(UNKEPT, "")
    return Value("text" if kind is str else "object" if kind is dict else "array", value)


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
    """A 64-bit number, as SQLite keeps it: with a sign."""
    total = 0
    if not isinstance(stored, int):
        total = int(block_sums(np.frombuffer(stored, np.uint8)).sum(dtype=np.uint64))
        stored = -1
    named = zlib.crc32(repr((segment, field, *key, stored)).encode())
    mixed = (named * 0x9E3779B97F4A7C15 + total) % 2**64
    return mixed - 2**64 if mixed >= 2**63 else mixed


class Allowed:
    """Those of the n passages of a segment where an (n,) mask is true."""

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        packed = np.packbits(mask, bitorder="little")
        # In whole words of 64 bits.
        self.bits = np.zeros(8 * -(-len(mask) // 64), np.uint8)
        self.bits[: len(packed)] = packed
        self._size = len(mask)
        self.count = int(np.bitwise_count(self.bits.view(np.uint64)).sum())

    def __len__(self) -> int:
        """How many passages the segment has."""
        return self._size

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """(count,) int64, ascending."""
        filled = np.flatnonzero(self.bits)
        places = np.flatnonzero(np.unpackbits(self.bits[filled], bitorder="little"))
        return np.asarray(8 * filled[places >> 3] + (places & 7), np.int64)

    def at(self, positions: NDArray[np.integer]) -> NDArray[np.bool_]:
        """(m,) bool: which of (m,) positions below n are allowed."""
        shifts = (positions & 7).astype(np.uint8)
        return np.asarray((self.bits[positions >> 3] >> shifts) & 1, np.bool_)


_CACHE_BYTES = 128 * 2**20
# What a value takes in the table of values, about.
_VALUE_BYTES = 100


class Ranks:
    """Which of its field's values each passage has, as numbers: read faster than many bitmaps."""

    def __init__(self, connection: sqlite3.Connection, segment: int, field: int, size: int) -> None:
        (self._count,) = connection.execute(
            "SELECT count(*) FROM metadata_values WHERE segment = ? AND field = ? AND type <> ?",
            (segment, field, UNKEPT),
        ).fetchone()
        self._ranks = np.zeros(size, np.min_scalar_type(int(self._count)))
        self._values = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._values.close)
        self._lock = threading.Lock()
        self._values.execute("CREATE TABLE f0 (type TEXT, value, number INTEGER)")
        held = stored_values(connection, segment, field, "type <> ? ORDER BY type, value", UNKEPT)
        for number, (kind, value, positions) in enumerate(held, start=1):
            self._values.execute("INSERT INTO f0 VALUES (?, ?, ?)", (kind, value, number))
            self._ranks[positions] = number
        self._values.commit()
        self.nbytes = int(self._ranks.nbytes) + _VALUE_BYTES * int(self._count)

    def values(self) -> list[tuple[str, Any]]:
        """(type, value) of all values, by number from 1 on."""
        return self._select("type, value", "1 ORDER BY number")

    def having(self, condition: str, parameters: Sequence[Any]) -> NDArray[np.bool_]:
        """(n,) bool: the passages that have a value that meets a condition over `f0`."""
        ((count, first, last),) = self._select(
            "count(*), min(number), max(number)", condition, parameters
        )
        if not count:
            return np.zeros(len(self._ranks), np.bool_)
        # A range of values is not read one by one.
        if last - first + 1 == count:
            return np.asarray((self._ranks >= first) & (self._ranks <= last))
        wanted = np.zeros(self._count + 1, np.bool_)
        wanted[[number for (number,) in self._select("number", condition, parameters)]] = True
        return np.asarray(wanted[self._ranks])

    def counts(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """(values + 1,) int64: how many positions have each value, by number; 0 is for no value."""
        return np.bincount(self._ranks[positions], minlength=self._count + 1)

    def _select(self, columns: str, condition: str, parameters: Sequence[Any] = ()) -> list[Any]:
        # The filter's SQL holds no value and no name: both are bound.
        statement = f"SELECT {columns} FROM f0 WHERE {condition}"  # noqa: S608
        with self._lock:
            return self._values.execute(statement, parameters).fetchall()


class RanksCache:
    """The ranks that were read last, of one commit; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: LRUCache[tuple[int, int], Ranks] = LRUCache(
            _CACHE_BYTES, getsizeof=lambda ranks: ranks.nbytes
        )

    @cachedmethod(
        attrgetter("_held"),
        key=lambda _, connection, segment, field, size: (segment, field),
        lock=attrgetter("_lock"),
    )
    def of(self, connection: sqlite3.Connection, segment: int, field: int, size: int) -> Ranks:
        """The ranks of a field; of a segment that is too large to be remembered, read each time."""
        return Ranks(connection, segment, field, size)
