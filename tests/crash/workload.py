"""Deterministic operations on an index, to be killed at any moment, and its possible states then.

Run as ``workload.py FOLDER JOURNAL [FIRST]``: performs the operations of `LIVED` from number FIRST
on and writes a line with number and time to the journal, flushed to the disk, after each of them.
"""

from __future__ import annotations

import os
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import indexes.folder.writer
import retriever.encoders.encoder
import retriever.index.add
from indexes.protocol import StructureSettings
from retriever.documents import Document
from retriever.encoders.encoder import Encoder
from retriever.index import Index
from retriever.index.add import CommitSettings
from retriever.index.recreation import recreated
from tests.conftest import FakeEncoder

Contents = dict[str, tuple[str, int]]
"""Id to text and version, which is the metadata."""

# Documents that a streaming operation looks up, encodes and commits together.
GROUP = 8
# Passages that wait in the database at most: one group waits, the next one makes a segment.
WAITING = 12
STREAMED = CommitSettings(passages=GROUP, window_passages=GROUP)
WHOLE = CommitSettings()
VOCABULARY = [f"word{i}" for i in range(60)]


def install(replace=setattr):
    """Let every index of this process use a `FakeEncoder`, and groups and segments be small."""
    # With this many dimensions any two directions are almost at right angles.
    encoder = FakeEncoder(64, 256)
    replace(Encoder, "load", lambda *_, **__: encoder)
    replace(Encoder, "from_spec", lambda *_, **__: encoder)
    weights = encoder.spec.weights
    replace(retriever.encoders.encoder, "find_weights", lambda *_, **__: weights)
    replace(retriever.index.add, "_CHUNK", GROUP)
    replace(indexes.folder.writer, "PENDING_LIMIT", WAITING)


@dataclass(frozen=True)
class Operation:
    """One step of the workload."""

    kind: str  # add, stream, delete, where, compact, rebuild or recreate
    put: Contents = field(default_factory=dict)  # documents that it writes
    gone: tuple[str, ...] = ()  # ids that it deletes
    structure: str = "auto"  # the search structure that it builds

    def steps(self, before):
        """What the index may hold while it runs, `before` first, the result last."""
        if self.kind == "recreate":
            return [before, dict(self.put)]
        if self.kind in ("delete", "where"):
            return [before, {id_: kept for id_, kept in before.items() if id_ not in self.gone}]
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
                index.delete(self.gone)
            elif self.kind == "where":
                # Every id to delete, by its number.
                numbers = ", ".join(id_.removeprefix("d") for id_ in self.gone)
                index.delete_where(f"number in ({numbers})")
            else:
                index.add(self._documents(), commit=WHOLE if self.kind == "add" else STREAMED)

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
    Operation("delete", gone=("d0", "d7", "d119", "d120", "d139")),
)
SWEPT = {
    "small": Operation("add", short((1, 121, 300), 2)),
    "add": Operation("add", short((1, 121, *range(300, 312)), 2)),
    "delete": Operation("delete", gone=("d2", "d122", "d138")),
    # More than half of the younger segment, which is therefore rewritten.
    "merge": Operation("delete", gone=tuple(f"d{i}" for i in range(121, 135))),
    "compact": Operation("compact"),
    "rebuild": Operation("rebuild", structure="IVF8,SQ8"),
    "recreate": Operation("recreate", short(range(4, 30), 3)),
}
LIVED = (
    *LIFE,
    *SWEPT.values(),
    Operation("stream", short(range(20, 80), 4)),
    Operation("where", gone=("d5", "d21", "d79")),
    # Metadata alone changes for some, the text too for others.
    Operation(
        "add",
        {**short(range(30, 40), 5), **{f"d{i}": (f"onlyd{i}v4 word{i}", 5) for i in (40, 41)}},
    ),
    Operation("recreate", short(range(50, 90), 6)),
    Operation("stream", short(range(90, 130), 7)),
)


def states(operations):
    """For each operation, what the index may hold while it runs; in the end what is left."""
    allowed, held = [], {}
    for operation in operations:
        allowed.append(operation.steps(held))
        held = allowed[-1][-1]
    return [*allowed, [held]]


def main():
    folder, journal = Path(sys.argv[1]), Path(sys.argv[2])
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    install()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    with journal.open("a") as file:
        for number, operation in enumerate(LIVED):
            if number < first:
                continue
            operation.perform(folder)
            file.write(f"{number} {time.monotonic()}\n")
            file.flush()
            os.fsync(file.fileno())
    assert "torch" not in sys.modules, "an index with its encoder given must not load torch"


if __name__ == "__main__":
    main()
