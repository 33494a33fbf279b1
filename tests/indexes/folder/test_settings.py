"""Settings have one checksum: opening the index for writing finds an altered one."""

import sqlite3
from contextlib import closing

import pytest
from index_samples import commit, document, make_index, texts

from indexes.errors import DamagedIndexError
from indexes.folder.connection import check_settings, read_setting, write_setting
from indexes.folder.verify import verify
from indexes.folder.writer import FolderWriter


@pytest.fixture
def index(tmp_path):
    return make_index(tmp_path / "index", [document("a", "apple")])


@pytest.fixture
def database(index):
    with closing(sqlite3.connect(index / "index.sqlite", isolation_level=None)) as connection:
        yield connection


@pytest.mark.parametrize(
    "statement",
    [
        """UPDATE settings SET value = '{"model":"another"}' WHERE key = 'encoder'""",
        "UPDATE settings SET value = '1' WHERE key = 'next_segment'",
        "UPDATE settings SET value = x'ff00' WHERE key = 'encoder'",
        "UPDATE settings SET key = 'other' WHERE key = 'encoder'",
        "DELETE FROM settings WHERE key = 'encoder'",
        "INSERT INTO settings VALUES ('structures', '{}')",
        """UPDATE settings SET value = '"00"' WHERE key = 'seal'""",
        "UPDATE settings SET value = '\"' WHERE key = 'seal'",
        "UPDATE settings SET value = 'null' WHERE key = 'seal'",
    ],
)
def test_an_altered_setting_is_found(index, database, statement):
    assert database.execute(statement).rowcount == 1
    (problem,) = verify(index)
    assert problem.startswith(f"{index / 'index.sqlite'}: a setting was altered")
    with pytest.raises(DamagedIndexError, match="a setting was altered"), FolderWriter(index):
        pass
    with pytest.raises(DamagedIndexError, match="a setting was altered"):
        check_settings(database, index)


def test_what_is_written_is_sealed_with_it(index, database):
    write_setting(database, "note", {"ü": [1, None]})
    assert read_setting(database, "note") == {"ü": [1, None]}
    check_settings(database, index)
    with FolderWriter(index) as writer:
        commit(writer, document("b", "bread"))
        writer.delete(["a"])
        writer.replace(writer.segments())
    assert verify(index) == []


def test_settings_without_a_seal_are_sealed_by_the_next_commit(index, database):
    database.execute("DELETE FROM settings WHERE key = 'seal'")
    assert verify(index) == []
    with FolderWriter(index) as writer:
        commit(writer, document("b", "bread"))
    assert set(texts(index)) == {"a", "b"}
    assert verify(index) == []
    database.execute("""UPDATE settings SET value = '"x"' WHERE key = 'encoder'""")
    assert len(verify(index)) == 1
