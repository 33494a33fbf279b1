"""Routes that read and write documents."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Annotated, Any, BinaryIO, TypeVar, cast

from fastapi import APIRouter, Path, Query, Request

from retriever.corpus.documents import Json
from retriever.corpus.fields import Fields
from retriever.corpus.jsonl import read
from retriever.corpus.sources import Meter, OpenSource
from retriever.errors import SourceError
from retriever.service.catalog import Catalog
from retriever.service.faults import ServiceError
from retriever.service.schemas import DocumentBody

T = TypeVar("T")
_IN_MEMORY = 2**20
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
Id = Annotated[
    str, Path(alias="id", description="Id of the document; may hold slashes.", examples=["42"])
]
Name = Annotated[str | None, Query(description="Name of the index; the first one by default.")]


def router(catalog: Catalog, writing: ThreadPoolExecutor) -> APIRouter:
    """The routes.

    Args:
        catalog: of the service.
        writing: a single thread, since an index has one writer.
    """
    routes = APIRouter(tags=["documents"])

    async def write(change: Callable[[], T]) -> T:
        if not catalog.settings.writable:
            raise ServiceError(403, "the service is read-only: start it with --writable")
        # A change that has begun is finished, even if the client goes away.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(writing, change))

    @routes.get("/documents/{id:path}", summary="Get a document")
    async def get(id_: Id, index: Name = None) -> dict[str, Any]:
        """The whole document, and the character offsets of its passages."""
        chosen = catalog.index(index)

        def found() -> dict[str, Any]:
            try:
                document = chosen[id_]
                spans = chosen.spans(id_)
            except KeyError:
                raise _missing(id_) from None
            return {**asdict(document), "passages": spans}

        return await asyncio.to_thread(found)

    @routes.put("/documents/{id:path}", summary="Add or replace a document")
    async def put(id_: Id, document: DocumentBody, index: Name = None) -> dict[str, Any]:
        """Every field besides `text` and `title` is metadata. Durable when it returns."""
        chosen = catalog.index(index)
        fields = document.model_dump()
        if fields.get("id", id_) != id_:
            raise ServiceError(400, f"id: expected {id_!r:.80} as in the address, or none")
        record = {**fields, "id": id_}
        return await write(lambda: asdict(chosen.add([record])))

    @routes.delete("/documents/{id:path}", summary="Delete a document")
    async def delete(id_: Id, index: Name = None) -> dict[str, int]:
        """Durable when it returns."""
        chosen = catalog.index(index)
        deleted = await write(lambda: chosen.delete([id_]))
        if not deleted:
            raise _missing(id_)
        return {"deleted": deleted}

    @routes.post(
        "/documents",
        summary="Add or replace many documents",
        openapi_extra={"requestBody": _LINES},
    )
    async def post(request: Request, index: Name = None) -> dict[str, Any]:
        """JSON Lines, a document a line: `text`, and optionally `id` and `title`; all other fields
        are metadata. Documents whose id the index holds are replaced; unchanged ones are not
        encoded again. Nothing is written before the upload is complete. The documents before a
        faulty line are added.
        """
        chosen = catalog.index(index)
        if not catalog.settings.writable:
            raise ServiceError(403, "the service is read-only: start it with --writable")
        body = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 (the thread closes it)
        try:
            async for part in request.stream():
                if body.tell() + len(part) > _IN_MEMORY:
                    await asyncio.to_thread(body.write, part)
                else:
                    body.write(part)
        except BaseException:
            body.close()
            raise

        def add() -> dict[str, Any]:
            with body:
                body.seek(0)
                return asdict(chosen.add(_records(cast(BinaryIO, body))))

        return await write(add)

    return routes


def _records(stream: BinaryIO) -> Iterator[dict[str, Json]]:
    """The documents of a body of JSON Lines."""
    source = OpenSource("body", "jsonl", stream, None, Meter())
    for record in read(source, Fields()):
        if record.fault is not None:
            raise SourceError(f"{record.where}: {record.fault}")
        yield record.values


def _missing(id_: str) -> ServiceError:
    return ServiceError(404, f"the index holds no document {id_!r:.80}")
