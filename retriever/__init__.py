"""Local semantic retrieval: encoders, indexing and ranking.

>>> from retriever import Document, Index
>>> with Index.create("my.index") as index:           # doctest: +SKIP
...     index.add([Document("1", "The cat sat on the mat.")])
...     hits = index.search("feline")

Names are imported when first used, so that ``import retriever`` is quick and searching by BM25
needs neither torch nor FAISS.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from indexes.backup import snapshot_index
    from indexes.bm25.scoring import BM25Settings
    from indexes.vectors.segment_structure import StructureSettings
    from retriever.analyzer import Analyzer, AnalyzerSettings
    from retriever.corpus import CorpusReader, Document, Fields
    from retriever.encoders.choice import ModelChoice
    from retriever.encoders.encoder import Encoder
    from retriever.encoders.settings import EncoderSettings, parse_encoder
    from retriever.encoders.spec import EncoderSpec
    from retriever.errors import RetrieverError
    from retriever.index import Index
    from retriever.indexing.add import CommitSettings
    from retriever.indexing.export import export_jsonl, export_npy
    from retriever.indexing.imports import ImportReport, import_documents
    from retriever.indexing.passages import PassageSettings
    from retriever.indexing.recreation import recreated
    from retriever.indexing.reindex import reindexed
    from retriever.indexing.report import IndexingReport
    from retriever.search.engine import Hit, SearchSettings
    from retriever.search.fusion import FusionSettings
    from retriever.search.reranking import load_reranker

_HOMES = {
    "Analyzer": "retriever.analyzer",
    "AnalyzerSettings": "retriever.analyzer",
    "BM25Settings": "indexes.bm25.scoring",
    "CommitSettings": "retriever.indexing.add",
    "CorpusReader": "retriever.corpus",
    "Document": "retriever.corpus",
    "Encoder": "retriever.encoders.encoder",
    "EncoderSettings": "retriever.encoders.settings",
    "EncoderSpec": "retriever.encoders.spec",
    "Fields": "retriever.corpus",
    "FusionSettings": "retriever.search.fusion",
    "Hit": "retriever.search.engine",
    "ImportReport": "retriever.indexing.imports",
    "Index": "retriever.index",
    "IndexingReport": "retriever.indexing.report",
    "ModelChoice": "retriever.encoders.choice",
    "PassageSettings": "retriever.indexing.passages",
    "RetrieverError": "retriever.errors",
    "SearchSettings": "retriever.search.engine",
    "StructureSettings": "indexes.vectors.segment_structure",
    "export_jsonl": "retriever.indexing.export",
    "export_npy": "retriever.indexing.export",
    "import_documents": "retriever.indexing.imports",
    "load_reranker": "retriever.search.reranking",
    "parse_encoder": "retriever.encoders.settings",
    "recreated": "retriever.indexing.recreation",
    "reindexed": "retriever.indexing.reindex",
    "snapshot_index": "indexes.backup",
}

__all__ = [
    "Analyzer",
    "AnalyzerSettings",
    "BM25Settings",
    "CommitSettings",
    "CorpusReader",
    "Document",
    "Encoder",
    "EncoderSettings",
    "EncoderSpec",
    "Fields",
    "FusionSettings",
    "Hit",
    "ImportReport",
    "Index",
    "IndexingReport",
    "ModelChoice",
    "PassageSettings",
    "RetrieverError",
    "SearchSettings",
    "StructureSettings",
    "export_jsonl",
    "export_npy",
    "import_documents",
    "load_reranker",
    "parse_encoder",
    "recreated",
    "reindexed",
    "snapshot_index",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
