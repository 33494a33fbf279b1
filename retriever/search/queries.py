"""Texts to hits: queries are encoded in batches, and each batch is ranked on one view."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from indexes import BM25, Facets, View, Where, parse_field
from retriever.corpus.documents import string_fault
from retriever.errors import BadInputError
from retriever.indexing.creation import IndexState
from retriever.opened import OpenedIndex
from retriever.search.engine import Engine, Hit, Query, ScoredPassages
from retriever.search.reranking import Reranker, rerank
from retriever.search.settings import SearchSettings

_BATCH = 256


def search_texts(
    index: OpenedIndex,
    texts: Iterable[str],
    settings: SearchSettings,
    where: Where | None,
    reranker: Reranker | None,
) -> Iterator[list[Hit]]:
    """The hits of each query; see `Index.search_many`."""
    batch: list[str] = []
    for number, text in enumerate(texts, start=1):
        _check_query(text, number)
        batch.append(text)
        if len(batch) == _BATCH:
            yield from _search(index, batch, settings, where, reranker)
            batch = []
    if batch:
        yield from _search(index, batch, settings, where, reranker)


def candidates_of(
    index: OpenedIndex, texts: Sequence[str], settings: SearchSettings
) -> list[ScoredPassages]:
    """What the mode ``hybrid`` fuses for each query; see `Index.candidates`."""
    while True:
        state = index.state()
        queries = _queries(index, state, texts, encoded=True)
        with index.view() as view:
            # An index that replaced this one meanwhile may have another encoder and analyzer.
            if view.identity == state.identity:
                return Engine(view, replace(settings, mode="hybrid")).candidates(queries)


def facets_of(
    index: OpenedIndex, names: Sequence[str], text: str | None, where: Where | None, limit: int
) -> Facets:
    """The values of metadata fields; see `Index.facets`."""
    paths = [parse_field(name) for name in names]
    if text is not None:
        _check_query(text)
    while True:
        state = index.state()
        with index.view() as view:
            # An index that replaced this one meanwhile may have another analyzer.
            if view.identity != state.identity:
                continue
            _warn_unknown(view, where)
            if problem := unknown_fields(view, [path[0] for path in paths]):
                warnings.warn(f"facets: {problem}", stacklevel=3)
            matching = None
            if text is not None:
                bm25 = BM25(view.segments, statistics=view.statistics)
                matching = bm25.query(state.analyzer.tokens(text)).matching()
            return view.facets(names, where, matching, limit)


def unknown_fields(view: View, names: Iterable[str]) -> str | None:
    """What to say of fields that no document has; None if all are known."""
    for name, known in view.unknown_fields(names).items():
        near = difflib.get_close_matches(name, known, 1)
        guess = f"; did you mean {near[0]!r}?" if near else ""
        there = f"fields: {', '.join(known)}" if known else "no document has metadata"
        return f"no document has the field {name!r}{guess} ({there})"
    return None


def _check_query(text: str, number: int = 1) -> None:
    fault = string_fault(text)
    if not text.strip():
        fault = "is empty: expected at least one word"
    if fault is not None:
        raise BadInputError(f"query {number} {fault}")


def _warn_unknown(view: View, where: Where | None) -> None:
    if where is not None and (problem := unknown_fields(view, where.fields)):
        warnings.warn(f"filter: {problem}", stacklevel=3)


def _search(
    index: OpenedIndex,
    texts: Sequence[str],
    settings: SearchSettings,
    where: Where | None,
    reranker: Reranker | None,
) -> list[list[Hit]]:
    wide = settings
    if reranker is not None:
        wide = replace(settings, k=max(settings.k, settings.depth))
    while True:
        state = index.state()
        if reranker is not None:
            reranker.check(state.encoder)
        encoded = settings.mode != "bm25" or (reranker is not None and reranker.reads_vectors)
        queries = _queries(index, state, texts, encoded=encoded)
        with index.view() as view:
            # An index that replaced this one meanwhile may have another encoder and analyzer.
            if view.identity != state.identity:
                continue
            _warn_unknown(view, where)
            found = Engine(view, wide, where).search(queries)
            if reranker is None:
                return found
            return [
                rerank(view, reranker, text, query.vector, hits)[: settings.k]
                for text, query, hits in zip(texts, queries, found, strict=True)
            ]


def _queries(
    index: OpenedIndex, state: IndexState, texts: Sequence[str], *, encoded: bool
) -> list[Query]:
    """The terms of queries, and their vectors if they are asked for."""
    queries = [Query(state.analyzer.tokens(text)) for text in texts]
    if not encoded:
        return queries
    vectors = index.encoder(state).encode(texts, query=True)
    return [Query(query.terms, vector) for query, vector in zip(queries, vectors, strict=True)]
