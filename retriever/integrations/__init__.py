"""An index in other frameworks: LangChain, LlamaIndex, Haystack, MTEB; one module for each.

Each imports its framework at the top and is imported by those who use that framework.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from indexes import written_field, written_value
from retriever.documents import Document
from retriever.errors import ConfigError
from retriever.index import Index
from retriever.search import SearchSettings
from retriever.search.engine import Hit
from retriever.search.queries import QueryVectors

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


def equal_to(fields: Mapping[str, Any]) -> str:
    """A filter for documents whose fields have these values; a list stands for one of several."""
    conditions = []
    for name, value in fields.items():
        field = written_field(name.split("."))
        if value is None:
            conditions.append(f"{field} is null")
            continue
        several = isinstance(value, list | tuple | set | frozenset) and value
        values = list(value) if several else [value]
        if not all(isinstance(one, str | bool | int | float) for one in values):
            raise ConfigError(
                f"filter: {name}: expected a string, number, boolean, None or several of them, "
                f"found {value!r:.60}; write other conditions as a text: where='year >= 2000'"
            )
        conditions.append(f"{field} in ({', '.join(map(written_value, values))})")
    return " and ".join(conditions)


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
        text, settings = "-", replace(settings, mode="dense")
    ready = QueryVectors(row[np.newaxis], spec)
    return next(index.search_many([text], settings, where=where, ready=ready))


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
