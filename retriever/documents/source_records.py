"""Records of the sources of a corpus: files, folders, tables and standard input."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from retriever.documents.document import ColumnType, Fields, Record
from retriever.documents.file_kinds import is_document
from retriever.documents.files import SourceFile, read_files
from retriever.documents.folder_rules import FolderRules
from retriever.documents.folders import read_folder
from retriever.documents.sources import (
    FieldCount,
    Format,
    Meter,
    OpenSource,
    TextForm,
    normalize_name,
    open_source,
    open_stream,
)
from retriever.documents.tables import read_parquet, read_sqlite, split_table
from retriever.documents.text import read_csv, read_jsonl, read_lines, read_tsv, refuse_named_fields
from retriever.errors import SourceError

STDIN = "-"
_READERS: dict[Format, Callable[[OpenSource, Fields], Iterator[Record]]] = {
    "jsonl": read_jsonl,
    "csv": read_csv,
    "tsv": read_tsv,
    "parquet": read_parquet,
    "lines": read_lines,
}
# How the ids of files are made, as a note for the user.
_FOLDER_ID_RULE = "ids are the paths relative to the folder"
_FILE_ID_RULE = "ids of files that are one document are their paths as given"
_NAMED_FOLDER_ID_RULE = "ids are the names of the folders with the paths below them"


def source_name(source: str | Path) -> str:
    """Return the name of a source for messages."""
    return "stdin" if str(source) == STDIN else str(source)


def is_folder(source: str | Path) -> bool:
    """Return whether a source is a folder."""
    return str(source) != STDIN and os.path.isdir(source)


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Settings for reading sources; see `CorpusReader`."""

    fields: Fields
    form: TextForm
    rules: FolderRules
    prefixes: Mapping[str, str]
    only: Container[str] | None
    sql: str | None
    stdin: BinaryIO | None

    def is_one_document(self, source: str | Path) -> bool:
        """Return whether a source is a file that is one document."""
        if str(source) == STDIN or self.sql is not None or is_folder(source):
            return False
        if split_table(source)[1] is not None:
            return False
        return self.ruled_kind(source) != "" or is_document(source)

    def ruled_kind(self, source: str | Path) -> str:
        """Return the kind that a rule gives a file; empty if none does."""
        return self.rules.named_kind(Path(source).name)

    def file_id(self, source: str | Path) -> str:
        """Return the id of a file that is one document."""
        path = self.prefixes.get(str(source)) or Path(os.path.normpath(source)).as_posix()
        return normalize_name(path)


class SourceRecords:
    """Reader of the records of sources; it counts bytes, encodings and irregular rows.

    Attributes:
        meter: counts bytes that were read, and detected encodings.
        columns, misfits: see `CorpusReader`.
        id_rules: ordered set (keys) of notes on how ids were made, in order of first use.
    """

    def __init__(self, settings: SourceSettings, left_out: Counter[str]) -> None:
        self._settings = settings
        self._left_out = left_out
        self.meter = Meter()
        self.columns: dict[str, dict[str, ColumnType]] = {}
        self.misfits: dict[str, dict[str, FieldCount]] = {}
        self.id_rules: dict[str, None] = {}

    @contextmanager
    def open_files(self, sources: Sequence[str | Path]) -> Iterator[Iterator[Record]]:
        """Open several files that are one document each."""
        settings = self._settings
        for source in sources:
            self._refuse_types(str(source), "a file that is one document")
            refuse_named_fields(str(source), settings.fields)
        self.id_rules.setdefault(_FILE_ID_RULE)
        files = [
            SourceFile(
                Path(path),
                settings.file_id(path),
                str(path),
                number,
                kind=settings.ruled_kind(path),
            )
            for number, path in enumerate(sources, 1)
        ]
        members = settings.rules.member_rules(self._left_out)
        file_records = read_files(
            files, settings.fields, self.meter, settings.form.encoding, members
        )
        with closing(file_records) as records:
            yield records

    @contextmanager
    def open(self, source: str | Path) -> Iterator[Iterator[Record]]:
        """Open a folder, a table, standard input or a file of records."""
        settings = self._settings
        fields = settings.fields
        name = source_name(source)
        if str(source) == STDIN:
            stdin = settings.stdin or sys.stdin.buffer
            with open_stream(stdin, name, fields, self.meter, settings.form) as stream:
                yield self._read_records(stream, None)
        elif is_folder(source):
            self._refuse_types(name, "a folder")
            prefix = settings.prefixes.get(name)
            self.id_rules.setdefault(_FOLDER_ID_RULE if prefix is None else _NAMED_FOLDER_ID_RULE)
            folder_records = read_folder(
                Path(source),
                name,
                fields,
                self.meter,
                settings.form.encoding,
                settings.rules,
                self._left_out,
                settings.only,
                "" if prefix is None else f"{prefix}/",
            )
            with closing(folder_records) as records:
                yield records
        else:
            path, table = split_table(source)
            with open_source(path, str(path), fields, self.meter, settings.form) as file:
                yield self._read_records(file, table)

    def _read_records(self, source: OpenSource, table: str | None) -> Iterator[Record]:
        fields = self._settings.fields
        sql = self._settings.sql
        if source.format in ("csv", "tsv"):
            self.columns[source.name] = source.columns
            self.misfits[source.name] = source.misfits
        else:
            self._refuse_types(source.name, source.format)
        if source.format == "sqlite":
            return read_sqlite(source, fields, table, sql)
        if table is not None or sql is not None:
            rows = "SQL queries" if table is None else f"the table {table!r}"
            raise SourceError(
                f"{source.name}: expected a SQLite database to read {rows} from, found "
                f"{source.format}"
            )
        return _READERS[source.format](source, fields)

    def _refuse_types(self, name: str, description: str) -> None:
        if self._settings.fields.types:
            raise SourceError(
                f"{name}: expected CSV or TSV, whose columns get types with --types, "
                f"found {description}"
            )
