"""Queries to an open index, with the settings and filters of `Index.search` resolved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from indexes import Query
from indexes.filters import compile_where
from retriever.documents.document import document_of
from retriever.documents.passages import passage_text
from retriever.errors import ConfigError
from retriever.index.reading import find_stored
from retriever.search.engine import hit_of, ranked_hits, scored_passages
from retriever.search.hits import Hits
from retriever.search.queries import (
    excluded_texts,
    map_queries,
    prepare_queries,
    rank_texts,
    search_texts,
    warn_doubtful,
)

if TYPE_CHECKING:
    from retriever.search.engine import Hit, ScoredPassages
    from retriever.search.opened import OpenedIndex
    from retriever.search.queries import QueryVectors
    from retriever.search.reranking import Reranker
    from retriever.search.settings import SearchSettings


def search_many(
    opened: OpenedIndex,
    texts: Iterable[str],
    settings: SearchSettings,
    where: str | Mapping[str, Any] | None,
    exclude: Iterable[str] = (),
    reranker: Reranker | None = None,
    ready: QueryVectors | None = None,
) -> Iterator[list[Hit]]:
    """Return the hits of each query; see `Index.search_many`."""
    if reranker is not None:
        from retriever.search.reranking import check_reranker

        check_reranker(reranker)
    compiled = None if where is None else compile_where(where)
    excluded = excluded_texts(exclude) if exclude else ()
    return search_texts(opened, texts, settings, compiled, reranker, ready, exclude=excluded)


def rank_many(
    opened: OpenedIndex,
    texts: Iterable[str],
    settings: SearchSettings,
    where: str | Mapping[str, Any] | None,
    exclude: Iterable[str] = (),
    ready: QueryVectors | None = None,
) -> Iterator[list[tuple[str, float]]]:
    """Return the ids and scores of the hits of each query; see `Index.rank`."""
    if settings.collapse:
        raise ConfigError("collapse: it compares texts; use search_many")
    compiled = None if where is None else compile_where(where)
    excluded = excluded_texts(exclude) if exclude else ()
    return rank_texts(opened, texts, settings, compiled, ready, exclude=excluded)


def find_similar(
    opened: OpenedIndex,
    id_: str,
    settings: SearchSettings,
    start: int,
    where: str | Mapping[str, Any] | None,
) -> Hits:
    """Find the documents most like one of the index; see `Index.more_like`."""
    compiled = None if where is None else compile_where(where)
    with opened.view() as view:
        stored = find_stored(view, id_)
        # Passages overlap: the last one that has begun there.
        earlier = [passage for passage in stored.passages if passage[1] <= start]
        number, first, last = (earlier or stored.passages[:1])[-1]
        state = opened.settings_of(view)
        passages = state.passages
        text = passage_text(
            document_of(stored), (first, last), passages.context, tables=passages.tables
        )
        terms = state.analyzer.query_tokens(text, view.setting("languages", {}))
        warn_doubtful(opened, view, compiled, stacklevel=4)
        query = Query(terms, view.vectors([number])[0])
        # One more, since the document itself may be among them.
        (hits,) = ranked_hits(view, replace(settings, k=settings.k + 1), [query], compiled)
    if settings.reads_dates:
        from retriever.search.recency import current_time, order_by_date

        hits = order_by_date(hits, settings, current_time())
    neighbors = [hit for hit in hits if hit.id != stored.id][: settings.k]
    return Hits(replace(hit, rank=rank) for rank, hit in enumerate(neighbors, start=1))


def score_candidates(
    opened: OpenedIndex, texts: Sequence[str], settings: SearchSettings
) -> list[ScoredPassages]:
    """Score the candidates of each query with both components; see `Index.candidates`."""
    hybrid = replace(settings, mode="hybrid")
    with prepare_queries(opened, texts) as (view, queries):
        query_map = opened.query_map
        mapped = queries if query_map is None else map_queries(query_map, queries)
        return scored_passages(view, hybrid, mapped)


def list_documents(opened: OpenedIndex, where: str | Mapping[str, Any] | None, k: int) -> Hits:
    """Return the first documents that match a filter; see `Index.browse`."""
    if k < 1:
        raise ConfigError(f"k: expected 1 or more, found {k}")
    compiled = None if where is None else compile_where(where)
    with opened.view() as view:
        warn_doubtful(opened, view, compiled, stacklevel=4)
        numbers = [stored.passages[0][0] for stored in islice(view.documents(compiled), k)]
        passages = view.passages(numbers)
    return Hits(hit_of(passages[number], rank) for rank, number in enumerate(numbers, start=1))
