"""One index: the class `Index`, which opens, creates and changes one."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np

from indexes import compile_where, id_forms, no_progress, open_store
from retriever.documents.document import (
    AnyDocument,
    Document,
    content_id,
    is_id,
    metadata_fault,
    plain_metadata,
)
from retriever.encoders.encoder import Encoder, ModelChoice, adopt
from retriever.errors import (
    BadInputError,
    ConfigError,
    EncoderMismatchError,
    FilterError,
    IndexLockedError,
    require_several,
)
from retriever.index.reading import ReadableIndex
from retriever.search.opened import (
    IndexSettings,
    OpenedIndex,
    changed_settings,
    holds_documents,
    initial_settings,
)
from retriever.search.settings import CALIBRATION

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from indexes import Choice, Stage, Store, StructureSettings, Writer
    from retriever.documents.passages import OnLong
    from retriever.encoders.settings import AskedDtype, EncoderSettings
    from retriever.encoders.spec import EncoderSpec, TextEncoder
    from retriever.index.embedded_documents import ReadyDocument
    from retriever.index.indexing import Indexer
    from retriever.index.indexing_run import CommitSettings, IndexingReport, Progress
    from retriever.index.refreshing import RefreshReport
    from retriever.search.calibration import Calibration
    from retriever.search.opened import IndexKeywords


class Index(ReadableIndex):
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
        self._lock_timeout = lock_timeout
        # The lock of this process, and the thread that has it.
        self._writing = threading.Lock()
        self._changer = (os.getpid(), 0)

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
            folder: the index folder, or the URL of another store; docs/stores.md lists them.
            model: the encoder that the index is expected to have, as settings or in their text
                form; empty for any.
            encoder: a loaded encoder, which several indexes can share; see `create`.
            device: torch device of the model; None uses a GPU if there is one.
            download: allow downloads of a hub id that is not in the cache.
            dtype: number format of new vectors where neither `model` nor the index names one;
                docs/computing.md has the rule of auto.
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
        asked = ModelChoice(model, device, download, dtype)
        return cls(OpenedIndex(open_store(folder), asked, adopt(encoder)), lock_timeout)

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
            device: as of `open`.
            download: as of `open`.
            dtype: as of `open`.
            lock_timeout: as of `open`.
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
        wanted = IndexSettings.of(settings)
        asked = ModelChoice(model, device, download, dtype)
        if encoder is not None and asked.encoder:
            raise TypeError("model and encoder are both given: give one of them")
        store = open_store(folder)
        loaded = adopt(encoder)
        if store.exists() and not exist_ok:
            raise ConfigError(f"{store}: the index exists; open it with Index.open")
        if not store.exists():
            loaded = loaded or asked.load()
            store.create(initial_settings(loaded, wanted), lock_timeout)
        try:
            return cls(OpenedIndex(store, asked, loaded, wanted), lock_timeout)
        except (ConfigError, EncoderMismatchError):
            if holds_documents(store):
                raise
            settings_of_new = changed_settings(store, wanted, asked, loaded)
            with store.replacement(json.dumps(settings_of_new)) as new:
                # Under the lock, since another process may have added some meanwhile.
                if holds_documents(store):
                    raise
                new.create(settings_of_new)
        return cls(OpenedIndex(store, asked, loaded, wanted), lock_timeout)

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
        """Open or create the index in `folder` as `create` does, and add documents to it."""
        index = cls.create(folder, **settings)
        try:
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
                pandas, polars or Arrow are such mappings; this needs pyarrow. Of equal ids the last
                stands. A document without text and title is counted and not stored, with a
                warning; the document that the index has with its id is deleted. A `Path` is read
                as ``retriever index PATH`` reads it.
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
        from retriever.documents.reader import CorpusReader
        from retriever.documents.tables import is_table, table_documents
        from retriever.index.embedded_documents import ReadyDocument, with_vectors
        from retriever.index.fit_measurement import measure_fit

        if isinstance(documents, str | bytes | Mapping | Document | ReadyDocument):
            raise TypeError(
                f"documents: expected several documents, found one {type(documents).__name__}; "
                "put it into a list"
            )
        if isinstance(documents, Path):
            documents = CorpusReader([documents])
        if is_table(documents):
            documents = table_documents(documents)
        columns = {"ids": ids, "metadatas": metadatas}
        columns_given = {name: values for name, values in columns.items() if values is not None}
        if columns_given:
            for name, values in columns_given.items():
                require_several(name, values)
            documents = _documents_of_texts(documents, columns_given)
        with self._writer() as writer, ExitStack() as stack:
            state = self._opened.settings()
            if made_by is not None and made_by.fingerprint != state.encoder.fingerprint:
                raise EncoderMismatchError(
                    f"{self.store}: the index has the encoder {state.encoder}, but the vectors "
                    f"are of {made_by}; add them to another index"
                )
            indexer = self._indexer(
                writer, on_long, commit=commit, progress=progress, stage=stage, report=report
            )
            read: Iterable[AnyDocument | ReadyDocument] = documents
            if remember and isinstance(documents, CorpusReader):
                from retriever.index.refreshing import remembered

                read = stack.enter_context(
                    remembered(self.store, documents, indexer, on_long=on_long, prune=prune)
                )
            indexer.add(with_vectors(read, vectors))
            if prune:
                if not writer.count_touched() and (held := len(self)):
                    raise ConfigError(
                        f"{self.store}: no document was read, and pruning would delete all "
                        f"{held:,}; check the source, or delete them with `clear`"
                    )
                indexer.report.deleted += writer.delete_untouched()
                writer.merge(stage)
            measure_fit(self._opened, writer, indexer.sample, indexer.added)
            if compact:
                indexer.merge()
            # A reader says itself which ones they are, with their places.
            if indexer.report.empty and not isinstance(documents, CorpusReader):
                warnings.warn(indexer.report.empty_note, stacklevel=2)
            return indexer.report

    def _indexer(self, writer: Writer, on_long: OnLong | None, **keywords: Any) -> Indexer:
        from retriever.documents.passages import check_on_long
        from retriever.index.indexing import Indexer

        state = self._opened.settings()
        return Indexer(
            writer,
            lambda: self._opened.encoder(state),
            state.analyzer,
            state.passages,
            spec=state.encoder,
            on_long=check_on_long(on_long, state.passages),
            view=self._opened.view,
            **keywords,
        )

    @property
    def sources(self) -> list[str]:
        """The sources that the index remembers, as absolute paths, in the order of reading."""
        from retriever.index.refreshing import remembered_sources

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
        from retriever.index.refreshing import refreshed

        return refreshed(self, prune=prune, progress=progress, stage=stage, seconds=seconds)

    def update(self, id_: str, *, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of a document as a whole; nothing is encoded.

        Raises:
            KeyError: the index holds no such document.
            BadInputError: the metadata cannot be stored.
        """
        if not isinstance(metadata, Mapping):
            raise TypeError(f"metadata: expected a mapping, found {type(metadata).__name__}")
        metadata = plain_metadata(metadata)
        fault = metadata_fault(metadata)
        if fault is not None:
            raise BadInputError(f"document {id_!r}: {fault}")
        with self._writer() as writer:
            if not (is_id(id_) and writer.heads([id_])):
                raise KeyError(id_)
            writer.commit([], np.empty((0, 0), np.float32), [], {id_: metadata})

    def keep_calibration(self, calibration: Calibration) -> None:
        """Store what was learned for a mode, in place of what was there; see `eval.calibrate`."""
        with self._writer() as writer:
            known = writer.setting(CALIBRATION, {})
            writer.record(CALIBRATION, {**known, calibration.mode: asdict(calibration)})

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
        if (ids is None) == (where is None):
            raise TypeError("delete: give either ids or where; `clear` deletes every document")
        compiled = None if where is None else compile_where(where)
        if ids is not None:
            require_several("ids", ids)
            ids = list(ids)
            for id_ in ids:
                if not isinstance(id_, str):
                    raise TypeError(f"ids: expected strings, found one {type(id_).__name__}")
        if erase and self.store.folder is None:
            raise ConfigError(
                f"{self.store}: erasing needs an index folder, found a database, which keeps what "
                "was deleted in logs and files of its own; nothing was deleted"
            )
        with self._writer() as writer:
            if compiled is None:
                deleted = writer.delete(self._stored_forms(ids or ()))
            else:
                with self._opened.view() as view:
                    problem = self._opened.describe_doubt(view, compiled)
                if problem:
                    raise FilterError(f"filter: {problem}; nothing was deleted")
                deleted = writer.delete_where(compiled)
            if not erase:
                writer.merge()
                return deleted
            from retriever.index.sources import SourceMemory, memory_path

            writer.compact(stage, erase=True)
            if memory_path(self.store).exists():
                with SourceMemory(self.store) as memory:
                    memory.erase(writer.heads)
            return deleted

    def _stored_forms(self, ids: Iterable[str]) -> list[str]:
        """The ids, each in the form of Unicode in which the index has it."""
        forms = {id_: id_forms(id_) for id_ in ids if is_id(id_)}
        ambiguous = [form for several in forms.values() if len(several) > 1 for form in several]
        if not ambiguous:
            return list(ids)
        with self._opened.view() as view:
            stored = view.content_hashes(ambiguous)
        return [next((form for form in forms.get(id_, ()) if form in stored), id_) for id_ in ids]

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
        with self._writer() as writer:
            deleted = writer.delete_untouched()
            writer.merge()
            return deleted

    def compact(self, *, stage: Stage = no_progress) -> int:
        """Merge all segments into one, drop what was deleted, and free its space.

        Searches run meanwhile, and their answers stay the same. `stage` receives the progress of a
        search structure that is built. Returns the number of segments merged.

        The passages of each language are counted again where earlier releases, which counted those
        of deleted documents too, stored any.
        """
        with self._writer() as writer:
            if not writer.are_languages_counted():
                self._count_languages(writer)
            return writer.compact(stage)

    def _count_languages(self, writer: Writer) -> None:
        from retriever.index.passage_texts import stored_texts

        with self._opened.view() as view:
            state = self._opened.settings_of(view)
            texts = (
                (document, stored_texts(document, state.passages, names=False))
                for document in view.documents()
            )
            tell = state.analyzer.languages
            writer.count_languages(
                (stored, [" ".join(tell(text)) for text in passages]) for stored, passages in texts
            )

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
        with self._writer() as writer:
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
        from retriever.index.recreation import reindexed

        with self._changing():
            report = reindexed(
                self.store,
                model,
                encoder=encoder,
                device=self._opened.requested.device,
                download=self._opened.requested.download,
                progress=progress,
                **settings,
            )
            if report is not None:
                self._opened.replace_encoder(adopt(encoder))
            return report

    @contextmanager
    def _writer(self) -> Iterator[Writer]:
        # Not after `close`.
        self._opened.settings()
        with self._changing(), self.store.writer(self._lock_timeout) as writer:
            yield writer

    @contextmanager
    def _changing(self) -> Iterator[None]:
        process = os.getpid()
        thread = threading.get_ident()
        if self._changer == (process, thread):
            raise IndexLockedError(
                f"{self.store}: this thread is already changing the index, as by an `add` that "
                "reads its documents; change it again when that has ended"
            )
        if self._changer[0] != process:
            # Forked: the thread that had the lock is in the parent.
            self._writing = threading.Lock()
            self._changer = (process, 0)
        with self._writing:
            self._changer = process, thread
            try:
                yield
            finally:
                self._changer = process, 0


def _documents_of_texts(
    texts: Iterable[Any], columns: Mapping[str, Iterable[Any]]
) -> Iterator[Document]:
    """Yield the documents of texts, each with its id and metadata from `columns`.

    An id that is not given is made of the text. ValueError if a column is longer or shorter than
    `texts`; TypeError if one of them is no text.
    """
    names = tuple(columns)
    rows = zip_longest(texts, *columns.values(), fillvalue=...)
    for number, (text, *values) in enumerate(rows, start=1):
        if text is ...:
            raise ValueError(f"{names[0]}: expected one for each document, found more")
        for name, value in zip(names, values, strict=True):
            if value is ...:
                raise ValueError(
                    f"{name}: expected one for each document, found only {number - 1:,}"
                )
        if not isinstance(text, str):
            raise TypeError(
                f"document {number}: expected a text, since {names[0]} are given, found "
                f"{type(text).__name__}"
            )
        fields = dict(zip(names, values, strict=True))
        id_ = fields["ids"] if "ids" in fields else content_id(None, text)
        yield Document(id_, text, metadata=dict(fields.get("metadatas") or {}))
