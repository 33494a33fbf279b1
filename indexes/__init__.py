"""Where an index is kept: vectors, tokens and ids, never models; see docs/architecture.md.

`retriever` enters through the names below. All but the errors are imported when they
are asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from indexes.errors import BadInputError as BadInputError
from indexes.errors import ClosedIndexError as ClosedIndexError
from indexes.errors import ConfigError as ConfigError
from indexes.errors import DamagedIndexError as DamagedIndexError
from indexes.errors import EncoderMismatchError as EncoderMismatchError
from indexes.errors import FilterError as FilterError
from indexes.errors import FormatVersionError as FormatVersionError
from indexes.errors import IndexLockedError as IndexLockedError
from indexes.errors import MissingExtraError as MissingExtraError
from indexes.errors import ModelError as ModelError
from indexes.errors import NotAnIndexError as NotAnIndexError
from indexes.errors import RetrieverError as RetrieverError
from indexes.errors import SourceError as SourceError
from indexes.errors import StorageError as StorageError

if TYPE_CHECKING:
    from indexes.bm25.formulas import BM25Settings as BM25Settings
    from indexes.bm25.formulas import BM25Variant as BM25Variant
    from indexes.bm25.formulas import idf as idf
    from indexes.bm25.postings import Postings as Postings
    from indexes.bm25.scoring import BM25 as BM25
    from indexes.bm25.scoring import SearchableSegment as SearchableSegment
    from indexes.files import GrowingArray as GrowingArray
    from indexes.files import remove_abandoned as remove_abandoned
    from indexes.files import storage_errors as storage_errors
    from indexes.files import whole_file as whole_file
    from indexes.files import whole_files as whole_files
    from indexes.files import whole_folder as whole_folder
    from indexes.files import write_lines as write_lines
    from indexes.filters.grammar import Where as Where
    from indexes.filters.grammar import compile_where as compile_where
    from indexes.filters.grammar import parse_field as parse_field
    from indexes.filters.grammar import point_at as point_at
    from indexes.filters.grammar import type_mismatch as type_mismatch
    from indexes.filters.grammar import written_field as written_field
    from indexes.filters.grammar import written_value as written_value
    from indexes.folder.connection import LOCK_FILE as LOCK_FILE
    from indexes.folder.connection import SOURCES_FILE as SOURCES_FILE
    from indexes.folder.documents import metadata_json as metadata_json
    from indexes.folder.lock import remains as remains
    from indexes.folder.lock import writer_lock as writer_lock
    from indexes.folder.store import Backup as Backup
    from indexes.folder.store import snapshot_index as snapshot_index
    from indexes.folder.verify import verify as verify
    from indexes.location import open_store as open_store
    from indexes.protocol import Candidates as Candidates
    from indexes.protocol import Committer as Committer
    from indexes.protocol import Facet as Facet
    from indexes.protocol import Facets as Facets
    from indexes.protocol import FacetValue as FacetValue
    from indexes.protocol import FieldSummary as FieldSummary
    from indexes.protocol import Mode as Mode
    from indexes.protocol import NewDocument as NewDocument
    from indexes.protocol import Passage as Passage
    from indexes.protocol import Query as Query
    from indexes.protocol import Stage as Stage
    from indexes.protocol import Store as Store
    from indexes.protocol import StoredDocument as StoredDocument
    from indexes.protocol import StoredHead as StoredHead
    from indexes.protocol import StructureSettings as StructureSettings
    from indexes.protocol import View as View
    from indexes.protocol import Writer as Writer
    from indexes.protocol import no_progress as no_progress
    from indexes.settings import GREATEST as GREATEST
    from indexes.settings import Setting as Setting
    from indexes.settings import alternatives as alternatives
    from indexes.settings import check_settings as check_settings
    from indexes.settings import declared_settings as declared_settings
    from indexes.settings import format_value as format_value
    from indexes.settings import setting as setting
    from indexes.vectors.choice import Choice as Choice
    from indexes.vectors.library import FaissVectors as FaissVectors
    from indexes.vectors.library import is_faiss_file as is_faiss_file

_NAMES = {
    "bm25.formulas": "BM25Settings BM25Variant idf",
    "bm25.postings": "Postings",
    "bm25.scoring": "BM25 SearchableSegment",
    "files": (
        "GrowingArray remove_abandoned storage_errors whole_file whole_files whole_folder "
        "write_lines"
    ),
    "filters.grammar": (
        "Where compile_where parse_field point_at type_mismatch written_field written_value"
    ),
    "folder.connection": "LOCK_FILE SOURCES_FILE",
    "folder.documents": "metadata_json",
    "folder.lock": "writer_lock remains",
    "folder.store": "Backup snapshot_index",
    "folder.verify": "verify",
    "location": "open_store",
    "protocol": (
        "Candidates Committer Facet Facets FacetValue FieldSummary Mode NewDocument Passage Query "
        "Stage Store StoredDocument StoredHead StructureSettings View Writer no_progress"
    ),
    "settings": (
        "GREATEST Setting alternatives check_settings declared_settings format_value setting"
    ),
    "vectors.choice": "Choice",
    "vectors.library": "FaissVectors is_faiss_file",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
