"""The kinds of files that are documents, and the kind of a file by its name and its bytes.

A kind is a line in `KINDS` and a function in `kinds`.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from retriever.documents.file_heads import (
    has_text_name,
    head_of,
    is_maildir_file,
    is_unfinished_mail,
    kind_of_head,
    name_exclusion,
)
from retriever.documents.sources import base_name
from retriever.errors import SourceError

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
_PPTX = ".pptx .pptm .ppsx .ppsm .potx .potm"
_OPEN = ".odt .ott .ods .ots .odp .otp .odg .otg .fodt .fods .fodp .fodg"


class FileKind(NamedTuple):
    """A kind of files: its suffixes, parted by white space, and its reader."""

    # Name of the kind in messages.
    label: str
    suffixes: str
    # Module and function in `kinds`; empty for mailboxes and archives, which hold other kinds.
    reader: str
    # Modules of the extra `documents` that the reader imports.
    needs: tuple[str, ...] = ()
    # Whether the reader takes text. It is fast and runs in this process.
    is_text: bool = False
    # Increased when the reader reads more or other text, so that `refresh` reads earlier files
    # again; 0 for readers of releases that did not store it.
    reader_version: int = 2


KINDS: Mapping[str, FileKind] = {
    "text": FileKind("text", ".txt .text", "plain:read_plain", is_text=True),
    "code": FileKind("source code", _CODE + _CONFIGURATION, "code:read_code", is_text=True),
    "markdown": FileKind("Markdown", _MARKDOWN, "plain:read_markdown", is_text=True),
    "org": FileKind("Org", ".org", "markup:read_org", is_text=True),
    "rst": FileKind("reStructuredText", ".rst", "markup:read_rst", is_text=True),
    "asciidoc": FileKind("AsciiDoc", ".adoc .asciidoc", "markup:read_asciidoc", is_text=True),
    "latex": FileKind("LaTeX", ".tex .ltx", "markup:read_latex", is_text=True),
    "notebook": FileKind("Jupyter notebook", ".ipynb", "plain:read_notebook", is_text=True),
    # Of a folder, and only if a pattern names them; see `NAMED_KINDS`.
    "csv": FileKind("CSV", "", "delimited:read_csv", is_text=True),
    "jsonl": FileKind("JSON Lines", "", "delimited:read_json_lines", is_text=True),
    "html": FileKind("HTML", ".html .htm .xhtml", "html:read_html", ("lxml", "trafilatura")),
    "pdf": FileKind("PDF", ".pdf", "pdf:read_pdf", ("pypdfium2",)),
    "docx": FileKind("DOCX", ".docx .docm .dotx .dotm", "docx:read_docx", ("lxml",)),
    "xlsx": FileKind(
        "XLSX", ".xlsx .xlsm .xltx .xltm", "sheets:read_xlsx", ("lxml",), reader_version=3
    ),
    "pptx": FileKind("PPTX", _PPTX, "zipped:read_pptx", ("lxml",), reader_version=3),
    "opendocument": FileKind(
        "OpenDocument", _OPEN, "opendocument:read_opendocument", ("lxml",), reader_version=3
    ),
    "rtf": FileKind("RTF", ".rtf", "rtf:read_rtf"),
    "epub": FileKind("EPUB", ".epub", "zipped:read_epub", ("lxml",)),
    "mail": FileKind("e-mail", ".eml .emlx", "mail:read_mail"),
    "mbox": FileKind("mailbox", ".mbox", ""),
    # Only with `--archives`; see `members`.
    "archive": FileKind("archive", "", ""),
}
# Kinds of files that are read only if a pattern names them, by suffix; others are text.
NAMED_KINDS = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
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


def is_unread_kind(content: bytes) -> bool:
    """Return whether the bytes of a file are those of an archive or of an Office before 2007."""
    return content.startswith((_ZIP, _OLD_OFFICE))


def conversion_advice(path: Path) -> str:
    """Return the advice for a file of a kind that is not read."""
    suffix = os.path.splitext(base_name(path.name))[1]
    remedies = (remedy for suffixes, remedy in _REMEDIES.items() if suffix in suffixes.split())
    return next(remedies, "convert or unpack it")


def kind_by_content(kind: str, content: bytes) -> str:
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
    raise SourceError(f"no {KINDS[kind].label} file, whatever its name; rename it")


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
