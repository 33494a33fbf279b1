"""The application: its routes, and what they share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from threading import Event
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from prometheus_client import CollectorRegistry, Histogram
from starlette.middleware.cors import CORSMiddleware

from retriever.errors import ConfigError, RetrieverError
from retriever.index import Index
from retriever.search.reranking import Reranker
from retriever.service.batching import Batcher
from retriever.service.catalog import Catalog
from retriever.service.faults import error_body, install
from retriever.service.guard import Guard
from retriever.service.reference import reference_page
from retriever.service.routes import compatible, documents, searching, status
from retriever.service.routes.compatible import EncodingJob, RerankJob, encoded, relevances
from retriever.service.routes.search_jobs import Answer, SearchJob, answers
from retriever.service.settings import ServiceSettings

_LOG = logging.getLogger("retriever.service")
# One batch is ranked while the next one is encoded.
_THREADS = 2
_PAGE = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_ERROR = {
    "description": "What is wrong, in the words of the command line.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["error", "message"],
                "properties": {
                    "error": {
                        "type": "object",
                        "required": ["type", "message"],
                        "properties": {
                            "type": {"type": "string"},
                            "message": {"type": "string"},
                            "position": {"type": "integer"},
                        },
                    },
                    "message": {"type": "string"},
                },
            },
            "example": error_body("ConfigError", "k: expected 1 or more, found 0"),
        }
    },
}


def create_app(
    indexes: Mapping[str, Index],
    settings: ServiceSettings | None = None,
    *,
    reranker: Reranker | None = None,
) -> FastAPI:
    """An ASGI application that serves indexes and the search page.

    Args:
        indexes: by the names under which clients ask for them; the first one is the default. The
            caller closes them after the application has shut down.
        settings: what is allowed; None for reading by anybody who can connect.
        reranker: for requests that ask for it; see `load_reranker`.

    Raises:
        ConfigError: there is no index.
    """
    if not indexes:
        raise ConfigError("indexes: expected one or more, found none")
    limits = settings or ServiceSettings()
    catalog = Catalog(dict(indexes), limits, reranker)
    registry = CollectorRegistry()
    sizes = Histogram(
        "retriever_batch_size",
        "Queries and texts that ran together.",
        ["work"],
        buckets=(1, 2, 4, 8, 16, 32, 64),
        registry=registry,
    )
    batcher = partial(Batcher, wait=limits.batch_wait, queue=limits.queue, threads=_THREADS)
    searches: Batcher[SearchJob, Answer] = batcher(
        lambda jobs: answers(jobs, reranker),
        size=limits.batch,
        observe=sizes.labels("search").observe,
    )
    encoding: Batcher[EncodingJob, compatible.Encoded] = batcher(
        encoded, size=limits.batch, observe=sizes.labels("embeddings").observe
    )
    reranking: Batcher[RerankJob, Any] = batcher(
        relevances(reranker), size=1, observe=sizes.labels("rerank").observe
    )
    writing = ThreadPoolExecutor(1, "retriever-write")
    batchers: dict[str, Batcher[Any, Any]] = {
        "search": searches,
        "embeddings": encoding,
        "rerank": reranking,
    }

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        for one in batchers.values():
            one.start()
        loading = asyncio.create_task(asyncio.to_thread(_load_encoders, catalog))
        yield
        for one in batchers.values():
            await one.stop()
        await loading
        await asyncio.to_thread(writing.shutdown)

    app = FastAPI(
        title="retriever",
        version=version("layer-retriever"),
        description="Local semantic search. Errors are one JSON object; the first index is the "
        "default.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=dict.fromkeys(("4XX", "5XX"), _ERROR),
    )
    install(app)

    app.include_router(searching.router(catalog, searches))
    # Set by whoever runs the application when it is about to end, so that no change runs for long.
    app.state.stopping = Event()
    app.include_router(documents.router(catalog, writing, app.state.stopping))
    app.include_router(compatible.router(catalog, encoding, reranking))
    app.include_router(status.router(catalog, registry, batchers))

    @app.get("/docs", include_in_schema=False)
    def reference(request: Request) -> HTMLResponse:
        return HTMLResponse(reference_page(app.openapi(), str(request.base_url)))

    for path, name in _PAGE.items():
        app.add_route(path, _static(name))
    if limits.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=limits.origins,
            allow_methods=["*"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(Guard, settings=limits, registry=registry)
    return app


def _static(name: str) -> Callable[[Request], Response]:
    content = (files("retriever.service") / "page" / name).read_bytes()
    kind = _TYPES[name.rpartition(".")[2]]
    return lambda request: Response(content, media_type=kind)


def _load_encoders(catalog: Catalog) -> None:
    """Load models before the first query needs them."""
    for name, index in catalog.indexes.items():
        try:
            index.encoder.encode(["a query"], query=True)
        except RetrieverError as error:
            _LOG.warning("%s: only --mode bm25 can be used: %s", name, error)
