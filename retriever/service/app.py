"""The application: its routes, the state that they share, and the page at /."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from threading import Event
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.middleware.cors import CORSMiddleware

from retriever.encoders.encoder import Encoder
from retriever.errors import ConfigError, RetrieverError
from retriever.index.index import Index
from retriever.search.reranking import Reranker
from retriever.service import compatible, documents, searching
from retriever.service.batching import Batcher
from retriever.service.guard import Guard
from retriever.service.limits import SEARCH_PATH, Catalog, ServiceSettings, answer_errors

_LOG = logging.getLogger("retriever.service")
# Threads of a batcher: one batch is ranked while the next one is encoded.
_THREADS = 2
# File name and media type by path.
_PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
_VERSION = version("layer-retriever")
_ERROR = {
    "description": "What is wrong, in the words of the command line: "
    '{"error": {"type": TYPE, "message": TEXT}, "message": TEXT}'
}


def create_app(
    indexes: Mapping[str, Index],
    settings: ServiceSettings | None = None,
    *,
    reranker: Reranker | None = None,
) -> FastAPI:
    """Return an ASGI application that serves indexes and the search page.

    Args:
        indexes: indexes by the name that clients use; the first one is the default. The caller
            closes them after the application has shut down.
        settings: permissions and limits; None lets anybody who can connect read.
        reranker: reranker for requests with `rerank`; see `load_reranker`.

    Raises:
        ConfigError: there is no index.
    """
    if not indexes:
        raise ConfigError("indexes: expected one or more, found none")
    limits = settings or ServiceSettings()
    catalog = Catalog(dict(indexes), limits, reranker)
    registry = CollectorRegistry()
    batchers = _create_batchers(limits, reranker, registry)
    writing = ThreadPoolExecutor(1, "retriever-write")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        for batcher in batchers.values():
            batcher.start()
        loading = asyncio.create_task(asyncio.to_thread(_load_encoders, catalog))
        yield
        for batcher in batchers.values():
            await batcher.stop()
        await loading
        await asyncio.to_thread(writing.shutdown)

    app = FastAPI(
        title="retriever",
        version=_VERSION,
        description="Local semantic search. Errors are one JSON object; the first index is the "
        "default.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # The guard removes the slash: a redirect would lose the root path that a proxy removes.
        redirect_slashes=False,
        responses=dict.fromkeys(("4XX", "5XX"), _ERROR),
    )
    answer_errors(app)
    # The server sets it when it is about to end, so that no change runs for long.
    app.state.stopping = Event()
    routers = [
        searching.router(catalog, batchers["search"]),
        documents.router(catalog, writing, app.state.stopping),
        compatible.router(catalog, batchers["embeddings"], batchers["rerank"]),
        _status_router(catalog, registry, batchers),
    ]
    for router in routers:
        app.include_router(router)
    paths = {getattr(route, "path", "/") for router in routers for route in router.routes}
    _check_root_path(limits.root_path, {*paths, *_PAGE, str(app.openapi_url)})
    for path, (name, media_type) in _PAGE.items():
        app.add_route(path, _serve_file(name, media_type))
    if limits.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=limits.origins,
            allow_methods=["*"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(Guard, settings=limits, registry=registry)
    return app


def _create_batchers(
    limits: ServiceSettings, reranker: Reranker | None, registry: CollectorRegistry
) -> dict[str, Batcher[Any, Any]]:
    """Return a batcher for each kind of work."""
    sizes = Histogram(
        "retriever_batch_size",
        "Queries and texts that ran together.",
        ["work"],
        buckets=(1, 2, 4, 8, 16, 32, 64),
        registry=registry,
    )
    return {
        work: Batcher(
            run,
            size=size,
            wait=limits.batch_wait,
            queue=limits.queue,
            threads=_THREADS,
            observe=sizes.labels(work).observe,
        )
        for work, run, size in (
            ("search", partial(searching.answer_jobs, reranker=reranker), limits.batch),
            ("embeddings", compatible.encode_jobs, limits.batch),
            ("rerank", partial(compatible.score_jobs, reranker=reranker), 1),
        )
    }


def _check_root_path(root_path: str, paths: Iterable[str]) -> None:
    """Raise ConfigError if a path below `root_path` could also be a path without it."""
    first = root_path[1:].partition("/")[0]
    first_parts = {path.split("/")[1] for path in paths} - {SEARCH_PATH[1:]}
    if first and first in first_parts:
        raise ConfigError(
            f"root_path: /{first} is an address of the service itself; choose another path"
        )


def _serve_file(name: str, media_type: str) -> Callable[[Request], Response]:
    content = (files("retriever.service") / "page" / name).read_bytes()
    return lambda request: Response(content, media_type=media_type)


def _load_encoders(catalog: Catalog) -> None:
    """Load models before the first query needs them."""
    for name, index in catalog.indexes.items():
        try:
            if isinstance(index.encoder, Encoder):
                index.encoder.expect_many()
            index.encoder.encode(["a query"], query=True)
        except RetrieverError as error:
            _LOG.warning("%s: only --mode bm25 can be used: %s", name, error)


def _status_router(
    catalog: Catalog, registry: CollectorRegistry, batchers: Mapping[str, Batcher[Any, Any]]
) -> APIRouter:
    """Return the routes for the state of the service and its indexes."""
    routes = APIRouter(tags=["service"])
    limits = catalog.settings
    document_counts = Gauge(
        "retriever_documents", "Documents of each index.", ["index"], registry=registry
    )
    waiting = Gauge(
        "retriever_waiting", "Queries and texts that wait.", ["work"], registry=registry
    )

    @routes.get("/info", summary="The indexes and the limits")
    def info() -> Any:
        """Describe each index, its metadata fields, and the limits of the service."""
        return {
            "version": _VERSION,
            "default": catalog.default,
            "writable": limits.writable,
            "reranker": catalog.reranker is not None,
            "limits": {
                name: getattr(limits, name)
                for name in ("max_k", "max_queries", "max_text", "max_texts", "max_upload")
            },
            "indexes": {name: _describe_index(index) for name, index in catalog.indexes.items()},
        }

    @routes.head("/health", include_in_schema=False)
    @routes.get("/health", summary="Whether the indexes can be read")
    def health() -> Any:
        """Answer with status 200 if all indexes can be read."""
        for index in catalog.indexes.values():
            len(index)
        return {"status": "ok"}

    @routes.get("/metrics", summary="Counts for Prometheus", response_class=PlainTextResponse)
    def metrics() -> Response:
        """Return counts in the text format of Prometheus."""
        for name, index in catalog.indexes.items():
            document_counts.labels(name).set(len(index))
        for work, batcher in batchers.items():
            waiting.labels(work).set(batcher.waiting)
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return routes


def _describe_index(index: Index) -> dict[str, Any]:
    # Clients need not know where an index is stored.
    hidden = ("index", "folder", "remains", "store")
    return {
        **{name: value for name, value in index.info().items() if name not in hidden},
        "fields": {field.name: field._asdict() for field in index.fields()},
    }
