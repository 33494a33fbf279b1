"""Search requests, as jobs that run in batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from indexes import compile_where
from retriever.errors import BadInputError, EncoderMismatchError
from retriever.index import Index
from retriever.search.engine import Hit
from retriever.search.highlights import highlights
from retriever.search.queries import QueryVectors, check_query
from retriever.search.reranking import Reranker
from retriever.search.settings import SearchSettings, search_settings
from retriever.service.catalog import Catalog
from retriever.service.faults import ServiceError
from retriever.service.schemas import Like, Ranking, SearchRequest

_SETTINGS = (
    *("mode", "k", "depth", "recall", "fusion", "alpha", "normalization", "rrf_k"),
    *("variant", "k1", "b"),
)


@dataclass(frozen=True, slots=True)
class SearchJob:
    """What one request asks for.

    Attributes:
        index: to search.
        texts: queries; empty with `like`.
        like: a document to find similar ones of.
        settings: how to rank.
        where: a filter.
        rerank: whether the hits are reranked.
        facets: fields whose values are counted.
        facet_limit: maximum number of values of a field.
        highlight: whether words are marked.
    """

    index: Index
    texts: tuple[str, ...]
    like: Like | None
    settings: SearchSettings
    where: str | None
    rerank: bool
    facets: tuple[str, ...]
    facet_limit: int
    highlight: bool


def search_job(catalog: Catalog, request: SearchRequest) -> SearchJob:
    """Check a request.

    Raises:
        ServiceError: it exceeds a limit, or asks for what the service does not have.
        BadInputError: a query or a setting is faulty.
    """
    limits = catalog.settings
    if (request.query is None) == (request.like is None):
        raise BadInputError("query: expected either a query or like, found both or neither")
    asked = [] if request.query is None else request.query
    texts = (asked,) if isinstance(asked, str) else tuple(asked)
    if not texts and request.like is None:
        raise BadInputError("query: expected one query or several, found none")
    catalog.check_number("queries", len(texts), limits.max_queries)
    for number, text in enumerate(texts, start=1):
        catalog.check_text(f"query {number}", text)
        check_query(text, number)
    filters = [request.where] if isinstance(request.where, str) else request.where or []
    catalog.check_text("where", "".join(filters))
    settings = _settings(request)
    catalog.check_number("k", settings.k, limits.max_k)
    if request.depth is not None:
        catalog.check_number("depth", request.depth, limits.max_k)
    if request.rerank and catalog.reranker is None:
        raise ServiceError(400, "rerank: the service has no reranker; start it with --rerank")
    if request.rerank and request.like is not None:
        raise BadInputError("rerank: it needs a query, found like; leave one of them out")
    return SearchJob(
        catalog.index(request.index),
        texts,
        request.like,
        settings,
        _joined(filters),
        request.rerank,
        tuple(request.facets),
        request.facet_limit,
        request.highlight,
    )


def _joined(filters: Sequence[str]) -> str | None:
    """A filter for the documents that match all of several; None for none.

    Raises:
        FilterError: one of several does not parse; `position` is that in its own text.
    """
    if len(filters) < 2:
        return next(iter(filters), None)
    for text in filters:
        compile_where(text)
    return " and ".join(f"({text})" for text in filters)


def _settings(request: Ranking) -> SearchSettings:
    given = {name: getattr(request, name) for name in _SETTINGS}
    return search_settings(None, {name: one for name, one in given.items() if one is not None})


Answer = dict[str, Any]


def answers(jobs: Sequence[SearchJob], reranker: Reranker | None) -> list[Answer | Exception]:
    """The answer of each job, or what it failed with; queries are encoded together."""
    found: list[Answer | Exception | None] = [None] * len(jobs)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, job in enumerate(jobs):
        if job.like is not None:
            found[place] = _attempt(job, [], None)
        else:
            key = (id(job.index), job.settings, job.where, job.rerank)
            groups.setdefault(key, []).append(place)
    vectors: dict[int, dict[str, Any] | Exception] = {}
    for key in groups:
        if key[0] not in vectors:
            vectors[key[0]] = _encoded([job for job in jobs if id(job.index) == key[0]], reranker)
    for key, places in groups.items():
        group = [jobs[place] for place in places]
        try:
            hits = iter(_hits(group, vectors[key[0]], reranker))
        except Exception as error:
            for place in places:
                found[place] = error
            continue
        for place in places:
            job = jobs[place]
            found[place] = _attempt(job, [next(hits) for _ in job.texts], reranker)
    return [one if one is not None else RuntimeError("no answer") for one in found]


def _needs_vectors(job: SearchJob, reranker: Reranker | None) -> bool:
    if job.like is not None:
        return False
    return job.settings.mode != "bm25" or (
        job.rerank and reranker is not None and reranker.reads_vectors
    )


def _encoded(jobs: Sequence[SearchJob], reranker: Reranker | None) -> dict[str, Any] | Exception:
    """The vectors of the queries on one index by text, and at "" the encoder's specification."""
    needed = [job for job in jobs if _needs_vectors(job, reranker)]
    texts = list(dict.fromkeys(text for job in needed for text in job.texts))
    if not texts:
        return {}
    try:
        encoder = needed[0].index.encoder
        return {
            "": encoder.spec,
            **dict(zip(texts, encoder.encode(texts, query=True), strict=True)),
        }
    except Exception as error:
        return error


def _hits(
    group: Sequence[SearchJob], vectors: dict[str, Any] | Exception, reranker: Reranker | None
) -> list[list[Hit]]:
    """The hits of all queries of jobs on one index with the same settings."""
    first = group[0]
    texts = [text for job in group for text in job.texts]
    ready = None
    if _needs_vectors(first, reranker):
        if isinstance(vectors, Exception):
            raise vectors
        ready = QueryVectors(np.stack([vectors[text] for text in texts]), vectors[""])
    search = first.index.search_many
    chosen = reranker if first.rerank else None
    try:
        return list(search(texts, first.settings, where=first.where, reranker=chosen, ready=ready))
    except EncoderMismatchError:
        if ready is None:
            raise
        # The index was replaced by one with another encoder since the queries were encoded.
        return list(search(texts, first.settings, where=first.where, reranker=chosen))


def _attempt(
    job: SearchJob, hits: list[list[Hit]], reranker: Reranker | None
) -> Answer | Exception:
    try:
        return _answer(job, hits)
    except Exception as error:
        return error


def _answer(job: SearchJob, hits: list[list[Hit]]) -> Answer:
    index = job.index
    results: list[Answer] = []
    if job.like is not None:
        try:
            found = index.more_like(
                job.like.id, job.settings, start=job.like.start, where=job.where
            )
        except KeyError:
            raise ServiceError(404, f"the index holds no document {job.like.id!r:.80}") from None
        results.append({"like": job.like.id, "hits": [hit.to_json() for hit in found]})
        if job.facets:
            results[0]["facets"] = _facets(job, None)
    for text, found in zip(job.texts, hits, strict=True):
        records = [hit.to_json() for hit in found]
        if job.highlight:
            weights = index.term_weights(text)
            for record in records:
                record["marks"] = highlights(record["passage"], index.analyzer, weights)
        results.append({"query": text, "hits": records})
        if job.facets:
            results[-1]["facets"] = _facets(job, text)
    doubt = None if job.where is None else index.filter_warning(job.where)
    return {"results": results, "warnings": [] if doubt is None else [doubt]}


def _facets(job: SearchJob, text: str | None) -> Answer:
    return asdict(job.index.facets(job.facets, text, where=job.where, limit=job.facet_limit))
