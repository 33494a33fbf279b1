"""A stream of documents into an index: what changed is encoded, and committed in segments.

Memory holds one window of passages to encode and one segment's documents and vectors; of a long
document the text, the terms, the vectors, and the word pieces of one block.
"""

from __future__ import annotations

import hashlib
import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from indexes import (
    CONTENT_BYTES,
    LANGUAGES,
    Committer,
    NewDocument,
    Stage,
    metadata_json,
    no_progress,
)
from retriever.documents.analyzer import Analyzer
from retriever.documents.document import Document, document_fault, document_of
from retriever.documents.outline import outline_json
from retriever.documents.passages import (
    BLOCK,
    OnLong,
    PassageSettings,
    cut_document,
    label_text,
    passage_text,
)
from retriever.encoders.computing import describe_unbounded, find_unbounded
from retriever.errors import DamagedIndexError, RetrieverError, SourceError
from retriever.index.embedded_documents import ReadyDocument, require_sound, unit_vectors
from retriever.index.fit import Fit, PassageSample, is_due, measured_fit
from retriever.search.settings import DEFAULT_WEIGHT, FIT

if TYPE_CHECKING:
    from indexes import StoredDocument, View
    from retriever.encoders.encoder import Encoder
    from retriever.encoders.spec import EncoderSpec
    from retriever.index.opened import OpenedIndex

# The setting that lists how the vectors of an index were computed.
COMPUTED = "computed"
# Documents whose stored state is looked up together, and characters in all from which on they are
# fewer.
_CHUNK = 512
_CHUNK_CHARACTERS = 2**20
# A window is smaller where its encoding would take longer; what the first one's share is, before
# the speed is known.
_WINDOW_SECONDS = 20.0
_FIRST_WINDOW = 1 / 16
# Characters from which on a changed document may have passages that it had before.
_LONG = 1000
# Empty documents whose ids a report keeps.
_EMPTY_NAMED = 10


@dataclass(slots=True)
class IndexingReport:
    """What indexing did. Documents are counted when they are committed.

    Attributes:
        added, updated, unchanged: documents; an update of metadata alone needs no encoding.
        deleted: documents removed because they are not in the new corpus, or are empty in it.
        empty: documents skipped because they hold neither text nor title.
        emptied: how many of these the index held, with an earlier text; they are deleted.
        empty_ids: ids of the first ten of these, or their places in a file.
        passages: passages that were encoded, or stored with a ready vector.
        repeated: how many of them have the vector of an equal passage of the same commit, or of an
            earlier version of the document or its file.
        pieces: word pieces encoded.
        split: documents that became more than one passage.
        truncated: documents whose end was cut off, because `on_long` says so or because their
            title alone fills half the window.
        scaled: ready vectors that were brought to length 1, as those of the encoder are.
        merged_segments: segments merged at the end so that queries are fast; 1 if a single one got
            a search structure.
        merge_seconds: how long that took.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    empty: int = 0
    emptied: int = 0
    empty_ids: list[str] = field(default_factory=list)
    passages: int = 0
    repeated: int = 0
    pieces: int = 0
    split: int = 0
    truncated: int = 0
    scaled: int = 0
    merged_segments: int = 0
    merge_seconds: float = field(default=0.0, compare=False)

    def count_empty(self, number: int, names: Sequence[str]) -> None:
        """Count empty documents, of which at least the first ten have names."""
        self.empty += number
        self.empty_ids += names[: _EMPTY_NAMED - len(self.empty_ids)]

    @property
    def empty_note(self) -> str:
        """A sentence that counts and names the empty documents."""
        documents, were = (
            ("document holds", "was") if self.empty == 1 else ("documents hold", "were")
        )
        more = ", …" if self.empty > len(self.empty_ids) else ""
        return (
            f"{self.empty:,} {documents} neither text nor title and {were} skipped: "
            f"{', '.join(map(repr, self.empty_ids))}{more}"
            + (f"; deleted from the index: {self.emptied:,}" if self.emptied else "")
        )


class Progress(Protocol):
    """Receives the progress of encoding."""

    def window(self, passages: int, waiting: int) -> None:
        """Begin a window of `passages` passages; `waiting` more are read and come after it."""
        return

    def encoded(self, passages: int, pieces: int) -> None:
        """So many passages and word pieces of it were encoded since the last call."""
        return


class ShardProgress(Progress, Protocol):
    """Receives the progress of `encode_shards`, by all processes."""

    def finished(self, reached: int) -> None:
        """A shard is made, or was there; `reached` bytes of the source were read up to its end."""
        return


class NoProgress(ShardProgress):
    """Reports nothing."""


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """How often a long call of `Index.add` commits: an interruption loses at most that much.

    Attributes:
        passages: number of encoded passages after which it commits.
        characters: number of characters of documents read after which it commits.
        seconds: time since the last commit after which it commits.
        window_pieces, window_passages: maximum size of a window, in word pieces and passages;
            within it texts are sorted by length, so that batches need little padding. Where an
            encoder is slow, a window is what takes it 20 seconds.
    """

    passages: int = 65536
    characters: int = 2**24
    seconds: float = 120.0
    window_pieces: int = 65536
    window_passages: int = 8192


@dataclass(slots=True, eq=False)
class _Entry:
    """A document on its way to a commit."""

    document: Document
    hash: bytes
    # The index holds no document with that id.
    is_new: bool
    # Of each passage that is cut so far.
    spans: list[tuple[int, int]] = field(default_factory=list)
    terms: list[list[str]] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    # Vectors of its first passages, a window after the other: the digests of what was encoded, and
    # (passages, dimensions) float32.
    encoded: list[tuple[list[bytes], NDArray[np.float32]]] = field(default_factory=list)
    # How many of these windows the writer keeps until the document is complete.
    kept: int = 0
    # All its passages are cut.
    is_whole: bool = False
    truncated: bool = False
    # A later document has the same id.
    superseded: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether all its passages have vectors."""
        return self.is_whole and sum(len(part) for _, part in self.encoded) == len(self.spans)

    def new_document(self) -> NewDocument:
        """What the writer stores of it."""
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


class _Passage(NamedTuple):
    entry: _Entry
    # Of the text that is encoded, and what the encoder reads of it.
    digest: bytes
    pieces: Any


class Indexer:
    """Feeds documents to a writer; `encoder` is called when the first document needs it."""

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
        self._view = view
        # By the first bytes of the content hash, ids of stored documents whose text may have
        # another id now.
        self._moved: dict[bytes, str] = {}
        self._writer = writer
        self._encoder = encoder
        self._analyzer = analyzer
        self._passages = passages
        self._spec = spec
        self._on_long = on_long
        self._commit = commit = commit or CommitSettings()
        self._progress = progress or NoProgress()
        self._stage = stage
        # Documents that are not committed yet, by id; the passages of them that are to be encoded.
        self._uncommitted: dict[str, _Entry] = {}
        self._waiting: deque[_Passage] = deque()
        self._window_pieces = max(1, int(commit.window_pieces * _FIRST_WINDOW))
        # Since the last commit: what was read, what was encoded, the vectors by digest.
        self._characters = self._waiting_pieces = self._encoded_passages = 0
        self._encoded: dict[bytes, NDArray[np.float32]] = {}
        self._metadata: dict[str, dict[str, Any]] = {}
        self._computed: set[str] = set()
        # Of the passages of this run, and how many of them were committed.
        self.sample = PassageSample()
        self.added = 0
        # Whether any of them became a segment.
        self._wrote_segment = False
        self._committed_at = time.monotonic()

    def add(self, documents: Iterable[Document | ReadyDocument]) -> None:
        """Index documents; what has been read is committed even if reading then fails."""
        chunk: dict[str, Document | ReadyDocument] = {}
        characters = 0
        stream = iter(documents)
        try:
            while True:
                try:
                    item = next(stream, None)
                except Exception:
                    self._take(chunk)
                    self._flush()
                    raise
                if item is None:
                    break
                item = item if self._passages.labels else _without_labels(item)
                document = self._checked(item)
                if document.is_empty:
                    self.report.count_empty(1, [document.id])
                chunk[document.id] = item
                characters += len(document.text)
                if len(chunk) == _CHUNK or characters >= _CHUNK_CHARACTERS or self._is_due():
                    self._take(chunk)
                    characters = 0
            self._take(chunk)
            self._flush()
            self._writer.forget()
        except KeyboardInterrupt:
            # Keep what is encoded; encoding the rest would make the user wait.
            self._write()
            raise
        except SourceError:
            self._take(chunk)
            self._flush()
            raise

    def _checked(self, item: Document | ReadyDocument) -> Document:
        """Return the document of an item; raise SourceError if it cannot be stored."""
        document = item.document if isinstance(item, ReadyDocument) else item
        fault = document_fault(document)
        if fault is not None:
            raise SourceError(f"document {document.id!r}: {fault}")
        if isinstance(item, ReadyDocument):
            require_sound(item, self._spec, f"document {document.id!r}")
        return document

    def note_moved(self, ids: Sequence[str]) -> None:
        """Take vectors over from these stored documents, where others have the same text."""
        heads = self._writer.heads(ids)
        self._moved |= {head.hash[:CONTENT_BYTES]: id_ for id_, head in heads.items()}

    def settle(self) -> None:
        """Merge segments after `add`, if it makes queries faster."""
        # A small addition that waits in the database leaves the segments alone.
        if self.added and not self._wrote_segment:
            return
        started = time.monotonic()
        merged = self._writer.settle(self.added, self._stage)
        if merged:
            self.report.merged_segments += merged
            self.report.merge_seconds += time.monotonic() - started

    def _take(self, chunk: dict[str, Document | ReadyDocument]) -> None:
        """Sort the documents of `chunk`, which it empties, by what is to be done with them."""
        taken = dict(chunk)
        chunk.clear()
        heads = self._writer.heads(list(taken))
        texts: list[_Entry] = []
        emptied: list[str] = []
        for id_, one in taken.items():
            document = one.document if isinstance(one, ReadyDocument) else one
            # What an earlier document with this id would have committed is dropped.
            self._metadata.pop(id_, None)
            if (earlier := self._uncommitted.pop(id_, None)) is not None:
                earlier.superseded = True
            head = heads.get(id_)
            digest = content_hash(document, self._passages)
            entry = _Entry(document, digest, is_new=head is None)
            if document.is_empty:
                emptied += [id_] if heads.pop(id_, None) else []
            elif head is not None and head.hash == digest:
                if head.metadata == metadata_json(document.metadata):
                    self.report.unchanged += 1
                else:
                    self._metadata[id_] = document.metadata
            elif isinstance(one, ReadyDocument):
                self._take_ready(one, entry)
            else:
                texts.append(entry)
        if emptied:
            deleted = self._writer.delete(emptied)
            self.report.emptied += deleted
            self.report.deleted += deleted
        self._writer.touch(list(heads))
        if texts:
            self._take_vectors(texts)
            self._prepare(texts)
        self._write_if_due()

    def _take_vectors(self, texts: Sequence[_Entry]) -> None:
        """Find the vectors of passages that an earlier version of a document has too."""
        changed = (one.document for one in texts if not one.is_new)
        ids = [document.id for document in changed if len(document.text) > _LONG]
        contents = [entry.hash[:CONTENT_BYTES] for entry in texts]
        ids += [self._moved[content] for content in contents if content in self._moved]
        if not ids or self._view is None:
            return
        # A damaged one is encoded again.
        with suppress(DamagedIndexError), self._view() as view:
            passages: dict[bytes, int] = {}
            for stored in filter(None, map(view.document, ids)):
                texts_of = stored_texts(stored, self._passages)
                for (passage, _, _), text in zip(stored.passages, texts_of, strict=True):
                    passages[_digest(text)] = passage
            if passages:
                vectors = view.vectors(list(passages.values()))
                self._encoded.update(zip(passages, vectors, strict=True))

    def _enter(self, entry: _Entry) -> None:
        self._uncommitted[entry.document.id] = entry
        self._characters += len(entry.document.text)

    def _take_ready(self, one: ReadyDocument, entry: _Entry) -> None:
        vectors = one.vectors.astype(np.float32, copy=False)
        if self._spec.meaning("normalize"):
            vectors, scaled = unit_vectors(vectors)
            self.report.scaled += scaled
        for text in self._texts(one.document, one.spans):
            self.sample.take(_digest(text), text)
        terms = one.terms
        if terms is None or terms.analyzer != self._analyzer.identity:
            self._analyze(entry, one.spans)
        else:
            entry.terms = terms.passages
            texts = self._texts(one.document, one.spans, names=False)
            entry.languages = [" ".join(self._analyzer.languages(text)) for text in texts]
        self._enter(entry)
        entry.spans = one.spans
        entry.encoded = [([], vectors)]
        entry.is_whole = True
        self._encoded_passages += len(one.spans)
        self._computed.update(one.computed)

    def _prepare(self, texts: Sequence[_Entry]) -> None:
        """Cut documents into passages, as word pieces for the encoder and terms for BM25."""
        encoder = self._encoder()
        window = encoder.spec.max_length
        # How many pieces a text of several blocks has in all matters only where it is refused.
        block = math.inf if self._on_long == "error" else BLOCK
        context = self._passages.context
        short = [one.document for one in texts if len(one.document.text) <= block]
        tokenized = iter(encoder.tokenize([passage_text(one, None, context) for one in short]))
        for entry in texts:
            document = entry.document
            self._enter(entry)
            pieces = next(tokenized) if len(document.text) <= block else None
            if pieces is not None and len(pieces) <= window:
                self._append(entry, [(0, len(document.text))], [pieces])
            else:
                if self._on_long == "error":
                    raise SourceError(
                        f"document {document.id!r}: longer than the encoder's window of {window} "
                        "word pieces; use --on-long split or truncate"
                    )
                for spans, rows, truncated in cut_document(document, encoder, self._passages):
                    self._encode_full_windows()
                    self._append(entry, spans, rows)
                    entry.truncated = entry.truncated or truncated
            entry.is_whole = True
            self._encode_full_windows()

    def _append(
        self, entry: _Entry, spans: Sequence[tuple[int, int]], pieces: Sequence[Any]
    ) -> None:
        entry.spans += spans
        self._analyze(entry, spans)
        texts = self._texts(entry.document, spans)
        for text, row in zip(texts, pieces, strict=True):
            digest = _digest(text)
            self.sample.take(digest, text)
            self._waiting.append(_Passage(entry, digest, row))
            self._waiting_pieces += len(row)

    def _texts(
        self, document: Document, spans: Iterable[tuple[int, int]], *, names: bool = True
    ) -> list[str]:
        context = self._passages.context
        tables = self._passages.tables
        return [passage_text(document, span, context, tables=tables, names=names) for span in spans]

    def _analyze(self, entry: _Entry, spans: Sequence[tuple[int, int]]) -> None:
        label = label_text(entry.document.outline, self._passages.context)
        texts = self._texts(entry.document, spans, names=False)
        for text, (start, stop) in zip(texts, spans, strict=True):
            context = text[: len(text) - (stop - start)]
            terms, languages = self._analyzer.analyzed(text, label, context)
            entry.terms.append(terms)
            entry.languages.append(" ".join(languages))

    def _is_due(self) -> bool:
        return (
            self._encoded_passages >= self._commit.passages
            or self._characters >= self._commit.characters
            or time.monotonic() - self._committed_at >= self._commit.seconds
        )

    def _write_if_due(self) -> None:
        if self._is_due():
            # What waits is encoded first only where it takes the memory, or nothing else is new:
            # it would delay the commit.
            much = self._characters >= self._commit.characters
            if (much or not self._encoded_passages) and not self._fills_window():
                self._encode()
            self._write()

    def _fills_window(self) -> bool:
        return (
            self._waiting_pieces >= self._window_pieces
            or len(self._waiting) >= self._commit.window_passages
        )

    def _encode_full_windows(self) -> None:
        while self._fills_window():
            self._encode_and_write()
            self._write_if_due()

    def _encode_and_write(self) -> None:
        self._encode()
        if self._encoded_passages >= self._commit.passages:
            self._write()

    def _encode(self) -> None:
        """Encode a window of the passages that wait, equal ones once."""
        room = self._commit.passages - self._encoded_passages
        most = max(1, min(self._commit.window_passages, room))
        window: list[_Passage] = []
        pieces = 0
        while self._waiting and len(window) < most and pieces < self._window_pieces:
            passage = self._waiting.popleft()
            self._waiting_pieces -= len(passage.pieces)
            if not passage.entry.superseded:
                pieces += len(passage.pieces)
                window.append(passage)
        if not window:
            return
        rows = {
            passage.digest: passage.pieces
            for passage in window
            if passage.digest not in self._encoded
        }
        kept = self._writer.kept(list(rows))
        for digest, vector in kept.items():
            self._encoded[digest] = vector
            del rows[digest]
        self.report.repeated += len(window) - len(rows) - len(kept)
        vectors = self._vectors(rows)
        if len(rows) < len(window):
            vectors = np.stack([self._encoded[passage.digest] for passage in window])
        row = find_unbounded(vectors)
        if row is not None:
            raise SourceError(
                f"document {window[row].entry.document.id!r}: {describe_unbounded(vectors[row])}"
            )
        start = 0
        for entry, passages in groupby(window, attrgetter("entry")):
            digests = [passage.digest for passage in passages]
            entry.encoded.append((digests, vectors[start : start + len(digests)]))
            start += len(digests)
        self._encoded_passages += len(window)

    def _vectors(self, rows: Mapping[bytes, Any]) -> NDArray[np.float32]:
        """Encode word pieces by digest, and remember the vectors until the next commit."""
        if not rows:
            return np.empty((0, 0), np.float32)
        self._progress.window(len(rows), len(self._waiting))
        encoder = self._encoder()
        started = time.monotonic()
        vectors = encoder.encode_pieces(list(rows.values()), self._progress.encoded)
        # Encoders that a program passes do not say.
        self._computed.update(getattr(encoder, "computed", ()))
        pieces = sum(map(len, rows.values()))
        # A window must not outlast the time between two commits, however slow the encoder is.
        affordable = int(pieces * _WINDOW_SECONDS / max(time.monotonic() - started, 1e-6))
        self._window_pieces = max(1, min(self._commit.window_pieces, affordable))
        self.report.pieces += pieces
        self._encoded.update(zip(rows, vectors, strict=True))
        return vectors

    def _write(self) -> None:
        """Commit what is complete; of other documents the writer keeps the vectors."""
        self._record()
        wrote_segment = self._commit_ready()
        for entry in self._uncommitted.values():
            if new := entry.encoded[entry.kept :]:
                digests = [digest for part, _ in new for digest in part]
                self._writer.keep(digests, np.concatenate([part for _, part in new]))
                entry.kept = len(entry.encoded)
        self._characters = self._encoded_passages = 0
        self._committed_at = time.monotonic()
        if wrote_segment:
            self._wrote_segment = True
            self._writer.merge(self._stage)

    def _commit_ready(self) -> bool:
        ready = [entry for entry in self._uncommitted.values() if entry.is_ready]
        wrote_segment = False
        self.added += sum(len(entry.spans) for entry in ready)
        if ready or self._metadata:
            vectors = [part for entry in ready for _, part in entry.encoded]
            wrote_segment = self._writer.commit(
                [entry.new_document() for entry in ready],
                np.concatenate(vectors) if vectors else np.empty((0, 0), np.float32),
                [terms for entry in ready for terms in entry.terms],
                self._metadata,
            )
            report = self.report
            for entry in ready:
                report.added += entry.is_new
                report.updated += not entry.is_new
                report.passages += len(entry.spans)
                report.split += len(entry.spans) > 1
                report.truncated += entry.truncated
            report.updated += len(self._metadata)
            if any(entry.kept for entry in ready):
                self._writer.forget()
        # Only now: if the commit is interrupted, `add` tries it again.
        for entry in ready:
            del self._uncommitted[entry.document.id]
        self._metadata = {}
        self._encoded = {}
        return wrote_segment

    def _record(self) -> None:
        """Keep how the vectors were computed."""
        known = self._writer.setting(COMPUTED, [])
        new = sorted(self._computed.difference(known))
        if new:
            self._writer.record(COMPUTED, [*known, *new])

    def _flush(self) -> None:
        self._encode_full_windows()
        while self._waiting:
            self._encode_and_write()
        self._write()


def measure_fit(
    index: OpenedIndex, writer: Committer, sample: PassageSample | None = None, added: int = 0
) -> None:
    """Measure how encoder and texts fit where that is due, and warn of what users should know.

    Args:
        index: whose passages are looked at.
        writer: stores the result.
        sample: of the passages that a run added, and their number, if there was a run.
        added: see `sample`.
    """
    before = writer.setting(FIT, {})
    languages = writer.setting(LANGUAGES, {})
    with index.view() as view:
        passages = view.passage_count
        if added < passages and not is_due(before, passages, languages):
            return
        state = index.settings_of(view)
        try:
            encoder = index.encoder(state)
        except RetrieverError:
            # Ready vectors may come without the encoder that made them.
            return
        if sample is None or added < passages:
            sample = _sample_of(view, state.passages)
    fit = measured_fit(sample.texts, encoder, state.analyzer, passages)
    # An encoder that encodes no other texts says nothing.
    fit = replace(fit or Fit(0.0, 0, passages=passages), languages=languages)
    writer.record(FIT, asdict(fit))
    weight = before.get("weight", DEFAULT_WEIGHT)
    other = before.get("strange_weight")
    if fit.warning:
        warnings.warn(fit.warning, stacklevel=3)
    elif before and (fit.weight, fit.strange_weight) != (weight, other):
        warnings.warn(
            f"the texts have changed: unless you say --alpha, embeddings count {fit.weight:g} in "
            f"hybrid search now, and counted {weight:g} before",
            stacklevel=3,
        )


def _sample_of(view: View, settings: PassageSettings) -> PassageSample:
    """A sample of all passages."""
    sample = PassageSample()
    for text in chain.from_iterable(
        stored_texts(document, settings) for document in view.documents()
    ):
        sample.take(_digest(text), text)
    return sample


def stored_texts(
    stored: StoredDocument, settings: PassageSettings, *, names: bool = True
) -> list[str]:
    """The text of each passage of a stored document as it was encoded; as analyzed if not `names`.

    See `passage_text`.
    """
    document = document_of(stored)
    return [
        passage_text(document, (start, stop), settings.context, tables=settings.tables, names=names)
        for _, start, stop in stored.passages
    ]


def content_hash(document: Document, settings: PassageSettings) -> bytes:
    """16 bytes that change when title or text does, or an outline that passages follow.

    Where there are labels that are read, they change the last four alone.
    """
    title = document.title or ""
    outline = tuple(mark for mark in document.outline if mark.kind != "label")
    places = outline_json(outline) if settings.structure else ""
    digest = _digest(f"{len(title)} {title}{document.text}{places and chr(0) + places}")
    labels = [mark.label for mark in document.outline if mark.kind == "label"]
    if not (labels and settings.labels):
        return digest
    return digest[:CONTENT_BYTES] + _digest("\n".join(labels))[CONTENT_BYTES:]


def _without_labels(item: Document | ReadyDocument) -> Document | ReadyDocument:
    """A document as an index of an earlier release reads it."""
    document = item.document if isinstance(item, ReadyDocument) else item
    outline = tuple(mark for mark in document.outline if mark.kind != "label")
    if outline != document.outline:
        document = replace(document, outline=outline)
    if isinstance(item, ReadyDocument):
        # Its terms may have those of labels.
        return replace(item, document=document, terms=None)
    return document


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
