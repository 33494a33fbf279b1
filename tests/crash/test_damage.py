"""Bytes that changed, and files of another commit, are found by `verify` and never cause a crash.

A query gives the same answer or names the file. It does not check metadata values or the rows of
documents that are not shown, though a filter reads them: there the answer may differ. `verify`
finds these too.
"""

import contextlib
import io
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cli.main import run
from indexes.files import SMALL
from indexes.folder.checksums import SUMS_FILE
from indexes.folder.connection import DATABASE_FILE, Session
from retriever.errors import DamagedIndexError
from retriever.index import Index
from retriever.search import SearchSettings
from tests.crash import workload
from tests.crash.forked import in_child
from tests.crash.workload import LIFE, SWEPT

pytestmark = pytest.mark.usefixtures("crash_encoder")

CHANCE = random.Random(17)
QUERIES = [
    *("onlyd5v1 word14", "onlyd125v1 word23", "word3 word7", "word20 word21 word22"),
    " ".join(workload.VOCABULARY[::7]),
]
FILTER = "number < 60 or number >= 120"


def search_answers(folder):
    """Return id, score, passage and metadata of the hits of every query in each mode."""
    rows = []
    with Index.open(folder) as index:
        for mode, where in (("bm25", FILTER), ("dense", None), ("hybrid", None)):
            rows += [
                [[hit.id, hit.score, hit.passage, hit.metadata] for hit in hits]
                for hits in index.search_many(QUERIES, SearchSettings(mode=mode), where=where)
            ]
    return rows


def examine_index(folder):
    """Run `retriever verify` and the queries in a process that may crash.

    Returns the exit code and stderr of `verify`, then ``answers`` with the hits or ``damaged``
    with the error's line.
    """

    def examine():
        err = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
            code = run(["verify", "-i", str(folder)])
        try:
            return [code, err.getvalue(), "answers", search_answers(folder)]
        except DamagedIndexError as error:
            return [code, err.getvalue(), "damaged", str(error)]

    status, examination = in_child(examine)
    assert status == 0, examination
    code, lines, kind, outcome = examination
    assert kind == "answers" or "\n" not in outcome
    assert "Traceback" not in lines
    return code, lines, kind, outcome


def files(folder):
    """List the files of an index, relative to it, without its locks and its empty log."""
    return sorted(
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and path.name != "writer.lock" and "sqlite-" not in path.name
    )


def positions(size, count):
    if not count:
        return [0, size // 2]
    return sorted({0, 1, size // 2, size - 1, *(CHANCE.randrange(size) for _ in range(count))})


def flip_byte(path, position, bits=0xFF):
    """Invert bits of one byte and return the former content of the file."""
    content = path.read_bytes()
    altered = bytearray(content)
    altered[position] ^= bits
    path.write_bytes(altered)
    return content


def names_damaged_file(path, kind, outcome):
    return kind == "damaged" and str(path) in str(outcome)


@pytest.mark.parametrize("drawn", [0, pytest.param(8, marks=pytest.mark.soak)])
def test_verify_finds_a_flipped_byte_in_each_segment_file(index, drawn):
    whole = examine_index(index)
    assert whole[:3] == (0, "", "answers")
    names = [name for name in files(index) if name.parts[0] == "segments"]
    # Two segments of eight files and a manifest, one with a structure and sums.
    assert len(names) == 20
    large = set()
    for name in names:
        path = index / name
        size = path.stat().st_size
        for position in positions(size, drawn):
            content = flip_byte(path, position)
            code, stderr, kind, outcome = examine_index(index)
            assert (code, str(path) in stderr) == (3, True), (name, position)
            if size > SMALL:
                large.add(name.name)
                assert (kind, outcome) == whole[2:] or names_damaged_file(path, kind, outcome), (
                    name,
                    position,
                )
            else:
                assert names_damaged_file(path, kind, outcome), (name, position)
            path.write_bytes(content)
    assert large == {"structure.faiss", "vectors.npy"}
    assert examine_index(index) == whole


@pytest.fixture
def many_blocks(monkeypatch):
    """Let nearly every file count as a large one with many blocks."""
    monkeypatch.setattr("indexes.files.SMALL", 200)
    monkeypatch.setattr("indexes.checksums.BLOCK", 256)


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.soak
@pytest.mark.parametrize("structure", ["flat", "ivf", "ivf-sq8", "hnsw"])
def test_queries_find_a_flipped_byte_in_each_large_file(tmp_path, structure):
    """A query that reads the byte names the file; any other query answers as before."""
    folder = tmp_path / "index"

    def live():
        for operation in (LIFE[0], replace(LIFE[1], structure=structure), *LIFE[2:]):
            operation.perform(folder)

    assert in_child(live) == (0, None)
    whole = examine_index(folder)
    assert whole[:3] == (0, "", "answers")
    (sums, _) = sorted((folder / "segments").glob(f"*/{SUMS_FILE}"))
    damaged_files = set()
    for path in sorted(sums.parent.iterdir()):
        for position in positions(path.stat().st_size, 5):
            content = flip_byte(path, position)
            *_, kind, outcome = examine_index(folder)
            if names_damaged_file(path, kind, outcome):
                damaged_files.add(path.name)
            else:
                assert (kind, outcome) == whole[2:], (path.name, position)
            path.write_bytes(content)
    # A query checks whatever it reads.
    assert damaged_files == {path.name for path in sums.parent.iterdir()}


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.soak)])
def test_verify_or_opening_finds_a_flipped_byte_in_the_database(index, every):
    """Bytes of free pages have no meaning; any other is found by `verify`, or on opening."""
    whole, path = examine_index(index), index / DATABASE_FILE
    size, damage_count = path.stat().st_size, 0
    pages = range(1, size // 4096, every)
    # The mark of an index, and what a page begins with.
    offsets = [68, 71, *(page * 4096 for page in pages), *positions(size, 8)]
    for position in offsets:
        content = flip_byte(path, position)
        code, stderr, *query_outcome = examine_index(index)
        if code == 0:
            assert query_outcome == [*whole[2:]], position
        else:
            damage_count += 1
            assert (code, str(path) in stderr) == (3, True), (position, stderr)
            assert query_outcome[0] == "answers" or str(path) in query_outcome[1], position
        path.write_bytes(content)
        for left in index.glob("index.sqlite-*"):
            left.unlink()
    assert damage_count > len(pages)
    assert examine_index(index) == whole


def test_flipped_byte_in_a_killed_writers_log_loses_no_more_than_its_commit(template, tmp_path):
    """SQLite ends its log at the first altered page: an earlier commit is served, or none."""
    before = examine_index(template)
    work, index = tmp_path / "work", tmp_path / "index"
    shutil.copytree(template, work)
    # While a reader has it open, the log is not moved into the database.
    reader = Session(work).connection
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM documents").fetchone()
    SWEPT["delete"].perform(work)
    shutil.copytree(work, index, ignore=shutil.ignore_patterns("*-shm"))
    reader.close()
    after = examine_index(index)
    assert after[:3] == (0, "", "answers")
    assert after != before
    log = index / f"{DATABASE_FILE}-wal"
    for position in positions(log.stat().st_size, 8):
        place = tmp_path / str(position)
        shutil.copytree(index, place)
        flip_byte(place / log.name, position)
        code, stderr, kind, outcome = examine_index(place)
        assert code in (0, 3), stderr
        assert kind == "damaged" or (kind, outcome) in (before[2:], after[2:]), position


def check_refused(index, name):
    """Assert that `verify` exits with 3 and that it and a query name the file or folder."""
    path = index / name
    code, stderr, kind, outcome = examine_index(index)
    assert (code, str(path) in stderr) == (3, True), stderr
    assert names_damaged_file(path, kind, outcome), outcome


@pytest.mark.parametrize(
    "fate",
    [
        *("missing", "cut by a byte"),
        *(pytest.param(fate, marks=pytest.mark.soak) for fate in ("empty", "longer")),
    ],
)
def test_missing_or_resized_file_is_named_by_verify_and_query(index, fate):
    whole = examine_index(index)
    for name in files(index):
        path = index / name
        content = path.read_bytes()
        if fate == "missing":
            path.unlink()
        else:
            contents = {"empty": b"", "cut by a byte": content[:-1], "longer": content + b"\0"}
            path.write_bytes(contents[fate])
        if name.name == DATABASE_FILE and fate == "cut by a byte":
            # SQLite reads zeros in place of what a page lacks; the last one may hold nothing.
            examination = examine_index(index)
            assert (examination[0], str(path) in examination[1]) == (3, True) or examination[
                2:
            ] == whole[2:]
        elif name.name != DATABASE_FILE or fate != "longer":
            # SQLite passes over what comes after its own pages.
            check_refused(index, name)
        for left in index.glob("index.sqlite-*"):
            left.unlink()
        path.write_bytes(content)
    assert examine_index(index) == whole


def test_missing_segment_folder_is_named_by_verify_and_query(index):
    for name in ("segments/000002", "segments/000003", "segments"):
        (index / name).rename(index.parent / "away")
        check_refused(index, "segments")
        (index.parent / "away").rename(index / name)


@pytest.mark.parametrize("fate", ["missing", "empty"])
def test_create_refuses_a_folder_whose_database_is_missing(index, fate):
    before = [name for name in files(index) if name.name != DATABASE_FILE]
    (index / DATABASE_FILE).unlink()
    if fate == "empty":
        (index / DATABASE_FILE).touch()
    with pytest.raises(DamagedIndexError, match=r"index\.sqlite: .*--recreate"):
        Index.create(index)
    assert [name for name in files(index) if name.name != DATABASE_FILE] == before


def test_files_of_another_commit(index, tmp_path):
    """Files of another commit are damage; a database from before a deletion is an older commit."""
    before = examine_index(index)
    later = Path(shutil.copytree(index, tmp_path / "later"))
    SWEPT["delete"].perform(later)
    assert examine_index(later) != before
    shutil.copy(index / DATABASE_FILE, later / DATABASE_FILE)
    assert examine_index(later) == before
    for kind in ("add", "compact"):
        SWEPT[kind].perform(later)
    (merged,) = (later / "segments").iterdir()
    for name in files(index):
        if name.parts[0] == "segments" and (merged / name.name).exists():
            content = (index / name).read_bytes()
            shutil.copy(merged / name.name, index / name)
            check_refused(index, name)
            (index / name).write_bytes(content)
    newer = (later / DATABASE_FILE).read_bytes()
    shutil.copy(index / DATABASE_FILE, later / DATABASE_FILE)
    check_refused(later, "segments")
    (index / DATABASE_FILE).write_bytes(newer)
    check_refused(index, "segments")
