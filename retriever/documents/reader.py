"""Any number of sources as one stream of documents."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, Self, get_args

from retriever.documents.document import Assembler, ColumnType, Document, Fields, Record, content_id
from retriever.documents.files import KINDS, SourceFile, is_document, read_files
from retriever.documents.folders import (
    FolderRules,
    files_below,
    include_advice,
    left_out_text,
    read_folder,
)
from retriever.documents.losses import Loss
from retriever.documents.report import FilesReport
from retriever.documents.sources import (
    FieldCount,
    Format,
    Meter,
    OpenSource,
    SeenIds,
    TextForm,
    UnopenedError,
    file_size,
    normalize_name,
    open_source,
    open_stream,
    path_on_disk,
)
from retriever.documents.tables import read_parquet, read_sqlite, split_table
from retriever.documents.text import read_csv, read_jsonl, read_lines, read_tsv, refuse_named_fields
from retriever.errors import ConfigError, SourceError

_STDIN = "-"
_DETECTED_FIELDS = Fields()
_DETECTED_FORM = TextForm()
_LISTED_PROBLEMS = 10
# Fields that are counted by their names; of more, only the sum is known.
_MOST_FIELDS = 100
# "skip-files" skips unreadable files of folders and messages of mailboxes, else raises.
OnError = Literal["fail", "skip-files", "skip"]
_READERS: dict[Format, Callable[[OpenSource, Fields], Iterator[Record]]] = {
    "jsonl": read_jsonl,
    "csv": read_csv,
    "tsv": read_tsv,
    "parquet": read_parquet,
    "lines": read_lines,
}
_BY_HASH = (
    "ids are generated from a hash of title and text: a document that changes gets a new id, and "
    "identical documents become one"
)
_BY_NUMBER = "ids are generated from the order of the records: 1, 2, 3, ..."
_BY_PATH = "ids are the paths relative to the folder"
_BY_GIVEN_PATH = "ids of files that are one document are their paths as given"
_BY_NAME_AND_PATH = "ids are the names of the folders with the paths below them"


class CorpusReader:
    """Iterates over the documents of files, folders, databases and standard input, in order.

    A source is one of these:

    - JSON Lines, CSV, TSV, Parquet or plain text, gzipped or not: a document per record or line.
    - A folder of files of any kind in `retriever.documents.files`: a document per file, sorted by
      relative path, which is its id. With several folders an id begins with the folder's name.
    - Such a file alone, unless it ends in .txt: its id is its path as given.
    - A table of a SQLite database (``data.db::table``, or `sql`).
    - ``-`` for standard input, which is read only once.

    Memory does not grow with the corpus. Every iteration starts over and resets the counts.

    A source without ids gets them from the content of each record; the first of equal records is
    yielded. With `number_ids` an id is the number of the record, from 1 over all sources.
    An id that occurs twice is an error. A record without text and title is empty. A field of
    metadata that no index can store (infinity, an integer beyond 64 bits, bytes) is left out of its
    document; NaN is null.

    A column of CSV or TSV has the type that all cells of its first 1,000 rows fit, or the one in
    `fields.types`. A type is string, number (without leading zeros), boolean or date. A date is in
    ISO 8601 and becomes a string that sorts by time, in UTC if it has an offset. A later cell that
    does not fit stays a string. In a folder, special files and links that lead out of it are passed
    over. No line, row or file of a folder may be longer than 64 MiB.

    Args:
        sources: one path or several.
        fields: names of the fields of id, text and title; None detects a name.
        on_error: "fail" raises at the first malformed record, and where a file or folder cannot be
            opened. "skip" counts these and continues. "skip-files" does so for what cannot be read
            below a folder or in a mailbox. What makes a whole source unusable is raised in any
            case.
        on_empty: "skip" counts empty records; "fail" treats them as malformed; "yield" counts them
            and yields those that have an id, so that an index drops its document.
        sql: a query whose rows are the records, for sources that are SQLite databases.
        stdin: read instead of the process's standard input.
        number_ids: generate the ids "1", "2", ... instead of hashes.
        form: encoding, and delimiter and header of CSV.
        include, exclude: patterns as in a .gitignore file, for the files of folders.
        prefixes: what the ids of each folder begin with, by the source, and the ids of files that
            are one document; None for the rules above.
        only: of folders, the relative paths of the files to read; None for all.

    Attributes:
        total_bytes: sum of the sizes on disk; None if unknown, as of standard input or a query.
        skipped, problems: number of malformed records, and of files and folders not read so far,
            and messages of the first 10.
        unread: of the files that are one document or below a folder, those that were skipped,
            each with its source, as in `PlacedDocument`, and the reason.
        empty, empty_at: number of empty records, and places of the first 10.
        duplicates: number of records skipped because an earlier one has the same content.
        files: the files of folders, and files that are one document, by what became of them.
        files_left_out: `files.left_out`.
        left_out: for each field of metadata that could not be stored, the number of documents
            (`records`) and the place of the first one with what is wrong there (`first`).
        columns: for each CSV and TSV source, the types of its metadata columns.
        misfits: likewise, the columns with cells that do not have their type, as in `left_out`.

    Raises:
        SourceError: on construction, a source does not exist; while iterating, one is unusable.
            The message begins with the file and, if known, the line.
        ConfigError: an argument has none of the values above.
        MissingExtraError: while iterating, Parquet without pyarrow.
        StorageError: while iterating, the disk for temporary files is full.
    """

    def __init__(
        self,
        sources: str | Path | Sequence[str | Path],
        fields: Fields = _DETECTED_FIELDS,
        *,
        on_error: OnError = "fail",
        on_empty: Literal["skip", "fail", "yield"] = "skip",
        sql: str | None = None,
        stdin: BinaryIO | None = None,
        number_ids: bool = False,
        form: TextForm = _DETECTED_FORM,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        prefixes: Mapping[str, str] | None = None,
        only: Container[str] | None = None,
    ) -> None:
        if on_error not in get_args(OnError):
            raise ConfigError(f"on_error is {on_error!r}, expected one of {get_args(OnError)}")
        if on_empty not in ("fail", "skip", "yield"):
            raise ConfigError(f"on_empty is {on_empty!r}, expected 'fail', 'skip' or 'yield'")
        paths = [sources] if isinstance(sources, str | Path) else list(sources)
        self._sources = [*map(path_on_disk, paths)]
        if not self._sources:
            raise SourceError("no source was given; name a file, a folder or - for standard input")
        self._fields = fields
        self._on_error = on_error
        self._on_empty = on_empty
        self._sql = sql
        self._stdin = stdin
        self._number_ids = number_ids
        self._form = form
        self._rules = FolderRules(tuple(include), tuple(exclude))
        self._prefixes = _folder_prefixes(self._sources) if prefixes is None else prefixes
        self._only = only
        self.total_bytes: int | None = None
        if only is None:
            sizes = _total_bytes(self._sources, self._rules, on_error)
            self.total_bytes = sizes if sql is None else None
        self._reset()

    def _reset(self) -> None:
        self._meter = Meter()
        self._records = self._unopened = 0
        # In their order; the values are None.
        self._generated_how: dict[str, None] = {}
        self.skipped = 0
        self.problems: list[str] = []
        self.unread: list[tuple[str | Path, str, str]] = []
        self.empty = 0
        self.empty_at: list[str] = []
        self.duplicates = 0
        self.files = FilesReport()
        self.files_left_out = self.files.left_out
        self._last_file: tuple[str | Path, str] | None = None
        self.left_out: dict[str, FieldCount] = {}
        self.columns: dict[str, dict[str, ColumnType]] = {}
        self.misfits: dict[str, dict[str, FieldCount]] = {}

    @property
    def sources(self) -> list[str]:
        """The sources, in order."""
        return [str(source) for source in self._sources]

    def options(self, source: str) -> dict[str, Any]:
        """How a source is read, as JSON values, for `again`."""
        prefix = self._file_id(source) if self._is_file(source) else self._prefixes.get(source)
        named = {"fields": asdict(self._fields), "form": asdict(self._form), "prefix": prefix}
        return {"on_error": self._on_error, "sql": self._sql, **asdict(self._rules), **named}

    @classmethod
    def again(cls, path: str, options: Mapping[str, Any], only: Container[str]) -> Self:
        """Reads a source, an absolute path now, as before; of a folder these files alone."""
        arguments = dict(options)
        fields = Fields(**arguments.pop("fields"))
        form = TextForm(**arguments.pop("form"))
        prefixes = {path: prefix} if (prefix := arguments.pop("prefix")) is not None else {}
        return cls(
            [path], fields, form=form, prefixes=prefixes, only=only, on_empty="yield", **arguments
        )

    @property
    def bytes_read(self) -> int:
        """Number of bytes read so far from disk (before decompression) or standard input."""
        return self._meter.bytes

    @property
    def recoded(self) -> dict[str, FieldCount]:
        """By encoding, the sources and files so far that were found to be in it, and not UTF-8."""
        return self._meter.recoded

    @property
    def generated_ids(self) -> str | None:
        """How ids were generated so far, in one sentence; None while all came from the data."""
        return "; ".join(self._generated_how) or None

    def metadata_warnings(self) -> Iterator[str]:
        """What a user should know of the metadata so far, a line each."""
        types: dict[str, dict[ColumnType, str]] = {}
        for source, columns in self.columns.items():
            for name, kind in columns.items():
                types.setdefault(name, {}).setdefault(kind, source)
                if (misfit := self.misfits[source].get(name)) is not None:
                    yield (
                        f"{source}: column {name!r} of type {kind}: cells that do not fit and stay "
                        f"text: {misfit.records:,}, the first at {misfit.first}; --types "
                        f"{name}=string makes all of them text"
                    )
        for name, sources in types.items():
            if len(sources) > 1:
                by_type = ", ".join(f"{kind} in {source}" for kind, source in sources.items())
                yield f"the column {name!r} is {by_type}; give it one type with --types {name}=TYPE"
        for name, count in self.left_out.items():
            documents = "document" if count.records == 1 else "documents"
            yield (
                f"the field {name!r} left out of {count.records:,} {documents}, the first at "
                f"{count.first}"
            )

    def __iter__(self) -> Iterator[Document]:
        return (placed.document for placed in self.placed() if not placed.is_repeated)

    def placed(self) -> Iterator[PlacedDocument]:
        """The documents with the source and the file that each is from, repetitions too."""
        self._reset()
        with closing(SeenIds()) as given_ids, closing(SeenIds()) as generated_ids:
            for are_files, group in groupby(self._sources, self._is_file):
                for sources in [list(group)] if are_files else [[one] for one in group]:
                    yield from self._read_documents(sources, are_files, given_ids, generated_ids)
        if not self._records and self.skipped and self._only is None:
            raise SourceError(self.problems[0])

    def _read_documents(
        self, sources: list[str | Path], are_files: bool, given_ids: SeenIds, generated_ids: SeenIds
    ) -> Iterator[PlacedDocument]:
        """The documents of a source, or of several files that are one document each."""
        assembler = Assembler(self._fields, self._leave_out)
        records_before = self._records
        skipped_before = self.skipped
        opening = self._files(sources) if are_files else self._open(sources[0])
        is_folder = not are_files and _is_folder(sources[0])
        # A refresh reads a file that is a document as it reads those of a folder.
        by_file = self._on_error == "skip-files"
        skips = self._on_error == "skip" or (
            by_file and (is_folder or (are_files and self._only is not None))
        )
        try:
            with opening as records:
                for record in records:
                    source = sources[record.number - 1 if are_files else 0]
                    self._records += 1
                    try:
                        assembled = self._assemble(record, assembler, given_ids, generated_ids)
                    except SourceError as error:
                        if not (skips or record.passed_over or (by_file and record.is_part)):
                            raise
                        self._skip(str(error))
                        if are_files or is_folder:
                            self._records -= 1
                            self.unread.append((source, record.file, str(error)))
                            self.files.skipped += not record.is_part
                        continue
                    if record.kind:
                        self._count_file(source, record, assembled)
                    if assembled is not None:
                        yield PlacedDocument(
                            source, record.file, *assembled, record.kind, record.losses
                        )
        except UnopenedError as error:
            self._unopened += 1
            if self._on_error != "skip" or self._unopened == len(self._sources):
                raise
            self._skip(str(error))
            return
        is_read = self._records > records_before or self.skipped > skipped_before
        if not (is_read or are_files) and self._only is None:
            raise SourceError(
                f"{_name(sources[0])}: holds no records; check that it is the right file"
            )

    def _assemble(
        self, record: Record, assembler: Assembler, given_ids: SeenIds, generated_ids: SeenIds
    ) -> tuple[Document, bool] | None:
        """The document of a record, and whether it repeats another; None if it is left out."""
        document = assembler.assemble(record)
        if document.is_empty:
            if self._on_empty == "fail":
                raise SourceError(f"{record.where}: expected a text or a title, found neither")
            self.empty += 1
            if len(self.empty_at) < _LISTED_PROBLEMS:
                self.empty_at.append(record.where)
            if not document.id or self._on_empty != "yield":
                return None
        if not document.id:
            self._generated_how.setdefault(_BY_NUMBER if self._number_ids else _BY_HASH)
            if self._number_ids:
                return replace(document, id=str(self._records)), False
        identified = (given_ids if document.id else generated_ids).identify(document, record.where)
        if identified is not None:
            return identified, False
        self.duplicates += 1
        return replace(document, id=content_id(document.title, document.text)), True

    def _count_file(
        self, source: str | Path, record: Record, result: tuple[Document, bool] | None
    ) -> None:
        """Count a file that was read, and a document of one that was read in part."""
        if self._last_file != (source, record.file):
            self._last_file = (source, record.file)
            self.files.read[KINDS[record.kind].label] += 1
        self.files.without_text += result is None or result[0].is_empty
        if record.losses:
            self.files.add_losses(record.where, record.losses)

    def _skip(self, problem: str) -> None:
        self.skipped += 1
        if len(self.problems) < _LISTED_PROBLEMS:
            self.problems.append(problem)

    def _leave_out(self, where: str, name: str, fault: str) -> None:
        if name not in self.left_out and len(self.left_out) >= _MOST_FIELDS:
            name = "(other fields)"
        FieldCount.add(self.left_out, name, f"{where}: {fault}")

    def _is_file(self, source: str | Path) -> bool:
        """Whether a source is a file that is one document."""
        if str(source) == _STDIN or self._sql is not None or _is_folder(source):
            return False
        return split_table(source)[1] is None and is_document(source)

    def _file_id(self, source: str | Path) -> str:
        named = self._prefixes.get(str(source)) or Path(os.path.normpath(source)).as_posix()
        return normalize_name(named)

    @contextmanager
    def _files(self, sources: Sequence[str | Path]) -> Iterator[Iterator[Record]]:
        for source in sources:
            self._refuse_types(str(source), "a file that is one document")
            refuse_named_fields(str(source), self._fields)
        self._generated_how.setdefault(_BY_GIVEN_PATH)
        files = [
            SourceFile(Path(path), self._file_id(path), str(path), number)
            for number, path in enumerate(sources, 1)
        ]
        with closing(read_files(files, self._fields, self._meter, self._form.encoding)) as records:
            yield records

    @contextmanager
    def _open(self, source: str | Path) -> Iterator[Iterator[Record]]:
        name = _name(source)
        fields = self._fields
        if str(source) == _STDIN:
            stdin = self._stdin or sys.stdin.buffer
            with open_stream(stdin, name, fields, self._meter, self._form) as stream:
                yield self._read_records(stream, None)
        elif _is_folder(source):
            self._refuse_types(name, "a folder")
            prefix = self._prefixes.get(name)
            self._generated_how.setdefault(_BY_PATH if prefix is None else _BY_NAME_AND_PATH)
            reading = read_folder(
                Path(source),
                name,
                fields,
                self._meter,
                self._form.encoding,
                self._rules,
                self.files_left_out,
                self._only,
                "" if prefix is None else f"{prefix}/",
            )
            with closing(reading) as records:
                yield records
        else:
            path, table = split_table(source)
            with open_source(path, str(path), fields, self._meter, self._form) as file:
                yield self._read_records(file, table)

    def _read_records(self, source: OpenSource, table: str | None) -> Iterator[Record]:
        if source.format in ("csv", "tsv"):
            self.columns[source.name], self.misfits[source.name] = source.columns, source.misfits
        else:
            self._refuse_types(source.name, source.format)
        if source.format == "sqlite":
            return read_sqlite(source, self._fields, table, self._sql)
        if table is not None or self._sql is not None:
            rows = "SQL queries" if table is None else f"the table {table!r}"
            raise SourceError(
                f"{source.name}: expected a SQLite database to read {rows} from, found "
                f"{source.format}"
            )
        return _READERS[source.format](source, self._fields)

    def _refuse_types(self, name: str, description: str) -> None:
        if self._fields.types:
            raise SourceError(
                f"{name}: expected CSV or TSV, whose columns get types with --types, "
                f"found {description}"
            )


class PlacedDocument(NamedTuple):
    """A document, the source that holds it, and the file below that if it is a folder."""

    source: str | Path
    file: str
    document: Document
    # An earlier record without an id has the same content.
    is_repeated: bool
    # Of a file: its kind, as in `KINDS`, and its losses.
    kind: str = ""
    losses: tuple[Loss, ...] = ()


def _name(source: str | Path) -> str:
    return "stdin" if str(source) == _STDIN else str(source)


def _is_folder(source: str | Path) -> bool:
    return str(source) != _STDIN and os.path.isdir(source)


def _folder_prefixes(sources: Sequence[str | Path]) -> dict[str, str]:
    """What the ids of each folder begin with; nothing where there is one folder at most."""
    prefixes: dict[str, str] = {}
    for source in sources:
        if _is_folder(source):
            # Where the name is "." or "..", it is the folder's own.
            prefix = normalize_name(os.path.basename(os.path.abspath(source)))
            for other, other_prefix in prefixes.items():
                if prefix == other_prefix:
                    raise SourceError(
                        f"{source}: has the same name as {other}, and of several folders an id "
                        "begins with the name; give the folder above them, or rename one"
                    )
            prefixes[str(source)] = prefix
    return prefixes if len(prefixes) > 1 else {}


def _total_bytes(
    sources: Sequence[str | Path], rules: FolderRules, on_error: OnError
) -> int | None:
    """The sum of the sizes on disk, without what cannot be opened and is skipped."""
    sizes: list[int | None] = []
    faults = []
    for source in sources:
        try:
            sizes.append(_size(source, rules, lenient=on_error != "fail"))
        except UnopenedError as error:
            if on_error != "skip":
                raise
            faults.append(error)
    if faults and not sizes:
        raise faults[-1]
    return None if None in sizes else sum(filter(None, sizes))


def _size(source: str | Path, rules: FolderRules, *, lenient: bool) -> int | None:
    if str(source) == _STDIN:
        return None
    if not _is_folder(source):
        return file_size(split_table(source)[0])
    size = 0
    is_empty = True
    left_out: Counter[str] = Counter()
    for entry in files_below(Path(source), rules, left_out):
        is_empty = False
        try:
            if entry.fault is None:
                size += file_size(Path(source, entry.path)) or 0
            elif not entry.passed_over:
                raise UnopenedError(f"{Path(source, entry.path)}: {entry.fault}")
        except UnopenedError:
            if not lenient:
                raise
    if is_empty:
        reasons = f" (left out: {left_out_text(left_out)})" if left_out else ""
        advice = include_advice(left_out)
        if rules.include and left_out["excluded"]:
            advice += "; check the patterns of --include"
        raise SourceError(
            f"{source}: the folder holds no file of a kind that is read{reasons}{advice}"
        )
    return size
