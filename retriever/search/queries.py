"""Texts to hits: queries are encoded in batches, and each batch is ranked on one view."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from indexes import Facets, Query, StoredDocument, View, Where, parse_field, type_mismatch
from retriever.documents import is_id, string_fault
from retriever.encoders.spec import EncoderSpec
from retriever.errors import BadInputError, ConfigError, EncoderMismatchError
from retriever.indexing.creation import IndexState
from retriever.search.engine import Engine, Hit, ScoredPassages
from retriever.search.reranking import Reranker, rerank
from retriever.search.settings import SearchSettings

if TYPE_CHECKING:
    from retriever.index.opened import OpenedIndex

_BATCH = 256


@dataclass(frozen=True, slots=True, eq=False)
class QueryVectors:
    """Queries that were encoded before.

    Attributes:
        vectors: (queries, dimensions) float32, as ``index.encoder.encode(texts, query=True)``
            gives them.
        made_by: the specification of that encoder.
    """

    vectors: NDArray[np.float32]
    made_by: EncoderSpec

    def rows(self, start: int, stop: int) -> QueryVectors:
        """Those of some of the queries.

        Raises:
            ConfigError: there are fewer.
        """
        if stop > len(self.vectors):
            raise ConfigError(
                f"vectors: expected one for each query, found {len(self.vectors)} for more queries"
            )
        return QueryVectors(self.vectors[start:stop], self.made_by)


def search_texts(
    index: OpenedIndex,
    texts: Iterable[str],
    settings: SearchSettings,
    where: Where | None,
    reranker: Reranker | None,
    ready: QueryVectors | None = None,
) -> Iterator[list[Hit]]:
    """The hits of each query; see `Index.search_many`."""
    batch: list[str] = []
    answered = 0
    for number, text in enumerate(texts, start=1):
        check_query(text, number)
        batch.append(text)
        if len(batch) == _BATCH:
            part = None if ready is None else ready.rows(answered, number)
            yield from _search(index, batch, settings, where, reranker, part)
            batch, answered = [], number
    if batch:
        part = None if ready is None else ready.rows(answered, answered + len(batch))
        yield from _search(index, batch, settings, where, reranker, part)


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
        check_query(text)
    while True:
        state = index.state()
        with index.view() as view:
            # An index that replaced this one meanwhile may have another analyzer.
            if view.identity != state.identity:
                continue
            _warn_doubtful(index, view, where)
            if problem := unknown_fields(view, [path[0] for path in paths]):
                warnings.warn(f"facets: {problem}", stacklevel=3)
            terms = None if text is None else state.analyzer.tokens(text)
            return view.facets(names, where, terms, limit)


def similar_to(
    index: OpenedIndex, id_: str, start: int, settings: SearchSettings, where: Where | None
) -> list[Hit]:
    """The documents that are most like a passage; see `Index.more_like`."""
    while True:
        state = index.state()
        with index.view() as view:
            # An index that replaced this one meanwhile may have another analyzer.
            if view.identity != state.identity:
                continue
            stored = stored_document(view, id_)
            # Passages overlap: the last one that has begun there.
            begun = [one for one in stored.passages if one[1] <= start] or stored.passages[:1]
            passage, first, last = begun[-1]
            text = stored.text[first:last]
            query = Query(
                state.analyzer.tokens(f"{stored.title or ''} {text}"), view.vectors([passage])[0]
            )
            _warn_doubtful(index, view, where)
            # One more, since the document itself may be among them.
            (hits,) = Engine(view, replace(settings, k=settings.k + 1), where).search([query])
            others = [hit for hit in hits if hit.id != id_][: settings.k]
            return [replace(hit, rank=rank) for rank, hit in enumerate(others, start=1)]


def stored_document(view: View, id_: str) -> StoredDocument:
    """A document with its passages.

    Raises:
        KeyError: the index holds no document with this id, or no index can.
    """
    stored = view.document(id_) if is_id(id_) else None
    if stored is None:
        raise KeyError(id_)
    return stored


def unknown_fields(view: View, names: Iterable[str]) -> str | None:
    """What to say of fields that no document has; None if all are known."""
    for name, known in view.unknown_fields(names).items():
        near = difflib.get_close_matches(name, known, 1)
        guess = f"; did you mean {near[0]!r}?" if near else ""
        there = f"fields: {', '.join(known)}" if known else "no document has metadata"
        return f"no document has the field {name!r}{guess} ({there})"
    return None


def filter_doubt(view: View, where: Where) -> str | None:
    """What to say of a filter that names a field or a type that no document has; None if none."""
    return unknown_fields(view, where.fields) or type_mismatch(where.expression, view.has_type)


def check_query(text: str, number: int = 1) -> None:
    """Refuse a query that cannot be analyzed.

    Raises:
        BadInputError: it is blank, or not valid Unicode.
    """
    fault = string_fault(text)
    if not text.strip():
        fault = "is empty: expected at least one word"
    if fault is not None:
        raise BadInputError(f"query {number} {fault}")


def _warn_doubtful(index: OpenedIndex, view: View, where: Where | None) -> None:
    if where is not None and (problem := index.filter_doubt(view, where)):
        warnings.warn(f"filter: {problem}", stacklevel=3)


def _search(
    index: OpenedIndex,
    texts: Sequence[str],
    settings: SearchSettings,
    where: Where | None,
    reranker: Reranker | None,
    ready: QueryVectors | None,
) -> list[list[Hit]]:
    wide = settings
    if reranker is not None:
        wide = replace(settings, k=max(settings.k, settings.depth))
    while True:
        state = index.state()
        if reranker is not None:
            reranker.check(state.encoder)
        encoded = settings.mode != "bm25" or (reranker is not None and reranker.reads_vectors)
        if ready is not None and ready.made_by.fingerprint != state.encoder.fingerprint:
            raise EncoderMismatchError(
                f"{index.store}: the index has the encoder {state.encoder}, but the vectors of "
                f"the queries are of {ready.made_by}; encode them with the encoder of the index"
            )
        queries = _queries(index, state, texts, encoded=encoded, ready=ready)
        with index.view() as view:
            # An index that replaced this one meanwhile may have another encoder and analyzer.
            if view.identity != state.identity:
                continue
            _warn_doubtful(index, view, where)
            found = Engine(view, wide, where).search(queries)
            if reranker is None:
                return found
            return [
                rerank(view, reranker, text, query.vector, hits)[: settings.k]
                for text, query, hits in zip(texts, queries, found, strict=True)
            ]


def _queries(
    index: OpenedIndex,
    state: IndexState,
    texts: Sequence[str],
    *,
    encoded: bool,
    ready: QueryVectors | None = None,
) -> list[Query]:
    """The terms of queries, and their vectors if they are asked for."""
    queries = [Query(state.analyzer.tokens(text)) for text in texts]
    if not encoded:
        return queries
    if ready is None:
        vectors = index.encoder(state, query=True).encode(texts, query=True)
    else:
        vectors = ready.vectors
    return [Query(query.terms, vector) for query, vector in zip(queries, vectors, strict=True)]
