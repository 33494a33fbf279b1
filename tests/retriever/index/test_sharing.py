"""One Index shared by threads and by forked processes, beside writers and other programs."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from indexes.folder.lock import writer_lock
from indexes.folder.writer import FolderWriter
from retriever import Document, Index
from retriever.errors import ClosedIndexError, IndexLockedError
from tests.crash.forked import in_child

SOAK_SECONDS = float(os.environ.get("RETRIEVER_SOAK_SECONDS", "10"))
THREADS = 16
QUERIES = [
    ("apples n3", "bm25", None),
    ("apples pears n5", "dense", None),
    ("pears n7", "hybrid", "i >= 2"),
]
Answer = list[tuple[str, float]]


def document(number: int) -> Document:
    words = "apples pears" if number % 3 else "plums"
    return Document(f"d{number}", f"{words} n{number % 11} n{number % 5}", None, {"i": number % 9})


def ask(index: Index, query: tuple[str, Any, str | None]) -> Answer:
    text, mode, where = query
    return [(hit.id, hit.score) for hit in index.search(text, mode=mode, where=where, k=5)]


@pytest.fixture
def folder(tmp_path: Path, fake_encoder: Any) -> Path:
    with Index.create(tmp_path / "my.index") as index:
        index.add(map(document, range(40)))
    return tmp_path / "my.index"


def changes(index: Index, count: int) -> Iterator[None]:
    """Commits that add documents, and some that delete one."""
    for number in range(40, 40 + count):
        index.add([document(number)])
        yield
        if number % 7 == 0:
            index.delete([f"d{number - 30}"])
            yield


def search_along(index: Index, serial: list[list[Answer]], done: threading.Event) -> int:
    """Search until `done`; returns the number of searches.

    Every answer must be that of one commit of the serial run, and of no earlier one than before.
    """
    searches, place = 0, [0] * len(QUERIES)
    while not done.is_set():
        which = searches % len(QUERIES)
        answer = ask(index, QUERIES[which])
        following = range(place[which], len(serial))
        found = [at for at in following if serial[at][which] == answer][:1]
        assert found, f"{QUERIES[which]}: {answer} after commit {place[which]}"
        place[which] = found[0]
        searches += 1
    return searches


@pytest.mark.parametrize("seconds", [0.4, pytest.param(SOAK_SECONDS, marks=pytest.mark.soak)])
def test_searches_beside_writer_thread_equal_serial_run(
    folder: Path, tmp_path: Path, seconds: float
) -> None:
    count = int(20 * seconds)
    with Index.open(folder) as index:
        index.snapshot(tmp_path / "serial")
    with Index.open(tmp_path / "serial") as index:
        serial = [[ask(index, query) for query in QUERIES]]
        for _ in changes(index, count):
            serial.append([ask(index, query) for query in QUERIES])
    done = threading.Event()
    with Index.open(folder) as shared, ThreadPoolExecutor(THREADS) as pool:
        searching = [pool.submit(search_along, shared, serial, done) for _ in range(THREADS)]
        try:
            began = time.monotonic()
            for number, _ in enumerate(changes(shared, count), start=1):
                ahead = began + seconds * number / (len(serial) - 1) - time.monotonic()
                time.sleep(max(0.0, ahead))
        finally:
            done.set()
        assert min(one.result() for one in searching) > 0
        assert [ask(shared, query) for query in QUERIES] == serial[-1]


def test_closed_index_raises_error_in_every_thread(folder: Path) -> None:
    index = Index.open(folder)
    index.close()
    with ThreadPoolExecutor(1) as pool:
        for call in (
            lambda: index.search("apples", mode="bm25"),
            lambda: index.add(["text"]),
            lambda: index.delete(["d1"]),
            lambda: len(index),
            lambda: index.info(),
        ):
            for run in (call, lambda call=call: pool.submit(call).result()):
                with pytest.raises(ClosedIndexError, match="closed"):
                    run()


def test_a_forked_child_sees_commits_made_after_its_parent_closed(folder: Path) -> None:
    """Like gunicorn with ``--preload``: the application is created, then workers are forked."""
    index = Index.open(folder)
    assert ask(index, QUERIES[0])
    receive, send = os.pipe()

    def serve() -> Any:
        before = ask(index, QUERIES[0])
        os.read(receive, 1)
        after = [hit.id for hit in index.search("zebra", mode="bm25")]
        index.add([Document("of the child", "giraffe")])
        return [len(before), after, len(index)]

    def parent() -> None:
        index.close()
        with Index.open(folder) as other:
            other.add([Document("new", "zebra")])
        os.write(send, b"x")

    thread = threading.Timer(0.3, parent)
    thread.start()
    found = in_child(serve)
    thread.join()
    assert found == (0, [5, ["new"], 42])
    with Index.open(folder) as other:
        assert "of the child" in other


def test_nested_change_is_refused_and_forked_child_can_write(
    folder: Path,
) -> None:
    with Index.open(folder) as index:

        def documents(within: Callable[[], Any]) -> Iterator[Document]:
            yield document(40)
            within()

        for change in (index.clear, index.reindex):
            with pytest.raises(IndexLockedError, match="this thread is already changing"):
                index.add(documents(change))
        # The parent's thread still adds when the child begins.
        reading, forked = threading.Event(), threading.Event()

        def wait() -> None:
            reading.set()
            forked.wait()

        with ThreadPoolExecutor(1) as pool:
            adding = pool.submit(index.add, documents(wait))
            reading.wait()
            _, told = in_child(lambda: index.delete(["d1"]))
            forked.set()
            adding.result()
        assert "another writer holds" in told
        assert index.delete(["d1"]) == 1


def test_child_forked_during_search_raises_error(folder: Path) -> None:
    with Index.open(folder) as index:
        documents = iter(index)
        next(documents)
        _, told = in_child(lambda: len(index))
        assert "forked during a search" in told
        assert len(list(documents)) == 39
        assert in_child(lambda: len(index)) == (0, 40)


def test_a_forked_child_does_not_keep_the_lock_of_its_parent(folder: Path) -> None:
    hold, release = os.pipe()
    with writer_lock(folder):
        child = os.fork()
        if child == 0:
            os.read(hold, 1)
            os._exit(0)
        assert in_child(lambda: locked(folder)) == (0, True)
    assert in_child(lambda: locked(folder)) == (0, False)
    os.write(release, b"x")
    os.waitpid(child, 0)


def locked(folder: Path) -> bool:
    try:
        with writer_lock(folder):
            return False
    except IndexLockedError:
        return True


def test_another_program_that_holds_the_database_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexes.folder.connection.BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(folder / "index.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with Index.open(folder) as index:
            assert ask(index, QUERIES[0])
            with pytest.raises(IndexLockedError, match="another program") as caught:
                index.delete(["d1"])
        assert "\n" not in str(caught.value)
        other.execute("ROLLBACK")
    with FolderWriter(folder) as writer:
        assert writer.delete(["d1"]) == 1
