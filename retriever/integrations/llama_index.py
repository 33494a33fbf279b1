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

from indexes import filter_of_fields, written_field, written_value
from retriever.documents.document import Document
from retriever.errors import ConfigError
from retriever.index.embedded_documents import ReadyDocument
from retriever.index.index import Index
from retriever.integrations import (
    HIT,
    in_thread,
    metadata_of,
    opened,
    opened_for_vectors,
    require_storable,
    search_by_vector,
    whole_documents,
)
from retriever.search.engine import Hit
from retriever.search.reranking import Reranker
from retriever.search.settings import SearchSettings, search_settings


class IndexRetriever(BaseRetriever):
    """Passages of an index as LlamaIndex nodes, the best first.

    A node has the id of the index's document, the best passage as its text with its offsets, and
    in its metadata the document's own fields and ``hit``: rank, scores, title and offsets. The text
    for language models and embeddings leaves ``hit`` out.
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
        self._index = opened(index)
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


_MODES = {
    VectorStoreQueryMode.DEFAULT: "dense",
    VectorStoreQueryMode.SPARSE: "bm25",
    VectorStoreQueryMode.TEXT_SEARCH: "bm25",
    VectorStoreQueryMode.HYBRID: "hybrid",
    VectorStoreQueryMode.SEMANTIC_HYBRID: "hybrid",
}


class IndexVectorStore(BasePydanticVectorStore):
    """An index as the vector store of a `VectorStoreIndex`, whose embedding model makes vectors.

    It keeps nodes whole: texts, metadata and relations. Queries of the modes ``default`` (cosine),
    ``sparse`` and ``text_search`` (BM25) and ``hybrid`` (both, with `alpha`) are answered.
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    _index: Index = PrivateAttr()

    def __init__(self, index: Index | str | Path, embedding_dimensions: int | None = None) -> None:
        super().__init__()
        if embedding_dimensions is None:
            self._index = opened(index)
        else:
            self._index = opened_for_vectors(index, embedding_dimensions, "llama-index-embedder")

    @classmethod
    def class_name(cls) -> str:
        """The name in LlamaIndex."""
        return "IndexVectorStore"

    @property
    def client(self) -> Index:
        """The index."""
        return self._index

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Add nodes with their embeddings, or replace those with the same ids; returns the ids."""
        ready = []
        for node in nodes:
            text = node.get_content(metadata_mode=MetadataMode.NONE)
            document = Document(
                node.node_id, text, None, node_to_metadata_dict(node, remove_text=True)
            )
            ready.append(ReadyDocument.whole(document, node.get_embedding()))
        ids = [node.node_id for node in nodes]
        require_storable(self._index, ready)
        # An index keeps the vectors of texts that it knows, but an embedding may be another.
        self._index.delete(ids)
        self._index.add(ready)
        return ids

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete the nodes of a document."""
        where = filter_of_fields({"ref_doc_id": ref_doc_id})
        if self._index.filter_warning(where) is None:
            self._index.delete_where(where)

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """The nodes with these ids that match, by id; without ids every document is read."""
        documents = self._index if node_ids is None else map(self._index.get, node_ids)
        found = [one for one in documents if one is not None]
        matches = build_metadata_filter_fn({one.id: one.metadata for one in found}.get, filters)
        return [metadata_dict_to_node(one.metadata, one.text) for one in found if matches(one.id)]

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any
    ) -> None:
        """Delete the nodes that `get_nodes` would give."""
        self._index.delete([node.node_id for node in self.get_nodes(node_ids, filters)])

    def clear(self) -> None:
        """Delete every node."""
        self._index.clear()

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        """The best nodes with their scores; ConfigError for a mode that an index does not have."""
        asked = VectorStoreQueryMode(query.mode)
        mode = _MODES.get(asked)
        if mode is None:
            known = ", ".join(one.value for one in _MODES)
            raise ConfigError(f"mode: expected one of {known}, found {asked.value}")
        given = {"mode": mode, "k": query.similarity_top_k}
        if mode == "hybrid":
            given["k"] = query.hybrid_top_k or query.similarity_top_k
            given |= {} if query.alpha is None else {"alpha": query.alpha}
        settings = search_settings(None, given)
        where = _where(query)
        hits: list[Hit]
        if mode == "bm25":
            hits = self._index.search(query.query_str or "", settings, where=where)
        else:
            text = query.query_str if mode == "hybrid" else None
            vector = query.query_embedding or []
            hits = search_by_vector(self._index, vector, settings, where, text)
        found = whole_documents(self._index, hits)
        return VectorStoreQueryResult(
            nodes=[metadata_dict_to_node(hit.metadata, one.text) for one, hit in found],
            similarities=[hit.score for _, hit in found],
            ids=[hit.id for _, hit in found],
        )


def _where(query: VectorStoreQuery) -> str | None:
    """The filter of a query, in the form of the index."""
    parts = []
    # LlamaIndex passes an empty list where it means all.
    if query.node_ids:
        parts.append(f"id in ({', '.join(map(written_value, query.node_ids))})")
    if query.doc_ids:
        parts.append(filter_of_fields({"ref_doc_id": query.doc_ids}))
    if query.filters is not None and query.filters.filters:
        parts.append(where_of(query.filters))
    return " and ".join(f"({one})" for one in parts) or None


def where_of(given: MetadataFilters | MetadataFilter) -> str:
    """LlamaIndex's filters in the form of the index; ConfigError if they have none."""
    if isinstance(given, MetadataFilters):
        condition = given.condition.value if given.condition else "and"
        parts = [f"({where_of(one)})" for one in given.filters] or ["id exists"]
        joined = (" or " if condition == "or" else " and ").join(parts)
        return f"not ({joined})" if condition == "not" else joined
    field = written_field(given.key.split("."))
    operator = given.operator
    value = given.value
    values = [written_value(one) for one in value] if isinstance(value, list) else []
    if operator == FilterOperator.IS_EMPTY:
        return f"{field} is null"
    if operator in (FilterOperator.IN, FilterOperator.NIN) and values:
        among = f"{field} in ({', '.join(values)})"
        return among if operator == FilterOperator.IN else f"not ({among})"
    if operator in (FilterOperator.ANY, FilterOperator.ALL) and values:
        joint = " or " if operator == FilterOperator.ANY else " and "
        return joint.join(f"{field} contains {one}" for one in values)
    if value is not None and not isinstance(value, list):
        literal = written_value(value)
        if operator == FilterOperator.NE:
            return f"not {field} = {literal}"
        if operator in (FilterOperator.CONTAINS, FilterOperator.TEXT_MATCH):
            return f"{field} contains {literal}"
        if operator.value in ("==", "<", "<=", ">", ">="):
            return f"{field} {operator.value.replace('==', '=')} {literal}"
    raise ConfigError(f"filter: {given.key}: cannot compare {value!r:.60} by {operator.value}")
