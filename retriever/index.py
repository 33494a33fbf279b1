"""The public face of an index: create, add, update, delete, search, describe, verify."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike

from indexes import (
    Backup,
    Choice,
    Facets,
    FieldSummary,
    Stage,
    Store,
    StructureSettings,
    Writer,
    compile_where,
    idf,
    no_progress,
    open_store,
    snapshot_index,
)
from retriever.analyzer import Analyzer
from retriever.corpus import AnyDocument, Document
from retriever.corpus.documents import metadata_fault
from retriever.description import describe
from retriever.encoders.choice import ModelChoice
from retriever.encoders.protocol import LoadedEncoder, TextEncoder, adopt, probe_lists
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.errors import (
    BadInputError,
    ConfigError,
    EncoderMismatchError,
    FilterError,
    require_several,
)
from retriever.indexing.add import CommitSettings, Indexer, ReadyDocument
from retriever.indexing.creation import (
    IndexKeywords,
    IndexSettings,
    initial_settings,
    read_structures,
    require_same,
)
from retriever.indexing.difference import CorpusDifference, corpus_difference
from retriever.indexing.passages import OnLong, PassageSettings, check_on_long
from retriever.indexing.ready_vectors import with_vectors
from retriever.indexing.report import IndexingReport, NoProgress, Progress
from retriever.opened import OpenedIndex
from retriever.search.engine import Hit, ScoredPassages
from retriever.search.excerpts import Excerpt, excerpt_of
from retriever.search.queries import (
    QueryVectors,
    candidates_of,
    facets_of,
    search_texts,
    similar_to,
    unknown_fields,
)
from retriever.search.reranking import Reranker
from retriever.search.settings import SearchKeywords, SearchSettings, search_settings

if TYPE_CHECKING:
    from retriever.indexing.export import Exported


class Index:
    """An index: documents, their vectors and their BM25 postings, in a folder or another store.

    >>> index = Index.create("my.index")                              # doctest: +SKIP
    >>> index.add(["a text", {"id": "42", "text": "…", "year": 2020}])  # doctest: +SKIP
    >>> index.search("a question", k=5, where="year >= 2000")         # doctest: +SKIP

    Make one with `Index.create` or `Index.open`; use it as a context manager, or call `close`.
    One object serves many threads: searches run side by side, changes one after another. Reading
    methods see every commit made before the call, by any process, and follow an index that was
    rebuilt under the same name. Changing methods hold the writer lock while they run. A forked
    child process can use the object of its parent.

    Attributes:
        store: where it is kept; its text is the folder, or the URL without a password.
    """

    def __init__(
        self, store: Store, asked: ModelChoice, encoder: LoadedEncoder | None, lock_timeout: float
    ) -> None:
        self.store = store
        self._opened = OpenedIndex(store, asked, encoder)
        self._lock_timeout = lock_timeout
        self._writing = threading.Lock()

    @classmethod
    def open(
        cls,
        folder: str | Path | Store,
        model: str | EncoderSettings = "",
        *,
        encoder: LoadedEncoder | TextEncoder | None = None,
        device: str | None = None,
        download: bool = False,
        lock_timeout: float = 0.0,
    ) -> Self:
        """Open an existing index; no model is loaded before one is needed.

        Args:
            folder: the index folder, or the URL of another store; docs/stores.md lists them.
            model: the encoder that the index is expected to have, as settings or in their text
                form; empty for any.
            encoder: a loaded encoder, which several indexes can share; see `create`.
            device: torch device of the model; None uses a GPU if there is one.
            download: allow downloads of a hub id that is not in the cache.
            lock_timeout: seconds that changing methods wait for another writer before they raise
                `IndexLockedError`.

        Raises:
            NotAnIndexError: the folder holds no index.
            FormatVersionError: a newer release wrote the index.
            DamagedIndexError: a file of the index is missing or altered.
            EncoderMismatchError: `model` or `encoder` is not the encoder of the index.
            ConfigError: `model` is malformed.
        """
        asked = ModelChoice(str(model), device, download)
        adopted = None if encoder is None else adopt(encoder)
        return cls(open_store(folder), asked, adopted, lock_timeout)

    @classmethod
    def create(
        cls,
        folder: str | Path | Store,
        model: str | EncoderSettings = "",
        *,
        encoder: LoadedEncoder | TextEncoder | None = None,
        device: str | None = None,
        download: bool = False,
        lock_timeout: float = 0.0,
        **settings: Unpack[IndexKeywords],
    ) -> Self:
        """Open the index in `folder`; create it first if there is none.

        Args:
            folder: does not exist, is empty, or is an index; or the URL of another store.
            model: the encoder, as settings or in their text form, such as
                ``all-MiniLM-L6-v2::lc:0,6``; empty for the default, or the index's own.
            encoder: an `Encoder`, or anything with ``encode(texts)`` that returns (texts,
                dimensions) numbers, such as a `SentenceTransformer`; in place of `model`. Its
                name and its vectors of fixed texts guard the index against another encoder.
            device: torch device of the model; None uses a GPU if there is one.
            download: allow downloads of a hub id that is not in the cache.
            lock_timeout: seconds that changing methods wait for another writer before they raise
                `IndexLockedError`.
            settings: `analyzer` (`AnalyzerSettings`), `passages` (`PassageSettings`) and
                `structures` (`StructureSettings`), each as a whole or field by field:
                ``language="german"``, ``on_long="truncate"``, ``index_type="ivf"``.

        Raises:
            What `open` and `Encoder.load` raise.
            NotAnIndexError: the folder holds other files.
            StorageError: the folder cannot be written.
            ConfigError: the index exists and has another analyzer, treatment of long texts or
                search structure.
            TypeError: `model` and `encoder` are both given, or a keyword is unknown.
        """
        wanted, asked = IndexSettings.of(settings), ModelChoice(str(model), device, download)
        if encoder is not None and asked.encoder:
            raise TypeError("model and encoder are both given: give one of them")
        store, loaded = open_store(folder), None if encoder is None else adopt(encoder)
        if not store.exists():
            loaded = loaded or asked.load()
            settings_of_new = initial_settings(loaded.spec, probe_lists(loaded), wanted)
            store.create(settings_of_new, lock_timeout)
        index = cls(store, asked, loaded, lock_timeout)
        try:
            with index._opened.view() as view:
                require_same(
                    wanted, index._opened.state_of(view), read_structures(view, store), store
                )
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
        """Release files; later calls of other methods raise `ClosedIndexError`."""
        self._opened.close()

    def __repr__(self) -> str:
        with self._opened.view() as view:
            return (
                f"<Index {str(self.store)!r}: {view.count_documents():,} documents, "
                f"{view.passage_count:,} passages, encoder {self._opened.state_of(view).encoder}>"
            )

    @property
    def folder(self) -> Path:
        """The index folder.

        Raises:
            ConfigError: the index is in another store.
        """
        if self.store.folder is None:
            raise ConfigError(f"{self.store}: expected an index folder, found another store")
        return self.store.folder

    @property
    def encoder_spec(self) -> EncoderSpec:
        """The specification of the encoder that the index was made with."""
        return self._opened.state().encoder

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer of documents and queries, for BM25."""
        return self._opened.state().analyzer

    @property
    def passages(self) -> PassageSettings:
        """How texts longer than the encoder's window are treated."""
        return self._opened.state().passages

    @property
    def structures(self) -> StructureSettings:
        """Which search structure large segments get."""
        with self._opened.view() as view:
            return read_structures(view, self.store)

    @property
    def encoder(self) -> LoadedEncoder:
        """The index's encoder, loaded on first use.

        Raises:
            What `Encoder.from_spec` raises.
        """
        return self._opened.encoder(self._opened.state())

    def __len__(self) -> int:
        """The number of documents."""
        with self._opened.view() as view:
            return view.count_documents()

    def __contains__(self, id_: object) -> bool:
        """Whether the index holds a document with this id."""
        with self._opened.view() as view:
            return isinstance(id_, str) and view.has_document(id_)

    def __getitem__(self, id_: str) -> Document:
        """The document with this id, with its whole text.

        Raises:
            KeyError: the index holds no such document.
            DamagedIndexError: the document was altered on the disk.
        """
        with self._opened.view() as view:
            stored = view.document(id_)
        if stored is None:
            raise KeyError(id_)
        return Document(stored.id, stored.text, stored.title, stored.metadata)

    def spans(self, id_: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of the passages of a document, in order.

        Raises:
            KeyError: the index holds no such document.
            DamagedIndexError: the document was altered on the disk.
        """
        with self._opened.view() as view:
            stored = view.document(id_)
        if stored is None:
            raise KeyError(id_)
        return [(start, stop) for _, start, stop in stored.passages]

    def __iter__(self) -> Iterator[Document]:
        """All documents of one commit, as a stream in ascending order of ids (by code point).

        Raises:
            DamagedIndexError: a document was altered on the disk.
        """
        with self._opened.view() as view:
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
        compact: bool = True,
    ) -> IndexingReport:
        """Add documents, and replace those whose id the index holds.

        A document whose title and text are unchanged is not encoded again. What was added is
        durable when this returns, and the next search finds it.

        Args:
            documents: read once, as a stream. Each is a `Document`; a mapping with the fields of
                a JSON line (``text``, and optionally ``id`` and ``title``; all others are
                metadata); or a text, whose id is made from its content. Of equal ids the last
                stands. A document without text and title is counted and skipped, with a warning.
            vectors: (documents, dimensions) numbers, one vector per document as a whole; None
                encodes. If the encoder normalizes, they are brought to length 1.
            made_by: the encoder that made the vectors; None trusts that it is the index's own.
            on_long: ``error`` refuses texts longer than the window; None follows the index's
                settings.
            commit: how often to commit during a long call.
            progress: receives the progress of encoding.
            stage: receives the progress of a search structure that is built.
            report: counts are added to it, so that a caller has them after an interruption.
            prune: delete every document of the index that is not among `documents`.
            compact: merge segments at the end where that makes queries faster. What such a merge
                reads is bounded by what was added; `Index.compact` merges everything.

        Returns:
            What was done; `report` if given.

        Raises:
            TypeError: `documents` is a single text or document.
            SourceError: a document cannot be stored, or is longer than the window and `on_long`
                is ``error``; the documents before it are committed.
            ConfigError: `vectors` do not fit, or `prune` is set and no document was read.
            EncoderMismatchError: `made_by` is not the encoder of the index.
            IndexLockedError: another writer holds the index.
            StorageError: the disk is full or cannot be written; earlier commits stand.
            What iterating over `documents` raises; the documents before it are committed.
        """
        if isinstance(documents, str | bytes | Mapping | Document | ReadyDocument):
            raise TypeError(
                f"documents: expected several documents, found one {type(documents).__name__}; "
                "put it into a list"
            )
        with self._writer() as writer:
            state = self._opened.state()
            if made_by is not None and made_by.fingerprint != state.encoder.fingerprint:
                raise EncoderMismatchError(
                    f"{self.store}: the index has the encoder {state.encoder}, but the vectors "
                    f"are of {made_by}; add them to another index"
                )
            indexer = Indexer(
                writer,
                lambda: self._opened.encoder(state),
                state.analyzer,
                state.passages,
                normalized=bool(state.encoder.meaning("normalize")),
                on_long=check_on_long(on_long, state.passages),
                commit=commit or CommitSettings(),
                progress=progress or NoProgress(),
                stage=stage,
                report=report,
            )
            indexer.add(with_vectors(documents, vectors, state.encoder))
            if prune:
                if not writer.count_touched() and (held := len(self)):
                    raise ConfigError(
                        f"{self.store}: no document was read, and pruning would delete all "
                        f"{held:,}; check the source, or delete them with `clear`"
                    )
                indexer.report.deleted = writer.delete_untouched()
                writer.merge(stage)
            if compact:
                indexer.settle()
            if indexer.report.empty:
                warnings.warn(indexer.report.empty_note, stacklevel=2)
            return indexer.report

    def update(self, id_: str, *, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of a document; nothing is encoded.

        Args:
            id_: the document's id.
            metadata: the new metadata, as a whole: JSON values, integers within 64 bits, finite
                numbers.

        Raises:
            KeyError: the index holds no such document.
            BadInputError: the metadata cannot be stored.
            IndexLockedError: another writer holds the index.
            StorageError: the disk is full or cannot be written; the index is as before.
        """
        fault = metadata_fault(metadata)
        if fault is not None:
            raise BadInputError(f"document {id_!r}: {fault}")
        with self._writer() as writer:
            if not writer.heads([id_]):
                raise KeyError(id_)
            writer.commit([], np.empty((0, 0), np.float32), [], {id_: metadata})

    def delete(self, ids: Iterable[str]) -> int:
        """Delete documents by id.

        Args:
            ids: any number of ids; those that the index does not hold are ignored.

        Returns:
            The number of documents deleted.

        Raises:
            TypeError: `ids` is a single string.
            IndexLockedError: another writer holds the index.
            StorageError: the disk is full or cannot be written; the index is as before.
        """
        require_several("ids", ids)
        with self._writer() as writer:
            deleted = writer.delete(ids)
            writer.merge()
            return deleted

    def delete_where(self, where: str) -> int:
        """Delete the documents that match a filter.

        Args:
            where: the filter; docs/ranking.md has the grammar.

        Returns:
            The number of documents deleted.

        Raises:
            FilterError: the filter does not parse, or names a field that no document has.
            IndexLockedError: another writer holds the index.
            StorageError: the disk is full or cannot be written; the index is as before.
        """
        compiled = compile_where(where)
        with self._writer() as writer:
            with self._opened.view() as view:
                problem = unknown_fields(view, compiled.fields)
            if problem:
                raise FilterError(f"filter: {problem}; nothing was deleted")
            deleted = writer.delete_where(compiled)
            writer.merge()
            return deleted

    def clear(self) -> int:
        """Delete every document.

        Returns:
            The number of documents deleted.

        Raises:
            IndexLockedError: another writer holds the index.
            StorageError: the disk is full or cannot be written; the index is as before.
        """
        with self._writer() as writer:
            deleted = writer.delete_untouched()
            writer.merge()
            return deleted

    def compact(self, *, stage: Stage = no_progress) -> int:
        """Merge all segments into one, drop what was deleted, and free its space.

        Searches run meanwhile, and their answers stay the same.

        Args:
            stage: receives the progress of a search structure that is built.

        Returns:
            The number of segments merged; 0 if there was nothing to do.

        Raises:
            IndexLockedError: another writer holds the index.
            StorageError: the disk is full or cannot be written; the index is as before.
            DamagedIndexError: a file of a segment was altered.
        """
        with self._writer() as writer:
            return writer.compact(stage)

    def plan(self, structures: StructureSettings) -> Choice:
        """The structure that `rebuild` would build over all live passages; nothing is built.

        Returns:
            The structure, the reasons for it, and the memory in bytes that building and
            searching it take.

        Raises:
            ConfigError: FAISS does not know the structure.
        """
        with self._opened.view() as view:
            dimensions = self._opened.state_of(view).encoder.dimensions
            return structures.choice(view.passage_count, dimensions)

    def rebuild(self, structures: StructureSettings, *, stage: Stage = no_progress) -> int:
        """Merge all segments into one with another search structure; nothing is encoded.

        Args:
            structures: the structure; later merges build it too.
            stage: receives the progress.

        Returns:
            The number of segments merged.

        Raises:
            ConfigError: FAISS does not know the structure, or cannot build it of these vectors.
            MissingExtraError: FAISS is not installed.
            What `compact` raises.
        """
        with self._writer() as writer:
            return writer.rebuild(structures, stage)

    def reindex(
        self,
        model: str | EncoderSettings = "",
        *,
        encoder: LoadedEncoder | TextEncoder | None = None,
        progress: Progress | None = None,
        **settings: Unpack[IndexKeywords],
    ) -> IndexingReport | None:
        """Encode the stored documents again with other settings; the index serves meanwhile.

        Args:
            model: the encoder, as settings or in their text form. If it names no model, the
                settings that it does not name stay as they are.
            encoder: an encoder in place of `model`; see `create`.
            progress: receives the progress of encoding.
            settings: as of `create`; what is not given stays as it is.

        Returns:
            What was done; None if the index has these settings already.

        Raises:
            What `retriever.reindexed` raises.
        """
        from retriever.indexing.reindex import reindexed

        with self._writing:
            report = reindexed(
                self.store,
                model,
                encoder=encoder,
                device=self._opened.asked.device,
                download=self._opened.asked.download,
                progress=progress,
                **settings,
            )
            if report is not None:
                self._opened.expect(None if encoder is None else adopt(encoder))
            return report

    def export(self, output: str | Path, *, vectors: bool = False) -> Exported:
        """Write the documents as JSON Lines, or the vectors as a NumPy array (``.npy``).

        Args:
            output: a file that ends in .jsonl or .npy; it appears complete or not at all.
            vectors: write the vectors of the passages into the JSON Lines too.

        Returns:
            The numbers of documents and passages, and the files.

        Raises:
            What `retriever.export_jsonl` and `retriever.export_npy` raise.
        """
        from retriever.indexing.export import export_jsonl, export_npy

        output = Path(output)
        if output.suffix == ".npy":
            return export_npy(self.store, output)
        return export_jsonl(self.store, output, vectors=vectors)

    def snapshot(self, target: str | Path) -> Backup:
        """Copy the index, as one of its commits left it, into a new folder, and verify the copy.

        Args:
            target: a folder that does not exist or is empty; it appears complete or not at all.

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
        """Find the best documents for one query.

        Args:
            text: the query.
            settings: how to rank; None takes the defaults.
            where: rank only documents that match this filter; docs/ranking.md has the grammar.
            reranker: scores the best `settings.depth` hits again; see `load_reranker`.
            keywords: single fields of `SearchSettings`, `FusionSettings` and `BM25Settings`:
                ``k=5, alpha=0.7, k1=0.9``.

        Returns:
            At most `k` hits, the highest score first; equal scores by document id, ascending (by
            code point). There are fewer if fewer documents can be ranked.

        Raises:
            TypeError: `text` is not a string, or a keyword is unknown.
            What `search_many` raises.
        """
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
        ready: QueryVectors | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> Iterator[list[Hit]]:
        """Find the best documents for each of several queries.

        Args:
            texts: the queries, read as a stream and encoded in batches of 256.
            settings: as of `search`, like the other arguments.
            where: a filter for all queries.
            reranker: for all queries.
            ready: the vectors of all queries, encoded before; None encodes.
            keywords: single fields of the settings.

        Returns:
            The hits of each query, in the order of the queries; each as `search` returns them.

        Raises:
            TypeError: `texts` is a single string, or a keyword is unknown.
            ConfigError: a setting is out of range.
            BadInputError: a query is empty, or not valid Unicode.
            EncoderMismatchError: the reranker was trained on the vectors of another encoder, or
                `ready` was made by one.
            FilterError: the filter does not parse.
            DamagedIndexError: a file of the index is missing or altered.
            ClosedIndexError: the index is closed.
            What `encoder` raises, in the modes that need it.
        """
        require_several("texts", texts)
        wanted = search_settings(settings, keywords)
        compiled = None if where is None else compile_where(where)
        return search_texts(self._opened, texts, wanted, compiled, reranker, ready)

    def more_like(
        self,
        id_: str,
        settings: SearchSettings | None = None,
        *,
        start: int = 0,
        where: str | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> list[Hit]:
        """Find the documents that are most like one of the index; nothing is encoded.

        Args:
            id_: the document.
            settings: as of `search`.
            start: character offset in its text; the last passage that begins at or before it is
                what the others are compared with, by its stored vector and, in ``bm25`` and
                ``hybrid``, by the terms of its text and of the title.
            where: rank only documents that match this filter.
            keywords: single fields of the settings.

        Returns:
            At most `k` hits as of `search`, without the document itself.

        Raises:
            KeyError: the index holds no such document.
            What `search_many` raises.
        """
        wanted = search_settings(settings, keywords)
        compiled = None if where is None else compile_where(where)
        return similar_to(self._opened, id_, start, wanted, compiled)

    def excerpt(self, hit: Hit, before: int = 1, after: int = 1) -> Excerpt:
        """The passage of a hit with its neighbors, as one stretch of the document's text.

        Args:
            hit: of a search in this index.
            before: number of passages before it, 0 or more.
            after: number of passages after it, 0 or more.

        Raises:
            KeyError: the document was deleted or replaced after the search.
            DamagedIndexError: the document was altered on the disk.
        """
        with self._opened.view() as view:
            return excerpt_of(view, hit, before, after)

    def fields(self) -> list[FieldSummary]:
        """The metadata fields that filters can use, with their types and some of their values.

        Returns:
            In ascending order of names. It takes a few milliseconds, whatever the number of
            documents. Empty for an index of format 2 or older.

        Raises:
            DamagedIndexError: what is read of the metadata was altered.
        """
        with self._opened.view() as view:
            return view.fields()

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
        return candidates_of(self._opened, texts, settings or SearchSettings())

    def facets(
        self,
        fields: Iterable[str],
        text: str | None = None,
        *,
        where: str | None = None,
        limit: int = 10,
    ) -> Facets:
        """Count the documents that have each value of metadata fields.

        The counts are of all documents that a search can rank, not of its best hits, so that a
        filter for a value leaves as many documents as its count says. The modes ``dense`` and
        ``hybrid`` rank every document that passes the filter (`documents`), ``bm25`` those of them
        that share a term with the query (`matches`).

        Args:
            fields: names as a filter writes them: ``lang``, ``author.name``.
            text: a query; None counts no matches.
            where: count only documents that match this filter.
            limit: maximum number of values of each field, the most frequent first; at least 1.

        Raises:
            TypeError: `fields` is a single string.
            ConfigError: `limit` is below 1.
            BadInputError: the query is empty, or not valid Unicode.
            FilterError: the filter does not parse, or a field is no metadata field.
            DamagedIndexError: a file of the index is missing or altered.
            ClosedIndexError: the index is closed.
        """
        require_several("fields", fields)
        if limit < 1:
            raise ConfigError(f"limit: expected 1 or more, found {limit}")
        compiled = None if where is None else compile_where(where)
        return facets_of(self._opened, list(fields), text, compiled, limit)

    def filter_warning(self, where: str) -> str | None:
        """What is doubtful about a filter: a field that no document has; None if nothing is.

        Raises:
            FilterError: the filter does not parse.
        """
        compiled = compile_where(where)
        with self._opened.view() as view:
            problem = unknown_fields(view, compiled.fields)
        return None if problem is None else f"filter: {problem}"

    def difference(self, documents: Iterable[Document]) -> CorpusDifference:
        """How the index differs from a corpus, in numbers of documents; nothing is changed.

        Args:
            documents: with distinct ids; read once, as a stream.
        """
        with self._opened.view() as view:
            return corpus_difference(view, documents)

    def term_weights(self, text: str) -> dict[str, float]:
        """The idf of the terms of a text, over the live passages.

        Returns:
            For each term that a passage holds, in the order of the text, Lucene's idf
            ln(1 + (N - df + 0.5) / (df + 0.5)): above 0; higher if fewer of the N passages hold
            the term.
        """
        with self._opened.view() as view:
            held = view.document_frequencies(self._opened.state_of(view).analyzer.tokens(text))
            passages = view.passage_count
            return {term: idf("lucene", df, passages) for term, df in held.items() if df}

    def info(self) -> dict[str, Any]:
        """What the index is and holds, as JSON values.

        Sizes are in bytes; ``remains`` names folders that an interrupted command left, and what
        to do about each.
        """
        with self._opened.view() as view:
            structures = read_structures(view, self.store)
            return describe(self.store, view, self._opened.state_of(view), structures)

    def verify(self) -> list[str]:
        """Check every file, count and id.

        Returns:
            One line per problem, which names the file; empty if the index is sound.

        Raises:
            DamagedIndexError: the database cannot be read at all.
        """
        return self.store.verify()

    @contextmanager
    def _writer(self) -> Iterator[Writer]:
        # Not after `close`.
        self._opened.state()
        with self._writing, self.store.writer(self._lock_timeout) as writer:
            yield writer
