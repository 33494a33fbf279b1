"""Verification finds every kind of damage and names the file; a sound index has none."""

import shutil
import sqlite3
import sys
from contextlib import closing

import numpy as np
import pytest

from indexes.errors import DamagedIndexError
from indexes.folder.verify import verify
from indexes.folder.writer import FolderWriter
from tests.indexes.index_samples import commit, document, make_index


@pytest.fixture
def index(tmp_path):
    """An index of two segments with an updated and a deleted document."""
    folder = make_index(
        tmp_path / "index",
        [document(f"d{i}", f"word{i} and more", {"n": i}, passages=2) for i in range(5)],
        [document("d1", "again"), document("e", "other")],
    )
    with FolderWriter(folder) as writer:
        writer.delete(["d3"])
    assert verify(folder) == []
    return folder


@pytest.fixture
def database(index):
    with closing(sqlite3.connect(index / "index.sqlite", isolation_level=None)) as connection:
        yield connection


def file_of(index, name):
    return index / "segments" / "000001" / name


def one_line_each(problems):
    assert problems
    assert not any("\n" in problem for problem in problems)
    return "\n".join(problems)


def test_an_index_is_sound_while_a_writer_works(index):
    with FolderWriter(index) as writer:
        commit(writer, document("f", "fig"))
        assert verify(index) == []


@pytest.mark.parametrize(
    "step",
    [
        "indexes.folder.verify.read_manifest",
        "indexes.folder.verify.open_segment",
        "indexes.folder.verify.SegmentSums",
        "indexes.folder.checksums.file_sums",
    ],
)
def test_verify_accepts_segments_that_a_merge_removes_meanwhile(tmp_path, monkeypatch, step):
    # Small files have sums as well.
    monkeypatch.setattr("indexes.folder.checksums.is_small", lambda size: False)
    index = make_index(tmp_path / "index", [document("a", "apple pie")])
    module, name = step.rsplit(".", 1)
    original = getattr(sys.modules[module], name)
    merged = []

    def after_a_merge(*arguments):
        if not merged:
            merged.append(True)
            with FolderWriter(index) as writer:
                writer.replace(writer.segments())
        return original(*arguments)

    monkeypatch.setattr(sys.modules[module], name, after_a_merge)
    assert verify(index) == []
    assert merged


def test_verify_finds_an_extra_file(index):
    file_of(index, "extra.npy").write_text("who put me here")
    assert verify(index) == [
        f"{file_of(index, 'extra.npy')}: a file that the manifest does not name"
    ]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("INSERT INTO tombstones VALUES (77)", "1 deleted passages are in no segment"),
        (
            "INSERT INTO tombstones SELECT min(passage) FROM passages",
            "1 passages are both stored and deleted",
        ),
        (
            "DELETE FROM passages WHERE passage = (SELECT min(passage) FROM passages)",
            "1 passages of segments are neither stored nor deleted",
        ),
        (
            "DELETE FROM tombstones WHERE passage = (SELECT min(passage) FROM tombstones)",
            "1 passages of segments are neither stored nor deleted",
        ),
        (
            "INSERT INTO passages SELECT 500, doc, 0, 1, '' FROM documents LIMIT 1",
            "1 stored passages are in no segment",
        ),
        (
            "INSERT INTO documents VALUES (900, 'x', NULL, 't', '{}', x'00', x'00', '')",
            "1 documents have no passage",
        ),
        *(
            (f"UPDATE documents SET {column} = 'f' WHERE id = 'e'", "was altered")
            for column in ("id", "title", "text", "metadata", "hash", "checksum")
        ),
        ("UPDATE passages SET stop = stop - 1 WHERE passage > 11", "was altered"),
        ("DELETE FROM documents WHERE id = 'e'", "refers to a documents row that is missing"),
        ("UPDATE settings SET value = '2' WHERE key = 'next_passage'", "already in use"),
        ("UPDATE segments SET passages = passages + 1 WHERE segment = 1", "expected 11 passages"),
        ("UPDATE segments SET manifest = 'other' WHERE segment = 2", "000002/manifest.json"),
        ("DELETE FROM segments WHERE segment = 2", "are in no segment"),
        ("UPDATE settings SET value = '9' WHERE key = 'next_segment'", "a setting was altered"),
        (
            "DELETE FROM metadata_values WHERE value = 2",
            "metadata field 'n', segment 1: its values are not those of the documents",
        ),
        ("UPDATE metadata_values SET checksum = 1 WHERE value = 2", "segment 1: the passages with"),
        ("UPDATE metadata_values SET segment = 3 WHERE value = 2", "segment 3, which does not"),
        ("UPDATE fields SET name = 'm'", "the metadata field 'n' is not registered"),
    ],
)
def test_verify_finds_inconsistent_rows(index, database, statement, words):
    database.execute("PRAGMA foreign_keys=OFF")
    assert database.execute(statement).rowcount == 1
    problems = one_line_each(verify(index))
    assert words in problems
    assert str(index) in problems


def test_verify_finds_a_passage_in_two_segments(index, database):
    shutil.copytree(index / "segments" / "000002", index / "segments" / "000003")
    database.execute("INSERT INTO segments SELECT 3, passages, manifest FROM segments LIMIT 1, 1")
    assert "a passage is in two segments" in one_line_each(verify(index))


@pytest.mark.parametrize(
    ("alter", "words"),
    [
        (lambda ids, vectors: ids.__setitem__(slice(None), ids[::-1].copy()), "ascending"),
        (lambda ids, vectors: vectors.__setitem__((0, 0), np.nan), "not finite"),
    ],
)
def test_verify_finds_arrays_that_were_written_wrong(tmp_path, monkeypatch, alter, words):
    import indexes.folder.writer

    write = indexes.folder.writer.write_segment

    def write_altered(folder, ids, vectors, *rest):
        alter(ids, vectors)
        return write(folder, ids, vectors, *rest)

    monkeypatch.setattr(indexes.folder.writer, "write_segment", write_altered)
    folder = make_index(tmp_path / "index", [document("a", "apple"), document("b", "bread")])
    assert words in one_line_each(verify(folder))


@pytest.mark.parametrize("kept_bytes", [4096, 8192, 5000])
def test_verify_finds_a_truncated_database(index, kept_bytes):
    path = index / "index.sqlite"
    path.write_bytes(path.read_bytes()[:kept_bytes])
    try:
        problems = verify(index)
    except DamagedIndexError as error:
        problems = [str(error)]
    assert str(path) in one_line_each(problems)
