"""The class `Index`: everything that programs do with one index, each a call of a module here.

`opening`, `adding`, `changing`, `refreshing` and `reindexing` change an index; `reading`,
`searching` and `query_advice` read one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from indexes import no_progress, open_store
from indexes.filters import id_forms
from retriever.documents.document import AnyDocument, Document, is_id
from retriever.encoders.encoder import Encoder, ModelChoice, wrap_encoder
from retriever.encoders.settings import is_automatic
from retriever.errors import ConfigError, require_several, unknown_name
from retriever.index.reading import (
    CorpusDifference,
    compare_corpus,
    describe_index,
    export_index,
    read_document,
    read_documents,
    read_excerpt,
    read_spans,
    read_vectors,
    summarize_index,
)
from retriever.index.searching import (
    find_similar,
    list_documents,
    rank_many,
    score_candidates,
    search_many,
)
from retriever.index.writer_access import WriterAccess
from retriever.search.hits import Hits
from retriever.search.opened import IndexSettings, OpenedIndex, read_structures, verify_index
from retriever.search.settings import (
    DEFAULT_WEIGHT,
    FIT,
    SearchKeywords,
    SearchSettings,
    search_settings,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from indexes import Backup, Mode, Stage, Store, StructureSettings
    from indexes.bm25 import Expansion
    from indexes.filters import Facets, FieldSummary
    from indexes.vectors import Choice
    from retriever.documents.analyzer import Analyzer
    from retriever.documents.passages import OnLong, PassageSettings
    from retriever.encoders.settings import AskedDtype, EncoderSettings
    from retriever.encoders.spec import EncoderSpec, TextEncoder
    from retriever.index.indexing.embedded_documents import ReadyDocument
    from retriever.index.indexing.run import CommitSettings, IndexingReport, Progress
    from retriever.index.refreshing import RefreshReport
    from retriever.index.transfer.export import Exported
    from retriever.rerankers.head import QueryMap
    from retriever.search.calibration import Answer, Calibration
    from retriever.search.engine import Hit, ScoredPassages
    from retriever.search.excerpts import Spans
    from retriever.search.opened import IndexKeywords
    from retriever.search.queries import Excerpt, QueryVectors
    from retriever.search.reranking import Reranker
    from retriever.search.synonyms import Synonyms


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

    After `close`, searches and changes raise `ClosedIndexError`. What reads the store raises
    `DamagedIndexError` if it was altered. Changes raise `IndexLockedError` if another writer holds
    the index, and `StorageError` if the disk is full or cannot be written; the index is then as its
    last commit left it. `str(index.store)` is the folder, or the URL without a password.
    """

    def __init__(
        self, opened: object = None, lock_timeout: float = 0.0, *_: object, **__: object
    ) -> None:
        if not isinstance(opened, OpenedIndex):
            # The arguments of a direct call would be those of `open` or `create`.
            folder = "folder" if opened is None else f"{opened!r:.60}"
            raise TypeError(
                f"Index: expected Index.open({folder}) or Index.create({folder}), found a call of "
                "the class itself"
            )
        self.store = opened.store
        self._opened = opened
        self._access = WriterAccess(opened, lock_timeout)

    @classmethod
    def open(
        cls,
        folder: str | Path | Store,
        model: str | Path | EncoderSettings = "",
        *,
        encoder: Encoder | TextEncoder | None = None,
        device: str | None = None,
        download: bool = False,
        dtype: AskedDtype = "auto",
        lock_timeout: float = 0.0,
    ) -> Self:
        """Open an existing index; no model is loaded before one is needed.

        Args:
            folder: the index folder, or the URL of another store; docs/reference/stores.md lists
            them.
            model: the encoder that the index is expected to have, as settings or in their text
                form; empty for any.
            encoder: a loaded encoder, which several indexes can share; see `create`.
            device: torch device of the model; None uses a GPU if there is one.
            download: allow downloads of a hub id that is not in the cache.
            dtype: number format of new vectors where neither `model` nor the index names one;
                docs/reference/computing.md has the rule of auto.
            lock_timeout: seconds that changing methods wait for another writer before they raise
                `IndexLockedError`.

        Raises:
            NotAnIndexError: the folder holds no index.
            FormatVersionError: a newer release wrote the index.
            DamagedIndexError: a file of the index is missing or altered.
            EncoderMismatchError: `model` or `encoder` is not the encoder of the index.
            ConfigError: `model` or the URL is malformed, or `encoder` gives no finite vectors of
                one length.
            MissingExtraError: the library of the store is not installed.
        """
        choice = ModelChoice(model, device, download, dtype)
        return cls(OpenedIndex(open_store(folder), choice, wrap_encoder(encoder)), lock_timeout)

    @classmethod
    def create(
        cls,
        folder: str | Path | Store,
        model: str | Path | EncoderSettings = "",
        *,
        encoder: Encoder | TextEncoder | None = None,
        device: str | None = None,
        download: bool = False,
        dtype: AskedDtype = "auto",
        lock_timeout: float = 0.0,
        exist_ok: bool = True,
        **settings: Unpack[IndexKeywords],
    ) -> Self:
        """Open the index in `folder`; create it first if there is none.

        An index without documents, such as a failed run leaves, takes the settings that are given.

        Args:
            folder: does not exist, is empty, or is an index; or the URL of another store.
            model: the encoder, as settings or in their text form, such as
                ``all-MiniLM-L6-v2::lc:0,6``; empty for the default, or the index's own.
            encoder: an `Encoder`, or anything with ``encode(texts)`` that returns (texts,
                dimensions) numbers, such as a `SentenceTransformer`; in place of `model`. Its
                name and its vectors of fixed texts guard the index against another encoder.
            device: see `open`.
            download: see `open`.
            dtype: see `open`.
            lock_timeout: see `open`.
            exist_ok: False refuses an index that exists.
            settings: `analyzer` (`AnalyzerSettings`), `passages` (`PassageSettings`) and
                `structures` (`StructureSettings`), each as a whole or field by field:
                ``language="german"``, ``on_long="truncate"``, ``index_type="ivf"``.

        Raises:
            What `open` and `Encoder.load` raise.
            NotAnIndexError: the folder holds other files.
            StorageError: the folder cannot be written.
            EncoderMismatchError: the index holds documents and has another encoder.
            ConfigError: the index holds documents and has another analyzer, treatment of long texts
                or search structure; or the index exists and `exist_ok` is False.
            TypeError: `model` and `encoder` are both given, or a keyword is unknown.
        """
        from retriever.index.opening import create_index

        choice = ModelChoice(model, device, download, dtype)
        requested = IndexSettings.of(settings)
        opened = create_index(
            folder, choice, encoder, requested, lock_timeout=lock_timeout, exist_ok=exist_ok
        )
        return cls(opened, lock_timeout)

    open_or_create = create

    @classmethod
    def load(cls, folder: str | Path | Store, **keywords: Any) -> Self:
        """Open an existing index, as `open`."""
        return cls.open(folder, **keywords)

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[AnyDocument | ReadyDocument] | Path,
        folder: str | Path | Store,
        **settings: Any,
    ) -> Self:
        """Open or create the index in `folder` as `create` does, and add documents to it.

        With ``model="auto"`` the first thousand passages choose the model of a new index: the
        default one for English, else ``multilingual-e5-small``. An index keeps its model.
        """
        decision = None
        if is_automatic(settings.get("model", "")):
            from retriever.index.adding import stream_documents
            from retriever.index.automatic import decide_model

            decision, documents = decide_model(folder, stream_documents(documents), settings)
            settings["model"] = decision.settings
        index = cls.create(folder, **settings)
        try:
            if decision is not None:
                decision.record(index.store)
            index.add(documents)
        except BaseException:
            index.close()
            raise
        return index

    def add(
        self,
        documents: Iterable[AnyDocument | ReadyDocument] | Path,
        vectors: ArrayLike | Iterable[ArrayLike] | None = None,
        *,
        ids: Iterable[str] | None = None,
        metadatas: Iterable[Mapping[str, Any] | None] | None = None,
        made_by: EncoderSpec | None = None,
        on_long: OnLong | None = None,
        commit: CommitSettings | None = None,
        progress: Progress | None = None,
        stage: Stage = no_progress,
        report: IndexingReport | None = None,
        prune: bool = False,
        compact: bool = True,
        remember: bool = False,
    ) -> IndexingReport:
        """Add documents, and replace those whose id the index holds.

        A document whose title and text are unchanged is not encoded again. What was added is
        durable when this returns, and the next search finds it.

        Args:
            documents: read once, as a stream. Each is a `Document`; a mapping with the fields of
                a JSON line (``text``, and optionally ``id`` and ``title``; all others are
                metadata); or a text, whose id is made from its content. The rows of a table of
                pandas, polars or Arrow are such mappings; this needs pyarrow. The last document
                with an id replaces earlier ones. A document without text and title is counted and
                not stored, with a warning; the stored document with its id is deleted. A `Path` is
                read as ``retriever index PATH`` reads it.
            vectors: (documents, dimensions) numbers, one vector per document as a whole; None
                encodes. If the encoder normalizes, they are brought to length 1. A document with
                the text and title that it had keeps the vectors that it had.
            ids: one for each of `documents`, which are then texts alone.
            metadatas: metadata for each of `documents`, likewise; None for a text without.
            made_by: the encoder that made the vectors; None trusts that it is the index's own.
            on_long: ``error`` refuses texts longer than the window; None follows the index's
                settings.
            commit: how often to commit during a long call.
            progress: receives the progress of encoding.
            stage: receives the progress of a search structure that is built.
            report: counts are added to it, so that a caller has them after an interruption; it is
                returned.
            prune: delete every document of the index that is not among `documents`.
            compact: merge segments at the end where that makes queries faster. What such a merge
                reads is bounded by what was added; `Index.compact` merges everything.
            remember: remember the sources of a `CorpusReader`, so that `refresh` finds what changes
                in them; standard input and pipes are not remembered.

        Raises:
            TypeError: `documents` is a single text or document, or a table of another kind.
            SourceError: a document or its vector cannot be stored, or it is longer than the window
                and `on_long` is ``error``; the documents before it are committed.
            ConfigError: the documents are more or fewer than `vectors`, or `prune` is set and no
                document was read.
            EncoderMismatchError: `made_by` is not the encoder of the index.
            What iterating over `documents` raises; the documents before it are committed.
        """
        from retriever.index.adding import add_documents, stream_documents

        return add_documents(
            self._access,
            stream_documents(documents, ids, metadatas),
            vectors,
            made_by=made_by,
            on_long=on_long,
            commit=commit,
            progress=progress,
            stage=stage,
            report=report,
            prune=prune,
            compact=compact,
            remember=remember,
        )

    @property
    def sources(self) -> list[str]:
        """The sources that the index remembers, as absolute paths, in the order of reading."""
        from retriever.index.sources.remembered import remembered_sources

        return [source.path for source in remembered_sources(self.store)]

    def refresh(
        self,
        *,
        prune: bool = False,
        progress: Progress | None = None,
        stage: Stage = no_progress,
        seconds: float | None = None,
    ) -> RefreshReport:
        """Read again what has changed in the sources that were indexed with `remember`.

        New files are added, changed ones replaced, and the documents of those that are gone are
        deleted; so are documents that a changed file no longer holds. Files are compared by size
        and time first, then by hash. If nothing has changed, no lock is taken and no model is
        loaded. Exception: after a large `delete`, the encoder's fit is measured again. Documents
        that came from elsewhere stay. An interrupted refresh loses nothing, and the next one
        resumes it. An unchanged file is read again once if the reader of its kind is newer than
        the one that read it. Equal documents are not encoded again.

        Args:
            prune: delete the documents of sources that are missing as a whole, and forget these.
            progress: receives the progress of encoding.
            stage: receives the progress of a search structure that is built.
            seconds: time for files that only an earlier reader has read; None for no limit.
                The others of them wait for the next refresh.

        Raises:
            SourceError: the index remembers no sources; one is missing as a whole, and nothing is
                changed; or what `CorpusReader` raises, and the documents before it are committed.
            DamagedIndexError: what the index remembers was altered.
        """
        from retriever.index.refreshing import refresh_index

        return refresh_index(
            self._access, prune=prune, progress=progress, stage=stage, seconds=seconds
        )

    def update(self, id_: str, *, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of a document as a whole; nothing is encoded.

        Raises:
            KeyError: the index holds no such document.
            BadInputError: the metadata cannot be stored.
        """
        from retriever.index.changing import replace_metadata

        replace_metadata(self._access, id_, metadata)

    def keep_calibration(self, calibration: Calibration) -> None:
        """Store what was learned for a mode, in place of what was there; see `eval.calibrate`."""
        from retriever.index.changing import store_calibration

        store_calibration(self._access, calibration)

    def delete(
        self,
        ids: Iterable[str] | None = None,
        *,
        where: str | Mapping[str, Any] | None = None,
        erase: bool = False,
        stage: Stage = no_progress,
    ) -> int:
        """Delete documents by id, those of them that the index holds; returns their number.

        With `where` in place of ids it is `delete_where`.

        With `erase`, no file of the index folder holds a byte of any deleted document afterwards:
        neither text, title and metadata nor vectors and terms. The index is rewritten as by
        `compact`, whose progress `stage` receives. If that is interrupted, the same call ends it.

        Raises:
            TypeError: `ids` are not several strings, or not one of `ids` and `where` is given.
            ConfigError: `erase` for an index that is not a folder.
            StorageError: with `erase`, another program reads a state of before for longer than 30
                seconds.
        """
        from retriever.index.changing import delete_documents

        return delete_documents(self._access, ids, where, erase=erase, stage=stage)

    def delete_where(
        self,
        where: str | Mapping[str, Any],
        *,
        erase: bool = False,
        stage: Stage = no_progress,
    ) -> int:
        """Delete the documents that match a filter, otherwise as `delete`; returns their number.

        Raises:
            FilterError: the filter does not parse, names a field that no document has, or compares
                a field with a type that no document has in it.
        """
        return self.delete(where=where, erase=erase, stage=stage)

    def clear(self) -> int:
        """Delete every document; returns their number."""
        from retriever.index.changing import delete_all

        return delete_all(self._access)

    def compact(self, *, stage: Stage = no_progress) -> int:
        """Merge all segments into one, drop what was deleted, and free its space.

        Searches run meanwhile, and their answers stay the same. `stage` receives the progress of a
        search structure that is built. Returns the number of segments merged.

        The passages of each language are counted again where earlier releases, which counted those
        of deleted documents too, stored any.
        """
        from retriever.index.changing import compact_index

        return compact_index(self._access, stage)

    def plan(self, structures: StructureSettings) -> Choice:
        """The structure that `rebuild` would build, why, and the memory in bytes that it takes.

        Raises:
            ConfigError: FAISS does not know the structure.
            MissingExtraError: a factory string is given and FAISS is not installed.
        """
        with self._opened.view() as view:
            dimensions = self._opened.settings_of(view).encoder.dimensions
            return structures.choice(view.passage_count, dimensions)

    def rebuild(self, structures: StructureSettings, *, stage: Stage = no_progress) -> int:
        """As `compact`, with another search structure, which later merges build too.

        Raises:
            ConfigError: FAISS does not know the structure, or cannot build it of these vectors.
            MissingExtraError: FAISS is not installed.
        """
        with self._access.writer() as writer:
            return writer.rebuild(structures, stage)

    def reindex(
        self,
        model: str | Path | EncoderSettings = "",
        *,
        encoder: Encoder | TextEncoder | None = None,
        progress: Progress | None = None,
        **settings: Unpack[IndexKeywords],
    ) -> IndexingReport | None:
        """Encode the stored documents again with other settings; see `retriever.reindexed`."""
        from retriever.index.reindexing import reindex_opened

        return reindex_opened(self._access, model, encoder, progress, settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def close(self) -> None:
        """Release files; later calls of other methods raise `ClosedIndexError`."""
        self._opened.close()

    def __repr__(self) -> str:
        return summarize_index(self._opened)

    @property
    def folder(self) -> Path:
        """The index folder; ConfigError if the index is in another store."""
        if self.store.folder is None:
            raise ConfigError(f"{self.store}: expected an index folder, found another store")
        return self.store.folder

    @property
    def encoder_spec(self) -> EncoderSpec:
        """The specification of the encoder that the index was made with."""
        return self._opened.settings().encoder

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer of documents and queries, for BM25."""
        return self._opened.settings().analyzer

    @property
    def languages(self) -> dict[str, int]:
        """Number of passages in each language; empty if the settings name the language."""
        with self._opened.view() as view:
            return dict(view.setting("languages", {}))

    @property
    def passages(self) -> PassageSettings:
        """How texts longer than the encoder's window are treated."""
        return self._opened.settings().passages

    @property
    def default_weight(self) -> float:
        """The weight of the embeddings in hybrid search where a query gives none."""
        with self._opened.view() as view:
            return float(view.setting(FIT, {}).get("weight", DEFAULT_WEIGHT))

    @property
    def structures(self) -> StructureSettings:
        """Which search structure large segments get."""
        with self._opened.view() as view:
            return read_structures(view, self.store)

    @property
    def encoder(self) -> Encoder:
        """The index's encoder, loaded on first use; raises what `Encoder.from_spec` raises."""
        return self._opened.encoder(self._opened.settings())

    @property
    def query_encoder(self) -> Encoder:
        """The same as queries are encoded with, which may be in another number format."""
        return self._opened.encoder(self._opened.settings(), query=True)

    @property
    def query_map(self) -> QueryMap | None:
        """Map of the vectors of queries, applied before every search; see `load_query_map`.

        Set it before the first search; EncoderMismatchError if it is for another encoder.
        """
        return self._opened.query_map

    @query_map.setter
    def query_map(self, query_map: QueryMap | None) -> None:
        if query_map is not None:
            query_map.check(self.encoder_spec)
        self._opened.query_map = query_map

    @property
    def synonyms(self) -> Synonyms | None:
        """Phrases of the same meaning, which BM25 searches for beside those of a query.

        See `load_synonyms`. Set it before the first search.
        """
        return self._opened.synonyms

    @synonyms.setter
    def synonyms(self, synonyms: Synonyms | None) -> None:
        self._opened.synonyms = synonyms

    def __len__(self) -> int:
        """The number of documents."""
        with self._opened.view() as view:
            return view.count_documents()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise unknown_name(self, name)

    def count(self) -> int:
        """The number of documents, as `len`."""
        return len(self)

    def get(self, id_: str, default: Document | None = None) -> Document | None:
        """The document with this id; `default` if the index holds none; TypeError of no string."""
        if not isinstance(id_, str):
            raise TypeError(f"id: expected one string, found {type(id_).__name__}")
        try:
            return self[id_]
        except KeyError:
            return default

    def count_copies(self) -> int | None:
        """How many documents repeat the title, text and outline of another; None if unknown."""
        with self._opened.view() as view:
            return view.count_copies()

    def __contains__(self, id_: object) -> bool:
        """Whether the index holds a document with this id."""
        with self._opened.view() as view:
            return is_id(id_) and bool(view.content_hashes(id_forms(id_)))

    def __getitem__(self, id_: str) -> Document:
        """The document with this id, with its whole text; KeyError if the index holds none."""
        return read_document(self._opened, id_)

    def spans(self, id_: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of the passages of a document; KeyError if unknown."""
        return read_spans(self._opened, id_)

    def __iter__(self) -> Iterator[Document]:
        """All documents of one commit, as a stream in ascending order of ids (by code point)."""
        return read_documents(self._opened)

    def search(
        self,
        text: str,
        settings: SearchSettings | None = None,
        *,
        where: str | Mapping[str, Any] | None = None,
        exclude: Iterable[str] = (),
        reranker: Reranker | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> Hits:
        """Find the best documents for one query.

        Args:
            text: the query.
            settings: how to rank; None takes the defaults.
            where: rank only documents that match this filter: a text in the grammar of
                docs/reference/filters.md, or the values of fields, ``{"year": 2020, "lang": ["en",
                "de"]}``.
            exclude: words, in any of their forms, and phrases that no hit holds.
            reranker: scores the best `settings.depth` hits again; see `load_reranker`.
            keywords: single fields of `SearchSettings`, `FusionSettings` and `BM25Settings`:
                ``k=5, alpha=0.7, k1=0.9``.

        Returns:
            At most `k` hits, the highest score first; equal scores by document id, ascending (by
            code point). There are fewer if fewer documents can be ranked. If more passages have
            the same score than there are candidates (2 `k` or more), the first added are taken.

        Raises:
            TypeError: `text`, `settings`, `where`, `exclude` or `reranker` is something else, or a
                keyword is unknown.
            What `search_many` raises.
        """
        if not isinstance(text, str):
            raise TypeError(
                f"text: expected one query, found {type(text).__name__}; search_many takes several"
                ", and their vectors as ready=QueryVectors(vectors, index.encoder_spec)"
            )
        results = self.search_many(
            [text], settings, where=where, exclude=exclude, reranker=reranker, **keywords
        )
        raw = keywords.get("raw", settings is not None and settings.raw)
        return Hits(next(results), partial(self._find_highlights, text, raw=raw))

    def _find_highlights(self, text: str, passages: Sequence[str], *, raw: bool) -> list[Spans]:
        from retriever.index.query_advice import find_highlights

        return find_highlights(self._opened, text, passages, raw=raw)

    def search_many(
        self,
        texts: Iterable[str],
        settings: SearchSettings | None = None,
        *,
        where: str | Mapping[str, Any] | None = None,
        exclude: Iterable[str] = (),
        reranker: Reranker | None = None,
        ready: QueryVectors | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> Iterator[list[Hit]]:
        """Find the best documents for each of several queries, in their order.

        They are read as a stream and encoded in batches of 256, unless `ready` holds the vectors of
        all of them. The other arguments, and the hits, are those of `search`.

        Raises:
            TypeError: `texts` or `exclude` is a single string, `settings`, `where`, `reranker` or
                `ready` is something else, or a keyword is unknown.
            ConfigError: a setting is out of range, or `ready` has not one vector of finite numbers
                for each query.
            BadInputError: a query, or a text of `exclude`, is empty or not valid Unicode.
            EncoderMismatchError: the reranker was trained on the vectors of another encoder, or
                `ready` was made by one.
            FilterError: the filter does not parse.
            What `encoder` raises, in the modes that need it.
        """
        require_several("texts", texts)
        requested = search_settings(settings, keywords, ("where", "exclude", "reranker", "ready"))
        return search_many(self._opened, texts, requested, where, exclude, reranker, ready)

    def rank(
        self,
        texts: Iterable[str],
        settings: SearchSettings | None = None,
        *,
        where: str | Mapping[str, Any] | None = None,
        exclude: Iterable[str] = (),
        ready: QueryVectors | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> Iterator[list[tuple[str, float]]]:
        """The id and the score of each hit of `search_many`, in its order; no text is read.

        Raises:
            ConfigError: `settings` has `collapse`, which compares texts.
            What `search_many` raises.
        """
        require_several("texts", texts)
        requested = search_settings(settings, keywords, ("where", "exclude", "ready"))
        return rank_many(self._opened, texts, requested, where, exclude, ready)

    def more_like(
        self,
        id_: str,
        settings: SearchSettings | None = None,
        *,
        start: int = 0,
        where: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> Hits:
        """Find the documents that are most like one of the index; nothing is encoded.

        What they are compared with is the last passage that begins at or before `start`, a
        character offset in the text of the document: its stored vector and, in ``bm25`` and
        ``hybrid``, the terms of its text and of the title. The other arguments, and the hits, are
        those of `search`; the document itself is not among them.

        Raises:
            KeyError: the index holds no such document.
            What `search_many` raises.
        """
        requested = search_settings(settings, keywords, ("start", "where"))
        return find_similar(self._opened, id_, requested, start, where)

    def candidates(
        self, texts: Sequence[str], settings: SearchSettings | None = None
    ) -> list[ScoredPassages]:
        """Return the scores that ``hybrid`` fuses, to try several fusions with one search.

        The queries are encoded together. Raises what `search_many` raises.
        """
        return score_candidates(self._opened, texts, search_settings(settings, {}))

    def browse(self, where: str | Mapping[str, Any] | None = None, *, k: int = 10) -> Hits:
        """The first `k` documents that match a filter, without a query.

        They come in ascending order of ids (by code point) as hits of their first passages, with
        the score 0.

        Raises:
            ConfigError: `k` is below 1.
            FilterError: the filter does not parse.
        """
        return list_documents(self._opened, where, k)

    def excerpt(self, hit: Hit, before: int = 1, after: int = 1) -> Excerpt:
        """The passage of a hit with its neighbors, as one stretch of the document's text.

        Raises:
            BadInputError: `before` or `after`, numbers of passages, is below 0.
            KeyError: the document was deleted or replaced after the search.
        """
        return read_excerpt(self._opened, hit, before, after)

    def vectors(self, hits: Iterable[Hit]) -> NDArray[np.float32]:
        """(hits, dimensions) float32: the stored vectors of the passages of hits, in their order.

        KeyError if a document was deleted or replaced after the search.
        """
        return read_vectors(self._opened, hits)

    def facets(
        self,
        fields: Iterable[str],
        text: str | None = None,
        *,
        where: str | Mapping[str, Any] | None = None,
        limit: int = 10,
        raw: bool = True,
    ) -> Facets:
        """Count the documents that have each value of metadata fields.

        The counts are of all documents that a search can rank, not of its best hits. So a filter
        for a value leaves as many documents as its count says. The modes ``dense`` and
        ``hybrid`` rank every document that passes the filter (`documents`), ``bm25`` those of them
        that share a term with the query (`matches`).

        Args:
            fields: names as a filter writes them: ``lang``, ``author.name``. ``date:month`` counts
                the dates of a field by month, the newest first.
            text: a query; None counts no matches.
            where: count only documents that match this filter.
            limit: maximum number of values of each field, the most frequent first; at least 1.
            raw: as in `SearchSettings`, of ``word*`` alone: phrases and exclusions do not count.

        Raises:
            TypeError: `fields` is a single string.
            ConfigError: `limit` is below 1.
            BadInputError: the query is empty, or not valid Unicode.
            FilterError: the filter does not parse, or a field is no metadata field.
        """
        from retriever.index.facets import count_facets

        return count_facets(self._opened, fields, text, where, limit=limit, raw=raw)

    def fields(self) -> list[FieldSummary]:
        """The metadata fields that filters can use, by name, with types and some of their values.

        Empty for an index of format 2 or older.
        """
        with self._opened.view() as view:
            return view.fields()

    def filter_warning(self, where: str) -> str | None:
        """Return what is doubtful about a filter; searches warn of it, `delete_where` refuses it.

        Doubtful are a field that no document has, and a comparison with a type that no document has
        in the field: ``year = "2020"`` where years are numbers, ``tags = "geo"`` where tags are
        lists. The text names the field, its types and the form that can match; None if all is well.

        Raises:
            FilterError: the filter does not parse.
        """
        from retriever.index.query_advice import describe_filter

        return describe_filter(self._opened, where)

    def difference(self, documents: Iterable[Document]) -> CorpusDifference:
        """How the index differs from a corpus of distinct ids, in numbers of documents."""
        return compare_corpus(self._opened, documents)

    def term_weights(self, text: str, *, raw: bool = True) -> dict[str, float]:
        """Lucene's idf, ln(1 + (N - df + 0.5) / (df + 0.5)), over the N live passages.

        The terms are those of the text that a passage holds, in the order of the text. The terms
        of its expansions follow, multiplied by their weights. `raw` is that of `facets`.
        """
        from retriever.index.query_advice import weigh_terms

        return weigh_terms(self._opened, text, raw=raw)

    def expansions(self, text: str, *, raw: bool = True) -> list[Expansion]:
        """The terms that BM25 adds to the words of a query; `raw` is that of `facets`."""
        from retriever.index.query_advice import expand_query

        return expand_query(self._opened, text, raw=raw)

    def suggestion(self, text: str) -> str | None:
        """A text in which words that no document has are replaced by the nearest that one has.

        See `retriever.search.syntax.correct_text`. A word that the vocabulary of the encoder has
        whole stays, since the encoder knows it, and so does one with `expansions`. None if every
        word is known, or nothing is near.
        """
        from retriever.index.query_advice import suggest_text

        return suggest_text(self._opened, text)

    def no_hits_reason(
        self,
        text: str,
        settings: SearchSettings | None = None,
        *,
        where: str | Mapping[str, Any] | None = None,
        exclude: Iterable[str] = (),
        **keywords: Unpack[SearchKeywords],
    ) -> str:
        """Return why `search` with these arguments has no hits, and what to change."""
        from retriever.index.query_advice import explain_no_hits

        requested = search_settings(settings, keywords, ("where", "exclude"))
        return explain_no_hits(self._opened, text, requested, where, exclude)

    def has_flag(self, word: str) -> bool:
        """Whether a document has a word with a hyphen before it, as in ``java -jar``."""
        from retriever.index.query_advice import has_flag

        return has_flag(self._opened, word)

    def search_note(
        self,
        hits: Sequence[Hit],
        settings: SearchSettings | None = None,
        *,
        where: str | Mapping[str, Any] | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> str | None:
        """Return what to know of the `hits` of `search` with the other arguments; None for nothing.

        In the mode ``bm25``, a query of stop words alone is looked for as a phrase in a limited
        number of texts.
        """
        from retriever.index.query_advice import describe_hits

        requested = search_settings(settings, keywords, ("where",))
        return describe_hits(self._opened, hits, requested, where)

    def hit_features(self, text: str, hits: Sequence[Hit], mode: Mode) -> NDArray[np.float64]:
        """Return features of hits that predict relevance; see `retriever.search.calibration`."""
        from retriever.index.query_advice import measure_hits

        return measure_hits(self._opened, text, hits, mode)

    def answer(
        self,
        hits: Sequence[Hit],
        settings: SearchSettings | None = None,
        *,
        least: float | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> Answer | None:
        """Whether the hits of a search hold an answer, by what `eval.calibrate` has learned.

        Args:
            hits: of one query, as `search` returned them.
            settings: those of the search.
            least: the least probability of an answer; None for the threshold that keeps the promise
                on false answers.
            keywords: those of the search.

        Returns:
            None if nothing was learned for the mode.

        Raises:
            ConfigError: `least` is not from 0 to 1, or nothing was learned for the mode.
        """
        from retriever.index.query_advice import judge_answer

        requested = search_settings(settings, keywords, ("least",))
        return judge_answer(self._opened, hits, requested, least)

    def info(self) -> dict[str, Any]:
        """Describe the index and its content, as JSON values.

        Sizes are in bytes; ``remains`` names what interrupted commands left beside it, and what
        to do about each.
        """
        return describe_index(self._opened)

    def verify(self) -> list[str]:
        """Check every file, count and id; returns a line per problem, which names the file.

        Raises DamagedIndexError if the database cannot be read at all.
        """
        return verify_index(self.store)

    def export(self, output: str | Path, *, vectors: bool = False) -> Exported:
        """Write the documents as JSON Lines, or the vectors as a NumPy array (``.npy``).

        See `retriever.export_jsonl` and `retriever.export_npy`.
        """
        return export_index(self.store, Path(output), vectors=vectors)

    def snapshot(self, target: str | Path) -> Backup:
        """Copy the index, as one of its commits left it; see `retriever.snapshot_index`."""
        from indexes import snapshot_index

        return snapshot_index(self.folder, target)
