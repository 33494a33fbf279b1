"""`retriever refresh`, `index --prune`, `query --in` and `--refresh`, and `--watch`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from retriever import Index
from retriever.index import watched
from tests.cli.conftest import assert_refused, printed_json, printed_lines
from tests.retriever.documents.source_samples import DAMAGED, write
from tests.retriever.index.collection_samples import word_vectors

COUNTS = {"skipped": 0, "problems": [], "files_left_out": {}, "outdated": 0, "postponed": 0}


@pytest.fixture
def notes(tmp_path, fake_encoder):
    write(tmp_path / "notes/a.txt", "Apples are red.")
    write(tmp_path / "notes/b.txt", "Pears are green.")
    return tmp_path / "notes"


def test_refresh_follows_renamed_and_removed_files(notes, retriever):
    write(notes / "c.zip", "x")
    done = retriever("index", "notes")
    assert "files        2 read: 2 text\nleft out     1 .zip; --archives" in done.err
    (notes / "b.txt").rename(notes / "d.txt")
    (notes / "a.txt").unlink()
    done = retriever("refresh")
    assert done.out.startswith(".retriever: 1 added, 0 changed, 2 removed, 0 unchanged in ")
    assert done.err == "left out     1 .zip; --archives reads the files in .zip\n"
    report = printed_json(retriever("refresh", "--json"))
    assert report.pop("seconds") >= 0
    assert report.pop("files")["read"] == {}
    assert report == {**COUNTS, "added": 0, "changed": 0, "removed": 0, "unchanged": 1} | {
        "files_left_out": {".zip": 1}
    }


def test_index_prune_works_without_source_memory(notes, retriever):
    retriever("index", "notes")
    os.remove(".retriever/index.sqlite-sources")
    (notes / "b.txt").rename(notes / "d.txt")
    report = printed_json(retriever("index", "notes", "--prune", "--exclude", "*.md", "--json"))
    assert (report["added"], report["deleted"], report["files_left_out"]) == (1, 1, {})
    assert retriever("refresh", "-q") == (0, "", "")


def test_a_missing_source_is_refused_or_pruned(notes, retriever, write_jsonl):
    retriever("index", "notes", write_jsonl({"id": "c", "text": "text"}))
    notes.rename(notes.with_name("moved"))
    assert_refused(retriever("refresh"), "notes does not exist; nothing was changed", "--prune")
    assert_refused(retriever("query", "apples", "--refresh"), "nothing was changed")
    assert printed_json(retriever("query", "apples", "--mode", "bm25", "--json"))["id"] == "a.txt"
    assert printed_json(retriever("refresh", "--prune", "--json"))["removed"] == 2
    assert_refused(retriever("index", "no.index", "--watch"), "no.index: no such file")


def test_a_query_refreshes_first(notes, retriever):
    retriever("index", "notes")
    write(notes / "c.txt", "Plums are blue.")
    done = retriever("query", "plums", "--refresh", "--mode", "bm25", "--json")
    assert printed_json(done)["id"] == "c.txt"
    assert done.err == ".retriever: 1 added, 0 changed, 0 removed\n"


def test_query_in_folder_builds_index_and_answers(notes, retriever, tmp_path):
    write(notes / "bad.txt", DAMAGED)
    arguments = ("query", "apples", "--in", "notes", "--mode", "bm25", "--json")
    first = retriever(*arguments)
    assert printed_json(first)["id"] == "a.txt"
    [place] = (tmp_path / "cache/folders").iterdir()
    assert first.err.startswith(f"notes: indexing in {place}\n")
    assert first.err.endswith("notes: 2 documents indexed\n")
    assert "skipped: " in first.err
    write(notes / "a.txt", "Plums are blue.")
    write(notes / "bad.txt", "Apples are red.")
    again = retriever("query", "apples", "--in", f"{notes}/", "--mode", "bm25", "--json")
    assert [hit["id"] for hit in printed_lines(again)] == ["bad.txt"]
    assert again.err == f"{place}: 1 added, 1 changed, 0 removed\n"
    assert_refused(retriever(*arguments, "-i", "my.index"), "give either --in or --index")
    assert_refused(retriever("query", "x", "--in", "-"), "found standard input")
    assert_refused(retriever("query", "x", "--in", "nowhere"), "nowhere: no such file or folder")
    assert len(list((tmp_path / "cache/folders").iterdir())) == 1


def modes(folder):
    """Return (is a folder, permissions) of all paths in a folder."""
    paths = [folder, *folder.rglob("*")]
    return {(path.is_dir(), oct(path.stat().st_mode & 0o777)) for path in paths}


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_the_index_of_a_query_is_private(notes, retriever, tmp_path, umask):
    arguments = ("query", "apples", "--in", "notes", "--mode", "bm25", "--json")
    place = tmp_path / "cache/folders"
    before = os.umask(umask)
    try:
        first = retriever(*arguments)
        assert printed_json(first)["id"] == "a.txt"
        assert modes(place) == {(True, "0o700"), (False, "0o600")}
        write(notes / "c.txt", "Apples are green.")
        retriever(*arguments)
        assert modes(place) == {(True, "0o700"), (False, "0o600")}
        # One of an earlier release.
        for path in (place, *place.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        assert len(printed_lines(retriever(*arguments))) == 2
        assert modes(place) == {(True, "0o700"), (False, "0o600")}
        # What the user asks for is as the user has it.
        write(tmp_path / "queries.txt", "apples\n")
        retriever("query", "--in", "notes", "--queries", "queries.txt", "--run", "out.run")
        assert (tmp_path / "out.run").stat().st_mode & 0o777 == 0o666 & ~umask
    finally:
        os.umask(before)


def test_a_source_with_a_name_that_is_long_or_not_utf8_can_be_asked(retriever, tmp_path, notes):
    names = ["n" * 250, "é" * 120, "new\nline", os.fsdecode(b"caf\xe9")]
    for name in names:
        (notes.parent / name).mkdir()
        write(notes.parent / name / "a.txt", "Apples are red.")
        for _ in range(2):
            done = retriever("query", "apples", "--in", name, "--mode", "bm25", "--json")
            assert printed_json(done)["id"] == "a.txt"
    assert len(list((tmp_path / "cache/folders").iterdir())) == len(names)
    retriever("index", names[-1])
    write(notes.parent / names[-1] / "b.txt", "Pears are green.")
    assert printed_json(retriever("refresh", "--json"))["added"] == 1
    records = write(notes.parent / os.fsdecode(b"\xff.jsonl"), '{"id": "r", "text": "one"}\n' * 2)
    assert_refused(retriever("index", str(records)), "the id 'r' was given before, at ")
    for name in (os.fsdecode(b"\xff.md"), "l" * 250 + ".md"):
        write(notes.parent / name, "Apples are red.")
    done = retriever("query", "apples", "--in", "l" * 250 + ".md", "--mode", "bm25", "--json")
    assert printed_json(done)["passage"] == "Apples are red."
    done = retriever("query", "x", "--in", os.fsdecode(b"\xff.md"))
    assert done.code == 2
    assert done.err.endswith("\\udcff.md': the file's name is not UTF-8; rename it\n")


def test_a_change_is_found_within_two_seconds(notes, retriever, tmp_path, write_jsonl):
    pytest.importorskip("watchfiles")
    records = write_jsonl({"id": "r", "text": "one"})
    # The index is inside of what it is of.
    retriever("index", "notes", records, "-i", "notes/my.index")
    stop = threading.Event()
    with Index.open("notes/my.index") as index:
        reports = []
        following = threading.Thread(target=lambda: reports.extend(watched(index, stop)))
        following.start()
        time.sleep(0.5)
        try:
            for number, change in enumerate(
                (
                    lambda: write(notes / "c.txt", "new"),
                    lambda: (notes / "c.txt").unlink(),
                    lambda: (notes / "damaged.pdf").write_bytes(b"%PDF-1.4 cut off"),
                    lambda: write(records, '{"id": "r", "text": "two"}\n'),
                    lambda: notes.rename(tmp_path / "moved"),
                )
            ):
                started = time.monotonic()
                change()
                while len(reports) <= number and time.monotonic() - started < 5:
                    time.sleep(0.01)
                assert time.monotonic() - started < 2
            # None is reported twice.
            time.sleep(1.2)
            assert len(reports) == 5
        finally:
            stop.set()
            following.join()


def test_index_follows_its_sources_until_ctrl_c(tmp_path):
    pytest.importorskip("watchfiles")
    write(tmp_path / "notes/a.txt", "w1 w2")
    command = [sys.executable, "-m", "cli.main", "index", "notes", "--watch", "-q"]
    with subprocess.Popen(
        [*command, "--model", str(word_vectors(tmp_path / "words.txt"))],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        late = threading.Timer(60, process.kill)
        late.start()
        assert any("watching its sources" in line for line in process.stderr)
        write(tmp_path / "notes/b.txt", "w3")
        assert process.stderr.readline() == ".retriever: 1 added, 0 changed, 0 removed\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        late.cancel()
