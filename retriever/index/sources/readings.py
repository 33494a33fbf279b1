"""How each file of the sources was read: the rows of the table `readings`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from typing import cast

from retriever.documents.file_kinds import KINDS, kind_of
from retriever.documents.losses import Loss, LossKind
from retriever.documents.report import NAMED_FILES, FilesReport


def report_readings(database: sqlite3.Connection, source_paths: Mapping[int, str]) -> FilesReport:
    """Report the files of all sources by what became of them; paths are by number of source."""
    report = FilesReport()
    for kind, files in database.execute(
        "SELECT kind, count(*) FROM readings WHERE fault = '' GROUP BY kind ORDER BY 2 DESC"
    ):
        if kind in KINDS:
            report.read[KINDS[kind].label] += files
    report.without_text, report.skipped = database.execute(
        "SELECT coalesce(sum(is_empty), 0), coalesce(sum(fault != ''), 0) FROM readings"
    ).fetchone()
    for number, path, losses in database.execute(
        "SELECT source, path, losses FROM readings WHERE losses != '' ORDER BY 1, 2"
    ):
        pairs = [line.split(": ", 1) for line in losses.splitlines()]
        place = os.path.join(source_paths[number], os.fsdecode(path))
        report.add_losses(
            place.rstrip("/"), [Loss(cast(LossKind, kind), why) for kind, why in pairs]
        )
    report.faults = [
        fault
        for (fault,) in database.execute(
            "SELECT fault FROM readings WHERE fault != '' ORDER BY source, path LIMIT ?",
            (NAMED_FILES,),
        )
    ]
    for reason, files in database.execute("SELECT reason, files FROM left_out"):
        report.left_out[reason] += files
    return report


def note_earlier_readings(database: sqlite3.Connection) -> None:
    """Note that an earlier release read all files that it remembers."""
    rows = database.execute(
        "SELECT source, files.path, sources.path FROM files JOIN sources USING (source) "
        "WHERE substr(files.path, 1, 1) != x'00'"
    ).fetchall()
    readings = []
    for number, path, source_path in rows:
        kind = kind_of(os.fsdecode(path or source_path)) or ""
        # A text that is a source has a document a line.
        is_file = path or kind != "text"
        readings.append((number, path, kind if is_file else "", 0, "", "", 0))
    database.executemany("INSERT INTO readings VALUES (?, ?, ?, ?, ?, ?, ?)", readings)


def reader_of(path: str) -> tuple[str, int]:
    """The kind of a file of a folder by its name, and the version of the reader of that kind.

    A file that is a source gets its kind when it is read: it may be a table or lines.
    """
    kind = (kind_of(path) or "") if path else ""
    return kind, KINDS[kind].reader_version if kind else 0
