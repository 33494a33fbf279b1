"""The public face of an index folder: create, add, delete, search, describe, verify."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from indexes.bm25.formulas import idf
from indexes.bm25.scoring import BM25
from indexes.filters.grammar import Where, compile_where
from indexes.reader import Reader, Snapshot
from indexes.segments.maintenance import compact, estimate_build, merge, rebuild
from indexes.store.connection import (
    DATABASE_FILE,
    is_index,
    refuse_remains,
    require_vacant,
)
from indexes.store.replacement import recover_replacement
from indexes.vectors.choice import Choice
from indexes.vectors.estimate import Estimate
from indexes.vectors.segment_structure import StructureSettings
from indexes.verify import verify
from indexes.writer import Writer
from retriever.analyzer import Analyzer, AnalyzerSettings
from retriever.corpus import Document
from retriever.corpus.documents import string_fault
from retriever.description import describe
from retriever.encoders.choice import ModelChoice
from retriever.encoders.encoder import Encoder
from retriever.encoders.spec import EncoderSpec
from retriever.errors import BadInputError, ConfigError, DamagedIndexError
from retriever.indexing.add import CommitSettings, Indexer
from retriever.indexing.creation import initial_settings, own_name, require_same
from retriever.indexing.difference import CorpusDifference, corpus_difference
from retriever.indexing.passages import OnLong, PassageSettings, check_on_long
from retriever.indexing.report import IndexingReport, NoProgress, Progress
from retriever.search.engine import Engine, Hit, Query, ScoredPassages, SearchSettings
from retriever.search.reranking import Reranker, rerank

_QUERY_BATCH = 256


class Index:
    """An index folder: documents, their vectors and their BM25 postings.

    Make one with `Index.create` or `Index.open`; use it as a context manager or call `close`.
    Reading methods see every commit made before the call, and follow an index made anew under the
    same name, with its encoder and analyser. Changing methods hold the writer lock
    while they run. One object serves one thread.

    Attributes:
        folder: the index folder.
        encoder_spec: the encoder that the index was made with.
        analyzer: the analyser that serves documents and queries.
    """

    def __init__(self, folder: Path, choice: ModelChoice, encoder: Encoder | None) -> None:
        self.folder = folder
        self._choice = choice
        self._encoder = encoder
        self._reader = Reader(folder)
        self._settings_of: int | None = None
        try:
            self._follow_replacement()
        except BaseException:
            self.close()
            raise

    def _follow_replacement(self) -> None:
        """Read the index's settings, unless they are those of the folder that is there now."""
        with self._reader.snapshot() as snapshot:
            if self._settings_of == self._reader.openings:
                return
            self._read_settings(snapshot)
            self._choice.check(self.encoder_spec, self.folder)
            if self._encoder and self._encoder.spec.fingerprint != self.encoder_spec.fingerprint:
                self._encoder = None
            self._settings_of = self._reader.openings

    @contextmanager
    def _current(self) -> Iterator[Snapshot]:
        """The latest commit, with `encoder_spec`, `analyzer` and the rest read from its index."""
        while True:
            with self._reader.snapshot() as snapshot:
                # The index may have been made anew since they were read.
                if self._settings_of == self._reader.openings:
                    yield snapshot
                    return
            self._follow_replacement()

    def _read_settings(self, snapshot: Snapshot) -> None:
        snapshot.check_settings()
        try:
            self.encoder_spec = EncoderSpec.from_json(snapshot.setting("encoder"))
            self.analyzer = Analyzer(
                AnalyzerSettings.from_json(snapshot.setting("analyzer")),
                snapshot.setting("stop_list"),
            )
            self.passages = PassageSettings(**snapshot.setting("passages"))
            self.structures = StructureSettings.from_json(snapshot.setting("structures", {}))
        except (KeyError, TypeError, ValueError, ConfigError) as error:
            raise DamagedIndexError(
                f"{self.folder / DATABASE_FILE}: a setting is missing or altered ({error!r}); "
                "restore it from a backup or index again with --recreate"
            ) from error

    @classmethod
    def open(cls, folder: str | Path, choice: ModelChoice | None = None) -> Index:
        """Open an existing index; no model is loaded before one is needed.

        Raises:
            NotAnIndexError, FormatVersionError, DamagedIndexError
            EncoderMismatchError: `choice` names another encoder than the index's own.
        """
        return cls(own_name(folder), choice or ModelChoice(), None)

    @classmethod
    def create(
        cls,
        folder: str | Path,
        choice: ModelChoice | None = None,
        *,
        analyzer: AnalyzerSettings | None = None,
        passages: PassageSettings | None = None,
        structures: StructureSettings | None = None,
    ) -> Index:
        """Open the index in `folder`, which is made first where there is none yet.

        Args:
            folder: does not exist, is empty, or is an index.
            choice: the encoder.
            analyzer: language of the BM25 side; None takes English, or the index's own.
            passages: how long texts are treated; None splits them, or takes the index's own way.
            structures: how large segments are searched; None chooses, or takes the index's own
                way, which `rebuild` changes.

        Raises:
            What `open` and `Encoder.load` raise; NotAnIndexError: the folder holds other files;
            StorageError: it cannot be written; ConfigError: the index exists and was made with
            another analyser or another way with long texts.
        """
        folder, choice = own_name(folder), choice or ModelChoice()
        encoder = None
        recover_replacement(folder)
        if not is_index(folder):
            require_vacant(folder)
            refuse_remains(folder)
            encoder = choice.load()
            settings = initial_settings(encoder.spec, analyzer, passages, structures)
            with Writer(folder, create=settings):
                pass
        index = cls(folder, choice, encoder)
        try:
            require_same("analyser", analyzer, index.analyzer.settings, folder)
            require_same("way with long texts", passages, index.passages, folder)
            require_same(
                "search structure", structures, index.structures, folder, "change it with `rebuild`"
            )
        except ConfigError:
            index.close()
            raise
        return index

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release files; the object cannot be used afterwards."""
        self._reader.close()

    @property
    def encoder(self) -> Encoder:
        """The index's encoder, loaded when first asked for.

        Raises:
            What `Encoder.from_spec` raises.
        """
        if self._encoder is None:
            self._encoder = Encoder.from_spec(
                self.encoder_spec, device=self._choice.device, download=self._choice.download
            )
        return self._encoder

    def add(
        self,
        documents: Iterable[Document],
        *,
        on_long: OnLong | None = None,
        commit: CommitSettings | None = None,
        progress: Progress | None = None,
        report: IndexingReport | None = None,
        prune: bool = False,
    ) -> IndexingReport:
        """Add documents, or replace those whose id the index holds; unchanged ones cost nothing.

        Args:
            documents: read once, as a stream; of equal ids the last one stands.
            on_long: None takes the index's own way with long texts.
            commit: how often to commit.
            progress: told how far encoding is.
            report: counted into, for a caller that wants to see it after an interruption.
            prune: delete every document that is not among `documents`.

        Raises:
            What `documents` raises (what came before is committed); SourceError for a long text
            with ``on_long="error"``; IndexLockedError; StorageError (earlier commits stand).
        """
        with Writer(self.folder) as writer:
            self._follow_replacement()
            indexer = Indexer(
                writer,
                lambda: self.encoder,
                self.analyzer,
                self.passages,
                on_long=check_on_long(on_long, self.passages),
                commit=commit or CommitSettings(),
                progress=progress or NoProgress(),
                report=report,
            )
            indexer.add(documents)
            if prune:
                indexer.report.deleted = len(writer.delete_untouched())
            return indexer.report

    def delete(self, ids: Sequence[str]) -> list[str]:
        """Delete documents by id; returns those that were there, ascending."""
        with Writer(self.folder) as writer:
            # No id holds NUL, at which SQLite's JSON functions would end it.
            found = writer.delete([id_ for id_ in ids if "\0" not in id_])
            merge(writer)
            return found

    def delete_where(self, where: str) -> list[str]:
        """Delete the documents that match a filter; returns their ids, ascending.

        Raises:
            FilterError: the filter does not parse.
        """
        compiled = compile_where(where)
        with Writer(self.folder) as writer:
            found = writer.delete_where(compiled)
            merge(writer)
            return found

    def compact(self) -> int:
        """Merge all segments into one without what was deleted, and give the space back.

        Searches go on meanwhile, and their answers stay the same.

        Returns:
            How many segments were merged, 0 where there was nothing to do.

        Raises:
            IndexLockedError; StorageError: the disk is full, the index is as before;
            DamagedIndexError: a file of a segment is not as it was written.
        """
        with Writer(self.folder) as writer:
            return compact(writer)

    def plan(self, structures: StructureSettings) -> Choice:
        """What `rebuild` would build of all live passages, why, and what it would take.

        Raises:
            ConfigError: FAISS does not know the structure.
        """
        with self._current() as snapshot:
            return structures.choice(snapshot.statistics.passages, self.encoder_spec.dimensions)

    def estimate(self, structures: StructureSettings) -> Estimate | None:
        """What `rebuild` takes: found by building a small structure of the same kind in memory.

        Returns:
            None where there is nothing to build, or no FAISS to build it with.

        Raises:
            ConfigError: FAISS does not know the structure.
            MissingExtraError: FAISS is not installed, and a factory string is given.
        """
        with self._reader.snapshot() as snapshot:
            return estimate_build(snapshot.segments, structures)

    def rebuild(self, structures: StructureSettings) -> int:
        """Give all segments another search structure, and merge them; nothing is encoded.

        Returns:
            How many segments were read.

        Raises:
            ConfigError: FAISS does not know the structure, or cannot build it of these vectors.
            MissingExtraError: FAISS is not installed.
            What `compact` raises.
        """
        with Writer(self.folder) as writer:
            return rebuild(writer, structures)

    def search(
        self,
        text: str,
        settings: SearchSettings | None = None,
        *,
        where: str | None = None,
        reranker: Reranker | None = None,
    ) -> list[Hit]:
        """The best documents for one query; see `search_many`."""
        return next(self.search_many([text], settings, where=where, reranker=reranker))

    def search_many(
        self,
        texts: Iterable[str],
        settings: SearchSettings | None = None,
        *,
        where: str | None = None,
        reranker: Reranker | None = None,
    ) -> Iterator[list[Hit]]:
        """The best documents for each query, in the order of the queries.

        Args:
            texts: queries; encoded in batches.
            settings: how to rank.
            where: rank only the documents that match this filter, see `indexes.filters.grammar`.
            reranker: ranks the best `settings.depth` hits anew, and the best of those are given
                (see `retriever.search.reranking.load_reranker`).

        Raises:
            BadInputError: a query is blank, or no Unicode text.
            EncoderMismatchError: the reranker was trained on the vectors of another encoder.
            FilterError: the filter does not parse.
            DamagedIndexError: a file of the index is missing or altered.
            What `encoder` raises, in the modes that need it.
        """
        settings = settings or SearchSettings()
        compiled = None if where is None else compile_where(where)
        batch: list[str] = []
        for number, text in enumerate(texts, start=1):
            fault = string_fault(text)
            if not text.strip():
                fault = "is empty: expected at least one word"
            if fault is not None:
                raise BadInputError(f"query {number} {fault}")
            batch.append(text)
            if len(batch) == _QUERY_BATCH:
                yield from self._search(batch, settings, compiled, reranker)
                batch = []
        if batch:
            yield from self._search(batch, settings, compiled, reranker)

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
            if reranker is not None:
                reranker.check(self.encoder_spec)
            queries = [Query(self.analyzer.tokens(text)) for text in texts]
            if settings.mode != "bm25" or (reranker is not None and reranker.reads_vectors):
                vectors = self.encoder.encode(texts, query=True)
                queries = [
                    Query(query.terms, vector)
                    for query, vector in zip(queries, vectors, strict=True)
                ]
            with self._reader.snapshot() as snapshot:
                # An index made anew meanwhile may have another encoder and analyser.
                if self._settings_of == self._reader.openings:
                    found = Engine(snapshot, wide, where).search(queries)
                    if reranker is None:
                        return found
                    return [
                        rerank(snapshot, reranker, text, query.vector, hits)[: settings.k]
                        for text, query, hits in zip(texts, queries, found, strict=True)
                    ]
            self._follow_replacement()

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
            vectors = self.encoder.encode(texts, query=True)
            queries = [
                Query(self.analyzer.tokens(text), vector)
                for text, vector in zip(texts, vectors, strict=True)
            ]
            with self._reader.snapshot() as snapshot:
                # An index made anew meanwhile may have another encoder and analyser.
                if self._settings_of == self._reader.openings:
                    return Engine(snapshot, settings).candidates(queries)
            self._follow_replacement()

    def difference(self, documents: Iterable[Document]) -> CorpusDifference:
        """How the index differs from a corpus, in numbers of documents; nothing is changed.

        Args:
            documents: with distinct ids; read once, as a stream.
        """
        with self._current() as snapshot:
            return corpus_difference(snapshot, documents)

    def term_weights(self, text: str) -> dict[str, float]:
        """How much BM25 weighs the terms of a text, by the passages that are live now.

        Returns:
            Lucene's idf of each term that a passage holds, ln(1 + (N - df + 0.5) / (df + 0.5)),
            in the order of the text: above 0, and the higher the fewer of the N passages hold it.
        """
        with self._current() as snapshot:
            bm25 = BM25(snapshot.segments, statistics=snapshot.statistics)
            held = bm25.document_frequencies(self.analyzer.tokens(text))
            passages = snapshot.statistics.passages
            return {term: idf("lucene", df, passages) for term, df in held.items() if df}

    def info(self) -> dict[str, Any]:
        """What the index is and holds, as JSON values."""
        with self._current() as snapshot:
            return describe(
                self.folder,
                snapshot,
                encoder=self.encoder_spec,
                analyzer=self.analyzer.settings,
                passages=self.passages,
                structures=self.structures,
            )

    def verify(self) -> list[str]:
        """Check every file, count and id; returns what is wrong, a line each."""
        return verify(self.folder)
