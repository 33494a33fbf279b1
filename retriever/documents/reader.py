"""Any number of sources as one stream of documents."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, Self, get_args

from retriever.documents.document import Assembler, ColumnType, Document, Fields, Record, content_id
from retriever.documents.file_kinds import KINDS
from retriever.documents.folder_rules import FolderRules
from retriever.documents.folders import files_below, include_advice, left_out_text
from retriever.documents.losses import Loss
from retriever.documents.report import FilesReport
from retriever.documents.source_records import (
    STDIN,
    SourceRecords,
    SourceSettings,
    is_folder,
    source_name,
)
from retriever.documents.sources import (
    FieldCount,
    SeenIds,
    TextForm,
    UnopenedError,
    file_size,
    normalize_name,
    path_on_disk,
)
from retriever.documents.tables import split_table
from retriever.errors import ConfigError, SourceError

_DETECTED_FIELDS = Fields()
_DETECTED_FORM = TextForm()
# Problems and places that the reader keeps for messages.
_LISTED_PROBLEMS = 10
# Fields that are counted by name; further ones are counted together.
_MOST_FIELDS = 100
# "skip-files" skips unreadable files of folders and messages of mailboxes, and raises for others.
OnError = Literal["fail", "skip-files", "skip"]
_BY_HASH = (
    "ids are generated from a hash of title and text: a document that changes gets a new id, and "
    "identical documents become one"
)
_BY_NUMBER = "ids are generated from the order of the records: 1, 2, 3, ..."


class CorpusReader:
    """Iterates over the documents of files, folders, databases and standard input, in order.

    A source is one of these:

    - JSON Lines, CSV, TSV, Parquet or plain text, gzipped or not: a document per record or line.
    - A folder of files of any kind in `retriever.documents.file_kinds`: a document per file,
      sorted by relative path, which is its id. With several folders an id begins with the
      folder's name.
    - Such a file alone, unless it ends in .txt: its id is its path as given.
    - A table of a SQLite database (``data.db::table``, or `sql`).
    - ``-`` for standard input, which is read only once.

    Memory does not grow with the corpus. Every iteration starts over and resets the counts.

    A record without an id gets one from its content; of equal records only the first is yielded.
    With `number_ids` an id is the number of the record, from 1 over all sources. An id that occurs
    twice is an error. A record without text and title is empty. A metadata field that no index can
    store (infinity, an integer beyond 64 bits, bytes) is left out of its document; NaN is null.

    A column of CSV or TSV has the type that all cells of its first 1,000 rows fit, or the one in
    `fields.types`. A type is string, number (without leading zeros), boolean or date. A date is in
    ISO 8601 and becomes a string that sorts by time, in UTC if it has an offset. A later cell that
    does not fit stays a string. In a folder, special files and links that lead out of it are
    skipped. No line, row or file of a folder may be longer than 64 MiB.

    Args:
        sources: one path or several.
        fields: names of the fields of id, text and title; None detects a name.
        on_error: "fail" raises at the first malformed record, and where a file or folder cannot be
            opened. "skip" counts these and continues. "skip-files" does so only below a folder or
            in a mailbox. An error that makes a whole source unusable is raised in any case.
        on_empty: "skip" counts empty records; "fail" treats them as malformed; "yield" counts them
            and yields those that have an id, so that an index drops its document.
        sql: a query whose rows are the records, for sources that are SQLite databases.
        stdin: read instead of the process's standard input.
        number_ids: generate the ids "1", "2", ... instead of hashes.
        form: encoding, and delimiter and header of CSV.
        include, exclude: patterns as in a .gitignore file, for the files of folders.
        as_kinds: kinds of files whose names do not show them, each as ``KIND=PATTERN``, such as
            ``text=*.nfo``, with a kind of `retriever.documents.file_kinds`; of several the last
            that matches counts.
        archives: read the members of zip and tar files, whose ids are ``archive.zip!path``.
        prefixes: by source, the prefix of the ids of a folder, or the id of a file that is one
            document; None for the rules above.
        only: relative paths of the files of folders to read; None for all.

    Attributes:
        total_bytes: sum of the sizes on disk; None if unknown, as for standard input or a query.
        skipped, problems: number of malformed records, and of files and folders not read so far,
            and messages of the first 10.
        unread: skipped files that are one document or below a folder: source and file, as in
            `PlacedDocument`, and the reason.
        empty, empty_at: number of empty records, and places of the first 10.
        duplicates: number of records skipped because an earlier one has the same content.
        files: the files of folders, and files that are one document, by outcome.
        files_left_out: `files.left_out`.
        left_out: for each metadata field that could not be stored, the number of documents
            (`records`), and the place and fault of the first one (`first`).
        columns: for each CSV and TSV source, the types of its metadata columns.
        misfits: for each CSV and TSV source, the columns with cells that do not have their type,
            as in `left_out`.

    Raises:
        SourceError: on construction, a source does not exist; while iterating, one is unusable.
            The message begins with the file and, if known, the line.
        ConfigError: an argument has an unknown value.
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
        as_kinds: Sequence[str] = (),
        archives: bool = False,
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
        self._on_error = on_error
        self._on_empty = on_empty
        self._number_ids = number_ids
        self._settings = SourceSettings(
            fields,
            form,
            FolderRules(tuple(include), tuple(exclude), tuple(as_kinds), archives),
            _folder_prefixes(self._sources) if prefixes is None else prefixes,
            only,
            sql,
            stdin,
        )
        self.total_bytes: int | None = None
        if only is None:
            sizes = _total_bytes(self._sources, self._settings.rules, on_error)
            self.total_bytes = sizes if sql is None else None
        # The documents from the first one on, if some were read ahead.
        self._resumed: Iterator[PlacedDocument] | None = None
        self._reset()

    def _reset(self) -> None:
        self._records = 0
        self._unopened = 0
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
        self._source_records = SourceRecords(self._settings, self.files.left_out)
        self.columns = self._source_records.columns
        self.misfits = self._source_records.misfits

    @property
    def sources(self) -> list[str]:
        """The sources, in order."""
        return [str(source) for source in self._sources]

    def options(self, source: str) -> dict[str, Any]:
        """Return how a source is read, as JSON values, for `again`."""
        settings = self._settings
        is_file = settings.is_one_document(source)
        return {
            "on_error": self._on_error,
            "sql": settings.sql,
            **asdict(settings.rules),
            "fields": asdict(settings.fields),
            "form": asdict(settings.form),
            "prefix": settings.file_id(source) if is_file else settings.prefixes.get(source),
        }

    @classmethod
    def again(cls, path: str, options: Mapping[str, Any], only: Container[str]) -> Self:
        """Read a source, now an absolute path, as before; of a folder only the files in `only`."""
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
        return self._source_records.meter.bytes

    @property
    def recoded(self) -> dict[str, FieldCount]:
        """The sources and files so far by their detected encoding, if it is not UTF-8."""
        return self._source_records.meter.recoded

    @property
    def generated_ids(self) -> str | None:
        """How ids were generated so far, in one sentence; None while all came from the data."""
        return "; ".join(self._source_records.id_rules) or None

    def metadata_warnings(self) -> Iterator[str]:
        """Yield warnings on the metadata so far, a line each."""
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

    def read_ahead(self, is_enough: Callable[[Document], bool]) -> None:
        """Read the first documents, until there are enough; the next iteration yields them too.

        That iteration reads files again, since they may change, but no standard input or pipe.
        """
        stream = self._read_placed()
        ahead = []
        for placed in stream:
            ahead.append(placed)
            if not placed.is_repeated and is_enough(placed.document):
                break
        # The size of standard input and of pipes is unknown.
        if self.total_bytes is None:
            self._resumed = chain(ahead, stream)

    def placed(self) -> Iterator[PlacedDocument]:
        """Yield the documents with the source and file of each, repetitions included."""
        stream = self._resumed or self._read_placed()
        self._resumed = None
        yield from stream

    def _read_placed(self) -> Iterator[PlacedDocument]:
        """Read all sources from the beginning."""
        self._reset()
        with closing(SeenIds()) as given_ids, closing(SeenIds()) as generated_ids:
            for are_files, group in groupby(self._sources, self._settings.is_one_document):
                for sources in [list(group)] if are_files else [[source] for source in group]:
                    yield from self._read_documents(sources, are_files, given_ids, generated_ids)
        if not self._records and self.skipped and self._settings.only is None:
            raise SourceError(self.problems[0])

    def _read_documents(
        self, sources: list[str | Path], are_files: bool, given_ids: SeenIds, generated_ids: SeenIds
    ) -> Iterator[PlacedDocument]:
        """Yield the documents of a source, or of several files that are one document each."""
        assembler = Assembler(self._settings.fields, self._leave_out)
        records_before = self._records
        skipped_before = self.skipped
        records_of = self._source_records
        opening = records_of.open_files(sources) if are_files else records_of.open(sources[0])
        in_folder = not are_files and is_folder(sources[0])
        # A refresh treats a single file like the files of a folder.
        by_file = self._on_error == "skip-files"
        skips = self._on_error == "skip" or (
            by_file and (in_folder or (are_files and self._settings.only is not None))
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
                        if are_files or in_folder:
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
        if not (is_read or are_files) and self._settings.only is None:
            raise SourceError(
                f"{source_name(sources[0])}: holds no records; check that it is the right file"
            )

    def _assemble(
        self, record: Record, assembler: Assembler, given_ids: SeenIds, generated_ids: SeenIds
    ) -> tuple[Document, bool] | None:
        """Return the document of a record and whether it repeats another; None if it is empty."""
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
            self._source_records.id_rules.setdefault(_BY_NUMBER if self._number_ids else _BY_HASH)
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


class PlacedDocument(NamedTuple):
    """A document, its source, and its file below the source if that is a folder."""

    source: str | Path
    file: str
    document: Document
    # Whether an earlier record without an id has the same content.
    is_repeated: bool
    # Kind of the file, as in `KINDS`, and its losses.
    kind: str = ""
    losses: tuple[Loss, ...] = ()


def _folder_prefixes(sources: Sequence[str | Path]) -> dict[str, str]:
    """Return the prefixes of the ids of folders; none if there is at most one folder."""
    prefixes: dict[str, str] = {}
    for source in sources:
        if is_folder(source):
            # The name of "." or ".." is that of the folder itself.
            prefix = normalize_name(os.path.basename(os.path.abspath(source)))
            for other, other_prefix in prefixes.items():
                if prefix == other_prefix:
                    raise SourceError(
                        f"{source}: has the same name as {other}, so ids of their documents could "
                        "be equal; give the folder above them, or rename one of the two"
                    )
            prefixes[str(source)] = prefix
    return prefixes if len(prefixes) > 1 else {}


def _total_bytes(
    sources: Sequence[str | Path], rules: FolderRules, on_error: OnError
) -> int | None:
    """Return the sum of the sizes on disk, without skipped sources."""
    sizes: list[int | None] = []
    faults = []
    for source in sources:
        try:
            sizes.append(_source_size(source, rules, lenient=on_error != "fail"))
        except UnopenedError as error:
            if on_error != "skip":
                raise
            faults.append(error)
    if faults and not sizes:
        raise faults[-1]
    return None if None in sizes else sum(filter(None, sizes))


def _source_size(source: str | Path, rules: FolderRules, *, lenient: bool) -> int | None:
    if str(source) == STDIN:
        return None
    if not is_folder(source):
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
