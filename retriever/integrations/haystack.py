"""An index as a document store and as retriever components of Haystack."""

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

from indexes.bm25 import BM25Settings
from indexes.filters import written_field, written_value
from retriever import documents as stored
from retriever.index.index import Index
from retriever.index.indexing.embedded_documents import ReadyDocument
from retriever.integrations import (
    in_thread,
    metadata_of,
    open_for_vectors,
    open_index,
    require_storable,
    search_by_vector,
    whole_documents,
)
from retriever.search.engine import Hit
from retriever.search.settings import FusionSettings, SearchSettings, search_settings

# Filters that every document matches, and that none matches.
_ALL = "id exists"
_NONE = "not id exists"


@component
class IndexRetriever:
    """Returns passages of an index as Haystack documents, the best first.

    A document has the id of the index's document, the best passage as its content, and its score.
    Its meta has the document's own fields and ``hit``: rank, scores, title and offsets. A saved
    pipeline has the path of the index, which it opens again when it is loaded with
    ``allowed_modules=["retriever.integrations.haystack"]``.
    """

    def __init__(
        self,
        index: Index | str | Path,
        settings: SearchSettings | None = None,
        where: str | None = None,
    ) -> None:
        self.index = open_index(index)
        self.settings = settings or SearchSettings()
        self.where = where

    def to_dict(self) -> dict[str, Any]:
        """Return the component for a saved pipeline."""
        folder = str(self.index.folder.absolute())
        saved: dict[str, Any] = default_to_dict(
            self, index=folder, settings=asdict(self.settings), where=self.where
        )
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> IndexRetriever:
        """Return the component of a saved pipeline; raise the errors of `Index.open`."""
        parameters = dict(data["init_parameters"])
        settings = dict(parameters["settings"])
        settings["fusion"] = FusionSettings(**settings["fusion"])
        settings["bm25"] = BM25Settings(**settings["bm25"])
        parameters["settings"] = SearchSettings(**settings)
        retriever: IndexRetriever = default_from_dict(cls, {**data, "init_parameters": parameters})
        return retriever

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, top_k: int | None = None, where: str | None = None
    ) -> dict[str, list[Document]]:
        """Search; `top_k` and `where` replace the component's own `k` and filter."""
        settings = search_settings(self.settings, {} if top_k is None else {"k": top_k})
        hits = self.index.search(query, settings, where=self.where if where is None else where)
        documents = [
            Document(id=hit.id, content=hit.passage, meta=metadata_of(hit), score=hit.score)
            for hit in hits
        ]
        return {"documents": documents}

    run_async = in_thread(run)


class IndexDocumentStore:
    """An index as a document store.

    With `embedding_dimensions`, documents need embeddings of this length. Otherwise the encoder of
    the index encodes documents without an embedding. The index is created if there is none.
    Documents are returned whole, with their metadata and without their embedding. Filters of the
    store read every document; filters of retrievers do not.
    """

    def __init__(self, index: Index | str | Path, embedding_dimensions: int | None = None) -> None:
        self.embedding_dimensions = embedding_dimensions
        if embedding_dimensions is not None:
            index = open_for_vectors(index, embedding_dimensions, "haystack-embedder")
        elif not isinstance(index, Index):
            index = Index.create(index)
        self.index = index

    def to_dict(self) -> dict[str, Any]:
        """Return the store for a saved pipeline: the path of the index, not its documents."""
        folder = str(self.index.folder.absolute())
        saved: dict[str, Any] = default_to_dict(
            self, index=folder, embedding_dimensions=self.embedding_dimensions
        )
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> IndexDocumentStore:
        """Return the store of a saved pipeline; raise the errors of `Index.create`."""
        store: IndexDocumentStore = default_from_dict(cls, data)
        return store

    def count_documents(self) -> int:
        """Return the number of documents."""
        return len(self.index)

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """Return the number of documents that match."""
        return sum(1 for _ in self._matching(filters))

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Return the documents that match, by id; raise FilterError for incomparable values."""
        return list(self._matching(filters))

    def write_documents(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Add documents and return their number; without a policy, an existing id is an error."""
        if not isinstance(documents, list):
            raise ValueError(f"documents: expected a list, found {type(documents).__name__}")
        for number, document in enumerate(documents, start=1):
            _check_document(number, document)
        new_documents: dict[str, Document] = {}
        for document in documents:
            is_duplicate = document.id in self.index or document.id in new_documents
            if is_duplicate and policy in (DuplicatePolicy.NONE, DuplicatePolicy.FAIL):
                raise DuplicateDocumentError(f"ID {document.id!r} already exists")
            if not is_duplicate or policy is DuplicatePolicy.OVERWRITE:
                new_documents[document.id] = document
        if new_documents:
            storable = [_storable_document(document) for document in new_documents.values()]
            require_storable(self.index, storable)
            # An index keeps the vector of an unchanged text, but the embedding may have changed.
            self.index.delete(
                [id_ for id_, document in new_documents.items() if document.embedding is not None]
            )
            self.index.add(storable)
        return len(new_documents)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents by id; unknown ids are ignored."""
        self.index.delete(document_ids)

    def delete_all_documents(self) -> None:
        """Delete every document."""
        self.index.clear()

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete the documents that match, and return their number."""
        return self.index.delete([document.id for document in self._matching(filters)])

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Set fields of the documents that match, and return their number; encode nothing."""
        documents = self.filter_documents(filters)
        for document in documents:
            self.index.update(document.id, metadata={**document.meta, **meta})
        return len(documents)

    count_documents_async = in_thread(count_documents)
    count_documents_by_filter_async = in_thread(count_documents_by_filter)
    filter_documents_async = in_thread(filter_documents)
    write_documents_async = in_thread(write_documents)
    delete_documents_async = in_thread(delete_documents)
    delete_all_documents_async = in_thread(delete_all_documents)
    delete_by_filter_async = in_thread(delete_by_filter)
    update_by_filter_async = in_thread(update_by_filter)

    def _matching(self, filters: dict[str, Any] | None) -> Iterator[Document]:
        for stored_document in self.index:
            document = Document(
                id=stored_document.id,
                content=stored_document.text,
                meta=stored_document.metadata,
            )
            if not filters or document_matches_filter(filters, document):
                yield document


def _check_document(number: int, document: object) -> None:
    """Raise ValueError if an index cannot store a document."""
    if not isinstance(document, Document):
        raise ValueError(f"document {number}: expected a Document, found {document!r:.60}")
    if not (document.content or "").strip():
        raise ValueError(f"document {number} ({document.id}): expected text as content")
    if document.blob is not None or document.sparse_embedding is not None:
        raise ValueError(
            f"document {number} ({document.id}): has a blob or a sparse embedding, which an "
            "index does not store; remove it first"
        )


def _storable_document(document: Document) -> stored.Document | ReadyDocument:
    """Return a document of the index, with its embedding if it has one."""
    plain = stored.Document(document.id, document.content, None, document.meta)
    if document.embedding is None:
        return plain
    return ReadyDocument.whole(plain, document.embedding)


class _StoreRetriever:
    """Base of the retrievers of a store, with the parameters of a saved pipeline."""

    def __init__(
        self,
        document_store: IndexDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
    ) -> None:
        self.document_store = document_store
        self.filters = filters
        self.top_k = top_k

    def _search(
        self,
        query: str | None,
        query_embedding: list[float] | None,
        filters: dict[str, Any] | None,
        top_k: int | None,
        **keywords: Any,
    ) -> dict[str, list[Document]]:
        """Return the best documents for a text, an embedding or both, as output of a component."""
        index = self.document_store.index
        used_filters = filters or self.filters
        where = where_of(used_filters) if used_filters else None
        keywords["k"] = self.top_k if top_k is None else top_k
        settings = search_settings(None, keywords)
        hits: list[Hit]
        if query_embedding is not None:
            hits = search_by_vector(index, query_embedding, settings, where, query)
        else:
            hits = index.search(query or "", settings, where=where)
        documents = [
            Document(id=hit.id, content=document.text, meta=hit.metadata, score=hit.score)
            for document, hit in whole_documents(index, hits)
        ]
        return {"documents": documents}


@component
class IndexEmbeddingRetriever(_StoreRetriever):
    """Returns the documents of a store that are nearest to an embedding, by cosine."""

    @component.output_types(documents=list[Document])
    def run(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
    ) -> dict[str, list[Document]]:
        """Search; `filters` and `top_k` replace the component's own."""
        return self._search(None, query_embedding, filters, top_k, mode="dense")


@component
class IndexBM25Retriever(_StoreRetriever):
    """Returns the best documents of a store for the words of a query, by BM25."""

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Search; `filters` and `top_k` replace the component's own."""
        return self._search(query, None, filters, top_k, mode="bm25")


@component
class IndexHybridRetriever(_StoreRetriever):
    """Returns the best documents of a store by words and embeddings.

    `alpha` is the weight of the embeddings; None takes the weight of the index.
    """

    def __init__(
        self,
        document_store: IndexDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        alpha: float | None = None,
    ) -> None:
        # The decorator replaces the class, so super() without arguments would fail.
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
        return self._search(query, query_embedding, filters, top_k, mode="hybrid", **weight)


def where_of(filters: dict[str, Any]) -> str:
    """Return Haystack's filters as a filter of the index; raise FilterError for invalid ones."""
    if "field" in filters:
        return _comparison(filters)
    operator = filters.get("operator")
    parts = filters.get("conditions")
    if operator not in ("AND", "OR", "NOT") or not isinstance(parts, list):
        raise FilterError(f"expected operator AND, OR or NOT and conditions, found {filters!r:.80}")
    if not parts:
        return _ALL if operator == "AND" else _NONE
    joined = (" or " if operator == "OR" else " and ").join(f"({where_of(part)})" for part in parts)
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
            literals = ", ".join(_literal(name, item) for item in value)
            membership = f"{field} in ({literals})" if value else _NONE
            return membership if operator == "in" else f"not ({membership})"
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
