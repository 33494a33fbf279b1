"""A stream of documents into an index: what changed is encoded, and committed in segments.

Memory holds one window of passages to encode and one segment's documents and vectors; of a long
document the text, the terms, the vectors, and the word pieces of one block.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from indexes import CONTENT_BYTES, Committer, Stage, no_progress
from retriever.documents.analyzer import Analyzer
from retriever.documents.document import Document
from retriever.documents.passages import (
    BLOCK,
    OnLong,
    PassageSettings,
    cut_document,
    passage_text,
)
from retriever.errors import DamagedIndexError, SourceError
from retriever.index.indexing.commit_buffer import CommitBuffer, PendingDocument
from retriever.index.indexing.document_changes import detect_change, document_in, prepare_source
from retriever.index.indexing.embedded_documents import ReadyDocument, unit_vectors
from retriever.index.indexing.encoding_queue import EncodingQueue
from retriever.index.indexing.passage_texts import passage_texts, stored_texts, text_digest
from retriever.index.indexing.run import CommitSettings, IndexingReport, NoProgress, Progress
from retriever.search.fit import PassageSample

if TYPE_CHECKING:
    from indexes import View
    from retriever.encoders.encoder import Encoder
    from retriever.encoders.spec import EncoderSpec

# Documents whose stored state is looked up together, and the characters that end a batch early.
_BATCH = 512
_BATCH_CHARACTERS = 2**20
# Characters above which a changed document may have passages that it had before.
_LONG = 1000


class Indexer:
    """Feeds documents to a writer; calls `encoder` when the first document needs it.

    Attributes:
        report: counts of the run.
        sample: sample of the passages of the run.
    """

    def __init__(
        self,
        writer: Committer,
        encoder: Callable[[], Encoder],
        analyzer: Analyzer,
        passages: PassageSettings,
        *,
        spec: EncoderSpec,
        on_long: OnLong,
        commit: CommitSettings | None = None,
        progress: Progress | None = None,
        stage: Stage = no_progress,
        report: IndexingReport | None = None,
        view: Callable[[], AbstractContextManager[View]] | None = None,
    ) -> None:
        self.report = report or IndexingReport()
        self.sample = PassageSample()
        self._writer = writer
        self._encoder = encoder
        self._analyzer = analyzer
        self._passages = passages
        self._spec = spec
        self._on_long = on_long
        self._stage = stage
        self._view = view
        settings = commit or CommitSettings()
        progress = progress or NoProgress()
        self._queue = EncodingQueue(writer, encoder, settings, progress, self.report)
        self._buffer = CommitBuffer(writer, settings, self.report, stage)
        # By the first bytes of the content hash, ids of stored documents whose text may have
        # another id now.
        self._moved: dict[bytes, str] = {}

    @property
    def added(self) -> int:
        """Number of passages that were committed."""
        return self._buffer.committed_passages

    def add(self, documents: Iterable[Document | ReadyDocument]) -> None:
        """Index documents; commit what has been read even if reading then fails."""
        try:
            for batch in self._read_batches(documents):
                self._stage_batch(batch)
                # Its documents are free while the next ones are read.
                del batch
            self._flush()
            self._writer.delete_partial_vectors()
        except KeyboardInterrupt:
            # Keep what is encoded; encoding the rest would make the user wait.
            self._commit()
            raise
        except SourceError:
            self._flush()
            raise

    def note_moved(self, ids: Sequence[str]) -> None:
        """Reuse the vectors of these stored documents where others have the same text."""
        heads = self._writer.stored_versions(ids)
        self._moved |= {head.hash[:CONTENT_BYTES]: id_ for id_, head in heads.items()}

    def merge(self) -> None:
        """Merge segments after `add`, if it makes queries faster."""
        # A small addition that waits in the database leaves the segments alone.
        if self.added and not self._buffer.has_segment:
            return
        started = time.monotonic()
        merged = self._writer.optimize_after_run(self.added, self._stage)
        if merged:
            self.report.merged_segments += merged
            self.report.merge_seconds += time.monotonic() - started

    def _read_batches(
        self, documents: Iterable[Document | ReadyDocument]
    ) -> Iterator[dict[str, Document | ReadyDocument]]:
        """Yield batches of documents by id, the last of equal ids.

        If reading fails, what was read before is committed first.
        """
        batch: dict[str, Document | ReadyDocument] = {}
        characters = 0
        try:
            for source in documents:
                prepared = prepare_source(source, self._passages, self._spec)
                document = document_in(prepared)
                if document.is_empty:
                    self.report.count_empty(1, [document.id])
                batch[document.id] = prepared
                characters += len(document.text)
                is_full = len(batch) == _BATCH or characters >= _BATCH_CHARACTERS
                if is_full or self._buffer.is_due():
                    full_batch = batch
                    batch = {}
                    characters = 0
                    yield full_batch
                    del full_batch
        except Exception:
            yield batch
            self._flush()
            raise
        yield batch

    def _stage_batch(self, batch: Mapping[str, Document | ReadyDocument]) -> None:
        """Put each document on the way that its change needs."""
        heads = self._writer.stored_versions(list(batch))
        texts: list[PendingDocument] = []
        emptied_ids: list[str] = []
        for id_, source in batch.items():
            self._buffer.discard(id_)
            document = document_in(source)
            change = detect_change(document, heads.get(id_), self._passages)
            pending = PendingDocument(document, change.hash, is_new=change.kind == "new")
            if change.kind == "empty":
                if heads.pop(id_, None) is not None:
                    emptied_ids.append(id_)
            elif change.kind == "unchanged":
                self.report.unchanged += 1
            elif change.kind == "metadata":
                self._buffer.replace_metadata(id_, document.metadata)
            elif isinstance(source, ReadyDocument):
                self._stage_embedded(source, pending)
            else:
                texts.append(pending)
        if emptied_ids:
            deleted = self._writer.delete(emptied_ids)
            self.report.emptied += deleted
            self.report.deleted += deleted
        self._writer.mark_seen(list(heads))
        if texts:
            self._reuse_vectors(texts)
            self._stage_texts(texts)
        self._commit_if_due()

    def _stage_embedded(self, source: ReadyDocument, pending: PendingDocument) -> None:
        """Put a document with its vectors into the buffer."""
        vectors = source.vectors.astype(np.float32, copy=False)
        if self._spec.effective_value("normalize"):
            vectors, scaled = unit_vectors(vectors)
            self.report.scaled += scaled
        for text in passage_texts(source.document, source.spans, self._passages):
            self.sample.take(text_digest(text), text)
        terms = source.terms
        if terms is None or terms.analyzer != self._analyzer.identity:
            pending.add_terms(source.spans, self._analyzer, self._passages)
        else:
            pending.terms = terms.passages
            texts = passage_texts(source.document, source.spans, self._passages, names=False)
            pending.languages = [" ".join(self._analyzer.languages(text)) for text in texts]
        self._buffer.add(pending)
        pending.spans = source.spans
        pending.encoded_windows = [([], vectors)]
        pending.is_cut = True
        self._buffer.count_encoded(len(source.spans), source.computed)

    def _reuse_vectors(self, texts: Sequence[PendingDocument]) -> None:
        """Find the vectors of passages that an earlier version of a document has too."""
        changed = (pending.document for pending in texts if not pending.is_new)
        ids = [document.id for document in changed if len(document.text) > _LONG]
        contents = [pending.hash[:CONTENT_BYTES] for pending in texts]
        ids += [self._moved[content] for content in contents if content in self._moved]
        if not ids or self._view is None:
            return
        # A damaged document is encoded again.
        with suppress(DamagedIndexError), self._view() as view:
            passages: dict[bytes, int] = {}
            for stored in filter(None, map(view.document, ids)):
                stored_passages = stored_texts(stored, self._passages)
                for (passage, _, _), text in zip(stored.passages, stored_passages, strict=True):
                    passages[text_digest(text)] = passage
            if passages:
                vectors = view.vectors(list(passages.values()))
                self._queue.remember_vectors(dict(zip(passages, vectors, strict=True)))

    def _stage_texts(self, texts: Sequence[PendingDocument]) -> None:
        """Cut documents into passages, as word pieces for the encoder and terms for BM25."""
        encoder = self._encoder()
        window = encoder.spec.max_length
        # The word pieces of a text of several blocks are counted only where it may be refused.
        block = math.inf if self._on_long == "error" else BLOCK
        context = self._passages.context
        short = [pending.document for pending in texts if len(pending.document.text) <= block]
        short_texts = [passage_text(document, None, context) for document in short]
        tokenized = iter(encoder.tokenize(short_texts))
        for pending in texts:
            document = pending.document
            self._buffer.add(pending)
            pieces = next(tokenized) if len(document.text) <= block else None
            if pieces is not None and len(pieces) <= window:
                self._queue_passages(pending, [(0, len(document.text))], [pieces])
            else:
                self._cut_long_text(pending, encoder)
            pending.is_cut = True
            self._encode_full_windows()

    def _cut_long_text(self, pending: PendingDocument, encoder: Encoder) -> None:
        """Cut a text longer than the window, block by block; raise SourceError if refused."""
        if self._on_long == "error":
            raise SourceError(
                f"document {pending.document.id!r}: longer than the encoder's window of "
                f"{encoder.spec.max_length} tokens; use --on-long split or truncate"
            )
        for spans, pieces, is_truncated in cut_document(pending.document, encoder, self._passages):
            self._encode_full_windows()
            self._queue_passages(pending, spans, pieces)
            pending.is_truncated = pending.is_truncated or is_truncated

    def _queue_passages(
        self, pending: PendingDocument, spans: Sequence[tuple[int, int]], pieces: Sequence[Any]
    ) -> None:
        pending.spans += spans
        pending.add_terms(spans, self._analyzer, self._passages)
        texts = passage_texts(pending.document, spans, self._passages)
        for text, text_pieces in zip(texts, pieces, strict=True):
            digest = text_digest(text)
            self.sample.take(digest, text)
            self._queue.put(pending, digest, text_pieces)

    def _encode_full_windows(self) -> None:
        while self._queue.has_full_window():
            self._encode_window()
            self._commit_if_full()
            self._commit_if_due()

    def _encode_window(self) -> None:
        encoded = self._queue.encode_window(self._buffer.room)
        self._buffer.count_encoded(encoded, self._queue.computed)

    def _commit_if_full(self) -> None:
        if self._buffer.room <= 0:
            self._commit()

    def _commit_if_due(self) -> None:
        if not self._buffer.is_due():
            return
        # Waiting passages are encoded first only where their texts take the memory, or nothing
        # else is new: encoding delays the commit.
        needs_encoding = self._buffer.holds_many_characters or not self._buffer.has_encoded
        if needs_encoding and not self._queue.has_full_window():
            self._encode_window()
        self._commit()

    def _commit(self) -> None:
        self._queue.forget_vectors()
        self._buffer.commit()

    def _flush(self) -> None:
        """Encode everything that waits, and commit."""
        self._encode_full_windows()
        while self._queue:
            self._encode_window()
            self._commit_if_full()
        self._commit()
