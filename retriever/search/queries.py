"""From the texts of queries to hits, and which words of a hit to highlight."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from indexes import Query
from retriever.encoders.spec import EncoderSpec
from retriever.errors import (
    BadInputError,
    ConfigError,
    EncoderMismatchError,
    require_several,
    string_fault,
)
from retriever.search.engine import ranked_hits, ranked_ids
from retriever.search.settings import CALIBRATION, FIT, SearchSettings
from retriever.search.syntax import ParsedQuery, has_flag_term, parse_query

if TYPE_CHECKING:
    from indexes import View
    from indexes.bm25 import Term
    from indexes.filters import Where
    from retriever.documents.analyzer import Analyzer
    from retriever.rerankers.head import QueryMap
    from retriever.search.engine import Hit, PassageFilter
    from retriever.search.opened import OpenedIndex, StoredSettings
    from retriever.search.reranking import Reranker

# Queries that are encoded and ranked together.
_BATCH = 256
# Signs of a query in lower case that may have expansions: letters with other spellings, combining
# diaeresis and ring, and the asterisk of a beginning.
_EXPANDED = (*("ae", "oe", "ue", "aa", "ä", "ö", "ü", "å", "ø", "æ", "œ", "\u0308", "\u030a"), "*")
# A term is highlighted from this share of the weight of the heaviest term.
_LEAST_SHARE = 1 / 4
_Ranked = TypeVar("_Ranked")


class QueryVectors(NamedTuple):
    """Vectors of queries that were encoded before.

    Attributes:
        vectors: (queries, dimensions) finite numbers that float32 holds, one row for each query,
            as ``index.encoder.encode(texts, query=True)`` returns them. They are scaled to length
            1 if the encoder normalizes.
        made_by: the specification of that encoder.
    """

    vectors: NDArray[np.float32]
    made_by: EncoderSpec


class Excerpt(NamedTuple):
    """A continuous part of a document's text.

    Attributes:
        id: the document's id.
        start, stop: character offsets in the document's text.
        text: the document's text from `start` to `stop`.
        length: number of characters of the document's whole text.
    """

    id: str
    start: int
    stop: int
    text: str
    length: int


class _QueryBatch(NamedTuple):
    """Queries of one batch in a view."""

    opened: OpenedIndex
    view: View
    parsed: Sequence[ParsedQuery]
    # As the analyzer and the encoder read them.
    queries: Sequence[Query]
    # The same with the vectors of the query map, if there is one.
    mapped: Sequence[Query]
    where: Where | None


def search_texts(
    index: OpenedIndex,
    texts: Iterable[str],
    settings: SearchSettings,
    where: Where | None,
    reranker: Reranker | None,
    ready: QueryVectors | None = None,
    *,
    exclude: tuple[str, ...] = (),
) -> Iterator[list[Hit]]:
    """Yield the hits of each query."""
    for parsed, vectors in _parsed_batches(index, texts, settings, ready, exclude):
        with _prepare_batch(index, parsed, settings, where, vectors, reranker) as batch:
            warn_doubtful(index, batch.view, where)
            _warn_of_dates(batch.view, settings)
            hits = _find_hits(batch, settings, reranker)
        yield from hits


def rank_texts(
    index: OpenedIndex,
    texts: Iterable[str],
    settings: SearchSettings,
    where: Where | None,
    ready: QueryVectors | None = None,
    *,
    exclude: tuple[str, ...] = (),
) -> Iterator[list[tuple[str, float]]]:
    """Yield the ids and scores of the hits of each query, without the steps that read texts."""
    for parsed, vectors in _parsed_batches(index, texts, settings, ready, exclude):
        with _prepare_batch(index, parsed, settings, where, vectors) as batch:
            warn_doubtful(index, batch.view, where)
            _warn_of_dates(batch.view, settings)
            if settings.reads_dates:
                results = _find_hits(batch, replace(settings, collapse=False), None)
                rankings = [[(hit.id, hit.score) for hit in hits] for hits in results]
            else:
                rankings = _rank_batch(batch, settings, ranked_ids, _scan_for_ids)
        yield from rankings


def _parsed_batches(
    index: OpenedIndex,
    texts: Iterable[str],
    settings: SearchSettings,
    ready: QueryVectors | None,
    exclude: tuple[str, ...],
) -> Iterator[tuple[list[ParsedQuery], QueryVectors | None]]:
    """Yield the queries in batches, parsed and checked, with their vectors from `ready`."""

    def has_flag(word: str) -> bool:
        with index.view() as view:
            return has_flag_term(view, word)

    if ready is not None:
        ready = _checked_vectors(ready)
    stream = iter(texts)
    count = 0
    while batch := list(islice(stream, _BATCH)):
        queries = [
            ParsedQuery(text) if settings.raw else parse_query(text, has_flag) for text in batch
        ]
        for number, (text, query) in enumerate(zip(batch, queries, strict=True), count + 1):
            check_query(text, number, query)
        if exclude:
            queries = [query._replace(excluded=query.excluded + exclude) for query in queries]
        start = count
        count += len(batch)
        vectors = None
        if ready is not None:
            vectors = ready._replace(vectors=ready.vectors[start:count])
            _require_one_each(ready, count, is_last=len(batch) < _BATCH)
        yield queries, vectors
    if ready is not None:
        _require_one_each(ready, count, is_last=True)


@contextmanager
def _prepare_batch(
    index: OpenedIndex,
    parsed: Sequence[ParsedQuery],
    settings: SearchSettings,
    where: Where | None,
    ready: QueryVectors | None,
    reranker: Reranker | None = None,
) -> Iterator[_QueryBatch]:
    """Open a view, and analyze, encode and map queries for its index."""
    is_encoded = settings.mode != "bm25" or (reranker is not None and reranker.reads_vectors)
    texts = [query.plain for query in parsed]
    words = [query.text for query in parsed]
    prepared = prepare_queries(
        index, texts, is_encoded, ready, reranker, words, has_beginnings=not settings.raw
    )
    with prepared as (view, queries):
        query_map = index.query_map
        mapped = queries if query_map is None else map_queries(query_map, queries)
        yield _QueryBatch(index, view, parsed, queries, mapped, where)


def _find_hits(
    batch: _QueryBatch, settings: SearchSettings, reranker: Reranker | None
) -> list[list[Hit]]:
    """Rank documents, then rerank, collapse and judge them, as the settings say."""
    ranked = settings
    if reranker is not None:
        ranked = replace(settings, k=max(settings.k, settings.depth))
    while True:
        rankings = _rank_batch(batch, ranked, ranked_hits, _scan_for_hits)
        results = rankings
        if reranker is not None:
            results = _rerank(batch, reranker, [hits[: ranked.k] for hits in results])
        if settings.reads_dates:
            results = _order_by_date(results, settings)
        if settings.collapse:
            results = _collapse(results)
        # A full ranking may continue with further hits.
        if not any(
            len(hits) < settings.k and len(ranking) >= ranked.k
            for hits, ranking in zip(results, rankings, strict=True)
        ):
            break
        ranked = replace(ranked, k=4 * ranked.k)
    results = [hits[: settings.k] for hits in results]
    is_plain = reranker is None and batch.opened.query_map is None
    if is_plain and batch.view.setting(CALIBRATION, {}):
        return _judge(batch, settings, results, rankings, ranked.k)
    return results


def _rerank(
    batch: _QueryBatch, reranker: Reranker, rankings: Sequence[Sequence[Hit]]
) -> list[list[Hit]]:
    from retriever.search.reranking import rerank

    return [
        rerank(batch.view, reranker, parsed.plain, query.vector, hits)
        for parsed, query, hits in zip(batch.parsed, batch.queries, rankings, strict=True)
    ]


def _order_by_date(rankings: Sequence[Sequence[Hit]], settings: SearchSettings) -> list[list[Hit]]:
    from retriever.search.recency import current_time, order_by_date

    now = current_time()
    return [order_by_date(hits, settings, now) for hits in rankings]


def _collapse(rankings: Sequence[Sequence[Hit]]) -> list[list[Hit]]:
    from retriever.search.collapse import collapse

    return [collapse(hits) for hits in rankings]


def _judge(
    batch: _QueryBatch,
    settings: SearchSettings,
    results: list[list[Hit]],
    rankings: Sequence[Sequence[Hit]],
    k: int,
) -> list[list[Hit]]:
    """Return the hits with probabilities, if the calibration of the index has the mode.

    `rankings` are the best `k` documents of each query; they are ranked again if `k` is too low.
    """
    from retriever.search.calibration import HITS, Calibration

    view = batch.view
    calibration = Calibration.read(view, settings.mode)
    if calibration is None:
        return results
    if k < HITS:
        rankings = _rank_batch(batch, replace(settings, k=HITS), ranked_hits, _scan_for_hits)
    analyzer = batch.opened.settings_of(view).analyzer
    return [
        calibration.judge(hits, ranking[:HITS], query.terms, view, analyzer)
        for hits, ranking, query in zip(results, rankings, batch.queries, strict=True)
    ]


def _rank_batch(
    batch: _QueryBatch,
    settings: SearchSettings,
    rank: Callable[
        [View, SearchSettings, Sequence[Query], Where | None, PassageFilter | None],
        list[list[_Ranked]],
    ],
    scan: Callable[
        [View, str, SearchSettings, Where | None, PassageFilter | None],
        list[_Ranked],
    ],
) -> list[list[_Ranked]]:
    """Rank the documents with the phrases of each query and without its excluded words.

    Args:
        batch: the queries.
        settings: how to rank.
        rank: ranks the documents for analyzed queries.
        scan: ranks the documents for a query without terms, which the mode ``bm25`` looks for in
            the texts.
    """
    opened, view, parsed_queries, _, queries, where = batch
    # Settings for queries in a language that the encoder does not know.
    unknown_settings = settings
    if settings.mode == "hybrid":
        weight = view.setting(FIT, {}).get("strange_weight")
        if weight is not None:
            unknown_settings = replace(settings, fusion=settings.fusion.completed(weight))
    is_scanned = settings.mode == "bm25" and not all(query.terms for query in queries)
    has_operators = any(parsed.phrases or parsed.excluded for parsed in parsed_queries)
    if unknown_settings == settings and not is_scanned and not has_operators:
        return rank(view, settings, queries, where, None)
    from retriever.search.phrases import OperatorFilter, narrow_filter

    stored = opened.settings_of(view)
    analyzer = stored.analyzer
    rankings: list[list[_Ranked]] = []
    for parsed, query in zip(parsed_queries, queries, strict=True):
        is_allowed = None
        if parsed.phrases or parsed.excluded:
            is_allowed = OperatorFilter(parsed, view, analyzer)
        if settings.mode == "bm25" and not query.terms:
            rankings.append(scan(view, parsed.plain, settings, where, is_allowed))
            continue
        query_settings = settings
        if unknown_settings != settings and _is_unknown_language(opened, stored, parsed.plain):
            query_settings = unknown_settings
        narrowed = narrow_filter(parsed, view, analyzer, where)
        rankings += rank(view, query_settings, [query], narrowed, is_allowed)
    return rankings


def _is_unknown_language(opened: OpenedIndex, stored: StoredSettings, text: str) -> bool:
    from retriever.search.fit import is_unknown_language

    return is_unknown_language(opened.encoder(stored, query=True), stored.analyzer, text)


def _scan_for_hits(
    view: View,
    text: str,
    settings: SearchSettings,
    where: Where | None,
    is_allowed: PassageFilter | None,
) -> list[Hit]:
    from retriever.search.stop_words import phrase_hits

    if settings.reads_dates:
        settings = replace(settings, k=max(settings.k, settings.depth))
    return phrase_hits(view, text, settings, where, is_allowed)


def _scan_for_ids(
    view: View,
    text: str,
    settings: SearchSettings,
    where: Where | None,
    is_allowed: PassageFilter | None,
) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in _scan_for_hits(view, text, settings, where, is_allowed)]


def map_queries(query_map: QueryMap, queries: Sequence[Query]) -> Sequence[Query]:
    """Return the queries with mapped vectors; a reranker reads the vectors before the map."""
    vectors = [query.vector for query in queries if query.vector is not None]
    if not vectors:
        return queries
    rows = query_map(np.stack(vectors))
    return [query._replace(vector=row) for query, row in zip(queries, rows, strict=True)]


def _check_ready_vectors(ready: QueryVectors, index: OpenedIndex, spec: EncoderSpec) -> None:
    if ready.made_by.fingerprint != spec.fingerprint:
        raise EncoderMismatchError(
            f"{index.store}: the index has the encoder {spec}, but the vectors of "
            f"the queries are of {ready.made_by}; encode them with the encoder of the index"
        )


@contextmanager
def prepare_queries(
    index: OpenedIndex,
    texts: Sequence[str],
    is_encoded: bool = True,
    ready: QueryVectors | None = None,
    reranker: Reranker | None = None,
    words: Sequence[str] | None = None,
    *,
    has_beginnings: bool = False,
) -> Iterator[tuple[View, list[Query]]]:
    """Open a view, and analyze and encode queries for its index.

    Args:
        index: the index.
        texts: the queries, as the encoder reads them.
        is_encoded: whether they need vectors.
        ready: their vectors; None encodes them.
        reranker: checked against the encoder of the index.
        words: the queries as the analyzer reads them, if they differ from `texts`.
        has_beginnings: see `query_terms`.
    """
    while True:
        vectors: Iterable[NDArray[np.float32] | None] = [None] * len(texts)
        encoded_for = None
        if is_encoded and ready is not None:
            vectors = ready.vectors
        elif is_encoded:
            # Before the view is opened, since encoding takes long.
            stored = index.cached_settings()
            vectors = index.encoder(stored, query=True).encode(texts, query=True)
            encoded_for = stored.identity
        with index.view() as view:
            stored = index.settings_of(view)
            # An index that replaced this one may have another encoder.
            if encoded_for not in (None, stored.identity):
                continue
            for model in (reranker, index.query_map):
                if model is not None:
                    model.check(stored.encoder)
            if ready is not None:
                _check_ready_vectors(ready, index, stored.encoder)
            terms = [
                query_terms(index, view, text, has_beginnings=has_beginnings)
                for text in words or texts
            ]
            yield view, [Query(*pair) for pair in zip(terms, vectors, strict=True)]
            return


def _checked_vectors(ready: QueryVectors) -> QueryVectors:
    """Return the vectors as the encoder of an index returns them; raise if they are no vectors."""
    from retriever.encoders.computing import describe_unbounded, find_unbounded
    from retriever.index.indexing.embedded_documents import unit_vectors

    if not isinstance(ready, QueryVectors):
        raise TypeError(
            "ready: expected QueryVectors(vectors, index.encoder_spec), found "
            f"{type(ready).__name__}"
        )
    spec = ready.made_by
    vectors = np.asarray(ready.vectors)
    shape = (len(vectors) if vectors.ndim else "queries", spec.dimensions)
    if vectors.shape != shape or vectors.dtype.kind not in "fiu":
        raise ConfigError(
            f"vectors: expected numbers of shape {shape}, as {spec} gives them, found "
            f"{vectors.dtype} of shape {vectors.shape}"
        )
    with np.errstate(over="ignore"):
        vectors = np.ascontiguousarray(vectors, np.float32)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise ConfigError(
            f"vectors: vector {int(finite.argmin()) + 1}: expected numbers that float32 holds, "
            "found NaN, infinity or one too large; encode the query again"
        )
    if spec.effective_value("normalize"):
        vectors, _ = unit_vectors(vectors)
    elif (row := find_unbounded(vectors)) is not None:
        raise ConfigError(f"vectors: vector {row + 1}: {describe_unbounded(vectors[row])}")
    return ready._replace(vectors=vectors)


def _require_one_each(ready: QueryVectors, queries: int, *, is_last: bool) -> None:
    """Raise ConfigError for fewer vectors than queries or, after the last query, more."""
    vectors = len(ready.vectors)
    if vectors < queries or (is_last and vectors > queries):
        count = f"{queries:,}" if is_last else f"at least {queries:,}"
        raise ConfigError(
            f"vectors: expected one for each query, {count} in all, found {vectors:,}"
        )


def highlights(
    text: str,
    analyzer: Analyzer,
    weights: Mapping[str, float],
    languages: Iterable[str] | None = None,
) -> list[tuple[int, int]]:
    """Return (start, stop) of the words of a passage that match an important term of a query.

    A term is important if it weighs at least a quarter of the query's heaviest term.

    Args:
        text: the passage.
        analyzer: the analyzer of the index.
        weights: weights of the query's terms; see `Index.term_weights`.
        languages: languages of the index, in any of which a word can match; None detects the
            language of the passage.

    Returns:
        Ascending character offsets that do not overlap and do not divide a letter from its marks.
    """
    least = _LEAST_SHARE * max(weights.values(), default=0.0)
    important = {term for term, weight in weights.items() if weight >= least}
    # Single characters of a script without spaces matter only beside no longer term.
    whole = "".join(term for term in important if len(term) > 1)
    important -= {
        term for term in important if len(term) == 1 and term > "\u3000" and term in whole
    }
    marked: list[tuple[int, int]] = []
    spans = analyzer.spans(text, important, languages)
    for start, stop in sorted((a, b) for term, a, b in spans if term in important):
        first, last = marked.pop() if marked and start < marked[-1][1] else (start, stop)
        marked.append((first, max(last, stop)))
    return marked


def query_terms(
    index: OpenedIndex, view: View, text: str, *, has_beginnings: bool = False
) -> list[Term]:
    """Return the terms of a query in the languages of an index, then their expansions.

    With `has_beginnings`, ``word*`` stands for all words that begin with ``word``.
    """
    analyzer = index.settings_of(view).analyzer
    count = view.document_frequencies
    terms = analyzer.query_tokens(text, view.setting("languages", {}), count)
    # Stop words in capitals, as in "to BE", are terms only if a document has them in capitals.
    if terms and all(map(str.isupper, terms)) and not any(count(terms).values()):
        terms = []
    lower = text.lower()
    if index.synonyms is None and not any(mark in lower for mark in _EXPANDED):
        return cast("list[Term]", terms)
    from retriever.search.expansions import expand

    expansions = expand(text, terms, view, analyzer, index.synonyms, has_beginnings=has_beginnings)
    return [*terms, *expansions]


def check_query(text: str, number: int = 1, query: ParsedQuery | None = None) -> None:
    """Raise BadInputError if a query is blank, not valid Unicode, or has only excluded words."""
    fault = string_fault(text)
    if not text.strip():
        fault = "is empty: expected at least one word"
    elif query is not None and not query.text:
        fault = (
            "has only words to leave out: expected at least one to search for, or raw, which "
            "searches for the query as it is"
        )
    if fault is not None:
        raise BadInputError(f"query {number} {fault}")


def excluded_texts(exclude: Iterable[str]) -> tuple[str, ...]:
    """Return words and phrases to leave out.

    Raises:
        TypeError: `exclude` is one string.
        BadInputError: a text has neither letter nor digit, or is not valid Unicode.
    """
    require_several("exclude", exclude)
    texts = tuple(exclude)
    for number, text in enumerate(texts, start=1):
        fault = string_fault(text)
        if fault is None and not any(map(str.isalnum, text)):
            fault = "has no word: expected a word or a phrase"
        if fault is not None:
            raise BadInputError(f"exclude: text {number} {fault}")
    return texts


def _warn_of_dates(view: View, settings: SearchSettings) -> None:
    """Warn if no document has the date by which hits are ordered."""
    if settings.reads_dates:
        from retriever.search.recency import describe_missing_dates

        if problem := describe_missing_dates(view, settings.date_field):
            warnings.warn(f"dates: {problem}", stacklevel=3)


def warn_doubtful(
    index: OpenedIndex, view: View, where: Where | None, *, stacklevel: int = 3
) -> None:
    """Warn of a filter that names a field or a type that no document has."""
    if where is not None and (problem := index.describe_doubt(view, where)):
        warnings.warn(f"filter: {problem}", stacklevel=stacklevel)
