"""The field `modified` of a document is the time of its file, and follows it without encoding."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing

import pytest

from retriever import CorpusReader, Index
from retriever.index import sources
from tests.retriever.documents.source_samples import write

# 2023-11-14, and a day of the year 2001.
FIRST = 1_700_000_000
SECOND = 1_000_000_000


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "my.index") as index:
        yield index


def touch(path, seconds):
    os.utime(path, (seconds, seconds))


def remember(index, *paths):
    return index.add(CorpusReader(paths, on_empty="yield"), remember=True)


def times(index):
    return {document.id: document.metadata.get("modified") for document in index}


def test_a_touched_file_changes_the_time_alone_and_encodes_nothing(tmp_path, index, fake_encoder):
    notes = tmp_path / "notes"
    for name in ("a.txt", "b.md", "c.txt"):
        write(notes / name, f"text of {name}")
        touch(notes / name, FIRST)
    write(notes / "own.md", "---\nmodified: 2020-05-05\n---\ntext")
    remember(index, notes)
    assert times(index)["a.txt"] == "2023-11-14T22:13:20"
    assert times(index)["own.md"] == "2020-05-05"
    encoded = fake_encoder.encoded
    for name in ("a.txt", "own.md"):
        touch(notes / name, SECOND)
    report = index.refresh()
    assert not report.is_change
    assert fake_encoder.encoded == encoded
    assert times(index) == {
        "a.txt": "2001-09-09T01:46:40",
        "b.md": "2023-11-14T22:13:20",
        "c.txt": "2023-11-14T22:13:20",
        "own.md": "2020-05-05",
    }
    assert [hit.id for hit in index.search("text", where='modified before "2010"')] == ["a.txt"]
    assert index.verify() == []


def test_records_of_a_named_file_have_no_time_and_a_named_document_has_one(tmp_path, index):
    write(tmp_path / "rows.jsonl", json.dumps({"id": "r", "text": "x"}))
    write(tmp_path / "note.md", "text")
    touch(tmp_path / "note.md", FIRST)
    remember(index, tmp_path / "rows.jsonl", tmp_path / "note.md")
    touch(tmp_path / "rows.jsonl", SECOND)
    touch(tmp_path / "note.md", SECOND)
    index.refresh()
    assert set(times(index).values()) == {None, "2001-09-09T01:46:40"}


def test_a_deleted_document_of_a_touched_file_stays_deleted(tmp_path, index):
    write(tmp_path / "notes/a.txt", "text")
    write(tmp_path / "notes/b.txt", "text")
    remember(index, tmp_path / "notes")
    index.delete(["a.txt"])
    touch(tmp_path / "notes/a.txt", SECOND)
    index.refresh()
    assert list(times(index)) == ["b.txt"]


def test_an_interrupted_refresh_of_times_is_made_up(tmp_path, index, monkeypatch):
    write(tmp_path / "notes/a.txt", "text")
    touch(tmp_path / "notes/a.txt", FIRST)
    remember(index, tmp_path / "notes")
    touch(tmp_path / "notes/a.txt", SECOND)
    with monkeypatch.context() as patch:
        patch.setattr(sources.memory.SourceMemory, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            index.refresh()
    touch(tmp_path / "notes/a.txt", FIRST)
    index.refresh()
    assert times(index) == {"a.txt": "2023-11-14T22:13:20"}


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_documents_of_an_earlier_release_get_the_times_of_their_files(
    tmp_path, index, fake_encoder
):
    notes = tmp_path / "notes"
    write(notes / "a.txt", "text of a")
    write(notes / "own.md", "---\nmodified: 2020\n---\ntext")
    touch(notes / "a.txt", FIRST)
    remember(index, notes)
    # As that release left it: no time in the metadata, nor at the end of the stamp.
    index.update("a.txt", metadata={})
    with closing(sqlite3.connect(tmp_path / "my.index/index.sqlite-sources")) as database:
        database.execute("UPDATE files SET stamp = rtrim(stamp, ' t')")
        database.commit()
    encoded = fake_encoder.encoded
    index.refresh()
    assert times(index) == {"a.txt": "2023-11-14T22:13:20", "own.md": 2020}
    assert fake_encoder.encoded == encoded


def test_many_touched_files_are_updated_in_batches(tmp_path, index):
    for number in range(1100):
        write(tmp_path / f"notes/{number}.txt", f"note {number}")
    remember(index, tmp_path / "notes")
    for number in range(1100):
        touch(tmp_path / f"notes/{number}.txt", SECOND)
    index.refresh()
    assert set(times(index).values()) == {"2001-09-09T01:46:40"}
    assert index.verify() == []


def test_messages_of_a_mailbox_have_a_date_and_no_time_of_the_file(tmp_path, index):
    mails = [f"From a\nSubject: s{number}\n\nMail {number}.\n\n" for number in range(3)]
    write(tmp_path / "notes/box.mbox", "".join(mails[:2]))
    touch(tmp_path / "notes/box.mbox", FIRST)
    remember(index, tmp_path / "notes")
    write(tmp_path / "notes/box.mbox", "".join(mails))
    report = index.refresh()
    assert (report.added, report.changed) == (1, 0)
    touch(tmp_path / "notes/box.mbox", SECOND)
    index.refresh()
    assert set(times(index).values()) == {None}
