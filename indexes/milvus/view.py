"""What a reader sees of an index in Milvus, and how it ranks passages.

Milvus finds the candidates: the nearest vectors, and the sparse vectors of largest inner product
with the idf of the query's terms. Both are scored here as in the folder, with the number of
passages that hold a term as Milvus counts them.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from collections.abc import Collection as Several
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.formulas import LABEL, BM25Settings, formula_of, weights
from indexes.bm25.scoring import term_factors, text_and_label_counts, top_places, with_labels
from indexes.errors import ConfigError, StorageError
from indexes.filters.facets import counted_facet, summaries_of
from indexes.filters.grammar import Where, parse_field
from indexes.folder.documents import LanguageCounts
from indexes.milvus.collection import (
    ALL,
    FORMAT,
    UNCOUNTED,
    Collection,
    dimension_of,
    document_of,
    expression_of,
    fact,
    has,
    index_type,
    languages_of,
    number_of,
    open_collection,
)
from indexes.milvus.connection import Connection, Row, batches
from indexes.protocol import (
    LANGUAGES,
    AnyTerm,
    Candidates,
    Expansion,
    Facets,
    FieldSummary,
    FieldType,
    Mode,
    Passage,
    Query,
    StoredDocument,
    Term,
    View,
)
from indexes.vectors.flat import exact_scores, rounded

# What a server returns at most of one search.
_MOST = 16_384
# Of an index that is no scan: the parameter that says how many passages it looks at.
_EFFORTS = {"HNSW": "ef", "DISKANN": "search_list"}
_LEAST_EFFORT = 100
# Rows of a request with texts or vectors, or without; documents that are read together.
_HEAVY = 500
_LIGHT = 4000
_READ = 256
# Texts that are read for the terms with a beginning.
_MOST_TEXTS = 1000
# What a pattern of `like` takes for more than itself.
_WILDCARD = re.compile(r"[\\%_]")
HEAD = ("document", "id", "head", "metadata")


class MilvusReader:
    """Reads one index; see `indexes.protocol.Reader`."""

    def __init__(self, connection: Connection, alias: str) -> None:
        self._connection = connection
        self._alias = alias
        self._known: Collection | None = None

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def view(self) -> Iterator[MilvusView]:
        """What the index holds now; raises `NotAnIndexError`, `FormatVersionError`."""
        found = open_collection(self._connection, self._alias)
        if found != self._known:
            self._known = found
        yield MilvusView(self._connection, self._known or found)


class MilvusView(View):
    """An index with all that was written before; what is written later can show in it."""

    def __init__(self, connection: Connection, collection: Collection) -> None:
        self.connection = connection
        self.collection = collection
        self.location = connection.location
        self.kind = index_type(self.location, self.setting("structures", {}))
        # The documents' ids of candidates.
        self.ids: dict[int, str] = {}
        # Waits for all earlier writes; later reads of this client see them too.
        self.held = self.count(ALL, "Strong")

    @property
    def identity(self) -> Hashable:
        """The name of the collection."""
        return self.collection.name

    @property
    def generation(self) -> int:
        return self.collection.commits

    @property
    def passage_count(self) -> int:
        return self.held

    def ranking(
        self,
        bm25: BM25Settings | None = None,
        where: Where | None = None,
        recall: float | None = None,
    ) -> MilvusRanking:
        settings = bm25 or BM25Settings()
        refused = ""
        if recall is not None and self.kind != "FLAT":
            refused = f"recall: Milvus does not measure that of its index {self.kind}; leave it out"
        if settings.variant == "okapi":
            refused = "BM25 variant okapi: Milvus does not count what it needs; use another variant"
        if refused:
            raise ConfigError(f"{self.location}: {refused}, or an index in a folder")
        return MilvusRanking(self, settings, expression_of(where, self.count))

    def count(self, where: str, level: str = "Session") -> int:
        """How many passages an expression selects."""
        options = {"output_fields": ["count(*)"], "consistency_level": level}
        (row,) = self.connection.call("query", self.collection.name, filter=where, **options)
        return int(row["count(*)"])

    def rows(self, where: str, fields: Sequence[str]) -> Iterator[Row]:
        """The rows that an expression selects, ascending by primary key, whatever their number."""
        size = _HEAVY if {"*", "vector", "text"}.intersection(fields) else _LIGHT
        # The last two options make a server return the least primary keys.
        options = {"limit": size, "iterator": "True", "reduce_stop_for_best": "True"}
        options |= {"output_fields": [*fields, "passage"], "consistency_level": "Session"}
        last = -1
        while rows := self.connection.call(
            "query", self.collection.name, filter=f"({where}) and passage > {last}", **options
        ):
            yield from rows
            last = max(row["passage"] for row in rows)

    def among(
        self, column: str, values: Iterable[int], fields: Sequence[str], where: str = ALL
    ) -> Iterator[Row]:
        """The rows whose value in a column is one of some."""
        for batch in batches(dict.fromkeys(values), _READ):
            yield from self.rows(f"{column} in {batch} and {where}", fields)

    def heads(self, where: str = ALL, fields: Sequence[str] = HEAD) -> Iterator[Row]:
        """One row of each document that an expression selects."""
        return self.rows(f"ordinal == 0 and ({where})", [*fields, "document"])

    def heads_of(self, ids: Iterable[str]) -> Iterator[Row]:
        """As `heads`, of documents by id."""
        return self.among("document", map(number_of, ids), HEAD, "ordinal == 0")

    def document_frequencies(self, terms: Iterable[AnyTerm]) -> dict[AnyTerm, int]:
        distinct = dict.fromkeys(terms)
        return text_and_label_counts(distinct, self.frequencies(distinct), self.passage_count)

    def frequencies(self, terms: Iterable[Term]) -> dict[Term, int]:
        """Count the passages with each distinct term in the text, and each plain one in a label."""
        frequencies = self.collection.frequencies
        counts = {}
        for term in with_labels(terms):
            if term not in frequencies:
                of_word = term.terms if isinstance(term, Expansion) else ()
                frequencies[term] = self.count(_holding([term], of_word))
            counts[term] = frequencies[term]
        return counts

    def terms_beginning(
        self, prefix: str, limit: int, terms_of: Callable[[str], Iterable[str]]
    ) -> list[str]:
        """Read terms from up to 1,000 texts, since Milvus has only hashes of the terms."""
        if prefix.startswith(LABEL):
            # Texts have no terms of labels.
            return []
        escaped = _WILDCARD.sub(r"\\\g<0>", prefix)
        patterns = dict.fromkeys([escaped, escaped.capitalize(), escaped.upper()])
        where = " or ".join(
            f"text like {json.dumps(f'%{pattern}%', ensure_ascii=False)}" for pattern in patterns
        )
        counts: Counter[str] = Counter()
        for row in islice(self.rows(where, ["text"]), _MOST_TEXTS):
            counts.update(set(terms_of(row["text"])))
        return nsmallest(limit, counts, key=lambda term: (-counts[term], term))

    def unknown_fields(self, names: Iterable[str]) -> dict[str, list[str]]:
        unknown = [name for name in sorted(set(names)) if not self.count(has(fact("name", name)))]
        known = {name for row in self.heads() for name in row["metadata"]} if unknown else ()
        return dict.fromkeys(unknown, sorted(known))

    def has_type(self, name: str, types: Several[FieldType]) -> bool:
        return self.count(has(*(fact(type_, ("metadata", name)) for type_ in types))) > 0

    def facets(
        self, names: Sequence[str], where: Where | None, terms: Sequence[Term] | None, limit: int
    ) -> Facets:
        """How many documents have each value of some fields; reads the metadata of all."""
        selected = expression_of(where, self.count)
        matching: set[int] = set()
        if terms:
            holders = f"({selected}) and ({_holding(with_labels(terms))})"
            matching = {row["document"] for row in self.rows(holders, HEAD[:1])}
        documents = [(row["metadata"], row["document"] in matching) for row in self.heads(selected)]
        counted = {}
        for name in names:
            first = parse_field(name)[0]
            found = ((held[first], 1, int(match)) for held, match in documents if first in held)
            counted[name] = counted_facet(name, found, limit, queried=terms is not None)
        matches = None if terms is None else sum(match for _, match in documents)
        return Facets(len(documents), matches, counted)

    def fields(self) -> list[FieldSummary]:
        """The metadata fields of the documents, ascending by name; reads all metadata."""
        return summaries_of(row["metadata"] for row in self.heads())

    def documents_of(self, passages: Sequence[int]) -> dict[int, str]:
        others = self._passages([one for one in passages if one not in self.ids], ["id"])
        self.ids |= {passage: row["id"] for passage, row in others.items()}
        return {one: self.ids[one] for one in passages}

    def passages(self, passages: Sequence[int]) -> dict[int, Passage]:
        """The stored passages with these ids; their texts are blank before the passage."""
        found = {}
        rows = self._passages(passages, ["text", *HEAD])
        # Where a passage is depends on all that precedes it.
        outlined = {row["document"] for row in rows.values() if "outline" in row["head"]}
        whole = {one.id: one for one in self._documents(sorted(outlined))}
        for passage, row in rows.items():
            id_ = row["id"]
            head = row["head"]
            text = row["text"]
            outline = ""
            if id_ in whole:
                text = whole[id_].text
                outline = whole[id_].outline
            else:
                text = " " * head["offset"] + text
            whose = id_, head["title"], text, row["metadata"]
            found[passage] = Passage(passage, *whose, head["start"], head["stop"], outline)
        return found

    def vectors(self, passages: Sequence[int]) -> NDArray[np.float32]:
        rows = self._passages(passages, ["vector"])
        vectors = np.array([rows[one]["vector"] for one in passages], np.float32)
        return vectors.reshape(len(passages), self.collection.dimensions)

    def document(self, id_: str) -> StoredDocument | None:
        return next(self._documents([number_of(id_)]), None)

    def documents(self, where: Where | None = None) -> Iterator[StoredDocument]:
        """The documents that match, ascending by id; keeps the ids of all in memory."""
        heads = self.heads(expression_of(where, self.count), ["id"])
        ordered = sorted((row["id"], row["document"]) for row in heads)
        for batch in batches(ordered, _READ):
            found = {one.id: one for one in self._documents([number for _, number in batch])}
            # One that was deleted meanwhile is not there.
            yield from (found[id_] for id_, _ in batch if id_ in found)

    def count_documents(self) -> int:
        return self.count("ordinal == 0")

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        return {row["id"]: bytes.fromhex(row["head"]["hash"]) for row in self.heads_of(ids)}

    def setting(self, key: str, default: Any = None) -> Any:
        settings = self.collection.settings
        return settings[key] if default is None else settings.get(key, default)

    def describe(self) -> dict[str, Any]:
        version = self.connection.call("get_server_version")
        collection = self.collection
        return {
            "format_version": FORMAT,
            # Milvus tells neither how many rows wait to be removed, nor what it takes.
            "deleted_passages": 0,
            "uncounted_passages": self.languages().uncounted,
            "mean_passage_terms": round(collection.terms / max(self.passage_count, 1), 3),
            "bytes": 4 * self.passage_count * collection.dimensions,
            "store": {"milvus": f"{version}, {self.kind}", "collection": collection.name},
        }

    def languages(self) -> LanguageCounts:
        """The languages of all passages."""
        return languages_of(self.rows(ALL, ["head"]))

    def problems(self) -> Iterator[str]:
        """One line for each document that an interrupted run left unfinished."""
        is_whole = UNCOUNTED not in self.collection.settings
        if is_whole and (problem := self.languages().problem(self.setting(LANGUAGES, {}))):
            yield f"{self.location}: {problem}"
        for rows in self._by_document(self.rows(ALL, ["ordinal", *HEAD])):
            if document_of([{**row, "text": ""} for row in rows]) is None:
                yield str(self._unfinished(rows))

    def _documents(self, numbers: Sequence[int]) -> Iterator[StoredDocument]:
        for rows in self._by_document(self.among("document", numbers, ["ordinal", "text", *HEAD])):
            document = document_of(rows)
            if document is None:
                raise self._unfinished(rows)
            yield document

    def _by_document(self, rows: Iterable[Row]) -> Iterable[list[Row]]:
        found: dict[int, list[Row]] = defaultdict(list)
        for row in rows:
            found[row["document"]].append(row)
        return found.values()

    def _passages(self, passages: Sequence[int], fields: Sequence[str]) -> dict[int, Row]:
        found = {row["passage"]: row for row in self.among("passage", map(int, passages), fields)}
        for lost in {*passages} - found.keys():
            raise StorageError(
                f"{self.location}: passage {lost} was deleted meanwhile; run the command again"
            )
        return found

    def _unfinished(self, rows: Sequence[Row]) -> StorageError:
        return StorageError(
            f"{self.location}: document {rows[0]['id']!r:.80}: some passages are missing; it is "
            "being written, or a run was interrupted: run that again"
        )


@dataclass(frozen=True, slots=True)
class MilvusRanking:
    """Ranks the passages of a view that an expression selects; see `indexes.protocol.Ranking`.

    BM25's candidates are the best under its default settings and the mean length of the time when
    each passage was written: four times as many as are asked for, scored exactly.
    """

    view: MilvusView
    settings: BM25Settings
    where: str

    def candidates(self, queries: Sequence[Query], mode: Mode, depth: int) -> list[Candidates]:
        """The best passages for each query; `ConfigError` if Milvus does not return so many."""
        if depth > _MOST:
            raise ConfigError(
                f"{self.view.location}: Milvus returns {_MOST:,} passages at most, and "
                f"{depth:,} are needed; ask for fewer hits"
            )
        return [self._candidates(query, mode, depth) for query in queries]

    def _candidates(self, query: Query, mode: Mode, depth: int) -> Candidates:
        fields = ["passage", "id"]
        fields += [] if mode == "dense" else ["length", "terms", "counts"]
        fields += [] if mode == "bm25" else ["vector"]
        factors = {} if mode == "dense" else self._factors(query.terms)
        nearest: dict[int, Row] = {}
        holders: dict[int, Row] = {}
        limit = min(depth + 16 if mode != "bm25" else 4 * depth + 64, _MOST)
        if mode != "bm25":
            nearest = self._search("vector", query.vector, limit, fields)
        if factors:
            # A term whose idf is 0 finds its passages all the same.
            weighted: dict[int, float] = {}
            for term, factor in factors.items():
                names = [term] if isinstance(term, str) else chain.from_iterable(term.alternatives)
                for dimension in map(dimension_of, map(number_of, names)):
                    weighted[dimension] = max(factor, 1e-6, weighted.get(dimension, 0))
            holders = self._search("sparse", weighted, min(4 * depth + 64, _MOST), fields)
        rows = [row for _, row in sorted((nearest | holders).items())]
        dense = np.zeros(len(rows))
        chosen = np.zeros(len(rows), np.bool_)
        bm25, matches = self._bm25(factors, rows)
        if rows and mode != "bm25":
            vectors = np.array([row["vector"] for row in rows], np.float32)
            wanted = np.asarray(query.vector, np.float32)
            dense = rounded(exact_scores(vectors, np.arange(len(rows)), wanted))
            chosen[top_places(dense, depth)] = True
        held = np.flatnonzero(matches)
        chosen[held[top_places(bm25[held], depth)]] = True
        searched, ranked = (holders, len(held)) if mode == "bm25" else (nearest, len(nearest))
        complete = len(searched) < limit and ranked <= depth
        kept = [row for row, one in zip(rows, chosen, strict=True) if one]
        self.view.ids |= {row["passage"]: row["id"] for row in kept}
        passages = np.array([row["passage"] for row in kept], np.int64)
        return Candidates(passages, dense[chosen], bm25[chosen], matches[chosen], complete)

    def _search(self, column: str, vector: Any, limit: int, fields: list[str]) -> dict[int, Row]:
        """By passage, the rows of largest inner product with a vector."""
        effort = _EFFORTS.get(self.view.kind) if column == "vector" else None
        parameters = {effort: max(_LEAST_EFFORT, 2 * limit)} if effort else {}
        asked = {"data": [vector], "anns_field": column, "limit": limit, "filter": self.where}
        asked |= {"output_fields": fields, "consistency_level": "Session"}
        asked |= {"search_params": {"metric_type": "IP", "params": parameters}}
        (hits,) = self.view.connection.call("search", self.view.collection.name, **asked)
        return {hit["entity"]["passage"]: dict(hit["entity"]) for hit in hits}

    def _factors(self, terms: Iterable[Term]) -> dict[Term, float]:
        """The factor of each term that a passage holds in its text or a label."""
        repetitions = Counter(terms)
        frequencies = self.view.frequencies(repetitions)
        # Passages that were written since the view began can make a frequency the greater one.
        passages = max(self.view.passage_count, *frequencies.values(), 0)
        return term_factors(self.settings.variant, repetitions, frequencies, passages, lambda: 0.0)

    def _bm25(
        self, factors: dict[Term, float], rows: Sequence[Row]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """(n,) the BM25 scores of passages, and whether each holds a term."""
        scores = np.zeros(len(rows))
        matches = np.zeros(len(rows), np.bool_)
        if not factors:
            return scores, matches
        mean_length = max(self.view.collection.terms, 1) / max(self.view.passage_count, 1)
        formula = formula_of(self.settings, mean_length)
        lengths = np.array([row["length"] for row in rows], np.uint32)
        counts = [dict(zip(row["terms"], row["counts"], strict=True)) for row in rows]
        for term, factor in factors.items():
            alternatives = [list(map(number_of, names)) for names in _alternatives(term)]
            frequencies = np.array(
                [
                    sum(min(row.get(number, 0) for number in numbers) for numbers in alternatives)
                    for row in counts
                ],
                np.uint32,
            )
            # A term of two alternatives counts twice.
            frequencies = np.minimum(frequencies, lengths)
            holds = frequencies > 0
            scores[holds] += factor * weights(formula, frequencies[holds], lengths[holds])
            matches |= holds
        return scores, matches


def _alternatives(term: Term) -> tuple[tuple[str, ...], ...]:
    return term.alternatives if isinstance(term, Expansion) else ((term,),)


def _holding(terms: Iterable[Term], alternatives: Iterable[tuple[str, ...]] = ()) -> str:
    """An expression for the passages that hold one of some terms or alternatives."""
    numbers: list[int] = []
    several = []
    for names in chain(chain.from_iterable(map(_alternatives, terms)), alternatives):
        if len(names) == 1:
            numbers.append(number_of(names[0]))
        else:
            several.append(f"array_contains_all(terms, {sorted(set(map(number_of, names)))})")
    single = [f"array_contains_any(terms, {sorted(set(numbers))})"] if numbers else []
    return " or ".join([*single, *several])
