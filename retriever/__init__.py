"""Local semantic retrieval: encoders, indexing and ranking.

>>> from retriever import Index
>>> with Index.create("my.index") as index:           # doctest: +SKIP
...     index.add(["The cat sat on the mat."])
...     hits = index.search("feline")

Importing it loads neither torch nor FAISS; searching by BM25 needs neither. Each
name is imported when it is asked for; `__version__` is the installed release.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from indexes import BM25Settings as BM25Settings
    from indexes import BM25Variant as BM25Variant
    from indexes import Facet as Facet
    from indexes import Facets as Facets
    from indexes import FacetValue as FacetValue
    from indexes import FieldSummary as FieldSummary
    from indexes import Mode as Mode
    from indexes import Store as Store
    from indexes import StructureSettings as StructureSettings
    from indexes import open_store as open_store
    from indexes import point_at as point_at
    from indexes import remains as remains
    from indexes import snapshot_index as snapshot_index
    from indexes import verify as verify
    from retriever.documents import Document as Document
    from retriever.documents import Fields as Fields
    from retriever.documents.analyzer import Analyzer as Analyzer
    from retriever.documents.analyzer import AnalyzerSettings as AnalyzerSettings
    from retriever.documents.outline import Mark as Mark
    from retriever.documents.outline import Place as Place
    from retriever.documents.passages import PassageSettings as PassageSettings
    from retriever.documents.reader import CorpusReader as CorpusReader
    from retriever.documents.sources import TextForm as TextForm
    from retriever.encoders.encoder import Encoder as Encoder
    from retriever.encoders.meta.fitting import fit_meta as fit_meta
    from retriever.encoders.meta.settings import MetaSettings as MetaSettings
    from retriever.encoders.meta.settings import UnsupSettings as UnsupSettings
    from retriever.encoders.settings import EncoderSettings as EncoderSettings
    from retriever.encoders.settings import parse_encoder as parse_encoder
    from retriever.encoders.spec import EncoderSpec as EncoderSpec
    from retriever.encoders.spec import TextEncoder as TextEncoder
    from retriever.errors import BadInputError as BadInputError
    from retriever.errors import ClosedIndexError as ClosedIndexError
    from retriever.errors import ConfigError as ConfigError
    from retriever.errors import DamagedIndexError as DamagedIndexError
    from retriever.errors import EncoderMismatchError as EncoderMismatchError
    from retriever.errors import FilterError as FilterError
    from retriever.errors import FormatVersionError as FormatVersionError
    from retriever.errors import IndexLockedError as IndexLockedError
    from retriever.errors import MissingExtraError as MissingExtraError
    from retriever.errors import ModelError as ModelError
    from retriever.errors import NotAnIndexError as NotAnIndexError
    from retriever.errors import RetrieverError as RetrieverError
    from retriever.errors import SourceError as SourceError
    from retriever.errors import StorageError as StorageError
    from retriever.index import Index as Index
    from retriever.index.add import CommitSettings as CommitSettings
    from retriever.index.add import IndexingReport as IndexingReport
    from retriever.index.export import export_jsonl as export_jsonl
    from retriever.index.export import export_npy as export_npy
    from retriever.index.imports import import_documents as import_documents
    from retriever.index.ready import ReadyDocument as ReadyDocument
    from retriever.index.recreation import recreated as recreated
    from retriever.index.recreation import reindexed as reindexed
    from retriever.index.refreshing import RefreshReport as RefreshReport
    from retriever.index.sharding import EncodedShards as EncodedShards
    from retriever.index.sharding import encode_shards as encode_shards
    from retriever.index.shards import read_shards as read_shards
    from retriever.rerankers.head import QueryMap as QueryMap
    from retriever.rerankers.head import load_query_map as load_query_map
    from retriever.search import SearchSettings as SearchSettings
    from retriever.search.engine import Hit as Hit
    from retriever.search.engine import Hits as Hits
    from retriever.search.fusion import FusionSettings as FusionSettings
    from retriever.search.queries import Excerpt as Excerpt
    from retriever.search.queries import QueryVectors as QueryVectors
    from retriever.search.reranking import load_reranker as load_reranker

    __version__: str

_NAMES = {
    "indexes": (
        "BM25Settings BM25Variant Facet Facets FacetValue FieldSummary Mode open_store point_at "
        "remains snapshot_index Store StructureSettings verify"
    ),
    "retriever.documents": "Document Fields",
    "retriever.documents.analyzer": "Analyzer AnalyzerSettings",
    "retriever.documents.outline": "Mark Place",
    "retriever.documents.passages": "PassageSettings",
    "retriever.documents.reader": "CorpusReader",
    "retriever.documents.sources": "TextForm",
    "retriever.encoders.encoder": "Encoder",
    "retriever.encoders.meta.fitting": "fit_meta",
    "retriever.encoders.meta.settings": "MetaSettings UnsupSettings",
    "retriever.encoders.settings": "EncoderSettings parse_encoder",
    "retriever.encoders.spec": "EncoderSpec TextEncoder",
    "retriever.errors": (
        "BadInputError ClosedIndexError ConfigError DamagedIndexError EncoderMismatchError "
        "FilterError FormatVersionError IndexLockedError MissingExtraError ModelError "
        "NotAnIndexError RetrieverError SourceError StorageError"
    ),
    "retriever.index": "Index",
    "retriever.index.add": "CommitSettings IndexingReport",
    "retriever.index.export": "export_jsonl export_npy",
    "retriever.index.imports": "import_documents",
    "retriever.index.ready": "ReadyDocument",
    "retriever.index.recreation": "recreated reindexed",
    "retriever.index.refreshing": "RefreshReport",
    "retriever.index.sharding": "encode_shards EncodedShards",
    "retriever.index.shards": "read_shards",
    "retriever.rerankers.head": "load_query_map QueryMap",
    "retriever.search": "SearchSettings",
    "retriever.search.engine": "Hit Hits",
    "retriever.search.fusion": "FusionSettings",
    "retriever.search.queries": "Excerpt QueryVectors",
    "retriever.search.reranking": "load_reranker",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("layer-retriever")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES} - {"annotations"})
