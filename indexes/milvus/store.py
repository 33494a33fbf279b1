"""The store of an index in Milvus; see `indexes.protocol.Store`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from indexes.errors import DamagedIndexError
from indexes.milvus.collections import Names, index_type
from indexes.milvus.connection import Connection
from indexes.milvus.location import Location, parse_location
from indexes.milvus.state import States, new_state, next_commit
from indexes.milvus.verify import problems
from indexes.milvus.view import MilvusReader, damaged
from indexes.milvus.writer import MilvusWriter
from indexes.protocol import StructureSettings


class MilvusStore:
    """An index in Milvus.

    Args:
        location: as a URL or its parts.
        replaces: whether it is the index that is to replace the one of that name.
    """

    folder: Path | None = None

    def __init__(self, location: str | Location, *, replaces: bool = False) -> None:
        self.location = parse_location(location) if isinstance(location, str) else location
        self._replaces = replaces

    @property
    def name(self) -> str:
        """That of the index, or of the tenant."""
        return self.location.tenant or self.location.index

    def __str__(self) -> str:
        return str(self.location)

    def __repr__(self) -> str:
        return f"MilvusStore({str(self.location)!r})"

    def exists(self) -> bool:
        """Whether there is an index."""
        with self._states() as states:
            return states.exist() and states.read() is not None

    def create(self, settings: Mapping[str, Any], lock_timeout: float = 0.0) -> None:
        """Make an empty index, unless there is one.

        Raises:
            ConfigError: Milvus does not have the search structure.
        """
        with self._states() as states:
            structures = settings.get("structures", {})
            index_type(states.connection, StructureSettings.from_json(structures))
            if not states.exist():
                states.create()
            with states.lease(lock_timeout):
                if states.read() is None:
                    states.publish(new_state(dict(settings)))

    def reader(self) -> MilvusReader:
        """Open it for reading."""
        return MilvusReader(self._new_states())

    def writer(self, lock_timeout: float = 0.0) -> MilvusWriter:
        """Open it for writing."""
        return MilvusWriter(self._new_states(), lock_timeout)

    @contextmanager
    def replacement(self, begun_with: str) -> Iterator[MilvusStore]:
        """A new index in the same collections, which takes the place of this one."""
        if not self.exists():
            yield self
            return
        with self._states() as live:
            other = MilvusStore(self.location, replaces=True)
            new = States(live.connection, live.names, replaces=True)
            with live.lease(0.0):
                if new.begun_with() != begun_with:
                    clear(new)
                    new.begin(begun_with)
                yield other
                state, old = new.read(), live.read()
                if state is None or old is None:
                    return
                commit = max(next_commit(old), next_commit(state))
                former = (*old.former, (old.build, commit))
                live.publish(replace(state, commit=commit, former=former))
                new.remove()

    def verify(self) -> list[str]:
        """Read everything and compare it; see `indexes.milvus.verify`."""
        with closing(self.reader()) as reader, reader.view() as view:
            return list(problems(view))

    def size(self) -> int:
        """Bytes of the rows that count, without search structures and copies."""
        with closing(self.reader()) as reader, reader.view() as view:
            return int(view.describe()["bytes"])

    def damaged(self, reason: object) -> DamagedIndexError:
        """The error to raise if what is stored was altered."""
        return damaged(Connection(self.location), reason)

    def _new_states(self) -> States:
        names = Names(self.location.index)
        return States(Connection(self.location), names, replaces=self._replaces)

    @contextmanager
    def _states(self) -> Iterator[States]:
        states = self._new_states()
        try:
            yield states
        finally:
            states.connection.close()


def clear(new: States) -> None:
    """Delete what an unfinished replacement left."""
    state = new.read()
    if state is not None and state.dimensions:
        connection, names = new.connection, new.names
        for name in connection.collections():
            if name in (names.documents, names.terms) or name.startswith(names.passages_prefix):
                connection.delete(name, f"build == {state.build}")
    new.remove()
