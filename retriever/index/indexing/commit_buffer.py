"""Buffer of documents that wait for a commit, with their spans, terms and vectors."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexes import NewDocument
from retriever.documents.outline import outline_json
from retriever.documents.passages import PassageSettings, label_text
from retriever.index.indexing.passage_texts import passage_texts

if TYPE_CHECKING:
    from indexes import Committer, Stage
    from retriever.documents.analyzer import Analyzer
    from retriever.documents.document import Document
    from retriever.index.indexing.run import CommitSettings, IndexingReport

# The setting that lists how the vectors of an index were computed.
COMPUTED = "computed"


@dataclass(slots=True, eq=False)
class PendingDocument:
    """A document that is not committed yet."""

    document: Document
    hash: bytes
    is_new: bool  # the index holds no document with that id
    # Spans, terms and languages of the passages that have been cut so far, in order.
    spans: list[tuple[int, int]] = field(default_factory=list)
    terms: list[list[str]] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    # Windows of its first passages, in order: the digests of the texts, and their vectors,
    # (passages, dimensions) float32.
    encoded_windows: list[tuple[list[bytes], NDArray[np.float32]]] = field(default_factory=list)
    # Number of these windows that the writer has stored for a run that resumes.
    stored_windows: int = 0
    is_cut: bool = False  # all its passages have spans
    is_truncated: bool = False
    is_superseded: bool = False  # by a later document with the same id

    @property
    def is_complete(self) -> bool:
        """Whether all its passages have vectors."""
        encoded_passages = sum(len(vectors) for _, vectors in self.encoded_windows)
        return self.is_cut and encoded_passages == len(self.spans)

    def add_terms(
        self, spans: Sequence[tuple[int, int]], analyzer: Analyzer, settings: PassageSettings
    ) -> None:
        """Analyze more of its passages."""
        label = label_text(self.document.outline, settings.context)
        texts = passage_texts(self.document, spans, settings, names=False)
        for text, (start, stop) in zip(texts, spans, strict=True):
            context = text[: len(text) - (stop - start)]
            terms, languages = analyzer.analyzed(text, label, context)
            self.terms.append(terms)
            self.languages.append(" ".join(languages))

    def new_document(self) -> NewDocument:
        """Return the form that a writer stores."""
        document = self.document
        return NewDocument(
            document.id,
            document.title,
            document.text,
            document.metadata,
            self.hash,
            self.spans,
            outline_json(document.outline),
            self.languages,
        )


class CommitBuffer:
    """Pending documents by id; decides when a commit is due, and hands complete ones to a writer.

    Attributes:
        committed_passages: number of passages that were committed.
        has_segment: whether some of them became a segment.
    """

    def __init__(
        self, writer: Committer, settings: CommitSettings, report: IndexingReport, stage: Stage
    ) -> None:
        self.committed_passages = 0
        self.has_segment = False
        self._writer = writer
        self._settings = settings
        self._report = report
        self._stage = stage
        self._pending: dict[str, PendingDocument] = {}
        # New metadata of stored documents, by id.
        self._metadata: dict[str, dict[str, Any]] = {}
        # Descriptions of how vectors were computed.
        self._computations: set[str] = set()
        # Counted since the last commit.
        self._characters = 0
        self._encoded_passages = 0
        self._committed_at = time.monotonic()

    def add(self, pending: PendingDocument) -> None:
        """Add a document, whose passages may still be cut and encoded."""
        self._pending[pending.document.id] = pending
        self._characters += len(pending.document.text)

    def replace_metadata(self, id_: str, metadata: dict[str, Any]) -> None:
        """Give a stored document other metadata at the next commit."""
        self._metadata[id_] = metadata

    def discard(self, id_: str) -> None:
        """Drop uncommitted changes to the document with this id; a later one replaces it."""
        self._metadata.pop(id_, None)
        earlier = self._pending.pop(id_, None)
        if earlier is not None:
            earlier.is_superseded = True

    def count_encoded(self, passages: int, computed: Iterable[str] = ()) -> None:
        """Count passages that have vectors, and note how these were computed."""
        self._encoded_passages += passages
        self._computations.update(computed)

    @property
    def room(self) -> int:
        """Number of passages that can still be encoded before a commit is due."""
        return self._settings.passages - self._encoded_passages

    @property
    def holds_many_characters(self) -> bool:
        """Whether the texts alone make a commit due."""
        return self._characters >= self._settings.characters

    @property
    def has_encoded(self) -> bool:
        """Whether passages have got vectors since the last commit."""
        return self._encoded_passages > 0

    def is_due(self) -> bool:
        """Whether enough passages, characters or time have gathered for a commit."""
        return (
            self.room <= 0
            or self.holds_many_characters
            or time.monotonic() - self._committed_at >= self._settings.seconds
        )

    def commit(self) -> None:
        """Commit complete documents; store the vectors of incomplete ones for a later run."""
        self._save_computations()
        wrote_segment = self._commit_complete()
        self._store_partial_vectors()
        self._characters = 0
        self._encoded_passages = 0
        self._committed_at = time.monotonic()
        if wrote_segment:
            self.has_segment = True
            self._writer.merge(self._stage)

    def _save_computations(self) -> None:
        """Store how the vectors were computed."""
        stored_computations = self._writer.setting(COMPUTED, [])
        new_computations = sorted(self._computations.difference(stored_computations))
        if new_computations:
            self._writer.record(COMPUTED, [*stored_computations, *new_computations])

    def _commit_complete(self) -> bool:
        """Commit complete documents and metadata; return whether a segment was written."""
        documents = [pending for pending in self._pending.values() if pending.is_complete]
        wrote_segment = False
        self.committed_passages += sum(len(pending.spans) for pending in documents)
        if documents or self._metadata:
            vectors = [
                window_vectors
                for pending in documents
                for _, window_vectors in pending.encoded_windows
            ]
            wrote_segment = self._writer.commit(
                [pending.new_document() for pending in documents],
                np.concatenate(vectors) if vectors else np.empty((0, 0), np.float32),
                [terms for pending in documents for terms in pending.terms],
                self._metadata,
            )
            _count_committed(self._report, documents, self._metadata)
            if any(pending.stored_windows for pending in documents):
                self._writer.delete_partial_vectors()
        # Removed after the commit, so that the next one retries an interrupted commit.
        for pending in documents:
            del self._pending[pending.document.id]
        self._metadata = {}
        return wrote_segment

    def _store_partial_vectors(self) -> None:
        """Store new vectors of incomplete documents, for a run that resumes."""
        for pending in self._pending.values():
            new_windows = pending.encoded_windows[pending.stored_windows :]
            if new_windows:
                digests = [digest for window, _ in new_windows for digest in window]
                vectors = np.concatenate([vectors for _, vectors in new_windows])
                self._writer.store_partial_vectors(digests, vectors)
                pending.stored_windows = len(pending.encoded_windows)


def _count_committed(
    report: IndexingReport,
    documents: Sequence[PendingDocument],
    metadata: Mapping[str, Mapping[str, Any]],
) -> None:
    """Count committed documents, and stored ones with new metadata."""
    for pending in documents:
        report.added += pending.is_new
        report.updated += not pending.is_new
        report.passages += len(pending.spans)
        report.split += len(pending.spans) > 1
        report.truncated += pending.is_truncated
    report.updated += len(metadata)
