"""An index in Milvus as a reader sees it, and the ranking of its passages.

Milvus searches by two fields: the vectors, and the sparse BM25 weights with the idf of the query's
terms. Every candidate is scored by both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.formulas import BM25Settings
from indexes.bm25.scoring import term_factors, text_and_label_counts, with_labels
from indexes.errors import ConfigError, StorageError
from indexes.filters.facets import counted_facet, summaries_of
from indexes.filters.grammar import Where, parse_field
from indexes.metadata import metadata_json
from indexes.milvus import collection as collections
from indexes.milvus.connection import MilvusLocation, call, run
from indexes.milvus.filters import (
    alternatives_of,
    contains_text,
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
    Passage,
    Query,
    StoredDocument,
    StoredVersion,
    Term,
    View,
)
from indexes.vectors.flat import exact_scores, rounded

# Rows of a request, and documents that are read together.
_ROWS = 1000
_DOCUMENTS = 100
# Texts that are read for the terms with a prefix.
_MOST_TEXTS = 1000
_COLUMNS = (
    *("passage", "id", "ordinal", "hash", "passages", "title", "metadata"),
    *("text", "offset", "start", "stop", "outline"),
)


class MilvusView(View):
    """An index with all earlier commits; later ones can show in it."""

    def __init__(self, location: MilvusLocation, collection: collections.MilvusCollection) -> None:
        self.location = location
        self.collection = collection
        # Numbers of rows by expression, until the next commit.
        self._counts: dict[str, int] = {}
        # Wait for all earlier writes; later requests of this client see them too.
        self._passage_count = self.count("", consistency_level="Strong")

    @property
    def identity(self) -> Hashable:
        return self.collection.name

    @property
    def generation(self) -> int:
        return self.collection.commits

    @property
    def passage_count(self) -> int:
        return self._passage_count

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
        options = {"batch_size": _ROWS, "output_fields": [*columns]}
        rows = self.call("query_iterator", filter=expression, **options)
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

    def terms_beginning(
        self, prefix: str, limit: int, terms_of: Callable[[str], Iterable[str]]
    ) -> list[str]:
        """Return terms of up to 1,000 texts with the prefix, since Milvus has no list of terms."""
        spellings = {prefix, prefix.capitalize(), prefix.upper()}
        expression = " or ".join(contains_text("text", spelling) for spelling in spellings)
        counts = Counter[str]()
        for row in islice(self.rows(expression, ["terms"]), _MOST_TEXTS):
            counts.update(term for term in row["terms"] if term.startswith(prefix))
        return nsmallest(limit, counts, key=lambda term: (-counts[term], term))

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
        shape = (len(passages), self.setting("encoder")["dimensions"])
        return np.array([vectors[passage] for passage in passages], np.float32).reshape(shape)

    def document(self, id_: str) -> StoredDocument | None:
        return next(self._documents([id_]), None)

    def documents(self, where: Where | None = None) -> Iterator[StoredDocument]:
        """Read the documents that match, ascending by id; keeps all their ids in memory."""
        ids = sorted(row["id"] for row in self.first_rows(["id"], where))
        for start in range(0, len(ids), _DOCUMENTS):
            documents = self._documents(ids[start : start + _DOCUMENTS])
            yield from sorted(documents, key=attrgetter("id"))

    def count_documents(self) -> int:
        return self.count("ordinal == 0")

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        return {id_: head.hash for id_, head in self.stored_versions(ids).items()}

    def stored_versions(self, ids: Iterable[str]) -> dict[str, StoredVersion]:
        """Read the hash and the metadata of documents."""
        columns = ["id", "hash", "metadata"]
        return {
            row["id"]: StoredVersion(bytes.fromhex(row["hash"]), metadata_json(row["metadata"]))
            for row in self.rows(f"ordinal == 0 and id in {text_list(ids)}", columns)
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
            "format_version": collections.FORMAT,
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
        return (collections.document_of(self.location, rows) for rows in rows_of.values())

    def _values(self, column: str, passages: Iterable[int]) -> dict[int, Any]:
        """Read a column of passages."""
        numbers = sorted(map(int, passages))
        rows = self.call("get", ids=numbers, output_fields=["passage", column])
        if len(rows) < len({*numbers}):
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
        options = {"anns_field": column, "limit": limit, "output_fields": ["vector", "sparse"]}
        (hits,) = self.view.call("search", data=[vector], filter=self.where, **options)
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
                weights[1 + collections.hash_of(names[0], 4)] += factor
        return weights
