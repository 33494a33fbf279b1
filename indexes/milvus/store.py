"""The store of an index in Milvus: its reader, writer, view and ranking; see `indexes.protocol`.

There are no transactions: a run that was interrupted is run again. The first row of a document,
whose hash says that the document is stored, is written after all others.

Milvus searches by two fields: the vectors, and the sparse BM25 weights with the idf of the query's
terms. Every candidate is scored by both.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.formulas import BM25Settings
from indexes.bm25.scoring import term_factors, text_and_label_counts, with_labels
from indexes.errors import ClosedIndexError, ConfigError, StorageError
from indexes.filters.facets import counted_facet, summaries_of
from indexes.filters.grammar import Where, parse_field
from indexes.metadata import metadata_json
from indexes.milvus.collection import (
    FORMAT,
    MilvusCollection,
    Row,
    create_collection,
    document_of,
    find_collection,
    hash_of,
    open_collection,
    passage_rows,
)
from indexes.milvus.connection import MilvusLocation, call, parse_location, run
from indexes.milvus.filters import (
    NOTHING,
    alternatives_of,
    field_column,
    holds_any,
    text_list,
    text_literal,
    where_expression,
)
from indexes.protocol import (
    LANGUAGES,
    AnyTerm,
    Candidates,
    Facets,
    FieldSummary,
    Mode,
    NewDocument,
    Passage,
    Query,
    Store,
    StoredDocument,
    StoredVersion,
    Term,
    View,
    Writer,
)
from indexes.vectors.flat import exact_scores, rounded

# Rows that are read together, and documents.
_READ_ROWS = 1000
_DOCUMENTS = 100
# Rows that are written together: the largest rows, times this, fit a message of 64 MB.
_WRITTEN_ROWS = 200
_COLUMNS = (
    *("passage", "id", "ordinal", "hash", "passages", "title", "metadata"),
    *("text", "offset", "start", "stop", "outline"),
)


class MilvusStore(Store):
    """An index in Milvus or, with `begun_with`, the one that is to replace it."""

    def __init__(
        self, location: str | MilvusLocation, begun_with: str = "", suffix: str = ""
    ) -> None:
        self.location = parse_location(location) if isinstance(location, str) else location
        self._begun_with = begun_with
        self._alias = self.location.index + suffix

    @property
    def name(self) -> str:
        return self.location.index

    def __str__(self) -> str:
        return str(self.location)

    def exists(self) -> bool:
        return find_collection(self.location, self._alias) is not None

    def create(self, settings: Mapping[str, Any], lock_timeout: float = 0.0) -> None:
        if not self.exists():
            create_collection(self.location, self._alias, self._begun_with, dict(settings))

    def reader(self) -> MilvusReader:
        """Open it for reading; its first view says if there is no index."""
        return MilvusReader(self.location, self._alias)

    @contextmanager
    def writer(self, lock_timeout: float = 0.0) -> Iterator[MilvusWriter]:
        """Open it for writing; nothing keeps other writers out."""
        yield MilvusWriter(self.location, open_collection(self.location, self._alias))

    @contextmanager
    def replacement(self, begun_with: str) -> Iterator[MilvusStore]:
        """Open a new collection, which takes over the alias of this one."""
        new = MilvusStore(self.location, begun_with, "_next")
        unfinished = find_collection(self.location, new._alias)
        if unfinished is not None and unfinished.begun_with != begun_with:
            call(self.location, "drop_alias", new._alias)
            call(self.location, "drop_collection", unfinished.name)
        yield new
        replacement = find_collection(self.location, new._alias)
        former = find_collection(self.location, self._alias)
        if replacement is not None:
            change = "create_alias" if former is None else "alter_alias"
            call(self.location, change, replacement.name, self._alias)
            call(self.location, "drop_alias", new._alias)
            if former is not None:
                call(self.location, "drop_collection", former.name)


class MilvusReader:
    """Reads one index; see `indexes.protocol.Reader`."""

    def __init__(self, location: MilvusLocation, alias: str) -> None:
        self._location = location
        self._alias = alias
        self._view: MilvusView | None = None
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True

    @contextmanager
    def view(self) -> Iterator[MilvusView]:
        """Read what the index holds now; raises `NotAnIndexError`, `FormatVersionError`."""
        if self._is_closed:
            raise ClosedIndexError(f"{self._location}: the index was closed; open it again")
        collection = open_collection(self._location, self._alias)
        if self._view is None or self._view.collection != collection:
            self._view = MilvusView(self._location, collection)
        yield self._view


class MilvusView(View):
    """An index with all earlier commits; later ones can show in it."""

    def __init__(self, location: MilvusLocation, collection: MilvusCollection) -> None:
        self.location = location
        self.collection = collection
        # Numbers of rows by expression, until the next commit.
        self._counts: dict[str, int] = {}
        # Wait for all earlier writes; later requests of this client see them too.
        self.count("", consistency_level="Strong")

    @property
    def identity(self) -> Hashable:
        return self.collection.name

    @property
    def generation(self) -> int:
        return self.collection.commits

    @property
    def passage_count(self) -> int:
        return self.count("")

    def ranking(
        self,
        bm25: BM25Settings | None = None,
        where: Where | None = None,
        recall: float | None = None,
    ) -> MilvusRanking:
        if recall is not None or (bm25 or BM25Settings()) != BM25Settings():
            raise ConfigError(
                f"{self.location}: Milvus ranks with BM25's default settings and takes "
                "no recall; leave them out, or keep the index in a folder or PostgreSQL"
            )
        return MilvusRanking(self, "" if where is None else where_expression(where.expression))

    def call(self, method: str, **options: Any) -> Any:
        """Call a method of pymilvus's client on the collection."""
        return call(self.location, method, self.collection.name, **options)

    def count(self, expression: str, **options: Any) -> int:
        """Count the rows that an expression selects."""
        if expression not in self._counts:
            (row,) = self.call("query", filter=expression, output_fields=["count(*)"], **options)
            self._counts[expression] = row["count(*)"]
        return self._counts[expression]

    def rows(self, expression: str, columns: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Read the rows that an expression selects, in no particular order."""
        rows = self.call(
            "query_iterator", filter=expression, output_fields=[*columns], batch_size=_READ_ROWS
        )
        while batch := run(self.location, rows.next):
            yield from map(dict, batch)

    def first_rows(
        self, columns: Iterable[str], where: Where | None = None
    ) -> Iterator[dict[str, Any]]:
        """Read the first row of each document that matches."""
        also = "" if where is None else f" and {where_expression(where.expression)}"
        return self.rows(f"ordinal == 0{also}", columns)

    def document_frequencies(self, terms: Iterable[AnyTerm]) -> dict[AnyTerm, int]:
        distinct = dict.fromkeys(terms)
        return text_and_label_counts(distinct, self.frequencies(distinct), self.passage_count)

    def frequencies(self, terms: Iterable[Term]) -> dict[Term, int]:
        """Count the passages with each distinct term in the text, and each plain one in a label."""
        return {
            term: self.count(holds_any([*alternatives_of(term), *getattr(term, "terms", ())]))
            for term in with_labels(terms)
        }

    def unknown_fields(self, names: Iterable[str]) -> dict[str, list[str]]:
        unknown = [name for name in names if not self.count(f"exists {field_column(name)}")]
        field_names = [field.name for field in self.fields()] if unknown else []
        return dict.fromkeys(sorted(unknown), field_names)

    def facets(
        self, names: Sequence[str], where: Where | None, terms: Sequence[Term] | None, limit: int
    ) -> Facets:
        """Count the values of fields; reads the metadata of all documents that match."""
        rows = list(self.first_rows(["id", "metadata"], where))
        alternatives = [
            names for term in with_labels(terms or ()) for names in alternatives_of(term)
        ]
        matches = {row["id"] for row in self.rows(holds_any(alternatives), ["id"])}
        values = [(row["metadata"], 1, int(row["id"] in matches)) for row in rows]
        fields = {
            name: counted_facet(
                name,
                ((metadata.get(parse_field(name)[0]), *counts) for metadata, *counts in values),
                limit,
                queried=terms is not None,
            )
            for name in names
        }
        return Facets(len(rows), sum(x for *_, x in values) if terms is not None else None, fields)

    def fields(self) -> list[FieldSummary]:
        """Summarize the metadata fields, ascending by name; reads all metadata."""
        return summaries_of(row["metadata"] for row in self.first_rows(["metadata"]))

    def documents_of(self, passages: Sequence[int]) -> dict[int, str]:
        return self._values("id", passages)

    def passages(self, passages: Sequence[int]) -> dict[int, Passage]:
        ids = self.documents_of(passages)
        return {
            number: Passage(number, id_, title, text, metadata, start, stop, outline)
            for id_, title, text, metadata, spans, outline in self._documents({*ids.values()})
            for number, start, stop in spans
            if number in ids
        }

    def vectors(self, passages: Sequence[int]) -> NDArray[np.float32]:
        vectors = self._values("vector", passages)
        rows = np.array([vectors[passage] for passage in passages], np.float32)
        return rows.reshape(-1, self.setting("encoder")["dimensions"])

    def document(self, id_: str) -> StoredDocument | None:
        return next(self._documents([id_]), None)

    def documents(self, where: Where | None = None) -> Iterator[StoredDocument]:
        """Read the documents that match, ascending by id; keeps all their ids in memory."""
        expression = "" if where is None else where_expression(where.expression)
        ids = sorted({row["id"] for row in self.rows(expression, ["id"])})
        for start in range(0, len(ids), _DOCUMENTS):
            documents = self._documents(ids[start : start + _DOCUMENTS])
            yield from sorted(documents, key=attrgetter("id"))

    def count_documents(self) -> int:
        return self.count("ordinal == 0")

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        return {id_: head.hash for id_, head in self.stored_versions(ids).items()}

    def stored_versions(self, ids: Iterable[str]) -> dict[str, StoredVersion]:
        """Read the hash and the metadata of documents."""
        rows = self.rows(f"ordinal == 0 and id in {text_list(ids)}", ["id", "hash", "metadata"])
        return {
            row["id"]: StoredVersion(bytes.fromhex(row["hash"]), metadata_json(row["metadata"]))
            for row in rows
        }

    def setting(self, key: str, default: Any = None) -> Any:
        if key == LANGUAGES:
            return {
                language: count
                for language in self.collection.languages
                if (count := self.count(f"array_contains(languages, {text_literal(language)})"))
            }
        settings = self.collection.settings
        return settings[key] if default is None else settings.get(key, default)

    def describe(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT,
            # Milvus does not count deleted rows, nor the bytes of a collection.
            "deleted_passages": 0,
            "uncounted_passages": 0,
            "mean_passage_terms": round(self.collection.mean_length, 3),
            "bytes": 4 * self.passage_count * self.setting("encoder")["dimensions"],
            "store": {"milvus": call(self.location, "get_server_version")},
        }

    def _documents(self, ids: Iterable[str]) -> Iterator[StoredDocument]:
        rows_of = defaultdict(list)
        for row in self.rows(f"id in {text_list(ids)}", _COLUMNS):
            rows_of[row["id"]].append(row)
        return (document_of(self.location, rows) for rows in rows_of.values())

    def _values(self, column: str, passages: Iterable[int]) -> dict[int, Any]:
        """Read a column of passages."""
        ids = {int(passage) for passage in passages}
        rows = self.call("get", ids=sorted(ids), output_fields=["passage", column])
        if len(rows) < len(ids):
            raise StorageError(
                f"{self.location}: a passage was deleted meanwhile; run the command again"
            )
        return {row["passage"]: row[column] for row in rows}


@dataclass(frozen=True, slots=True)
class MilvusRanking:
    """Ranks the passages that an expression selects; see `indexes.protocol.Ranking`."""

    view: MilvusView
    where: str

    def candidates(self, queries: Sequence[Query], mode: Mode, depth: int) -> list[Candidates]:
        """Return the best passages for each query."""
        return [self._candidates(query, mode, depth) for query in queries]

    def _candidates(self, query: Query, mode: Mode, depth: int) -> Candidates:
        weights = {} if mode == "dense" else self._term_weights(query.terms)
        nearest = {} if mode == "bm25" else self._search("vector", query.vector, depth)
        matching = self._search("sparse", weights, depth) if weights else {}
        rows = nearest | matching
        dense = np.zeros(len(rows))
        if rows and query.vector is not None and mode != "bm25":
            vectors = np.array([row["vector"] for row in rows.values()], np.float32)
            dense = rounded(exact_scores(vectors, np.arange(len(rows)), query.vector))
        bm25 = np.array(
            [
                sum(weight * row["sparse"].get(key, 0.0) for key, weight in weights.items())
                for row in rows.values()
            ],
            np.float64,
        )
        is_complete = len(matching if mode == "bm25" else nearest) < depth
        return Candidates(np.array([*rows], np.int64), dense, bm25, bm25 > 0, is_complete)

    def _search(self, column: str, vector: Any, limit: int) -> dict[int, Any]:
        """Return the rows of largest inner product with a vector, by passage."""
        (hits,) = self.view.call(
            "search",
            data=[vector],
            anns_field=column,
            filter=self.where,
            limit=limit,
            output_fields=["vector", "sparse"],
        )
        return {hit["passage"]: hit["entity"] for hit in hits}

    def _term_weights(self, terms: Iterable[Term]) -> dict[int, float]:
        """Return the idf of each term, times its repetitions, by dimension of sparse vectors."""
        repetitions = Counter(terms)
        frequencies = self.view.frequencies(repetitions)
        # Passages that were written since the view began can make a frequency the greater one.
        passages = max(self.view.passage_count, *frequencies.values(), 0)
        weights: dict[int, float] = defaultdict(float)
        factors = term_factors("lucene", repetitions, frequencies, passages, float)
        for term, factor in factors.items():
            for names in alternatives_of(term):
                if len(names) > 1:
                    raise ConfigError(
                        f"{self.view.location}: Milvus does not score a synonym of "
                        f"several words, such as {' '.join(names)!r}; leave it out, or keep the "
                        "index in a folder or PostgreSQL"
                    )
                weights[1 + hash_of(names[0], 4)] += factor
        return weights


class MilvusWriter(MilvusView, Writer):
    """Changes an index, which it also reads; see `indexes.protocol.Writer`."""

    def __init__(self, location: MilvusLocation, collection: MilvusCollection) -> None:
        super().__init__(location, collection)
        self._touched: set[str] = set()

    def record(self, key: str, value: Any) -> None:
        self._describe(settings={**self.collection.settings, key: value})

    def mark_seen(self, ids: Sequence[str]) -> None:
        self._touched.update(ids)

    def count_seen(self) -> int:
        return len(self._touched)

    def commit(
        self,
        documents: Sequence[NewDocument],
        vectors: NDArray[np.float32],
        tokens: Iterable[Sequence[str]],
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> bool:
        """Add or replace documents, row by row; see `indexes.protocol.Committer`."""
        terms = list(tokens)
        collection = self.collection
        mean_length = collection.mean_length or sum(map(len, terms)) / max(len(terms), 1)
        rows: list[Row] = []
        for document in documents:
            part = slice(len(rows), len(rows) + len(document.spans))
            rows += passage_rows(document, terms[part], vectors[part], mean_length)
        languages = {*collection.languages, *(name for row in rows for name in row["languages"])}
        for row in self.rows(f"id in {text_list(metadata or {})}", ["*"]):
            rows.append({**row, "metadata": json.loads(metadata_json((metadata or {})[row["id"]]))})
        self._describe(mean_length=mean_length, languages=sorted(languages))
        self._upsert([row for row in rows if row["ordinal"]])
        superfluous = [
            f"id == {text_literal(document.id)} and ordinal >= {len(document.spans)}"
            for document in documents
        ]
        self.call("delete", filter=" or ".join(superfluous) or NOTHING)
        self._upsert([row for row in rows if not row["ordinal"]])
        self._touched.update(document.id for document in documents)
        self._describe()
        return True

    def delete(self, ids: Iterable[str]) -> int:
        ids = list(ids)
        stored = self.stored_versions(ids)
        self.call("delete", filter=f"id in {text_list(ids)}")
        self._touched.difference_update(stored)
        self._describe()
        return len(stored)

    def delete_where(self, where: Where) -> int:
        return self.delete([row["id"] for row in self.first_rows(["id"], where)])

    def delete_unseen(self) -> int:
        return self.delete({row["id"] for row in self.first_rows(["id"])} - self._touched)

    def _upsert(self, rows: Sequence[Row]) -> None:
        for start in range(0, len(rows), _WRITTEN_ROWS):
            self.call("upsert", data=rows[start : start + _WRITTEN_ROWS])

    def _describe(self, **values: Any) -> None:
        """Change the description of the collection, which tells readers of a commit."""
        commits = self.collection.commits + 1
        self.collection = replace(self.collection, commits=commits, **values)
        self.call("alter_collection_properties", properties=self.collection.properties())
        self._counts.clear()
