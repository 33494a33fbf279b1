"""Checking an index from the single source of truth down to the last byte."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
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
    stored = _column(connection, "SELECT passage FROM passages ORDER BY passage")
    dead = _column(connection, "SELECT passage FROM tombstones ORDER BY passage")
    segments: list[Segment] = []
    sound = True
    named = "SELECT segment, passages, manifest FROM segments ORDER BY segment"
    for number, passages, manifest in connection.execute(named).fetchall():
        problems = list(_segment_problems(folder, number, passages, manifest, segments))
        yield from problems
        sound = sound and not problems
    waiting = np.empty(0, np.int64)
    if format_version(connection) >= VALUES_SINCE:
        try:
            found = read_waiting(connection)
            waiting = waiting if found is None else found.ids
        except (TypeError, ValueError) as error:
            yield f"{database}: {error}"
            sound = False
    if sound:
        kept = np.concatenate([waiting, *(segment.ids for segment in segments)])
        problems = list(_identity_problems(database, kept, stored, dead))
        yield from problems
        sound = not problems
    if sound and format_version(connection) >= VALUES_SINCE:
        yield from metadata_problems(connection, folder, segments)
    newest = max(int(stored[-1]) if len(stored) else 0, int(dead[-1]) if len(dead) else 0)
    if int(read_settings(connection)["next_passage"]) <= newest:
        yield f"{database}: the next passage id is already in use"


def _segment_problems(
    folder: Path, number: int, passages: int, manifest_hash: str, opened: list[Segment]
) -> Iterator[str]:
    """What is wrong with a segment; appends it to `opened` if it can be."""
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
    database: Path, kept: NDArray[np.int64], stored: NDArray[np.int64], dead: NDArray[np.int64]
) -> Iterator[str]:
    """Each passage is in exactly one segment, and is either stored or deleted."""
    kept = np.sort(kept)
    if len(kept) > 1 and bool(np.any(np.diff(kept) == 0)):
        yield f"{database}: a passage is in two segments"
    known = np.union1d(stored, dead)
    for what, wanted, among in (
        ("stored passages are in no segment", stored, kept),
        ("deleted passages are in no segment", dead, kept),
        ("passages of segments are neither stored nor deleted", kept, known),
    ):
        missing = int(np.count_nonzero(~contained(wanted, among)))
        if missing:
            yield f"{database}: {missing} {what}"
    both = int(np.count_nonzero(contained(stored, dead)))
    if both:
        yield f"{database}: {both} passages are both stored and deleted"


def _column(
    connection: sqlite3.Connection, query: str, parameters: tuple[int, ...] = ()
) -> NDArray[np.int64]:
    return np.fromiter((row[0] for row in connection.execute(query, parameters)), np.int64)


def metadata_problems(
    connection: sqlite3.Connection, folder: Path, segments: Sequence[Segment]
) -> Iterator[str]:
    """Recompute the values of metadata from all documents."""
    database = folder / DATABASE_FILE
    names = dict(connection.execute("SELECT field, name FROM fields"))
    numbers = {name: field for field, name in names.items()}
    known = {segment.number for segment in segments}
    for (number,) in connection.execute("SELECT DISTINCT segment FROM metadata_values").fetchall():
        if number not in known:
            yield f"{database}: values of metadata for segment {number}, which does not exist"
    for segment in segments:
        expected = Counter[str]()
        try:
            for found in collected_values(connection, segment):
                for name, by_value in found.items():
                    for key, held in by_value.items():
                        expected[name] += _digest(key, np.array(held, np.int64))
        except _UNREADABLE:
            # The checksum of a document's row tells which.
            continue
        for name in expected.keys() - numbers.keys():
            yield f"{database}: the metadata field {name!r} is not registered"
        live = np.zeros(len(segment.ids), np.bool_)
        own = "SELECT passage FROM passages WHERE passage BETWEEN ? AND ? ORDER BY passage"
        live[segment.positions_of(_column(connection, own, segment.ends))] = True
        stored = Counter[str]()
        wrong: dict[str, str] = {}
        rows = connection.execute(
            "SELECT field, type, value, passages, checksum FROM metadata_values WHERE segment = ?",
            (segment.number,),
        )
        for field, kind, value, packed, checksum in rows:
            name = names.get(field, f"number {field}")
            try:
                bitmap = unpacked(segment.number, field, kind, value, packed, checksum)
                positions = np.asarray(bitmap.to_array(), np.int64)
                kept = positions[live[positions]]
            except (*_UNREADABLE, IndexError) as error:
                wrong.setdefault(name, f"{error}; `retriever compact` repairs it")
                continue
            if len(kept):
                stored[name] += _digest(Value(kind, value), kept)
        for name in sorted(expected.keys() | stored.keys()):
            if name not in wrong and (expected[name] - stored[name]) % 2**64:
                wrong[name] = (
                    "its values are not those of the documents; `retriever index --recreate` "
                    "repairs it"
                )
        for name, problem in sorted(wrong.items()):
            yield f"{database}: metadata field {name!r}, segment {segment.number}: {problem}"


def _digest(key: Value, positions: NDArray[np.int64]) -> int:
    """A number whose sum over values and passages, modulo 2^64, depends on no order."""
    named = hashlib.blake2b(repr(tuple(one_zero(key))).encode(), digest_size=8).digest()
    mixed = positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= np.uint64(int.from_bytes(named, "little"))
    # The finalizer of SplitMix64.
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))
