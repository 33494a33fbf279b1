"""A stream of documents into an index: what changed is encoded, and committed in segments.

One path for documents to be encoded and for documents with ready vectors. Memory holds one window
of texts to encode and one segment's vectors, never the corpus.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes import Committer, NewDocument, Stage, metadata_json, no_progress
from retriever.analyzer import Analyzer
from retriever.corpus import Document
from retriever.corpus.documents import document_fault
from retriever.corpus.identity import content_id
from retriever.encoders.encoder import Encoder
from retriever.encoders.protocol import LoadedEncoder
from retriever.encoders.spec import EncoderSpec
from retriever.errors import SourceError
from retriever.indexing.creation import COMPUTED
from retriever.indexing.passages import OnLong, PassageSettings, split_passages
from retriever.indexing.ready_documents import ReadyDocument, passages_fault, unit_vectors
from retriever.indexing.report import IndexingReport, Progress, count_empty

# Documents whose stored state is looked up together.
_CHUNK = 512


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """How often a long call of `Index.add` commits: an interruption loses at most that much.

    Attributes:
        passages: number of encoded passages after which it commits.
        seconds: time since the last commit after which it commits.
        window_pieces, window_passages: maximum size of a window, in word pieces and passages;
            within it texts are sorted by length, so that batches need little padding.
    """

    passages: int = 65536
    seconds: float = 120.0
    window_pieces: int = 65536
    window_passages: int = 8192


@dataclass(slots=True)
class _Entry:
    """A document on its way to a commit.

    Attributes:
        is_new: whether the index holds no document with that id.
        terms: of each passage.
        pieces: what the encoder reads of each passage; None once its vectors are there.
        digests: of what is encoded of each passage.
        vectors: (passages, dimensions) float32.
        truncated: whether its end was cut off.
        superseded: a later document has the same id.
    """

    document: NewDocument
    is_new: bool
    terms: list[list[str]]
    pieces: list[Any] | None = None
    digests: list[bytes] = field(default_factory=list)
    vectors: NDArray[np.float32] | None = None
    truncated: bool = False
    superseded: bool = False


class Indexer:
    """Feeds documents to a writer.

    Args:
        writer: open, with the index's settings.
        encoder: gives the encoder; called when the first document needs encoding, never before.
        analyzer: the index's analyzer.
        passages: how the index treats long texts.
        spec: of the index's encoder.
        on_long: ``error`` refuses long texts; else as `passages` says.
        commit: when to commit.
        progress: receives the progress of encoding.
        stage: receives the progress of a search structure that a merge builds.
        report: counted into; a new one if None.
    """

    def __init__(
        self,
        writer: Committer,
        encoder: Callable[[], LoadedEncoder],
        analyzer: Analyzer,
        passages: PassageSettings,
        *,
        spec: EncoderSpec,
        on_long: OnLong,
        commit: CommitSettings,
        progress: Progress,
        stage: Stage = no_progress,
        report: IndexingReport | None = None,
    ) -> None:
        self.report = report or IndexingReport()
        self._writer = writer
        self._encoder = encoder
        self._analyzer = analyzer
        self._passages = passages
        self._spec = spec
        self._on_long = on_long
        self._commit = commit
        self._progress = progress
        self._stage = stage
        # Documents that are not committed yet, by id; those of them that are not encoded yet.
        self._uncommitted: dict[str, _Entry] = {}
        self._waiting: list[_Entry] = []
        self._waiting_pieces = self._waiting_passages = self._ready_passages = 0
        # The vectors of the passages encoded since the last commit, by digest of what was encoded.
        self._encoded: dict[bytes, NDArray[np.float32]] = {}
        self._metadata: dict[str, dict[str, Any]] = {}
        self._computed: set[str] = set()
        # Passages committed, and whether any of them became a segment.
        self._added, self._wrote_segment = 0, False
        self._committed_at = time.monotonic()

    def add(self, documents: Iterable[Document | ReadyDocument]) -> None:
        """Index documents; what has been read is committed even if reading then fails.

        Of documents with equal ids the last one stands.

        Raises:
            SourceError: what `documents` raises, after the documents before it are committed; or
                a document is longer than the window and `on_long` is ``error``.
            StorageError: the disk is full or cannot be written; earlier commits stand.
        """
        chunk: dict[str, Document | ReadyDocument] = {}
        stream = iter(documents)
        try:
            while True:
                try:
                    one = next(stream, None)
                except Exception:
                    self._take(chunk)
                    self._flush()
                    raise
                if one is None:
                    break
                document = one.document if isinstance(one, ReadyDocument) else one
                fault = document_fault(document)
                if fault is None and isinstance(one, ReadyDocument):
                    fault = passages_fault(one, self._spec)
                if fault is not None:
                    raise SourceError(f"document {document.id!r}: {fault}")
                if not (document.text.strip() or (document.title or "").strip()):
                    count_empty(self.report, 1, [document.id])
                    continue
                chunk[document.id] = one
                if len(chunk) == _CHUNK:
                    self._take(chunk)
            self._take(chunk)
            self._flush()
        except KeyboardInterrupt:
            # Keep what is encoded; encoding the rest would make the user wait.
            self._write()
            raise
        except SourceError:
            self._take(chunk)
            self._flush()
            raise

    def settle(self) -> None:
        """Merge segments after `add`, if it makes queries faster; see `indexes.protocol.Writer`.

        A small addition that waits in the database leaves the segments alone.

        Raises:
            StorageError: the disk is full or cannot be written; the index is as before.
        """
        if self._added and not self._wrote_segment:
            return
        started = time.monotonic()
        merged = self._writer.settle(self._added, self._stage)
        if merged:
            self.report.merged_segments += merged
            self.report.merge_seconds += time.monotonic() - started

    def _take(self, chunk: dict[str, Document | ReadyDocument]) -> None:
        """Sort documents into unchanged ones, those with new metadata only, and those to encode.

        Empties `chunk`.
        """
        taken = dict(chunk)
        chunk.clear()
        heads = self._writer.heads(list(taken))
        texts: list[tuple[Document, bytes, bool]] = []
        for id_, one in taken.items():
            document = one.document if isinstance(one, ReadyDocument) else one
            self._supersede(id_)
            head, digest = heads.get(id_), content_hash(document)
            if head is not None and head.hash == digest:
                if head.metadata == metadata_json(document.metadata):
                    self.report.unchanged += 1
                else:
                    self._metadata[id_] = document.metadata
            elif isinstance(one, ReadyDocument):
                self._take_ready(one, digest, is_new=head is None)
            else:
                texts.append((document, digest, head is None))
        self._writer.touch(list(heads))
        self._count_doubled(taken.keys() - heads.keys(), taken)
        if texts:
            self._prepare(texts)
        if (
            self._waiting_pieces >= self._commit.window_pieces
            or self._waiting_passages >= self._commit.window_passages
        ):
            self._encode()
        if (
            self._ready_passages >= self._commit.passages
            or time.monotonic() - self._committed_at >= self._commit.seconds
        ):
            self._write()

    def _count_doubled(
        self, new: Iterable[str], taken: dict[str, Document | ReadyDocument]
    ) -> None:
        """Count those of the new ids whose document the index holds under a generated one too."""
        generated: set[str] = set()
        for id_ in new:
            one = taken[id_]
            document = one.document if isinstance(one, ReadyDocument) else one
            # The title may be what an earlier release, or another --title-field, did not see.
            generated |= {content_id(title, document.text) for title in (document.title, None)}
        if others := generated - taken.keys():
            self.report.doubled += len(self._writer.heads(list(others)))

    def _supersede(self, id_: str) -> None:
        """Drop what an earlier document with this id would have committed."""
        self._metadata.pop(id_, None)
        earlier = self._uncommitted.pop(id_, None)
        if earlier is not None:
            earlier.superseded = True
            if earlier.vectors is not None:
                self._ready_passages -= len(earlier.document.spans)

    def _take_ready(self, one: ReadyDocument, digest: bytes, *, is_new: bool) -> None:
        vectors = one.vectors.astype(np.float32, copy=False)
        if self._spec.meaning("normalize"):
            vectors, scaled = unit_vectors(vectors)
            self.report.scaled += scaled
        terms = one.terms
        if terms is None or terms.analyzer != self._analyzer.identity:
            analyzed = self._terms(one.document, one.spans)
        else:
            analyzed = terms.passages
        self._uncommitted[one.document.id] = _Entry(
            _new_document(one.document, digest, one.spans),
            is_new,
            analyzed,
            vectors=vectors,
        )
        self._ready_passages += len(one.spans)
        self._computed.update(one.computed)

    def _prepare(self, texts: Sequence[tuple[Document, bytes, bool]]) -> None:
        """Cut documents into passages, as word pieces for the encoder and terms for BM25."""
        encoder = self._encoder()
        whole = encoder.tokenize([passage_text(document, None) for document, *_ in texts])
        for (document, digest, is_new), pieces in zip(texts, whole, strict=True):
            spans, rows, truncated = [(0, len(document.text))], [pieces], False
            if len(pieces) > encoder.spec.max_length:
                spans, rows, truncated = self._shorten(document, encoder)
            entry = _Entry(
                _new_document(document, digest, spans),
                is_new,
                self._terms(document, spans),
                pieces=rows,
                digests=[_digest(passage_text(document, span)) for span in spans],
                truncated=truncated,
            )
            self._uncommitted[document.id] = entry
            self._waiting.append(entry)
            self._waiting_passages += len(rows)
            self._waiting_pieces += sum(map(len, rows))

    def _terms(self, document: Document, spans: Sequence[tuple[int, int]]) -> list[list[str]]:
        return [self._analyzer.tokens(passage_text(document, span)) for span in spans]

    def _shorten(
        self, document: Document, encoder: LoadedEncoder
    ) -> tuple[list[tuple[int, int]], list[Any], bool]:
        """Spans and word pieces of a document longer than the window; whether its end was cut."""
        window = encoder.spec.max_length
        if self._on_long == "error":
            raise SourceError(
                f"document {document.id!r}: longer than the encoder's window of {window} word "
                "pieces; use --on-long split or truncate"
            )
        offsets = encoder.piece_offsets(document.text)
        around = len(encoder.tokenize([passage_text(document, (0, 0))])[0])
        # A title that fills the window would leave no room for text: it gets at most half.
        budget = max(window - around, window // 2)
        while True:
            overlap = min(self._passages.overlap, budget // 2)
            spans = split_passages(document.text, offsets, budget, overlap)
            if self._passages.on_long == "truncate":
                spans = spans[:1]
            texts = [passage_text(document, span) for span in spans]
            rows = encoder.tokenize(texts)
            excess = max(map(len, rows)) - window
            # The pieces of a passage can differ slightly from those of its span in the whole text.
            if excess <= 0 or budget - excess < window // 4:
                break
            budget -= excess
        cut = [i for i, row in enumerate(rows) if len(row) > window]
        for i, row in zip(cut, encoder.truncate([texts[i] for i in cut]), strict=True):
            rows[i] = row
        return spans, rows, bool(cut) or self._passages.on_long == "truncate"

    def _encode(self) -> None:
        """Encode the waiting passages, equal ones once; their pieces are not needed any more."""
        waiting = [entry for entry in self._waiting if not entry.superseded]
        self._waiting, self._waiting_pieces, self._waiting_passages = [], 0, 0
        digests = [digest for entry in waiting for digest in entry.digests]
        if not digests:
            return
        rows = {
            digest: row
            for entry in waiting
            for digest, row in zip(entry.digests, entry.pieces or (), strict=True)
            if digest not in self._encoded
        }
        if rows:
            self._progress.window(len(rows))
            encoder = self._encoder()
            vectors = encoder.encode_pieces(list(rows.values()), self._progress.encoded)
            if isinstance(encoder, Encoder):
                self._computed |= encoder.computed
            self.report.pieces += sum(map(len, rows.values()))
            self._encoded.update(zip(rows, vectors, strict=True))
        if len(rows) < len(digests):
            self.report.repeated += len(digests) - len(rows)
            vectors = np.stack([self._encoded[digest] for digest in digests])
        start = 0
        for entry in waiting:
            stop = start + len(entry.document.spans)
            entry.vectors, entry.pieces = vectors[start:stop], None
            start = stop
        self._ready_passages += len(digests)

    def _write(self) -> None:
        """Commit what is encoded, and changes of metadata."""
        ready = [entry for entry in self._uncommitted.values() if entry.vectors is not None]
        wrote_segment = False
        self._added += sum(len(entry.document.spans) for entry in ready)
        if ready or self._metadata:
            vectors = [entry.vectors for entry in ready if entry.vectors is not None]
            wrote_segment = self._writer.commit(
                [entry.document for entry in ready],
                np.concatenate(vectors) if vectors else np.empty((0, 0), np.float32),
                [terms for entry in ready for terms in entry.terms],
                self._metadata,
            )
            self._count(ready)
            self._record()
        # Only now: if the commit is interrupted, `add` tries it again.
        self._uncommitted = {
            id_: entry for id_, entry in self._uncommitted.items() if entry.vectors is None
        }
        self._metadata, self._encoded, self._ready_passages = {}, {}, 0
        self._committed_at = time.monotonic()
        if wrote_segment:
            self._wrote_segment = True
            self._writer.merge(self._stage)

    def _record(self) -> None:
        """Keep how the vectors were computed, for `info`."""
        known = self._writer.setting(COMPUTED, [])
        new = sorted(self._computed.difference(known))
        if new:
            self._writer.record(COMPUTED, [*known, *new])

    def _count(self, committed: Sequence[_Entry]) -> None:
        report = self.report
        for entry in committed:
            report.added += entry.is_new
            report.updated += not entry.is_new
            report.passages += len(entry.document.spans)
            report.split += len(entry.document.spans) > 1
            report.truncated += entry.truncated
        report.updated += len(self._metadata)

    def _flush(self) -> None:
        self._encode()
        self._write()


def passage_text(document: Document, span: tuple[int, int] | None) -> str:
    """What is encoded and analyzed for a passage: the title, if any, before its characters."""
    text = document.text if span is None else document.text[span[0] : span[1]]
    return f"{document.title} {text}" if document.title else text


def content_hash(document: Document) -> bytes:
    """16 bytes that change when title or text does."""
    title = document.title or ""
    return _digest(f"{len(title)} {title}{document.text}")


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _new_document(document: Document, digest: bytes, spans: list[tuple[int, int]]) -> NewDocument:
    return NewDocument(document.id, document.title, document.text, document.metadata, digest, spans)
