"""An index as a component of Haystack."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict

from indexes import BM25Settings
from retriever.index import Index
from retriever.integrations import metadata_of
from retriever.search import SearchSettings, search_settings
from retriever.search.fusion import FusionSettings


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
        self.index = index if isinstance(index, Index) else Index.open(index)
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

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, top_k: int | None = None, where: str | None = None
    ) -> dict[str, list[Document]]:
        """As `run`, in a thread."""
        return await asyncio.to_thread(self.run, query, top_k, where)
