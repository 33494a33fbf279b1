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

from indexes import filter_of_fields
from retriever import documents as stored
from retriever.errors import ConfigError, unexpected_keyword
from retriever.index.index import Index
from retriever.integrations import (
    in_thread,
    metadata_of,
    opened,
    search_by_vector,
    whole_documents,
)
from retriever.search.engine import Hit
from retriever.search.settings import SearchSettings, search_settings

_Filter = str | Mapping[str, Any] | None


class IndexRetriever(BaseRetriever):
    """Passages of an index as LangChain documents, the best first.

    A document has the id of the index's document, the best passage as its content, and in
    its metadata the document's own fields and ``hit``: rank, scores, title and offsets.
    `index` is an index or its path. `k` is in place of that of the settings. In
    ``invoke(query, k=3, filter={"year": 2021})``, `k` and `filter` (or `where`) are in place of
    both.
    """

    index: Index
    settings: SearchSettings = SearchSettings()
    where: str | None = None
    reranker: Any = None
    k: int | None = None

    def __init__(self, **fields: Any) -> None:
        if others := fields.keys() - (known := type(self).model_fields).keys():
            raise unexpected_keyword(min(others), known)
        if "index" in fields:
            fields["index"] = opened(fields["index"])
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

    `name` guards the index against another model; it is the class and the model by default.
    """

    def __init__(self, embeddings: Embeddings, name: str = "") -> None:
        self._embeddings = embeddings
        model = getattr(embeddings, "model_name", None) or getattr(embeddings, "model", None)
        self.name = name or ":".join(
            [type(embeddings).__name__, *([model] if isinstance(model, str) else [])]
        )

    def encode(self, texts: list[str]) -> list[list[float]]:
        """(texts, dimensions) numbers, of documents."""
        vectors: list[list[float]] = self._embeddings.embed_documents(texts)
        return vectors

    def encode_query(self, texts: list[str]) -> list[list[float]]:
        """(texts, dimensions) numbers, of queries."""
        return [self._embeddings.embed_query(text) for text in texts]


class EncoderEmbeddings(Embeddings):
    """The encoder of an index as LangChain's embeddings."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return (texts, dimensions) numbers, of documents."""
        vectors: list[list[float]] = self._index.encoder.encode(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        vector: list[float] = self._index.query_encoder.encode(text, query=True).tolist()
        return vector


class IndexVectorStore(VectorStore):
    """An index as a vector store: LangChain documents with their ids, texts and metadata.

    It ranks by cosine, as LangChain's other stores; with ``SearchSettings(mode="hybrid")`` by words
    too. Results are whole documents as they were added; for passages of longer texts there is
    `IndexRetriever`. `where`, or `filter`, is a filter in text form, or the values of
    fields: ``{"year": 2021, "lang": ["en", "de"]}``.
    """

    def __init__(
        self,
        index: Index,
        settings: SearchSettings | None = None,
        embeddings: Embeddings | None = None,
    ) -> None:
        self.index = index
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
        """Add texts to the index in `folder`, which `Index.create` opens with other keywords."""
        if embedding is not None:
            create["encoder"] = EmbeddingsEncoder(embedding)
        made = cls(Index.create(folder, **create), settings, embedding)
        made.add_texts(texts, metadatas, ids=ids)
        return made

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings that were given, or the encoder of the index."""
        return self._embeddings or EncoderEmbeddings(self.index)

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **_: Any,
    ) -> list[str]:
        """Add texts, or replace those with the same ids; returns the ids, random where None."""
        texts = list(texts)
        for name, given in (("metadatas", metadatas), ("ids", ids)):
            if given and len(given) != len(texts):
                raise ValueError(f"{name}: expected {len(texts)}, found {len(given)}")
        names = [id_ or uuid4().hex for id_ in ids or [None] * len(texts)]
        rows = zip(names, texts, metadatas or [{}] * len(texts), strict=True)
        self.index.add([stored.Document(id_, text, None, fields) for id_, text, fields in rows])
        return names

    def delete(self, ids: list[str] | None = None, **keywords: Any) -> bool:
        """Delete documents by id, those that there are, or by `where`; all if nothing is given."""
        if ids is None and not keywords:
            self.index.clear()
        else:
            where = _where(keywords.pop("where", None), keywords, "ids")
            self.index.delete(ids, where=where)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents with these ids, those that there are."""
        return [_document(one) for id_ in ids if (one := self.index.get(id_)) is not None]

    def similarity_search(
        self, query: str, k: int = 4, where: _Filter = None, **keywords: Any
    ) -> list[Document]:
        """The best documents for a query."""
        found = self.similarity_search_with_score(query, k, where, **keywords)
        return [one for one, _ in found]

    def similarity_search_with_score(
        self, query: str, k: int = 4, where: _Filter = None, **keywords: Any
    ) -> list[tuple[Document, float]]:
        """The best documents with the score that they are ranked by; higher is better."""
        hits = self.index.search(query, self.settings, where=_where(where, keywords), k=k)
        return [(one, hit.score) for one, hit in self._found(hits)]

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, where: _Filter = None, **keywords: Any
    ) -> list[Document]:
        """The best documents by cosine with the vector of a query."""
        settings = search_settings(self.settings, {"k": k})
        hits = search_by_vector(self.index, embedding, settings, _where(where, keywords))
        return [one for one, _ in self._found(hits)]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        where: _Filter = None,
        **keywords: Any,
    ) -> list[Document]:
        """Of the `fetch_k` best documents, `k` that are unlike each other."""
        vector = self.index.query_encoder.encode([query], query=True)[0]
        settings = search_settings(self.settings, {"k": fetch_k})
        hits = search_by_vector(self.index, vector, settings, _where(where, keywords), query)
        return self._unlike(vector, hits, k, lambda_mult)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        where: _Filter = None,
        **keywords: Any,
    ) -> list[Document]:
        """As `max_marginal_relevance_search`, for the vector of a query."""
        settings = search_settings(self.settings, {"k": fetch_k})
        hits = search_by_vector(self.index, embedding, settings, _where(where, keywords))
        return self._unlike(np.asarray(embedding, np.float32), hits, k, lambda_mult)

    amax_marginal_relevance_search_by_vector = in_thread(max_marginal_relevance_search_by_vector)

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, where: _Filter = None, **keywords: Any
    ) -> list[tuple[Document, float]]:
        # Cosines mean the same for every query, unlike fused scores.
        if self.settings.mode == "bm25":
            raise ConfigError(
                "relevance: expected a mode that compares vectors, found bm25, whose scores have "
                "no upper limit; leave score_threshold out"
            )
        hits = self.index.search(query, self.settings, where=_where(where, keywords), k=k)
        return [(one, min(1.0, max(0.0, hit.dense or 0.0))) for one, hit in self._found(hits)]

    _asimilarity_search_with_relevance_scores = in_thread(_similarity_search_with_relevance_scores)

    def _found(self, hits: list[Hit]) -> list[tuple[Document, Hit]]:
        found = whole_documents(self.index, hits)
        return [(_document(one), hit) for one, hit in found]

    def _unlike(
        self, vector: NDArray[np.float32], hits: list[Hit], k: int, lambda_mult: float
    ) -> list[Document]:
        if not hits:
            return []
        rows = list(self.index.vectors(hits))
        chosen = maximal_marginal_relevance(vector, rows, lambda_mult, k)
        return [one for one, _ in self._found([hits[row] for row in chosen])]


def _document(one: stored.Document) -> Document:
    return Document(id=one.id, page_content=one.text, metadata=one.metadata)


def _where(where: _Filter, keywords: dict[str, Any], beside: str = "k") -> str | None:
    """The filter, which LangChain calls `filter`; TypeError for another keyword."""
    if others := keywords.keys() - {"filter"}:
        raise unexpected_keyword(min(others), (beside, "where", "filter"))
    given = keywords.get("filter") if where is None else where
    return filter_of_fields(given) or None if isinstance(given, Mapping) else given
