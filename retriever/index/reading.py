"""What reads an index: its settings and documents, searches, copies."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack

from indexes import LABEL, LANGUAGES, Expansion, Query, compile_where, id_forms, idf, parse_field
from retriever.documents.document import Document, document_of, is_id
from retriever.documents.passages import passage_text
from retriever.errors import BadInputError, ConfigError, require_several, unknown_name
from retriever.search.engine import Hits, hit_of, ranked_hits, scored_passages
from retriever.search.opened import OpenedIndex, read_structures, uncounted_passages, verify_index
from retriever.search.queries import (
    Excerpt,
    check_query,
    describe_unknown_fields,
    excluded_texts,
    map_queries,
    prepare_queries,
    query_terms,
    rank_texts,
    search_texts,
    warn_doubtful,
)
from retriever.search.settings import (
    CALIBRATION,
    DEFAULT_WEIGHT,
    FIT,
    SearchKeywords,
    SearchSettings,
    search_settings,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from indexes import (
        Backup,
        Facets,
        FieldSummary,
        Mode,
        Store,
        StoredDocument,
        StructureSettings,
        View,
    )
    from retriever.documents.analyzer import Analyzer
    from retriever.documents.passages import PassageSettings
    from retriever.encoders.encoder import Encoder
    from retriever.encoders.spec import EncoderSpec
    from retriever.index.export import Exported
    from retriever.rerankers.head import QueryMap
    from retriever.search.calibration import Answer
    from retriever.search.engine import Hit, ScoredPassages
    from retriever.search.queries import QueryVectors
    from retriever.search.reranking import Reranker
    from retriever.search.synonyms import Synonyms

# Documents whose stored state is looked up together.
_CHUNK = 512


class CorpusDifference(NamedTuple):
    """Numbers of documents in a corpus, and of those that an index lacks or has changed."""

    corpus: int
    missing: int
    changed: int
    foreign: int  # of the index, which the corpus does not have


class ReadableIndex:
    """The half of `Index` that changes nothing and takes no lock."""

    store: Store
    _opened: OpenedIndex

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def close(self) -> None:
        """Release files; later calls of other methods raise `ClosedIndexError`."""
        self._opened.close()

    def __repr__(self) -> str:
        with self._opened.view() as view:
            encoder = self._opened.settings_of(view).encoder
            return (
                f"<Index {str(self.store)!r}: {view.count_documents():,} documents, "
                f"{view.passage_count:,} passages, encoder {encoder}>"
            )

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
        """What maps the vectors of queries before every search; see `load_query_map`.

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
        with self._opened.view() as view:
            stored = _stored(view, id_)
        return document_of(stored)

    def spans(self, id_: str) -> list[tuple[int, int]]:
        """(start, stop) character offsets of the passages of a document; KeyError if unknown."""
        with self._opened.view() as view:
            stored = _stored(view, id_)
        return [(start, stop) for _, start, stop in stored.passages]

    def __iter__(self) -> Iterator[Document]:
        """All documents of one commit, as a stream in ascending order of ids (by code point)."""
        with self._opened.view() as view:
            for stored in view.documents():
                yield document_of(stored)

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
                docs/ranking.md, or the values of fields, ``{"year": 2020, "lang": ["en", "de"]}``.
            exclude: words, in any of their forms, and phrases that no hit holds.
            reranker: scores the best `settings.depth` hits again; see `load_reranker`.
            keywords: single fields of `SearchSettings`, `FusionSettings` and `BM25Settings`:
                ``k=5, alpha=0.7, k1=0.9``.

        Returns:
            At most `k` hits, the highest score first; equal scores by document id, ascending (by
            code point). There are fewer if fewer documents can be ranked. Of more passages with
            equal scores than are candidates (2 `k` or more), those that were added first are.

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
        return Hits(next(results))

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
        resolved = search_settings(settings, keywords, ("where", "exclude", "reranker", "ready"))
        if reranker is not None:
            from retriever.search.reranking import check_reranker

            check_reranker(reranker)
        compiled = None if where is None else compile_where(where)
        excluded = excluded_texts(exclude) if exclude else ()
        return search_texts(
            self._opened, texts, resolved, compiled, reranker, ready, exclude=excluded
        )

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
        resolved = search_settings(settings, keywords, ("where", "exclude", "ready"))
        if resolved.collapse:
            raise ConfigError("collapse: it compares texts; use search_many")
        compiled = None if where is None else compile_where(where)
        excluded = excluded_texts(exclude) if exclude else ()
        return rank_texts(self._opened, texts, resolved, compiled, ready, exclude=excluded)

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
        wanted = search_settings(settings, keywords, ("start", "where"))
        compiled = None if where is None else compile_where(where)
        with self._opened.view() as view:
            stored = _stored(view, id_)
            # Passages overlap: the last one that has begun there.
            begun = [one for one in stored.passages if one[1] <= start] or stored.passages[:1]
            passage, first, last = begun[-1]
            state = self._opened.settings_of(view)
            passages = state.passages
            text = passage_text(
                document_of(stored), (first, last), passages.context, tables=passages.tables
            )
            terms = state.analyzer.query_tokens(text, view.setting("languages", {}))
            warn_doubtful(self._opened, view, compiled)
            # One more, since the document itself may be among them.
            query = Query(terms, view.vectors([passage])[0])
            (hits,) = ranked_hits(view, replace(wanted, k=wanted.k + 1), [query], compiled)
        neighbors = [hit for hit in hits if hit.id != stored.id][: wanted.k]
        return Hits(replace(hit, rank=rank) for rank, hit in enumerate(neighbors, start=1))

    def candidates(
        self, texts: Sequence[str], settings: SearchSettings | None = None
    ) -> list[ScoredPassages]:
        """What the mode ``hybrid`` fuses for each query, to try several fusions with one search.

        The queries are encoded together. Raises what `search_many` raises.
        """
        wanted = replace(search_settings(settings, {}), mode="hybrid")
        with prepare_queries(self._opened, texts) as (view, queries):
            query_map = self.query_map
            searched = queries if query_map is None else map_queries(query_map, queries)
            return scored_passages(view, wanted, searched)

    def browse(self, where: str | Mapping[str, Any] | None = None, *, k: int = 10) -> Hits:
        """The first `k` documents that match a filter, without a query.

        They come in ascending order of ids (by code point) as hits of their first passages, with
        the score 0.

        Raises:
            ConfigError: `k` is below 1.
            FilterError: the filter does not parse.
        """
        if k < 1:
            raise ConfigError(f"k: expected 1 or more, found {k}")
        compiled = None if where is None else compile_where(where)
        with self._opened.view() as view:
            warn_doubtful(self._opened, view, compiled)
            first = [one.passages[0][0] for one in islice(view.documents(compiled), k)]
            stored = view.passages(first)
        return Hits(hit_of(stored[one], rank) for rank, one in enumerate(first, start=1))

    def excerpt(self, hit: Hit, before: int = 1, after: int = 1) -> Excerpt:
        """The passage of a hit with its neighbors, as one stretch of the document's text.

        Raises:
            BadInputError: `before` or `after`, numbers of passages, is below 0.
            KeyError: the document was deleted or replaced after the search.
        """
        if before < 0 or after < 0:
            raise BadInputError(f"excerpt: expected 0 or more passages, found {min(before, after)}")
        with self._opened.view() as view:
            stored = _stored(view, hit.id)
        own = (hit.passage_number, hit.start, hit.stop)
        if own not in stored.passages:
            raise KeyError(hit.id)
        place = stored.passages.index(own)
        beside = stored.passages[max(0, place - before) : place + after + 1]
        start = beside[0][1]
        stop = max(stop for _, _, stop in beside)
        return Excerpt(hit.id, start, stop, stored.text[start:stop], len(stored.text))

    def vectors(self, hits: Iterable[Hit]) -> NDArray[np.float32]:
        """(hits, dimensions) float32: the stored vectors of the passages of hits, in their order.

        KeyError if a document was deleted or replaced after the search.
        """
        with self._opened.view() as view:
            wanted = list(hits)
            for hit in wanted:
                if (hit.passage_number, hit.start, hit.stop) not in _stored(view, hit.id).passages:
                    raise KeyError(hit.id)
            return view.vectors([hit.passage_number for hit in wanted])

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
            fields: names as a filter writes them: ``lang``, ``author.name``.
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
        require_several("fields", fields)
        if limit < 1:
            raise ConfigError(f"limit: expected 1 or more, found {limit}")
        names = list(fields)
        compiled = None if where is None else compile_where(where)
        top = [parse_field(name)[0] for name in names]
        if text is not None:
            check_query(text)
        with self._opened.view() as view:
            warn_doubtful(self._opened, view, compiled)
            if problem := describe_unknown_fields(view, top):
                warnings.warn(f"facets: {problem}", stacklevel=2)
            terms = None
            if text is not None:
                terms = query_terms(self._opened, view, text, has_beginnings=not raw)
            return view.facets(names, compiled, terms, limit)

    def fields(self) -> list[FieldSummary]:
        """The metadata fields that filters can use, by name, with types and some of their values.

        Empty for an index of format 2 or older.
        """
        with self._opened.view() as view:
            return view.fields()

    def filter_warning(self, where: str) -> str | None:
        """What is doubtful about a filter, which searches warn of and `delete_where` refuses.

        Doubtful are a field that no document has, and a comparison with a type that no document has
        in the field: ``year = "2020"`` where years are numbers, ``tags = "geo"`` where tags are
        lists. The text names the field, its types and the form that can match; None if all is well.

        Raises:
            FilterError: the filter does not parse.
        """
        with self._opened.view() as view:
            problem = self._opened.describe_doubt(view, compile_where(where))
        return None if problem is None else f"filter: {problem}"

    def difference(self, documents: Iterable[Document]) -> CorpusDifference:
        """How the index differs from a corpus of distinct ids, in numbers of documents."""
        from retriever.index.passage_texts import content_hash

        corpus = missing = changed = 0
        stream = iter(documents)
        with self._opened.view() as view:
            passages = self._opened.settings_of(view).passages
            while chunk := list(islice(stream, _CHUNK)):
                stored = view.content_hashes([document.id for document in chunk])
                corpus += len(chunk)
                missing += len(chunk) - len(stored)
                changed += sum(
                    stored.get(document.id) not in (None, content_hash(document, passages))
                    for document in chunk
                )
            foreign = view.count_documents() - (corpus - missing)
        return CorpusDifference(corpus, missing, changed, foreign)

    def term_weights(self, text: str, *, raw: bool = True) -> dict[str, float]:
        """Lucene's idf, ln(1 + (N - df + 0.5) / (df + 0.5)), over the N live passages.

        The terms are those of the text that a passage holds, in the order of the text. The terms
        of its expansions follow, multiplied by their weights. `raw` is that of `facets`.
        """
        with self._opened.view() as view:
            terms = query_terms(self._opened, view, text, has_beginnings=not raw)
            passages = view.passage_count
            weights = {
                term: idf("lucene", df, passages)
                for term, df in view.document_frequencies(terms).items()
                if df
            }
        plain = {term: weight for term, weight in weights.items() if isinstance(term, str)}
        for term, weight in weights.items():
            if isinstance(term, Expansion):
                # As important as the word itself, however frequent they are together.
                own = [plain[name] for name in chain(*term.terms) if name in plain]
                for name in chain(*term.alternatives):
                    plain.setdefault(name, term.weight * max([weight, *own]))
        return plain

    def expansions(self, text: str, *, raw: bool = True) -> list[Expansion]:
        """The terms that BM25 adds to the words of a query; `raw` is that of `facets`."""
        with self._opened.view() as view:
            terms = query_terms(self._opened, view, text, has_beginnings=not raw)
        expansions = [term for term in terms if isinstance(term, Expansion)]
        # Terms of labels repeat the words of texts.
        return [term for term in expansions if not term.alternatives[0][0].startswith(LABEL)]

    def suggestion(self, text: str) -> str | None:
        """A text in which words that no document has are replaced by the nearest that one has.

        See `retriever.search.syntax.correct_text`. A word that the vocabulary of the encoder has
        whole stays, since the encoder knows it, and so does one with `expansions`. None if every
        word is known, or nothing is near.
        """
        from retriever.encoders.model_folders import read_vocabulary, vocabulary_has
        from retriever.search.syntax import correct_text

        with self._opened.view() as view:
            state = self._opened.settings_of(view)

            # The file alone is read: the encoder may not be loaded, as for a BM25 query.
            @cache
            def vocabulary() -> bytes:
                return b"" if state.encoder.is_given else read_vocabulary(state.encoder.model)

            @cache
            def expanded() -> set[str]:
                terms = query_terms(self._opened, view, text, has_beginnings=True)
                names = [term.word for term in terms if isinstance(term, Expansion)]
                return {word.rstrip("*") for name in names for word in name.lower().split()}

            def is_known(word: str) -> bool:
                return word in expanded() or vocabulary_has(vocabulary(), word)

            return correct_text(text, view, state.analyzer, is_known)

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
        from retriever.search.syntax import ParsedQuery, no_hits_reason, parse_query

        requested = search_settings(settings, keywords, ("where", "exclude"))
        compiled = None if where is None else compile_where(where)
        excluded = excluded_texts(exclude) if exclude else ()
        query = ParsedQuery(text) if requested.raw else parse_query(text, self.has_flag)

        def has_hits(text: str, where: str | None) -> bool:
            single = replace(requested, k=1, collapse=False)
            return bool(self.search(text, single, where=where))

        with self._opened.view() as view:
            has_beginnings = not requested.raw
            terms = query_terms(self._opened, view, query.text, has_beginnings=has_beginnings)
            return no_hits_reason(query, requested.mode, compiled, view, terms, has_hits, excluded)

    def has_flag(self, word: str) -> bool:
        """Whether a document has a word with a hyphen before it, as in ``java -jar``."""
        from retriever.search.syntax import has_flag_term

        with self._opened.view() as view:
            return has_flag_term(view, word)

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
        # A hit of BM25 without a rank holds no term of the query.
        is_bm25 = search_settings(settings, keywords, ("where",)).mode == "bm25"
        if not is_bm25 or not hits or hits[0].bm25_rank is not None:
            return None
        from retriever.search.stop_words import search_note

        with self._opened.view() as view:
            return search_note(view, None if where is None else compile_where(where))

    def hit_features(self, text: str, hits: Sequence[Hit], mode: Mode) -> NDArray[np.float64]:
        """What tells whether hits of a query are relevant; see `retriever.search.calibration`."""
        from retriever.search.calibration import hit_features

        with self._opened.view() as view:
            analyzer = self._opened.settings_of(view).analyzer
            terms = query_terms(self._opened, view, text)
            return hit_features(hits, terms, view, analyzer, mode)

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
        wanted = search_settings(settings, keywords, ("least",))
        if least is not None and not 0 <= least <= 1:
            raise ConfigError(f"least: expected a probability from 0 to 1, found {least}")
        if not hits or hits[0].answer_probability is not None:
            with self._opened.view() as view:
                if view.setting(CALIBRATION, {}):
                    from retriever.search.calibration import Calibration

                    if (learned := Calibration.read(view, wanted.mode)) is not None:
                        return learned.answer(hits, view, wanted, least)
        if least is not None:
            raise ConfigError(
                f"{self.store}: no probabilities were learned for the mode {wanted.mode}; learn "
                f"them with `retriever calibrate -i {self.store} --mode {wanted.mode}`"
            )
        return None

    def info(self) -> dict[str, Any]:
        """What the index is and holds, as JSON values.

        Sizes are in bytes; ``remains`` names what interrupted commands left beside it, and what
        to do about each.
        """
        from retriever.encoders.registry import describe

        with self._opened.view() as view:
            state = self._opened.settings_of(view)
            encoder = state.encoder
            return {
                "index": str(self.store),
                "created": view.setting("created"),
                "documents": view.count_documents(),
                "passages": view.passage_count,
                "encoder": {
                    **encoder.to_json(),
                    "model": encoder.model,
                    "max_length": encoder.max_length,
                    "fingerprint": encoder.fingerprint,
                    "computed": view.setting("computed", []),
                    **describe(encoder),
                },
                "analyzer": asdict(state.analyzer.settings),
                "languages": view.setting(LANGUAGES, {}),
                "fit": view.setting(FIT, {}),
                "calibration": view.setting(CALIBRATION, {}),
                "long_texts": asdict(state.passages),
                "structures": asdict(read_structures(view, self.store)),
                **view.describe(),
                "uncounted_passages": uncounted_passages(view),
            }

    def verify(self) -> list[str]:
        """Check every file, count and id; returns a line per problem, which names the file.

        Raises DamagedIndexError if the database cannot be read at all.
        """
        return verify_index(self.store)

    def export(self, output: str | Path, *, vectors: bool = False) -> Exported:
        """Write the documents as JSON Lines, or the vectors as a NumPy array (``.npy``).

        See `retriever.export_jsonl` and `retriever.export_npy`.
        """
        from retriever.index.export import export_jsonl, export_npy

        output = Path(output)
        if output.suffix == ".npy":
            return export_npy(self.store, output)
        return export_jsonl(self.store, output, vectors=vectors)

    def snapshot(self, target: str | Path) -> Backup:
        """Copy the index, as one of its commits left it; see `retriever.snapshot_index`."""
        from indexes import snapshot_index

        return snapshot_index(self.folder, target)


def _stored(view: View, id_: str) -> StoredDocument:
    """A document with its passages; KeyError if the index holds none with this id."""
    forms = id_forms(id_) if is_id(id_) else []
    stored = next(filter(None, map(view.document, forms)), None)
    if stored is None:
        raise KeyError(id_)
    return stored
