"""The columns of metadata in SQLite, kept in step with the documents inside a transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.files.atomic import readable
from indexes.filters.columns import ABSENT, CHUNK, LIMITS, Cells, Limits, cells_of, pack, unpack
from indexes.store.documents import MetadataChange

# As JSON writes it. Releases of SQLite differ in where they end a name or a text that has one.
_NUL = "\\u0000"


@dataclass(frozen=True, slots=True)
class ColumnRows:
    """The columns of one index.

    Attributes:
        connection: to its database.
        folder: of the index.
        limits: what is kept as a column.
    """

    connection: sqlite3.Connection
    folder: Path
    limits: Limits = LIMITS

    def update(self, changes: Iterable[MetadataChange]) -> None:
        """Take over what the metadata of some documents is now.

        A field that passes the limits is given up. The caller is inside a transaction.

        Raises:
            DamagedIndexError: a row of the columns, or metadata, is not as it was written.
        """
        with readable(self.folder):
            cells = cells_of(changes)
            kept = known_fields(self.connection, cells)
            count = self._count() if cells.keys() - kept else 0
            for field, cell in cells.items():
                if field not in kept:
                    kept[field] = count < self.limits.fields
                    count += kept[field]
                    self.connection.execute(
                        "INSERT INTO fields VALUES (?, ?)", (field, int(kept[field]))
                    )
                    if kept[field]:
                        self.connection.execute(
                            "INSERT INTO field_values VALUES (?, 0, ?, 'null', NULL)",
                            (field, ABSENT),
                        )
                if kept[field]:
                    self._take(field, cell)

    def rebuild(self) -> None:
        """Make the columns anew from all documents; raises as `update`.

        Every field is tried again, those that were given up, too.
        """
        for table in ("fields", "field_values", "field_codes"):
            self.connection.execute(f"DELETE FROM {table}")  # noqa: S608
        for documents in stored_metadata(self.connection):
            self.update(documents)

    def drop_unused(self) -> None:
        """Delete the chunks of which no passage is left; the caller is inside a transaction."""
        self.connection.execute(
            "DELETE FROM field_codes AS c WHERE NOT EXISTS (SELECT 1 FROM passages AS p "
            "WHERE p.passage >= c.chunk * ? AND p.passage < (c.chunk + 1) * ?)",
            (CHUNK, CHUNK),
        )

    def _count(self) -> int:
        rows = self.connection.execute("SELECT count(*) FROM fields WHERE kept")
        return int(rows.fetchone()[0])

    def _take(self, field: str, cell: Cells) -> None:
        codes: dict[str, int] = dict(
            self.connection.execute(
                "SELECT metadata, code FROM field_values WHERE field = ?", (field,)
            )
        )
        new = dict.fromkeys(value for value in cell.values if value not in codes)
        highest = max(codes.values())
        if highest + len(new) > self.limits.values or any(
            len(value) > self.limits.length or _NUL in value for value in new
        ):
            self._give_up(field)
            return
        codes |= zip(new, range(highest + 1, highest + 1 + len(new)), strict=True)
        self.connection.executemany(
            "INSERT INTO field_values SELECT ?, ?, ?, type, value FROM json_each(?)",
            [(field, codes[value], value, value) for value in new],
        )
        passages = np.array(cell.passages, np.int64)
        self._write(field, passages, np.array([codes[value] for value in cell.values], np.uint16))

    def _give_up(self, field: str) -> None:
        self.connection.execute("UPDATE fields SET kept = 0 WHERE field = ?", (field,))
        self.connection.execute("DELETE FROM field_values WHERE field = ?", (field,))
        self.connection.execute("DELETE FROM field_codes WHERE field = ?", (field,))

    def _write(self, field: str, passages: NDArray[np.int64], codes: NDArray[np.uint16]) -> None:
        chunks = passages // CHUNK
        for chunk in np.unique(chunks).tolist():
            here = chunks == chunk
            whole = read_codes(self.connection, field, chunk, chunk)
            whole[passages[here] % CHUNK] = codes[here]
            self.connection.execute(
                "INSERT INTO field_codes VALUES (?, ?, ?, ?) ON CONFLICT (field, chunk) "
                "DO UPDATE SET codes = excluded.codes, checksum = excluded.checksum",
                (field, chunk, *pack(field, chunk, whole)),
            )


def known_fields(connection: sqlite3.Connection, fields: Iterable[str]) -> dict[str, bool]:
    """Those of `fields` that any document had since the columns were made.

    Returns:
        For each, whether it is kept as a column, or was given up.
    """
    rows = connection.execute(
        "SELECT field, kept FROM fields WHERE field IN (SELECT value FROM json_each(?))",
        (json.dumps(list(fields)),),
    )
    return {field: bool(kept) for field, kept in rows}


def read_codes(
    connection: sqlite3.Connection, field: str, first: int, last: int
) -> NDArray[np.uint16]:
    """A field's codes in chunks `first` to `last`, `CHUNK` for each; 0 where nothing is stored.

    Raises:
        ValueError, TypeError: a chunk is not as it was written.
    """
    codes = np.zeros((last - first + 1) * CHUNK, np.uint16)
    rows = connection.execute(
        "SELECT chunk, codes, checksum FROM field_codes WHERE field = ? AND chunk BETWEEN ? AND ?",
        (field, first, last),
    )
    for chunk, blob, checksum in rows:
        stored = unpack(field, chunk, blob, checksum)
        start = (chunk - first) * CHUNK
        codes[start : start + len(stored)] = stored
    return codes


def stored_metadata(connection: sqlite3.Connection) -> Iterator[list[MetadataChange]]:
    """The metadata of every document, as if it were new: for each chunk of passage ids a list.

    Chunks and passages ascend. A document with passages in two chunks comes in both, each time
    with the passages of that chunk.
    """
    rows = connection.execute(
        "SELECT p.passage, p.doc, d.metadata FROM passages AS p "
        "CROSS JOIN documents AS d ON d.doc = p.doc ORDER BY p.passage"
    )
    for _, chunk in groupby(rows, key=lambda row: row[0] // CHUNK):
        yield [
            MetadataChange([row[0] for row in passages], ABSENT, metadata)
            for (_, metadata), passages in groupby(chunk, key=itemgetter(1, 2))
        ]
