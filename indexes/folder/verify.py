"""Checking an index from the single source of truth down to the last byte."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexes.errors import DamagedIndexError
from indexes.folder.checksums import SegmentSums
from indexes.folder.connection import (
    DATABASE_FILE,
    Session,
    check_settings,
    format_version,
    read_settings,
)
from indexes.folder.documents import (
    VALUES_SINCE,
    checked_passages,
    document_columns,
    read_languages,
    read_waiting,
    stored_languages,
)
from indexes.folder.metadata_values import collected_values, one_zero, unpacked
from indexes.folder.segment import (
    MANIFEST_FILE,
    Segment,
    check_file,
    contained,
    open_segment,
    read_manifest,
    segment_folder,
)
from indexes.metadata import Value

_UNREADABLE = (AttributeError, TypeError, ValueError)


def verify(folder: Path) -> list[str]:
    """Read everything that an index holds, and say what is wrong.

    Checked are the database itself, size and SHA-256 of every file of every segment, and that
    documents, metadata, passages, segments and tombstones agree. Safe while a writer works: one
    commit is checked as a whole.

    Returns:
        One line for each problem, naming the file; empty if the index is sound.

    Raises:
        NotAnIndexError, FormatVersionError: there is nothing to check.
        DamagedIndexError: the database is too damaged to be read at all.
    """
    problems: list[str] = []

    def check(session: Session) -> None:
        problems.clear()
        problems[:] = _problems(session.folder, session.connection)
        if problems:
            # What a writer has changed meanwhile is no problem: a later commit is checked then.
            raise DamagedIndexError(problems[0])

    with closing(Session(folder)) as session:
        try:
            with session.commit(check):
                pass
        except DamagedIndexError:
            if not problems:
                raise
    return problems


def _problems(folder: Path, connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the problems of one commit; each check runs if what it relies on is sound."""
    database = folder / DATABASE_FILE
    yield from _database_problems(folder, connection)
    yield from _document_problems(database, connection)
    stored = _column(connection, "SELECT passage FROM passages ORDER BY passage")
    tombstones = _column(connection, "SELECT passage FROM tombstones ORDER BY passage")
    segments: list[Segment] = []
    problems: list[str] = []
    query = "SELECT segment, passages, manifest FROM segments ORDER BY segment"
    for number, passages, manifest in connection.execute(query).fetchall():
        problems += _segment_problems(folder, number, passages, manifest, segments)
    waiting = np.empty(0, np.int64)
    if format_version(connection) >= VALUES_SINCE:
        try:
            pending = read_waiting(connection)
            waiting = waiting if pending is None else pending.ids
        except (TypeError, ValueError) as error:
            problems.append(f"{database}: {error}")
    if not problems:
        ids = np.concatenate([waiting, *(segment.ids for segment in segments)])
        problems += _identity_problems(database, ids, stored, tombstones)
    yield from problems
    if not problems and format_version(connection) >= VALUES_SINCE:
        yield from metadata_problems(connection, folder, segments)
    newest = max((int(ids[-1]) for ids in (stored, tombstones) if len(ids)), default=0)
    if int(read_settings(connection)["next_passage"]) <= newest:
        yield f"{database}: the next passage id is already in use"


def _database_problems(folder: Path, connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the problems that SQLite finds, and those of settings."""
    database = folder / DATABASE_FILE
    for (report,) in connection.execute("PRAGMA integrity_check"):
        for line in report.splitlines():
            # The first line of some reports is a heading between asterisks.
            if line != "ok" and not line.startswith("***"):
                yield f"{database}: {line}"
    try:
        check_settings(read_settings(connection), folder)
        problem = stored_languages(connection).problem(read_languages(connection))
        if problem:
            yield f"{database}: {problem}"
    except DamagedIndexError as error:
        yield str(error)
    for row in connection.execute("PRAGMA foreign_key_check"):
        yield f"{database}: row {row[1]} of {row[0]} refers to a {row[2]} row that is missing"


def _document_problems(database: Path, connection: sqlite3.Connection) -> Iterator[str]:
    """Yield documents without a passage, and documents that were altered."""
    (orphans,) = connection.execute(
        "SELECT count(*) FROM documents AS d "
        "WHERE NOT EXISTS (SELECT 1 FROM passages AS p WHERE p.doc = d.doc)"
    ).fetchone()
    if orphans:
        yield f"{database}: {orphans} documents have no passage"
    for row in connection.execute(
        f"SELECT {document_columns(connection)} FROM documents ORDER BY doc"  # noqa: S608
    ):
        try:
            checked_passages(connection, row)
        except _UNREADABLE:
            yield f"{database}: the document {row[1]!r} was altered (its checksum differs)"


def _segment_problems(
    folder: Path, number: int, passages: int, manifest_hash: str, opened: list[Segment]
) -> Iterator[str]:
    """Yield the problems of a segment; append it to `opened` if it can be opened."""
    path = segment_folder(folder, number)
    try:
        manifest = read_manifest(path, manifest_hash)
    except DamagedIndexError as error:
        yield str(error)
        return
    damaged = False
    for name, expected in manifest["files"].items():
        try:
            check_file(path / name, expected, whole=True)
        except DamagedIndexError as error:
            damaged = True
            yield str(error)
    # If the folder was replaced with its index since the files were read, `verify` begins again.
    with suppress(FileNotFoundError):
        for file in sorted(path.iterdir()):
            if file.name != MANIFEST_FILE and file.name not in manifest["files"]:
                yield f"{file}: a file that the manifest does not name"
    if damaged:
        return
    try:
        segment = open_segment(folder, number, manifest_hash)
        yield from SegmentSums(path, manifest).problems()
    except (DamagedIndexError, FileNotFoundError) as error:
        # A merge has removed the file.
        yield str(error)
        return
    opened.append(segment)
    yield from _array_problems(segment, passages)


def _array_problems(segment: Segment, passages: int) -> Iterator[str]:
    """Yield the problems of the arrays of a segment that should have `passages` passages."""
    if len(segment.ids) != passages:
        yield f"{segment.folder}: expected {passages} passages, found {len(segment.ids)}"
    if len(segment.ids) > 1 and not bool(np.all(np.diff(segment.ids) > 0)):
        yield f"{segment.folder}: passage ids are not in ascending order"
    if len(segment.postings) != len(segment.ids):
        yield (
            f"{segment.folder}: {len(segment.ids)} passages have vectors, "
            f"{len(segment.postings)} have postings"
        )
    for start in range(0, len(segment.vectors), 65536):
        if not np.isfinite(segment.vectors[start : start + 65536]).all():
            yield f"{segment.folder}: a vector is not finite"
            break


def _identity_problems(
    database: Path,
    segment_ids: NDArray[np.int64],
    stored: NDArray[np.int64],
    tombstones: NDArray[np.int64],
) -> Iterator[str]:
    """Check that each passage is in exactly one segment, and is either stored or deleted."""
    segment_ids = np.sort(segment_ids)
    if len(segment_ids) > 1 and bool(np.any(np.diff(segment_ids) == 0)):
        yield f"{database}: a passage is in two segments"
    known_ids = np.union1d(stored, tombstones)
    for description, ids, expected in (
        ("stored passages are in no segment", stored, segment_ids),
        ("deleted passages are in no segment", tombstones, segment_ids),
        ("passages of segments are neither stored nor deleted", segment_ids, known_ids),
    ):
        missing = int(np.count_nonzero(~contained(ids, expected)))
        if missing:
            yield f"{database}: {missing} {description}"
    conflicts = int(np.count_nonzero(contained(stored, tombstones)))
    if conflicts:
        yield f"{database}: {conflicts} passages are both stored and deleted"


def _column(
    connection: sqlite3.Connection, query: str, parameters: tuple[int, ...] = ()
) -> NDArray[np.int64]:
    return np.fromiter((row[0] for row in connection.execute(query, parameters)), np.int64)


def metadata_problems(
    connection: sqlite3.Connection, folder: Path, segments: Sequence[Segment]
) -> Iterator[str]:
    """Recompute the values of metadata from all documents, and yield what differs."""
    database = folder / DATABASE_FILE
    names = dict(connection.execute("SELECT field, name FROM fields"))
    segment_numbers = {segment.number for segment in segments}
    for (number,) in connection.execute("SELECT DISTINCT segment FROM metadata_values").fetchall():
        if number not in segment_numbers:
            yield f"{database}: values of metadata for segment {number}, which does not exist"
    for segment in segments:
        try:
            expected = _expected_digests(connection, segment)
        except _UNREADABLE:
            # `_document_problems` names the document whose row cannot be read.
            continue
        for name in expected.keys() - set(names.values()):
            yield f"{database}: the metadata field {name!r} is not registered"
        stored, problems = _stored_digests(connection, segment, names)
        for name in sorted(expected.keys() | stored.keys()):
            if name not in problems and (expected[name] - stored[name]) % 2**64:
                problems[name] = (
                    "its values are not those of the documents; `retriever index --recreate` "
                    "repairs it"
                )
        for name, problem in sorted(problems.items()):
            yield f"{database}: metadata field {name!r}, segment {segment.number}: {problem}"


def _expected_digests(connection: sqlite3.Connection, segment: Segment) -> Counter[str]:
    """Return a digest of the values of each field, from the documents of a segment."""
    expected = Counter[str]()
    for fields in collected_values(connection, segment):
        for name, by_value in fields.items():
            for key, positions in by_value.items():
                expected[name] += _digest(key, np.array(positions, np.int64))
    return expected


def _stored_digests(
    connection: sqlite3.Connection, segment: Segment, names: Mapping[int, str]
) -> tuple[Counter[str], dict[str, str]]:
    """Return a digest of the stored values of each field, and the problem of altered fields."""
    live = np.zeros(len(segment.ids), np.bool_)
    query = "SELECT passage FROM passages WHERE passage BETWEEN ? AND ? ORDER BY passage"
    live[segment.positions_of(_column(connection, query, segment.ends))] = True
    stored = Counter[str]()
    problems: dict[str, str] = {}
    rows = connection.execute(
        "SELECT field, type, value, passages, checksum FROM metadata_values WHERE segment = ?",
        (segment.number,),
    )
    for field, kind, value, packed, checksum in rows:
        name = names.get(field, f"number {field}")
        try:
            bitmap = unpacked(segment.number, field, kind, value, packed, checksum)
            positions = np.asarray(bitmap.to_array(), np.int64)
            live_positions = positions[live[positions]]
        except (*_UNREADABLE, IndexError) as error:
            problems.setdefault(name, f"{error}; `retriever compact` repairs it")
            continue
        if len(live_positions):
            stored[name] += _digest(Value(kind, value), live_positions)
    return stored, problems


def _digest(key: Value, positions: NDArray[np.int64]) -> int:
    """Return a number whose sum over values and passages, modulo 2^64, is order-free."""
    key_hash = hashlib.blake2b(repr(tuple(one_zero(key))).encode(), digest_size=8).digest()
    mixed = positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= np.uint64(int.from_bytes(key_hash, "little"))
    # The finalizer of SplitMix64.
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))
