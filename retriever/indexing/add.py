"""A stream of documents into an index: what changed is encoded, and committed in segments.

Memory holds one window of texts to encode and one segment's vectors, never the corpus.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.segments.maintenance import merge
from indexes.store.documents import NewDocument, metadata_json
from indexes.writer import Writer
from retriever.analyzer import Analyzer
from retriever.corpus import Document
from retriever.corpus.documents import document_fault
from retriever.encoders.encoder import Encoder
from retriever.errors import SourceError
from retriever.indexing.passages import OnLong, PassageSettings, split_passages
from retriever.indexing.report import IndexingReport, Progress

# Documents whose stored state is looked up together.
_CHUNK = 512


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """When a segment is committed: an interruption loses at most this much encoding.

    Attributes:
        passages: commit when so many are encoded.
        seconds: or when so much time has passed since the last commit.
        window_pieces, window_passages: texts are sorted by length within windows of this size.
    """

    passages: int = 65536
    seconds: float = 120.0
    window_pieces: int = 65536
    window_passages: int = 8192


@dataclass(slots=True)
class _Batch:
    """Documents on their way: their passages as word pieces and terms, in order."""

    documents: list[NewDocument] = field(default_factory=list)
    pieces: list[list[int]] = field(default_factory=list)
    tokens: list[list[str]] = field(default_factory=list)

    def add(self, other: _Batch) -> None:
        self.documents += other.documents
        self.pieces += other.pieces
        self.tokens += other.tokens


class Indexer:
    """Feeds documents to a writer; use `add` once, or several times.

    Args:
        writer: open, with the index's settings.
        encoder: gives the encoder; called when the first document needs encoding, never before.
        analyzer: the index's analyser.
        passages: the index's way with long texts.
        on_long: ``error`` refuses long texts; else as `passages` says.
        commit: when to commit.
        progress: told how far encoding is.
        report: counted into; a new one if None.
    """

    def __init__(
        self,
        writer: Writer,
        encoder: Callable[[], Encoder],
        analyzer: Analyzer,
        passages: PassageSettings,
        *,
        on_long: OnLong,
        commit: CommitSettings,
        progress: Progress,
        report: IndexingReport | None = None,
    ) -> None:
        self.report = report or IndexingReport()
        self._writer = writer
        self._encoder = encoder
        self._analyzer = analyzer
        self._passages = passages
        self._on_long = on_long
        self._commit = commit
        self._progress = progress
        self._waiting = _Batch()
        self._waiting_pieces = 0
        self._ready: list[tuple[_Batch, NDArray[np.float32]]] = []
        self._metadata: dict[str, dict[str, Any]] = {}
        self._uncommitted: set[str] = set()
        self._committed_at = time.monotonic()

    def add(self, documents: Iterable[Document]) -> None:
        """Index documents; what has been read is committed even where reading then fails.

        Raises:
            SourceError: what `documents` raises, after the documents before it are committed; or
                a document is longer than the window and `on_long` is ``error``.
            StorageError: the disk is full or cannot be written; earlier commits stand.
        """
        chunk: list[Document] = []
        try:
            for document in self._committing_on_failure(documents, chunk):
                fault = document_fault(document)
                if fault is not None:
                    raise SourceError(f"document {document.id!r}: {fault}")
                if document.id in self._uncommitted:
                    # A second source gives the document again: the later one replaces it.
                    self._consider(chunk)
                    self._flush()
                self._uncommitted.add(document.id)
                chunk.append(document)
                if len(chunk) == _CHUNK:
                    self._consider(chunk)
            self._consider(chunk)
            self._flush()
            merge(self._writer)
        except SourceError:
            self._consider(chunk)
            self._flush()
            raise
        except KeyboardInterrupt:
            # What is encoded is kept; what is not would make the person wait.
            self._write()
            raise

    def _committing_on_failure(
        self, documents: Iterable[Document], chunk: list[Document]
    ) -> Iterator[Document]:
        """The documents; where reading them fails, those in `chunk` and before are committed."""
        try:
            yield from documents
        except Exception:
            self._consider(chunk)
            self._flush()
            raise

    def _consider(self, chunk: list[Document]) -> None:
        """Sort documents into unchanged, changed in metadata alone, and to be encoded.

        Empties `chunk`.
        """
        documents, chunk[:] = list(chunk), []
        heads = self._writer.heads([document.id for document in documents])
        changed: list[tuple[Document, bytes]] = []
        for document in documents:
            head = heads.get(document.id)
            digest = content_hash(document)
            if head is None or head.hash != digest:
                changed.append((document, digest))
                self._count(added=head is None)
            elif head.metadata != metadata_json(document.metadata):
                self._metadata[document.id] = document.metadata
                self._count(added=False)
            else:
                self.report.unchanged += 1
                self._uncommitted.discard(document.id)
        self._writer.touch(list(heads))
        if changed:
            self._prepare(changed)
        if (
            self._waiting_pieces >= self._commit.window_pieces
            or len(self._waiting.pieces) >= self._commit.window_passages
        ):
            self._encode()
        if (
            sum(len(vectors) for _, vectors in self._ready) >= self._commit.passages
            or time.monotonic() - self._committed_at >= self._commit.seconds
        ):
            self._write()
            merge(self._writer)

    def _count(self, *, added: bool) -> None:
        if added:
            self.report.added += 1
        else:
            self.report.updated += 1

    def _prepare(self, changed: Sequence[tuple[Document, bytes]]) -> None:
        """Cut documents into passages, as word pieces for the encoder and terms for BM25."""
        encoder = self._encoder()
        whole = encoder.tokenize([passage_text(document, None) for document, _ in changed])
        for (document, digest), pieces in zip(changed, whole, strict=True):
            spans, rows = [(0, len(document.text))], [pieces]
            if len(pieces) > encoder.spec.max_length:
                spans, rows = self._shorten(document, encoder)
            self._waiting.documents.append(
                NewDocument(
                    document.id, document.title, document.text, document.metadata, digest, spans
                )
            )
            self._waiting.pieces += rows
            self._waiting.tokens += [
                self._analyzer.tokens(passage_text(document, span)) for span in spans
            ]
            self._waiting_pieces += sum(map(len, rows))

    def _shorten(
        self, document: Document, encoder: Encoder
    ) -> tuple[list[tuple[int, int]], list[list[int]]]:
        """The spans and word pieces of a document that is longer than the window."""
        window = encoder.spec.max_length
        if self._on_long == "error":
            raise SourceError(
                f"document {document.id!r}: longer than the encoder's window of {window} word "
                "pieces; use --on-long split or truncate"
            )
        offsets = encoder.piece_offsets(document.text)
        around = len(encoder.tokenize([passage_text(document, (0, 0))])[0])
        # A title that fills the window would leave no room for text: it gets half at most.
        budget = max(window - around, window // 2)
        while True:
            overlap = min(self._passages.overlap, budget // 2)
            spans = split_passages(document.text, offsets, budget, overlap)
            if self._passages.on_long == "truncate":
                spans = spans[:1]
            texts = [passage_text(document, span) for span in spans]
            rows = encoder.tokenize(texts)
            excess = max(map(len, rows)) - window
            # A passage's pieces can differ from the same stretch of the whole text's by a few.
            if excess <= 0 or budget - excess < window // 4:
                break
            budget -= excess
        cut = [i for i, row in enumerate(rows) if len(row) > window]
        for i, row in zip(cut, encoder.truncate([texts[i] for i in cut]), strict=True):
            rows[i] = row
        self.report.split += len(spans) > 1
        self.report.truncated += bool(cut) or self._passages.on_long == "truncate"
        return spans, rows

    def _encode(self) -> None:
        """Encode the waiting passages."""
        batch, self._waiting, self._waiting_pieces = self._waiting, _Batch(), 0
        if not batch.documents:
            return
        self._progress.window(len(batch.pieces))
        vectors = self._encoder().encode_pieces(batch.pieces, self._progress.encoded)
        self.report.passages += len(batch.pieces)
        self.report.pieces += sum(map(len, batch.pieces))
        # One step, so that an interruption leaves no vectors without their documents.
        self._ready.append((batch, vectors))

    def _write(self) -> None:
        """Commit what is encoded, and metadata that changed alone."""
        ready, metadata = self._ready, self._metadata
        if ready or metadata:
            batch = _Batch()
            for part, _ in ready:
                batch.add(part)
            vectors = [part for _, part in ready] or [np.empty((0, 0), np.float32)]
            self._writer.commit(batch.documents, np.concatenate(vectors), batch.tokens, metadata)
        # Only now: where the commit is interrupted, `add` tries it again.
        self._ready, self._metadata = [], {}
        self._uncommitted = {document.id for document in self._waiting.documents}
        self._committed_at = time.monotonic()

    def _flush(self) -> None:
        self._encode()
        self._write()


def passage_text(document: Document, span: tuple[int, int] | None) -> str:
    """What is encoded and analysed for a passage: the title, if any, before its characters."""
    text = document.text if span is None else document.text[span[0] : span[1]]
    return f"{document.title} {text}" if document.title else text


def content_hash(document: Document) -> bytes:
    """16 bytes that change when title or text does."""
    title = document.title or ""
    content = f"{len(title)} {title}{document.text}".encode()
    return hashlib.blake2b(content, digest_size=16).digest()
