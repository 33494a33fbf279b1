"""The names of `indexes`; `__init__.py` imports each on first use."""

from indexes.folder.connection import SOURCES_FILE as SOURCES_FILE
from indexes.folder.lock import remains as remains
from indexes.folder.lock import remove_index as remove_index
from indexes.folder.lock import writer_lock as writer_lock
from indexes.folder.store import Backup as Backup
from indexes.folder.store import snapshot_index as snapshot_index
from indexes.folder.verify import verify as verify
from indexes.location import open_store as open_store
from indexes.metadata import metadata_json as metadata_json
from indexes.protocol import CONTENT_BYTES as CONTENT_BYTES
from indexes.protocol import LANGUAGES as LANGUAGES
from indexes.protocol import Candidates as Candidates
from indexes.protocol import Committer as Committer
from indexes.protocol import Mode as Mode
from indexes.protocol import NewDocument as NewDocument
from indexes.protocol import Passage as Passage
from indexes.protocol import Query as Query
from indexes.protocol import Stage as Stage
from indexes.protocol import Store as Store
from indexes.protocol import StoredDocument as StoredDocument
from indexes.protocol import StoredVersion as StoredVersion
from indexes.protocol import StructureSettings as StructureSettings
from indexes.protocol import View as View
from indexes.protocol import Writer as Writer
from indexes.protocol import no_progress as no_progress
