"""Routes that search and list documents.

A list is read only up to its first fault. Otherwise pydantic would store an error of several
hundred bytes for every item, of possibly millions of items.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic_core import to_json

from indexes.filters import compile_where
from retriever.errors import BadInputError, EncoderMismatchError
from retriever.index.index import Index
from retriever.search.engine import Hit, check_cancelled
from retriever.search.queries import QueryVectors, check_query, highlights
from retriever.search.reranking import Reranker
from retriever.search.settings import SearchSettings, search_fields, search_settings
from retriever.search.syntax import ParsedQuery, operators_note, parse_query
from retriever.service.batching import Batcher, run_in_groups
from retriever.service.limits import SEARCH_PATH, Catalog, ServiceError, check_number
from retriever.settings import Setting, declared_settings

Answer = dict[str, Any]
Texts = str | Annotated[list[str], Field(fail_fast=True)]
Filters = Annotated[list[str], Field(max_length=64)]
# Maximum number of fields of an object; no valid request has so many.
_MOST_FIELDS = 100
# Fields of a request that are settings of a search.
_SETTINGS = (*search_fields(), "raw", "collapse")


class _Request(BaseModel):
    # NaN and unknown fields, which are likely misspelled, are refused.
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_field_count(cls, values: Any) -> Any:
        if isinstance(values, dict) and len(values) > _MOST_FIELDS:
            raise ValueError(f"expected at most {_MOST_FIELDS} fields, found {len(values):,}")
        return values


class Like(_Request):
    """A passage of a document of the index."""

    id: str = Field(description="Id of the document.", examples=["42"])
    start: int = Field(
        0, ge=0, le=2**53, description="A character offset inside the passage.", examples=[0]
    )


class _FacetRequest(_Request):
    index: str | None = Field(None, description="Name of the index; the first one by default.")
    facets: list[str] = Field(
        [],
        max_length=32,
        description="Metadata fields whose values are counted over the whole result.",
    )
    facet_limit: int = Field(10, ge=1, le=1_000, description="Maximum number of values of a field.")


def _request_field(setting: Setting) -> tuple[Any, Any]:
    """Return the type and the field of a setting, which the Python API checks."""
    # The Python API refuses a wrong normalization, with status 400.
    has_choices = setting.choices and setting.name != "normalization"
    kind: Any = Literal[setting.choices] if has_choices else setting.kind
    default = f"; {setting.default_text} by default" if setting.default_text else ""
    text = f"{setting.description} Expected: {setting.expected}{default}."
    return kind | None, Field(None, description=text)


if TYPE_CHECKING:
    _Settings = _FacetRequest
else:
    _Settings = create_model(
        "_Settings",
        __base__=_FacetRequest,
        **{name: _request_field(setting) for name, setting in search_fields().items()},
    )


class RankingRequest(_Settings):
    """How to rank; omitted fields have the defaults of the Python API."""

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


class SearchRequest(RankingRequest):
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


class AddressParameters(RankingRequest):
    """A search as parameters of an address."""

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


class BrowseRequest(_FacetRequest):
    """Which documents to list."""

    where: str | Filters | None = Field(
        None, description="List only documents that match this filter, or all of several."
    )
    k: Annotated[int, Field(ge=1)] = Field(10, description="Number of documents.")


@dataclass(frozen=True, slots=True)
class SearchJob:
    """A checked request: its index, queries, settings and one filter."""

    request: SearchRequest
    index: Index
    texts: tuple[str, ...]
    # The parsed texts.
    queries: tuple[ParsedQuery, ...]
    settings: SearchSettings
    where: str | None


def router(catalog: Catalog, searches: Batcher[SearchJob, Answer]) -> APIRouter:
    """Return the routes; `searches` runs `answer_jobs`."""
    routes = APIRouter(tags=["search"])

    @routes.post(SEARCH_PATH, summary="Search")
    async def search(request: Request, body: SearchRequest) -> Any:
        """Hits of one query, of several, or of a document to find similar ones of.

        Each result has `hits`, the highest score first, with the scores and ranks of both
        components, and `facets` if fields were named. Offsets count Unicode characters.
        """
        job = _checked_job(catalog, body)
        answer = await searches.result(request, job, max(1, len(job.texts)))
        return Response(to_json(answer), media_type="application/json")

    @routes.get(SEARCH_PATH, summary="Search by address")
    async def search_by_address(
        request: Request, parameters: Annotated[AddressParameters, Query()]
    ) -> Any:
        """The same with parameters; repeat `query`, `where` and `facets` for several."""
        return await search(request, SearchRequest.model_validate(parameters.model_dump()))

    @routes.post("/browse", summary="List documents")
    def browse(body: BrowseRequest) -> Any:
        """Documents in the order of their ids, without a query.

        The answer is that of a search with one result, whose hits are the first passages.
        """
        check_number("k", body.k, catalog.settings.max_k)
        where = _join_filters(catalog, body.where)
        index = catalog.index(body.index)
        result: Answer = {"hits": [hit.to_json() for hit in index.browse(where, k=body.k)]}
        return _with_facets([result], index, body, where, [None])

    return routes


def _checked_job(catalog: Catalog, request: SearchRequest) -> SearchJob:
    """Return the job of a request; raise an error if the request is invalid."""
    limits = catalog.settings
    if (request.query is None) == (request.like is None):
        raise BadInputError("query: expected either a query or like, found both or neither")
    texts = _query_texts(request)
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
    keywords = tuple((name, value) for name, value in values if value is not None)
    settings = _search_settings(limits.search, keywords)
    check_number("k", settings.k, limits.max_k)
    if "depth" in dict(keywords):
        check_number("depth", settings.depth, limits.max_k)
    _check_reranking(catalog, request)
    if request.min_probability is not None:
        # An index without a calibration refuses a probability.
        index.answer([], settings, least=request.min_probability)
    where = _join_filters(catalog, request.where)
    return SearchJob(request, index, texts, tuple(queries), settings, where)


def _query_texts(request: SearchRequest) -> tuple[str, ...]:
    if request.query is None:
        return ()
    return (request.query,) if isinstance(request.query, str) else tuple(request.query)


def _check_reranking(catalog: Catalog, request: SearchRequest) -> None:
    """Raise an error if a request combines fields that exclude each other."""
    if request.rerank and catalog.reranker is None:
        raise ServiceError(400, "rerank: the service has no reranker; start it with --rerank")
    if request.min_probability is not None and (request.rerank or request.like is not None):
        raise BadInputError(
            "min_probability: it applies only to queries without reranking; leave it out, or "
            "rerank and like"
        )
    if request.rerank and request.like is not None:
        raise BadInputError("rerank: it needs a query, found like; leave one of them out")


@lru_cache
def _search_settings(
    defaults: SearchSettings | None, keywords: tuple[tuple[str, Any], ...]
) -> SearchSettings:
    """Return the settings of a request; cached, since most requests have the same ones."""
    return search_settings(defaults, dict(keywords))


def _join_filters(catalog: Catalog, where: str | Filters | None) -> str | None:
    """Return a filter for the documents that match all filters; None without a filter."""
    filters = [where] if isinstance(where, str) else where or []
    catalog.check_text("where", "".join(filters))
    if len(filters) < 2:
        return next(iter(filters), None)
    for text in filters:
        # Compiled alone, so that the position of an error refers to this text.
        compile_where(text)
    return " and ".join(f"({text})" for text in filters)


def answer_jobs(jobs: Sequence[SearchJob], reranker: Reranker | None) -> list[Answer | Exception]:
    """Return the answer of each job, or its exception; queries are encoded together."""
    indexes = {id(job.index): job.index for job in jobs}
    vectors = {
        key: _encode_queries([job for job in jobs if job.index is index], reranker)
        for key, index in indexes.items()
    }

    def answer_group(group: Sequence[SearchJob]) -> list[Answer | Exception]:
        hits = iter(_search_group(group, vectors[id(group[0].index)], reranker))
        answers: list[Answer | Exception] = []
        for job in group:
            job_hits = [next(hits) for _ in job.texts]
            try:
                answers.append(_answer(job, job_hits))
            except Exception as error:
                answers.append(error)
        return answers

    return run_in_groups(jobs, _group_key, answer_group)


def _group_key(job: SearchJob) -> Hashable:
    """Return the key of jobs that are ranked together."""
    is_query = job.request.like is None
    return id(job.index), job.settings, job.where, job.request.rerank, is_query


def _needs_vectors(job: SearchJob, reranker: Reranker | None) -> bool:
    reads_vectors = job.request.rerank and reranker is not None and reranker.reads_vectors
    return job.request.like is None and (job.settings.mode != "bm25" or reads_vectors)


def _encode_queries(
    jobs: Sequence[SearchJob], reranker: Reranker | None
) -> dict[str, Any] | Exception:
    """Return the vectors of queries to one index by text, and the encoder's specification at ""."""
    encoded_jobs = [job for job in jobs if _needs_vectors(job, reranker)]
    texts = list(dict.fromkeys(query.plain for job in encoded_jobs for query in job.queries))
    if not texts:
        return {}
    try:
        encoder = encoded_jobs[0].index.encoder
        vectors = zip(texts, encoder.encode(texts, query=True), strict=True)
        return {"": encoder.spec, **dict(vectors)}
    except Exception as error:
        return error


def _search_group(
    group: Sequence[SearchJob], vectors: dict[str, Any] | Exception, reranker: Reranker | None
) -> list[list[Hit]]:
    """Return the hits of all queries of jobs with the same index and settings."""
    first = group[0]
    texts = [text for job in group for text in job.texts]
    ready = None
    if _needs_vectors(first, reranker):
        if isinstance(vectors, Exception):
            raise vectors
        queries = [query for job in group for query in job.queries]
        ready = QueryVectors(np.stack([vectors[query.plain] for query in queries]), vectors[""])
    search = partial(
        first.index.search_many,
        texts,
        first.settings,
        where=first.where,
        reranker=reranker if first.request.rerank else None,
    )
    try:
        return list(search(ready=ready))
    except EncoderMismatchError:
        if ready is None:
            raise
        # The index was replaced by one with another encoder after the queries were encoded.
        return list(search())


def _answer(job: SearchJob, hits: list[list[Hit]]) -> Answer:
    """Return the answer of a job, by the hits of its queries."""
    index = job.index
    request = job.request
    where = job.where
    results: list[Answer] = []
    warnings: dict[str, None] = {}
    if request.like is not None:
        results.append(_similar_documents(job, request.like))
    for text, query, ranking in zip(job.texts, job.queries, hits, strict=True):
        check_cancelled()
        result, query_warnings = _query_result(job, text, query, ranking)
        results.append(result)
        warnings |= dict.fromkeys(query_warnings)
        if len(hits) == 1 and (suggestion := index.suggestion(query.text)) is not None:
            results[0]["did_you_mean"] = suggestion
    words: list[str | None] = [query.text for query in job.queries]
    answer = _with_facets(results, index, request, where, words or [None], raw=job.settings.raw)
    answer["warnings"] += warnings
    return answer


def _similar_documents(job: SearchJob, like: Like) -> Answer:
    try:
        hits = job.index.more_like(like.id, job.settings, start=like.start, where=job.where)
    except KeyError:
        raise ServiceError(404, f"the index holds no document {like.id!r:.80}") from None
    return {"like": like.id, "hits": [hit.to_json() for hit in hits]}


def _query_result(
    job: SearchJob, text: str, query: ParsedQuery, hits: list[Hit]
) -> tuple[Answer, list[str]]:
    """Return the result of one query, and its warnings."""
    index = job.index
    least = job.request.min_probability
    details: Answer = {}
    warnings = []
    answer = index.answer(hits, job.settings, least=least)
    if answer is not None:
        details = {"has_answer": answer.has_answer, "probability": answer.probability}
        if answer.warning:
            warnings.append(answer.warning)
    is_withheld = least is not None and answer is not None and not answer.has_answer
    records = [] if is_withheld else [hit.to_json() for hit in hits]
    if job.request.highlight:
        _mark_matches(records, index, query.text, raw=job.settings.raw)
    if not hits:
        details["no_hits"] = index.no_hits_reason(text, job.settings, where=job.where)
    elif is_withheld:
        chance = f"the probability of an answer is {details['probability']:.1%}"
        details["no_hits"] = f"{chance}: lower min_probability to see hits"
    if query.excluded:
        details["excluded"] = list(query.excluded)
        details["note"] = operators_note(query, '"raw": true')
    note = index.search_note(hits, job.settings, where=job.where)
    if note is not None:
        warnings.append(note)
    return {"query": text, "hits": records, **details}, warnings


def _mark_matches(records: list[dict[str, Any]], index: Index, query: str, *, raw: bool) -> None:
    """Add to each hit the offsets of the words that match."""
    weights = index.term_weights(query, raw=raw)
    for record in records:
        record["marks"] = highlights(record["passage"], index.analyzer, weights, index.languages)


def _with_facets(
    results: list[Answer],
    index: Index,
    request: _FacetRequest,
    where: str | None,
    queries: Sequence[str | None],
    *,
    raw: bool = True,
) -> Answer:
    """Return an answer with some results, and with the facets of a request."""
    if request.facets:
        for result, query in zip(results, queries, strict=True):
            facets = index.facets(
                request.facets, query, where=where, limit=request.facet_limit, raw=raw
            )
            result["facets"] = facets.to_json()
    doubt = None if where is None else index.filter_warning(where)
    return {"results": results, "warnings": [] if doubt is None else [doubt]}
