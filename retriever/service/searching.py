"""Routes that search and list documents.

A faulty request costs little: a list is read up to its first fault, since pydantic would keep an
error of several hundred bytes for every item, millions of them in one request.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic_core import to_json

from indexes import compile_where
from retriever.errors import BadInputError, EncoderMismatchError
from retriever.index.index import Index
from retriever.search.engine import Hit, check_cancelled
from retriever.search.queries import QueryVectors, check_query, highlights
from retriever.search.reranking import Reranker
from retriever.search.settings import SearchSettings, search_fields, search_settings
from retriever.search.syntax import ParsedQuery, operators_note, parse_query
from retriever.service.batching import Batcher, in_groups
from retriever.service.limits import SEARCH_PATH, Catalog, ServiceError, check_number
from retriever.settings import Setting, declared_settings

Answer = dict[str, Any]
Texts = str | Annotated[list[str], Field(fail_fast=True)]
Filters = Annotated[list[str], Field(max_length=64)]
# More than any request has.
_MOST_FIELDS = 100
_SETTINGS = (*search_fields(), "raw", "collapse")


class _Request(BaseModel):
    # JSON's NaN and numbers as strings are refused; unknown fields are likely misspelled.
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, given: Any) -> Any:
        if isinstance(given, dict) and len(given) > _MOST_FIELDS:
            raise ValueError(f"expected at most {_MOST_FIELDS} fields, found {len(given):,}")
        return given


class Like(_Request):
    """A passage of a document of the index."""

    id: str = Field(description="Id of the document.", examples=["42"])
    start: int = Field(
        0, ge=0, le=2**53, description="A character offset inside the passage.", examples=[0]
    )


class _Counting(_Request):
    index: str | None = Field(None, description="Name of the index; the first one by default.")
    facets: list[str] = Field(
        [],
        max_length=32,
        description="Metadata fields whose values are counted over the whole result.",
    )
    facet_limit: int = Field(10, ge=1, le=1_000, description="Maximum number of values of a field.")


def _request_field(setting: Setting) -> tuple[Any, Any]:
    """Return the type and the field of a setting, which the Python API checks."""
    # A faulty normalization is refused by the Python API, with status 400.
    has_choices = setting.choices and setting.name != "normalization"
    kind: Any = Literal[setting.choices] if has_choices else setting.kind
    default = f"; {setting.shown} by default" if setting.shown else ""
    text = f"{setting.description} Expected: {setting.expected}{default}."
    return kind | None, Field(None, description=text)


if TYPE_CHECKING:
    _Settings = _Counting
else:
    _Settings = create_model(
        "_Settings",
        __base__=_Counting,
        **{name: _request_field(setting) for name, setting in search_fields().items()},
    )


class Ranking(_Settings):
    """How to rank; what is left out has the default of the Python API."""

    raw: bool = Field(False, description=declared_settings(SearchSettings)["raw"].description)
    collapse: bool = Field(
        False, description="Fold hits that nearly repeat a better one into it, as its `copies`."
    )
    min_probability: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None,
        description="Give hits only if one of the first ten is relevant with this probability, as "
        "`retriever calibrate` has learned it.",
    )
    rerank: bool = Field(
        False, description="Rank the best `depth` hits again with the reranker of the service."
    )
    highlight: bool = Field(
        False, description="Give the character offsets of the words to mark in each passage."
    )


class SearchRequest(Ranking):
    """One query or several, or a document to find similar ones of."""

    query: Texts | None = Field(
        None,
        description="A query, or several that are ranked with the same settings.",
        examples=["how do cells die"],
    )
    like: Like | None = Field(
        None, description="Find documents like this one, in place of a query."
    )
    where: str | Filters | None = Field(
        None,
        description="Rank only documents that match this filter, or all of several, such as "
        '`year >= 2020 and lang = "en"`.',
    )


class SearchParameters(Ranking):
    """A search as the parameters of an address."""

    query: Annotated[
        list[str],
        Query(
            min_length=1,
            validation_alias=AliasChoices("query", "q"),
            description="One query or several; `q` for short.",
            examples=[["how do cells die"]],
        ),
    ]
    where: Filters = Field(
        [], description="Rank only documents that match this filter; all of several."
    )


class BrowseRequest(_Counting):
    """Which documents to list."""

    where: str | Filters | None = Field(
        None, description="List only documents that match this filter, or all of several."
    )
    k: Annotated[int, Field(ge=1)] = Field(10, description="Number of documents.")


@dataclass(frozen=True, slots=True)
class SearchJob:
    """A request that was checked: its index, queries, settings and one filter."""

    request: SearchRequest
    index: Index
    texts: tuple[str, ...]
    # The texts without operators, unless the request is raw.
    queries: tuple[ParsedQuery, ...]
    settings: SearchSettings
    where: str | None


def router(catalog: Catalog, searches: Batcher[SearchJob, Answer]) -> APIRouter:
    """The routes; `searches` runs `answers`."""
    routes = APIRouter(tags=["search"])

    @routes.post(SEARCH_PATH, summary="Search")
    async def search(request: Request, asked: SearchRequest) -> Any:
        """Hits of one query, of several, or of a document to find similar ones of.

        Each result has `hits`, the highest score first, with the scores and ranks of both
        components, and `facets` if fields were named. Offsets count Unicode characters.
        """
        job = _job(catalog, asked)
        answer = await searches.result(request, job, max(1, len(job.texts)))
        return Response(to_json(answer), media_type="application/json")

    @routes.get(SEARCH_PATH, summary="Search by address")
    async def search_by_address(
        request: Request, asked: Annotated[SearchParameters, Query()]
    ) -> Any:
        """The same with parameters; repeat `query`, `where` and `facets` for several."""
        return await search(request, SearchRequest.model_validate(asked.model_dump()))

    @routes.post("/browse", summary="List documents")
    def browse(asked: BrowseRequest) -> Any:
        """Documents in the order of their ids, without a query.

        The answer is that of a search with one result, whose hits are the first passages.
        """
        check_number("k", asked.k, catalog.settings.max_k)
        where = _checked_filter(catalog, asked.where)
        index = catalog.index(asked.index)
        result: Answer = {"hits": [hit.to_json() for hit in index.browse(where, k=asked.k)]}
        return _with_facets([result], index, asked, where, [None])

    return routes


def _job(catalog: Catalog, request: SearchRequest) -> SearchJob:
    """Check a request."""
    limits = catalog.settings
    if (request.query is None) == (request.like is None):
        raise BadInputError("query: expected either a query or like, found both or neither")
    asked = [] if request.query is None else request.query
    texts = (asked,) if isinstance(asked, str) else tuple(asked)
    if not texts and request.like is None:
        raise BadInputError("query: expected one query or several, found none")
    check_number("queries", len(texts), limits.max_queries)
    index = catalog.index(request.index)
    queries = []
    for number, text in enumerate(texts, start=1):
        catalog.check_text(f"query {number}", text)
        query = ParsedQuery(text) if request.raw else parse_query(text, index.has_flag)
        check_query(text, number, query)
        queries.append(query)
    values = ((name, getattr(request, name)) for name in _SETTINGS)
    given = tuple((name, value) for name, value in values if value is not None)
    settings = _settings(limits.search, given)
    check_number("k", settings.k, limits.max_k)
    if "depth" in dict(given):
        check_number("depth", settings.depth, limits.max_k)
    if request.rerank and catalog.reranker is None:
        raise ServiceError(400, "rerank: the service has no reranker; start it with --rerank")
    least = request.min_probability
    if least is not None and (request.rerank or request.like is not None):
        raise BadInputError(
            "min_probability: it is of queries without reranking; leave out it, or rerank and like"
        )
    if request.rerank and request.like is not None:
        raise BadInputError("rerank: it needs a query, found like; leave one of them out")
    if least is not None:
        index.answer([], settings, least=least)
    where = _checked_filter(catalog, request.where)
    return SearchJob(request, index, texts, tuple(queries), settings, where)


@lru_cache
def _settings(usual: SearchSettings | None, given: tuple[tuple[str, Any], ...]) -> SearchSettings:
    """Those of a request, of which most have the same."""
    return search_settings(usual, dict(given))


def _checked_filter(catalog: Catalog, given: str | Filters | None) -> str | None:
    """A filter for the documents that match all of several; None for none."""
    filters = [given] if isinstance(given, str) else given or []
    catalog.check_text("where", "".join(filters))
    if len(filters) < 2:
        return next(iter(filters), None)
    for text in filters:
        # The position of an error is that in the filter's own text.
        compile_where(text)
    return " and ".join(f"({text})" for text in filters)


def answers(jobs: Sequence[SearchJob], reranker: Reranker | None) -> list[Answer | Exception]:
    """The answer of each job, or what it failed with; queries are encoded together."""
    vectors = {
        id(one.index): _encoded([job for job in jobs if job.index is one.index], reranker)
        for one in {id(job.index): job for job in jobs}.values()
    }

    def ranked(group: Sequence[SearchJob]) -> list[Answer | Exception]:
        hits = iter(_hits(group, vectors[id(group[0].index)], reranker))
        found: list[Answer | Exception] = []
        for job in group:
            own = [next(hits) for _ in job.texts]
            try:
                found.append(_answer(job, own))
            except Exception as error:
                found.append(error)
        return found

    return in_groups(jobs, _shared, ranked)


def _shared(job: SearchJob) -> Hashable:
    """What jobs have in common whose queries are ranked together."""
    is_query = job.request.like is None
    return id(job.index), job.settings, job.where, job.request.rerank, is_query


def _needs_vectors(job: SearchJob, reranker: Reranker | None) -> bool:
    reads_vectors = job.request.rerank and reranker is not None and reranker.reads_vectors
    return job.request.like is None and (job.settings.mode != "bm25" or reads_vectors)


def _encoded(jobs: Sequence[SearchJob], reranker: Reranker | None) -> dict[str, Any] | Exception:
    """The vectors of the queries on one index by text, and at "" the encoder's specification."""
    needed = [job for job in jobs if _needs_vectors(job, reranker)]
    texts = list(dict.fromkeys(query.plain for job in needed for query in job.queries))
    if not texts:
        return {}
    try:
        encoder = needed[0].index.encoder
        vectors = zip(texts, encoder.encode(texts, query=True), strict=True)
        return {"": encoder.spec, **dict(vectors)}
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
        queries = [query for job in group for query in job.queries]
        ready = QueryVectors(np.stack([vectors[query.plain] for query in queries]), vectors[""])
    chosen = reranker if first.request.rerank else None
    search = first.index.search_many
    try:
        return list(search(texts, first.settings, where=first.where, reranker=chosen, ready=ready))
    except EncoderMismatchError:
        if ready is None:
            raise
        # The index was replaced by one with another encoder since the queries were encoded.
        return list(search(texts, first.settings, where=first.where, reranker=chosen))


def _answer(job: SearchJob, hits: list[list[Hit]]) -> Answer:
    index = job.index
    request = job.request
    where = job.where
    results: list[Answer] = []
    warned: dict[str, None] = {}
    if (like := request.like) is not None:
        try:
            similar = index.more_like(like.id, job.settings, start=like.start, where=where)
        except KeyError:
            raise ServiceError(404, f"the index holds no document {like.id!r:.80}") from None
        results.append({"like": like.id, "hits": [hit.to_json() for hit in similar]})
    for text, query, ranked in zip(job.texts, job.queries, hits, strict=True):
        check_cancelled()
        answer = index.answer(ranked, job.settings, least=request.min_probability)
        judged: Answer = {}
        if answer is not None:
            judged = {"has_answer": answer.has_answer, "probability": answer.probability}
            warned |= {answer.warning: None} if answer.warning else {}
        withheld = request.min_probability is not None and answer and not answer.has_answer
        records = [] if withheld else [hit.to_json() for hit in ranked]
        if request.highlight:
            _mark_matches(records, index, query.text, raw=job.settings.raw)
        if not ranked:
            judged["no_hits"] = index.no_hits_reason(text, job.settings, where=where)
        elif withheld:
            chance = f"the probability of an answer is {judged['probability']:.1%}"
            judged["no_hits"] = f"{chance}: lower min_probability to see hits"
        if query.excluded:
            judged["excluded"] = list(query.excluded)
            judged["note"] = operators_note(query, '"raw": true')
        note = index.search_note(ranked, job.settings, where=where)
        warned |= {note: None} if note is not None else {}
        results.append({"query": text, "hits": records, **judged})
        if len(hits) == 1 and (better := index.suggestion(query.text)) is not None:
            results[0]["did_you_mean"] = better
    words: list[str | None] = [query.text for query in job.queries]
    whole = _with_facets(results, index, request, where, words or [None], raw=job.settings.raw)
    whole["warnings"] += warned
    return whole


def _mark_matches(records: list[dict[str, Any]], index: Index, query: str, *, raw: bool) -> None:
    """Add to each hit the places of the words that match."""
    weights = index.term_weights(query, raw=raw)
    for record in records:
        record["marks"] = highlights(record["passage"], index.analyzer, weights, index.languages)


def _with_facets(
    results: list[Answer],
    index: Index,
    asked: _Counting,
    where: str | None,
    queries: Sequence[str | None],
    *,
    raw: bool = True,
) -> Answer:
    """The answer of some results, with what the request counts."""
    if asked.facets:
        for result, query in zip(results, queries, strict=True):
            facets = index.facets(
                asked.facets, query, where=where, limit=asked.facet_limit, raw=raw
            )
            result["facets"] = facets.to_json()
    doubt = None if where is None else index.filter_warning(where)
    return {"results": results, "warnings": [] if doubt is None else [doubt]}
