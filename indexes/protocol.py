"""The interface of every store of an index: a folder, a database or a server.

The folder (`indexes.folder`) is the reference. Every other store returns the same ids, and where
its search is exact the same scores up to 1e-5. A store refuses an unsupported request with a
`ConfigError` that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from indexes.errors import ConfigError, DamagedIndexError, StorageError
from indexes.settings import setting

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from indexes.bm25.formulas import BM25Settings
    from indexes.filters.grammar import Where
    from indexes.metadata import FieldType
    from indexes.vectors.choice import Choice

Mode = Literal["dense", "bm25", "hybrid"]
# The setting that counts the passages of each language. A store keeps it in step with them.
LANGUAGES = "languages"

# How long work reports its progress: called with the name of a step and how many units it has;
# returns what is called with how many more units are done.
Stage = Callable[[str, int], Callable[[int], object]]


def no_progress(name: str, total: int) -> Callable[[int], object]:
    """A `Stage` that reports nothing."""
    del name, total
    return lambda done: None


class Expansion(NamedTuple):
    """Other terms for a word of a query, which BM25 scores together as one term of less weight.

    An alternative is one or more terms: a passage holds it if it holds them all, as often as the
    rarest of them. The frequencies of all alternatives in a passage are added. The idf is that of
    the number of passages that hold an alternative or the word itself. An expansion therefore adds
    at most `weight` of what the word adds where it is as frequent.
    """

    word: str  # as the query has it
    terms: tuple[tuple[str, ...], ...]  # the alternatives that are the word itself
    alternatives: tuple[tuple[str, ...], ...]  # distinct, none of them in `terms`
    weight: float = 0.5  # above 0, at most 1

    def names(self) -> Iterator[str]:
        """All terms, repeated as often as they occur."""
        return chain.from_iterable(chain(self.terms, self.alternatives))


# What a query's terms are: a term of the index, or an expansion of some.
Term = str | Expansion
AnyTerm = TypeVar("AnyTerm", bound=Term)


class Query(NamedTuple):
    """A query in the form that each component reads."""

    # From the index's analyzer, without those of labels, and expansions; not read by the mode
    # ``dense``.
    terms: Sequence[Term] = ()
    vector: NDArray[np.float32] | None = None  # (d,) of length 1; not read by the mode ``bm25``


class Candidates(NamedTuple):
    """Passages with their scores, in no particular order."""

    passages: NDArray[np.int64]  # (n,) distinct ids
    # (n,) inner products, rounded by `indexes.vectors.flat.rounded`; zero in the mode ``bm25``.
    dense: NDArray[np.float64]
    bm25: NDArray[np.float64]  # (n,) 0 where `matches` is False, and in the mode ``dense``
    matches: NDArray[np.bool_]  # (n,) whether the passage holds a query term
    complete: bool  # whether every passage that the mode can rank is a candidate


# Documents with the same first bytes of the hash are copies.
CONTENT_BYTES = 12


class NewDocument(NamedTuple):
    """A document ready to be committed, in place of one with its id if there is one."""

    id: str
    title: str | None
    text: str
    metadata: Mapping[str, Any]
    # Equal hashes need no new encoding. The first `CONTENT_BYTES` are of title, text and outline;
    # labels change the others alone.
    hash: bytes
    spans: Sequence[tuple[int, int]]  # (start, stop) of each passage in `text`, at least one
    # What stands where in the text: a JSON array of arrays that begin with an offset, ascending.
    outline: str = ""
    # The languages of each passage, separated by spaces; empty where the analyzer tells none.
    languages: Sequence[str] = ()


class StoredVersion(NamedTuple):
    """Hash and metadata of a stored document, by which a change of it is detected."""

    hash: bytes
    metadata: str


class Passage(NamedTuple):
    """A stored passage with its document; `start` and `stop` are offsets in `text`."""

    passage: int  # the stable passage id
    id: str  # of the document
    title: str | None
    text: str  # a store may leave out what follows the passage, and blank what precedes it
    metadata: dict[str, Any]
    start: int
    stop: int
    outline: str = ""  # of the document, as of `NewDocument`


class StoredDocument(NamedTuple):
    """A stored document with its passages."""

    id: str
    title: str | None
    text: str  # the whole text, of a truncated document too
    metadata: dict[str, Any]
    passages: list[tuple[int, int, int]]  # (passage id, start, stop in `text`) of each, ascending
    outline: str = ""  # as of `NewDocument`


class FieldSummary(NamedTuple):
    """A top-level field of the metadata.

    Attributes:
        name: of the field.
        types: the JSON types of its values, ascending; nulls do not count.
        values: some of its strings, numbers and booleans, and of the elements of its arrays;
            strings first, each kind ascending.
        complete: whether there are no other values.
        range: the least and the greatest number; None without numbers.
        distinct: number of values; a value counts once for each segment that has it.
    """

    name: str
    types: tuple[FieldType, ...]
    values: tuple[str | float | bool, ...]
    complete: bool
    range: tuple[float, float] | None
    distinct: int


class FacetValue(NamedTuple):
    """A value of a metadata field.

    Attributes:
        value: a string, number or boolean; 1 and 1.0 are one value.
        documents: number of documents that have it and pass the filter.
        matches: number of those that also share a term with the query; None without a query.
        where: a filter that these documents pass and no others; None if the value cannot stand
            in a filter.
    """

    value: str | float | bool
    documents: int
    matches: int | None
    where: str | None


class Facet(NamedTuple):
    """The values of a metadata field.

    Attributes:
        field: as it was asked for.
        values: the most frequent ones: by `matches`, then by `documents`, descending, then numbers,
            strings and booleans, each ascending.
        distinct: number of distinct values, those included that `values` leaves out.
    """

    field: str
    values: tuple[FacetValue, ...]
    distinct: int


class Facets(NamedTuple):
    """The values of some metadata fields over the documents that pass a filter.

    Attributes:
        documents: number of documents that pass the filter: what the modes ``dense`` and
            ``hybrid`` can rank.
        matches: number of those that share a term with the query: what the mode ``bm25`` can
            rank; None without a query.
        fields: by the names that were asked for, in that order.
    """

    documents: int
    matches: int | None
    fields: dict[str, Facet]

    def to_json(self) -> dict[str, Any]:
        """Return JSON objects whose keys are the names of the attributes."""
        fields = {
            name: {**facet._asdict(), "values": [value._asdict() for value in facet.values]}
            for name, facet in self.fields.items()
        }
        return {**self._asdict(), "fields": fields}


@dataclass(frozen=True, slots=True)
class StructureSettings:
    """Which search structure the segments of an index get when they are merged.

    Attributes:
        index_type: ``auto``, ``flat``, ``hnsw``, ``ivf``, ``ivf-sq8``, ``ivf-pq``, or a FAISS
            factory string.
        memory_bytes: memory that a structure may take, in bytes; None for no limit. Only ``auto``
            reads it.

    Raises:
        ConfigError: the memory is below 1 byte.
    """

    index_type: str = setting(
        "auto",
        "Search structure: auto, flat, hnsw, ivf, ivf-sq8, ivf-pq or a FAISS factory string.",
        section="Index",
    )
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.memory_bytes is not None and self.memory_bytes < 1:
            raise ConfigError(f"memory: expected 1 byte or more, found {self.memory_bytes}")

    def choice(self, passages: int, dimensions: int) -> Choice:
        """The structure for this number of vectors."""
        from indexes.vectors.choice import resolve

        return resolve(self.index_type, passages, dimensions, self.memory_bytes)


class Ranking(Protocol):
    """Ranks the passages of one view that one filter allows."""

    def candidates(self, queries: Sequence[Query], mode: Mode, depth: int) -> list[Candidates]:
        """Return the best passages for each query.

        ``dense`` takes the `depth` nearest passages, ``bm25`` the `depth` with the highest scores
        among those that hold a query term, ``hybrid`` both, each scored by both. If the last score
        is shared, passages with the lower numbers are taken; dense scores are compared rounded.
        """


class View(Protocol):
    """One commit of an index; stays the same for as long as its `Reader.view` block lasts.

    A store inherits what it has no better way for.
    """

    @property
    def identity(self) -> Hashable:
        """Which index this is; another after the index was replaced."""

    @property
    def generation(self) -> int:
        """Increases with every commit."""

    @property
    def passage_count(self) -> int:
        """Number of live passages."""

    def ranking(
        self,
        bm25: BM25Settings | None = None,
        where: Where | None = None,
        recall: float | None = None,
    ) -> Ranking:
        """Ranks passages of documents that match; `recall`, in (0, 1], is of dense searches."""

    def document_frequencies(self, terms: Iterable[AnyTerm]) -> dict[AnyTerm, int]:
        """For each term or expansion, the number of live passages that its idf is of."""

    def terms_beginning(self, prefix: str, limit: int) -> list[str]:
        """The `limit` most frequent terms that begin with a text; equal ones by code point.

        Deleted passages may count. A store without a list of terms refuses.
        """
        raise ConfigError(
            f"{prefix}*: this store has no list of terms to complete the word; write the word "
            "out, search with --raw, or keep the index in a folder or PostgreSQL"
        )

    def unknown_fields(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Return the fields of `names` that no document has, each with all known fields."""

    def has_type(self, name: str, types: Collection[FieldType]) -> bool:
        """Return whether a document has a value of one of these JSON types in a top-level field.

        True where a store cannot tell.
        """
        return True

    def facets(
        self, names: Sequence[str], where: Where | None, terms: Sequence[Term] | None, limit: int
    ) -> Facets:
        """Count the documents that pass a filter by field value, up to `limit` values a field.

        Documents that hold one of a query's `terms` are also counted separately.
        """

    def fields(self) -> list[FieldSummary]:
        """The metadata fields of the documents, ascending by name."""

    def documents_of(self, passages: Sequence[int]) -> dict[int, str]:
        """Return the id of each passage's document."""

    def passages(self, passages: Sequence[int]) -> dict[int, Passage]:
        """Return the stored passages with these ids."""

    def vectors(self, passages: Sequence[int]) -> NDArray[np.float32]:
        """(passages, d) float32: their stored vectors, in the given order."""

    def document(self, id_: str) -> StoredDocument | None:
        """Return the document with an id, or None."""

    def documents(self, where: Where | None = None) -> Iterator[StoredDocument]:
        """The documents that match, as a stream in ascending order of ids (by code point)."""

    def count_documents(self) -> int:
        """Count the documents."""

    def count_copies(self) -> int | None:
        """Number of documents that repeat another; None where a store cannot count them."""
        return None

    def content_hashes(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The stored hash of title and text of those of `ids` that the index holds."""

    def check_settings(self) -> None:
        """Raise DamagedIndexError if a setting was altered, where the store can tell."""
        return

    def setting(self, key: str, default: Any = None) -> Any:
        """Return a setting's JSON value; raise KeyError if there is neither value nor default."""

    def describe(self) -> dict[str, Any]:
        """Return facts about the store that `info` shows, as JSON values.

        ``format_version``, ``bytes`` and ``mean_passage_terms``; ``uncounted_passages``: how many
        an earlier release stored, whose languages only a setting counts; ``store``: further facts
        by name, as text; and what else a program may want to know.
        """


class Reader(Protocol):
    """Reads one index; each view sees every commit made before it. Threads may share it."""

    def view(self) -> AbstractContextManager[View]:
        """One consistent view of the latest commit, valid inside the `with` block."""

    def close(self) -> None:
        """Release what it holds; later views raise `ClosedIndexError`."""


class Committer(Protocol):
    """The part of a writer that adds documents; each call is one transaction.

    A store without partial vectors, or with its own maintenance, inherits methods that do nothing.
    """

    def setting(self, key: str, default: Any = None) -> Any:
        """Return a setting's JSON value; raise KeyError if there is neither value nor default."""

    def record(self, key: str, value: Any) -> None:
        """Store an informative JSON value that no decision depends on."""

    def stored_versions(self, ids: Sequence[str]) -> dict[str, StoredVersion]:
        """Return the stored version of each document of `ids` that the index holds."""

    def mark_seen(self, ids: Sequence[str]) -> None:
        """Record that these stored documents belong to the run; see `delete_unseen`."""

    def commit(
        self,
        documents: Sequence[NewDocument],
        vectors: NDArray[np.float32],
        tokens: Iterable[Sequence[str]],
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> bool:
        """Add or replace documents in one step: all of them are visible afterwards, or none.

        Args:
            documents: with distinct ids.
            vectors: (n, d) float32, one row per passage, documents in order.
            tokens: the terms of each of the n passages; of a label they begin with `LABEL`.
            metadata: new metadata of stored documents whose text has not changed, by id; ids that
                the index does not hold are passed over.

        Returns:
            Whether `merge` and `optimize_after_run` may now find something to do.
        """

    def delete(self, ids: Iterable[str]) -> int:
        """Delete documents and return how many of them existed."""

    def store_partial_vectors(self, digests: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        """Store vectors of passages whose document is incomplete, for a run that resumes.

        `digests` identify the encoded texts. No reader sees these vectors.
        """
        return

    def partial_vectors(self, digests: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Return the partial vectors that this run or an earlier one stored, by digest."""
        return {}

    def delete_partial_vectors(self) -> None:
        """Delete all partial vectors."""
        return

    def merge(self, stage: Stage = no_progress) -> int:
        """Merge segments after a commit or deletion where due; return the number of parts read."""
        return 0

    def optimize_after_run(self, added: int, stage: Stage = no_progress) -> int:
        """Merge segments after a run added `added` passages, where it makes queries faster."""
        return 0


class Writer(Committer, Protocol):
    """Changes one index; each call is one transaction.

    A store that counts languages from its passages, or does its upkeep by itself, inherits that.
    """

    def delete_where(self, where: Where) -> int:
        """Delete the documents that match a filter and return how many."""

    def delete_unseen(self) -> int:
        """Delete the documents not seen by `mark_seen` or `commit` since the writer opened."""

    def count_seen(self) -> int:
        """Count the documents seen by `mark_seen` or `commit` since the writer opened."""

    def are_languages_counted(self) -> bool:
        """Return whether the setting `LANGUAGES` is what the stored passages add up to."""
        return True

    def count_languages(self, documents: Iterable[tuple[StoredDocument, Sequence[str]]]) -> None:
        """Store the languages of all documents, as of `NewDocument`, and count them again."""
        return

    def compact(self, stage: Stage = no_progress, *, erase: bool = False) -> int:
        """Drop what was deleted and free its space; returns the number of parts read.

        With `erase`, a folder holds no byte of it afterwards; other stores do not know it.
        """
        return 0

    def rebuild(self, structures: StructureSettings, stage: Stage = no_progress) -> int:
        """Build the search structure over all passages again, another one if asked for."""
        raise ConfigError(
            "the store builds its search structures itself; for another structure make the index "
            "again with `retriever index --recreate --index-type`"
        )


class Store(Protocol):
    """Where an index is kept; ``str(store)`` names it in messages, without a password."""

    @property
    def name(self) -> str:
        """The name in a list of indexes."""

    @property
    def folder(self) -> Path | None:
        """The folder that holds the index; None where it is elsewhere."""
        return None

    def exists(self) -> bool:
        """Return whether an index exists; raise if other files or remains of one are there."""

    def create(self, settings: Mapping[str, Any], lock_timeout: float = 0.0) -> None:
        """Make an empty index with these settings (JSON values), unless there is one."""

    def reader(self) -> Reader:
        """Open the index for reading."""

    def writer(self, lock_timeout: float = 0.0) -> AbstractContextManager[Writer]:
        """Open the index for writing when the `with` block is entered."""

    def replacement(self, begun_with: str) -> AbstractContextManager[Store]:
        """A hidden new index beside this one, which takes its place if the block does not raise.

        Until then this one serves readers, and writers are refused. If the block raises, the new
        index is kept, and the next call with the same `begun_with` resumes it.
        """

    def verify(self) -> list[str]:
        """Check the index and return one line per problem.

        A store without checks of its own reads all documents up to the first that is not whole.
        """
        try:
            with closing(self.reader()) as reader, reader.view() as view:
                for _ in view.documents():
                    pass
        except (DamagedIndexError, StorageError) as error:
            return [str(error)]
        return []

    def size(self) -> int:
        """Return the size of the index in bytes."""
        with closing(self.reader()) as reader, reader.view() as view:
            return int(view.describe()["bytes"])

    def damaged(self, reason: object) -> DamagedIndexError:
        """Return the error to raise if stored data was altered."""
        return DamagedIndexError(f"{self}: {reason}; restore a backup, or index again")
