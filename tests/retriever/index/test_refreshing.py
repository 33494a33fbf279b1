"""A refreshed index holds what one made afresh of the same sources holds."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from retriever import CorpusReader, Document, Index
from retriever.documents.folders import Entry
from retriever.errors import DamagedIndexError, IndexLockedError, SourceError
from retriever.index import RefreshReport
from retriever.index.sources import changes as source_changes
from retriever.index.sources import files as source_files
from retriever.index.sources import remembered
from retriever.index.sources.memory import SourceMemory
from tests.retriever.documents.source_samples import DAMAGED, write

WORDS = [f"w{number}" for number in range(30)]
SEEDS = [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 12))]


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "my.index") as made:
        yield made


def remember(index, *sources, **options):
    return index.add(CorpusReader(sources, on_empty="yield", **options), remember=True)


def afresh(folder, *sources):
    with Index.create(folder) as index:
        index.add(CorpusReader(sources, on_empty="yield"))
        return list(index)


def test_refresh_adds_changes_renames_and_deletes_documents(tmp_path, index, fake_encoder):
    notes = tmp_path / "notes"
    for name in "abcd":
        write(notes / f"{name}.txt", f"text of {name}")
    remember(index, notes)
    index.add([Document("own", "of a program")])
    assert index.refresh() == RefreshReport(unchanged=4)
    write(notes / "a.txt", "another text")
    (notes / "b.txt").unlink()
    (notes / "c.txt").rename(notes / "e.txt")
    write(notes / "f.md", "# New\nbody")
    before = fake_encoder.encoded
    assert index.refresh() == RefreshReport(added=2, changed=1, removed=2, unchanged=1)
    # That of the renamed file has no title, for which its new name stands.
    assert fake_encoder.encoded == before + 3
    assert [hit.id for hit in index.search("text of c", k=1, mode="dense")] == ["e.txt"]
    assert {document.id: document.text for document in index} == {
        "a.txt": "another text",
        "d.txt": "text of d",
        "e.txt": "text of c",
        "f.md": "body",
        "own": "of a program",
    }
    assert index.refresh() == RefreshReport(unchanged=4)


def test_refresh_reuses_vectors_of_renamed_texts(tmp_path, index, fake_encoder):
    # With a title, the name is no part of what is encoded.
    words = [f"word{number}." for number in range(200)]
    for name in ("a.md", "b.md"):
        write(tmp_path / "notes" / name, " ".join([f"# Words\n\n{name}", *words]))
    remember(index, tmp_path / "notes")
    passages = len(index.spans("a.md"))
    first = fake_encoder.encoded
    assert passages > 5
    # Renamed, moved below, over a file that is there, and by another run.
    write(tmp_path / "notes/b.md", "end".join(["# Words\n\nb.md ", " ".join(words), "."]))
    index.refresh()
    changed = fake_encoder.encoded - first
    assert 0 < changed <= passages
    (tmp_path / "notes/below").mkdir()
    (tmp_path / "notes/b.md").rename(tmp_path / "notes/below/b.md")
    assert index.refresh() == RefreshReport(added=1, removed=1, unchanged=1)
    (tmp_path / "notes/a.md").rename(tmp_path / "notes/below/b.md")
    assert index.refresh() == RefreshReport(changed=1, removed=1)
    (tmp_path / "notes/below/b.md").rename(tmp_path / "notes/c.md")
    report = index.add(CorpusReader(tmp_path / "notes"), remember=True, prune=True)
    assert (report.added, report.deleted, report.passages) == (1, 1, passages)
    assert report.repeated == passages
    assert fake_encoder.encoded - first == changed
    # One word more at the end.
    write(tmp_path / "notes/c.md", " ".join(["# Words\n\na.md", *words, "more."]))
    index.refresh()
    assert fake_encoder.encoded - first == changed + 1
    with index._opened.view() as view:
        stored = view.document("c.md")
        texts = [f"Words {stored.text[start:stop]}" for _, start, stop in stored.passages]
        vectors = view.vectors([passage for passage, _, _ in stored.passages])
    assert np.allclose(vectors, fake_encoder.encode(texts))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_changes_of_files_give_the_index_of_a_new_run(tmp_path, fake_encoder, seed):
    chance = random.Random(seed)
    given = [tmp_path / "one", tmp_path / "two", tmp_path / "c.jsonl", tmp_path / "lines.txt"]
    names = ["a.txt", "b.md", "sub/c.txt", "sub/deep/d.txt", "e.txt.gz", "f.log"]

    def text():
        return " ".join(chance.choices(WORDS, k=3))

    def change():
        kind = chance.choice(["write", "write", "remove", "rename", "lines", "records", "ignore"])
        folder = chance.choice(given[:2])
        path = folder / chance.choice(names)
        if kind == "write":
            write(path, text())
        elif kind == "remove":
            path.unlink(missing_ok=True)
        elif kind == "rename" and path.exists():
            to = folder / chance.choice(names)
            to.parent.mkdir(parents=True, exist_ok=True)
            path.rename(to)
        elif kind == "lines":
            write(given[3], "".join(text() + "\n" for _ in range(chance.randint(1, 5))))
        elif kind == "records":
            ids = chance.sample(range(6), chance.randint(1, 5))
            lines = [{"id": f"r{id_}", "text": text(), "n": chance.randint(0, 1)} for id_ in ids]
            write(given[2], "".join(json.dumps(line) + "\n" for line in lines))
        elif kind == "ignore":
            write(folder / ".gitignore", chance.choice(["*.md\n", "sub/\n", "!a.txt\n"]))

    for folder in given[:2]:
        write(folder / "always.txt", text())
    for kind in ("lines", "records"):
        while not given[3 if kind == "lines" else 2].exists():
            change()
    index = Index.create(tmp_path / "kept.index")
    remember(index, *given)
    for step in range(12):
        for _ in range(chance.randint(1, 4)):
            change()
        held = {document.id: document for document in index}
        report = index.refresh()
        expected = afresh(tmp_path / f"{step}.index", *given)
        assert list(index) == expected
        now = {one.id: one for one in expected}
        assert report.added == len(now.keys() - held.keys())
        assert report.removed == len(held.keys() - now.keys())
        assert report.changed == sum(held[id_] != now[id_] for id_ in held.keys() & now.keys())
    index.close()


def test_refresh_compares_size_and_time_before_content(tmp_path, index, monkeypatch):
    notes = tmp_path / "notes"
    for number in range(3):
        write(notes / f"{number}.txt", f"text {number}")
    monkeypatch.setattr(source_files, "_RECENT_NS", 0)
    remember(index, notes)
    hashed = []
    own = source_changes.file_digest
    monkeypatch.setattr(
        source_changes, "file_digest", lambda place: hashed.append(place) or own(place)
    )
    index.refresh()
    assert hashed == []
    # The same bytes at another time are read once, and not encoded.
    os.utime(notes / "1.txt")
    for _ in range(2):
        assert index.refresh() == RefreshReport(unchanged=3)
    assert hashed == [f"{notes}/1.txt"]


def test_a_change_without_another_size_or_time_right_after_reading_is_found(tmp_path, index):
    path = write(tmp_path / "notes/a.txt", "one text")
    remember(index, tmp_path / "notes")
    status = path.stat()
    write(path, "two text")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert index.refresh().changed == 1


def test_a_missing_source_changes_nothing(tmp_path, index):
    write(tmp_path / "notes/a.txt", "text of a")
    write(tmp_path / "other/b.txt", "text of b")
    lines = write(tmp_path / "c.jsonl", '{"id": "c", "text": "text of c"}\n')
    remember(index, tmp_path / "notes", tmp_path / "other", lines)
    held = list(index)
    write(tmp_path / "other/new.txt", "new")
    (tmp_path / "notes").rename(tmp_path / "moved")
    with pytest.raises(SourceError, match="notes does not exist; nothing was changed"):
        index.refresh()
    # As where a disk is not mounted.
    (tmp_path / "notes").mkdir()
    with pytest.raises(SourceError, match="notes holds none of its files any more"):
        index.refresh()
    (tmp_path / "notes").rmdir()
    write(tmp_path / "notes", "now a file")
    with pytest.raises(SourceError, match="notes is no folder any more"):
        index.refresh()
    (tmp_path / "notes").unlink()
    assert list(index) == held
    report = index.refresh(prune=True)
    assert (report.removed, report.added) == (1, 1)
    assert index.sources == [str(tmp_path / "other"), str(lines)]
    assert [document.id for document in index] == ["c", "other/b.txt", "other/new.txt"]


def test_an_index_that_is_moved_away_while_it_is_read_has_no_sources(tmp_path, index, monkeypatch):
    write(tmp_path / "a.txt", "text")
    remember(index, tmp_path / "a.txt")
    assert len(remembered.remembered_sources(index.store)) == 1

    def move_and_read(store):
        index.folder.rename(tmp_path / "moved")
        return SourceMemory(store)

    monkeypatch.setattr(remembered, "SourceMemory", move_and_read)
    assert remembered.remembered_sources(index.store) == []


def test_a_folder_that_cannot_be_listed_or_read_keeps_what_the_index_has(tmp_path, index):
    if os.geteuid() == 0:
        pytest.skip("this user can read everything")
    below = write(tmp_path / "notes/below/a.txt", "text").parent
    secret = write(tmp_path / "notes/b.txt", "text")
    remember(index, tmp_path / "notes")
    below.chmod(0)
    write(secret, "changed").chmod(0)
    report = index.refresh()
    assert (report.removed, report.skipped, report.unchanged) == (0, 2, 2)
    below.chmod(0o700)


@pytest.mark.parametrize("place", ["below", "."])
def test_a_folder_with_an_ignore_file_that_is_too_large_keeps_its_documents(tmp_path, index, place):
    notes = tmp_path / "notes"
    for name in ("a.txt", "below/b.txt", "below/c.txt"):
        write(notes / name, f"text of {name}")
    remember(index, notes, on_error="skip-files")
    rules = write(notes / place / ".gitignore", "#" * 70_000)
    write(notes / place / "new.txt", "not read")
    (notes / "below/c.txt").unlink()
    report = index.refresh()
    assert (report.added, report.removed, report.unchanged, report.skipped) == (0, 0, 3, 1)
    assert ".gitignore is larger than 64 KiB" in report.problems[0]
    rules.unlink()
    assert index.refresh() == RefreshReport(added=1, removed=1, unchanged=2)


def test_files_that_can_be_listed_and_not_looked_at_keep_their_documents(
    tmp_path, index, monkeypatch
):
    for name in ("a.txt", "b.txt"):
        write(tmp_path / "notes" / name, f"text of {name}")
    remember(index, tmp_path / "notes", on_error="skip-files")

    def denied(self, path, *_, **__):
        return Entry(path, "cannot be read: Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("retriever.documents.folders._Walk._entry", denied)
        report = index.refresh()
        assert (report.removed, report.unchanged, report.skipped) == (0, 2, 2)
    assert index.refresh() == RefreshReport(unchanged=2)


def test_refresh_keeps_documents_of_damaged_files(tmp_path, index):
    alone, below = (write(tmp_path / name, "# Bees\nhum") for name in ("a.md", "notes/b.md"))
    mails = [f"From a\nSubject: s{number}\n\nMail {number}.\n\n" for number in range(2)]
    box = write(tmp_path / "notes/c.mbox", "".join(mails))
    remember(index, alone, tmp_path / "notes", on_error="skip-files")
    held = list(index)
    write(alone, DAMAGED)
    write(below, DAMAGED)
    # Of a mailbox, what is read counts.
    write(box, f"From a\nnot a header\n\n{mails[1]}")
    report = index.refresh()
    assert (report.removed, report.unchanged, report.skipped) == (1, 3, 3)
    assert [place.split(": ")[0] for place in report.problems] == [
        *(f"{alone}:1", f"{below}:1", f"{box}#1")
    ]
    assert list(index) == [one for one in held if one.id != "c.mbox#1"]
    write(alone, "new")
    below.unlink()
    assert (index.refresh().changed, len(index)) == (1, 2)


def test_refresh_of_index_without_source_memory_is_refused(tmp_path, index):
    index.add([Document("a", "text")])
    with pytest.raises(SourceError, match="remembers no sources"):
        index.refresh()


def test_prune_leaves_the_documents_of_the_sources_alone_and_forgets_others(tmp_path, index):
    write(tmp_path / "notes/a.txt", "text of a")
    write(tmp_path / "notes/b.txt", "text of b")
    remember(index, tmp_path / "notes")
    other = write(tmp_path / "c.jsonl", '{"id": "c", "text": "text of c"}\n')
    remember(index, other)
    (tmp_path / "notes/b.txt").rename(tmp_path / "notes/d.txt")
    report = index.add(CorpusReader(tmp_path / "notes"), remember=True, prune=True)
    assert (report.added, report.deleted, report.unchanged) == (1, 2, 1)
    assert [document.id for document in index] == ["a.txt", "d.txt"]
    assert index.sources == [str(tmp_path / "notes")]
    assert index.refresh() == RefreshReport(unchanged=2)


def test_refresh_removes_documents_left_by_run_without_prune(tmp_path, index):
    write(tmp_path / "notes/a.txt", "text of a")
    write(tmp_path / "notes/b.txt", "text of b")
    lines = write(tmp_path / "c.jsonl", '{"id": "c", "text": "one"}\n{"id": "d", "text": "two"}\n')
    remember(index, tmp_path / "notes", lines)
    (tmp_path / "notes/b.txt").unlink()
    write(lines, '{"id": "d", "text": "two"}\n')
    remember(index, tmp_path / "notes", lines)
    assert len(index) == 4
    assert index.refresh() == RefreshReport(removed=2, unchanged=2)
    assert [document.id for document in index] == ["a.txt", "d"]


def test_sources_keep_their_fields_and_rules(tmp_path, index):
    write(tmp_path / "notes/a.txt", "text of a")
    write(tmp_path / "notes/drafts/b.txt", "text of b")
    table = write(tmp_path / "t.csv", "key,body,zip\n1,one,01\n")
    from retriever.documents import Fields

    remember(index, tmp_path / "notes", exclude=["drafts/"])
    remember(index, table, fields=Fields("key", "body", types={"zip": "string"}))
    write(tmp_path / "notes/drafts/c.txt", "text of c")
    write(table, "key,body,zip\n1,one,01\n2,two,02\n")
    report = index.refresh()
    assert (report.added, report.files_left_out) == (1, {"excluded": 1})
    assert index["2"] == Document("2", "two", None, {"zip": "02"})


def test_refresh_follows_single_files_and_mailboxes(tmp_path, index, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "read.md", "# Title\nbody")
    mails = [f"From a\nSubject: s{number}\n\nMail {number}.\n\n" for number in range(3)]
    write(tmp_path / "mail/all.mbox", "".join(mails))
    remember(index, "read.md", "mail")
    held = [document.id for document in index]
    assert len(held) == 4
    write(tmp_path / "read.md", "# Title\nanother body")
    write(tmp_path / "mail/all.mbox", "".join(mails[:2]))
    monkeypatch.chdir("/")
    assert index.refresh() == RefreshReport(changed=1, removed=1, unchanged=2)
    assert [document.id for document in index] == [id_ for id_ in held if id_ != "all.mbox#3"]
    assert "another body" in index["read.md"].text


def test_refresh_reads_skipped_files_once_readable(tmp_path, index, monkeypatch):
    write(tmp_path / "notes/a.txt", "text of a")
    write(tmp_path / "notes/b.txt", "")
    for name in ("deleted.txt", "erased.txt"):
        write(tmp_path / "notes" / name, f"text of {name}")
    with monkeypatch.context() as patch:
        patch.setattr(source_files, "lacking", lambda: ["lxml", "gone"])
        remember(index, tmp_path / "notes")
        index.delete(["erased.txt"], erase=True)
        index.delete(["deleted.txt"])
        read = []
        own = CorpusReader.placed
        patch.setattr(CorpusReader, "placed", lambda self: read.append(self) or own(self))
        index.refresh()
        patch.setattr(source_files, "lacking", lambda: ["lxml"])
        assert read == []
        index.refresh()
        index.refresh()
        assert [reader._settings.only for reader in read] == [{"b.txt"}]
        assert [document.id for document in index] == ["a.txt"]


def test_refresh_sees_sqlite_changes_in_write_ahead_log(tmp_path, index):
    with closing(sqlite3.connect(tmp_path / "data.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE t (id TEXT PRIMARY KEY, text TEXT)")
        database.execute("INSERT INTO t VALUES ('a', 'one'), ('b', 'two')")
        remember(index, f"{tmp_path}/data.db::t")
        assert index.refresh() == RefreshReport(unchanged=2)
        database.execute("UPDATE t SET text = 'three' WHERE id = 'a'")
        database.execute("DELETE FROM t WHERE id = 'b'")
        assert index.refresh() == RefreshReport(changed=1, removed=1)


def test_refresh_keeps_document_of_last_source_with_same_id(tmp_path, index):
    first = write(tmp_path / "a.jsonl", '{"id": "x", "text": "first"}\n{"id": "y", "text": "y"}\n')
    second = write(tmp_path / "b.jsonl", '{"id": "x", "text": "second"}\n{"id": "z", "text": "z"}')
    remember(index, first)
    remember(index, second)
    write(first, '{"id": "x", "text": "first again"}\n')
    index.refresh()
    assert {document.id: document.text for document in index} == {"x": "first again", "z": "z"}
    write(second, '{"id": "x", "text": "second again"}\n{"id": "z", "text": "z"}')
    index.refresh()
    assert {document.id: document.text for document in index} == {"x": "second again", "z": "z"}
    write(second, '{"id": "z", "text": "z"}')
    index.refresh()
    assert {document.id: document.text for document in index} == {"x": "first again", "z": "z"}


def test_refresh_without_changes_takes_no_lock(tmp_path, index):
    write(tmp_path / "notes/a.txt", "text of a")
    remember(index, tmp_path / "notes")
    with index.store.writer():
        assert index.refresh() == RefreshReport(unchanged=1)
        write(tmp_path / "notes/b.txt", "text of b")
        with pytest.raises(IndexLockedError):
            index.refresh()


def test_the_sources_of_other_stores_are_remembered_in_the_cache(
    tmp_path, fake_encoder, milvus_url, monkeypatch
):
    monkeypatch.setenv("RETRIEVER_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "notes/a.txt", "text of a")
    with Index.create(milvus_url) as index:
        remember(index, tmp_path / "notes")
        (tmp_path / "notes/a.txt").rename(tmp_path / "notes/b.txt")
        assert index.refresh() == RefreshReport(added=1, removed=1)


def test_a_reindexed_index_remembers_its_sources(tmp_path, index, fake_encoder):
    write(tmp_path / "notes/a.txt", "text of a")
    remember(index, tmp_path / "notes")
    index.reindex(encoder=fake_encoder, language="german")
    write(tmp_path / "notes/b.txt", "text of b")
    assert index.refresh() == RefreshReport(added=1, unchanged=1)


def test_a_snapshot_remembers_its_sources(tmp_path, index):
    write(tmp_path / "notes/a.txt", "text of a")
    remember(index, tmp_path / "notes")
    index.snapshot(tmp_path / "copy")
    (tmp_path / "notes/a.txt").rename(tmp_path / "notes/b.txt")
    with Index.open(tmp_path / "copy") as copy:
        assert copy.refresh() == RefreshReport(added=1, removed=1)
    assert [document.id for document in index] == ["a.txt"]
    (tmp_path / "my.index/index.sqlite-sources").write_bytes(b"no database at all" * 100)
    with pytest.raises(DamagedIndexError, match=r"index\.sqlite-sources: the file was altered"):
        index.snapshot(tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "damage",
    [
        "CREATE TRIGGER t AFTER DELETE ON files BEGIN DELETE FROM sources; END",
        "DROP TABLE origins",
        "UPDATE sources SET options = '{}'",
        None,
    ],
)
def test_refresh_names_altered_source_memory(tmp_path, index, damage):
    write(tmp_path / "notes/a.txt", "text of a")
    remember(index, tmp_path / "notes")
    path = tmp_path / "my.index/index.sqlite-sources"
    if damage is None:
        path.write_bytes(b"no database at all" * 100)
    else:
        with closing(sqlite3.connect(path)) as database:
            database.execute(damage)
            database.commit()
    with pytest.raises(DamagedIndexError, match="sources: the remembered sources"):
        index.refresh()
    assert len(index) == 1
