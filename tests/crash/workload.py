"""Deterministic operations on an index, its possible states while they run, and its answers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import indexes.folder.writer
import retriever.encoders.encoder
import retriever.index.indexing.indexer
from indexes.folder.verify import verify
from indexes.protocol import StructureSettings
from retriever.documents import Document
from retriever.encoders import Encoder
from retriever.index import Index, recreated
from retriever.index.indexing.run import CommitSettings
from retriever.search import SearchSettings
from tests.conftest import FakeEncoder
from tests.crash.forked import in_child

Contents = dict[str, tuple[str, int]]
"""Id to text and version, which is the metadata."""

# Documents that a streaming operation looks up, encodes and commits together.
GROUP = 8
# Passages that wait in the database at most: one group waits, the next one makes a segment.
WAITING = 12
STREAMED = CommitSettings(passages=GROUP, window_passages=GROUP)
VOCABULARY = [f"word{i}" for i in range(60)]


def install(replace=setattr):
    """Let every index of this process use a `FakeEncoder`, and groups and segments be small."""
    # With this many dimensions any two directions are almost at right angles.
    encoder = FakeEncoder(64, 256)
    replace(Encoder, "load", lambda *_, **__: encoder)
    replace(Encoder, "from_spec", lambda *_, **__: encoder)
    weights = encoder.spec.weights
    replace(retriever.encoders.encoder, "find_weights", lambda *_, **__: weights)
    replace(retriever.index.indexing.indexer, "_BATCH", GROUP)
    replace(indexes.folder.writer, "PENDING_LIMIT", WAITING)


@dataclass(frozen=True)
class Operation:
    """One step of the workload."""

    kind: str  # add, stream, delete, where, compact, rebuild or recreate
    put: Contents = field(default_factory=dict)  # documents that it writes
    deleted_ids: tuple[str, ...] = ()  # ids that it deletes
    structure: str = "auto"  # the search structure that it builds

    def steps(self, before):
        """List the possible contents while it runs, from `before` to the final state."""
        if self.kind == "recreate":
            return [before, dict(self.put)]
        if self.kind in ("delete", "where"):
            return [
                before,
                {id_: content for id_, content in before.items() if id_ not in self.deleted_ids},
            ]
        if self.kind in ("compact", "rebuild"):
            return [before]
        size = len(self.put) if self.kind == "add" else GROUP
        states, documents = [before], list(self.put.items())
        for first in range(0, len(documents), size):
            states.append({**states[-1], **dict(documents[first : first + size])})
        return states

    def perform(self, folder):
        if self.kind == "recreate":
            with recreated(folder) as index:
                index.add(self._documents(), commit=STREAMED, prune=True)
            return
        with Index.create(folder) as index:
            if self.kind == "compact":
                index.compact()
            elif self.kind == "rebuild":
                index.rebuild(StructureSettings(self.structure))
            elif self.kind == "delete":
                index.delete(self.deleted_ids)
            elif self.kind == "where":
                # Every id to delete, by its number.
                numbers = ", ".join(id_.removeprefix("d") for id_ in self.deleted_ids)
                index.delete_where(f"number in ({numbers})")
            else:
                commit = CommitSettings() if self.kind == "add" else STREAMED
                index.add(self._documents(), commit=commit)

    def _documents(self):
        return [
            Document(id_, text, metadata={"version": version, "number": int(id_[1:])})
            for id_, (text, version) in self.put.items()
        ]


CHANCE = random.Random(3)
OLD = {f"d{i}": (f"onlyd{i}v1 " + " ".join(CHANCE.choices(VOCABULARY, k=5)), 1) for i in range(120)}


def short(numbers, version=1):
    return {f"d{i}": (f"onlyd{i}v{version} word{i % 60}", version) for i in numbers}


YOUNG = short(range(120, 140))
# A FAISS structure, a segment without one, and deleted passages in both.
LIFE = (
    Operation("add", OLD),
    Operation("rebuild", structure="IVF4,Flat"),
    Operation("add", YOUNG),
    Operation("delete", deleted_ids=("d0", "d7", "d119", "d120", "d139")),
)
SWEPT = {
    # Of one document the metadata alone.
    "small": Operation("add", {**short((1, 121, 300), 2), "d5": (OLD["d5"][0], 2)}),
    "add": Operation("add", short((1, 121, *range(300, 312)), 2)),
    "stream": Operation("stream", short(range(110, 130), 2)),
    "delete": Operation("delete", deleted_ids=("d2", "d122", "d138")),
    "where": Operation("where", deleted_ids=("d3", "d123")),
    # More than half of the younger segment, which is therefore rewritten.
    "merge": Operation("delete", deleted_ids=tuple(f"d{i}" for i in range(121, 135))),
    "compact": Operation("compact"),
    "rebuild": Operation("rebuild", structure="IVF8,SQ8"),
    "recreate": Operation("recreate", short(range(4, 30), 3)),
}


def make(folder):
    """Make the index of `LIFE`, in a process of its own."""

    def live():
        for operation in LIFE:
            operation.perform(folder)

    assert in_child(live) == (0, None)
    assert verify(folder) == []


def before():
    """Return the contents of the index of `LIFE`."""
    documents = {}
    for operation in LIFE:
        documents = operation.steps(documents)[-1]
    return documents


def contents(index):
    """Return all documents by a dense search: id to text and version."""
    hits = index.search("any", SearchSettings(mode="dense", k=1000))
    assert index.info()["documents"] == len(hits)
    return {hit.id: (hit.passage, hit.metadata["version"]) for hit in hits}


def check_answers(index, documents, dead):
    """Assert that BM25, vectors and metadata find `documents`, and that no `dead` text is found."""
    texts = [text for text, _ in documents.values()]
    bm25 = SearchSettings(mode="bm25", k=2)
    tags = [text.split()[0] for text in texts]
    for id_, hits in zip(documents, index.search_many(tags, bm25), strict=True):
        assert [hit.id for hit in hits] == [id_]
    dense = SearchSettings(mode="dense", k=1)
    for id_, (hit,) in zip(documents, index.search_many(texts, dense), strict=True):
        assert (hit.id, hit.dense) == (id_, 1.0)
    id_, (text, version) = next(iter(documents.items()))
    (hit,) = index.search(text, where=f"number = {id_[1:]} and version = {version}")
    assert hit.id == id_
    assert not any(index.search_many((text.split()[0] for text in dead), bm25))
