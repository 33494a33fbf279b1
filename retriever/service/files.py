"""The files of documents, which a browser opens: `retriever serve --open-files`.

A client names a document, never a path. The index remembers the files of its sources. A file is
opened folder by folder without following links, so that a folder that is replaced meanwhile cannot
lead out of the source. A document that is a part of a file, such as a line or the message of a
mailbox, has no file.

A browser shows a PDF or plain text. Every other file is a download, since HTML, SVG and the like
could run as a page of the service.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import quote

from fastapi.responses import StreamingResponse

from indexes.platforms import open_without_links
from retriever.documents.file_heads import HEAD
from retriever.documents.file_kinds import KINDS, kind_of
from retriever.errors import RetrieverError
from retriever.index.index import Index
from retriever.index.sources.memory import SourceMemory, memory_path
from retriever.service.limits import ServiceError

PDF = "application/pdf"
TEXT = "text/plain; charset=utf-8"
DOWNLOAD = "application/octet-stream"
# Bytes that are read at once.
_CHUNK = 2**18
_SANDBOX = "sandbox; default-src 'none'; frame-ancestors 'none'"


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """An open file, its name, its size in bytes and its media type in the response."""

    stream: BinaryIO
    name: str
    size: int
    media_type: str


def open_document_file(index: Index, id_: str) -> DocumentFile:
    """Open the file of a document.

    Raises:
        ServiceError: 404 if the index has no such document, or its file cannot be read; 403 if
            the file leads out of its source, or is no plain file.
    """
    if "\0" in id_ or id_ not in index:
        raise ServiceError(404, f"the index holds no document {id_!r:.80}")
    refusal = ServiceError(404, f"the document {id_!r:.80} is no file of a source of the index")
    for source, path in _source_paths(index, id_):
        try:
            return _open_in_source(source, path)
        except _RefusedError as error:
            refusal = ServiceError(403, f"the file of {id_!r:.80} is not opened: {error}")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it has no such name"
            refusal = ServiceError(404, f"the file of {id_!r:.80} cannot be opened: {reason}")
    raise refusal


def file_media_type(index: Index, id_: str) -> str | None:
    """Return the media type of the file of a document; None if it cannot be opened."""
    with suppress(RetrieverError):
        file = open_document_file(index, id_)
        file.stream.close()
        return file.media_type
    return None


def file_response(file: DocumentFile) -> StreamingResponse:
    """Return the response with a file, whose content can neither run nor be embedded."""
    kind = "attachment" if file.media_type == DOWNLOAD else "inline"
    name = quote(file.name.encode(errors="replace"), safe="")
    headers = {
        "Content-Length": str(file.size),
        "Content-Disposition": f"{kind}; filename*=UTF-8''{name}",
        "Content-Security-Policy": _SANDBOX,
        "Cross-Origin-Resource-Policy": "same-origin",
        "Accept-Ranges": "none",
    }
    return StreamingResponse(_read_chunks(file), headers=headers, media_type=file.media_type)


async def _read_chunks(file: DocumentFile) -> AsyncIterator[bytes]:
    """Yield the bytes that the file had when it was opened, even if it grows."""
    with file.stream as stream:
        remaining = file.size
        while remaining and (chunk := await asyncio.to_thread(stream.read, min(remaining, _CHUNK))):
            remaining -= len(chunk)
            yield chunk


def _source_paths(index: Index, id_: str) -> list[tuple[str, str]]:
    """Return the sources of a document, and its path below each; empty for the source itself."""
    if not memory_path(index.store).exists():
        return []
    with SourceMemory(index.store) as memory:
        return memory.places(id_)


def _open_in_source(source: str, path: str) -> DocumentFile:
    name = os.path.basename(path or source)
    stream = _open_below(source, path)
    try:
        size = os.fstat(stream.fileno()).st_size
        return DocumentFile(stream, name, size, _media_type(name, stream))
    except OSError:
        stream.close()
        raise


class _RefusedError(Exception):
    """A file that is not opened, since a link or something else is in its place."""


def _open_below(source: str, path: str) -> BinaryIO:
    """Open a plain file of a source, `path` below a folder or the source itself."""
    if path:
        root = os.path.realpath(source)
        # A link to another file of the source is followed, as when the source is read.
        target = os.path.realpath(os.path.join(root, path))
        if os.path.commonpath([root, target]) != root:
            raise _RefusedError("a link leads out of the source")
    else:
        root = os.path.realpath(os.path.dirname(source))
        target = os.path.join(root, os.path.basename(source))
    *folders, name = os.path.relpath(target, root).split(os.sep)
    file = open_without_links(root, folders, name, _check_plain)
    try:
        # The file may have been replaced since the first check.
        _check_plain(os.fstat(file))
    except _RefusedError:
        os.close(file)
        raise
    return os.fdopen(file, "rb")


def _check_plain(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _RefusedError("a link stands in its place")
    if not stat.S_ISREG(status.st_mode):
        raise _RefusedError("it is not a plain file any more")


def _media_type(name: str, stream: BinaryIO) -> str:
    """Return the media type by name and first bytes; the stream is rewound."""
    head = stream.read(HEAD)
    stream.seek(0)
    if head.startswith(b"%PDF-") or name.lower().endswith(".pdf"):
        return PDF
    kind = kind_of(name, head)
    # The kind of a compressed text is text, too.
    is_text = kind is not None and KINDS[kind].is_text and not name.lower().endswith(".gz")
    return TEXT if is_text else DOWNLOAD
