"""Files that are documents: their kind by name and first bytes, and their reading.

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

from retriever.documents.decoding import byte_losses, decode, encoding_fault
from retriever.documents.document import Fields, Json, Record
from retriever.documents.file_heads import (
    HEAD,
    has_text_name,
    head_of,
    is_binary,
    is_maildir_file,
    is_unfinished_mail,
    kind_of_head,
    name_exclusion,
)
from retriever.documents.kinds import Parsed, PassedOverError, one_line
from retriever.documents.kinds.mail import messages
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

_CODE = """
.bash .c .cc .clj .cpp .cs .css .cxx .dart .el .ex .exs .f90 .fish .fs .go .gradle .graphql .groovy
.h .hh .hpp .hs .java .jl .js .jsx .kt .kts .lisp .lua .m .mjs .ml .mm .nim .php .pl .pm .proto .ps1
.py .pyi .r .rb .rs .scala .scss .sh .sql .swift .tcl .tf .toml .ts .tsx .vue .yaml .yml .zig
.zsh
"""
_CONFIGURATION = """
.ac .adb .ads .ahk .am .applescript .asm .astro .awk .bat .bib .bzl .cabal .cfg .cls .cmake .cmd
.coffee .conf .containerfile .csh .cu .desktop .diff .dockerfile .elm .erb .erl .f .for .gemspec
.glsl .gn .hbs .hcl .hrl .hxx .ini .j2 .jinja .ksh .less .m4 .mak .mk .mount .mts .mustache .nix
.pas .patch .po .pod .prisma .pro .properties .psm1 .pug .pxd .pyw .pyx .qml .rake .rules .sass
.sbt .scm .sed .service .socket .sol .srt .sty .styl .svelte .target .tcsh .texi .texinfo .textile
.timer .tpl .vb .vbs .vhd .vhdl .vim .vtt .wiki
"""
_MARKDOWN = ".md .markdown .mdown .mdwn .mdx .mkd .mkdn .qmd .rmd"
_OPEN = ".odt .ott .ods .ots .odp .otp .odg .fodt .fods .fodp"


class FileKind(NamedTuple):
    """A kind of files: its suffixes, parted by white space, and its reader."""

    # Name of the kind in messages.
    label: str
    suffixes: str
    # Module and function in `kinds`; empty for a mailbox, whose messages are mails.
    reader: str
    # Modules of the extra `documents` that the reader imports.
    needs: tuple[str, ...] = ()
    # Whether the reader takes text. It is fast and runs in this process.
    is_text: bool = False
    # Increased when the reader reads more or other text, so that `refresh` reads earlier files
    # again; 0 for readers of releases that did not store it.
    reader_version: int = 1


KINDS: Mapping[str, FileKind] = {
    "text": FileKind("text", ".txt .text", "plain:read_plain", is_text=True),
    "code": FileKind("source code", _CODE + _CONFIGURATION, "plain:read_plain", is_text=True),
    "markdown": FileKind("Markdown", _MARKDOWN, "plain:read_markdown", is_text=True),
    "org": FileKind("Org", ".org", "markup:read_org", is_text=True),
    "rst": FileKind("reStructuredText", ".rst", "markup:read_rst", is_text=True),
    "asciidoc": FileKind("AsciiDoc", ".adoc .asciidoc", "markup:read_asciidoc", is_text=True),
    "latex": FileKind("LaTeX", ".tex .ltx", "markup:read_latex", is_text=True),
    "notebook": FileKind("Jupyter notebook", ".ipynb", "plain:read_notebook", is_text=True),
    "html": FileKind("HTML", ".html .htm .xhtml", "html:read_html", ("lxml", "trafilatura")),
    "pdf": FileKind("PDF", ".pdf", "pdf:read_pdf", ("pypdfium2",)),
    "docx": FileKind("DOCX", ".docx .docm .dotx .dotm", "docx:read_docx", ("lxml",)),
    "xlsx": FileKind("XLSX", ".xlsx .xlsm .xltx .xltm", "sheets:read_xlsx", ("lxml",)),
    "pptx": FileKind("PPTX", ".pptx .pptm .ppsx", "zipped:read_pptx", ("lxml",)),
    "opendocument": FileKind("OpenDocument", _OPEN, "opendocument:read_opendocument", ("lxml",)),
    "rtf": FileKind("RTF", ".rtf", "rtf:read_rtf"),
    "epub": FileKind("EPUB", ".epub", "zipped:read_epub", ("lxml",)),
    "mail": FileKind("e-mail", ".eml .emlx", "mail:read_mail"),
    "mbox": FileKind("mailbox", ".mbox", ""),
}
_BY_SUFFIX = {suffix: name for name, kind in KINDS.items() for suffix in kind.suffixes.split()}
# Kinds with first bytes of their own, by which a wrong suffix is noticed.
_SIGNED_KINDS = ("pdf", "docx", "pptx", "xlsx", "opendocument", "rtf", "epub")
# Beginnings of part names in lower case. OpenDocument is recognized by two parts.
_PART_NAMES = {
    "meta-inf/container.xml": "epub",
    "word/document": "docx",
    "ppt/presentation.xml": "pptx",
    "xl/workbook.xml": "xlsx",
}
_OPEN_PARTS = ({"content.xml", "mimetype"}, {"content.xml", "meta-inf/manifest.xml"})
_PDF = b"%PDF-"
_ZIP = b"PK\x03\x04"
_OLD_OFFICE = b"\xd0\xcf\x11\xe0"
_RTF = b"{\\rtf"
# Remedies for files of kinds that are not read, by suffix.
_SOFFICE = "soffice --headless --convert-to"
_REMEDIES = {
    ".doc .dot .wps": f"save it as .docx, for example with `{_SOFFICE} docx FILE`",
    ".ppt .pps .pot": f"save it as .pptx, for example with `{_SOFFICE} pptx FILE`",
    ".xls .xlsb .xlt": f"save it as .xlsx, for example with `{_SOFFICE} xlsx FILE`",
    ".msg": "save it as .eml, for example with `msgconvert FILE`",
    ".pages": "export it as .docx from Pages",
    ".numbers": "export it as .xlsx from Numbers",
    ".key": "export it as .pptx from Keynote",
}
# The beginning of a page of HTML. Atomic groups prevent quadratic time for many comments.
_PAGE = re.compile(
    rb"(?i)\s*(?:(?><!--.*?-->)\s*)*+(<\?xml[^>]*>\s*)?<(!doctype html|html)\b", re.DOTALL
)
# Bytes in which a mark of the format is looked for.
_SNIFFED_BYTES = 1024
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
# The bytes of a file that is read ahead, and the call that returns its record.
_PendingRecord = tuple[int, Callable[[], Record]]


class SourceFile(NamedTuple):
    """A file to read, or a part of one: its path, the id of its document, and its place."""

    path: Path
    id: str
    where: str
    number: int
    file: str = ""
    is_part: bool = False
    # Kind by the content, once the file is opened.
    kind: str = ""


def kind_of(path: str | Path, head: bytes | None = None) -> str | None:
    """Return the kind of a file by its name, compressed by gzip or not; None if it is not read.

    If the name does not tell, `head`, the first bytes, decides.
    """
    name = base_name(str(path))
    if is_maildir_file(name):
        return "mail"
    kind = None
    if not is_unfinished_mail(name):
        kind = _BY_SUFFIX.get(os.path.splitext(name)[1])
    if kind is None and head is not None and name_exclusion(name) is None:
        return kind_of_head(name, head)
    return kind


def kind_of_file(path: str | Path) -> str | None:
    """Return the kind of a plain file, which is opened only if its name does not tell."""
    kind = kind_of(path)
    if kind is None:
        with suppress(OSError):
            kind = kind_of(path, head_of(path))
    return kind


def is_document(path: str | Path) -> bool:
    """Return whether a single file is one document, or a mailbox of many.

    That is a file of any kind except .txt, or a file with a name such as README. A mail, a mailbox,
    a script, a PDF or a zip is recognized by its content.
    """
    kind = kind_of(path)
    if kind not in (None, "text"):
        return True
    try:
        # A pipe would block, and can be read only once.
        if not os.path.isfile(path):
            return False
        head = head_of(path)
    except OSError:
        return False
    if head.startswith((_PDF, _ZIP, _OLD_OFFICE, _RTF)):
        return True
    kind_shown = kind_of(path, head) if kind is None else None
    is_script = head.startswith(b"#!")
    return kind_shown is not None and (
        kind_shown != "text" or is_script or has_text_name(base_name(str(path)))
    )


def read_files(
    files: Iterable[SourceFile | Record], fields: Fields, meter: Meter, encoding: str | None = None
) -> Generator[Record, None, None]:
    """Yield the documents of files in order, reading ahead.

    Records among the files are passed through.
    """
    with closing(ReadingProcesses()) as processes:
        reader = _FileReader(fields, meter, encoding, processes)
        pending_records = chain.from_iterable(map(reader.begin, files))
        ahead: deque[_PendingRecord] = deque()
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
            yield finish()


class _FileReader:
    """Begins to read files and turns their content into records."""

    def __init__(
        self, fields: Fields, meter: Meter, encoding: str | None, processes: ReadingProcesses
    ) -> None:
        self._text_name = fields.text or "text"
        self._meter = meter
        self._encoding = encoding
        self._processes = processes

    def begin(self, file: SourceFile | Record) -> Iterator[_PendingRecord]:
        """Begin to read a file, and yield its pending record or those of its messages."""
        if isinstance(file, Record):
            yield 0, lambda: file
            return
        try:
            with open_bytes(file.path, file.where, self._meter) as stream:
                detected = kind_of(file.path, stream.peek(HEAD)[:HEAD])
                # A file of no kind was named by a pattern, and is read as text.
                kind = detected or "text"
                if kind == "mbox":
                    for number, message in enumerate(messages(stream, LONGEST_FILE), 1):
                        part = file._replace(
                            id=f"{file.id}#{number}",
                            where=f"{file.where}#{number}",
                            is_part=True,
                            kind=kind,
                        )
                        if len(message) > LONGEST_FILE:
                            yield 0, partial(self._failed_record, part, SourceError(_TOO_LARGE))
                            continue
                        parser = self._parser("mail", message)
                        yield len(message), partial(self._finished_record, part, parser)
                    return
                content = stream.read(LONGEST_FILE + 1)
            kind = _kind_by_content(kind, content)
            if kind == "text" and content.startswith((_ZIP, _OLD_OFFICE)):
                raise SourceError(f"of a kind that is not read; {_remedy(file.path)}")
            is_unknown = detected is None and kind == "text" and self._encoding is None
            if is_unknown and is_binary(content[:HEAD]):
                raise SourceError("a binary file, not text; leave it out with --exclude")
            if len(content) > (LONGEST if KINDS[kind].is_text else LONGEST_FILE):
                raise SourceError(TOO_LONG if KINDS[kind].is_text else _TOO_LARGE)
            parser = self._parser(kind, content)
            yield len(content), partial(self._finished_record, file._replace(kind=kind), parser)
        except SourceError as error:
            yield 0, partial(self._failed_record, file, error)

    def _parser(self, kind: str, content: bytes) -> Callable[[], Parsed]:
        """Return a call that gives the content of a file.

        A process begins to read the file unless it is text. Raises PassedOverError where a library
        is not installed.
        """
        label, _, reader, needs, is_text, _ = KINDS[kind]
        if not content or content.isspace():
            return lambda: Parsed("")
        if is_text:
            return partial(self._parse_text, reader, content)
        try:
            require_extra("documents", f"reading {label} files", *needs)
        except MissingExtraError as error:
            raise PassedOverError(str(error)) from error
        encoding = self._encoding if kind == "html" else None
        return self._processes.read(reader, content, encoding).result

    def _parse_text(self, reader: str, content: bytes) -> Parsed:
        decoded = decode(content, self._encoding)
        if (place := decoded.text.find("\0")) >= 0:
            raise _LineError(decoded.text.count("\n", 0, place) + 1, NUL_FAULT)
        result = parse_file(reader, decoded.text)
        encoding = decoded.encoding if decoded.is_detected else None
        return result._replace(losses=result.losses + byte_losses([decoded]), encoding=encoding)

    def _finished_record(self, file: SourceFile, parser: Callable[[], Parsed]) -> Record:
        try:
            file.id.encode()
        except UnicodeEncodeError:
            place = file._replace(where=ascii(file.where))
            return self._failed_record(
                place, SourceError("the file's name is not UTF-8; rename it")
            )
        try:
            text, title, metadata, outline, losses, encoding = parser()
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


def _remedy(path: Path) -> str:
    suffix = os.path.splitext(base_name(path.name))[1]
    remedies = (remedy for suffixes, remedy in _REMEDIES.items() if suffix in suffixes.split())
    return next(remedies, "convert or unpack it")


def _kind_by_content(kind: str, content: bytes) -> str:
    """Return the kind that the first bytes show, else that of the suffix."""
    if content.startswith(_PDF):
        return "pdf"
    if content.startswith(_RTF):
        return "rtf"
    if content.startswith(_ZIP) and (zipped_kind := _kind_by_parts(content)) is not None:
        return zipped_kind
    head = content[:_SNIFFED_BYTES]
    is_pdf = kind == "pdf" and _PDF in head
    is_flat = kind == "opendocument" and b"<office:document" in head
    if kind not in _SIGNED_KINDS or is_pdf or is_flat or not content.strip():
        return kind
    if _PAGE.match(head):
        return "html"
    if content.startswith(_OLD_OFFICE):
        suffix = KINDS[kind].suffixes.split()[0]
        raise SourceError(
            f"encrypted, or of an Office before 2007; save it without a password as {suffix}"
        )
    if kind != "pdf" and content.startswith(_ZIP):
        # The reader of the kind reports what is missing.
        return kind
    raise SourceError(f"not a {KINDS[kind].label} file, whatever its name; rename it")


def _kind_by_parts(content: bytes) -> str | None:
    """Return the kind that the parts of a zipped file show; None if they show none."""
    from retriever.documents.kinds.zipped import open_zip, part_name

    with suppress(zipfile.BadZipFile):
        names = {part_name(name) for name in open_zip(content).namelist()}
        for beginning, kind in _PART_NAMES.items():
            if any(name.startswith(beginning) for name in names):
                return kind
        if any(parts <= names for parts in _OPEN_PARTS):
            return "opendocument"
    return None
