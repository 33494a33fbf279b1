"""An index as a retriever and as a vector store of LlamaIndex."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import (
    build_metadata_filter_fn,
    metadata_dict_to_node,
    node_to_metadata_dict,
)

from indexes.filters import filter_of_fields, written_field, written_value
from retriever.documents.document import Document
from retriever.errors import ConfigError
from retriever.index.index import Index
from retriever.index.indexing.embedded_documents import ReadyDocument
from retriever.integrations import (
    HIT,
    in_thread,
    metadata_of,
    open_for_vectors,
    open_index,
    require_storable,
    search_by_vector,
    whole_documents,
)
from retriever.search.engine import Hit
from retriever.search.reranking import Reranker
from retriever.search.settings import SearchSettings, search_settings

# The mode of a search by LlamaIndex's mode.
_MODES = {
    VectorStoreQueryMode.DEFAULT: "dense",
    VectorStoreQueryMode.SPARSE: "bm25",
    VectorStoreQueryMode.TEXT_SEARCH: "bm25",
    VectorStoreQueryMode.HYBRID: "hybrid",
    VectorStoreQueryMode.SEMANTIC_HYBRID: "hybrid",
}


class IndexRetriever(BaseRetriever):
    """Returns passages of an index as LlamaIndex nodes, the best first.

    A node has the id of the index's document, and the best passage as its text with its offsets.
    Its metadata has the document's own fields and ``hit``: rank, scores, title and offsets. The
    text for language models and embeddings omits ``hit``.
    """

    def __init__(
        self,
        index: Index | str | Path,
        settings: SearchSettings | None = None,
        *,
        where: str | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        super().__init__()
        self._index = open_index(index)
        self._settings = settings
        self._where = where
        self._reranker = reranker

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self._index.search(
            query_bundle.query_str, self._settings, where=self._where, reranker=self._reranker
        )
        return [
            NodeWithScore(
                node=TextNode(
                    id_=hit.id,
                    text=hit.passage,
                    start_char_idx=hit.start,
                    end_char_idx=hit.stop,
                    metadata=metadata_of(hit),
                    excluded_llm_metadata_keys=[HIT],
                    excluded_embed_metadata_keys=[HIT],
                ),
                score=hit.score,
            )
            for hit in hits
        ]

    _aretrieve = in_thread(_retrieve)


class IndexVectorStore(BasePydanticVectorStore):
    """An index as the vector store of a `VectorStoreIndex`, whose model computes the embeddings.

    It stores whole nodes: texts, metadata and relations. Queries can have the modes ``default``
    (cosine), ``sparse`` and ``text_search`` (BM25), and ``hybrid`` (both, with `alpha`).
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    _index: Index = PrivateAttr()

    def __init__(self, index: Index | str | Path, embedding_dimensions: int | None = None) -> None:
        super().__init__()
        if embedding_dimensions is None:
            self._index = open_index(index)
        else:
            self._index = open_for_vectors(index, embedding_dimensions, "llama-index-embedder")

    @classmethod
    def class_name(cls) -> str:
        """Return the name in LlamaIndex."""
        return "IndexVectorStore"

    @property
    def client(self) -> Index:
        """The index."""
        return self._index

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Add nodes with their embeddings, or replace nodes with the same ids; return the ids."""
        documents = []
        for node in nodes:
            text = node.get_content(metadata_mode=MetadataMode.NONE)
            document = Document(
                node.node_id, text, None, node_to_metadata_dict(node, remove_text=True)
            )
            documents.append(ReadyDocument.whole(document, node.get_embedding()))
        ids = [node.node_id for node in nodes]
        require_storable(self._index, documents)
        # An index keeps the vector of an unchanged text, but the embedding may have changed.
        self._index.delete(ids)
        self._index.add(documents)
        return ids

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete the nodes of a document."""
        where = filter_of_fields({"ref_doc_id": ref_doc_id})
        if self._index.filter_warning(where) is None:
            self._index.delete_where(where)

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Return the nodes with these ids that match, by id; without ids, read every document."""
        candidates = self._index if node_ids is None else map(self._index.get, node_ids)
        documents = [document for document in candidates if document is not None]
        metadata = {document.id: document.metadata for document in documents}
        is_match = build_metadata_filter_fn(metadata.get, filters)
        return [
            metadata_dict_to_node(document.metadata, document.text)
            for document in documents
            if is_match(document.id)
        ]

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any
    ) -> None:
        """Delete the nodes that `get_nodes` returns."""
        self._index.delete([node.node_id for node in self.get_nodes(node_ids, filters)])

    def clear(self) -> None:
        """Delete every node."""
        self._index.clear()

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        """Return the best nodes with their scores; raise ConfigError for an unsupported mode."""
        query_mode = VectorStoreQueryMode(query.mode)
        mode = _MODES.get(query_mode)
        if mode is None:
            names = ", ".join(supported.value for supported in _MODES)
            raise ConfigError(f"mode: expected one of {names}, found {query_mode.value}")
        keywords = {"mode": mode, "k": query.similarity_top_k}
        if mode == "hybrid":
            keywords["k"] = query.hybrid_top_k or query.similarity_top_k
            keywords |= {} if query.alpha is None else {"alpha": query.alpha}
        settings = search_settings(None, keywords)
        where = _where(query)
        hits: list[Hit]
        if mode == "bm25":
            hits = self._index.search(query.query_str or "", settings, where=where)
        else:
            text = query.query_str if mode == "hybrid" else None
            vector = query.query_embedding or []
            hits = search_by_vector(self._index, vector, settings, where, text)
        documents = whole_documents(self._index, hits)
        return VectorStoreQueryResult(
            nodes=[
                metadata_dict_to_node(hit.metadata, document.text) for document, hit in documents
            ],
            similarities=[hit.score for _, hit in documents],
            ids=[hit.id for _, hit in documents],
        )


def _where(query: VectorStoreQuery) -> str | None:
    """Return the filter of a query as a filter of the index."""
    parts = []
    # LlamaIndex passes an empty list for all ids.
    if query.node_ids:
        parts.append(f"id in ({', '.join(map(written_value, query.node_ids))})")
    if query.doc_ids:
        parts.append(filter_of_fields({"ref_doc_id": query.doc_ids}))
    if query.filters is not None and query.filters.filters:
        parts.append(where_of(query.filters))
    return " and ".join(f"({part})" for part in parts) or None


def where_of(filters: MetadataFilters | MetadataFilter) -> str:
    """Return LlamaIndex's filters as a filter of the index; raise ConfigError for invalid ones."""
    if isinstance(filters, MetadataFilters):
        condition = filters.condition.value if filters.condition else "and"
        parts = [f"({where_of(part)})" for part in filters.filters] or ["id exists"]
        joined = (" or " if condition == "or" else " and ").join(parts)
        return f"not ({joined})" if condition == "not" else joined
    return _comparison(filters)


def _comparison(comparison: MetadataFilter) -> str:
    field = written_field(comparison.key.split("."))
    operator = comparison.operator
    value = comparison.value
    values = list(map(written_value, value)) if isinstance(value, list) else []
    if operator == FilterOperator.IS_EMPTY:
        return f"{field} is null"
    if operator in (FilterOperator.IN, FilterOperator.NIN) and values:
        membership = f"{field} in ({', '.join(values)})"
        return membership if operator == FilterOperator.IN else f"not ({membership})"
    if operator in (FilterOperator.ANY, FilterOperator.ALL) and values:
        separator = " or " if operator == FilterOperator.ANY else " and "
        return separator.join(f"{field} contains {literal}" for literal in values)
    if value is not None and not isinstance(value, list):
        literal = written_value(value)
        if operator == FilterOperator.NE:
            return f"not {field} = {literal}"
        if operator in (FilterOperator.CONTAINS, FilterOperator.TEXT_MATCH):
            return f"{field} contains {literal}"
        if operator.value in ("==", "<", "<=", ">", ">="):
            return f"{field} {operator.value.replace('==', '=')} {literal}"
    raise ConfigError(f"filter: {comparison.key}: cannot compare {value!r:.60} by {operator.value}")
