"""Readers that turn files, folders and standard input into a stream of documents.

`CorpusReader` is what others use; the formats (`jsonl`, `delimited`, `parquet`, `lines`,
`folder`) stand beside each other and share one shape: an opened source in, records out.
"""

from retriever.corpus.documents import Document, Fields, Json
from retriever.corpus.given import as_document
from retriever.corpus.reader import CorpusReader

__all__ = ["CorpusReader", "Document", "Fields", "Json", "as_document"]
