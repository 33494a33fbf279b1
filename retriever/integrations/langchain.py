"""An index as a retriever of LangChain."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from retriever.index import Index
from retriever.integrations import metadata_of
from retriever.search import SearchSettings


class IndexRetriever(BaseRetriever):
    """Passages of an index as LangChain documents, the best first.

    A document has the id of the index's document, the best passage as its content, and in
    its metadata the document's own fields and ``hit``: rank, scores, title and offsets.
    """

    index: Index
    settings: SearchSettings = SearchSettings()
    where: str | None = None
    reranker: Any = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return self._documents(query)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        return await asyncio.to_thread(self._documents, query)

    def _documents(self, query: str) -> list[Document]:
        hits = self.index.search(query, self.settings, where=self.where, reranker=self.reranker)
        return [
            Document(id=hit.id, page_content=hit.passage, metadata=metadata_of(hit)) for hit in hits
        ]
