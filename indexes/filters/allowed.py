"""Which live passages of a segment a filter allows, as bits.

A field with many values is decoded to a number for each passage, once per commit and up to
`_CACHE_BYTES`: uniting hundreds of bitmaps takes longer than reading these numbers.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Iterable, Sequence
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from indexes.files import readable
from indexes.filters.columns import UNKEPT, VALUES_SINCE, field_numbers, unkept_positions, unpacked
from indexes.folder.connection import format_version

if TYPE_CHECKING:
    from pyroaring import BitMap

    from indexes.filters.grammar import Value
    from indexes.filters.sql import Condition, Leaf, Where
    from indexes.folder.segment import LiveSegment

# Positions whose bits are set in one step.
CONTAINER = 65_536
# Fewer positions than this share are set one by one.
_FEW_SHARE = 1 / 512

Bits = NDArray[np.uint8]


class Allowed:
    """Some of the n passages of a segment."""

    def __init__(self, bits: Bits, size: int) -> None:
        self.bits = bits
        self._size = size
        self.count = int(np.bitwise_count(bits.view(np.uint64)).sum())

    @classmethod
    def of(cls, mask: NDArray[np.bool_]) -> Allowed:
        """Those where an (n,) mask is true."""
        bits = no_bits(len(mask))
        put_mask(bits, 0, mask)
        return cls(bits, len(mask))

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


def no_bits(size: int) -> Bits:
    """Zeros for n positions, the lowest of a byte first, in whole words of 64 bits."""
    return np.zeros(8 * -(-size // 64), np.uint8)


def put_mask(bits: Bits, start: int, mask: NDArray[np.bool_]) -> None:
    """Replace the bits from a position on, a multiple of 8, by a mask."""
    packed = np.packbits(mask, bitorder="little")
    bits[start >> 3 : (start >> 3) + len(packed)] = packed


def bits_between(numbers: NDArray[np.unsignedinteger], first: int, last: int) -> Bits:
    """The bits of the positions at which a number is from `first` to `last`."""
    bits = no_bits(len(numbers))
    # In parts that stay in the processor's cache.
    for start in range(0, len(numbers), CONTAINER):
        # What is below `first` wraps around to large numbers.
        above = numbers[start : start + CONTAINER] - numbers.dtype.type(first)
        put_mask(bits, start, above <= last - first)
    return bits


def bits_of(positions: NDArray[np.integer], size: int) -> Bits:
    """The bits of (m,) positions below n."""
    bits = no_bits(size)
    if len(positions) < size * _FEW_SHARE:
        places = np.asarray(positions, np.int64)
        np.bitwise_or.at(bits, places >> 3, np.left_shift(1, places & 7).astype(np.uint8))
    else:
        mask = np.zeros(size, np.bool_)
        mask[positions] = True
        put_mask(bits, 0, mask)
    return bits


def complement(bits: Bits, size: int) -> Bits:
    """The bits of all other positions below n."""
    others = ~bits
    others[-(-size // 8) :] = 0
    if size % 8:
        others[size // 8] &= (1 << size % 8) - 1
    return others


def packed_bits(bitmap: BitMap, size: int) -> Bits:
    """The bits of a Roaring bitmap of values below `size`."""
    return bits_of(np.asarray(bitmap.to_array(), np.int64), size)


# Values whose bitmaps are united instead.
FEW = 32
_CACHE_BYTES = 128 * 2**20
# What a value takes in the table of values, about.
_VALUE_BYTES = 100


class Ranks:
    """Which of its field's values each passage of a segment has."""

    def __init__(self, values: sqlite3.Connection, ranks: NDArray[Any]) -> None:
        self._values = values
        weakref.finalize(self, values.close)
        self._ranks = ranks
        (self._count,) = values.execute("SELECT count(*) FROM f0").fetchone()
        self._lock = threading.Lock()
        self.nbytes = int(ranks.nbytes) + _VALUE_BYTES * int(self._count)

    @classmethod
    def of(cls, connection: sqlite3.Connection, segment: int, field: int, size: int) -> Ranks:
        """Decode the bitmaps of a field."""
        (count,) = connection.execute(
            "SELECT count(*) FROM metadata_values WHERE segment = ? AND field = ?", (segment, field)
        ).fetchone()
        ranks = np.zeros(size, np.min_scalar_type(int(count)))
        values = sqlite3.connect(":memory:", check_same_thread=False)
        values.execute("CREATE TABLE f0 (type TEXT, value, number INTEGER)")
        rows = connection.execute(
            "SELECT type, value, passages, checksum FROM metadata_values "
            "WHERE segment = ? AND field = ? AND type <> ? ORDER BY type, value",
            (segment, field, UNKEPT),
        )
        for number, (kind, value, stored, checksum) in enumerate(rows, start=1):
            values.execute("INSERT INTO f0 VALUES (?, ?, ?)", (kind, value, number))
            ranks[unpacked(segment, field, kind, value, stored, checksum).to_array()] = number
        values.commit()
        return cls(values, ranks)

    def numbers(self, condition: str, parameters: Sequence[Any]) -> NDArray[np.int64]:
        """(m,) int64, ascending: the numbers of the values that meet a condition."""
        count, first, last = self._select(
            "count(*), min(number), max(number)", condition, parameters
        )[0]
        if not count:
            return np.empty(0, np.int64)
        # A range of values is not read one by one.
        if last - first + 1 == count:
            return np.arange(first, last + 1)
        rows = self._select("number", condition, parameters)
        return np.sort(np.fromiter((number for (number,) in rows), np.int64, len(rows)))

    def values(self, condition: str, parameters: Sequence[Any]) -> list[tuple[str, Any, int]]:
        """The values that meet a condition: type, value and number, by number."""
        return sorted(
            self._select("type, value, number", condition, parameters), key=lambda row: row[2]
        )

    def _select(self, columns: str, condition: str, parameters: Sequence[Any]) -> list[Any]:
        with self._lock:
            return self._values.execute(
                # The filter's SQL holds no value and no name: both are bound.
                f"SELECT {columns} FROM f0 WHERE {condition}",  # noqa: S608
                parameters,
            ).fetchall()

    def counts(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """(values + 1,) int64: how many positions have each value, by number; 0 is for no value."""
        return np.bincount(self._ranks[positions], minlength=self._count + 1)

    def having(self, numbers: NDArray[np.int64]) -> Bits:
        """The passages whose value has one of some numbers."""
        if not len(numbers):
            return no_bits(len(self._ranks))
        first, last = int(numbers[0]), int(numbers[-1])
        if last - first + 1 == len(numbers):
            return bits_between(self._ranks, first, last)
        bits = no_bits(len(self._ranks))
        wanted = np.zeros(self._count + 1, np.bool_)
        wanted[numbers] = True
        # In parts that stay in the processor's cache.
        for start in range(0, len(self._ranks), CONTAINER):
            put_mask(bits, start, wanted[self._ranks[start : start + CONTAINER]])
        return bits


class RanksCache:
    """The ranks that were read last, of one commit; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: LRUCache[tuple[int, int], Ranks] = LRUCache(
            _CACHE_BYTES, getsizeof=lambda ranks: ranks.nbytes
        )

    def held(self, segment: int, field: int) -> Ranks | None:
        """The ranks of a field, if they were read."""
        with self._lock:
            return self._held.get((segment, field))

    def read(
        self, connection: sqlite3.Connection, segment: int, field: int, size: int
    ) -> Ranks | None:
        """Read the ranks of a field and hold them; None for a segment too large for that."""
        # Four bytes are enough for any number of values.
        if 4 * size > _CACHE_BYTES:
            return None
        ranks = Ranks.of(connection, segment, field, size)
        with self._lock:
            self._held[segment, field] = ranks
        return ranks


# All stored passages, and those that wait in the database, with their documents.
_STORED = "documents AS d JOIN passages AS p ON p.doc = d.doc"
_WAITING = (
    "pending AS w CROSS JOIN passages AS p ON p.passage = w.passage "
    "CROSS JOIN documents AS d ON d.doc = p.doc"
)
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
    """For each segment: the live passages of documents that match a filter."""
    with readable(folder):
        if format_version(connection) < VALUES_SINCE:
            matching = _matching(connection, _STORED, where.sql, where.parameters)
            return [_live(live, _bits(live, matching)) for live in segments]
        found = []
        evaluation = _Evaluation(connection, ranks)
        for live in segments:
            if live.is_pending:
                waiting = _matching(connection, _WAITING, where.sql, where.parameters)
                found.append(_live(live, _bits(live, waiting)))
            else:
                found.append(_live(live, evaluation.of(live, where.tree)))
        return found


def unknown_fields(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, list[str]]:
    """Those of some fields that no document has ever had."""
    if format_version(connection) < VALUES_SINCE:
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
    rows = connection.execute(
        # The filter's SQL holds no value and no name: both are bound.
        f"SELECT p.passage FROM {tables} WHERE {condition}",  # noqa: S608
        parameters,
    )
    return np.sort(np.fromiter((row[0] for row in rows), np.int64))


def _bits(live: LiveSegment, passages: NDArray[np.int64]) -> Bits:
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
        """The bits of the positions where a condition is true, deleted ones among them."""
        # Imported here, so that a query without a filter starts sooner.
        from indexes.filters.sql import Leaf

        if not isinstance(node, Leaf):
            parts = [self.of(live, part) for part in node.parts]
            return reduce(np.bitwise_and if node.joint == "AND" else np.bitwise_or, parts)
        if node.field is None:
            if node not in self._by_document:
                self._by_document[node] = _matching(
                    self._connection, _STORED, node.document_sql, node.document_parameters
                )
            return _bits(live, self._by_document[node])
        leaf, name = node, node.field
        segment, size = live.segment.number, len(live.segment.ids)
        of_absent = self._is_true_of_absent(leaf)
        field = field_numbers(self._connection, [name]).get(name)
        if field is None:
            return complement(no_bits(size), size) if of_absent else no_bits(size)
        # Read whichever are fewer: the values that satisfy the condition, or the others.
        wanted = f"NOT {leaf.sql}" if of_absent else leaf.sql
        found = self._having(segment, field, size, wanted, leaf.parameters)
        # Values that are not kept are read from their documents.
        unkept = unkept_positions(self._connection, segment, field)
        if of_absent:
            found = complement(found, size)
        if unkept is not None:
            found = (found & ~packed_bits(unkept, size)) | self._among(live, leaf, unkept)
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
