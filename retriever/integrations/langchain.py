"""An index as a retriever and as a vector store of LangChain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from numpy.typing import NDArray

from indexes.filters import filter_of_fields
from retriever import documents as stored
from retriever.errors import ConfigError, unexpected_keyword
from retriever.index.index import Index
from retriever.integrations import (
    in_thread,
    metadata_of,
    open_index,
    search_by_vector,
    whole_documents,
)
from retriever.search.engine import Hit
from retriever.search.settings import SearchSettings, search_settings

_Filter = str | Mapping[str, Any] | None


class IndexRetriever(BaseRetriever):
    """Returns passages of an index as LangChain documents, the best first.

    A document has the id of the index's document and the best passage as its content. Its metadata
    has the document's own fields and ``hit``: rank, scores, title and offsets. `index` is an index
    or its path. `k` replaces the `k` of the settings. In
    ``invoke(query, k=3, filter={"year": 2021})``, `k` and `filter` (or `where`) replace both.
    """

    index: Index
    settings: SearchSettings = SearchSettings()
    where: str | None = None
    reranker: Any = None
    k: int | None = None

    def __init__(self, **fields: Any) -> None:
        names = type(self).model_fields
        if unknown := fields.keys() - names.keys():
            raise unexpected_keyword(min(unknown), names)
        if "index" in fields:
            fields["index"] = open_index(fields["index"])
        super().__init__(**fields)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        where: _Filter = None,
        **keywords: Any,
    ) -> list[Document]:
        number = self.k if k is None else k
        settings = search_settings(self.settings, {} if number is None else {"k": number})
        own_filter = _where(where, keywords)
        hits = self.index.search(
            query,
            settings,
            where=self.where if own_filter is None else own_filter,
            reranker=self.reranker,
        )
        return [
            Document(id=hit.id, page_content=hit.passage, metadata=metadata_of(hit)) for hit in hits
        ]

    _aget_relevant_documents = in_thread(_get_relevant_documents)


class EmbeddingsEncoder:
    """LangChain's embeddings as the encoder of an index: ``Index.create(encoder=...)``.

    `name` identifies the model in the index; by default it is the class and the model.
    """

    def __init__(self, embeddings: Embeddings, name: str = "") -> None:
        self._embeddings = embeddings
        model = getattr(embeddings, "model_name", None) or getattr(embeddings, "model", None)
        self.name = name or ":".join(
            [type(embeddings).__name__, *([model] if isinstance(model, str) else [])]
        )

    def encode(self, texts: list[str]) -> list[list[float]]:
        """Return (texts, dimensions) vectors of documents."""
        vectors: list[list[float]] = self._embeddings.embed_documents(texts)
        return vectors

    def encode_query(self, texts: list[str]) -> list[list[float]]:
        """Return (texts, dimensions) vectors of queries."""
        return [self._embeddings.embed_query(text) for text in texts]


class EncoderEmbeddings(Embeddings):
    """The encoder of an index as LangChain's embeddings."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return (texts, dimensions) vectors of documents."""
        vectors: list[list[float]] = self._index.encoder.encode(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        vector: list[float] = self._index.query_encoder.encode(text, query=True).tolist()
        return vector


class IndexVectorStore(VectorStore):
    """An index as a vector store: LangChain documents with their ids, texts and metadata.

    It ranks by cosine, as LangChain's other stores do, and with ``SearchSettings(mode="hybrid")``
    by words, too. Results are whole documents as they were added; use `IndexRetriever` for passages
    of longer texts. `where`, or `filter`, is a filter in text form, or the values of fields:
    ``{"year": 2021, "lang": ["en", "de"]}``. `index` is an index or its path. A path opens with
    `embeddings` if they made the index's vectors.
    """

    def __init__(
        self,
        index: Index | str | Path,
        settings: SearchSettings | None = None,
        embeddings: Embeddings | None = None,
    ) -> None:
        if embeddings is not None and not isinstance(index, Index):
            index = Index.open(index, encoder=EmbeddingsEncoder(embeddings))
        self.index = open_index(index)
        self.settings = settings or SearchSettings(mode="dense")
        self._embeddings = embeddings

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        folder: str | Path,
        settings: SearchSettings | None = None,
        **create: Any,
    ) -> Self:
        """Add texts to the index in `folder`; further keywords are for `Index.create`."""
        if embedding is not None:
            create["encoder"] = EmbeddingsEncoder(embedding)
        store = cls(Index.create(folder, **create), settings, embedding)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings of the store, or the encoder of the index."""
        return self._embeddings or EncoderEmbeddings(self.index)

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **_: Any,
    ) -> list[str]:
        """Add texts, or replace texts with the same ids; return the ids, random where None."""
        texts = list(texts)
        for name, values in (("metadatas", metadatas), ("ids", ids)):
            if values and len(values) != len(texts):
                raise ValueError(f"{name}: expected {len(texts)}, found {len(values)}")
        names = [id_ or uuid4().hex for id_ in ids or [None] * len(texts)]
        rows = zip(names, texts, metadatas or [{}] * len(texts), strict=True)
        self.index.add([stored.Document(id_, text, None, fields) for id_, text, fields in rows])
        return names

    def delete(self, ids: list[str] | None = None, **keywords: Any) -> bool:
        """Delete documents by id or by `where`, or all without arguments; ignore unknown ids."""
        if ids is None and not keywords:
            self.index.clear()
        else:
            where = _where(keywords.pop("where", None), keywords, "ids")
            self.index.delete(ids, where=where)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids; ignore unknown ids."""
        documents = map(self.index.get, ids)
        return [_document(document) for document in documents if document is not None]

    def similarity_search(
        self, query: str, k: int = 4, where: _Filter = None, **keywords: Any
    ) -> list[Document]:
        """Return the best documents for a query."""
        scored = self.similarity_search_with_score(query, k, where, **keywords)
        return [document for document, _ in scored]

    def similarity_search_with_score(
        self, query: str, k: int = 4, where: _Filter = None, **keywords: Any
    ) -> list[tuple[Document, float]]:
        """Return the best documents with their scores; higher is better."""
        hits = self.index.search(query, self.settings, where=_where(where, keywords), k=k)
        return [(document, hit.score) for document, hit in self._documents(hits)]

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, where: _Filter = None, **keywords: Any
    ) -> list[Document]:
        """Return the best documents by cosine with the vector of a query."""
        settings = search_settings(self.settings, {"k": k})
        hits = search_by_vector(self.index, embedding, settings, _where(where, keywords))
        return [document for document, _ in self._documents(hits)]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        where: _Filter = None,
        **keywords: Any,
    ) -> list[Document]:
        """Return `k` dissimilar documents among the `fetch_k` best ones."""
        vector = self.index.query_encoder.encode([query], query=True)[0]
        settings = search_settings(self.settings, {"k": fetch_k})
        hits = search_by_vector(self.index, vector, settings, _where(where, keywords), query)
        return self._select_diverse(vector, hits, k, lambda_mult)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        where: _Filter = None,
        **keywords: Any,
    ) -> list[Document]:
        """Return dissimilar documents for a vector; see `max_marginal_relevance_search`."""
        settings = search_settings(self.settings, {"k": fetch_k})
        hits = search_by_vector(self.index, embedding, settings, _where(where, keywords))
        vector = np.asarray(embedding, np.float32)
        return self._select_diverse(vector, hits, k, lambda_mult)

    amax_marginal_relevance_search_by_vector = in_thread(max_marginal_relevance_search_by_vector)

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, where: _Filter = None, **keywords: Any
    ) -> list[tuple[Document, float]]:
        # The cosine, since fused scores cannot be compared between queries.
        if self.settings.mode == "bm25":
            raise ConfigError(
                "relevance: expected a mode that compares vectors, found bm25, whose scores have "
                "no upper limit; leave score_threshold out"
            )
        hits = self.index.search(query, self.settings, where=_where(where, keywords), k=k)
        return [
            (document, min(1.0, max(0.0, hit.dense or 0.0)))
            for document, hit in self._documents(hits)
        ]

    _asimilarity_search_with_relevance_scores = in_thread(_similarity_search_with_relevance_scores)

    def _documents(self, hits: list[Hit]) -> list[tuple[Document, Hit]]:
        documents = whole_documents(self.index, hits)
        return [(_document(document), hit) for document, hit in documents]

    def _select_diverse(
        self, vector: NDArray[np.float32], hits: list[Hit], k: int, lambda_mult: float
    ) -> list[Document]:
        if not hits:
            return []
        rows = list(self.index.vectors(hits))
        positions = maximal_marginal_relevance(vector, rows, lambda_mult, k)
        documents = self._documents([hits[position] for position in positions])
        return [document for document, _ in documents]


def _document(document: stored.Document) -> Document:
    return Document(id=document.id, page_content=document.text, metadata=document.metadata)


def _where(where: _Filter, keywords: dict[str, Any], other_name: str = "k") -> str | None:
    """Return `where` or LangChain's `filter` as a filter; raise TypeError for other keywords.

    `other_name` is a further keyword of the caller, for the message.
    """
    if unknown := keywords.keys() - {"filter"}:
        raise unexpected_keyword(min(unknown), (other_name, "where", "filter"))
    condition = keywords.get("filter") if where is None else where
    if isinstance(condition, Mapping):
        return filter_of_fields(condition) or None
    return condition
