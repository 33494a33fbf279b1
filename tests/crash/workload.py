"""Deterministic operations on an index, to be killed at any moment, and its possible states then.

Run as ``workload.py FOLDER JOURNAL [FIRST]``: performs the operations from number FIRST on and
writes a line with number and time to the journal, flushed to the disk, after each of them.
"""

from __future__ import annotations

import os
import random
import sys
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import indexes.folder.writer
import retriever.encoders.encoder
import retriever.index.add
from indexes.protocol import StructureSettings
from retriever.documents import Document
from retriever.encoders.encoder import Encoder
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.index import Index
from retriever.index.add import CommitSettings
from retriever.index.recreation import recreated

Contents = dict[str, tuple[str, int]]
"""Id to text and version, which is the metadata."""

# Documents that a streaming operation looks up, encodes and commits together.
GROUP = 8
# Passages that wait in the database at most: one group waits, the next one makes a segment.
WAITING = 12
STREAMED = CommitSettings(passages=GROUP, window_passages=GROUP)
WHOLE = CommitSettings()
VOCABULARY = [f"word{i}" for i in range(60)]


class HashEncoder:
    """Stands in for `Encoder`: a vector is the sum of its words' pseudo-random directions.

    With this many dimensions any two directions are almost at right angles.
    """

    def __init__(self, dimensions=256):
        self.spec = EncoderSpec(EncoderSettings(model="hash", max_length=64), "0" * 64, dimensions)
        self._directions = {}

    def tokenize(self, texts, *, query=False):
        return [[1, *(10 + zlib.crc32(word.encode()) for word in text.split())] for text in texts]

    truncate = tokenize

    def piece_offsets(self, text):
        raise AssertionError("no text of the workload is long")

    def encode(self, texts, *, query=False):
        return self.encode_pieces(self.tokenize(texts))

    def encode_pieces(self, pieces, done=lambda texts, pieces: None):
        vectors = np.stack([sum(self._direction(piece) for piece in row) for row in pieces])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        done(len(pieces), sum(map(len, pieces)))
        return vectors.astype(np.float32)

    def _direction(self, piece):
        if piece not in self._directions:
            chance = np.random.default_rng(piece)
            self._directions[piece] = chance.standard_normal(self.spec.dimensions)
        return self._directions[piece]


def install(replace=setattr):
    """Let every index of this process use a `HashEncoder`, and groups and segments be small.

    Args:
        replace: like `setattr`.
    """
    encoder = HashEncoder()
    replace(Encoder, "load", lambda *_, **__: encoder)
    replace(Encoder, "from_spec", lambda *_, **__: encoder)
    weights = encoder.spec.weights
    replace(retriever.encoders.encoder, "find_weights", lambda *_, **__: weights)
    replace(retriever.index.add, "_CHUNK", GROUP)
    replace(indexes.folder.writer, "PENDING_LIMIT", WAITING)


@dataclass(frozen=True)
class Operation:
    """One step of the workload.

    Attributes:
        kind: ``add``, ``stream``, ``delete``, ``where``, ``compact``, ``rebuild`` or ``recreate``.
        put: documents that it writes.
        gone: ids that it deletes.
        structure: the search structure that it builds.
    """

    kind: str
    put: Contents = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    structure: str = "auto"

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


def operations():
    """The workload: the same in every process."""
    chance = random.Random(2024)
    planned = []
    contents = {}
    version = 0

    def texts(ids):
        return {
            id_: (f"only{id_}v{version} " + " ".join(chance.choices(VOCABULARY, k=7)), version)
            for id_ in ids
        }

    def plan(kind, count, *, new=False):
        nonlocal version, contents
        version += 1
        first = 1 + max((int(id_[1:]) for id_ in contents), default=0)
        if new:
            operation = Operation(kind, texts([f"d{first + i}" for i in range(count)]))
        elif kind in ("delete", "where"):
            operation = Operation(kind, gone=tuple(chance.sample(sorted(contents), count)))
        else:
            operation = Operation(kind, texts(chance.sample(sorted(contents), count)))
        planned.append(operation)
        contents = operation.steps(contents)[-1]

    plan("add", 10, new=True)
    for _ in range(3):
        plan("stream", 6 * GROUP, new=True)
        plan("add", 9)
        plan("stream", 4 * GROUP)
        plan("delete", 7)
        plan("where", 5)
        # Metadata alone changes for some, the text too for others.
        version += 1
        mixed = {
            id_: (text if i % 2 else f"only{id_}v{version} mixed", version)
            for i, (id_, (text, _)) in enumerate(sorted(contents.items())[:12])
        }
        planned.append(Operation("add", mixed))
        contents = planned[-1].steps(contents)[-1]
        planned.append(Operation("compact"))
        plan("recreate", len(contents) // 2)
    return planned


def main():
    folder, journal = Path(sys.argv[1]), Path(sys.argv[2])
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    install()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    with journal.open("a") as file:
        for number, operation in enumerate(operations()):
            if number < first:
                continue
            operation.perform(folder)
            file.write(f"{number} {time.monotonic()}\n")
            file.flush()
            os.fsync(file.fileno())
    assert "torch" not in sys.modules, "an index with its encoder given must not load torch"


if __name__ == "__main__":
    main()
