"""The state of an index: what a commit is, who writes, and what an interruption left.

The collection of states has one row for each commit, or several pieces of one: JSON with the
commit's number, the statistics and all settings. The highest number whose pieces are all there is
the state of the index; older ones are deleted after it. So a commit is one insertion, and what a
killed writer leaves has a number above it, which no reader looks at.

An ``intent`` is written before a commit and deleted after it: the next writer that finds one takes
back what it left. A ``lease`` is the row of the one writer.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import islice
from types import TracebackType
from typing import Any, Self

from indexes.errors import (
    DamagedIndexError,
    FormatVersionError,
    IndexLockedError,
    RetrieverError,
    StorageError,
)
from indexes.milvus.collections import NEVER, Names, create_plain, has_sparse
from indexes.milvus.connection import Connection, Row

FORMAT = 1
# Characters of a piece: at most four bytes each.
_PIECE = 16_000
# Seconds for which a lease holds, and after which it is renewed.
_LEASE, _RENEWAL = 60.0, 15.0
# Rows that are rewritten together.
_MARKED = 200
# Primary keys of a millisecond.
_ROWS = 2**21


@dataclass(frozen=True, slots=True)
class State:
    """An index as of one commit.

    Attributes:
        commit: its number: milliseconds since 1970, or one more than that of the commit before.
        identity: which index it is.
        build: which rows are its own.
        dimensions: of its vectors; 0 before the first commit of passages.
        documents, passages: their numbers.
        length: the sum of the lengths of the passages, in terms.
        next_document, next_passage: the numbers that the next ones get.
        means: the least and the greatest mean length with which a sparse vector was saturated.
        next_row: greater than the primary key of every row.
        longest: length of the longest passage that it ever had.
        fields: the top-level fields of metadata that a document ever had, ascending.
        term_rows, merged_terms: rows of terms, now and after they were last merged.
        bytes: of the rows that count, without search structures and copies.
        dead: passages that are removed and still stored.
        purged: a view of a commit before it has lost rows.
        former: builds that this one replaced, each with the commit since which it does.
        written: the server's time of the last write of a row.
        settings: of the index, as JSON values.
        seal: a checksum of the settings.
    """

    commit: int
    identity: str
    build: int
    dimensions: int = 0
    documents: int = 0
    passages: int = 0
    length: int = 0
    next_document: int = 1
    next_passage: int = 1
    means: tuple[float, float] = (0.0, 0.0)
    next_row: int = 0
    longest: int = 0
    fields: tuple[str, ...] = ()
    term_rows: int = 0
    merged_terms: int = 0
    bytes: int = 0
    dead: int = 0
    purged: int = 0
    former: tuple[tuple[int, int], ...] = ()
    written: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    seal: str = ""

    @property
    def mean_length(self) -> float:
        """Terms per passage; 0 if there are none."""
        return self.length / self.passages if self.passages else 0.0

    def to_json(self) -> str:
        """As it is stored."""
        values = {"format": FORMAT, **asdict(self), "seal": seal_of(self.settings)}
        return json.dumps(values, ensure_ascii=False)


def new_state(settings: dict[str, Any]) -> State:
    """That of an empty index."""
    return State(milliseconds(), secrets.token_hex(8), secrets.randbits(62), settings=settings)


def seal_of(settings: dict[str, Any]) -> str:
    """A checksum of settings."""
    content = json.dumps(settings, sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def milliseconds() -> int:
    """Since 1970."""
    return time.time_ns() // 1_000_000


def next_commit(state: State) -> int:
    """The number of the commit after a state."""
    return max(state.commit + 1, milliseconds())


class States:
    """The collection of states, of one chain of commits.

    Args:
        connection: to the server.
        names: of the collections.
        replaces: whether it is the chain of an index that is to replace another.
    """

    def __init__(self, connection: Connection, names: Names, *, replaces: bool = False) -> None:
        self.connection = connection
        self.names = names
        self._chain = f"{'new' if replaces else 'live'}:{connection.location.tenant}"
        self._latest: State | None = None

    @cached_property
    def sparse(self) -> bool:
        """Whether Milvus has sparse vectors."""
        return has_sparse(self.connection)

    def exist(self) -> bool:
        """Whether there is the collection; makes no file of Milvus Lite."""
        file = self.connection.location.file
        if file is not None and not file.exists():
            return False
        return self.names.states in self.connection.collections()

    def create(self) -> None:
        """Make the collection."""
        from pymilvus import DataType, MilvusClient

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("row", DataType.INT64, is_primary=True)
        schema.add_field("chain", DataType.VARCHAR, max_length=200)
        schema.add_field("kind", DataType.VARCHAR, max_length=20)
        schema.add_field("number", DataType.INT64)
        schema.add_field("part", DataType.INT64)
        schema.add_field("parts", DataType.INT64)
        schema.add_field("value", DataType.VARCHAR, max_length=65_535)
        create_plain(self.connection, self.names.states, schema)

    def read(self) -> State | None:
        """The state of the index; None if there is none.

        Raises:
            FormatVersionError: a newer release wrote it.
            DamagedIndexError: it is not JSON.
        """
        where = self._of_kind("state")
        while True:
            found: dict[int, tuple[int, int]] = {}
            for row in self._query(where, "number", "parts"):
                number, wanted = row["number"], row["parts"]
                found[number] = (found.get(number, (0, 0))[0] + 1, wanted)
            whole = [number for number, (held, wanted) in found.items() if held == wanted]
            if not whole:
                return None
            number = max(whole)
            if self._latest is not None and self._latest.commit == number:
                return self._latest
            rows = self._query(f"{where} and number == {number}", "part", "value")
            if len(rows) == found[number][1]:
                ordered = sorted(rows, key=lambda row: row["part"])
                self._latest = self._parsed("".join(row["value"] for row in ordered))
                self.connection.since = max(self.connection.since, self._latest.written)
                return self._latest
            # A newer commit has just taken its place.

    def publish(self, state: State) -> None:
        """Make a state that of the index, after all rows of its commit were written."""
        state = replace(state, written=max(state.written, self.connection.since))
        self._insert("state", state.commit, state.to_json())
        self._delete(f"{self._of_kind('state')} and number < {state.commit}")
        self._latest = state

    def remove(self) -> None:
        """Delete every row of the chain but leases."""
        self._delete(f'chain == "{self._chain}" and kind in ["state", "intent", "begun"]')
        self._latest = None

    def begin(self, with_what: str) -> None:
        """Say with what an index is begun that is to replace another."""
        self._insert("begun", 0, with_what)

    def begun_with(self) -> str | None:
        """With what it was begun; None if it was not."""
        rows = self._query(self._of_kind("begun"), "part", "parts", "value")
        if not rows or len(rows) != rows[0]["parts"]:
            return None
        return "".join(row["value"] for row in sorted(rows, key=lambda row: row["part"]))

    def intend(self, commit: int) -> None:
        """Say that rows of a commit are about to be written."""
        self._insert("intent", commit, "")

    def intended(self) -> list[int]:
        """The commits that were begun and may be unfinished."""
        return [row["number"] for row in self._query(self._of_kind("intent"), "number")]

    def done(self, commit: int) -> None:
        """Forget the intents up to a commit."""
        self._delete(f"{self._of_kind('intent')} and number <= {commit}")

    def lease(self, timeout: float) -> Lease:
        """The right to write; a context manager."""
        return Lease(self, timeout)

    def _of_kind(self, kind: str) -> str:
        return f'chain == "{self._chain}" and kind == "{kind}"'

    def _query(self, where: str, *fields: str) -> list[dict[str, Any]]:
        return self.connection.query(self.names.states, where, fields, latest=True)

    def _delete(self, where: str) -> None:
        rows = [row["row"] for row in self._query(where, "row")]
        self.connection.delete_keys(self.names.states, rows)

    def _insert(self, kind: str, number: int, value: str) -> int:
        pieces = [value[at : at + _PIECE] for at in range(0, len(value), _PIECE)] or [""]
        first = secrets.randbits(62)
        self.connection.insert(
            self.names.states,
            [
                {
                    "row": first + part,
                    "chain": self._chain,
                    "kind": kind,
                    "number": number,
                    "part": part,
                    "parts": len(pieces),
                    "value": piece,
                    "unused": [0.0, 0.0],
                }
                for part, piece in enumerate(pieces)
            ],
        )
        return first

    def _parsed(self, text: str) -> State:
        try:
            values = json.loads(text)
            if (found := values.pop("format")) > FORMAT:
                raise FormatVersionError(
                    f"{self.connection.location}: expected format {FORMAT} or older, found "
                    f"{found}: a newer release wrote the index; upgrade layer-retriever"
                )
            lists = {name: _tuples(values[name]) for name in ("means", "fields", "former")}
            return State(**{**values, **lists})
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedIndexError(
                f"{self.connection.location}: the state of the index was altered ({error!r}); "
                "index again"
            ) from None


class Lease:
    """The right to write one index, held while the block lasts and renewed by a thread.

    A writer claims it with a row, and has it if it then sees no other: of two that claim it at the
    same time, neither has it, and both try again. A lease ends by itself after a minute without
    renewal, and at once where its process was on this machine and is gone.

    Raises on entry:
        IndexLockedError: another writer has it.
    """

    def __init__(self, states: States, timeout: float) -> None:
        self._states = states
        self._timeout = timeout
        self._held = 0
        self._renewed = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        deadline = time.monotonic() + self._timeout
        while (holder := self._claimed()) is not None:
            if time.monotonic() >= deadline:
                raise IndexLockedError(
                    f"{self._states.connection.location}: another writer holds the index: "
                    f"{holder}; wait until it has finished"
                )
            time.sleep(0.05 + secrets.randbelow(200) / 1000)
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        try:
            self._states._delete(f"row == {self._held}")
        except RetrieverError:
            # The lease ends by itself; what the block raised says more.
            if error is None:
                raise

    def check(self) -> None:
        """Make sure that it still holds.

        Raises:
            StorageError: it could not be renewed for too long.
        """
        if time.monotonic() - self._renewed > _LEASE:
            raise StorageError(
                f"{self._states.connection.location}: the right to write was lost, because Milvus "
                f"did not answer for {_LEASE:.0f} seconds; run the command again"
            )

    def _claimed(self) -> str | None:
        """Claim it; returns who else has it, or None."""
        if (other := self._other()) is None:
            self._claim()
            if (other := self._other()) is None:
                return None
            self._states._delete(f"row == {self._held}")
            self._held = 0
        return other

    def _claim(self) -> None:
        value = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "until": time.time() + _LEASE,
        }
        asked = time.monotonic()
        before, self._held = self._held, self._states._insert("lease", 0, json.dumps(value))
        self._renewed = asked
        if before:
            self._states._delete(f"row == {before}")

    def _other(self) -> str | None:
        for row in self._states._query(self._states._of_kind("lease"), "row", "value"):
            if row["row"] == self._held:
                continue
            holder = json.loads(row["value"])
            here = holder["host"] == socket.gethostname()
            if holder["until"] < time.time() or (here and not _is_running(holder["pid"])):
                self._states._delete(f"row == {row['row']}")
                continue
            return f"process {holder['pid']} on {holder['host']}"
        return None

    def _renew(self) -> None:
        while not self._stop.wait(_RENEWAL):
            try:
                self._claim()
            except RetrieverError:
                continue  # Tried again; `check` says when it is too late.


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def restored(states: States, state: State) -> State:
    """Take back what an unfinished commit left; the caller holds the lease.

    Rows that are newer than the state are new ones, which go, and copies of older rows. Of a copy
    the older row stays if it is still there; otherwise the copy takes its place.

    Returns:
        The state, of another commit if anything was left.
    """
    begun = states.intended()
    if not begun:
        return state
    connection, names, mine = states.connection, states.names, f"build == {state.build}"
    held = set(connection.collections())
    passages = {one for one in held if one.startswith(names.passages_prefix)}
    rows = Rows(next_commit(state), state)
    for name in held & {names.documents, names.terms} | passages:
        connection.delete(name, f"{mine} and row >= {state.next_row} and added > {state.commit}")
        left = connection.stream(name, f"{mine} and row >= {state.next_row}", ["*"])
        for some in batches(left, _MARKED):
            column = "passage" if name in passages else "document"
            column = "key" if name == names.terms else column
            older = connection.among(
                name,
                column,
                sorted({row[column] for row in some}),
                f"{mine} and row < {state.next_row}",
                ["*"],
            )
            kept = {_identity(row) for row in older}
            new = []
            for row in some:
                if _identity(row) not in kept:
                    kept.add(_identity(row))
                    new.append({**row, "removed": NEVER})
            rewrite(connection, name, some, new, rows)
    state = replace(state, commit=rows.commit, next_row=rows.next)
    # Its time is later than that of every deletion, which a server need not tell.
    states.intend(rows.commit)
    states.publish(state)
    states.done(max(*begun, rows.commit))
    return state


class Rows:
    """Gives primary keys to rows.

    Attributes:
        commit: the number of the commit in which they are written.
        next: the next key; greater than that of any row of an earlier commit.
    """

    def __init__(self, commit: int, state: State) -> None:
        self.commit = commit
        # Other than those of a writer that was killed, and whose rows may still be on their way.
        self.next = max(state.next_row, commit * _ROWS)

    def numbered(self, row: Row) -> Row:
        """The row with the next key."""
        self.next += 1
        return {**row, "row": self.next - 1}


def rewrite(connection: Connection, name: str, old: list[Row], new: list[Row], rows: Rows) -> None:
    """Put rows with other keys in the place of some: for a moment both are there, never neither.

    Milvus has `upsert` for this, with which some releases (2.3.5) lose rows.
    """
    connection.insert(name, [rows.numbered(row) for row in new])
    connection.delete_keys(name, [row["row"] for row in old])


def mark(connection: Connection, name: str, where: str, rows: Rows) -> Iterator[list[Row]]:
    """Say of rows that count with which commit they go; yields them as they were."""
    for some in batches(connection.stream(name, f"{where} and removed == {NEVER}", ["*"]), _MARKED):
        rewrite(connection, name, some, [{**row, "removed": rows.commit} for row in some], rows)
        yield some


def batches(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """The rows in order, at most `size` at a time."""
    rest = iter(rows)
    while some := list(islice(rest, size)):
        yield some


def _identity(row: Row) -> tuple[Any, ...]:
    """What a row and its copies have in common."""
    if "change" in row:
        return row["term"], row["added"]
    return row.get("passage", row["document"]), row.get("part", 0), row["added"]
