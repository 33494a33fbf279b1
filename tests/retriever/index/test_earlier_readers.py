"""Files that a reader of an earlier release read, and what an index remembers of its files."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from types import SimpleNamespace

import pytest

from retriever import CorpusReader, Index
from retriever.documents import PassageSettings, files
from retriever.documents.kinds import plain
from retriever.documents.losses import Loss
from retriever.index import RefreshReport, reindexed, remembered_files
from retriever.index.sources.memory import memory_path
from tests.retriever.documents.source_samples import write


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "my.index") as created:
        yield created


@pytest.fixture
def notes(tmp_path):
    write(tmp_path / "notes/a.md", "# Apples\nred")
    write(tmp_path / "notes/b.md", "# Pears\ngreen")
    write(tmp_path / "notes/c.txt", "plums")
    write(tmp_path / "notes/d.zip", "x")
    return tmp_path / "notes"


def remember(index, *sources):
    return index.add(CorpusReader(sources, on_empty="yield"), remember=True)


def make_newer(monkeypatch, kind):
    """Give the reader of a kind the next version."""
    newer = files.KINDS[kind]._replace(reader_version=files.KINDS[kind].reader_version + 1)
    monkeypatch.setitem(files.KINDS, kind, newer)


def read_more(monkeypatch):
    """Let the reader of Markdown find one word more, and lose a part."""
    read_markdown = plain.read_markdown

    def reader(text):
        parsed = read_markdown(text)
        return parsed._replace(
            text=f"{parsed.text} ripe", losses=(Loss("data", "1 picture left out"),)
        )

    monkeypatch.setattr(plain, "read_markdown", reader)
    make_newer(monkeypatch, "markdown")


def test_refresh_reads_files_again_after_reader_changed(index, notes, monkeypatch, fake_encoder):
    remember(index, notes)
    assert index.refresh() == RefreshReport(unchanged=3, files_left_out={".zip": 1})
    read_more(monkeypatch)
    report = index.refresh()
    assert (report.changed, report.unchanged, report.outdated, report.postponed) == (2, 1, 2, 0)
    assert [hit.id for hit in index.search("ripe", mode="bm25")] == ["a.md", "b.md"]
    assert index.refresh() == RefreshReport(unchanged=3, files_left_out={".zip": 1})


def test_equal_documents_are_not_encoded_again(index, notes, monkeypatch, fake_encoder):
    remember(index, notes)
    make_newer(monkeypatch, "markdown")
    encoded = fake_encoder.encoded
    report = index.refresh()
    assert (report.changed, report.outdated) == (0, 2)
    assert fake_encoder.encoded == encoded
    assert index.refresh().outdated == 0


def test_a_changed_file_is_read_whatever_the_time(index, notes, monkeypatch):
    remember(index, notes)
    read_more(monkeypatch)
    write(notes / "b.md", "# Pears\nyellow")
    report = index.refresh(seconds=0)
    assert (report.changed, report.outdated, report.postponed) == (1, 0, 1)
    # The index answers from what the earlier reader found.
    assert [hit.id for hit in index.search("ripe", mode="bm25")] == ["b.md"]
    assert [hit.id for hit in index.search("red", mode="bm25")] == ["a.md"]
    report = index.refresh(seconds=60)
    assert (report.changed, report.outdated, report.postponed) == (1, 1, 0)


def test_timed_refresh_commits_batches_within_its_time(index, notes, monkeypatch):
    remember(index, notes)
    read_more(monkeypatch)
    monkeypatch.setattr("retriever.index.refreshing._TIMED_BATCH", 1)
    # The start, and before each batch.
    times = iter([0.0, 4.9, 5.0])
    clock = SimpleNamespace(monotonic=lambda: next(times))
    monkeypatch.setattr("retriever.index.refreshing.time", clock)
    report = index.refresh(seconds=5)
    assert (report.outdated, report.postponed) == (1, 1)
    assert [hit.id for hit in index.search("ripe", mode="bm25")] == ["a.md"]


def drop_readings(index):
    """Leave what an earlier release remembered."""
    with closing(sqlite3.connect(memory_path(index.store))) as database:
        database.executescript("DROP TABLE readings; DROP TABLE left_out")


def test_refresh_rereads_sources_of_earlier_release_where_reader_changed(index, notes, monkeypatch):
    for kind in files.KINDS:
        monkeypatch.setitem(files.KINDS, kind, files.KINDS[kind]._replace(reader_version=0))
    remember(index, notes)
    drop_readings(index)
    assert index.refresh().outdated == 0
    drop_readings(index)
    make_newer(monkeypatch, "text")
    report = index.refresh()
    assert (report.outdated, report.changed, report.unchanged) == (1, 0, 3)
    assert remembered_files(index.store).read == {"text": 1, "Markdown": 2}


@pytest.mark.skipif(os.geteuid() == 0, reason="no folder is read-only for this user")
def test_read_only_source_memory_of_earlier_release_is_read(index, notes):
    remember(index, notes)
    drop_readings(index)
    place = memory_path(index.store)
    place.chmod(stat.S_IRUSR)
    try:
        assert index.sources == [str(notes)]
        assert remembered_files(index.store).read == {}
    finally:
        place.chmod(stat.S_IRUSR | stat.S_IWUSR)


def test_source_memory_counts_files_by_outcome(index, notes, monkeypatch):
    read_more(monkeypatch)
    write(notes / "blank.txt", " \n")
    write(notes / "not.pdf", "no PDF")
    write(notes / "box.mbox", "From a\nSubject: x\n\none\n\nFrom b\nSubject: y\n\ntwo\n")
    reader = CorpusReader([notes], on_empty="yield", on_error="skip-files")
    index.add(reader, remember=True)
    expected = {
        "read": {"Markdown": 2, "text": 2, "mailbox": 1},
        "in_part": 2,
        "losses": {"data": 2},
        "named": [f"{notes}/{name}: 1 picture left out" for name in ("a.md", "b.md")],
        "without_text": 1,
        "skipped": 1,
        "faults": [],
        "left_out": {".zip": 1},
    }
    assert reader.files.to_json() == expected
    remembered = remembered_files(index.store).to_json()
    assert len(remembered["faults"]) == 1
    assert remembered["faults"][0].startswith(f"{notes}/not.pdf: ")
    assert {**remembered, "faults": []} == expected
    (notes / "a.md").unlink()
    (notes / "not.pdf").unlink()
    index.refresh()
    remaining = remembered_files(index.store).to_json()
    assert remaining["read"] == {"Markdown": 1, "text": 2, "mailbox": 1}
    assert (remaining["in_part"], remaining["skipped"]) == (1, 0)


def test_deleted_documents_stay_deleted_where_their_files_are_read_again(index, notes, monkeypatch):
    write(notes / "box.mbox", "From a\nSubject: x\n\nfirst\n\nFrom b\nSubject: y\n\nsecond\n")
    write(notes / "erased.md", "# Erased\nfigs")
    remember(index, notes)
    index.delete(["erased.md"], erase=True)
    index.delete(["b.md", "box.mbox#2"])
    ids = [document.id for document in index]
    read_more(monkeypatch)
    make_newer(monkeypatch, "mbox")
    report = index.refresh()
    assert (report.added, report.changed, report.outdated) == (0, 1, 3)
    assert [document.id for document in index] == ids
    write(notes / "b.md", "# Pears\nyellow")
    assert index.refresh().added == 1
    assert index.refresh().is_change is False


def test_deleted_documents_stay_deleted_after_an_interruption(index, notes, monkeypatch):
    remember(index, notes)
    index.delete(["b.md"])
    read_more(monkeypatch)
    # A file that changed just now has no stamp yet.
    monkeypatch.setattr("retriever.index.sources.files._RECENT_NS", 0)
    index.refresh(seconds=0)
    with monkeypatch.context() as patch:
        patch.setattr(CorpusReader, "placed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            index.refresh()
    report = index.refresh()
    assert (report.added, report.changed, report.outdated) == (0, 1, 2)
    assert index.get("b.md") is None
    assert index.refresh() == RefreshReport(unchanged=3, files_left_out={".zip": 1})


def interrupted(reader):
    raise KeyboardInterrupt


def test_a_reindexed_index_of_an_earlier_release_gets_its_labels_by_refresh(
    tmp_path, notes, fake_encoder
):
    folder = tmp_path / "earlier.index"
    earlier = PassageSettings(labels=False, tables=False)
    with Index.create(folder, encoder=fake_encoder, passages=earlier) as index:
        remember(index, notes)
        index.delete(["b.md"])
    # The refresh of an index without labels has none.
    with Index.open(folder, encoder=fake_encoder) as index:
        index.refresh()
        assert labels_of_all(index) == [[], []]
    reindexed(folder, encoder=fake_encoder, overlap=0)
    with Index.open(folder, encoder=fake_encoder) as index:
        assert index.passages == PassageSettings(overlap=0)
        assert (index.passages.labels, index.passages.tables) == (True, True)
        assert index.refresh().outdated == 3
        assert labels_of_all(index) == [["a"], ["c"]]
        assert index.refresh().outdated == 0


def test_a_damaged_memory_of_sources_does_not_stop_reindexing(tmp_path, notes, fake_encoder):
    folder = tmp_path / "earlier.index"
    with Index.create(
        folder, encoder=fake_encoder, passages=PassageSettings(labels=False)
    ) as index:
        remember(index, notes)
        memory_path(index.store).write_bytes(b"no database" * 100)
    assert reindexed(folder, encoder=fake_encoder, overlap=0) is not None


def labels_of_all(index):
    marks = [document.outline for document in index]
    return [[mark.label for mark in outline if mark.kind == "label"] for outline in marks]
