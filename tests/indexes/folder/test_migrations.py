"""Indexes of earlier formats: read as they are, and brought to the newest by the first writer."""

import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
import sqlite_utils
from column_samples import allowed, allowed_by_documents, documents_refused
from index_samples import DyingConnection, commit, document, in_fork, make_index

import indexes.folder.connection
from indexes.errors import DamagedIndexError
from indexes.filters.grammar import compile_where
from indexes.folder.connection import FORMAT_VERSION
from indexes.folder.verify import verify
from indexes.folder.view import FolderReader
from indexes.folder.writer import FolderWriter

SAMPLES = Path(__file__).parent / "data"
FILTERS = [
    "year >= 1995 and tag in ('b', 'c')",
    "x contains 1 or title = 'Ships'",
    "not (tag = 'b' or x exists)",
    "year < 2000 or never = 1",
    "never = null",
]


def sample(format_, folder):
    with zipfile.ZipFile(SAMPLES / f"format-{format_}.zip") as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(params=range(1, FORMAT_VERSION))
def made_by(request):
    return int(request.param)


@pytest.fixture
def folder(tmp_path, made_by):
    return sample(made_by, tmp_path / "index")


def version(folder):
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        return int(found)


def schema(folder):
    """What the database has, by name, with white space as in one line."""
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {name: " ".join(sql.split()) for name, sql in rows}


def test_reading_answers_by_documents_and_changes_nothing(folder):
    before = (folder / "index.sqlite").read_bytes()
    for text in FILTERS:
        assert allowed(folder, text) == allowed_by_documents(folder, text)
    assert verify(folder) == []
    assert (folder / "index.sqlite").read_bytes() == before


def test_a_writer_brings_it_to_the_newest_format_which_answers_the_same(folder):
    before = [allowed(folder, text) for text in FILTERS]
    with FolderWriter(folder):
        assert version(folder) == FORMAT_VERSION
    assert [allowed(folder, text) for text in FILTERS] == before
    with documents_refused():
        assert allowed(folder, FILTERS[0]) == before[0] != []
    assert verify(folder) == []


def test_it_ends_with_the_columns_of_a_new_index(folder, tmp_path):
    with FolderWriter(folder):
        pass
    new = make_index(tmp_path / "new")

    def columns(folder):
        database = sqlite_utils.Database(folder / "index.sqlite")
        return {table.name: [column.name for column in table.columns] for table in database.tables}

    assert columns(folder) == columns(new)
    assert schema(folder)["corpus"] == schema(new)["corpus"]


def test_a_reader_that_has_it_open_sees_the_format_of_its_commit(folder, made_by):
    where = compile_where("year >= 2000")
    with closing(FolderReader(folder)) as reader:
        with reader.view() as view:
            before = [some.positions.tolist() for some in view.allowed(where)]
            with FolderWriter(folder):
                pass
            # Inside its transaction nothing has changed.
            assert view.format_version == made_by
            other = compile_where("year >= 2000.0")
            assert [some.positions.tolist() for some in view.allowed(other)] == before
        with reader.view() as view, documents_refused():
            assert view.format_version == FORMAT_VERSION
            other = compile_where("year > 1999")
            assert [some.positions.tolist() for some in view.allowed(other)] == before


def test_an_upgrade_cut_short_at_any_statement_leaves_the_format(
    folder, made_by, tmp_path, monkeypatch
):
    connect, before = sqlite3.connect, [allowed(folder, text) for text in FILTERS]

    def dying(*arguments, **options):
        return connect(*arguments, **options, factory=DyingConnection)

    versions = []
    # Statements between those are of the same transaction.
    for statement in range(0, 600, 4):
        copy = sample(made_by, tmp_path / str(statement))

        def write(at=statement, place=copy):
            DyingConnection.dies_at = at
            monkeypatch.setattr(indexes.folder.connection.sqlite3, "connect", dying)
            with FolderWriter(place):
                pass

        status = in_fork(write)
        versions.append(version(copy))
        assert ("metadata_values" in schema(copy)) == (versions[-1] == FORMAT_VERSION)
        assert [allowed(copy, text) for text in FILTERS] == before
        with FolderWriter(copy):
            pass
        assert [allowed(copy, text) for text in FILTERS] == before
        assert verify(copy) == []
        if status == 0:
            break
    assert status == 0
    assert len(versions) > 8
    assert versions == sorted(versions)
    assert set(versions) == {made_by, FORMAT_VERSION}


def test_an_upgrade_that_cannot_read_metadata_leaves_the_format(folder, made_by):
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        connection.execute("UPDATE documents SET metadata = ? WHERE id = 'a'", (json.dumps([1]),))
        connection.commit()
    with (
        pytest.raises(DamagedIndexError, match=r"index\.sqlite: .*restore it"),
        FolderWriter(folder),
    ):
        pass
    assert version(folder) == made_by
    assert "metadata_values" not in schema(folder)


def test_other_programs_read_documents_through_a_view(tmp_path):
    folder = make_index(tmp_path / "index", [document("b", "one two", {"n": 1}, passages=2)])
    with FolderWriter(folder) as writer:
        commit(writer, document("a", "three"))
    rows = list(sqlite_utils.Database(folder / "index.sqlite")["corpus"].rows)
    assert sorted(rows, key=lambda row: str(row["id"])) == [
        {"id": "a", "title": None, "text": "three", "metadata": "{}", "passages": 1},
        {"id": "b", "title": None, "text": "one two", "metadata": '{"n":1}', "passages": 2},
    ]
