"""An index of format 1: read as it is, and given columns by the first writer."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from column_samples import allowed, allowed_by_rows, column, rows_refused
from index_samples import DyingConnection, in_fork

import indexes.store.connection
from indexes.errors import DamagedIndexError
from indexes.filters.columns import Limits
from indexes.filters.grammar import compile_where
from indexes.reader import Reader
from indexes.verify import verify
from indexes.writer import Writer

SAMPLE = Path(__file__).parent / "data" / "format-1" / "index.zip"
FILTERS = [
    "year >= 1995 and tag in ('b', 'c')",
    "x contains 1 or title = 'Ships'",
    "not (tag = 'b' or x exists)",
    "year < 2000 or never = 1",
    "never = null",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with zipfile.ZipFile(SAMPLE) as archive:
        archive.extractall(tmp_path / "index")
    return tmp_path / "index"


def version(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        return int(found)


def tables(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]


def test_reading_answers_by_documents_and_changes_nothing(folder: Path) -> None:
    before = (folder / "index.sqlite").read_bytes()
    for text in FILTERS:
        assert allowed(folder, text) == allowed_by_rows(folder, text)
    assert verify(folder) == []
    assert (folder / "index.sqlite").read_bytes() == before
    with rows_refused(), pytest.raises(AssertionError, match="every document"):
        allowed(folder, "year = 1")


def test_a_writer_gives_it_columns_that_answer_the_same(folder: Path) -> None:
    before = [allowed(folder, text) for text in FILTERS]
    with Writer(folder):
        assert version(folder) == 2
    assert column(folder, "tag") == (1, ["{}", '{"tag":"a"}', '{"tag":"c"}', '{"tag":"b"}'], 1)
    assert [allowed(folder, text) for text in FILTERS] == before
    with rows_refused():
        assert allowed(folder, FILTERS[0]) == before[0] != []
    assert verify(folder) == []


def test_the_limits_of_columns_hold_for_it(folder: Path) -> None:
    with Writer(folder, columns=Limits(values=3)):
        pass
    assert column(folder, "year") == (0, [], 0)
    assert column(folder, "tag")[0] == 1
    assert verify(folder) == []


def test_a_reader_that_has_it_open_goes_on_with_columns(folder: Path) -> None:
    where = compile_where("year >= 2000")
    reader = Reader(folder)
    with reader.view() as view:
        before = [some.mask.tolist() for some in view.allowed(where)]
        with Writer(folder):
            pass
        # Inside its transaction nothing has changed.
        assert view.format_version == 1
        other = compile_where("year >= 2000.0")
        assert [some.mask.tolist() for some in view.allowed(other)] == before
    with reader.view() as view, rows_refused():
        assert view.format_version == 2
        other = compile_where("year > 1999")
        assert [some.mask.tolist() for some in view.allowed(other)] == before
    reader.close()


def test_an_upgrade_cut_short_at_any_statement_leaves_format_1(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, before = sqlite3.connect, [allowed(folder, text) for text in FILTERS]

    def dying(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, **options, factory=DyingConnection)

    versions = []
    for statement in range(200):
        copy = tmp_path / str(statement)
        with zipfile.ZipFile(SAMPLE) as archive:
            archive.extractall(copy)

        def write(at: int = statement, place: Path = copy) -> None:
            DyingConnection.dies_at = at
            monkeypatch.setattr(indexes.store.connection.sqlite3, "connect", dying)
            with Writer(place):
                pass

        status = in_fork(write)
        versions.append(version(copy))
        assert ("field_codes" in tables(copy)) == (versions[-1] == 2)
        assert [allowed(copy, text) for text in FILTERS] == before
        assert verify(copy) == []
        with Writer(copy):
            pass
        assert [allowed(copy, text) for text in FILTERS] == before
        assert verify(copy) == []
        if status == 0:
            break
    assert status == 0
    assert len(versions) > 20
    assert versions == sorted(versions)
    assert set(versions) == {1, 2}


def test_an_upgrade_that_cannot_read_metadata_leaves_format_1(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        connection.execute("UPDATE documents SET metadata = ? WHERE id = 'a'", (json.dumps([1]),))
        connection.commit()
    with pytest.raises(DamagedIndexError, match=r"index\.sqlite: .*restore it"), Writer(folder):
        pass
    assert version(folder) == 1
    assert "fields" not in tables(folder)
