"""An index in LangChain, LlamaIndex, Haystack and MTEB; one module for each framework.

A module imports its framework at the top, so import it only with the framework installed.
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
from retriever.index.index import Index
from retriever.index.indexing.embedded_documents import ReadyDocument, require_sound
from retriever.search.engine import Hit
from retriever.search.queries import QueryVectors
from retriever.search.settings import SearchSettings

P = ParamSpec("P")
T = TypeVar("T")
# Key of the metadata that describe the hit itself.
HIT = "hit"
_FACTS = (
    *("rank", "score", "title", "start", "stop"),
    *("dense", "dense_rank", "bm25", "bm25_rank", "first_rank"),
)


def metadata_of(hit: Hit) -> dict[str, Any]:
    """Return the document's metadata, with title, offsets, scores and ranks under ``hit``."""
    place = {} if hit.place is None else {"place": hit.place.to_json()}
    return {**hit.metadata, HIT: {name: getattr(hit, name) for name in _FACTS} | place}


def search_by_vector(
    index: Index,
    vector: Sequence[float] | NDArray[np.floating[Any]],
    settings: SearchSettings,
    where: str | None = None,
    text: str | None = None,
) -> list[Hit]:
    """Search for the vector of a query; without its text, in the mode ``dense``."""
    row = np.asarray(vector, np.float32)
    spec = index.encoder_spec
    if row.shape != (spec.dimensions,) or not np.isfinite(row).all():
        raise ConfigError(
            f"vector of the query: expected {spec.dimensions} finite numbers, as {spec} gives "
            f"them, found an array of shape {row.shape}"
        )
    if text is None:
        # The mode dense does not read the text.
        text = "-"
        settings = replace(settings, mode="dense")
    ready = QueryVectors(row[np.newaxis], spec)
    return next(index.search_many([text], settings, where=where, ready=ready))


def open_index(index: Index | str | Path) -> Index:
    """Return an index as it is, or open the index at a path."""
    return index if isinstance(index, Index) else Index.open(index)


def open_for_vectors(index: Index | str | Path, dimensions: int, name: str) -> Index:
    """Open or create an index for the vectors of a framework's embedder, called `name`.

    Raises:
        ConfigError: `dimensions` is below 1, or the index has vectors of another length.
    """
    if not isinstance(dimensions, int) or dimensions < 1:
        raise ConfigError(
            f"embedding_dimensions: expected the length of an embedding, found {dimensions!r:.60}"
        )
    if not isinstance(index, Index):
        index = Index.create(index, encoder=EmbedderVectors(dimensions, name))
    stored = index.encoder_spec.dimensions
    if stored != dimensions:
        raise ConfigError(
            f"embedding_dimensions: {index.store} has vectors of {stored} dimensions, found "
            f"{dimensions}; give {stored}, or another index"
        )
    return index


def require_storable(index: Index, documents: Iterable[Document | ReadyDocument]) -> None:
    """Check documents before their earlier versions are deleted.

    Raises:
        SourceError: the index cannot store a document or its vector; names the first one.
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
    """Return the whole document of each hit, without documents deleted after the search."""
    documents = []
    for hit in hits:
        with suppress(KeyError):
            documents.append((index[hit.id], hit))
    return documents


def in_thread(method: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return the asynchronous form of a method, which calls it in a thread."""

    @wraps(method)
    async def run(*arguments: P.args, **keywords: P.kwargs) -> T:
        return await asyncio.to_thread(method, *arguments, **keywords)

    return run


class EmbedderVectors:
    """The encoder of an index whose vectors come from an embedder of a framework."""

    def __init__(self, dimensions: int, name: str) -> None:
        self.dimensions = dimensions
        self.name = name

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Return zeros for documents without an embedding; no query vector is near them."""
        return np.zeros((len(texts), self.dimensions), np.float32)

    def encode_query(self, texts: list[str]) -> NDArray[np.float32]:
        """Raise ConfigError, since the framework must embed queries."""
        raise ConfigError(
            f"{self.name}: the framework embeds documents and queries: give query_embedding, or "
            "search by words alone (BM25)"
        )
