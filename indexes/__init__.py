"""Where an index is kept: vectors, tokens and ids, never models.

`retriever` enters through the names below.

- `protocol.py`: `Store`, `Reader`, `View`, `Ranking`, `Writer`: what every store can do;
  `stores.py`: which store a location names.
- `folder/`: the store that is a folder: a consistent view, and the one writer and its commit point.
- `postgres/`: the store that is a database with pgvector.
- `milvus/`: the store that is a Milvus server, or a file of Milvus Lite.
- `store/`: SQLite: connection, migrations, documents, settings, lock.
- `settings.py`: settings that are declared once.
- `segments/`: segments, merging and its policy.
- `bm25/`: formulas, postings, scoring, the k best.
- `vectors/`: exact search, FAISS structures and their choice, recall.
- `filters/`: grammar, SQL, metadata by value, which passages a filter allows.
- `files/`: arrays on disk, atomic writes, checksums.
"""

from indexes.bm25.formulas import BM25Settings as BM25Settings
from indexes.bm25.formulas import BM25Variant as BM25Variant
from indexes.bm25.formulas import idf as idf
from indexes.bm25.postings import Postings as Postings
from indexes.bm25.scoring import BM25 as BM25
from indexes.bm25.scoring import CorpusStatistics as CorpusStatistics
from indexes.bm25.scoring import SearchableSegment as SearchableSegment
from indexes.bm25.top_k import top_places as top_places
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
from indexes.files.arrays import GrowingArray as GrowingArray
from indexes.files.atomic import fsync_path as fsync_path
from indexes.files.atomic import fsync_tree as fsync_tree
from indexes.files.atomic import remove_abandoned as remove_abandoned
from indexes.files.atomic import whole_file as whole_file
from indexes.files.atomic import whole_files as whole_files
from indexes.files.atomic import whole_folder as whole_folder
from indexes.files.atomic import write_lines as write_lines
from indexes.files.faults import damaged_database as damaged_database
from indexes.files.faults import storage_errors as storage_errors
from indexes.filters.facets import Facet as Facet
from indexes.filters.facets import Facets as Facets
from indexes.filters.facets import FacetValue as FacetValue
from indexes.filters.grammar import Where as Where
from indexes.filters.grammar import compile_where as compile_where
from indexes.filters.grammar import parse_field as parse_field
from indexes.filters.grammar import point_at as point_at
from indexes.filters.mismatch import type_mismatch as type_mismatch
from indexes.filters.summary import FieldSummary as FieldSummary
from indexes.folder.backup import Backup as Backup
from indexes.folder.backup import snapshot_index as snapshot_index
from indexes.folder.reader import FolderReader as FolderReader
from indexes.folder.verify import verify as verify
from indexes.location import open_store as open_store
from indexes.progress import Stage as Stage
from indexes.progress import no_progress as no_progress
from indexes.protocol import Candidates as Candidates
from indexes.protocol import Committer as Committer
from indexes.protocol import Mode as Mode
from indexes.protocol import Passage as Passage
from indexes.protocol import Query as Query
from indexes.protocol import Ranking as Ranking
from indexes.protocol import Reader as Reader
from indexes.protocol import Store as Store
from indexes.protocol import StoredDocument as StoredDocument
from indexes.protocol import View as View
from indexes.protocol import Writer as Writer
from indexes.segments.maintenance import planned_choice as planned_choice
from indexes.settings import GREATEST as GREATEST
from indexes.settings import Setting as Setting
from indexes.settings import alternatives as alternatives
from indexes.settings import check_settings as check_settings
from indexes.settings import declared_settings as declared_settings
from indexes.settings import format_value as format_value
from indexes.settings import setting as setting
from indexes.store.connection import LOCK_FILE as LOCK_FILE
from indexes.store.documents import NewDocument as NewDocument
from indexes.store.documents import StoredHead as StoredHead
from indexes.store.documents import metadata_json as metadata_json
from indexes.store.lock import WriterLock as WriterLock
from indexes.store.replacement import remains as remains
from indexes.vectors.choice import Choice as Choice
from indexes.vectors.choice import StructureSettings as StructureSettings
from indexes.vectors.foreign import FaissVectors as FaissVectors
from indexes.vectors.foreign import is_faiss_file as is_faiss_file
