"""Facets (how many documents have each value of a metadata field), and the fields of a corpus.

Documents are read only where no value is kept: those that wait in the database, and values that are
too long.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import FilterError
from indexes.files import readable
from indexes.filters.columns import (
    UNKEPT,
    Allowed,
    RanksCache,
    field_numbers,
    stored_values,
    unkept_positions,
    values_of,
)
from indexes.filters.evaluation import LISTED, WAITING, Condition, matching_passages
from indexes.filters.grammar import (
    compile_where,
    parse_field,
    type_of,
    written_field,
    written_value,
)
from indexes.folder.connection import format_version
from indexes.folder.documents import VALUES_SINCE
from indexes.folder.segment import LiveSegment, contained
from indexes.protocol import Facet, FacetValue, FieldSummary, FieldType

FieldPath = tuple[str, ...]
# The kind of a value, so that 1 and True differ, and the value.
_Key = tuple[str, Any]
# By segment and manifest, the position of the first passage of each passage's document.
Owners = dict[tuple[int, str], NDArray[np.int64] | None]


@dataclass(frozen=True, slots=True)
class Counted:
    """The documents of a segment that are counted."""

    live: LiveSegment
    documents: NDArray[np.int64]  # (m,) positions, ascending: one passage of each
    matches: NDArray[np.int64]  # those among them that share a term with the query


def counted_documents(
    connection: sqlite3.Connection,
    segments: Sequence[LiveSegment],
    allowed: Sequence[Allowed | None],
    matching: Sequence[NDArray[np.integer]] | None,
    owners: Owners,
) -> list[Counted]:
    """One passage of each allowed document, for each segment."""
    found = []
    for number, (live, some) in enumerate(zip(segments, allowed, strict=True)):
        size = len(live.segment.ids)
        key = (live.segment.number, live.segment.manifest)
        if key not in owners:
            owners[key] = _first_passages(connection, live)
        first = owners[key]
        documents = np.arange(size) if some is None else some.positions
        if first is not None:
            documents = documents[first[documents] == documents]
        matches = np.empty(0, np.int64)
        if matching is not None:
            held = np.asarray(matching[number], np.int64)
            counts = np.zeros(size, np.bool_)
            counts[held if first is None else first[held]] = True
            matches = documents[counts[documents]]
        found.append(Counted(live, documents, matches))
    return found


def counted_facet(
    name: str, values: Iterable[tuple[Any, int, int]], limit: int, *, queried: bool
) -> Facet:
    """The values of one field."""
    path = parse_field(name)
    # Of each value, documents and matches that have it alone, and in a list.
    totals: dict[_Key, NDArray[np.int64]] = {}
    for value, documents, matches in values:
        for leaf, listed in _leaves(value, path[1:]) if documents else ():
            total = totals.setdefault(leaf, np.zeros((2, 2), np.int64))
            total[int(listed)] += (documents, matches)
    strings = any(kind == "string" and total[0, 0] for (kind, _), total in totals.items())
    shown = []
    for (kind, value), total in sorted(totals.items(), key=_order)[:limit]:
        documents, matches = total.sum(axis=0).tolist()
        where = _where(path, kind, value, total, strings=strings)
        shown.append(FacetValue(value, documents, matches if queried else None, where))
    return Facet(name, tuple(shown), len(totals))


def values_in(
    connection: sqlite3.Connection, counted: Counted, name: str, cache: RanksCache
) -> Iterator[tuple[Any, int, int]]:
    """The values of a field in a segment, each with its documents and matches; some repeatedly."""
    live = counted.live
    (name, *_) = parse_field(name)
    segment, size = live.segment.number, len(live.segment.ids)
    if live.is_pending or format_version(connection) < VALUES_SINCE:
        yield from _of_documents(connection, counted, counted.documents, name)
        return
    number = field_numbers(connection, [name]).get(name)
    if number is None:
        return
    ranks = cache.of(connection, segment, number, size)
    documents = ranks.counts(counted.documents)
    matches = ranks.counts(counted.matches)
    for rank, (kind, value) in enumerate(ranks.values(), start=1):
        if documents[rank]:
            yield _value(kind, value), int(documents[rank]), int(matches[rank])
    unkept = unkept_positions(connection, segment, number)
    if unkept is not None:
        long = np.intersect1d(counted.documents, unkept)
        yield from _of_documents(connection, counted, long, name)


def _of_documents(
    connection: sqlite3.Connection, counted: Counted, positions: NDArray[np.int64], name: str
) -> Iterator[tuple[Any, int, int]]:
    """The value of a field of each of some documents."""
    segment = counted.live.segment
    matches = set(segment.ids_at(counted.matches).tolist())
    listed = json.dumps(segment.ids_at(positions).tolist())
    rows = connection.execute(f"SELECT p.passage, d.metadata FROM {LISTED}", (listed,))  # noqa: S608
    for passage, metadata in rows:
        held = json.loads(metadata)
        if name in held:
            yield held[name], 1, int(passage in matches)


def _first_passages(connection: sqlite3.Connection, live: LiveSegment) -> NDArray[np.int64] | None:
    """(n,) int64: the first position of each passage's document; None if it is always its own."""
    rows = connection.execute(
        "SELECT passage, doc FROM passages WHERE passage BETWEEN ? AND ? ORDER BY passage",
        live.segment.ends,
    )
    pairs = np.array(rows.fetchall(), np.int64).reshape(-1, 2)
    pairs = pairs[contained(pairs[:, 0], live.segment.all_ids())]
    _, first, inverse = np.unique(pairs[:, 1], return_index=True, return_inverse=True)
    if len(first) == len(pairs):
        return None
    positions = live.segment.positions_of(pairs[:, 0])
    owners = np.arange(len(live.segment.ids))
    owners[positions] = positions[first[inverse]]
    return owners


def _value(kind: str, value: Any) -> Any:
    """A value that `json_each` gave, as Python has it."""
    if kind in ("true", "false"):
        return kind == "true"
    return json.loads(value) if kind in ("array", "object") else value


def _leaves(value: Any, path: FieldPath) -> Iterator[tuple[_Key, bool]]:
    """The distinct values at the end of a path, and whether they are in a list."""
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return
        value = value[name]
    listed = isinstance(value, list | tuple)
    for key in dict.fromkeys(_key(one) for one in (value if listed else [value])):
        if key is not None:
            yield key, listed


def _key(value: Any) -> _Key | None:
    """None for what no facet counts: null, a list in a list, an object."""
    return (type_of(value), value) if isinstance(value, str | int | float) else None


def _order(item: tuple[_Key, NDArray[np.int64]]) -> tuple[Any, ...]:
    (kind, value), total = item
    documents, matches = total.sum(axis=0).tolist()
    return -matches, -documents, ("number", "string", "boolean").index(kind), value


def _where(
    path: FieldPath, kind: str, value: Any, total: NDArray[np.int64], *, strings: bool
) -> str | None:
    """The filter that selects a value's documents."""
    name = written_field(path)
    literal = written_value(value)
    alone = f"{name} = {literal}"
    listed = f"{name} contains {literal}"
    if kind == "string" and strings:
        listed = f"({listed} and not {name} like '%')"
    parts = [
        text for text, documents in zip((alone, listed), total[:, 0], strict=True) if documents
    ]
    where = parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"
    try:
        compile_where(where)
    except FilterError:
        return None
    return where


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


@dataclass
class FieldValues:
    """What has been seen of the values of one field."""

    types: set[FieldType] = field(default_factory=set)
    examples: set[_Key] = field(default_factory=set)
    # Numbers, among which are the least and the greatest one.
    ends: set[float] = field(default_factory=set)
    complete: bool = True
    distinct: int = 0

    def add(self, kind: str, value: Any, *, example: bool = True) -> None:
        """A value, its type and value as `json_each` gives them."""
        if kind == UNKEPT:
            # Too long to be kept: a string, or an array or object.
            self.complete = False
            return
        self.types.add(TYPES[kind])
        if TYPES[kind] == "number":
            self.ends.add(value)
        if kind in ("array", "object"):
            self.complete = False
            elements = json.loads(value) if kind == "array" else []
            self.examples.update(key for one in elements if (key := _key(one)) is not None)
        elif example and (key := _key(_value(kind, value))) is not None:
            self.examples.add(key)

    def summary(self, name: str) -> FieldSummary:
        """What is known of the field."""
        strings, numbers, booleans = (
            sorted(value for kind, value in self.examples if kind == wanted)
            for wanted in ("string", "number", "boolean")
        )
        return FieldSummary(
            name,
            tuple(sorted(self.types)),
            (*strings[:READ], *numbers[:READ], *booleans),
            self.complete and max(len(strings), len(numbers)) < READ,
            (min(self.ends), max(self.ends)) if self.ends else None,
            self.distinct,
        )


def field_summaries(
    connection: sqlite3.Connection, folder: Path, segments: Sequence[LiveSegment]
) -> list[FieldSummary]:
    """The fields that documents have, ascending by name, from a few rows of each."""
    # Of many values, those of documents deleted since the last merge may set the range.
    seen: dict[str, FieldValues] = {}
    with readable(folder):
        if format_version(connection) < VALUES_SINCE:
            return []
        names = dict(connection.execute("SELECT field, name FROM fields"))
        for live in segments:
            if live.is_pending:
                rows = connection.execute(f"SELECT DISTINCT d.doc, d.metadata FROM {WAITING}")  # noqa: S608
                _add_all(seen, (json.loads(metadata) for _, metadata in rows))
                continue
            for number, name in names.items():
                one = seen.setdefault(name, FieldValues())
                (count,) = connection.execute(
                    "SELECT count(*) FROM metadata_values WHERE segment = ? AND field = ?",
                    (live.segment.number, number),
                ).fetchone()
                one.distinct += count
                for kind in (*TYPES, UNKEPT):
                    _read(connection, live, number, kind, one)
    return [one.summary(name) for name, one in sorted(seen.items()) if one.types]


def summaries_of(documents: Iterable[Mapping[str, Any]]) -> list[FieldSummary]:
    """The fields of the metadata of documents, in ascending order of names."""
    seen: dict[str, FieldValues] = {}
    _add_all(seen, documents)
    return [one.summary(name) for name, one in sorted(seen.items()) if one.types]


def _add_all(seen: dict[str, FieldValues], documents: Iterable[Mapping[str, Any]]) -> None:
    for name, by_value in values_of(([], metadata) for metadata in documents).items():
        one = seen.setdefault(name, FieldValues())
        one.distinct += len(by_value)
        for value in by_value:
            one.add(*value)


def has_type(
    connection: sqlite3.Connection,
    folder: Path,
    segments: Sequence[LiveSegment],
    name: str,
    types: Collection[FieldType],
) -> bool:
    """Whether a document has a value of these types; True if too many are too long to look at."""
    kinds = json.dumps([kind for kind, type_ in TYPES.items() if type_ in types])
    condition = Condition(name, "f0.type IN (SELECT value FROM json_each(?))", (kinds,))
    with readable(folder):
        if format_version(connection) < VALUES_SINCE:
            return True
        field = field_numbers(connection, [name]).get(name)
        return field is not None and any(
            len(matching_passages(connection, WAITING, condition))
            if live.is_pending
            else _is_kept(connection, live, field, kinds)
            or _is_unkept(connection, live, field, condition)
            for live in segments
        )


def _is_kept(connection: sqlite3.Connection, live: LiveSegment, field: int, kinds: str) -> bool:
    which = "type IN (SELECT value FROM json_each(?))"
    # Of deleted documents there can be values until the segment is merged.
    return any(
        len(live.living(held))
        for *_, held in stored_values(connection, live.segment.number, field, which, kinds)
    )


def _is_unkept(
    connection: sqlite3.Connection, live: LiveSegment, field: int, condition: Condition
) -> bool:
    unkept = unkept_positions(connection, live.segment.number, field)
    if unkept is None:
        return False
    held = live.living(unkept)
    some = json.dumps(live.segment.ids_at(held[:_UNKEPT_READ]).tolist())
    found = matching_passages(connection, LISTED, condition, some)
    return len(found) > 0 or len(held) > _UNKEPT_READ


def _read(
    connection: sqlite3.Connection, live: LiveSegment, number: int, kind: str, seen: FieldValues
) -> None:
    for order, most in (("ASC", READ), ("DESC", 1)):
        which = f"type = ? ORDER BY value {order} LIMIT ?"
        rows = list(stored_values(connection, live.segment.number, number, which, kind, most))
        for _, value, held in rows:
            if len(live.living(held)):
                seen.add(kind, value, example=order == "ASC")
        if len(rows) < READ:
            # All values were read.
            return
        seen.complete = False
