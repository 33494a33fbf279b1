"""An index in other frameworks: LangChain, LlamaIndex, Haystack, MTEB; one module for each.

Each imports its framework at the top and is imported by those who use that framework.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from retriever.documents.document import Document, document_fault
from retriever.errors import ConfigError, SourceError
from retriever.index.embedded_documents import ReadyDocument, require_sound
from retriever.index.index import Index
from retriever.search.engine import Hit
from retriever.search.queries import QueryVectors
from retriever.search.settings import SearchSettings

P = ParamSpec("P")
T = TypeVar("T")
# Of the metadata that describes the hit itself.
HIT = "hit"
_FACTS = (
    *("rank", "score", "title", "start", "stop"),
    *("dense", "dense_rank", "bm25", "bm25_rank", "first_rank"),
)


def metadata_of(hit: Hit) -> dict[str, Any]:
    """The document's metadata, and under ``hit`` the title, offsets, scores and ranks."""
    place = {} if hit.place is None else {"place": hit.place.to_json()}
    return {**hit.metadata, HIT: {name: getattr(hit, name) for name in _FACTS} | place}


def search_by_vector(
    index: Index,
    vector: Sequence[float] | NDArray[np.floating[Any]],
    settings: SearchSettings,
    where: str | None = None,
    text: str | None = None,
) -> list[Hit]:
    """Hits for the vector of a query, of the mode ``dense`` without its text."""
    row = np.asarray(vector, np.float32)
    spec = index.encoder_spec
    if row.shape != (spec.dimensions,) or not np.isfinite(row).all():
        raise ConfigError(
            f"vector of the query: expected {spec.dimensions} finite numbers, as {spec} gives "
            f"them, found an array of shape {row.shape}"
        )
    if text is None:
        # Only a component that is not asked reads the text.
        text = "-"
        settings = replace(settings, mode="dense")
    ready = QueryVectors(row[np.newaxis], spec)
    return next(index.search_many([text], settings, where=where, ready=ready))


def opened(index: Index | str | Path) -> Index:
    """Return an index that is given, or open the one at a path."""
    return index if isinstance(index, Index) else Index.open(index)


def opened_for_vectors(index: Index | str | Path, dimensions: int, name: str) -> Index:
    """Open or create an index for the vectors of a framework's embedder, called `name`.

    ConfigError if `dimensions` is below 1, or is not the length of the vectors of the index.
    """
    if not isinstance(dimensions, int) or dimensions < 1:
        raise ConfigError(
            f"embedding_dimensions: expected the length of an embedding, found {dimensions!r:.60}"
        )
    if not isinstance(index, Index):
        index = Index.create(index, encoder=EmbedderVectors(dimensions, name))
    own = index.encoder_spec.dimensions
    if own != dimensions:
        raise ConfigError(
            f"embedding_dimensions: {index.store} has vectors of {own} dimensions, found "
            f"{dimensions}; give {own}, or another index"
        )
    return index


def require_storable(index: Index, documents: Iterable[Document | ReadyDocument]) -> None:
    """Refuse documents that an index cannot store, before their earlier versions are deleted.

    SourceError names the first one, and what is wrong with it or its vector.
    """
    spec = index.encoder_spec
    for item in documents:
        document = item.document if isinstance(item, ReadyDocument) else item
        fault = document_fault(document)
        if fault is not None:
            raise SourceError(f"document {document.id!r}: {fault}")
        if isinstance(item, ReadyDocument):
            require_sound(item, spec, f"document {document.id!r}")


def whole_documents(index: Index, hits: Iterable[Hit]) -> list[tuple[Document, Hit]]:
    """Hits with the whole documents, without those that were deleted after the search."""
    found = []
    for hit in hits:
        with suppress(KeyError):
            found.append((index[hit.id], hit))
    return found


def in_thread(method: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """The asynchronous form of a method, which calls it in a thread."""

    @wraps(method)
    async def run(*arguments: P.args, **keywords: P.kwargs) -> T:
        return await asyncio.to_thread(method, *arguments, **keywords)

    return run


class EmbedderVectors:
    """The encoder of an index that gets ready vectors alone, of an embedder of a framework."""

    def __init__(self, dimensions: int, name: str) -> None:
        self.dimensions = dimensions
        self.name = name

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Zeros, which embeddings do not find: of documents without an embedding."""
        return np.zeros((len(texts), self.dimensions), np.float32)

    def encode_query(self, texts: list[str]) -> NDArray[np.float32]:
        """Raise ConfigError: a query has an embedding too."""
        raise ConfigError(
            f"{self.name}: the framework embeds documents and queries: give query_embedding, or "
            "search by words alone (BM25)"
        )
