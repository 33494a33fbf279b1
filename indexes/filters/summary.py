"""The metadata fields of a corpus, with their types and some of their values."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from indexes.files.faults import readable
from indexes.filters.columns import UNKEPT, field_numbers, unpacked, values_of
from indexes.segments.live import LiveSegment
from indexes.store.connection import format_version

_VALUES_SINCE = 3
FieldType = Literal["string", "number", "boolean", "array", "object"]
TYPES: dict[str, FieldType] = {
    "text": "string",
    "integer": "number",
    "real": "number",
    "true": "boolean",
    "false": "boolean",
    "array": "array",
    "object": "object",
}
# Rows that are read of each segment, field and type: those with the least values.
READ = 12
# Passages whose documents are read at most to see the type of a value that is not kept.
_UNKEPT_READ = 1000


@dataclass(frozen=True, slots=True)
class FieldSummary:
    """A top-level field of the metadata.

    Attributes:
        name: of the field.
        types: the JSON types of its values, ascending; nulls do not count.
        values: some of its strings, numbers and booleans, and of the elements of its arrays;
            strings first, each kind ascending.
        complete: whether there are no other values.
        range: the least and the greatest number; None without numbers.
        distinct: number of values; a value counts once for each segment that has it.
    """

    name: str
    types: tuple[FieldType, ...]
    values: tuple[str | float | bool, ...]
    complete: bool
    range: tuple[float, float] | None
    distinct: int


@dataclass
class FieldValues:
    """What has been seen of the values of one field."""

    types: set[FieldType] = field(default_factory=set)
    values: set[tuple[str, str | float | bool]] = field(default_factory=set)
    numbers: set[float] = field(default_factory=set)
    complete: bool = True
    distinct: int = 0

    def add(self, kind: str, value: Any, *, example: bool = True) -> None:
        """A value, its type and value as `json_each` gives them."""
        if kind == UNKEPT:
            # Too long to be kept: a string, or an array or object.
            self.complete = False
            return
        type_ = TYPES[kind]
        self.types.add(type_)
        if type_ == "number":
            self.numbers.add(value)
        if type_ in ("array", "object"):
            self.complete = False
            if type_ == "array":
                for one in json.loads(value):
                    if isinstance(one, str | int | float | bool):
                        self.values.add((type(one).__name__, one))
        elif example:
            self.values.add((kind, bool(value) if type_ == "boolean" else value))

    def summary(self, name: str) -> FieldSummary:
        """What is known of the field."""
        strings = sorted(v for _, v in self.values if isinstance(v, str))
        booleans = sorted({v for _, v in self.values if isinstance(v, bool)})
        numbers = sorted(
            {v for _, v in self.values if isinstance(v, int | float) and not isinstance(v, bool)}
        )
        found: list[str | float | bool] = [*strings[:READ], *numbers[:READ], *booleans]
        return FieldSummary(
            name,
            tuple(sorted(self.types)),
            tuple(found),
            self.complete and max(len(strings), len(numbers)) < READ,
            (min(self.numbers), max(self.numbers)) if self.numbers else None,
            self.distinct,
        )


def field_summaries(
    connection: sqlite3.Connection, folder: Path, segments: Sequence[LiveSegment]
) -> list[FieldSummary]:
    """The fields that documents have, in ascending order of names.

    It reads a few rows of each segment, field and type, whatever the number of documents. Of a
    field whose values are many, those of documents deleted since the last merge may set the range.

    Args:
        connection: inside the transaction that sees these segments.
        folder: of the index.
        segments: all live ones.

    Returns:
        Nothing for an index of a format that does not keep metadata by value.

    Raises:
        DamagedIndexError: what is read was altered.
    """
    seen: dict[str, FieldValues] = {}
    with readable(folder):
        if format_version(connection) < _VALUES_SINCE:
            return []
        names = dict(connection.execute("SELECT field, name FROM fields"))
        for live in segments:
            if live.is_pending:
                for name, by_value in _waiting(connection).items():
                    one = seen.setdefault(name, FieldValues())
                    one.distinct += len(by_value)
                    for value in by_value:
                        one.add(*value)
                continue
            for number, name in names.items():
                one = seen.setdefault(name, FieldValues())
                one.distinct += _count(connection, live, number)
                for kind in (*TYPES, UNKEPT):
                    _read(connection, live, number, kind, one)
    return [one.summary(name) for name, one in sorted(seen.items()) if one.types]


def summaries_of(documents: Iterable[Mapping[str, Any]]) -> list[FieldSummary]:
    """The fields of the metadata of documents, in ascending order of names."""
    seen: dict[str, FieldValues] = {}
    found = values_of(([number], metadata) for number, metadata in enumerate(documents))
    for name, by_value in found.items():
        one = seen.setdefault(name, FieldValues())
        one.distinct += len(by_value)
        for value in by_value:
            one.add(*value)
    return [one.summary(name) for name, one in sorted(seen.items()) if one.types]


def has_type(
    connection: sqlite3.Connection,
    folder: Path,
    segments: Sequence[LiveSegment],
    name: str,
    types: Collection[FieldType],
) -> bool:
    """Whether a document has a value of one of some JSON types in a top-level field.

    It reads a row or two of each segment. Where more than a thousand values are too long to be
    kept, and the first of them are of other types, it is True.

    Args:
        connection: inside the transaction that sees these segments.
        folder: of the index.
        segments: all live ones.
        name: of the field.
        types: some types.

    Returns:
        True for an index of a format that does not keep metadata by value.

    Raises:
        DamagedIndexError: what is read was altered.
    """
    kinds = [kind for kind, type_ in TYPES.items() if type_ in types]
    with readable(folder):
        if format_version(connection) < _VALUES_SINCE:
            return True
        field = field_numbers(connection, [name]).get(name)
        return field is not None and any(
            _waits(connection, name, kinds)
            if live.is_pending
            else _is_kept(connection, live, field, kinds)
            or _is_unkept(connection, live, field, name, kinds)
            for live in segments
        )


def _waits(connection: sqlite3.Connection, name: str, kinds: Sequence[str]) -> bool:
    (found,) = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM pending AS w CROSS JOIN passages AS p "
        "ON p.passage = w.passage CROSS JOIN documents AS d ON d.doc = p.doc "
        "CROSS JOIN json_each(d.metadata) AS f "
        "WHERE f.key = ? AND f.type IN (SELECT value FROM json_each(?)))",
        (name, json.dumps(kinds)),
    ).fetchone()
    return bool(found)


def _is_kept(
    connection: sqlite3.Connection, live: LiveSegment, field: int, kinds: Sequence[str]
) -> bool:
    rows = connection.execute(
        "SELECT type, value, passages, checksum FROM metadata_values WHERE segment = ? "
        "AND field = ? AND type IN (SELECT value FROM json_each(?))",
        (live.segment.number, field, json.dumps(kinds)),
    )
    # Of deleted documents there can be values until the segment is merged.
    return any(
        not live.deleted or live.without_deleted(unpacked(live.segment.number, field, *row))
        for row in rows
    )


def _is_unkept(
    connection: sqlite3.Connection,
    live: LiveSegment,
    field: int,
    name: str,
    kinds: Sequence[str],
) -> bool:
    row = connection.execute(
        "SELECT type, value, passages, checksum FROM metadata_values "
        "WHERE segment = ? AND field = ? AND type = ?",
        (live.segment.number, field, UNKEPT),
    ).fetchone()
    if row is None:
        return False
    held = live.without_deleted(unpacked(live.segment.number, field, *row))
    some = live.segment.ids_at(np.asarray(held[:_UNKEPT_READ].to_array(), np.int64))
    (found,) = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM json_each(?) AS w CROSS JOIN passages AS p "
        "ON p.passage = w.value CROSS JOIN documents AS d ON d.doc = p.doc "
        "CROSS JOIN json_each(d.metadata) AS f "
        "WHERE f.key = ? AND f.type IN (SELECT value FROM json_each(?)))",
        (json.dumps(some.tolist()), name, json.dumps(kinds)),
    ).fetchone()
    return bool(found) or len(held) > _UNKEPT_READ


def _count(connection: sqlite3.Connection, live: LiveSegment, number: int) -> int:
    return int(
        connection.execute(
            "SELECT count(*) FROM metadata_values WHERE segment = ? AND field = ?",
            (live.segment.number, number),
        ).fetchone()[0]
    )


def _read(
    connection: sqlite3.Connection, live: LiveSegment, number: int, kind: str, seen: FieldValues
) -> None:
    segment = live.segment.number
    for order in ("ASC", "DESC"):
        rows = connection.execute(
            "SELECT value, passages, checksum FROM metadata_values WHERE segment = ? "  # noqa: S608
            f"AND field = ? AND type = ? ORDER BY value {order} LIMIT ?",
            (segment, number, kind, READ if order == "ASC" else 1),
        ).fetchall()
        for value, passages, checksum in rows:
            held = unpacked(segment, number, kind, value, passages, checksum)
            if live.without_deleted(held):
                seen.add(kind, value, example=order == "ASC")
        if len(rows) < READ:
            # All values were read.
            return
        seen.complete = False


def _waiting(connection: sqlite3.Connection) -> dict[str, dict[Any, list[int]]]:
    rows: Iterable[tuple[int, str]] = connection.execute(
        "SELECT DISTINCT d.doc, d.metadata FROM pending AS w "
        "JOIN passages AS p ON p.passage = w.passage JOIN documents AS d ON d.doc = p.doc"
    )
    return values_of(([number], json.loads(metadata)) for number, metadata in rows)
