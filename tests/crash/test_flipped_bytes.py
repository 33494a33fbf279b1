"""A byte changed anywhere in an index is found by `verify`, and never causes a crash.

A query gives the same answer or names the file. It does not check metadata values or the rows of
documents that are not shown, though a filter reads them: there the answer may differ. `verify`
finds these too.
"""

import random
import shutil
from dataclasses import replace

import pytest
from damage import asked, examined, files
from forked import in_child
from workload import LIFE, SWEPT

from indexes.files import SMALL
from indexes.folder.checksums import SUMS_FILE
from indexes.folder.connection import Session

pytestmark = pytest.mark.usefixtures("crash_encoder")

CHANCE = random.Random(17)


def positions(size, count):
    if not count:
        return [0, size // 2]
    return sorted({0, 1, size // 2, size - 1, *(CHANCE.randrange(size) for _ in range(count))})


def flipped(path, position):
    """Invert one byte; returns what the file held."""
    content = path.read_bytes()
    altered = bytearray(content)
    altered[position] ^= 0xFF
    path.write_bytes(altered)
    return content


@pytest.mark.parametrize("drawn", [0, pytest.param(8, marks=pytest.mark.soak)])
def test_in_every_file_of_the_segments(index, drawn):
    whole = asked(index)
    assert whole[0] == "answers"
    names = [name for name in files(index) if name.parts[0] == "segments"]
    # Two segments of eight files and a manifest, one with a structure and sums.
    assert len(names) == 20
    large = set()
    for name in names:
        path = index / name
        size = path.stat().st_size
        for position in positions(size, drawn):
            content = flipped(path, position)
            code, said, kind, told = examined(index)
            assert (code, str(path) in said) == (3, True), (name, position)
            if size > SMALL:
                large.add(name.name)
                assert (kind, told) == whole or named(path, kind, told), (name, position)
            else:
                assert (kind, str(path) in told) == ("damaged", True), (name, position)
            path.write_bytes(content)
    assert large == {"structure.faiss", "vectors.npy"}
    assert examined(index) == (0, "", *whole)


def named(path, kind, told):
    return kind == "damaged" and str(path) in str(told)


@pytest.fixture
def many_blocks(monkeypatch):
    """Nearly every file counts as a large one, of many blocks."""
    monkeypatch.setattr("indexes.files.SMALL", 200)
    monkeypatch.setattr("indexes.folder.checksums.BLOCK", 256)


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.soak
@pytest.mark.parametrize("structure", ["flat", "ivf", "ivf-sq8", "hnsw"])
def test_in_every_file_of_a_segment_of_large_files(tmp_path, structure):
    """A query that reads it names it; one that does not answers as before."""
    folder = tmp_path / "index"

    def live():
        for operation in (LIFE[0], replace(LIFE[1], structure=structure), *LIFE[2:]):
            operation.perform(folder)

    assert in_child(live) == (0, None)
    code, said, *whole = examined(folder)
    assert (code, said, whole[0]) == (0, "", "answers")
    (sums, _) = sorted((folder / "segments").glob(f"*/{SUMS_FILE}"))
    wrong = []
    found = set()
    for path in sorted(sums.parent.iterdir()):
        size = path.stat().st_size
        for position in positions(size, 5):
            content = flipped(path, position)
            kind, told = asked(folder)
            if named(path, kind, told):
                found.add(path.name)
            elif [kind, told] != whole:
                wrong.append((path.name, position, kind, told if kind != "answers" else ""))
            path.write_bytes(content)
    assert wrong == []
    # A query checks whatever it reads.
    assert found == {path.name for path in sums.parent.iterdir()}


def test_in_a_document_that_is_shown(index):
    path = index / "index.sqlite"
    content = path.read_bytes()
    position = content.index(b"onlyd5v1") + 12
    flipped_to = bytearray(content)
    flipped_to[position] ^= 0x01
    path.write_bytes(flipped_to)
    code, said, kind, told = examined(index)
    assert (code, str(path) in said) == (3, True)
    assert named(path, kind, told)


def test_in_the_database(index):
    """Bytes of free pages have no meaning; any other is found by `verify`, or on opening."""
    whole, path = asked(index), index / "index.sqlite"
    size, found = path.stat().st_size, 0
    # The mark of an index, and what every page begins with.
    chosen = [68, 71, *(page * 4096 for page in range(1, size // 4096)), *positions(size, 8)]
    for position in chosen:
        content = flipped(path, position)
        code, said, *asking = examined(index)
        if code == 0:
            assert asking == [*whole], position
        else:
            found += 1
            assert (code, str(path) in said) == (3, True), (position, said)
            assert asking[0] == "answers" or str(path) in asking[1], position
        path.write_bytes(content)
        for left in index.glob("index.sqlite-*"):
            left.unlink()
    assert found > size // 4096
    assert asked(index) == whole


def test_a_setting_that_was_altered_is_found_before_anything_is_asked(index):
    """One more stop word, another window: no error would follow, only other answers."""
    path = index / "index.sqlite"
    content = path.read_bytes()
    for what in (b'"such"', b"max-length=64", b'"english"', b'"split"'):
        position = content.index(what) + 3
        flipped_to = bytearray(content)
        flipped_to[position] ^= 0x01
        path.write_bytes(flipped_to)
        code, said, kind, told = examined(index)
        assert code == 3
        assert "a setting was altered" in said
        assert kind == "damaged"
        assert f"{path}: a setting was altered" in told
    path.write_bytes(content)
    assert examined(index)[:3] == (0, "", "answers")


def test_in_the_log_of_a_writer_that_was_killed(template, tmp_path):
    """SQLite ends its log at the first altered page: an earlier commit is served, or none."""
    before = asked(template)
    index = tmp_path / "index"
    log = logged(template, index)
    after = asked(index)
    assert after[0] == "answers"
    assert after != before
    for position in positions(log.stat().st_size, 8):
        place = tmp_path / str(position)
        shutil.copytree(index, place)
        flipped(place / log.name, position)
        code, said, kind, told = examined(place)
        assert code in (0, 3), said
        assert kind == "damaged" or (kind, told) in (before, after), position


def logged(template, folder):
    """Copy the index with one more commit, which is only in SQLite's log; returns the log."""
    work = folder.with_name("work")
    shutil.copytree(template, work)
    # While a reader has it open, the log is not moved into the database.
    reader = Session(work).connection
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM documents").fetchone()
    SWEPT["delete"].perform(work)
    shutil.copytree(work, folder, ignore=shutil.ignore_patterns("*-shm"))
    reader.close()
    return folder / "index.sqlite-wal"
