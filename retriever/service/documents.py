"""Routes that read and change documents; the guard refuses changes unless they are allowed."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from threading import Event
from typing import Annotated, Any, BinaryIO, TypeVar, cast

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from retriever.documents.document import Fields, Json
from retriever.documents.sources import Meter, OpenSource
from retriever.documents.text import read_jsonl
from retriever.errors import SourceError
from retriever.index.index import Index
from retriever.index.indexing.run import CommitSettings, IndexingReport
from retriever.service.files import file_media_type, file_response, open_document_file
from retriever.service.guard import may_open_files
from retriever.service.limits import FILE_PATH, Catalog, ServiceError

T = TypeVar("T")
# Bytes of an upload that are kept in memory; the rest is kept in a file.
_BYTES_IN_MEMORY = 2**20
# A service that stops drops at most one window.
_COMMIT = CommitSettings(window_pieces=16_384)
_LINES = {
    "required": True,
    "content": {
        kind: {
            "schema": {"type": "string"},
            "example": '{"id": "1", "text": "Sailing ships need wind."}\n'
            '{"id": "2", "text": "Steam engines need coal.", "year": 1999}\n',
        }
        for kind in ("application/x-ndjson", "text/plain")
    },
}
Id = Annotated[str, Field(description="Id of the document; may hold slashes.", examples=["42"])]
Name = Annotated[str | None, Query(description="Name of the index; the first one by default.")]


class DocumentBody(BaseModel):
    """A document; every other field is metadata."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    text: str = Field("", examples=["Sailing ships need wind."])
    title: str | None = Field(None, examples=["Ships"])


class _Stopped(KeyboardInterrupt):
    """The service stops; `Index.add` keeps what is encoded, as after Ctrl-C."""


class _ChangeRunner:
    """Runs changes of documents one after another in a thread; also the progress of `Index.add`."""

    def __init__(self, writing: ThreadPoolExecutor, stopping: Event) -> None:
        self._writing = writing
        self._stopping = stopping

    async def run(self, change: Callable[[], T]) -> T:
        """Run a change to its end, even if the client disconnects."""
        return await asyncio.shield(
            asyncio.get_running_loop().run_in_executor(self._writing, change)
        )

    def add(self, index: Index, records: Iterable[Mapping[str, Json]]) -> dict[str, Any]:
        """Add documents, and return the report."""
        report = IndexingReport()
        try:
            index.add(self._check_each(records), commit=_COMMIT, report=report, progress=self)
        except _Stopped:
            raise ServiceError(
                503,
                f"the service is stopping: {report.added:,} documents were added, "
                f"{report.updated:,} updated and {report.unchanged:,} unchanged; send all of them "
                "again; unchanged documents are skipped",
                done=asdict(report),
            ) from None
        return asdict(report)

    def _check_stopping(self, *_: object) -> None:
        """Raise `_Stopped` if the service stops."""
        if self._stopping.is_set():
            raise _Stopped

    window = encoded = _check_stopping

    def _check_each(self, records: Iterable[Mapping[str, Json]]) -> Iterator[Mapping[str, Json]]:
        """Yield the records while the service runs: unchanged ones start no window."""
        for record in records:
            self._check_stopping()
            yield record


def router(catalog: Catalog, writing: ThreadPoolExecutor, stopping: Event) -> APIRouter:
    """Return the routes; `writing` is a single thread, since an index has one writer."""
    routes = APIRouter(tags=["documents"])
    _add_read_routes(routes, catalog)
    _add_change_routes(routes, catalog, _ChangeRunner(writing, stopping))
    return routes


def _add_read_routes(routes: APIRouter, catalog: Catalog) -> None:
    @routes.get("/documents/{id:path}", summary="Get a document")
    @routes.get("/documents", summary="Get a document by the parameter id")
    def get(request: Request, id: Id, index: Name = None) -> dict[str, Any]:  # noqa: A002
        """The whole document, and the character offsets of its passages; `file`, the media type of
        its file, if `/file` gives that to this client.
        """
        opened = catalog.index(index)
        try:
            document = {**asdict(opened[id]), "passages": opened.spans(id)}
        except KeyError:
            raise _missing(id) from None
        if not document["outline"]:
            del document["outline"]
        if catalog.settings.open_files and may_open_files(request.scope):
            media_type = file_media_type(opened, id)
            document |= {} if media_type is None else {"file": media_type}
        return document

    if catalog.settings.open_files:

        @routes.get(FILE_PATH, summary="Open the file of a document", response_class=Response)
        def file(id: Id, index: Name = None) -> Response:  # noqa: A002
            """The file that the document was read from: a PDF, plain text, or else a download."""
            return file_response(open_document_file(catalog.index(index), id))


def _add_change_routes(routes: APIRouter, catalog: Catalog, changes: _ChangeRunner) -> None:
    @routes.put("/documents/{id:path}", summary="Add or replace a document")
    @routes.put("/documents", summary="Add or replace a document by the parameter id")
    async def put(id: Id, document: DocumentBody, index: Name = None) -> dict[str, Any]:  # noqa: A002
        """Every field besides `text` and `title` is metadata. Durable when it returns."""
        opened = catalog.index(index)
        record = _checked_record(id, document)
        return await changes.run(lambda: changes.add(opened, [record]))

    @routes.delete("/documents/{id:path}", summary="Delete a document")
    @routes.delete("/documents", summary="Delete a document by the parameter id")
    async def delete(id: Id, index: Name = None) -> dict[str, int]:  # noqa: A002
        """Durable when it returns."""
        opened = catalog.index(index)
        deleted = await changes.run(lambda: opened.delete([id]))
        if not deleted:
            raise _missing(id)
        return {"deleted": deleted}

    @routes.post(
        "/documents", summary="Add or replace many documents", openapi_extra={"requestBody": _LINES}
    )
    async def post(request: Request, index: Name = None) -> dict[str, Any]:
        """JSON Lines, a document a line: `text`, and optionally `id` and `title`; all other fields
        are metadata. Documents whose id the index holds are replaced; unchanged ones are not
        encoded again. Nothing is written before the upload is complete. The documents before a
        faulty line are added.
        """
        opened = catalog.index(index)
        upload = await _receive_upload(request)

        def add() -> dict[str, Any]:
            with upload:
                upload.seek(0)
                return changes.add(opened, _read_records(upload))

        return await changes.run(add)


def _checked_record(id_: str, document: DocumentBody) -> dict[str, Json]:
    """Return the fields of a document; raise ServiceError for another id or without text."""
    fields = {"text": document.text, "title": document.title, **(document.model_extra or {})}
    if fields.get("id", id_) != id_:
        raise ServiceError(400, f"id: expected {id_!r:.80} as in the address, or none")
    if not (document.text.strip() or (document.title or "").strip()):
        names = ", ".join(map(repr, sorted(document.model_fields_set))) or "no field"
        raise ServiceError(400, f"text: expected a text or a title, found {names:.200}")
    return {**fields, "id": id_}


async def _receive_upload(request: Request) -> BinaryIO:
    """Return the body of a request as a temporary file."""
    upload = tempfile.SpooledTemporaryFile(_BYTES_IN_MEMORY)  # noqa: SIM115 (the caller closes it)
    try:
        async for part in request.stream():
            await asyncio.to_thread(upload.write, part)
    except BaseException:
        upload.close()
        raise
    return cast(BinaryIO, upload)


def _read_records(stream: BinaryIO) -> Iterator[dict[str, Json]]:
    """Yield the documents of a body of JSON Lines."""
    source = OpenSource("body", "jsonl", stream, None, Meter())
    for record in read_jsonl(source, Fields()):
        if record.fault is not None:
            raise SourceError(f"{record.where}: {record.fault}")
        yield record.values


def _missing(id_: str) -> ServiceError:
    return ServiceError(404, f"the index holds no document {id_!r:.80}")
