"""Files that are documents: which kind one is of, by its name and first bytes, and its reading.

A kind is a line in `KINDS` and a function in `kinds`.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from retriever.documents import Fields, Record
from retriever.documents.decoding import decoded, not_in
from retriever.documents.kinds import Parsed, PassedOverError
from retriever.documents.kinds.mail import messages
from retriever.documents.processes import ReadingProcesses, reader_of
from retriever.documents.sources import (
    LONGEST,
    NUL_FAULT,
    TOO_LONG,
    FieldCount,
    Meter,
    base_name,
    bytes_of,
    decode_fault,
)
from retriever.errors import MissingExtraError, SourceError, require_extra

_CODE = """
.bash .c .cc .clj .cpp .cs .css .cxx .dart .el .ex .exs .f90 .fish .fs .go .gradle .graphql .groovy
.h .hh .hpp .hs .java .jl .js .jsx .kt .kts .lisp .lua .m .mjs .ml .mm .nim .php .pl .pm .proto .ps1
.py .pyi .r .rb .rs .scala .scss .sh .sql .swift .tcl .tf .toml .ts .tsx .vue .yaml .yml .zig .zsh
"""


class Kind(NamedTuple):
    """How the files with some suffixes are read.

    Attributes:
        label: what such a file is called in messages.
        suffixes: parted by white space.
        reader: module and function in `kinds`, which takes text where `is_text`, else bytes; none
            of a mailbox, whose messages are mails.
        needs: modules of the extra `documents`.
        is_text: a plain text, which is read by this process, as text takes no time.
    """

    label: str
    suffixes: str
    reader: str
    needs: tuple[str, ...] = ()
    is_text: bool = False


KINDS: Mapping[str, Kind] = {
    "text": Kind("text", ".txt .text .org .adoc .tex", "plain:read_plain", is_text=True),
    "code": Kind("source code", _CODE, "plain:read_plain", is_text=True),
    "markdown": Kind("Markdown", ".md .markdown .mdx .qmd", "plain:read_markdown", is_text=True),
    "rst": Kind("reStructuredText", ".rst", "plain:read_rst", is_text=True),
    "notebook": Kind("Jupyter notebook", ".ipynb", "plain:read_notebook", is_text=True),
    "html": Kind("HTML", ".html .htm .xhtml", "html:read_html", ("lxml", "trafilatura")),
    "pdf": Kind("PDF", ".pdf", "pdf:read_pdf", ("pypdfium2",)),
    "docx": Kind("DOCX", ".docx .docm", "office:read_docx", ("mammoth", "defusedxml", "lxml")),
    "pptx": Kind("PPTX", ".pptx .pptm .ppsx", "office:read_pptx", ("lxml",)),
    "epub": Kind("EPUB", ".epub", "html:read_epub", ("lxml",)),
    "mail": Kind("e-mail", ".eml", "mail:read_mail"),
    "mbox": Kind("mailbox", ".mbox", ""),
}
_BY_SUFFIX = {suffix: name for name, kind in KINDS.items() for suffix in kind.suffixes.split()}
# Which have first bytes of their own, so that a wrong suffix is seen.
_MARKED = ("pdf", "docx", "pptx", "epub")
_PARTS = {
    "word/document.xml": "docx",
    "ppt/presentation.xml": "pptx",
    "META-INF/container.xml": "epub",
}
_ZIP, _OLD_OFFICE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
_PAGE = re.compile(rb"(?i)\s*(<!--.*?-->\s*)*(<\?xml[^>]*>\s*)?<(!doctype html|html)\b", re.DOTALL)
_CHARSET = re.compile(
    rb"(?i)<(?:meta[^>]{0,200}?charset|\?xml[^>]{0,99}?encoding)\s*=\s*[\"']?([\w-]+)"
)
_HEAD = 1024
# Bytes of the longest file that is no text.
LONGEST_FILE = 1 << 28
# Files that are read ahead of the one whose turn it is, and how many bytes they may have.
_AHEAD = 16
_AHEAD_BYTES = 1 << 25


class SourceFile(NamedTuple):
    """A file to read: its path, the id of its document, its place for messages, its number."""

    path: Path
    id: str
    where: str
    number: int = 1


def kind_of(path: str | Path) -> str | None:
    """The kind of a file by its name, compressed by gzip or not; None if it is not read."""
    return _BY_SUFFIX.get(Path(base_name(Path(path).name)).suffix)


def kind_of_bytes(content: bytes) -> str | None:
    """The kind that the first bytes show, of those with such marks."""
    if content.startswith(b"%PDF-"):
        return "pdf"
    if content.startswith(_ZIP):
        try:
            names = set(zipfile.ZipFile(BytesIO(content)).namelist())
        except (zipfile.BadZipFile, NotImplementedError, ValueError):
            return None
        return next((kind for part, kind in _PARTS.items() if part in names), None)
    return None


def is_document(path: str | Path) -> bool:
    """Whether a file alone is one document: of a kind but .txt, or a PDF whatever its name."""
    return kind_of(path) not in (None, "text") or _is_marked(path)


def _is_marked(path: str | Path) -> bool:
    """Whether a file begins as one of the kinds that are no text, whatever its suffix."""
    try:
        # A pipe would wait for its other end, and be read only once.
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as stream:
            head = stream.read(_HEAD)
    except OSError:
        return False
    return head.startswith((b"%PDF-", _ZIP))


def read_files(
    files: Iterable[SourceFile | Record],
    fields: Fields,
    meter: Meter,
    encoding: str | None = None,
) -> Generator[Record, None, None]:
    """The documents of files, in their order, between records that are given through.

    Kinds other than text are read ahead, by processes.
    """
    with closing(ReadingProcesses()) as processes:
        reader = _FileReader(fields, meter, encoding, processes)
        todo = reader.begun(files)
        ahead: deque[tuple[int, Callable[[], Record]]] = deque()
        waiting = 0
        while True:
            while len(ahead) < _AHEAD and waiting < _AHEAD_BYTES and (one := next(todo, None)):
                ahead.append(one)
                waiting += one[0]
            if not ahead:
                return
            size, finish = ahead.popleft()
            waiting -= size
            yield finish()


class _FileReader:
    def __init__(
        self,
        fields: Fields,
        meter: Meter,
        encoding: str | None,
        processes: ReadingProcesses,
    ) -> None:
        self._text_name = fields.text or "text"
        self._meter = meter
        self._encoding = encoding
        self._processes = processes

    def begun(
        self, files: Iterable[SourceFile | Record]
    ) -> Iterator[tuple[int, Callable[[], Record]]]:
        """Begin to read each file; gives its bytes, and what gives its record when it is called."""
        for file in files:
            if isinstance(file, Record):
                yield 0, _given(file)
                continue
            kind = kind_of(file.path) or "text"
            if KINDS[kind].is_text and not _is_marked(file.path):
                yield 0, partial(self._text_record, file, kind)
                continue
            try:
                yield from self._begun(file, kind)
            except SourceError as error:
                yield 0, _given(self._refused(file, error))

    def _begun(self, file: SourceFile, kind: str) -> Iterator[tuple[int, Callable[[], Record]]]:
        with bytes_of(file.path, file.where, self._meter) as stream:
            if kind == "mbox":
                for number, message in enumerate(messages(stream, LONGEST), 1):
                    one = file._replace(id=f"{file.id}#{number}", where=f"{file.where}#{number}")
                    yield len(message), self._apart(one, "mail", message)
                return
            content = stream.read(LONGEST_FILE + 1)
        if len(content) > LONGEST_FILE:
            raise SourceError(f"larger than {LONGEST_FILE >> 20} MiB; split it")
        if not content.strip():
            yield 0, _given(self._record(file, Parsed("")))
            return
        kind = self._true_kind(kind, content)
        if KINDS[kind].is_text:
            yield 0, partial(self._text_record, file, kind)
            return
        if kind == "html":
            content = self._decoded(file, content, _charset(content)).encode(errors="replace")
        yield len(content), self._apart(file, kind, content)

    def _true_kind(self, kind: str, content: bytes) -> str:
        found = kind_of_bytes(content)
        if found is None and kind == "pdf" and b"%PDF-" in content[:_HEAD]:
            return kind
        if found is None and kind in _MARKED:
            if _PAGE.match(content[:_HEAD]):
                return "html"
            if content.startswith(_OLD_OFFICE):
                raise SourceError(
                    f"encrypted, or of an Office before 2007; save it without a password as .{kind}"
                )
            if not (kind != "pdf" and content.startswith(_ZIP)):
                raise SourceError(f"not a {KINDS[kind].label} file, whatever its name; rename it")
        return found or kind

    def _apart(self, file: SourceFile, kind: str, content: bytes) -> Callable[[], Record]:
        try:
            require_extra("documents", f"reading {KINDS[kind].label} files", *KINDS[kind].needs)
        except MissingExtraError as error:
            return _given(self._refused(file, PassedOverError(str(error))))
        future = self._processes.read(KINDS[kind].reader, content)

        def finish() -> Record:
            try:
                return self._record(file, future.result())
            except SourceError as error:
                return self._refused(file, error)

        return finish

    def _text_record(self, file: SourceFile, kind: str) -> Record:
        try:
            with bytes_of(file.path, file.where, self._meter) as stream:
                content = stream.read(LONGEST + 1)
            if len(content) > LONGEST:
                raise SourceError(TOO_LONG)
            text = self._decoded(file, content, None)
            if "\0" in text:
                line = text.count("\n", 0, text.index("\0")) + 1
                return self._refused(file._replace(where=f"{file.where}:{line}"), NUL_FAULT)
            return self._record(file, reader_of(KINDS[kind].reader)(text))
        except UnicodeDecodeError as error:
            if self._encoding is not None:
                return self._refused(file, not_in(self._encoding, error))
            line = error.object.count(b"\n", 0, error.start) + 1
            place = file._replace(where=f"{file.where}:{line}")
            return self._refused(place, decode_fault(error))
        except SourceError as error:
            return self._refused(file, error)

    def _decoded(self, file: SourceFile, content: bytes, own: str | None) -> str:
        """The text of bytes, whose `own` encoding is what they say of themselves."""
        if own is not None and self._encoding is None:
            return decoded(content, own, "replace")[0]
        text, found = decoded(content, self._encoding)
        if found is not None:
            FieldCount.add(self._meter.recoded, found, file.where)
        return text

    def _record(self, file: SourceFile, parsed: Parsed) -> Record:
        try:
            file.id.encode()
        except UnicodeEncodeError:
            place = file._replace(where=ascii(file.where))
            return self._refused(place, "the file's name is not UTF-8; rename it")
        values = {
            **parsed.metadata,
            "id": file.id,
            "title": parsed.title,
            self._text_name: parsed.text,
        }
        return Record(file.number, file.where, values, outline=parsed.outline)

    def _refused(self, file: SourceFile, fault: SourceError | str) -> Record:
        said = str(fault).removeprefix(f"{file.where}: ")
        passed_over = isinstance(fault, PassedOverError)
        return Record(file.number, file.where, {}, said, passed_over)


def _given(record: Record) -> Callable[[], Record]:
    return lambda: record


def _charset(content: bytes) -> str | None:
    """The encoding that a page says it has."""
    found = _CHARSET.search(content[: 4 * _HEAD])
    if found is None:
        return None
    name = found[1].decode()
    try:
        content[:0].decode(name)
    except LookupError:
        return None
    return name
