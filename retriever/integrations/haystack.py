"""An index as a document store and as components of Haystack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.utils.filters import document_matches_filter

from indexes import BM25Settings, written_field, written_value
from retriever import documents as stored
from retriever.index.embedded_documents import ReadyDocument
from retriever.index.index import Index
from retriever.integrations import (
    in_thread,
    metadata_of,
    opened,
    opened_for_vectors,
    require_storable,
    search_by_vector,
    whole_documents,
)
from retriever.search.engine import Hit
from retriever.search.settings import FusionSettings, SearchSettings, search_settings

_ALL = "id exists"
_NONE = "not id exists"


@component
class IndexRetriever:
    """Passages of an index as Haystack documents, the best first.

    A document has the id of the index's document, the best passage as its content, its score, and
    in its meta the document's own fields and ``hit``: rank, scores, title and offsets. A pipeline
    that is saved holds the path of the index and opens it again when it is loaded, with
    ``allowed_modules=["retriever.integrations.haystack"]``.
    """

    def __init__(
        self,
        index: Index | str | Path,
        settings: SearchSettings | None = None,
        where: str | None = None,
    ) -> None:
        self.index = opened(index)
        self.settings = settings or SearchSettings()
        self.where = where

    def to_dict(self) -> dict[str, Any]:
        """What a saved pipeline holds."""
        folder = str(self.index.folder.absolute())
        saved: dict[str, Any] = default_to_dict(
            self, index=folder, settings=asdict(self.settings), where=self.where
        )
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> IndexRetriever:
        """From what `to_dict` gave; raises what `Index.open` raises."""
        saved = dict(data["init_parameters"])
        settings = dict(saved["settings"])
        settings["fusion"] = FusionSettings(**settings["fusion"])
        settings["bm25"] = BM25Settings(**settings["bm25"])
        saved["settings"] = SearchSettings(**settings)
        found: IndexRetriever = default_from_dict(cls, {**data, "init_parameters": saved})
        return found

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, top_k: int | None = None, where: str | None = None
    ) -> dict[str, list[Document]]:
        """Search; `top_k` and `where` are in place of the component's own `k` and filter."""
        settings = search_settings(self.settings, {} if top_k is None else {"k": top_k})
        hits = self.index.search(query, settings, where=self.where if where is None else where)
        documents = [
            Document(id=hit.id, content=hit.passage, meta=metadata_of(hit), score=hit.score)
            for hit in hits
        ]
        return {"documents": documents}

    run_async = in_thread(run)


class IndexDocumentStore:
    """An index as a document store, which `embedding_dimensions` says to fill with embeddings.

    Without that, the index's own encoder encodes documents that have no embedding. The index is
    created if there is none. Documents come back whole, with their metadata and without their
    embedding. Filters of the store read every document, those of retrievers do not.
    """

    def __init__(self, index: Index | str | Path, embedding_dimensions: int | None = None) -> None:
        self.embedding_dimensions = embedding_dimensions
        if embedding_dimensions is not None:
            index = opened_for_vectors(index, embedding_dimensions, "haystack-embedder")
        elif not isinstance(index, Index):
            index = Index.create(index)
        self.index = index

    def to_dict(self) -> dict[str, Any]:
        """What a saved pipeline holds: the path of the index, not its documents."""
        folder = str(self.index.folder.absolute())
        saved: dict[str, Any] = default_to_dict(
            self, index=folder, embedding_dimensions=self.embedding_dimensions
        )
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> IndexDocumentStore:
        """From what `to_dict` gave; raises what `Index.create` raises."""
        found: IndexDocumentStore = default_from_dict(cls, data)
        return found

    def count_documents(self) -> int:
        """The number of documents."""
        return len(self.index)

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """The number of documents that match."""
        return sum(1 for _ in self._matching(filters))

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """The documents that match, by id; FilterError if Haystack cannot compare the values."""
        return list(self._matching(filters))

    def write_documents(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Add documents and return their number; without a policy a known id is an error."""
        if not isinstance(documents, list):
            raise ValueError(f"documents: expected a list, found {type(documents).__name__}")
        for number, one in enumerate(documents, start=1):
            if not isinstance(one, Document):
                raise ValueError(f"document {number}: expected a Document, found {one!r:.60}")
            if not (one.content or "").strip():
                raise ValueError(f"document {number} ({one.id}): expected text as content")
            if one.blob is not None or one.sparse_embedding is not None:
                raise ValueError(
                    f"document {number} ({one.id}): has a blob or a sparse embedding, which an "
                    "index does not store; remove it first"
                )
        written = {}
        for one in documents:
            is_known = one.id in self.index or one.id in written
            if is_known and policy in (DuplicatePolicy.NONE, DuplicatePolicy.FAIL):
                raise DuplicateDocumentError(f"ID {one.id!r} already exists")
            if not is_known or policy is DuplicatePolicy.OVERWRITE:
                written[one.id] = one
        if written:
            ready = [_with_vector(document) for document in written.values()]
            require_storable(self.index, ready)
            # An index keeps the vectors of texts that it knows, but an embedding may be another.
            self.index.delete([one.id for one in written.values() if one.embedding is not None])
            self.index.add(ready)
        return len(written)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents by id, those that there are."""
        self.index.delete(document_ids)

    def delete_all_documents(self) -> None:
        """Delete every document."""
        self.index.clear()

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete the documents that match; returns their number."""
        return self.index.delete([one.id for one in self._matching(filters)])

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Set fields of the documents that match and return their number; nothing is encoded."""
        found = self.filter_documents(filters)
        for one in found:
            self.index.update(one.id, metadata={**one.meta, **meta})
        return len(found)

    count_documents_async = in_thread(count_documents)
    count_documents_by_filter_async = in_thread(count_documents_by_filter)
    filter_documents_async = in_thread(filter_documents)
    write_documents_async = in_thread(write_documents)
    delete_documents_async = in_thread(delete_documents)
    delete_all_documents_async = in_thread(delete_all_documents)
    delete_by_filter_async = in_thread(delete_by_filter)
    update_by_filter_async = in_thread(update_by_filter)

    def _matching(self, filters: dict[str, Any] | None) -> Iterator[Document]:
        for one in self.index:
            document = Document(id=one.id, content=one.text, meta=one.metadata)
            if not filters or document_matches_filter(filters, document):
                yield document


def _with_vector(one: Document) -> stored.Document | ReadyDocument:
    document = stored.Document(one.id, one.content, None, one.meta)
    return document if one.embedding is None else ReadyDocument.whole(document, one.embedding)


class _StoreRetriever:
    """What the retrievers of a store are made of; a saved pipeline holds the same."""

    def __init__(
        self,
        document_store: IndexDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
    ) -> None:
        self.document_store = document_store
        self.filters = filters
        self.top_k = top_k

    def _ranked(
        self,
        query: str | None,
        query_embedding: list[float] | None,
        filters: dict[str, Any] | None,
        top_k: int | None,
        **given: Any,
    ) -> dict[str, list[Document]]:
        """The best documents for a text, an embedding or both, as a component gives them."""
        index = self.document_store.index
        wanted = filters or self.filters
        where = where_of(wanted) if wanted else None
        given["k"] = self.top_k if top_k is None else top_k
        settings = search_settings(None, given)
        hits: list[Hit]
        if query_embedding is not None:
            hits = search_by_vector(index, query_embedding, settings, where, query)
        else:
            hits = index.search(query or "", settings, where=where)
        found = [
            Document(id=hit.id, content=one.text, meta=hit.metadata, score=hit.score)
            for one, hit in whole_documents(index, hits)
        ]
        return {"documents": found}


@component
class IndexEmbeddingRetriever(_StoreRetriever):
    """The documents of a store that are nearest to an embedding, by cosine."""

    @component.output_types(documents=list[Document])
    def run(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
    ) -> dict[str, list[Document]]:
        """Search; `filters` and `top_k` are in place of the component's own."""
        return self._ranked(None, query_embedding, filters, top_k, mode="dense")


@component
class IndexBM25Retriever(_StoreRetriever):
    """The documents of a store that share the most telling words with a query, by BM25."""

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Search; `filters` and `top_k` are in place of the component's own."""
        return self._ranked(query, None, filters, top_k, mode="bm25")


@component
class IndexHybridRetriever(_StoreRetriever):
    """The best documents of a store by words and embeddings; `alpha` weighs the embeddings."""

    def __init__(
        self,
        document_store: IndexDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        alpha: float | None = None,
    ) -> None:
        # The decorator makes another class, which super() would not know.
        _StoreRetriever.__init__(self, document_store, filters, top_k)
        self.alpha = alpha

    @component.output_types(documents=list[Document])
    def run(
        self,
        query: str,
        query_embedding: list[float] | None = None,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
    ) -> dict[str, list[Document]]:
        """Search; without `query_embedding` the index encodes the query."""
        weight = {} if self.alpha is None else {"alpha": self.alpha}
        return self._ranked(query, query_embedding, filters, top_k, mode="hybrid", **weight)


def where_of(filters: dict[str, Any]) -> str:
    """Haystack's filters in the form of the index; FilterError if they have none."""
    if "field" in filters:
        return _comparison(filters)
    operator = filters.get("operator")
    parts = filters.get("conditions")
    if operator not in ("AND", "OR", "NOT") or not isinstance(parts, list):
        raise FilterError(f"expected operator AND, OR or NOT and conditions, found {filters!r:.80}")
    if not parts:
        return _ALL if operator == "AND" else _NONE
    joined = (" or " if operator == "OR" else " and ").join(f"({where_of(one)})" for one in parts)
    return f"not ({joined})" if operator == "NOT" else joined


def _comparison(condition: dict[str, Any]) -> str:
    if not {"operator", "value"} <= condition.keys():
        raise FilterError(f"expected operator and value, found {condition!r:.80}")
    name = condition["field"]
    operator = condition["operator"]
    value = condition["value"]
    if name in ("content", "score", "embedding", "blob", "sparse_embedding"):
        raise FilterError(f"{name}: expected id or a field of meta")
    field = "id" if name == "id" else written_field(name.removeprefix("meta.").split("."))
    match operator:
        case "==" | "!=":
            equal = f"{field} = {_literal(name, value)}"
            return equal if operator == "==" else f"not {equal}"
        case "in" | "not in":
            if not isinstance(value, list):
                raise FilterError(f"{name}: {operator} expects a list, found {value!r:.60}")
            literals = ", ".join(_literal(name, one) for one in value)
            among = f"{field} in ({literals})" if value else _NONE
            return among if operator == "in" else f"not ({among})"
        case "<" | "<=" | ">" | ">=":
            if value is None:
                return _NONE
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number and not isinstance(value, datetime):
                try:
                    datetime.fromisoformat(value)
                except (TypeError, ValueError) as error:
                    raise FilterError(
                        f"{name}: {operator} expects a number or a date of ISO 8601, found "
                        f"{value!r:.60}"
                    ) from error
            return f"{field} {operator} {_literal(name, value)}"
    raise FilterError(f"{name}: unknown operator {operator!r}")


def _literal(name: str, value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, datetime):
        value = value.isoformat()
    if not isinstance(value, str | bool | int | float):
        raise FilterError(f"{name}: expected a string, number or boolean, found {value!r:.60}")
    return written_value(value)
