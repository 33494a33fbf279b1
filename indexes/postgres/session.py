"""One transaction over one index: the row that describes it, and statements over its tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from indexes.postgres.connection import Connection
from indexes.postgres.location import Location
from indexes.postgres.schema import Tables

_COLUMNS = (
    "number, identity, settings, seal, generation, dimensions, documents, passages, total_length, "
    "dead, efforts, begun_with"
)


@dataclass(frozen=True)
class IndexRow:
    """What the database says of an index, as one commit left it.

    Attributes:
        number: names its tables.
        identity: another after it was replaced.
        settings_text: JSON.
        seal: its checksum.
        generation: increases by one with every commit.
        dimensions: of its vectors; None before the first.
        documents, passages: how many there are.
        total_length: terms of all passages.
        dead: number of deleted passages whose postings are still there.
        efforts_text: JSON, (ef_search, recall@10) of the graph, ascending; None without a graph.
        begun_with: of an index that is to replace another; None for others.
    """

    number: int
    identity: UUID
    settings_text: str
    seal: bytes
    generation: int
    dimensions: int | None
    documents: int
    passages: int
    total_length: int
    dead: int
    efforts_text: str | None
    begun_with: str | None

    @cached_property
    def settings(self) -> dict[str, Any]:
        """JSON values by key."""
        return dict(json.loads(self.settings_text))

    @cached_property
    def efforts(self) -> list[tuple[int, float]] | None:
        """(ef_search, recall@10) of the graph, ascending; None without a graph."""
        if self.efforts_text is None:
            return None
        return [(int(effort), float(recall)) for effort, recall in json.loads(self.efforts_text)]

    def setting(self, key: str, default: Any = None) -> Any:
        """The JSON value of a setting; KeyError if there is none and no default."""
        if key not in self.settings and default is None:
            raise KeyError(key)
        return self.settings.get(key, default)

    @property
    def is_sealed(self) -> bool:
        """Whether the settings are as they were written."""
        return seal_of(self.settings_text) == self.seal


@dataclass(frozen=True)
class Session:
    """A connection inside a transaction, and the index that it works on."""

    location: Location
    connection: Connection
    row: IndexRow

    @cached_property
    def tables(self) -> Tables:
        """The tables of the index."""
        return Tables(self.row.number)

    def rows(self, text: str, *parameters: Any, where: Any = None) -> list[tuple[Any, ...]]:
        """What a statement over the tables of the index returns; `where` fills ``{where}``."""
        parts = {} if where is None else {"where": where}
        with self.connection.cursor(binary=True) as cursor:
            cursor.execute(self.tables.statement(text, **parts), parameters)
            return cursor.fetchall()


def find_index(connection: Connection, location: Location, replaces: int | None) -> IndexRow | None:
    """The index that has the name, or the hidden one that is to replace that number."""
    if replaces is None:
        return _row(connection, "name = %s", location.index)
    return _row(connection, "replaces = %s", replaces)


def read_row(connection: Connection, number: int) -> IndexRow | None:
    """The index of that number."""
    return _row(connection, "number = %s", number)


def lock_row(connection: Connection, number: int) -> IndexRow | None:
    """The same under a lock, which makes the commits of several writers follow one another.

    It is the lock that lets others insert rows that refer to the index: two transactions that have
    done so could not both take a stronger one.
    """
    return _row(connection, "number = %s FOR NO KEY UPDATE", number)


def _row(connection: Connection, which: str, value: str | int) -> IndexRow | None:
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM retriever.indexes WHERE {which}",  # noqa: S608
        (value,),
    ).fetchone()
    return None if row is None else IndexRow(*row)


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings as they are stored; equal ones have equal text."""
    return json.dumps(settings, ensure_ascii=False, sort_keys=True)


def seal_of(text: str) -> bytes:
    """16 bytes over the settings."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
