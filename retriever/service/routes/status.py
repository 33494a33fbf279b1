"""Routes that say what is served and how it fares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from retriever.index import Index
from retriever.service.batching import Batcher
from retriever.service.catalog import Catalog


def router(
    catalog: Catalog, registry: CollectorRegistry, batchers: Mapping[str, Batcher[Any, Any]]
) -> APIRouter:
    """The routes.

    Args:
        catalog: of the service.
        registry: of what is counted.
        batchers: by the work that they do.
    """
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
            "version": version("layer-retriever"),
            "default": catalog.default,
            "writable": limits.writable,
            "reranker": catalog.reranker is not None,
            "limits": {
                name: getattr(limits, name)
                for name in ("max_k", "max_queries", "max_text", "max_texts", "max_upload")
            },
            "indexes": {name: _described(index) for name, index in catalog.indexes.items()},
        }

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
    kept = {
        name: one
        for name, one in index.info().items()
        if name not in ("index", "folder", "remains", "store")
    }
    weighted = index.encoder_spec.settings.fusion == "sbert-wk"
    return {
        **kept,
        "fields": {one.name: asdict(one) for one in index.fields()},
        "word_weights": weighted,
    }
