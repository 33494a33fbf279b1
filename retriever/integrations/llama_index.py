"""An index as a retriever of LlamaIndex."""

from __future__ import annotations

import asyncio

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from retriever.index import Index
from retriever.integrations import HIT, metadata_of
from retriever.search import SearchSettings
from retriever.search.reranking import Reranker


class IndexRetriever(BaseRetriever):
    """Passages of an index as LlamaIndex nodes, the best first.

    A node has the id of the index's document, the best passage as its text with its offsets, and
    in its metadata the document's own fields and ``hit``: rank, scores, title and offsets. The text
    for language models and embeddings leaves ``hit`` out.
    """

    def __init__(
        self,
        index: Index,
        settings: SearchSettings | None = None,
        *,
        where: str | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        super().__init__()
        self._index = index
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

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)
