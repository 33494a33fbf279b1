"""The application: its routes, what they share, and the page at /."""

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
# One batch is ranked while the next one is encoded.
_THREADS = 2
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
    batchers: dict[str, Batcher[Any, Any]] = {
        work: Batcher(
            run,
            size=size,
            wait=limits.batch_wait,
            queue=limits.queue,
            threads=_THREADS,
            observe=sizes.labels(work).observe,
        )
        for work, run, size in (
            ("search", partial(searching.answers, reranker=reranker), limits.batch),
            ("embeddings", compatible.encoded, limits.batch),
            ("rerank", partial(compatible.relevances, reranker=reranker), 1),
        )
    }
    writing = ThreadPoolExecutor(1, "retriever-write")

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
        version=_VERSION,
        description="Local semantic search. Errors are one JSON object; the first index is the "
        "default.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # The guard takes off the slash: a redirect would lose what a proxy has taken off.
        redirect_slashes=False,
        responses=dict.fromkeys(("4XX", "5XX"), _ERROR),
    )
    answer_errors(app)
    # Set by whoever runs the application when it is about to end, so that no change runs for long.
    app.state.stopping = Event()
    routers = [
        searching.router(catalog, batchers["search"]),
        documents.router(catalog, writing, app.state.stopping),
        compatible.router(catalog, batchers["embeddings"], batchers["rerank"]),
        _status(catalog, registry, batchers),
    ]
    for router in routers:
        app.include_router(router)
    addresses = {getattr(route, "path", "/") for router in routers for route in router.routes}
    _check_root_path(limits.root_path, {*addresses, *_PAGE, str(app.openapi_url)})

    for path, (name, kind) in _PAGE.items():
        app.add_route(path, _static(name, kind))
    if limits.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=limits.origins,
            allow_methods=["*"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(Guard, settings=limits, registry=registry)
    return app


def _check_root_path(root_path: str, addresses: Iterable[str]) -> None:
    """Refuse a root path below which an address could also be one without it."""
    first = root_path[1:].partition("/")[0]
    own = {address.split("/")[1] for address in addresses} - {SEARCH_PATH[1:]}
    if first and first in own:
        raise ConfigError(
            f"root_path: /{first} is an address of the service itself; choose another one"
        )


def _static(name: str, kind: str) -> Callable[[Request], Response]:
    content = (files("retriever.service") / "page" / name).read_bytes()
    return lambda request: Response(content, media_type=kind)


def _load_encoders(catalog: Catalog) -> None:
    """Load models before the first query needs them."""
    for name, index in catalog.indexes.items():
        try:
            if isinstance(index.encoder, Encoder):
                index.encoder.expect_many()
            index.encoder.encode(["a query"], query=True)
        except RetrieverError as error:
            _LOG.warning("%s: only --mode bm25 can be used: %s", name, error)


def _status(
    catalog: Catalog, registry: CollectorRegistry, batchers: Mapping[str, Batcher[Any, Any]]
) -> APIRouter:
    """Routes that say what is served and how it fares."""
    routes = APIRouter(tags=["service"])
    limits = catalog.settings
    held = Gauge("retriever_documents", "Documents of each index.", ["index"], registry=registry)
    waiting = Gauge(
        "retriever_waiting", "Queries and texts that wait.", ["work"], registry=registry
    )

    @routes.get("/info", summary="The indexes and the limits")
    def info() -> Any:
        """What each index is and holds, its metadata fields, and what the service allows."""
        return {
            "version": _VERSION,
            "default": catalog.default,
            "writable": limits.writable,
            "reranker": catalog.reranker is not None,
            "limits": {
                name: getattr(limits, name)
                for name in ("max_k", "max_queries", "max_text", "max_texts", "max_upload")
            },
            "indexes": {name: _described(index) for name, index in catalog.indexes.items()},
        }

    @routes.head("/health", include_in_schema=False)
    @routes.get("/health", summary="Whether the indexes can be read")
    def health() -> Any:
        """Status 200 if all can be read."""
        for index in catalog.indexes.values():
            len(index)
        return {"status": "ok"}

    @routes.get("/metrics", summary="Counts for Prometheus", response_class=PlainTextResponse)
    def metrics() -> Response:
        """In the text format of Prometheus."""
        for name, index in catalog.indexes.items():
            held.labels(name).set(len(index))
        for work, one in batchers.items():
            waiting.labels(work).set(one.waiting)
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return routes


def _described(index: Index) -> dict[str, Any]:
    # Where an index is kept is nobody else's business.
    hidden = ("index", "folder", "remains", "store")
    return {
        **{name: one for name, one in index.info().items() if name not in hidden},
        "fields": {one.name: one._asdict() for one in index.fields()},
    }
