"""Which live passages a filter allows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexes.files.faults import readable
from indexes.filters.allowed import Allowed, Bits, bits_of, complement, no_bits, packed_bits
from indexes.filters.columns import UNKEPT, field_numbers, unpacked
from indexes.filters.grammar import Where
from indexes.filters.ranks import FEW, RanksCache
from indexes.filters.sql import Condition, Leaf
from indexes.filters.tokens import Value
from indexes.segments.live import LiveSegment
from indexes.store.connection import format_version

if TYPE_CHECKING:
    from pyroaring import BitMap

_VALUES_SINCE = 3
_ROWS = (
    "SELECT f0.type, f0.value, f0.passages, f0.checksum FROM metadata_values AS f0 "
    "WHERE f0.segment = ? AND f0.field = ? AND"
)


def allowed_passages(
    connection: sqlite3.Connection,
    folder: Path,
    segments: Sequence[LiveSegment],
    where: Where,
    ranks: RanksCache,
) -> list[Allowed]:
    """For each segment: the live passages of documents that match a filter.

    Args:
        connection: inside the transaction that sees these segments.
        folder: of the index.
        segments: all live ones.
        where: the filter.
        ranks: of the commit that the transaction sees.

    Raises:
        DamagedIndexError: what is read of metadata or of segments' ids was altered.
    """
    with readable(folder):
        if format_version(connection) < _VALUES_SINCE:
            matching = _matching(connection, "documents AS d", where.sql, where.parameters)
            return [_of_ids(live, matching) for live in segments]
        found = []
        evaluation = _Evaluation(connection, ranks)
        for live in segments:
            if live.is_pending:
                waiting = (
                    "pending AS w CROSS JOIN passages AS p ON p.passage = w.passage "
                    "CROSS JOIN documents AS d ON d.doc = p.doc"
                )
                found.append(
                    _of_ids(live, _matching(connection, waiting, where.sql, where.parameters))
                )
            else:
                found.append(_live(live, evaluation.of(live, where.tree)))
        return found


def unknown_fields(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, list[str]]:
    """Those of some fields that no document has ever had.

    Returns:
        For each, the fields that exist, ascending; empty if all are known, and for an
        index of a format that does not tell.
    """
    if format_version(connection) < _VALUES_SINCE:
        return {}
    named = set(names)
    unknown = sorted(named - field_numbers(connection, named).keys())
    if not unknown:
        return {}
    known = [name for (name,) in connection.execute("SELECT name FROM fields ORDER BY name")]
    return dict.fromkeys(unknown, known)


def _matching(
    connection: sqlite3.Connection, tables: str, condition: str, parameters: Sequence[Value]
) -> NDArray[np.int64]:
    """(m,) int64, ascending: the passages of the documents in `tables` that match."""
    if " AS p " not in tables:
        tables += " JOIN passages AS p ON p.doc = d.doc"
    rows = connection.execute(
        # The filter's SQL holds no value and no name: both are bound.
        f"SELECT p.passage FROM {tables} WHERE {condition}",  # noqa: S608
        parameters,
    )
    return np.sort(np.fromiter((row[0] for row in rows), np.int64))


def _of_ids(live: LiveSegment, passages: NDArray[np.int64]) -> Allowed:
    """Those of some ascending passages that are live in a segment."""
    return _live(live, _bits(live, passages))


def _bits(live: LiveSegment, passages: NDArray[np.int64]) -> Bits:
    """The bits of those of some ascending passages that a segment has."""
    return bits_of(live.segment.positions_of(passages), len(live.segment.ids))


def _live(live: LiveSegment, bits: Bits) -> Allowed:
    """Those that are not deleted."""
    size = len(live.segment.ids)
    if live.deleted:
        bits = bits & ~packed_bits(live.deleted, size)
    return Allowed(bits, size)


class _Evaluation:
    """Evaluates the conditions of one filter, segment by segment."""

    def __init__(self, connection: sqlite3.Connection, ranks: RanksCache) -> None:
        self._connection = connection
        self._ranks = ranks
        # By condition on id or title: passages, of all segments.
        self._by_document: dict[Leaf, NDArray[np.int64]] = {}
        # By condition: whether it is true of a document without the field.
        self._of_absent: dict[Leaf, bool] = {}

    def of(self, live: LiveSegment, node: Condition) -> Bits:
        """The bits of the positions of which a condition is true; deleted ones may be among them.

        Raises:
            ValueError, TypeError: what is read was altered.
        """
        if not isinstance(node, Leaf):
            parts = [self.of(live, part) for part in node.parts]
            return reduce(np.bitwise_and if node.joint == "AND" else np.bitwise_or, parts)
        if node.field is None:
            if node not in self._by_document:
                self._by_document[node] = _matching(
                    self._connection,
                    "documents AS d",
                    node.document_sql,
                    node.document_parameters,
                )
            return _bits(live, self._by_document[node])
        return self._of_field(live, node, node.field)

    def _of_field(self, live: LiveSegment, leaf: Leaf, name: str) -> Bits:
        segment, size = live.segment.number, len(live.segment.ids)
        of_absent = self._is_true_of_absent(leaf)
        field = field_numbers(self._connection, [name]).get(name)
        if field is None:
            return complement(no_bits(size), size) if of_absent else no_bits(size)
        # Read whichever are fewer: the values that satisfy the condition, or the others.
        wanted = f"NOT {leaf.sql}" if of_absent else leaf.sql
        found = self._having(segment, field, size, wanted, leaf.parameters)
        # Values that are not kept are read from their documents.
        unkept = self._connection.execute(
            "SELECT type, value, passages, checksum FROM metadata_values "
            "WHERE segment = ? AND field = ? AND type = ?",
            (segment, field, UNKEPT),
        ).fetchone()
        if of_absent:
            found = complement(found, size)
        if unkept is not None:
            unknown = unpacked(segment, field, *unkept)
            found = (found & ~packed_bits(unknown, size)) | self._among(live, leaf, unknown)
        return found

    def _having(
        self, segment: int, field: int, size: int, wanted: str, parameters: Sequence[Any]
    ) -> Bits:
        """The bits of the positions that have a value of which a condition is true."""
        from pyroaring import BitMap

        held = self._ranks.held(segment, field)
        if held is None:
            cursor = self._connection.execute(
                # The filter's SQL holds no value and no name: both are bound.
                f"{_ROWS} f0.type <> '{UNKEPT}' AND {wanted}",
                (segment, field, *parameters),
            )
            rows = cursor.fetchmany(FEW + 1)
            if len(rows) > FEW:
                held = self._ranks.read(self._connection, segment, field, size)
                rows += cursor.fetchall() if held is None else []
        if held is not None:
            numbers = held.numbers(wanted, parameters)
            if len(numbers) > FEW:
                return held.having(numbers)
            rows = [
                self._connection.execute(
                    f"{_ROWS} f0.type = ? AND f0.value = ?", (segment, field, kind, value)
                ).fetchone()
                for kind, value, _ in held.values(wanted, parameters)
            ]
        bitmaps = [unpacked(segment, field, *row) for row in rows]
        return packed_bits(BitMap.union(*bitmaps) if bitmaps else BitMap(), size)

    def _among(self, live: LiveSegment, leaf: Leaf, positions: BitMap) -> Bits:
        """The bits of those of some positions of whose documents a condition is true."""
        some = np.asarray(positions.to_array(), np.int64)
        ids = live.segment.ids_at(some)
        true = np.zeros(len(some), np.bool_)
        for i, passage in enumerate(ids.tolist()):
            found = self._connection.execute(
                # The filter's SQL holds no value and no name: both are bound.
                f"SELECT {leaf.document_sql} FROM passages AS p "  # noqa: S608
                "JOIN documents AS d ON d.doc = p.doc WHERE p.passage = ?",
                (*leaf.document_parameters, passage),
            ).fetchone()
            # A deleted passage has no document any more.
            true[i] = found is not None and bool(found[0])
        return bits_of(some[true], len(live.segment.ids))

    def _is_true_of_absent(self, leaf: Leaf) -> bool:
        if leaf not in self._of_absent:
            rows = self._connection.execute(
                f"SELECT {leaf.sql} FROM (SELECT 'null' AS type, NULL AS value) AS f0",  # noqa: S608
                leaf.parameters,
            )
            self._of_absent[leaf] = bool(rows.fetchone()[0])
        return self._of_absent[leaf]
