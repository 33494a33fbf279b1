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
    from indexes.bm25 import BM25Settings
    from indexes.segment_structure import StructureSettings
    from retriever.analysis import Analyzer, AnalyzerSettings
    from retriever.corpus import CorpusReader, Document, Fields
    from retriever.encoders.choice import ModelChoice
    from retriever.encoders.encoder import Encoder
    from retriever.encoders.settings import EncoderSettings, parse_encoder
    from retriever.encoders.spec import EncoderSpec
    from retriever.engine import Hit, SearchSettings
    from retriever.errors import RetrieverError
    from retriever.fusion import FusionSettings
    from retriever.index import Index
    from retriever.index_export import export_jsonl, export_npy
    from retriever.index_import import ImportReport, import_documents
    from retriever.indexing import CommitSettings
    from retriever.passages import PassageSettings
    from retriever.progress import IndexingReport
    from retriever.recreation import recreated
    from retriever.reindexing import reindexed
    from retriever.reranking import load_reranker

_HOMES = {
    "Analyzer": "retriever.analysis",
    "AnalyzerSettings": "retriever.analysis",
    "BM25Settings": "indexes.bm25",
    "CommitSettings": "retriever.indexing",
    "CorpusReader": "retriever.corpus",
    "Document": "retriever.corpus",
    "Encoder": "retriever.encoders.encoder",
    "EncoderSettings": "retriever.encoders.settings",
    "EncoderSpec": "retriever.encoders.spec",
    "Fields": "retriever.corpus",
    "FusionSettings": "retriever.fusion",
    "Hit": "retriever.engine",
    "ImportReport": "retriever.index_import",
    "Index": "retriever.index",
    "IndexingReport": "retriever.progress",
    "ModelChoice": "retriever.encoders.choice",
    "PassageSettings": "retriever.passages",
    "RetrieverError": "retriever.errors",
    "SearchSettings": "retriever.engine",
    "StructureSettings": "indexes.segment_structure",
    "export_jsonl": "retriever.index_export",
    "export_npy": "retriever.index_export",
    "import_documents": "retriever.index_import",
    "load_reranker": "retriever.reranking",
    "parse_encoder": "retriever.encoders.settings",
    "recreated": "retriever.recreation",
    "reindexed": "retriever.reindexing",
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
