"""The names of `retriever.index`; `__init__.py` imports each on first use."""

from retriever.index.index import Index as Index
from retriever.index.indexing.run import IndexingReport as IndexingReport
from retriever.index.indexing.run import NoProgress as NoProgress
from retriever.index.recreation import recreated as recreated
from retriever.index.refreshing import RefreshReport as RefreshReport
from retriever.index.reindexing import reindexed as reindexed
from retriever.index.sources.memory import SourceMemory as SourceMemory
from retriever.index.sources.remembered import remembered_files as remembered_files
from retriever.index.transfer.export import check_output as check_output
from retriever.index.transfer.export import encode_to_file as encode_to_file
from retriever.index.transfer.export import export_jsonl as export_jsonl
from retriever.index.transfer.export import export_npy as export_npy
from retriever.index.transfer.export import ids_file_of as ids_file_of
from retriever.index.transfer.imports import import_documents as import_documents
from retriever.index.watching import watched as watched
