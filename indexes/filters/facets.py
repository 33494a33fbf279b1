"""Facets: how many documents have each value of a metadata field.

Counts come from the values that the index keeps by segment (`indexes.filters.columns`), decoded to
a number for each passage (`indexes.filters.ranks`). Documents are read only where no such value is
kept: those that wait in the database, and values that are too long.

A value in a list counts like one that stands alone, once for each document. Objects are looked
into along the path of the field.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import FilterError
from indexes.files.faults import readable
from indexes.filters.allowed import Allowed
from indexes.filters.columns import UNKEPT, field_numbers, unpacked
from indexes.filters.grammar import compile_where, parse_field, written_field, written_value
from indexes.filters.ranks import Ranks, RanksCache
from indexes.segments.live import LiveSegment
from indexes.segments.segment import contained
from indexes.store.connection import format_version

_VALUES_SINCE = 3

FieldPath = tuple[str, ...]
# The kind of a value, so that 1 and True differ, and the value.
_Key = tuple[str, Any]
# By segment and manifest, the position of the first passage of each passage's document.
Owners = dict[tuple[int, str], NDArray[np.int64] | None]


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value of a metadata field.

    Attributes:
        value: a string, number or boolean; 1 and 1.0 are one value.
        documents: number of documents that have it and pass the filter.
        matches: number of those that also share a term with the query; None without a query.
        where: a filter that these documents pass and no others; None if the value cannot stand
            in a filter.
    """

    value: str | float | bool
    documents: int
    matches: int | None
    where: str | None


@dataclass(frozen=True, slots=True)
class Facet:
    """The values of a metadata field.

    Attributes:
        field: as it was asked for.
        values: the most frequent ones: by `matches`, then by `documents`, descending, then numbers,
            strings and booleans, each ascending.
        distinct: number of distinct values, those included that `values` leaves out.
    """

    field: str
    values: tuple[FacetValue, ...]
    distinct: int


@dataclass(frozen=True, slots=True)
class Facets:
    """The values of some metadata fields over the documents that pass a filter.

    Attributes:
        documents: number of documents that pass the filter: what the modes ``dense`` and
            ``hybrid`` can rank.
        matches: number of those that share a term with the query: what the mode ``bm25`` can
            rank; None without a query.
        fields: by the names that were asked for, in that order.
    """

    documents: int
    matches: int | None
    fields: dict[str, Facet]


@dataclass(slots=True)
class _Counted:
    """Documents and matches that have a value alone, and in a list."""

    alone: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, np.int64))
    listed: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, np.int64))


@dataclass(frozen=True, slots=True)
class Counted:
    """The documents of a segment that are counted.

    Attributes:
        live: the segment.
        documents: (m,) int64 positions, ascending: one passage of each document.
        matches: the same of the documents that share a term with the query, among `documents`.
    """

    live: LiveSegment
    documents: NDArray[np.int64]
    matches: NDArray[np.int64]


def counted_documents(
    connection: sqlite3.Connection,
    segments: Sequence[LiveSegment],
    allowed: Sequence[Allowed | None],
    matching: Sequence[NDArray[np.integer]] | None,
    owners: Owners,
) -> list[Counted]:
    """One passage of each allowed document, for each segment.

    Args:
        connection: inside the transaction that sees these segments.
        segments: all live ones; the passages of a document are in one segment.
        allowed: for each segment the passages that count, with all passages of their documents;
            None for all.
        matching: for each segment, positions of the passages that hold a query term; None if
            there is no query.
        owners: remembers which passages belong together; empty at first.
    """
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


def facet(
    connection: sqlite3.Connection,
    folder: Path,
    counted: Sequence[Counted],
    name: str,
    limit: int,
    ranks: RanksCache,
    *,
    queried: bool,
) -> Facet:
    """The values of one field.

    Args:
        connection: inside the transaction that sees the segments.
        folder: of the index.
        counted: as `counted_documents` gives them.
        name: of the field, as a filter writes it.
        limit: maximum number of values.
        ranks: of the commit that the transaction sees.
        queried: whether there is a query.

    Raises:
        FilterError: `name` is no metadata field.
        DamagedIndexError: what is read of metadata was altered.
    """
    path = parse_field(name)
    with readable(folder):
        values = [found for one in counted for found in _values(connection, one, path[0], ranks)]
    return counted_facet(name, values, limit, queried=queried)


def counted_facet(
    name: str, values: Iterable[tuple[Any, int, int]], limit: int, *, queried: bool
) -> Facet:
    """The values of one field.

    Args:
        name: of the field, as a filter writes it.
        values: of its top-level field, some repeatedly: value, documents and matches.
        limit: maximum number of values.
        queried: whether there is a query.

    Raises:
        FilterError: `name` is no metadata field.
    """
    path = parse_field(name)
    totals: dict[_Key, _Counted] = {}
    for value, documents, matches in values:
        for leaf, listed in _leaves(value, path[1:]) if documents else ():
            total = totals.setdefault(leaf, _Counted())
            amounts = total.listed if listed else total.alone
            amounts += (documents, matches)
    strings = any(kind == "string" and total.alone[0] for (kind, _), total in totals.items())
    ordered = sorted(totals.items(), key=_order)[:limit]
    shown = []
    for (kind, value), total in ordered:
        documents, matches = map(int, total.alone + total.listed)
        where = _where(path, kind, value, total, strings=strings)
        shown.append(FacetValue(value, documents, matches if queried else None, where))
    return Facet(name, tuple(shown), len(totals))


def _values(
    connection: sqlite3.Connection, counted: Counted, name: str, cache: RanksCache
) -> Iterator[tuple[Any, int, int]]:
    """The values of a field in a segment, each with its documents and matches; some repeatedly."""
    live = counted.live
    segment, size = live.segment.number, len(live.segment.ids)
    if live.is_pending or format_version(connection) < _VALUES_SINCE:
        yield from _of_documents(connection, counted, counted.documents, name)
        return
    number = field_numbers(connection, [name]).get(name)
    if number is None:
        return
    ranks = cache.held(segment, number) or cache.read(connection, segment, number, size)
    # A segment that is too large to be remembered is decoded each time.
    ranks = ranks or Ranks.of(connection, segment, number, size)
    documents, matches = ranks.counts(counted.documents), ranks.counts(counted.matches)
    for kind, value, rank in ranks.values("1", ()):
        if documents[rank]:
            yield _value(kind, value), int(documents[rank]), int(matches[rank])
    unkept = connection.execute(
        "SELECT type, value, passages, checksum FROM metadata_values "
        "WHERE segment = ? AND field = ? AND type = ?",
        (segment, number, UNKEPT),
    ).fetchone()
    if unkept is not None:
        long = np.asarray(unpacked(segment, number, *unkept).to_array(), np.int64)
        yield from _of_documents(connection, counted, np.intersect1d(counted.documents, long), name)


def _of_documents(
    connection: sqlite3.Connection, counted: Counted, positions: NDArray[np.int64], name: str
) -> Iterator[tuple[Any, int, int]]:
    """The value of a field of each of some documents."""
    matches = np.isin(positions, counted.matches).tolist()
    for passage, match in zip(
        counted.live.segment.ids_at(positions).tolist(), matches, strict=True
    ):
        (metadata,) = connection.execute(
            "SELECT d.metadata FROM passages AS p JOIN documents AS d ON d.doc = p.doc "
            "WHERE p.passage = ?",
            (passage,),
        ).fetchone()
        held = json.loads(metadata)
        if name in held:
            yield held[name], 1, int(match)


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
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, int | float):
        return "number", value
    return ("string", value) if isinstance(value, str) else None


def _order(item: tuple[_Key, _Counted]) -> tuple[Any, ...]:
    (kind, value), total = item
    documents, matches = (total.alone + total.listed).tolist()
    return -matches, -documents, ("number", "string", "boolean").index(kind), value


def _where(path: FieldPath, kind: str, value: Any, total: _Counted, *, strings: bool) -> str | None:
    """The filter that selects a value's documents.

    Args:
        path: of the field.
        kind: of the value.
        value: it.
        total: how it occurs.
        strings: whether the field is a string in some documents; `contains` finds parts of those.
    """
    name, literal = written_field(path), written_value(value)
    alone, listed = f"{name} = {literal}", f"{name} contains {literal}"
    if kind == "string" and strings:
        listed = f"({listed} and not {name} like '%')"
    parts = [text for text, amounts in ((alone, total.alone), (listed, total.listed)) if amounts[0]]
    where = parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"
    try:
        compile_where(where)
    except FilterError:
        return None
    return where
