"""Readers that turn files, folders, databases and standard input into a stream of documents.

`CorpusReader` is the public class. The formats (`jsonl`, `delimited`, `parquet`, `lines`, `folder`,
`sqlite`) stand side by side in one shape: an open source in, records out.
"""

from retriever.corpus.documents import Document, Json
from retriever.corpus.fields import AnyDocument, Fields, as_document
from retriever.corpus.reader import CorpusReader

__all__ = ["AnyDocument", "CorpusReader", "Document", "Fields", "Json", "as_document"]
