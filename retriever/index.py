"""The public face of an index folder: create, add, update, delete, search, describe, verify."""

from __future__ import annotations

import difflib
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike

from indexes import (
    BM25,
    Backup,
    Choice,
    Reader,
    Stage,
    StructureSettings,
    View,
    Where,
    Writer,
    compact,
    compile_where,
    idf,
    is_index,
    merge,
    no_progress,
    rebuild,
    recover_replacement,
    refuse_remains,
    require_vacant,
    snapshot_index,
    verify,
)
from retriever.analyzer import Analyzer
from retriever.corpus import Document, as_document
from retriever.corpus.documents import metadata_fault, string_fault
from retriever.description import describe
from retriever.encoders.choice import ModelChoice
from retriever.encoders.encoder import Encoder
from retriever.encoders.protocol import AdoptedEncoder, LoadedEncoder, TextEncoder, adopt
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.errors import BadInputError, ConfigError, EncoderMismatchError, FilterError
from retriever.indexing.add import CommitSettings, Indexer, ReadyDocument
from retriever.indexing.creation import (
    IndexKeywords,
    IndexSettings,
    IndexState,
    index_path,
    initial_settings,
    read_structures,
    require_same,
)
from retriever.indexing.difference import CorpusDifference, corpus_difference
from retriever.indexing.passages import OnLong, PassageSettings, check_on_long
from retriever.indexing.report import IndexingReport, NoProgress, Progress
from retriever.search.engine import Engine, Hit, Query, ScoredPassages
from retriever.search.reranking import Reranker, rerank
from retriever.search.settings import SearchKeywords, SearchSettings, search_settings

if TYPE_CHECKING:
    from retriever.indexing.export import Exported

_QUERY_BATCH = 256

# A document in any of the forms that `Index.add` takes.
AnyDocument = str | Mapping[str, Any] | Document


class Index:
    """An index folder: documents, their vectors and their BM25 postings.

    >>> index = Index.create("my.index")                              # doctest: +SKIP
    >>> index.add(["a text", {"id": "42", "text": "…", "year": 2020}])  # doctest: +SKIP
    >>> index.search("a question", k=5, where="year >= 2000")         # doctest: +SKIP

    Make one with `Index.create` or `Index.open`; use it as a context manager or call `close`.
    One object serves many threads: searches run side by side, changes one after another. Reading
    methods see every commit made before the call, by any process, and follow an index that was
    rebuilt under the same name. Changing methods hold the writer lock while they run. A child
    process that is forked can use the object as well.

    Attributes:
        folder: the index folder.
    """

    def __init__(
        self, folder: Path, asked: ModelChoice, encoder: LoadedEncoder | None, lock_timeout: float
    ) -> None:
        self.folder = folder
        self._asked = asked
        self._given = encoder
        self._encoder: LoadedEncoder | None = None
        self._lock_timeout = lock_timeout
        self._loading = threading.RLock()
        self._writing = threading.Lock()
        self._reader = Reader(folder)
        self._known: IndexState | None = None
        try:
            with self._reader.view() as view:
                self._state_of(view)
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(
        cls,
        folder: str | Path,
        model: str | EncoderSettings = "",
        *,
        encoder: LoadedEncoder | TextEncoder | None = None,
        device: str | None = None,
        download: bool = False,
        lock_timeout: float = 0.0,
    ) -> Self:
        """Open an existing index; no model is loaded before one is needed.

        Args:
            folder: the index folder.
            model: the encoder that the index is expected to have, in its text form (see
                `retriever.encoders.settings`); empty for any.
            encoder: loaded, to be shared by several indexes; see `create`.
            device: a torch device for the model; None takes a GPU where there is one.
            download: allow the network for a hub id that is not in the cache.
            lock_timeout: seconds that changing methods wait for another writer.

        Raises:
            NotAnIndexError, FormatVersionError, DamagedIndexError
            EncoderMismatchError: `model` or `encoder` is another encoder than the index's own.
            ConfigError: `model` is no text form.
        """
        asked = ModelChoice(str(model), device, download)
        adopted = None if encoder is None else adopt(encoder)
        return cls(index_path(folder), asked, adopted, lock_timeout)

    @classmethod
    def create(
        cls,
        folder: str | Path,
        model: str | EncoderSettings = "",
        *,
        encoder: LoadedEncoder | TextEncoder | None = None,
        device: str | None = None,
        download: bool = False,
        lock_timeout: float = 0.0,
        **settings: Unpack[IndexKeywords],
    ) -> Self:
        """Open the index in `folder`, which is created first where there is none yet.

        Args:
            folder: does not exist, is empty, or is an index.
            model: the encoder in its text form, such as ``all-MiniLM-L6-v2::lc:0,6``; empty for
                the default, or the index's own.
            encoder: an `Encoder`, or anything with ``encode(texts) -> (n, d)``, such as a
                `SentenceTransformer`; in place of `model`. Its name and vectors of fixed texts
                guard the index against another one.
            device: a torch device for the model; None takes a GPU where there is one.
            download: allow the network for a hub id that is not in the cache.
            lock_timeout: seconds that changing methods wait for another writer.
            settings: `analyzer`, `passages` and `structures`, as a whole or field by field:
                ``language="german"``, ``on_long="truncate"``, ``index_type="ivf"``.

        Raises:
            What `open` and `Encoder.load` raise; NotAnIndexError: the folder holds other files;
            StorageError: it cannot be written; ConfigError: the index exists and was made with
            another analyzer, treatment of long texts or search structure.
        """
        wanted, asked = IndexSettings.of(settings), ModelChoice(str(model), device, download)
        if encoder is not None and asked.encoder:
            raise TypeError("model and encoder are both given: give one of them")
        folder, loaded = index_path(folder), None if encoder is None else adopt(encoder)
        recover_replacement(folder)
        if not is_index(folder):
            require_vacant(folder)
            refuse_remains(folder)
            loaded = loaded or asked.load()
            with Writer(folder, initial_settings(loaded, wanted), lock_timeout=lock_timeout):
                pass
        index = cls(folder, asked, loaded, lock_timeout)
        try:
            with index._reader.view() as view:
                require_same(wanted, index._state_of(view), read_structures(view, folder), folder)
        except ConfigError:
            index.close()
            raise
        return index

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release files; later calls raise `ClosedIndexError`."""
        self._reader.close()

    def __repr__(self) -> str:
        with self._reader.view() as view:
            return (
                f"<Index {str(self.folder)!r}: {view.count_documents():,} documents, "
                f"{view.statistics.passages:,} passages in {len(view.segments)} segments, encoder "
                f"{self._state_of(view).encoder}>"
            )

    @property
    def encoder_spec(self) -> EncoderSpec:
        """The specification of the encoder that the index was made with."""
        return self._state().encoder

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer that serves documents and queries."""
        return self._state().analyzer

    @property
    def passages(self) -> PassageSettings:
        """How long texts are treated."""
        return self._state().passages

    @property
    def structures(self) -> StructureSettings:
        """How large segments are searched."""
        with self._reader.view() as view:
            return read_structures(view, self.folder)

    @property
    def encoder(self) -> LoadedEncoder:
        """The index's encoder, loaded when first asked for.

        Raises:
            What `Encoder.from_spec` raises.
        """
        return self._loaded(self._state())

    def __len__(self) -> int:
        """The number of documents."""
        with self._reader.view() as view:
            return view.count_documents()

    def __contains__(self, id_: object) -> bool:
        """Whether the index holds a document of that id."""
        with self._reader.view() as view:
            return isinstance(id_, str) and view.has_document(id_)

    def __getitem__(self, id_: str) -> Document:
        """The document of that id.

        Raises:
            KeyError: there is none.
            DamagedIndexError: the document is not as it was written.
        """
        with self._reader.view() as view:
            stored = view.document(id_)
        if stored is None:
            raise KeyError(id_)
        return Document(stored.id, stored.text, stored.title, stored.metadata)

    def __iter__(self) -> Iterator[Document]:
        """Every document of one commit, as a stream in ascending order of ids (by code point)."""
        with self._reader.view() as view:
            for stored in view.documents():
                yield Document(stored.id, stored.text, stored.title, stored.metadata)

    def add(
        self,
        documents: Iterable[AnyDocument | ReadyDocument],
        vectors: ArrayLike | Iterable[ArrayLike] | None = None,
        *,
        made_by: EncoderSpec | None = None,
        on_long: OnLong | None = None,
        commit: CommitSettings | None = None,
        progress: Progress | None = None,
        stage: Stage = no_progress,
        report: IndexingReport | None = None,
        prune: bool = False,
    ) -> IndexingReport:
        """Add documents, or replace those whose id the index holds; unchanged ones cost nothing.

        Args:
            documents: read once, as a stream: a `Document`; a mapping, as a line of JSON has it;
                or a text, whose id is made from its content. Of equal ids the last one stands.
                A document without text and title is counted and skipped.
            vectors: (documents, dimensions), a vector for each document as a whole; None encodes.
            made_by: the encoder that made the vectors; None trusts that it is the index's own.
            on_long: None takes the index's own treatment of long texts.
            commit: how often to commit.
            progress: told how far encoding is.
            stage: told how far a search structure is that a merge builds.
            report: counted into, for a caller that wants to see it after an interruption.
            prune: delete every document that is not among `documents`.

        Raises:
            TypeError: `documents` is a single text or document.
            What `documents` raises (what came before is committed); SourceError for a document
            that cannot be stored, or a long text with ``on_long="error"``; ConfigError: vectors
            that do not fit, or `prune` without a single document; EncoderMismatchError: `made_by`
            is another encoder; IndexLockedError; StorageError (earlier commits stand).
        """
        if isinstance(documents, str | bytes | Mapping | Document | ReadyDocument):
            raise TypeError(
                f"documents: expected several documents, found one {type(documents).__name__}; "
                "put it into a list"
            )
        with self._writer() as writer:
            state = self._state()
            if made_by is not None and made_by.fingerprint != state.encoder.fingerprint:
                raise EncoderMismatchError(
                    f"{self.folder}: the index has the encoder {state.encoder}, but the vectors "
                    f"are of {made_by}; add them to another index"
                )
            indexer = Indexer(
                writer,
                lambda: self._loaded(state),
                state.analyzer,
                state.passages,
                normalized=bool(state.encoder.meaning("normalize")),
                on_long=check_on_long(on_long, state.passages),
                commit=commit or CommitSettings(),
                progress=progress or NoProgress(),
                stage=stage,
                report=report,
            )
            indexer.add(_ready(documents, vectors, state.encoder))
            if prune:
                if not writer.count_touched() and (held := len(self)):
                    raise ConfigError(
                        f"{self.folder}: no document was read, so that pruning would delete all "
                        f"{held:,}; check the source, or delete them with `clear`"
                    )
                indexer.report.deleted = writer.delete_untouched()
                merge(writer, stage)
            if indexer.report.empty:
                warnings.warn(indexer.report.empty_note, stacklevel=2)
            return indexer.report

    def update(self, id_: str, *, metadata: Mapping[str, Any]) -> None:
        """Give a document other metadata; nothing is encoded.

        Args:
            id_: of the document.
            metadata: replaces what the document has, as a whole.

        Raises:
            KeyError: the index holds no such document.
            BadInputError: the metadata cannot be stored.
            IndexLockedError, StorageError
        """
        fault = metadata_fault(metadata)
        if fault is not None:
            raise BadInputError(f"document {id_!r}: {fault}")
        with self._writer() as writer:
            if not writer.heads([id_]):
                raise KeyError(id_)
            writer.commit([], np.empty((0, 0), np.float32), [], {id_: metadata})

    def delete(self, ids: Iterable[str]) -> int:
        """Delete documents by id; returns how many of them there were.

        Raises:
            TypeError: `ids` is a single string.
        """
        if isinstance(ids, str):
            raise TypeError(f"ids: expected several ids, found the string {ids!r}; use [{ids!r}]")
        with self._writer() as writer:
            deleted = writer.delete(ids)
            merge(writer)
            return deleted

    def delete_where(self, where: str) -> int:
        """Delete the documents that match a filter; returns how many.

        Raises:
            FilterError: the filter does not parse, or names a field that no document has.
        """
        compiled = compile_where(where)
        with self._writer() as writer:
            with self._reader.view() as view:
                problem = _unknown_fields(view, compiled)
            if problem:
                raise FilterError(f"filter: {problem}; nothing was deleted")
            deleted = writer.delete_where(compiled)
            merge(writer)
            return deleted

    def clear(self) -> int:
        """Delete every document; returns how many there were."""
        with self._writer() as writer:
            deleted = writer.delete_untouched()
            merge(writer)
            return deleted

    def compact(self, *, stage: Stage = no_progress) -> int:
        """Merge all segments into one without what was deleted, and give the space back.

        Searches run meanwhile, and their answers stay the same.

        Args:
            stage: told how far the search structure is.

        Returns:
            How many segments were merged, 0 where there was nothing to do.

        Raises:
            IndexLockedError; StorageError: the disk is full, the index is as before;
            DamagedIndexError: a file of a segment is not as it was written.
        """
        with self._writer() as writer:
            return compact(writer, stage)

    def plan(self, structures: StructureSettings) -> Choice:
        """What `rebuild` would build of all live passages, why, and the memory it would take.

        Raises:
            ConfigError: FAISS does not know the structure.
        """
        with self._reader.view() as view:
            dimensions = self._state_of(view).encoder.dimensions
            return structures.choice(view.statistics.passages, dimensions)

    def rebuild(self, structures: StructureSettings, *, stage: Stage = no_progress) -> int:
        """Give all segments another search structure, and merge them; nothing is encoded.

        Args:
            structures: which; later merges build it, too.
            stage: told how far it is.

        Returns:
            How many segments were read.

        Raises:
            ConfigError: FAISS does not know the structure, or cannot build it of these vectors.
            MissingExtraError: FAISS is not installed.
            What `compact` raises.
        """
        with self._writer() as writer:
            return rebuild(writer, structures, stage)

    def reindex(
        self,
        model: str | EncoderSettings = "",
        *,
        encoder: LoadedEncoder | TextEncoder | None = None,
        progress: Progress | None = None,
        **settings: Unpack[IndexKeywords],
    ) -> IndexingReport | None:
        """Encode the stored documents again with other settings; the index serves meanwhile.

        See `retriever.reindexed`, which this calls.

        Returns:
            What was done, or None where the index has these settings already.
        """
        from retriever.indexing.reindex import reindexed

        with self._writing:
            report = reindexed(
                self.folder,
                model,
                encoder=encoder,
                device=self._asked.device,
                download=self._asked.download,
                progress=progress,
                **settings,
            )
            if report is not None:
                self._asked = replace(self._asked, encoder="")
                self._given = None if encoder is None else adopt(encoder)
            return report

    def export(self, output: str | Path, *, vectors: bool = False) -> Exported:
        """Write the documents as JSON Lines, or the vectors as a NumPy array (``.npy``).

        Args:
            output: a file that ends in .jsonl or .npy.
            vectors: write the vectors of the passages into the JSON Lines, too.

        Raises:
            What `retriever.export_jsonl` and `retriever.export_npy` raise.
        """
        from retriever.indexing.export import export_jsonl, export_npy

        output = Path(output)
        if output.suffix == ".npy":
            return export_npy(self.folder, output)
        return export_jsonl(self.folder, output, vectors=vectors)

    def snapshot(self, target: str | Path) -> Backup:
        """Copy the index, as one of its commits left it, into a new folder, and verify the copy.

        Raises:
            What `retriever.snapshot_index` raises.
        """
        return snapshot_index(self.folder, target)

    def search(
        self,
        text: str,
        settings: SearchSettings | None = None,
        *,
        where: str | None = None,
        reranker: Reranker | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> list[Hit]:
        """The best documents for one query; see `search_many`."""
        if not isinstance(text, str):
            raise TypeError(
                f"text: expected one query, found {type(text).__name__}; search_many takes several"
            )
        found = self.search_many([text], settings, where=where, reranker=reranker, **keywords)
        return next(found)

    def search_many(
        self,
        texts: Iterable[str],
        settings: SearchSettings | None = None,
        *,
        where: str | None = None,
        reranker: Reranker | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> Iterator[list[Hit]]:
        """The best documents for each query, in the order of the queries.

        Args:
            texts: queries; encoded in batches.
            settings: how to rank.
            where: rank only the documents that match this filter, see docs/ranking.md.
            reranker: ranks the best `settings.depth` hits again, and the best of those are given
                (see `retriever.load_reranker`).
            keywords: single fields of `settings`: ``k=5, mode="dense", alpha=0.7, k1=0.9``.

        Raises:
            TypeError: `texts` is a single string.
            BadInputError: a query is blank, or no Unicode text.
            EncoderMismatchError: the reranker was trained on the vectors of another encoder.
            FilterError: the filter does not parse.
            DamagedIndexError: a file of the index is missing or altered.
            What `encoder` raises, in the modes that need it.
        """
        if isinstance(texts, str):
            raise TypeError(
                f"texts: expected several queries, found the string {texts!r:.60}; use search, or "
                "put it into a list"
            )
        wanted = search_settings(settings, keywords)
        return self._search_all(
            texts, wanted, None if where is None else compile_where(where), reranker
        )

    def candidates(
        self, texts: Sequence[str], settings: SearchSettings | None = None
    ) -> list[ScoredPassages]:
        """What the mode ``hybrid`` fuses for each query, to try several fusions with one search.

        Args:
            texts: queries, none of them blank; encoded together.
            settings: mode and fusion make no difference.

        Raises:
            What `search_many` raises.
        """
        settings = replace(settings or SearchSettings(), mode="hybrid")
        while True:
            state = self._state()
            vectors = self._loaded(state).encode(texts, query=True)
            queries = [
                Query(state.analyzer.tokens(text), vector)
                for text, vector in zip(texts, vectors, strict=True)
            ]
            with self._reader.view() as view:
                # An index that replaced this one meanwhile may have another encoder and analyzer.
                if view.identity == state.identity:
                    return Engine(view, settings).candidates(queries)

    def difference(self, documents: Iterable[Document]) -> CorpusDifference:
        """How the index differs from a corpus, in numbers of documents; nothing is changed.

        Args:
            documents: with distinct ids; read once, as a stream.
        """
        with self._reader.view() as view:
            return corpus_difference(view, documents)

    def term_weights(self, text: str) -> dict[str, float]:
        """How much BM25 weighs the terms of a text, by the passages that are live now.

        Returns:
            Lucene's idf of each term that a passage holds, ln(1 + (N - df + 0.5) / (df + 0.5)),
            in the order of the text: above 0, and the higher the fewer of the N passages hold it.
        """
        with self._reader.view() as view:
            bm25 = BM25(view.segments, statistics=view.statistics)
            held = bm25.document_frequencies(self._state_of(view).analyzer.tokens(text))
            passages = view.statistics.passages
            return {term: idf("lucene", df, passages) for term, df in held.items() if df}

    def info(self) -> dict[str, Any]:
        """What the index is and holds, as JSON values."""
        with self._reader.view() as view:
            structures = read_structures(view, self.folder)
            return describe(self.folder, view, self._state_of(view), structures)

    def verify(self) -> list[str]:
        """Check every file, count and id; returns what is wrong, a line each."""
        return verify(self.folder)

    def _search_all(
        self,
        texts: Iterable[str],
        settings: SearchSettings,
        where: Where | None,
        reranker: Reranker | None,
    ) -> Iterator[list[Hit]]:
        batch: list[str] = []
        for number, text in enumerate(texts, start=1):
            fault = string_fault(text)
            if not text.strip():
                fault = "is empty: expected at least one word"
            if fault is not None:
                raise BadInputError(f"query {number} {fault}")
            batch.append(text)
            if len(batch) == _QUERY_BATCH:
                yield from self._search(batch, settings, where, reranker)
                batch = []
        if batch:
            yield from self._search(batch, settings, where, reranker)

    def _search(
        self,
        texts: Sequence[str],
        settings: SearchSettings,
        where: Where | None,
        reranker: Reranker | None,
    ) -> list[list[Hit]]:
        wide = settings
        if reranker is not None:
            wide = replace(settings, k=max(settings.k, settings.depth))
        while True:
            state = self._state()
            if reranker is not None:
                reranker.check(state.encoder)
            queries = [Query(state.analyzer.tokens(text)) for text in texts]
            if settings.mode != "bm25" or (reranker is not None and reranker.reads_vectors):
                vectors = self._loaded(state).encode(texts, query=True)
                queries = [
                    Query(query.terms, vector)
                    for query, vector in zip(queries, vectors, strict=True)
                ]
            with self._reader.view() as view:
                # An index that replaced this one meanwhile may have another encoder and analyzer.
                if view.identity != state.identity:
                    continue
                if where is not None and (problem := _unknown_fields(view, where)):
                    warnings.warn(f"filter: {problem}", stacklevel=2)
                found = Engine(view, wide, where).search(queries)
                if reranker is None:
                    return found
                return [
                    rerank(view, reranker, text, query.vector, hits)[: settings.k]
                    for text, query, hits in zip(texts, queries, found, strict=True)
                ]

    @contextmanager
    def _writer(self) -> Iterator[Writer]:
        # Not after `close`.
        self._state()
        with self._writing, Writer(self.folder, lock_timeout=self._lock_timeout) as writer:
            yield writer

    def _state(self) -> IndexState:
        with self._reader.view() as view:
            return self._state_of(view)

    def _state_of(self, view: View) -> IndexState:
        """The settings of the index that a view is of; read where it is another than before."""
        known = self._known
        if known is not None and known.identity == view.identity:
            return known
        with self._loading:
            state = IndexState.read(view, self.folder)
            self._asked.check(state.encoder, self.folder)
            given = self._given
            if isinstance(given, AdoptedEncoder):
                given.require_same(state.encoder, state.probes, self.folder)
            elif given is not None and given.spec.fingerprint != state.encoder.fingerprint:
                raise EncoderMismatchError(
                    f"{self.folder}: the index was made with {state.encoder} "
                    f"({state.encoder.fingerprint}), but {given.spec} ({given.spec.fingerprint}) "
                    "was given; give that encoder, or none"
                )
            self._known = state
            return state

    def _loaded(self, state: IndexState) -> LoadedEncoder:
        if self._given is not None:
            return self._given
        with self._loading:
            loaded = self._encoder
            if loaded is None or loaded.spec.fingerprint != state.encoder.fingerprint:
                loaded = self._encoder = Encoder.from_spec(
                    state.encoder, device=self._asked.device, download=self._asked.download
                )
            return loaded


def _ready(
    documents: Iterable[AnyDocument | ReadyDocument],
    vectors: ArrayLike | Iterable[ArrayLike] | None,
    spec: EncoderSpec,
) -> Iterator[Document | ReadyDocument]:
    """The documents, with their vectors if there are any.

    Raises:
        ConfigError: vectors are not as many as the documents, or not of the encoder's dimensions.
        SourceError: a mapping is no document.
    """
    if vectors is None:
        for one in documents:
            yield one if isinstance(one, ReadyDocument) else as_document(one)
        return
    rows = iter(vectors)  # type: ignore[arg-type]
    count = 0
    for one in documents:
        count += 1
        row = next(rows, None)
        if row is None:
            raise ConfigError(f"vectors: expected one for each document, found {count - 1}")
        vector = np.asarray(row, np.float32)
        if vector.shape != (spec.dimensions,) or not np.isfinite(vector).all():
            raise ConfigError(
                f"vectors: expected {spec.dimensions} finite numbers for document {count}, as "
                f"{spec} gives them, found an array of shape {vector.shape}"
            )
        if isinstance(one, ReadyDocument):
            raise TypeError("vectors are given twice: leave one of them out")
        document = as_document(one)
        yield ReadyDocument(document, [(0, len(document.text))], vector[np.newaxis])
    if next(rows, None) is not None:
        raise ConfigError(f"vectors: expected {count}, one for each document, found more")


def _unknown_fields(view: View, where: Where) -> str | None:
    """What to say of fields in a filter that no document has; None if all are known."""
    for name, known in view.unknown_fields(where).items():
        near = difflib.get_close_matches(name, known, 1)
        guess = f"; did you mean {near[0]!r}?" if near else ""
        there = f"fields: {', '.join(known)}" if known else "no document has metadata"
        return f"no document has the field {name!r}{guess} ({there})"
    return None
