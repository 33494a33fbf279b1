"""Small indexes for the tests of the storage layer, and what a reader finds in them."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.bm25.scoring import BM25
from indexes.filters.allowed import Allowed
from indexes.folder.view import FolderReader, FolderView
from indexes.folder.writer import FolderWriter, NewDocument

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
SETTINGS: dict[str, Any] = {"encoder": {"model": "sample"}}


def document(
    id_: str, text: str, metadata: Mapping[str, Any] | None = None, *, passages: int = 1
) -> NewDocument:
    """A document whose words are dealt out to `passages` passages."""
    words = text.split()
    share = -(-len(words) // passages)
    spans, start = [], 0
    for first in range(0, len(words), share):
        stop = start + len(" ".join(words[first : first + share]))
        spans.append((start, stop))
        start = stop + 1
    return NewDocument(id_, None, text, metadata or {}, text.encode()[:16], spans)


def vector_of(text: str) -> NDArray[np.float32]:
    chance = np.random.default_rng(zlib.crc32(text.encode()))
    vector = chance.standard_normal(DIMENSIONS)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def commit(
    writer: FolderWriter,
    *documents: NewDocument,
    metadata: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Commit documents with a vector and the terms of each passage."""
    texts = [d.text[start:stop] for d in documents for start, stop in d.spans]
    vectors = np.array([vector_of(text) for text in texts], np.float32)
    writer.commit(
        documents,
        vectors.reshape(len(texts), DIMENSIONS),
        [text.split() for text in texts],
        metadata,
    )


def make_index(folder: Path, *commits: list[NewDocument]) -> Path:
    """An index with these commits, one segment each."""
    with FolderWriter(folder, create=SETTINGS, pending_limit=0) as writer:
        for documents in commits:
            commit(writer, *documents)
    return folder


def mask_of(allowed: Allowed) -> list[bool]:
    """For each passage of a segment whether it is allowed."""
    return allowed.at(np.arange(len(allowed))).tolist()


def live_passages(view: FolderView) -> list[int]:
    found: list[int] = []
    for live in view.segments:
        ids = live.segment.ids if live.live is None else live.segment.ids[live.live]
        found += ids.tolist()
    return found


def texts_in(view: FolderView) -> dict[str, str]:
    """Id and text of every document of which a passage lives, as searches see them."""
    passages = live_passages(view)
    stored = view.passages(passages)
    assert sorted(stored) == sorted(passages)
    return {passage.id: passage.text for passage in stored.values()}


def texts(folder: Path) -> dict[str, str]:
    reader = FolderReader(folder)
    try:
        with reader.view() as view:
            return texts_in(view)
    finally:
        reader.close()


def metadata(folder: Path) -> dict[str, dict[str, Any]]:
    reader = FolderReader(folder)
    try:
        with reader.view() as view:
            stored = view.passages(live_passages(view))
            return {passage.id: passage.metadata for passage in stored.values()}
    finally:
        reader.close()


def found_by(view: FolderView, term: str) -> set[str]:
    """Ids of the documents that BM25 finds for a term."""
    matches = BM25(view.segments, None, view.statistics).search([term], 1000)
    passages = [
        int(view.segments[segment].segment.ids[position])
        for segment, position in zip(matches.segments, matches.positions, strict=True)
    ]
    return set(view.documents_of(passages).values())


def in_child(code: str, *arguments: Path | str) -> subprocess.CompletedProcess[str]:
    """Run Python code that reads its arguments from ``sys.argv[1:]``."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )


def in_fork(action: Callable[[], None]) -> int:
    """Run `action` in a forked process that ends without any cleaning up; its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class DyingConnection(sqlite3.Connection):
    """Ends the process in place of its `dies_at`-th statement."""

    dies_at = 0
    executed = 0

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        if DyingConnection.executed == DyingConnection.dies_at:
            os._exit(9)
        DyingConnection.executed += 1
        return super().execute(*arguments)


def flip(path: Path, position: int) -> None:
    """Invert every bit of one byte; negative positions count from the end."""
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


def manifest_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return content
