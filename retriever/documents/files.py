"""The reading of files that are documents, a few of them ahead."""

from __future__ import annotations

import os
import unicodedata
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from retriever.documents.dates import file_time
from retriever.documents.decoding import byte_losses, decode, encoding_fault
from retriever.documents.document import Fields, Json, Record
from retriever.documents.file_heads import HEAD, is_binary, is_private_key
from retriever.documents.file_kinds import (
    KINDS,
    conversion_advice,
    is_unread_kind,
    kind_by_content,
    kind_of,
)
from retriever.documents.kinds import Attachment, Parsed, PassedOverError, one_line
from retriever.documents.kinds.mail import messages
from retriever.documents.members import MemberRules, read_members
from retriever.documents.ocr import ocr_command
from retriever.documents.outline import Mark
from retriever.documents.processes import ReadingProcesses, parse_file
from retriever.documents.sources import (
    LONGEST,
    NUL_FAULT,
    TOO_LONG,
    FieldCount,
    Meter,
    base_name,
    decode_fault,
    open_bytes,
)
from retriever.errors import MissingExtraError, SourceError, require_extra

# Metadata fields, in lower case, whose values are keywords of a document.
_KEYWORDS = frozenset(
    "alias aliases categories category keyword keywords tag tags".split()  # noqa: SIM905
)
# Maximum length of a label in characters; longer text is no name.
_LONGEST_LABEL = 1000
# Maximum size in bytes of a file that is not text.
LONGEST_FILE = 1 << 28
_TOO_LARGE = f"larger than {LONGEST_FILE >> 20} MiB; split it"
# Maximum number of files that are read ahead, and of their bytes.
_AHEAD = 16
_AHEAD_BYTES = 1 << 25
# The number of bytes of a file that is read ahead, and the call that returns its records.
_PendingRecords = tuple[int, Callable[[], Iterable[Record]]]


class SourceFile(NamedTuple):
    """A file to read, or a part of one: its path, the id of its document, and its place."""

    path: Path
    id: str
    where: str
    number: int
    file: str = ""
    is_part: bool = False
    # The kind that a rule gives it, if any; once it is opened, the kind by its content.
    kind: str = ""
    # The time of the last change, once it is opened.
    modified: str | None = None
    # Path of a member of an archive, or name of an attachment.
    member: str = ""

    def part(self, name: str) -> SourceFile:
        """Return a member or an attachment, whose id is that of the file, `!` and the name."""
        return self._replace(
            id=f"{self.id}!{name}",
            where=f"{self.where}!{name}",
            is_part=True,
            member=f"{self.member}/{name}" if self.member else name,
        )


def read_files(
    files: Iterable[SourceFile | Record],
    fields: Fields,
    meter: Meter,
    encoding: str | None,
    members: MemberRules,
) -> Generator[Record, None, None]:
    """Yield the documents of files in order, reading ahead.

    Records among the files are passed through. `members` has the rules for files in archives.
    """
    # Refuses a command for scans that cannot run, before anything is read.
    ocr_command()
    with closing(ReadingProcesses()) as processes:
        reader = _FileReader(fields, meter, encoding, processes, members)
        pending_records = chain.from_iterable(map(reader.begin, files))
        ahead: deque[_PendingRecords] = deque()
        waiting = 0
        while True:
            while (
                len(ahead) < _AHEAD
                and waiting < _AHEAD_BYTES
                and (pending := next(pending_records, None))
            ):
                ahead.append(pending)
                waiting += pending[0]
            if not ahead:
                return
            size, finish = ahead.popleft()
            waiting -= size
            yield from finish()


class _FileReader:
    """Begins to read files and turns their content into records."""

    def __init__(
        self,
        fields: Fields,
        meter: Meter,
        encoding: str | None,
        processes: ReadingProcesses,
        members: MemberRules,
    ) -> None:
        self._text_name = fields.text or "text"
        self._meter = meter
        self._encoding = encoding
        self._processes = processes
        self._members = members

    def begin(self, file: SourceFile | Record) -> Iterator[_PendingRecords]:
        """Begin to read a file, and yield its pending records, one call a document."""
        if isinstance(file, Record):
            record = file
            yield 0, lambda: [record]
            return
        try:
            with open_bytes(file.path, file.where, self._meter) as stream:
                file = file._replace(modified=file_time(file.path.stat().st_mtime_ns))
                kind = file.kind or kind_of(file.path, stream.peek(HEAD)[:HEAD])
                if kind == "mbox":
                    yield from self._begin_messages(file, stream)
                    return
                if kind == "archive":
                    yield from self._begin_members(file)
                    return
                content = stream.read(LONGEST_FILE + 1)
            yield self._begin_document(file, kind, content)
        except SourceError as error:
            yield 0, partial(self._failed_records, file, error)

    def _begin_messages(self, file: SourceFile, stream: BinaryIO) -> Iterator[_PendingRecords]:
        """Begin to read the messages of a mailbox."""
        for number, message in enumerate(messages(stream, LONGEST_FILE), 1):
            part = file._replace(
                id=f"{file.id}#{number}",
                where=f"{file.where}#{number}",
                is_part=True,
                kind="mbox",
                # A message has a date of its own, and another message changes this time.
                modified=None,
            )
            if len(message) > LONGEST_FILE:
                yield 0, partial(self._failed_records, part, SourceError(_TOO_LARGE))
                continue
            parser = self._parser("mail", message)
            yield len(message), partial(self._finished_records, part, parser)

    def _begin_members(self, file: SourceFile) -> Iterator[_PendingRecords]:
        """Begin to read the members of an archive."""
        for member in read_members(file.path, *self._members):
            part = file.part(member.name) if member.name else file._replace(is_part=True)
            part = part._replace(modified=member.modified)
            try:
                if member.fault:
                    raise SourceError(member.fault)
                yield self._begin_document(part, member.kind, member.content)
            except SourceError as error:
                yield 0, partial(self._failed_records, part, error)
        self._meter.bytes += file.path.stat().st_size

    def _begin_document(
        self, file: SourceFile, named_kind: str | None, content: bytes
    ) -> _PendingRecords:
        """Begin to read the bytes of a file, whose name or head shows a kind or none.

        A file of no kind was named by a pattern, and is read as text.
        """
        kind = kind_by_content(named_kind or "text", content)
        if kind == "text" and is_unread_kind(content):
            advice = conversion_advice(Path(file.member or file.path))
            raise SourceError(f"of a kind that is not read; {advice}")
        if (
            named_kind is not None
            and file.file
            and file.kind in ("", "archive")
            and is_private_key(content[:HEAD])
        ):
            raise PassedOverError("a private key, which a folder leaves out")
        is_unknown = named_kind is None and kind == "text" and self._encoding is None
        if is_unknown and is_binary(content[:HEAD]):
            raise SourceError("a binary file, not text; leave it out with --exclude")
        if len(content) > (LONGEST if KINDS[kind].is_text else LONGEST_FILE):
            raise SourceError(TOO_LONG if KINDS[kind].is_text else _TOO_LARGE)
        name = base_name(file.member or file.path.name)
        parser = self._parser(kind, content, os.path.splitext(name)[1])
        # The kind of a part is that of the whole file.
        whole = file if file.is_part else file._replace(kind=kind)
        return len(content), partial(self._finished_records, whole, parser)

    def _parser(self, kind: str, content: bytes, suffix: str = "") -> Callable[[], Parsed]:
        """Return a call that gives the content of a file; `suffix` tells the language of code.

        A process begins to read the file unless it is text. Raises PassedOverError where a library
        is not installed.
        """
        label, _, reader, needs, is_text, _ = KINDS[kind]
        if not content or content.isspace():
            return lambda: Parsed("")
        if is_text:
            arguments = (suffix,) if kind == "code" else ()
            return partial(self._parse_text, reader, content, *arguments)
        try:
            require_extra("documents", f"reading {label} files", *needs)
        except MissingExtraError as error:
            raise PassedOverError(str(error)) from error
        encoding = self._encoding if kind == "html" else None
        return self._processes.read(reader, content, encoding).result

    def _parse_text(self, reader: str, content: bytes, *arguments: str) -> Parsed:
        decoded = decode(content, self._encoding)
        if (place := decoded.text.find("\0")) >= 0:
            raise _LineError(decoded.text.count("\n", 0, place) + 1, NUL_FAULT)
        result = parse_file(reader, decoded.text, *arguments)
        encoding = decoded.encoding if decoded.is_detected else None
        return result._replace(losses=result.losses + byte_losses([decoded]), encoding=encoding)

    def _finished_records(self, file: SourceFile, parser: Callable[[], Parsed]) -> Iterator[Record]:
        """Yield the record of a file and those of its attachments, once it is parsed."""
        attachments: list[Attachment] = []

        def parse() -> Parsed:
            parsed = parser()
            attachments.extend(parsed.attachments)
            return parsed

        record = self._finished_record(file, parse)
        # A copy, since a reader takes the values out.
        mail = dict(record.values)
        yield record
        for attachment in attachments:
            yield from self._attachment_records(file, mail, attachment)

    def _attachment_records(
        self, file: SourceFile, mail: Mapping[str, Any], attachment: Attachment
    ) -> Iterator[Record]:
        """Yield the record of an attachment, if it is of a kind that is read.

        `mail` has the values of the mail, of which the sender, date and subject describe it too.
        """
        part = file.part(attachment.name)
        kind = kind_of(attachment.name.lower(), attachment.content[:HEAD])
        if kind is None or kind == "mbox":
            return
        try:
            _, finish = self._begin_document(part, kind, attachment.content)
        except SourceError as error:
            yield self._failed_record(part, error)
            return
        shared = {name: mail[name] for name in ("from", "date") if name in mail}
        subject = one_line(mail.get("title"))[:_LONGEST_LABEL]
        labels = (Mark(0, "label", subject),) if subject else ()
        for record in finish():
            if record.fault is not None:
                yield record
                continue
            values = {**shared, **record.values}
            yield record._replace(values=values, outline=(*labels, *record.outline))

    def _failed_records(self, file: SourceFile, error: SourceError) -> Iterator[Record]:
        """Yield the record of a file that cannot be read."""
        yield self._failed_record(file, error)

    def _finished_record(self, file: SourceFile, parser: Callable[[], Parsed]) -> Record:
        try:
            file.id.encode()
        except UnicodeEncodeError:
            place = file._replace(where=ascii(file.where))
            return self._failed_record(
                place, SourceError("the file's name is not UTF-8; rename it")
            )
        try:
            text, title, metadata, outline, losses, encoding, _ = parser()
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            fault = encoding_fault(self._encoding, error) if self._encoding else decode_fault(error)
            return self._failed_record(file, _LineError(line, fault))
        except SourceError as error:
            return self._failed_record(file, error)
        if encoding is not None:
            FieldCount.add(self._meter.recoded, encoding, file.where)
        outline = (*_label_marks(file, metadata), *outline)
        values = {**metadata, "id": file.id, "title": title, self._text_name: text}
        if file.modified is not None:
            # What the document itself says is its own.
            values.setdefault("modified", file.modified)
        return Record(
            file.number,
            file.where,
            values,
            outline=outline,
            file=file.file,
            kind=file.kind,
            losses=losses,
        )

    def _failed_record(self, file: SourceFile, error: SourceError) -> Record:
        where = f"{file.where}:{error.line}" if isinstance(error, _LineError) else file.where
        reason = str(error).removeprefix(f"{file.where}: ")
        passed_over = isinstance(error, PassedOverError)
        return Record(file.number, where, {}, reason, passed_over, file.is_part, file=file.file)


def _label_marks(file: SourceFile, metadata: Mapping[str, Json]) -> Iterator[Mark]:
    """Yield the labels of a file: its path below the source, and its keywords.

    The path has no known suffix.
    """
    path = file.file or file.path.name
    path = f"{path}/{file.member}" if file.member else path
    # A mail of a Maildir may have no suffix.
    while kind_of(path) is not None and os.path.splitext(path)[1]:
        path = os.path.splitext(path)[0]
    words: list[str] = []
    # Zola has the keywords of a page in a table `taxonomies`.
    taxonomies = metadata.get("taxonomies")
    fields = {**taxonomies, **metadata} if isinstance(taxonomies, dict) else metadata
    for name, value in fields.items():
        if name.lower() in _KEYWORDS:
            items = value if isinstance(value, list) else [value]
            words += (one_line(item) for item in items if isinstance(item, str | int | float))
    for label in (path, ", ".join(words)):
        if line := one_line(unicodedata.normalize("NFC", label))[:_LONGEST_LABEL]:
            yield Mark(0, "label", line)


class _LineError(SourceError):
    """A fault in a line of a text."""

    def __init__(self, line: int, fault: str) -> None:
        super().__init__(fault)
        self.line = line
