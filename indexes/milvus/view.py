"""What a reader sees of an index in Milvus: one commit."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from indexes.bm25.formulas import BM25Settings, mean_okapi_idf
from indexes.errors import ConfigError, DamagedIndexError, NotAnIndexError, StorageError
from indexes.filters.facets import counted_facet, summaries_of
from indexes.filters.grammar import parse_field
from indexes.filters.sql import Where
from indexes.folder.documents import document_checksum
from indexes.milvus.collections import (
    DOCUMENT_HEAD,
    PASSAGE,
    index_type,
    visible,
)
from indexes.milvus.connection import Connection, Row, parts
from indexes.milvus.facts import exists, number_of, scalar_types
from indexes.milvus.filters import expression_of, has
from indexes.milvus.location import Location
from indexes.milvus.ranking import MilvusRanking, bound_of
from indexes.milvus.state import FORMAT, State, States, seal_of
from indexes.protocol import (
    Facets,
    FieldSummary,
    FieldType,
    Passage,
    StoredDocument,
    StructureSettings,
)

# Seconds for which removed rows stay: a view that is not older need not ask for them.
GRACE = 60.0
_FILTERS, _FREQUENCIES = 64, 65_536
_READ = 256
_TERM = ("term", "change", "added")


@dataclass
class Commit:
    """What all views of one commit share."""

    state: State
    filters: LRUCache[tuple[Any, ...], str] = field(default_factory=lambda: LRUCache(_FILTERS))
    frequencies: LRUCache[str, int] = field(default_factory=lambda: LRUCache(_FREQUENCIES))
    bounds: dict[BM25Settings, float] = field(default_factory=dict)
    mean_idf: float | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class MilvusReader:
    """Reads one index; each view is of the latest commit. See `indexes.protocol.Reader`.

    Raises:
        NotAnIndexError, FormatVersionError, DamagedIndexError
    """

    def __init__(self, states: States) -> None:
        self._states = states
        self._commit: Commit | None = None
        try:
            self._latest()
        except BaseException:
            states.connection.close()
            raise

    def close(self) -> None:
        """Release the connection."""
        self._states.connection.close()

    @contextmanager
    def view(self) -> Iterator[MilvusView]:
        """A view of the latest commit."""
        yield MilvusView(self._states, self._latest())

    def _latest(self) -> Commit:
        states = self._states
        state = states.read() if self._commit or states.exist() else None
        if state is None:
            raise NotAnIndexError(
                f"{states.connection.location}: there is no index of that name; "
                "`retriever index` makes one"
            )
        known = self._commit
        if known is None or known.state != state:
            known = self._commit = Commit(state)
        return known


class MilvusView:
    """One commit of an index; see `indexes.protocol.View`."""

    def __init__(self, states: States, commit: Commit) -> None:
        self._states = states
        self._connection: Connection = states.connection
        self._names = states.names
        self._commit = commit
        self._state = commit.state
        self._opened = time.monotonic()
        self._ids: dict[int, str] = {}
        self.visible = visible(self._state.build, self._state.commit)

    @property
    def identity(self) -> Hashable:
        """Another after the index was replaced."""
        return self._state.identity

    @property
    def generation(self) -> int:
        """The number of the commit."""
        return self._state.commit

    @property
    def passage_count(self) -> int:
        """Number of passages."""
        return self._state.passages

    @property
    def mean_length(self) -> float:
        """Terms per passage."""
        return self._state.mean_length

    @property
    def total_length(self) -> int:
        """The sum of the lengths of the passages, in terms."""
        return self._state.length

    @property
    def location(self) -> Location:
        """Where the index is."""
        return self._connection.location

    @property
    def has_sparse(self) -> bool:
        """Whether the passages have sparse vectors."""
        return self._states.sparse

    def ranking(
        self,
        bm25: BM25Settings | None = None,
        where: Where | None = None,
        recall: float | None = None,
    ) -> MilvusRanking:
        """Ranks passages.

        Raises:
            FilterError: Milvus cannot evaluate the filter.
            ConfigError: `recall` is given, and the search structure is no scan.
        """
        structures = StructureSettings.from_json(self.setting("structures", {}))
        kind = index_type(self._connection, structures)
        if recall is not None and kind != "FLAT":
            raise ConfigError(
                f"{self._connection.location}: recall: Milvus does not measure that of its index "
                f"{kind}; leave it out, or use the index type flat, which is exact"
            )
        return MilvusRanking(self, bm25 or BM25Settings(), self._selected(where), kind)

    def bound(self, settings: BM25Settings) -> float:
        """How much more a passage can score than the product of sparse vectors says."""
        state, bounds = self._state, self._commit.bounds
        if settings not in bounds:
            bounds[settings] = bound_of(settings, state.mean_length, state.means, state.longest)
        return bounds[settings]

    def search(
        self,
        column: str,
        vector: Any,
        limit: int,
        where: str,
        fields: Sequence[str],
        parameters: dict[str, Any] | None = None,
    ) -> list[Row]:
        """The passages of largest inner product among those that an expression selects."""
        name = self._names.passages(self._state.dimensions)
        found = self._connection.search(name, column, [vector], limit, where, fields, parameters)
        self._check()
        return found[0]

    def stream(self, where: str, fields: Sequence[str]) -> Iterator[Row]:
        """The passages that an expression selects."""
        if self._state.dimensions:
            name = self._names.passages(self._state.dimensions)
            yield from self._checked(self._connection.stream(name, where, fields))

    def count(self, where: str) -> int:
        """How many passages an expression selects."""
        name = self._names.passages(self._state.dimensions)
        return self._connection.count(name, where)

    def remember(self, rows: Iterable[Row]) -> None:
        """Keep the documents' ids of passages that were read."""
        self._ids |= {row["passage"]: row["id"] for row in rows}

    def document_frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """For each term, the number of passages that hold it."""
        wanted = list(dict.fromkeys(terms))
        known = self._commit.frequencies
        with self._commit.lock:
            found = {term: known[term] for term in wanted if term in known}
        missing = {term: 0 for term in wanted if term not in found}
        if missing and self._state.dimensions:
            rows = self._connection.among(
                self._names.terms,
                "key",
                sorted({number_of(one) for one in missing}),
                self.visible,
                _TERM,
            )
            for term, change in _changes(self._checked(rows)):
                if term in missing:
                    missing[term] += change
            with self._commit.lock:
                known.update(missing)
        return {term: found.get(term, 0) or missing.get(term, 0) for term in wanted}

    def mean_idf(self) -> float:
        """Of all terms, as okapi has it; reads the whole vocabulary, once for a commit."""
        if self._commit.mean_idf is None:
            counts = np.array([count for count in self.vocabulary().values() if count > 0])
            self._commit.mean_idf = mean_okapi_idf(counts, self._state.passages)
        return self._commit.mean_idf

    def vocabulary(self) -> Counter[str]:
        """For every term, the number of passages that hold it."""
        df: Counter[str] = Counter()
        if self._state.dimensions:
            rows = self._connection.stream(self._names.terms, self.visible, _TERM)
            for term, change in _changes(self._checked(rows)):
                df[term] += change
        return df

    def unknown_fields(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Those metadata fields that no document ever had, each with all known fields."""
        known = list(self._state.fields)
        return dict.fromkeys(sorted(set(names).difference(known)), known)

    def has_type(self, name: str, types: Collection[FieldType]) -> bool:
        """Whether a document has a value of one of some types; lists and objects are read."""
        if not self._state.dimensions:
            return False
        path = ("metadata", name)
        scalars = scalar_types(path)
        documents, heads = self._names.documents, f"{self.visible} and part == 0"
        for type_ in scalars.keys() & types:
            if self._connection.count(documents, f"{heads} and {has(False, *scalars[type_])}"):
                return True
        classes = {"array": list, "object": dict}
        wanted = tuple(classes[type_] for type_ in classes.keys() & types)
        if not wanted:
            return False
        others = f"{has(False, exists(path))} and {has(True, *chain(*scalars.values()))}"
        held = self._heads(f"{self.visible} and {others}")
        return any(isinstance(json.loads(head[2])[name], wanted) for _, head in held)

    def facets(
        self, names: Sequence[str], where: Where | None, terms: Sequence[str] | None, limit: int
    ) -> Facets:
        """How many documents have each value of some fields; reads the heads of all that pass."""
        selected = self._selected(where)
        matching: set[int] = set()
        if terms:
            held = sorted(set(map(number_of, terms)))
            wanted = f"{selected} and array_contains_any(terms, {held})"
            matching = {row["document"] for row in self.stream(wanted, ["document"])}
        documents: list[tuple[dict[str, Any], bool]] = []
        for number, (_, _, metadata, _) in self._heads(selected):
            documents.append((json.loads(metadata), number in matching))
        counted = {}
        for name in names:
            first = parse_field(name)[0]
            found = ((held[first], 1, int(match)) for held, match in documents if first in held)
            counted[name] = counted_facet(name, found, limit, queried=terms is not None)
        matches = None if terms is None else sum(match for _, match in documents)
        return Facets(len(documents), matches, counted)

    def fields(self) -> list[FieldSummary]:
        """The metadata fields of the documents, ascending by name; reads all heads."""
        heads = self._heads(self.visible)
        return summaries_of(json.loads(metadata) for _, (_, _, metadata, _) in heads)

    def documents_of(self, passages: Sequence[int]) -> dict[int, str]:
        """For each passage id, the user's id of its document."""
        missing = [one for one in passages if one not in self._ids]
        if missing:
            self.remember(self._passage_rows(missing, PASSAGE))
        return {one: self._ids[one] for one in passages}

    def passages(self, passages: Sequence[int]) -> dict[int, Passage]:
        """The stored passages with these ids."""
        rows = self._passage_rows(passages, PASSAGE)
        stored = {one.id: one for one in self._stored(sorted({row["document"] for row in rows}))}
        found = {}
        for row in rows:
            document = stored[row["id"]]
            for passage, start, stop in document.passages:
                if passage == row["passage"]:
                    found[passage] = Passage(
                        passage,
                        document.id,
                        document.title,
                        document.text,
                        document.metadata,
                        start,
                        stop,
                    )
        return found

    def vectors(self, passages: Sequence[int]) -> NDArray[np.float32]:
        """(passages, d) float32: their stored vectors, in the given order."""
        rows = self._passage_rows(list(dict.fromkeys(passages)), ("passage", "vector"))
        found = {row["passage"]: row["vector"] for row in rows}
        vectors = np.array([found[one] for one in passages], np.float32)
        return vectors.reshape(len(passages), self._state.dimensions)

    def document(self, id_: str) -> StoredDocument | None:
        """One document, or None."""
        numbers = list({number for number, head in self._heads_of([id_]) if head[0] == id_})
        return next(self._stored(numbers), None)

    def documents(self) -> Iterator[StoredDocument]:
        """Every document, ascending by id; keeps the ids of all in memory."""
        ordered = sorted((head[0], number) for number, head in self._heads(self.visible))
        for some in parts(ordered, _READ):
            stored = {one.id: one for one in self._stored([number for _, number in some])}
            yield from (stored[id_] for id_, _ in some)

    def has_document(self, id_: str) -> bool:
        """Whether the index holds a document with that id."""
        return any(head[0] == id_ for _, head in self._heads_of([id_]))

    def count_documents(self) -> int:
        """Number of documents."""
        return self._state.documents

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The stored hash of those of `ids` that the index holds."""
        wanted = set(ids)
        return {
            head[0]: bytes.fromhex(head[3]) for _, head in self._heads_of(ids) if head[0] in wanted
        }

    def check_settings(self) -> None:
        """Check that the settings are unaltered."""
        if self._state.seal and self._state.seal != seal_of(self._state.settings):
            raise damaged(self._connection, "a setting was altered (the checksum of all differs)")

    def setting(self, key: str, default: Any = None) -> Any:
        """The JSON value of a setting; KeyError if there is none and no default."""
        if default is None:
            return self._state.settings[key]
        return self._state.settings.get(key, default)

    def describe(self) -> dict[str, Any]:
        """What `info` shows of the store itself."""
        state, location = self._state, self.location
        structures = StructureSettings.from_json(self.setting("structures", {}))
        kind = index_type(self._connection, structures)
        sparse = "none: BM25 reads every passage that holds a term of the query"
        if self.has_sparse:
            drift = max(abs(mean - state.mean_length) for mean in state.means)
            drift /= state.mean_length or 1.0
            sparse = f"mean length {drift:.1%} off"
        return {
            "format_version": FORMAT,
            "generation": state.commit,
            "deleted_passages": state.dead,
            "mean_passage_terms": round(state.mean_length, 3),
            "bytes": state.bytes,
            "store": {
                "milvus": f"{self._connection.version()}, {kind}",
                **({"tenant": location.tenant} if location.tenant else {}),
                "sparse": sparse,
                "removed": f"{state.dead:,} passages that are still stored",
            },
        }

    def _selected(self, where: Where | None) -> str:
        """An expression that selects the rows that a filter allows."""
        if where is None:
            return self.visible
        with self._commit.lock:
            found = self._commit.filters.get(where.key)
        if found is None:
            found = "row < 0"
            if self._state.dimensions:
                found = expression_of(self._connection, self._names.documents, where, self.visible)
            with self._commit.lock:
                self._commit.filters[where.key] = found
        return f"{self.visible} and {found}"

    def _heads(self, where: str) -> Iterator[tuple[int, list[Any]]]:
        """The number of each document, and its id, title, metadata as JSON and hash."""
        if self._state.dimensions:
            wanted = f"{where} and part == 0"
            rows = self._connection.stream(self._names.documents, wanted, DOCUMENT_HEAD)
            seen: set[int] = set()
            for row in self._checked(rows):
                if row["document"] not in seen:
                    seen.add(row["document"])
                    yield row["document"], json.loads(row["head"])

    def _heads_of(self, ids: Sequence[str]) -> Iterator[tuple[int, list[Any]]]:
        """As `_heads`, of documents with these ids and perhaps others."""
        if self._state.dimensions:
            yield from heads_of(self._connection, self._names.documents, ids, self.visible)
            self._check()

    def _stored(self, numbers: Sequence[int]) -> Iterator[StoredDocument]:
        if numbers:
            rows = self._connection.among(
                self._names.documents,
                "document",
                numbers,
                self.visible,
                ("document", "part", "head", "piece"),
            )
            yield from stored_documents(self._connection, self._checked(rows))

    def _passage_rows(self, passages: Sequence[int], fields: Sequence[str]) -> list[Row]:
        if not passages:
            return []
        name = self._names.passages(self._state.dimensions)
        wanted = [int(one) for one in passages]
        rows = self._connection.among(name, "passage", wanted, self.visible, [*fields])
        found = list(self._checked(rows))
        for lost in {*wanted} - {row["passage"] for row in found}:
            raise damaged(self._connection, f"passage {lost} is missing")
        return found

    def _checked(self, rows: Iterable[Row]) -> Iterator[Row]:
        yield from rows
        self._check()

    def _check(self) -> None:
        """Make sure that no row of this commit was deleted meanwhile."""
        if time.monotonic() - self._opened < GRACE / 2:
            return
        latest = self._states.read()
        if latest is None or latest.purged > self._state.commit:
            raise StorageError(
                f"{self._connection.location}: what was deleted since the command began has been "
                "removed by `retriever compact` or another writer; run the command again"
            )


def heads_of(
    connection: Connection, documents: str, ids: Sequence[str], where: str
) -> Iterator[tuple[int, list[Any]]]:
    """The number and head of each document whose id has the hash of one of some ids."""
    keys = sorted({number_of(id_) for id_ in ids})
    wanted = f"part == 0 and {where}"
    for row in connection.among(documents, "key", keys, wanted, DOCUMENT_HEAD):
        yield row["document"], json.loads(row["head"])


def _changes(rows: Iterable[Row]) -> Iterator[tuple[str, int]]:
    """What each commit adds to the frequency of each term; a row may be there twice."""
    seen: set[tuple[str, int]] = set()
    for row in rows:
        if (row["term"], row["added"]) not in seen:
            seen.add((row["term"], row["added"]))
            yield row["term"], row["change"]


def stored_documents(connection: Connection, rows: Iterable[Row]) -> Iterator[StoredDocument]:
    """The documents of which these are all rows.

    Raises:
        DamagedIndexError: one was altered.
    """
    pieces: dict[int, dict[int, Row]] = defaultdict(dict)
    for row in rows:
        pieces[row["document"]][row["part"]] = row
    for held in pieces.values():
        try:
            id_, title, metadata, content_hash = json.loads(held[0]["head"])
            text, found, checksum = json.loads(
                "".join(held[part]["piece"] for part in range(len(held)))
            )
            passages = [(passage, start, stop) for passage, start, stop in found]
            sealed = document_checksum(
                id_, title, text, metadata, bytes.fromhex(content_hash), passages
            )
            if sealed.hex() != checksum:
                raise ValueError(f"the document {id_!r} was altered")
            document = StoredDocument(id_, title, text, json.loads(metadata), passages)
        except (ValueError, TypeError, KeyError) as error:
            raise damaged(connection, error) from None
        yield document


def damaged(connection: Connection, reason: object) -> DamagedIndexError:
    """The error to raise if what is stored was altered."""
    return DamagedIndexError(
        f"{connection.location}: {reason}; restore Milvus from a backup or index again"
    )
