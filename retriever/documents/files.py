"""Files that are documents: which kind one is of, by its name and first bytes, and its reading.

A kind is a line in `KINDS` and a function in `kinds`.
"""

from __future__ import annotations

import os
import re
import unicodedata
import zipfile
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from retriever.documents import Fields, Json, Record
from retriever.documents.decoding import decoded, not_in
from retriever.documents.kinds import Parsed, PassedOverError, one_line
from retriever.documents.kinds.mail import messages
from retriever.documents.outline import Mark
from retriever.documents.processes import ReadingProcesses, parsed
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
.py .pyi .r .rb .rs .rst .scala .scss .sh .sql .swift .tcl .tf .toml .ts .tsx .vue .yaml .yml .zig
.zsh
"""


class Kind(NamedTuple):
    """How the files with some suffixes, which are parted by white space, are read."""

    # What such a file is called in messages.
    label: str
    suffixes: str
    # Module and function in `kinds`; none of a mailbox, whose messages are mails.
    reader: str
    # Modules of the extra `documents`.
    needs: tuple[str, ...] = ()
    # Whether the reader takes text, in this process, since that takes no time.
    is_text: bool = False


KINDS: Mapping[str, Kind] = {
    "text": Kind("text", ".txt .text .org .adoc .tex", "plain:read_plain", is_text=True),
    "code": Kind("source code", _CODE, "plain:read_plain", is_text=True),
    "markdown": Kind("Markdown", ".md .markdown .mdx .qmd", "plain:read_markdown", is_text=True),
    "notebook": Kind("Jupyter notebook", ".ipynb", "plain:read_notebook", is_text=True),
    "html": Kind("HTML", ".html .htm .xhtml", "html:read_html", ("lxml", "trafilatura")),
    "pdf": Kind("PDF", ".pdf", "pdf:read_pdf", ("pypdfium2",)),
    "docx": Kind("DOCX", ".docx .docm", "zipped:read_docx", ("mammoth", "defusedxml", "lxml")),
    "pptx": Kind("PPTX", ".pptx .pptm .ppsx", "zipped:read_pptx", ("lxml",)),
    "epub": Kind("EPUB", ".epub", "zipped:read_epub", ("lxml",)),
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
_PDF, _ZIP, _OLD_OFFICE = b"%PDF-", b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
# A comment ends at its first end, or many of them would be tried in every combination.
_PAGE = re.compile(
    rb"(?i)\s*(?:(?><!--.*?-->)\s*)*+(<\?xml[^>]*>\s*)?<(!doctype html|html)\b", re.DOTALL
)
_HEAD = 1024
# Fields of metadata, in lower case, whose values name a document.
_KEYWORDS = frozenset(
    "alias aliases categories category keyword keywords tag tags".split()  # noqa: SIM905
)
# Characters of a label: more are no name.
_LONGEST_LABEL = 1000
# Bytes of the longest file that is no text.
LONGEST_FILE = 1 << 28
_TOO_LARGE = f"larger than {LONGEST_FILE >> 20} MiB; split it"
# Files that are read ahead of the one whose turn it is, and how many bytes they may have.
_AHEAD = 16
_AHEAD_BYTES = 1 << 25


class SourceFile(NamedTuple):
    """A file to read, or a part of one: path, id of the document, and what `Record` has."""

    path: Path
    id: str
    where: str
    number: int
    file: str = ""
    is_part: bool = False


def kind_of(path: str | Path) -> str | None:
    """The kind of a file by its name, compressed by gzip or not; None if it is not read."""
    return _BY_SUFFIX.get(os.path.splitext(base_name(str(path)))[1])


def is_document(path: str | Path) -> bool:
    """Whether a file alone is one document: of a kind but .txt, or a PDF or zip by its content."""
    if kind_of(path) not in (None, "text"):
        return True
    try:
        # A pipe would wait for its other end, and be read only once.
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as stream:
            return stream.read(len(_PDF)).startswith((_PDF, _ZIP))
    except OSError:
        return False


def read_files(
    files: Iterable[SourceFile | Record], fields: Fields, meter: Meter, encoding: str | None = None
) -> Generator[Record, None, None]:
    """The documents of files in their order, read ahead, between records that are given through."""
    with closing(ReadingProcesses()) as processes:
        reader = _FileReader(fields, meter, encoding, processes)
        todo = chain.from_iterable(map(reader.begun, files))
        ahead: deque[_Begun] = deque()
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


# Bytes that wait, and what gives the record of a file when it is its turn.
_Begun = tuple[int, Callable[[], Record]]


class _FileReader:
    def __init__(
        self, fields: Fields, meter: Meter, encoding: str | None, processes: ReadingProcesses
    ) -> None:
        self._text_name = fields.text or "text"
        self._meter = meter
        self._encoding = encoding
        self._processes = processes

    def begun(self, file: SourceFile | Record) -> Iterator[_Begun]:
        """Begin to read a file."""
        if isinstance(file, Record):
            yield 0, lambda: file
            return
        kind = kind_of(file.path) or "text"
        try:
            with bytes_of(file.path, file.where, self._meter) as stream:
                if kind == "mbox":
                    for number, message in enumerate(messages(stream, LONGEST), 1):
                        id_, where = f"{file.id}#{number}", f"{file.where}#{number}"
                        part = file._replace(id=id_, where=where, is_part=True)
                        parser = self._parser("mail", message)
                        yield len(message), partial(self._record, part, parser)
                    return
                content = stream.read(LONGEST_FILE + 1)
            kind = _true_kind(kind, content)
            if len(content) > (LONGEST if KINDS[kind].is_text else LONGEST_FILE):
                raise SourceError(TOO_LONG if KINDS[kind].is_text else _TOO_LARGE)
            yield len(content), partial(self._record, file, self._parser(kind, content, file.where))
        except SourceError as error:
            yield 0, partial(self._refused, file, error)

    def _parser(self, kind: str, content: bytes, where: str = "") -> Callable[[], Parsed]:
        """What gives the content of a file, which a process has begun to read unless it is text."""
        label, _, reader, needs, is_text = KINDS[kind]
        if not content or content.isspace():
            return lambda: Parsed("")
        if is_text:
            return partial(self._parsed_text, reader, content, where)
        try:
            require_extra("documents", f"reading {label} files", *needs)
        except MissingExtraError as error:
            raise PassedOverError(str(error)) from error
        encoding = self._encoding if kind == "html" else None
        return self._processes.read(reader, content, encoding).result

    def _parsed_text(self, reader: str, content: bytes, where: str) -> Parsed:
        text, found = decoded(content, self._encoding)
        if found is not None:
            FieldCount.add(self._meter.recoded, found, where)
        if (place := text.find("\0")) >= 0:
            raise _LineError(text.count("\n", 0, place) + 1, NUL_FAULT)
        return parsed(reader, text)

    def _record(self, file: SourceFile, parser: Callable[[], Parsed]) -> Record:
        try:
            file.id.encode()
        except UnicodeEncodeError:
            place = file._replace(where=ascii(file.where))
            return self._refused(place, SourceError("the file's name is not UTF-8; rename it"))
        try:
            text, title, metadata, outline, losses = parser()
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            fault = not_in(self._encoding, error) if self._encoding else decode_fault(error)
            return self._refused(file, _LineError(line, fault))
        except SourceError as error:
            return self._refused(file, error)
        outline = (*_labels(file, metadata), *outline)
        values = {**metadata, "id": file.id, "title": title, self._text_name: text}
        return Record(
            file.number, file.where, values, outline=outline, file=file.file, losses=losses
        )

    def _refused(self, file: SourceFile, error: SourceError) -> Record:
        where = f"{file.where}:{error.line}" if isinstance(error, _LineError) else file.where
        said = str(error).removeprefix(f"{file.where}: ")
        passed_over = isinstance(error, PassedOverError)
        return Record(file.number, where, {}, said, passed_over, file.is_part, file=file.file)


def _labels(file: SourceFile, metadata: Mapping[str, Json]) -> Iterator[Mark]:
    """The labels of a file: its path below the source without a known suffix, and its keywords."""
    path = file.file or file.path.name
    while kind_of(path) is not None:
        path = os.path.splitext(path)[0]
    words: list[str] = []
    for name, value in metadata.items():
        if name.lower() in _KEYWORDS:
            items = value if isinstance(value, list) else [value]
            words += (one_line(item) for item in items if isinstance(item, str | int | float))
    for label in (path, ", ".join(words)):
        if shown := one_line(unicodedata.normalize("NFC", label))[:_LONGEST_LABEL]:
            yield Mark(0, "label", shown)


class _LineError(SourceError):
    """What is wrong in a line of a text."""

    def __init__(self, line: int, fault: str) -> None:
        super().__init__(fault)
        self.line = line


def _true_kind(kind: str, content: bytes) -> str:
    """The kind that the first bytes show, else that of the suffix."""
    if content.startswith(_PDF):
        return "pdf"
    if content.startswith(_ZIP):
        from retriever.documents.kinds.zipped import open_zip

        with suppress(zipfile.BadZipFile):
            names = set(open_zip(content).namelist())
            for part, found in _PARTS.items():
                if part in names:
                    return found
    is_pdf = kind == "pdf" and _PDF in content[:_HEAD]
    if kind not in _MARKED or is_pdf or not content.strip():
        return kind
    if _PAGE.match(content[:_HEAD]):
        return "html"
    if content.startswith(_OLD_OFFICE):
        raise SourceError(
            f"encrypted, or of an Office before 2007; save it without a password as .{kind}"
        )
    if kind != "pdf" and content.startswith(_ZIP):
        # Its reader says what is missing.
        return kind
    raise SourceError(f"not a {KINDS[kind].label} file, whatever its name; rename it")
