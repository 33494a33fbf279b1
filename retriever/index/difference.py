"""How an index differs from a corpus."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from indexes import View
from retriever.documents import Document
from retriever.indexing.add import content_hash

# Documents whose stored state is looked up together.
_CHUNK = 512


@dataclass(frozen=True, slots=True)
class CorpusDifference:
    """Numbers of documents in an index and in a corpus.

    Attributes:
        corpus: documents of the corpus.
        missing: those that the index lacks.
        changed: those whose title or text is another in the index.
        foreign: documents of the index that the corpus does not have.
    """

    corpus: int
    missing: int
    changed: int
    foreign: int


def corpus_difference(view: View, documents: Iterable[Document]) -> CorpusDifference:
    """Compare an index with a corpus whose ids are distinct, read once, as a stream."""
    corpus = missing = changed = 0
    stream = iter(documents)
    while chunk := list(islice(stream, _CHUNK)):
        stored = view.content_hashes([document.id for document in chunk])
        corpus += len(chunk)
        missing += len(chunk) - len(stored)
        changed += sum(
            stored.get(document.id) not in (None, content_hash(document)) for document in chunk
        )
    foreign = view.count_documents() - (corpus - missing)
    return CorpusDifference(corpus, missing, changed, foreign)
