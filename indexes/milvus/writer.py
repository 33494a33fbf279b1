"""Changing an index in Milvus: rows beside those that count, then one row that names the commit.

A commit writes its rows with a number that no reader looks at, then marks the rows that it replaces
or deletes with the same number, from which on they do not count, and then inserts the state of that
number. A writer that is killed before it leaves rows that the next one takes back; after it,
everything is visible. Marked rows are deleted a minute later or more, by `merge` and `compact`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from indexes.errors import NotAnIndexError
from indexes.filters.sql import Where
from indexes.folder.documents import metadata_json
from indexes.milvus.collections import (
    DOCUMENT_HEAD,
    NEVER,
    add_vector_index,
    create_collections,
    document_rows,
    facts_row,
    index_type,
    passage_row,
    row_bytes,
    sparse_vector,
    stored_rows,
    term_rows,
    visible,
)
from indexes.milvus.connection import Row, parts
from indexes.milvus.filters import expression_of
from indexes.milvus.state import (
    Lease,
    Rows,
    State,
    States,
    batches,
    mark,
    milliseconds,
    next_commit,
    restored,
    rewrite,
)
from indexes.milvus.view import GRACE, heads_of, stored_documents
from indexes.protocol import NewDocument, Stage, StoredHead, StructureSettings, no_progress

# How far the mean length may move before sparse vectors are written again.
_DRIFT = 0.02
# Removed passages, as a share of those that count, at which `merge` deletes them.
_DEAD = 0.1
# Rows of terms that are not worth merging.
_TERM_ROWS = 10_000
_FOUND = 1000


@dataclass
class _Change:
    """A commit on its way.

    Attributes:
        rows: gives keys to its rows.
        df: changes of document frequencies.
    """

    rows: Rows
    documents: int = 0
    passages: int = 0
    length: int = 0
    bytes: int = 0
    dead: int = 0
    term_rows: int = 0
    df: Counter[str] = field(default_factory=Counter)


class MilvusWriter:
    """The one writer of an index; see `indexes.protocol.Writer`."""

    def __init__(self, states: States, lock_timeout: float) -> None:
        self._states = states
        self._connection = states.connection
        self._names = states.names
        self._lease: Lease = states.lease(lock_timeout)
        self._state: State
        self._touched: set[int] = set()

    def __enter__(self) -> Self:
        connection = self._connection
        try:
            if not self._states.exist() or self._states.read() is None:
                raise NotAnIndexError(
                    f"{connection.location}: there is no index of that name; `retriever index` "
                    "makes one"
                )
            self._lease.__enter__()
        except BaseException:
            connection.close()
            raise
        try:
            state = self._states.read()
            assert state is not None
            self._state = restored(self._states, state)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._lease.__exit__(kind, error, trace)
        finally:
            self._connection.close()

    def setting(self, key: str, default: Any = None) -> Any:
        """The JSON value of a setting; KeyError if there is none and no default."""
        settings = self._state.settings
        return settings[key] if default is None else settings.get(key, default)

    def record(self, key: str, value: Any) -> None:
        """Store a JSON value that says something of the index."""
        self._publish(settings={**self._state.settings, key: value})

    def heads(self, ids: Sequence[str]) -> dict[str, StoredHead]:
        """The stored hash and metadata of those of `ids` that the index holds."""
        return {
            id_: StoredHead(bytes.fromhex(head[3]), head[2])
            for id_, (_, head) in self._held(ids).items()
        }

    def touch(self, ids: Sequence[str]) -> None:
        """Remember that these documents belong to the run."""
        self._touched |= {number for number, _ in self._held(ids).values()}

    def count_touched(self) -> int:
        """How many documents `touch` and `commit` have seen."""
        return len(self._touched)

    def commit(
        self,
        documents: Sequence[NewDocument],
        vectors: NDArray[np.float32],
        tokens: Iterable[Sequence[str]],
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> bool:
        """Add or replace documents in one step; see `indexes.protocol.Writer`.

        Raises:
            ConfigError: a document does not fit into rows of Milvus; the index is as before.
            ValueError: vectors or tokens are not as many as the passages, or metadata is not JSON.
        """
        passages = sum(len(document.spans) for document in documents)
        terms = list(tokens)
        if not passages == len(vectors) == len(terms):
            raise ValueError(
                f"expected vectors and terms of {passages} passages, found {len(vectors)} vectors "
                f"and terms of {len(terms)}"
            )
        if passages and self._state.dimensions not in (0, vectors.shape[1]):
            raise ValueError(
                f"expected vectors of {self._state.dimensions} dimensions, found {vectors.shape[1]}"
            )
        encoded = {id_: metadata_json(value) for id_, value in (metadata or {}).items()}
        ids = {document.id for document in documents}
        changed = [one for one in encoded if one not in ids]
        held = self._held([*ids, *changed])
        replaced = [held[id_][0] for id_ in ids if id_ in held]
        described = {held[id_][0]: encoded[id_] for id_ in changed if id_ in held}
        if passages and not self._state.dimensions:
            structures = StructureSettings.from_json(self.setting("structures", {}))
            create_collections(self._connection, self._names, vectors.shape[1], structures)
        state, names = self._state, set(self._state.fields)
        # What can be refused is refused before anything is written.
        rows, next_document, next_passage = [], state.next_document, state.next_passage
        facts: list[Row] = []
        for document in documents:
            text = encoded.get(document.id)
            rows.append(document_rows(document, next_document, next_passage, text))
            facts.append({name: rows[-1][0][name] for name in ("facts", "values")})
            names.update(document.metadata if text is None else json.loads(text))
            next_document += 1
            next_passage += len(document.spans)
        for text in described.values():
            names.update(json.loads(text))
        with self._change(vectors.shape[1] if passages else state.dimensions) as change:
            self._remove(change, replaced)
            new_length = sum(map(len, terms))
            mean = (state.length + change.length + new_length) / max(
                state.passages + change.passages + passages, 1
            )
            new = (
                passage_row(
                    state.next_passage + place,
                    number,
                    document.id,
                    fact,
                    terms[place],
                    vectors[place],
                    mean,
                    sparse=self._states.sparse,
                )
                for place, (number, document, fact) in enumerate(
                    (state.next_document + i, document, facts[i])
                    for i, document in enumerate(documents)
                    for _ in document.spans
                )
            )
            self._insert(change, self._names.documents, (row for some in rows for row in some))
            if passages:
                self._insert(change, self._names.passages(vectors.shape[1]), new)
            change.documents += len(documents)
            change.passages += passages
            change.length += new_length
            for held_terms in terms:
                change.df.update(set(held_terms))
            self._describe(change, described)
            self._states_after(
                change,
                dimensions=vectors.shape[1] if passages else state.dimensions,
                next_document=next_document,
                next_passage=next_passage,
                longest=max([state.longest, *map(len, terms)]),
                fields=tuple(sorted(names)),
                means=_means(state.means, mean) if new_length else state.means,
            )
        self._touched.difference_update(replaced)
        self._touched.update(range(state.next_document, next_document))
        return True

    def keep(self, digests: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        """Keep nothing: an interrupted run encodes a document that is not complete again."""

    def kept(self, digests: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Nothing."""
        return {}

    def forget(self) -> None:
        """Do nothing."""

    def delete(self, ids: Iterable[str]) -> int:
        """Delete documents; returns how many of them there were."""
        rest, found = iter(ids), set[int]()
        while some := list(islice(rest, _FOUND)):
            found |= {number for number, _ in self._held(some).values()}
        return self._delete(sorted(found))

    def delete_where(self, where: Where) -> int:
        """Delete the documents that match a filter; returns how many."""
        if not self._state.dimensions:
            return 0
        expression = expression_of(self._connection, self._names.documents, where, self._visible)
        return self._delete([number for number, _ in self._numbers(expression)])

    def delete_untouched(self) -> int:
        """Delete every document that `touch` and `commit` have not seen."""
        if not self._state.dimensions:
            return 0
        every = (number for number, _ in self._numbers("row >= 0"))
        return self._delete([number for number in every if number not in self._touched])

    def merge(self, stage: Stage = no_progress) -> int:
        """Delete removed rows where they are many, and merge rows of terms."""
        done = 0
        if self._state.dead > max(_FOUND, _DEAD * self._state.passages):
            done += self._purge()
        if self._state.term_rows > 4 * self._state.merged_terms + _TERM_ROWS:
            done += self._merge_terms()
        return done

    def settle(self, added: int, stage: Stage = no_progress) -> int:
        """As `merge`, and write sparse vectors again where the mean length has moved."""
        return self.merge(stage) + self._follow_mean()

    def compact(self, stage: Stage = no_progress) -> int:
        """As `settle`, however little there is to do; returns whether there was anything."""
        done = self._purge() + self._follow_mean()
        if self._state.term_rows > self._state.merged_terms:
            done += self._merge_terms()
        return int(done > 0)

    def rebuild(self, structures: StructureSettings, stage: Stage = no_progress) -> int:
        """Build the search structure again, another one if asked for.

        Until it is built, Milvus refuses queries.

        Raises:
            ConfigError: Milvus does not have it.
        """
        from pymilvus import MilvusClient

        index_type(self._connection, structures)
        if self._state.dimensions:
            name = self._names.passages(self._state.dimensions)
            indexes = MilvusClient.prepare_index_params()
            add_vector_index(indexes, self._connection, structures)
            self._connection.request(lambda client: client.release_collection(name))
            self._connection.request(lambda client: client.drop_index(name, "vector"))
            self._connection.request(lambda client: client.create_index(name, indexes))
            self._connection.request(lambda client: client.load_collection(name))
        settings = {**self._state.settings, "structures": structures.to_json()}
        self._publish(settings=settings)
        return 1

    @property
    def _visible(self) -> str:
        return visible(self._state.build, self._state.commit)

    def _held(self, ids: Sequence[str]) -> dict[str, tuple[int, list[Any]]]:
        """By id, the numbers and heads of those documents that the index holds."""
        if not self._state.dimensions or not ids:
            return {}
        wanted = set(ids)
        found = heads_of(self._connection, self._names.documents, list(ids), self._visible)
        return {head[0]: (number, head) for number, head in found if head[0] in wanted}

    def _numbers(self, where: str) -> Iterator[tuple[int, str]]:
        wanted = f"{self._visible} and part == 0 and {where}"
        for row in self._connection.stream(self._names.documents, wanted, DOCUMENT_HEAD):
            yield row["document"], row["head"]

    @contextmanager
    def _change(self, dimensions: int) -> Iterator[_Change]:
        """A commit; what the block raises takes back what it wrote."""
        self._lease.check()
        change = _Change(Rows(next_commit(self._state), self._state))
        self._states.intend(change.rows.commit)
        try:
            yield change
        except BaseException:
            latest = self._states.read()
            if latest is not None:
                self._state = restored(self._states, latest)
            raise
        self._states.done(change.rows.commit)

    def _states_after(self, change: _Change, **values: Any) -> None:
        """Write the rows of terms, and make the commit visible."""
        self._insert(change, self._names.terms, term_rows(change.df))
        self._lease.check()
        # Its time is later than that of every deletion, which a server need not tell.
        self._states.intend(change.rows.commit)
        state = self._state
        self._state = replace(
            state,
            commit=change.rows.commit,
            next_row=change.rows.next,
            documents=state.documents + change.documents,
            passages=state.passages + change.passages,
            length=state.length + change.length,
            bytes=state.bytes + change.bytes,
            dead=state.dead + change.dead,
            term_rows=state.term_rows + change.term_rows,
            # The first rows have one for each term.
            merged_terms=state.merged_terms if state.term_rows else change.term_rows,
            **values,
        )
        self._states.publish(self._state)

    def _publish(self, **values: Any) -> None:
        """A commit that changes no row."""
        self._lease.check()
        self._state = replace(self._state, commit=next_commit(self._state), **values)
        self._states.publish(self._state)

    def _insert(self, change: _Change, name: str, new: Iterable[Row]) -> None:
        own = {"build": self._state.build, "added": change.rows.commit, "removed": NEVER}
        for some in batches(new, _FOUND):
            self._connection.insert(name, [change.rows.numbered({**row, **own}) for row in some])
            if name == self._names.terms:
                change.term_rows += len(some)
            else:
                change.bytes += sum(map(row_bytes, some))

    def _delete(self, numbers: Sequence[int]) -> int:
        if numbers:
            with self._change(self._state.dimensions) as change:
                self._remove(change, numbers)
                self._states_after(change)
            self._touched.difference_update(numbers)
        return len(numbers)

    def _remove(self, change: _Change, numbers: Sequence[int]) -> None:
        """Mark the rows of documents, and count what goes with them."""
        for row in self._marked(change, self._names.documents, numbers):
            change.documents -= row["part"] == 0
            change.bytes -= row_bytes(row)
        for row in self._marked(change, self._passages, numbers):
            change.passages -= 1
            change.length -= row["length"]
            change.bytes -= row_bytes(row)
            change.dead += 1
            change.df.subtract(json.loads(row["counts"]).keys())

    def _describe(self, change: _Change, metadata: Mapping[int, str]) -> None:
        """Give documents, by number, other metadata (JSON): new rows for old ones."""
        for some in parts(list(metadata), _FOUND):
            facts: dict[int, Row] = {}
            old = list(self._marked(change, self._names.documents, some))
            new: list[Row] = []
            for document in stored_documents(self._connection, old):
                number, head = next(
                    (row["document"], json.loads(row["head"]))
                    for row in old
                    if row["part"] == 0 and json.loads(row["head"])[0] == document.id
                )
                text = metadata[number]
                facts[number] = facts_row(document.id, document.title, json.loads(text))
                new += stored_rows(
                    document.id,
                    document.title,
                    document.text,
                    text,
                    bytes.fromhex(head[3]),
                    number,
                    document.passages,
                )
            change.bytes -= sum(map(row_bytes, old))
            self._insert(change, self._names.documents, new)
            for passages in batches(self._marked(change, self._passages, some), _FOUND):
                change.bytes -= sum(map(row_bytes, passages))
                change.dead += len(passages)
                changed = [{**row, **facts[row["document"]]} for row in passages]
                self._insert(change, self._passages, changed)

    @property
    def _passages(self) -> str:
        return self._names.passages(self._state.dimensions)

    def _marked(self, change: _Change, name: str, documents: Sequence[int]) -> Iterator[Row]:
        for some in parts(list(documents), _FOUND):
            where = f"{self._visible} and document in {some}"
            for marked in mark(self._connection, name, where, change.rows):
                yield from marked

    def _purge(self) -> int:
        """Delete the rows that were removed long ago."""
        cutoff = min(milliseconds() - int(GRACE * 1000), self._state.commit)
        former = [(build, since) for build, since in self._state.former if since > cutoff]
        old = [build for build, since in self._state.former if since <= cutoff]
        if not self._state.dimensions or not (self._state.dead or old or self._state.term_rows):
            return 0
        self._publish(purged=cutoff)
        mine = f"build == {self._state.build}"
        held = set(self._connection.collections())
        for name in (self._names.documents, self._names.terms, self._passages):
            self._connection.delete(name, f"{mine} and removed <= {cutoff}")
        for name in held & {self._names.documents, self._names.terms} | {
            one for one in held if one.startswith(self._names.passages_prefix)
        }:
            for build in old:
                self._connection.delete(name, f"build == {build}")
        left = f"{mine} and removed < {NEVER}"
        dead = self._connection.count(self._passages, left, latest=True)
        self._publish(dead=dead, former=tuple(former))
        return 1

    def _merge_terms(self) -> int:
        """Sum up the rows of each term."""
        with self._change(self._state.dimensions) as change:
            for some in mark(self._connection, self._names.terms, self._visible, change.rows):
                for row in some:
                    change.df[row["term"]] += row["change"]
            self._state = replace(self._state, term_rows=0)
            self._states_after(change)
        return 1

    def _follow_mean(self) -> int:
        """Write sparse vectors again whose mean length is too far from today's."""
        state, mean = self._state, self._state.mean_length
        low, high = mean / (1 + _DRIFT), mean * (1 + _DRIFT)
        if not mean or not self._states.sparse or low <= state.means[0] <= state.means[1] <= high:
            return 0
        self._publish(means=_means(state.means, mean))
        where = f"{self._visible} and removed == {NEVER} and (mean < {low!r} or mean > {high!r})"
        with self._change(state.dimensions) as change:
            for some in batches(self._connection.stream(self._passages, where, ["*"]), _FOUND):
                self._lease.check()
                new = []
                for row in some:
                    sparse = sparse_vector(json.loads(row["counts"]), row["length"], mean)
                    new.append({**row, "mean": mean, "sparse": sparse})
                rewrite(self._connection, self._passages, some, new, change.rows)
            self._states_after(change, means=(max(state.means[0], low), min(state.means[1], high)))
        return 1


def _means(means: tuple[float, float], mean: float) -> tuple[float, float]:
    """The range of mean lengths, with another one."""
    return (min(means[0], mean), max(means[1], mean)) if means[1] else (mean, mean)
