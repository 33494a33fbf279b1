"""Files that are missing, truncated, empty, or of another commit or index are refused by name."""

import shutil
from pathlib import Path

import pytest
from damage import asked, examined, files
from workload import LIFE, SWEPT

from indexes.folder.connection import DATABASE_FILE
from retriever.errors import DamagedIndexError
from retriever.index import Index

pytestmark = pytest.mark.usefixtures("crash_encoder")


def check_refused(index, *names):
    """Both `verify` and a query exit with 3 and name one of these files; nothing is written."""
    paths = [str(index / name) for name in names]
    code, said, kind, told = examined(index)
    assert code == 3, said
    assert any(path in said for path in paths), said
    assert kind == "damaged", told
    assert any(path in told for path in paths), told
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "fate",
    [
        *("missing", "cut by a byte"),
        *(
            pytest.param(fate, marks=pytest.mark.soak)
            for fate in ("empty", "cut in half", "longer")
        ),
    ],
)
def test_every_file(index, fate):
    whole = list(asked(index))
    for name in files(index):
        path = index / name
        content = path.read_bytes()
        if fate == "missing":
            path.unlink()
        elif fate == "empty":
            path.write_bytes(b"")
        elif fate == "longer":
            path.write_bytes(content + b"\0")
        else:
            path.write_bytes(content[: len(content) // 2 if fate == "cut in half" else -1])
        if name.name == DATABASE_FILE and fate == "cut by a byte":
            # SQLite reads zeros in place of what a page lacks.
            # A page that holds nothing may be the last one.
            code, said, *asking = examined(index)
            assert (code, str(path) in said) == (3, True) or asking == whole
        elif name.name != DATABASE_FILE or fate != "longer":
            # SQLite passes over what comes after its own pages.
            check_refused(index, name)
        for left in index.glob("index.sqlite-*"):
            left.unlink()
        path.write_bytes(content)
    assert examined(index)[:3] == (0, "", "answers")


def test_missing_folders(index):
    for name in ("segments/000002", "segments/000003", "segments"):
        (index / name).rename(index.parent / "away")
        check_refused(index, Path("segments"))
        (index.parent / "away").rename(index / name)


@pytest.mark.parametrize("fate", ["missing", "empty"])
def test_an_index_without_its_database_is_not_made_anew(index, fate):
    before = [name for name in files(index) if name.name != DATABASE_FILE]
    (index / DATABASE_FILE).unlink()
    if fate == "empty":
        (index / DATABASE_FILE).touch()
    with pytest.raises(DamagedIndexError, match=r"index\.sqlite: .*--recreate"):
        Index.create(index)
    assert [name for name in files(index) if name.name != DATABASE_FILE] == before


@pytest.fixture
def later(index, tmp_path):
    """The same index some commits on: added to, and merged."""
    folder = Path(shutil.copytree(index, tmp_path / "later"))
    for kind in ("add", "compact"):
        SWEPT[kind].perform(folder)
    return folder


def test_an_older_database_with_newer_segments(index, later):
    shutil.copy(index / DATABASE_FILE, later / DATABASE_FILE)
    check_refused(later, Path("segments"))


def test_a_newer_database_with_older_segments(index, later):
    shutil.copy(later / DATABASE_FILE, index / DATABASE_FILE)
    check_refused(index, Path("segments"))


def test_a_database_from_before_a_deletion_serves_what_it_held(index, tmp_path):
    """Deleting changes no segment: the older database and the files are one older commit."""
    before = asked(index)
    folder = Path(shutil.copytree(index, tmp_path / "later"))
    SWEPT["delete"].perform(folder)
    assert asked(folder) != before
    shutil.copy(index / DATABASE_FILE, folder / DATABASE_FILE)
    assert examined(folder) == (0, "", *before)


def test_a_segment_of_the_same_number_from_another_index(index, tmp_path):
    other = tmp_path / "other"
    for operation in (*LIFE[1:3], LIFE[0]):
        operation.perform(other)
    for number in ("000002", "000003"):
        if (other / "segments" / number).exists():
            target = index / "segments" / number
            target.rename(tmp_path / "away")
            shutil.copytree(other / "segments" / number, target)
            check_refused(index, Path("segments") / number)
            shutil.rmtree(target)
            (tmp_path / "away").rename(target)


def test_one_file_of_another_commit(index, later):
    """Of equal size or not, of the right form or not."""
    (merged,) = (later / "segments").iterdir()
    for name in files(index):
        if name.parts[0] == "segments" and (merged / name.name).exists():
            content = (index / name).read_bytes()
            shutil.copy(merged / name.name, index / name)
            check_refused(index, name)
            (index / name).write_bytes(content)
