"""Small indexes for the tests of the storage layer, and what a reader finds in them."""

import json
import os
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from indexes.bm25.scoring import BM25
from indexes.folder.view import FolderReader
from indexes.folder.writer import FolderWriter, NewDocument
from tests.crash import forked

DIMENSIONS = 6
LISTED_FILES = [
    "ids.npy",
    "vectors.npy",
    "postings.counts.npy",
    "postings.frequencies.npy",
    "postings.lengths.npy",
    "postings.offsets.npy",
    "postings.positions.npy",
    "postings.terms.utf8",
]
SEGMENT_FILES = ["manifest.json", *LISTED_FILES]
SETTINGS = {"encoder": {"model": "sample"}}


def document(id_, text, metadata=None, *, passages=1):
    """Return a document whose words are divided into `passages` passages."""
    words = text.split()
    share = -(-len(words) // passages)
    spans, start = [], 0
    for first in range(0, len(words), share):
        stop = start + len(" ".join(words[first : first + share]))
        spans.append((start, stop))
        start = stop + 1
    return NewDocument(id_, None, text, metadata or {}, text.encode()[:16], spans)


def vector_of(text):
    chance = np.random.default_rng(zlib.crc32(text.encode()))
    vector = chance.standard_normal(DIMENSIONS)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def commit(writer, *documents, metadata=None):
    """Commit documents with a vector and the terms of each passage."""
    texts = [d.text[start:stop] for d in documents for start, stop in d.spans]
    vectors = np.array([vector_of(text) for text in texts], np.float32)
    writer.commit(
        documents,
        vectors.reshape(len(texts), DIMENSIONS),
        [text.split() for text in texts],
        metadata,
    )


def make_index(folder, *commits):
    """Make an index with these commits, one segment each."""
    with FolderWriter(folder, create=SETTINGS, pending_limit=0) as writer:
        for documents in commits:
            commit(writer, *documents)
    return folder


def mask_of(allowed):
    """List for each passage of a segment whether it is allowed."""
    return allowed.at(np.arange(len(allowed))).tolist()


def live_passages(view):
    passages = []
    for live in view.segments:
        ids = live.segment.ids if live.live is None else live.segment.ids[live.live]
        passages += ids.tolist()
    return passages


def texts_in(view):
    """Return id and text of every document with a live passage, as searches see them."""
    passages = live_passages(view)
    stored = view.passages(passages)
    assert sorted(stored) == sorted(passages)
    return {passage.id: passage.text for passage in stored.values()}


@contextmanager
def viewing(folder):
    """Open a view of an index with its own reader."""
    with closing(FolderReader(folder)) as reader, reader.view() as view:
        yield view


def texts(folder):
    with viewing(folder) as view:
        return texts_in(view)


def metadata(folder):
    with viewing(folder) as view:
        stored = view.passages(live_passages(view))
        return {passage.id: passage.metadata for passage in stored.values()}


def found_by(view, term):
    """Return the ids of the documents that BM25 finds for a term."""
    matches = BM25(view.segments, None, view.commit.bm25.statistics).query([term]).search(1000)
    passages = [
        int(view.segments[segment].segment.ids[position])
        for segment, position in zip(matches.segments, matches.positions, strict=True)
    ]
    return set(view.documents_of(passages).values())


def lookup(postings, term):
    """Look up a term with all checks; return its positions and frequencies."""
    read = postings.read((term,)).joined()
    postings.check(read)
    return read.positions, read.frequencies


def in_child(code, *arguments):
    """Run Python code that reads its arguments from ``sys.argv[1:]``."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )


def in_fork(action):
    """Run `action` in a forked process that exits without cleanup; return its exit status."""
    return forked.in_child(lambda: bool(action()))[0]


def dying_at(number, action):
    """Run `action` as `in_fork` does, but exit before the SQLite statement `number`."""

    class Dying(sqlite3.Connection):
        def execute(self, *arguments):
            if next(executed) == number:
                os._exit(9)
            return super().execute(*arguments)

    def perform():
        sqlite3.connect = partial(connect, factory=Dying)
        action()

    executed, connect = count(), sqlite3.connect
    return in_fork(perform)


def flip(path, position):
    """Invert every bit of one byte; negative positions count from the end."""
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


def alter(folder, statement, *values):
    """Run SQL in an index's database, as another program could; return the changed rows."""
    with closing(sqlite3.connect(folder / "index.sqlite", isolation_level=None)) as connection:
        return connection.execute(statement, values).rowcount


def manifest_of(folder):
    return json.loads((folder / "manifest.json").read_text())
