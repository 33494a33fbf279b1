"""Which live passages a filter allows: by columns where all its fields have one, else by rows."""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.files.atomic import readable
from indexes.files.recent import Recent
from indexes.filters.allowed import Allowed, Mask
from indexes.filters.column_rows import known_fields, read_codes
from indexes.filters.columns import CHUNK, CODES, pick, spread
from indexes.filters.grammar import Where
from indexes.filters.sql import Condition, Leaf
from indexes.segments.live import LiveSegment, contained, ends, has_no_gaps
from indexes.store.connection import format_version
from indexes.store.schema import COLUMNS_SINCE

# By columns a passage id costs much less than a document by rows; but not nothing where it is gone.
_SPARSE = 64


@dataclass(frozen=True, slots=True)
class Column:
    """A field's column.

    Attributes:
        codes: (n,) uint16 over the passage ids of the chunks that hold all live segments.
        counts: (`CODES`,) int64: how often each code comes.
        highest: the highest code that has a value; no code is above it.
    """

    codes: NDArray[np.uint16]
    counts: NDArray[np.int64]
    highest: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a filter says of places in columns.

    Attributes:
        of: for (m,) places by number, or the m of a range: whether it is true; (m,) bool.
        within: (m,) int64, the places of a range of which it is true, ascending.
        at_most: of how many places it can be true.
    """

    of: Callable[[NDArray[np.int64] | slice], Mask]
    within: Callable[[slice], NDArray[np.int64]]
    at_most: int


def matching(
    connection: sqlite3.Connection,
    folder: Path,
    segments: Sequence[LiveSegment],
    where: Where,
    columns: Recent[str, Column],
) -> list[Allowed]:
    """For each segment: which live passages' documents match.

    Args:
        connection: inside the transaction that sees these segments.
        folder: of the index.
        segments: all live ones.
        where: the filter.
        columns: those of the fields that the last filters on this commit looked at.

    Raises:
        DamagedIndexError: what is read of the columns or segments is not as it was written; of the
            segments' ids also when a passage is judged.
    """
    with readable(folder):
        found = _by_columns(connection, folder, segments, where.tree, columns)
    return _by_rows(connection, segments, where) if found is None else found


def _by_rows(
    connection: sqlite3.Connection, segments: Sequence[LiveSegment], where: Where
) -> list[Allowed]:
    """Evaluate the filter for every document."""
    rows = connection.execute(
        # The filter's SQL holds no value and no name: both are bound.
        "SELECT p.passage FROM documents AS d JOIN passages AS p ON p.doc = d.doc "  # noqa: S608
        f"WHERE {where.sql}",
        where.parameters,
    )
    found = np.sort(np.fromiter((row[0] for row in rows), np.int64))
    return [Allowed.of(contained(live.segment.all_ids(), found)) for live in segments]


def _by_columns(
    connection: sqlite3.Connection,
    folder: Path,
    segments: Sequence[LiveSegment],
    tree: Condition,
    columns: Recent[str, Column],
) -> list[Allowed] | None:
    """Evaluate the filter for every distinct value; None where it is to be done by rows."""
    fields = _fields(tree)
    if format_version(connection) < COLUMNS_SINCE or None in fields:
        return None
    kept = known_fields(connection, [field for field in fields if field is not None])
    if not all(kept.values()):
        return None
    bounds = [ends(live.segment) for live in segments if len(live.segment.ids)]
    first = min((low for low, _ in bounds), default=0) // CHUNK
    last = max((high for _, high in bounds), default=-1) // CHUNK
    passages = sum(len(live.segment.ids) for live in segments)
    if last - first > _SPARSE * (1 + passages // CHUNK):
        return None
    found = {
        field: columns.get(field, partial(_column, connection, field, first, last))
        for field in kept
    }
    places = (last - first + 1) * CHUNK

    def verdict(node: Condition) -> Verdict:
        if not isinstance(node, Leaf):
            return _joined(node.joint, [verdict(part) for part in node.parts])
        if node.field in found:
            column = found[node.field]
            return _of_column(column, _truth(connection, node, column.highest))
        # What no document ever had has one code for all.
        codes = np.zeros(places, np.uint16)
        counts = np.zeros(CODES, np.int64)
        counts[0] = places
        absent = Column(codes, counts, 0)
        return _of_column(absent, np.full(CODES, _is_true_of_absent(connection, node)))

    whole = verdict(tree)
    return [_allowed(folder, live, whole, first * CHUNK) for live in segments]


def _of_column(column: Column, truth: Mask) -> Verdict:
    """What a leaf says that is true of some codes: `truth`, (`CODES`,) bool."""
    at_most = int(column.counts[truth].sum())
    return Verdict(
        lambda places: spread(truth, column.codes, places),
        lambda some: some.start + pick(truth, column.codes[some], at_most),
        at_most,
    )


def _joined(joint: str, parts: Sequence[Verdict]) -> Verdict:
    parts = sorted(parts, key=lambda part: part.at_most)
    each = [part.at_most for part in parts]

    def of(join: Callable[[Mask, Mask], Mask], places: NDArray[np.int64] | slice) -> Mask:
        return reduce(join, (part.of(places) for part in parts))

    def within_all(some: slice) -> NDArray[np.int64]:
        places = parts[0].within(some)
        for part in parts[1:]:
            places = places[part.of(places)]
        return places

    if joint == "AND":
        return Verdict(partial(of, operator.and_), within_all, each[0])
    true_of_any = partial(of, operator.or_)
    return Verdict(
        true_of_any, lambda some: some.start + np.flatnonzero(true_of_any(some)), sum(each)
    )


def _fields(node: Condition) -> set[str | None]:
    if isinstance(node, Leaf):
        return {node.field}
    return set().union(*map(_fields, node.parts))


def _column(connection: sqlite3.Connection, field: str, first: int, last: int) -> Column:
    """A field's codes in the chunks `first` to `last`."""
    (highest,) = connection.execute(
        "SELECT max(code) FROM field_values WHERE field = ?", (field,)
    ).fetchone()
    codes = read_codes(connection, field, first, last)
    if not codes.max(initial=0) <= highest < CODES:
        raise ValueError(f"field {field!r}: codes without a value")
    return Column(codes, np.bincount(codes, minlength=CODES), highest)


def _truth(connection: sqlite3.Connection, leaf: Leaf, highest: int) -> NDArray[np.bool_]:
    """(`CODES`,) bool: for which codes of its field a leaf is true."""
    true = connection.execute(
        # The filter's SQL holds no value and no name: both are bound.
        f"SELECT f0.code FROM field_values AS f0 WHERE f0.field = ? AND {leaf.sql}",  # noqa: S608
        (leaf.field, *leaf.parameters),
    ).fetchall()
    codes = np.array([row[0] for row in true], np.int64)
    if len(codes) and not 0 <= codes.min() <= codes.max() <= highest:
        raise ValueError(f"field {leaf.field!r}: expected codes from 0 to {highest}")
    truth = np.zeros(CODES, np.bool_)
    truth[codes] = True
    return truth


def _is_true_of_absent(connection: sqlite3.Connection, leaf: Leaf) -> bool:
    """Whether a leaf is true of a document that lacks its field."""
    rows = connection.execute(
        f"SELECT {leaf.sql} FROM (SELECT 'null' AS type, NULL AS value) AS f0",  # noqa: S608
        leaf.parameters,
    )
    return bool(rows.fetchone()[0])


def _allowed(folder: Path, live: LiveSegment, verdict: Verdict, base: int) -> Allowed:
    """The live passages of a segment of which a verdict is true; its place 0 is passage `base`."""
    segment, alive = live.segment, live.alive
    first, last = ends(segment)
    without_gaps = has_no_gaps(segment)

    def judge(at: NDArray[np.integer] | None) -> Mask:
        if not without_gaps:
            ids = segment.all_ids() if at is None else segment.ids_at(at)
            with readable(folder):
                found = verdict.of(ids - base)
        elif at is None:
            found = verdict.of(slice(first - base, last - base + 1))
        else:
            found = verdict.of(at + np.int64(first - base))
        if alive is not None:
            found &= alive if at is None else alive[at]
        return found

    def find() -> NDArray[np.int64]:
        positions = verdict.within(slice(first - base, last - base + 1)) - (first - base)
        return positions if alive is None else positions[alive[positions]]

    at_most = min(len(segment.ids), verdict.at_most)
    return Allowed(len(segment.ids), judge, at_most, find if without_gaps else None)
