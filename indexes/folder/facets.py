"""Facets and summaries of fields, from the values that the folder keeps by segment.

Documents are read only where no value is kept: waiting passages, and values that are too long.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.files import readable
from indexes.filters.facets import READ, TYPES, FieldValues, add_documents, python_value
from indexes.filters.grammar import (
    parse_field,
)
from indexes.folder.connection import format_version
from indexes.folder.documents import VALUES_SINCE
from indexes.folder.filtering import LISTED, WAITING, Condition, matching_passages
from indexes.folder.metadata_values import field_numbers, stored_values, unkept_positions
from indexes.folder.segment import LiveSegment, contained
from indexes.folder.value_ranks import RanksCache
from indexes.metadata import UNKEPT, FieldType
from indexes.passage_mask import PassageMask
from indexes.protocol import FieldSummary

# By segment and manifest, the position of the first passage of each passage's document.
Owners = dict[tuple[int, str], NDArray[np.int64] | None]


@dataclass(frozen=True, slots=True)
class CountedDocuments:
    """The documents of a segment that a facet counts."""

    live: LiveSegment
    documents: NDArray[np.int64]  # (m,) positions, ascending: one passage of each
    matches: NDArray[np.int64]  # those among them that share a term with the query


def counted_documents(
    connection: sqlite3.Connection,
    segments: Sequence[LiveSegment],
    allowed: Sequence[PassageMask | None],
    matching: Sequence[NDArray[np.integer]] | None,
    owners: Owners,
) -> list[CountedDocuments]:
    """Return one passage of each allowed document, for each segment."""
    counted = []
    for number, (live, mask) in enumerate(zip(segments, allowed, strict=True)):
        size = len(live.segment.ids)
        key = (live.segment.number, live.segment.manifest)
        if key not in owners:
            owners[key] = _first_passages(connection, live)
        first = owners[key]
        documents = np.arange(size) if mask is None else mask.positions
        if first is not None:
            documents = documents[first[documents] == documents]
        matches = np.empty(0, np.int64)
        if matching is not None:
            positions = np.asarray(matching[number], np.int64)
            counts = np.zeros(size, np.bool_)
            counts[positions if first is None else first[positions]] = True
            matches = documents[counts[documents]]
        counted.append(CountedDocuments(live, documents, matches))
    return counted


def values_in(
    connection: sqlite3.Connection, counted: CountedDocuments, name: str, cache: RanksCache
) -> Iterator[tuple[Any, int, int]]:
    """Yield values of a field in a segment with their documents and matches; may repeat a value."""
    live = counted.live
    (name, *_) = parse_field(name)
    segment = live.segment.number
    size = len(live.segment.ids)
    if live.is_pending or format_version(connection) < VALUES_SINCE:
        yield from _document_values(connection, counted, counted.documents, name)
        return
    number = field_numbers(connection, [name]).get(name)
    if number is None:
        return
    ranks = cache.of(connection, segment, number, size)
    documents = ranks.counts(counted.documents)
    matches = ranks.counts(counted.matches)
    for rank, (kind, value) in enumerate(ranks.values(), start=1):
        if documents[rank]:
            yield python_value(kind, value), int(documents[rank]), int(matches[rank])
    unkept = unkept_positions(connection, segment, number)
    if unkept is not None:
        long = np.intersect1d(counted.documents, unkept)
        yield from _document_values(connection, counted, long, name)


def _document_values(
    connection: sqlite3.Connection,
    counted: CountedDocuments,
    positions: NDArray[np.int64],
    name: str,
) -> Iterator[tuple[Any, int, int]]:
    """Yield the value of a field of each document at these positions."""
    segment = counted.live.segment
    matches = set(segment.ids_at(counted.matches).tolist())
    ids_json = json.dumps(segment.ids_at(positions).tolist())
    rows = connection.execute(f"SELECT p.passage, d.metadata FROM {LISTED}", (ids_json,))  # noqa: S608
    for passage, metadata in rows:
        fields = json.loads(metadata)
        if name in fields:
            yield fields[name], 1, int(passage in matches)


def _first_passages(connection: sqlite3.Connection, live: LiveSegment) -> NDArray[np.int64] | None:
    """Return (n,) first positions of each passage's document; None if each has one passage."""
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


# Passages whose documents are read at most to see the type of a value that is not kept.
_UNKEPT_READ = 1000


def field_summaries(
    connection: sqlite3.Connection, folder: Path, segments: Sequence[LiveSegment]
) -> list[FieldSummary]:
    """Return summaries of all fields, ascending by name, from a few rows of each."""
    # Of many values, those of documents deleted since the last merge may set the range.
    values_by_name: dict[str, FieldValues] = {}
    with readable(folder):
        if format_version(connection) < VALUES_SINCE:
            return []
        names = dict(connection.execute("SELECT field, name FROM fields"))
        for live in segments:
            if live.is_pending:
                rows = connection.execute(f"SELECT DISTINCT d.doc, d.metadata FROM {WAITING}")  # noqa: S608
                add_documents(values_by_name, (json.loads(metadata) for _, metadata in rows))
                continue
            for number, name in names.items():
                values = values_by_name.setdefault(name, FieldValues())
                (count,) = connection.execute(
                    "SELECT count(*) FROM metadata_values WHERE segment = ? AND field = ?",
                    (live.segment.number, number),
                ).fetchone()
                values.distinct += count
                for kind in (*TYPES, UNKEPT):
                    _read_values(connection, live, number, kind, values)
    return [values.summary(name) for name, values in sorted(values_by_name.items()) if values.types]


def has_type(
    connection: sqlite3.Connection,
    folder: Path,
    segments: Sequence[LiveSegment],
    name: str,
    types: Collection[FieldType],
) -> bool:
    """Whether a document has a value of these types; True if too many values are not kept."""
    kinds = json.dumps([kind for kind, type_ in TYPES.items() if type_ in types])
    condition = Condition(name, "f0.type IN (SELECT value FROM json_each(?))", (kinds,))
    with readable(folder):
        if format_version(connection) < VALUES_SINCE:
            return True
        field = field_numbers(connection, [name]).get(name)
        return field is not None and any(
            len(matching_passages(connection, WAITING, condition))
            if live.is_pending
            else _has_kept_value(connection, live, field, kinds)
            or _has_unkept_value(connection, live, field, condition)
            for live in segments
        )


def _has_kept_value(
    connection: sqlite3.Connection, live: LiveSegment, field: int, kinds: str
) -> bool:
    which = "type IN (SELECT value FROM json_each(?))"
    # Of deleted documents there can be values until the segment is merged.
    return any(
        len(live.living(positions))
        for *_, positions in stored_values(connection, live.segment.number, field, which, kinds)
    )


def _has_unkept_value(
    connection: sqlite3.Connection, live: LiveSegment, field: int, condition: Condition
) -> bool:
    unkept = unkept_positions(connection, live.segment.number, field)
    if unkept is None:
        return False
    positions = live.living(unkept)
    ids_json = json.dumps(live.segment.ids_at(positions[:_UNKEPT_READ]).tolist())
    passages = matching_passages(connection, LISTED, condition, ids_json)
    return len(passages) > 0 or len(positions) > _UNKEPT_READ


def _read_values(
    connection: sqlite3.Connection, live: LiveSegment, number: int, kind: str, values: FieldValues
) -> None:
    for order, limit in (("ASC", READ), ("DESC", 1)):
        which = f"type = ? ORDER BY value {order} LIMIT ?"
        rows = list(stored_values(connection, live.segment.number, number, which, kind, limit))
        for _, value, positions in rows:
            if len(live.living(positions)):
                values.add(kind, value, example=order == "ASC")
        if len(rows) < READ:
            # All values were read.
            return
        values.complete = False
