"""Texts to hits, what is doubtful about a search, and which words of a hit to highlight."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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
from retriever.search.syntax import ParsedQuery, holds_flag, parse_query

if TYPE_CHECKING:
    from indexes import Term, View, Where
    from retriever.documents.analyzer import Analyzer
    from retriever.index.opened import OpenedIndex
    from retriever.rerankers.head import QueryMap
    from retriever.search.reranking import Reranker

# Queries that are encoded together.
_BATCH = 256
# What a query has in lower case that has other spellings or a beginning: letters, those with a
# combining diaeresis or ring, and the asterisk.
_EXPANDED = (*("ae", "oe", "ue", "aa", "ä", "ö", "ü", "å", "ø", "æ", "œ", "\u0308", "\u030a"), "*")
# A term is important to highlights from this share of the weight of the heaviest one.
_SHARE = 1 / 4


class QueryVectors(NamedTuple):
    """Queries that were encoded before.

    Attributes:
        vectors: (queries, dimensions) finite numbers that float32 holds, as
            ``index.encoder.encode(texts, query=True)`` gives them, one row for each query. They
            are brought to length 1 where the encoder's are.
        made_by: the specification of that encoder.
    """

    vectors: NDArray[np.float32]
    made_by: EncoderSpec


class Excerpt(NamedTuple):
    """A stretch of a document's text.

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


def search_texts(
    index: OpenedIndex,
    texts: Iterable[str],
    settings: SearchSettings,
    where: Where | None,
    reranker: Reranker | None,
    ready: QueryVectors | None = None,
    *,
    exclude: tuple[str, ...] = (),
    brief: bool = False,
) -> Iterator[list[Any]]:
    """The hits of each query, or if `brief` their ids and scores."""

    def has_flag(word: str) -> bool:
        with index.view() as view:
            return holds_flag(view, word)

    if ready is not None:
        ready = _comparable(ready)
    stream = iter(texts)
    answered = 0
    while batch := list(islice(stream, _BATCH)):
        queries = [
            ParsedQuery(text) if settings.raw else parse_query(text, has_flag) for text in batch
        ]
        for number, (text, query) in enumerate(zip(batch, queries, strict=True), answered + 1):
            check_query(text, number, query)
        if exclude:
            queries = [query._replace(excluded=query.excluded + exclude) for query in queries]
        part = None
        if ready is not None:
            part = ready._replace(vectors=ready.vectors[answered : answered + len(batch)])
            _require_one_each(ready, answered + len(batch), is_last=len(batch) < _BATCH)
        yield from _search(index, queries, settings, where, reranker, part, brief)
        answered += len(batch)
    if ready is not None:
        _require_one_each(ready, answered, is_last=True)


def _comparable(ready: QueryVectors) -> QueryVectors:
    """Return the vectors as the encoder of an index gives them; refuse what is no vector."""
    from retriever.encoders.computing import describe_unbounded, find_unbounded
    from retriever.index.ready import unit_vectors

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
    if spec.meaning("normalize"):
        vectors, _ = unit_vectors(vectors)
    elif (row := find_unbounded(vectors)) is not None:
        raise ConfigError(f"vectors: vector {row + 1}: {describe_unbounded(vectors[row])}")
    return ready._replace(vectors=vectors)


def _require_one_each(ready: QueryVectors, queries: int, *, is_last: bool) -> None:
    """Refuse fewer vectors than queries and, after the last query, more."""
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
    held: Iterable[str] | None = None,
) -> list[tuple[int, int]]:
    """The words of a passage that match an important term of a query.

    A term is important if it weighs at least a quarter of the query's heaviest one, by
    `Index.term_weights`. The spans are ascending, do not overlap, and cut no letter off from its
    marks. `held` names the languages of the index, in any of which a word can match; None tells
    that of the passage.
    """
    least = _SHARE * max(weights.values(), default=0.0)
    important = {term for term, weight in weights.items() if weight >= least}
    # Single characters of a script without spaces matter only beside no longer term.
    whole = "".join(term for term in important if len(term) > 1)
    important -= {
        term for term in important if len(term) == 1 and term > "\u3000" and term in whole
    }
    marked: list[tuple[int, int]] = []
    spans = analyzer.spans(text, important, held)
    for start, stop in sorted((a, b) for term, a, b in spans if term in important):
        first, last = marked.pop() if marked and start < marked[-1][1] else (start, stop)
        marked.append((first, max(last, stop)))
    return marked


def unknown_fields(view: View, names: Iterable[str]) -> str | None:
    """What to say of fields that no document has; None if all are known."""
    for name, known in view.unknown_fields(names).items():
        from difflib import get_close_matches

        near = get_close_matches(name, known, 1)
        guess = f"; did you mean {near[0]!r}?" if near else ""
        there = f"fields: {', '.join(known)}" if known else "no document has metadata"
        return f"no document has the field {name!r}{guess} ({there})"
    return None


def query_terms(
    index: OpenedIndex, view: View, text: str, *, has_beginnings: bool = False
) -> list[Term]:
    """The terms of a query to an index in the languages that it holds, and their expansions.

    With `has_beginnings`, ``word*`` stands for all words that begin so.
    """
    analyzer = index.state_of(view).analyzer
    count = view.document_frequencies
    terms = analyzer.query_tokens(text, view.setting("languages", {}), count)
    # Stop words in capitals, such as in "to BE", are none where no document has them so.
    if terms and all(map(str.isupper, terms)) and not any(count(terms).values()):
        terms = []
    folded = text.lower()
    if index.synonyms is None and not any(mark in folded for mark in _EXPANDED):
        return cast("list[Term]", terms)
    from retriever.search.expansions import expand

    synonyms = index.synonyms
    more = expand(text, terms, view, analyzer, synonyms, has_beginnings=has_beginnings)
    return [*terms, *more]


def check_query(text: str, number: int = 1, query: ParsedQuery | None = None) -> None:
    """Refuse a query that is blank or not valid Unicode, or has only words to leave out."""
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
    """Return words and phrases to leave out; refuse what has no letter, digit or valid Unicode."""
    require_several("exclude", exclude)
    texts = tuple(exclude)
    for number, text in enumerate(texts, start=1):
        fault = string_fault(text)
        if fault is None and not any(map(str.isalnum, text)):
            fault = "has no word: expected a word or a phrase"
        if fault is not None:
            raise BadInputError(f"exclude: text {number} {fault}")
    return texts


def warn_doubtful(index: OpenedIndex, view: View, where: Where | None) -> None:
    """Warn of a filter that names a field or a type that no document has."""
    if where is not None and (problem := index.filter_doubt(view, where)):
        warnings.warn(f"filter: {problem}", stacklevel=3)


def _search(
    index: OpenedIndex,
    parsed_queries: Sequence[ParsedQuery],
    settings: SearchSettings,
    where: Where | None,
    reranker: Reranker | None,
    ready: QueryVectors | None,
    brief: bool,
) -> list[list[Any]]:
    wide = settings
    encoded = settings.mode != "bm25"
    texts = [query.plain for query in parsed_queries]
    if reranker is not None:
        wide = replace(settings, k=max(settings.k, settings.depth))
        encoded = encoded or reranker.reads_vectors
    words = [query.text for query in parsed_queries]
    prepared = prepared_queries(
        index, texts, encoded, ready, reranker, words, has_beginnings=not settings.raw
    )
    with prepared as (view, queries):
        if where is not None:
            warn_doubtful(index, view, where)
        query_map = index.query_map
        searched = queries if query_map is None else mapped(query_map, queries)
        while True:
            rankings = _ranked(index, view, parsed_queries, searched, wide, where, brief)
            if brief:
                return rankings
            if reranker is not None:
                from retriever.search.reranking import rerank

                rankings = [
                    rerank(view, reranker, text, query.vector, hits)
                    for text, query, hits in zip(texts, queries, rankings, strict=True)
                ]
            results = rankings
            if settings.collapse:
                from retriever.search.collapse import collapsed

                results = [collapsed(hits) for hits in rankings]
            short = [
                len(hits) < settings.k and len(ranking) == wide.k
                for hits, ranking in zip(results, rankings, strict=True)
            ]
            if not any(short):
                results = [hits[: settings.k] for hits in results]
                plain = reranker is None and query_map is None
                if not plain or not view.setting(CALIBRATION, {}):
                    return results
                from retriever.search.calibration import HITS, Calibration

                calibration = Calibration.read(view, settings.mode)
                if calibration is None:
                    return results
                if wide.k < HITS:
                    ten = replace(settings, k=HITS)
                    rankings = _ranked(index, view, parsed_queries, searched, ten, where)
                analyzer = index.state_of(view).analyzer
                return [
                    calibration.judged(hits, first[:HITS], query.terms, view, analyzer)
                    for hits, first, query in zip(results, rankings, queries, strict=True)
                ]
            wide = replace(wide, k=4 * wide.k)


def _ranked(
    index: OpenedIndex,
    view: View,
    asked: Sequence[ParsedQuery],
    queries: Sequence[Query],
    settings: SearchSettings,
    where: Where | None,
    brief: bool = False,
) -> list[list[Any]]:
    """Hits of queries, only of documents with their phrases and without their excluded words."""
    if settings.mode == "bm25" and not all(query.terms for query in queries):
        return _ranked_or_scanned(index, view, asked, queries, settings, where, brief)
    rank = ranked_ids if brief else ranked_hits
    weight = view.setting(FIT, {}).get("strange_weight") if settings.mode == "hybrid" else None
    strange = settings
    if weight is not None:
        strange = replace(settings, fusion=settings.fusion.completed(weight))
    if strange == settings and not any(one.phrases or one.excluded for one in asked):
        return rank(view, settings, queries, where)
    from retriever.search.phrases import Demands, within

    found: list[list[Any]] = []
    state = index.state_of(view)
    analyzer = state.analyzer
    for one, query in zip(asked, queries, strict=True):
        is_plain = not (one.phrases or one.excluded)
        own = settings
        demands = None if is_plain else Demands(one, view, analyzer)
        if strange != settings:
            from retriever.index.fit import is_strange

            if is_strange(index.encoder(state, query=True), analyzer, one.plain):
                own = strange
        chosen = within(one, view, analyzer, where)
        found += rank(view, own, [query], chosen, demands)
    return found


def _ranked_or_scanned(
    index: OpenedIndex,
    view: View,
    parsed_queries: Sequence[ParsedQuery],
    queries: Sequence[Query],
    settings: SearchSettings,
    where: Where | None,
    brief: bool,
) -> list[list[Any]]:
    """As `_ranked`; documents with the words of a query that has no terms are looked for."""
    from retriever.search.phrases import Demands
    from retriever.search.stop_words import phrase_hits

    analyzer = index.state_of(view).analyzer
    ranked: list[list[Any]] = []
    for parsed, query in zip(parsed_queries, queries, strict=True):
        if query.terms:
            ranked += _ranked(index, view, [parsed], [query], settings, where, brief)
        else:
            is_plain = not (parsed.phrases or parsed.excluded)
            demands = None if is_plain else Demands(parsed, view, analyzer)
            hits = phrase_hits(view, parsed.plain, settings, where, demands)
            ranked.append([(hit.id, hit.score) for hit in hits] if brief else hits)
    return ranked


def mapped(query_map: QueryMap, queries: list[Query]) -> list[Query]:
    """The queries to search for; a reranker reads vectors that are not mapped."""
    vectors = [one.vector for one in queries if one.vector is not None]
    if not vectors:
        return queries
    rows = query_map(np.stack(vectors))
    return [one._replace(vector=row) for one, row in zip(queries, rows, strict=True)]


@contextmanager
def prepared_queries(
    index: OpenedIndex,
    texts: Sequence[str],
    encoded: bool = True,
    ready: QueryVectors | None = None,
    reranker: Reranker | None = None,
    words: Sequence[str] | None = None,
    *,
    has_beginnings: bool = False,
) -> Iterator[tuple[View, list[Query]]]:
    """A view, and queries as the analyzer and, if they are encoded, the encoder reads them.

    `words` are the texts for the analyzer, where they differ from those for the encoder;
    `has_beginnings` is that of `query_terms`.
    """
    while True:
        vectors: Iterable[NDArray[np.float32] | None] = [None] * len(texts)
        made_for = None
        if encoded and ready is not None:
            vectors = ready.vectors
        elif encoded:
            # Before there is a view, since encoding takes long.
            state = index.last_state()
            vectors = index.encoder(state, query=True).encode(texts, query=True)
            made_for = state.identity
        with index.view() as view:
            state = index.state_of(view)
            # An index that replaced this one may have another encoder.
            if made_for not in (None, state.identity):
                continue
            if reranker is not None:
                reranker.check(state.encoder)
            if index.query_map is not None:
                index.query_map.check(state.encoder)
            if ready is not None and ready.made_by.fingerprint != state.encoder.fingerprint:
                raise EncoderMismatchError(
                    f"{index.store}: the index has the encoder {state.encoder}, but the vectors of "
                    f"the queries are of {ready.made_by}; encode them with the encoder of the index"
                )
            terms = [
                query_terms(index, view, text, has_beginnings=has_beginnings)
                for text in words or texts
            ]
            yield view, [Query(own, row) for own, row in zip(terms, vectors, strict=True)]
            return
