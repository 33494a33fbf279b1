"""SQLite databases: tables, views and queries, and that nothing is written to them."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from indexes.errors import SourceError
from retriever.documents import Document, Fields
from retriever.documents.reader import CorpusReader

ROWS = [
    (30, "third", "C", 2020, None, 1.5),
    (10, "first", None, None, "en", None),
    (20, "second", "", 1999, "de", -2.0),
]


@pytest.fixture
def database(tmp_path):
    return make(tmp_path / "data.db")


def make(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE docs (id INTEGER PRIMARY KEY, text, title, year INT, lang, score REAL)"
        )
        connection.executemany("INSERT INTO docs VALUES (?, ?, ?, ?, ?, ?)", ROWS)
        connection.execute('CREATE TABLE [odd "name] (key TEXT, body TEXT, n)')
        connection.execute("INSERT INTO [odd \"name] VALUES ('b', 'B', 2), ('a', 'A', 1)")
        connection.execute("CREATE VIEW late AS SELECT id, text FROM docs WHERE year > 2000")
        for statement in statements:
            connection.execute(statement)
    return path


def test_a_table_is_read_in_the_order_of_its_primary_key(database):
    assert list(CorpusReader([f"{database}::docs"])) == [
        Document("10", "first", None, {"lang": "en"}),
        Document("20", "second", "", {"year": 1999, "lang": "de", "score": -2.0}),
        Document("30", "third", "C", {"year": 2020, "score": 1.5}),
    ]


def test_rows_without_a_primary_key_come_in_the_order_of_rowid_with_named_fields(database):
    fields = Fields(id="key", text="body")
    assert list(CorpusReader(f'{database}::odd "name', fields)) == [
        Document("b", "B", None, {"n": 2}),
        Document("a", "A", None, {"n": 1}),
    ]


def test_a_compound_key_of_a_table_without_rowid_gives_the_order(tmp_path):
    path = make(
        tmp_path / "data.db",
        "CREATE TABLE pairs (a, b, text, PRIMARY KEY (b, a)) WITHOUT ROWID",
        "INSERT INTO pairs VALUES (1, 2, 'x'), (2, 1, 'y'), (1, 1, 'z')",
    )
    assert [one.text for one in CorpusReader([f"{path}::pairs"])] == ["z", "y", "x"]


def test_a_view_and_a_query_are_read_like_a_table(database):
    assert list(CorpusReader([f"{database}::late"])) == [Document("30", "third")]
    reader = CorpusReader(
        [database],
        sql="SELECT year AS id, upper(text) AS text FROM docs ORDER BY year DESC LIMIT 2",
    )
    assert list(reader) == [Document("2020", "THIRD"), Document("1999", "SECOND")]
    assert reader.total_bytes is None


def test_a_database_is_known_by_its_header_and_names_its_tables(tmp_path):
    path = make(tmp_path / "any.txt", "CREATE TABLE t (a INTEGER PRIMARY KEY AUTOINCREMENT)")
    with pytest.raises(SourceError) as caught:
        list(CorpusReader([path], on_error="skip"))
    assert str(caught.value) == (
        f"{path}: a SQLite database; name one of its tables, as in {path}::docs, or give a "
        "query with --sql; the tables are 'docs', 'odd \"name', 't', 'late'"
    )


def refused(source, message, **options):
    with pytest.raises(SourceError, match=message) as caught:
        list(CorpusReader([source], on_error="skip", **options))
    return str(caught.value)


def test_what_cannot_be_read_is_named(database, tmp_path):
    refused(f"{database}::none", r"data\.db: no table 'none'; the tables are 'docs', ")
    refused(f'{database}::odd "name', r'data\.db::odd "name: no text column .* \'key\', \'body\'')
    refused(tmp_path / "no.db::docs", r"no\.db: no such file")
    text = tmp_path / "c.jsonl"
    text.write_text('{"text": "x"}')
    refused(f"{text}::docs", r"c\.jsonl: expected a SQLite database .* 'docs' from, found jsonl")
    refused(
        text, r"c\.jsonl: expected a SQLite database .* SQL queries from, found", sql="SELECT 1"
    )
    refused(f"{database}::docs", "both the table 'docs' and an SQL query", sql="SELECT 1")
    refused(database, "the SQL query fails: no such table: none", sql="SELECT * FROM none")
    refused(database, "the SQL query fails: .*one statement", sql="SELECT 1; SELECT 2")
    refused(database, "two columns are called 'id'", sql="SELECT id, id FROM docs")
    refused(database, "without result columns", sql="BEGIN")


def test_a_compressed_or_piped_database_is_refused(database, tmp_path):
    zipped = tmp_path / "data.db.gz"
    zipped.write_bytes(gzip.compress(database.read_bytes()))
    refused(f"{zipped}::docs", "read from an uncompressed file")
    refused("-", "read from an uncompressed file", stdin=io.BytesIO(database.read_bytes()))


def test_a_damaged_database_is_one_error(database):
    content = bytearray(database.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    database.write_bytes(content)
    refused(f"{database}::docs", r"data\.db: the database cannot be read: .*malformed")


CELLS = {
    "blob": ("x'00ff'", "holds a value of type bytes"),
    "infinity": ("9e999", "holds inf"),
    "not utf-8": ("CAST(x'80' AS TEXT)", "holds the lone surrogate"),
}


@pytest.mark.parametrize(("value", "fault"), CELLS.values(), ids=CELLS.keys())
def test_a_cell_that_no_index_can_store_is_left_out_and_its_document_kept(tmp_path, value, fault):
    path = make(tmp_path / "data.db", f"UPDATE docs SET lang = {value} WHERE id = 20")
    reader = CorpusReader([f"{path}::docs"])
    assert [one.id for one in reader] == ["10", "20", "30"]
    assert reader.left_out["lang"].records == 1
    assert reader.left_out["lang"].first.startswith(f"{path}::docs: row 2: {fault}")


def test_bytes_as_text_are_a_fault_of_their_row(tmp_path):
    path = make(tmp_path / "data.db", "UPDATE docs SET text = x'00ff' WHERE id = 20")
    with pytest.raises(
        SourceError, match=r"row 2: the text field 'text' is the bytes b'\\x00\\xff'"
    ):
        list(CorpusReader([f"{path}::docs"]))


def test_null_text_is_empty_and_null_id_is_malformed(tmp_path):
    path = make(
        tmp_path / "data.db",
        "CREATE TABLE t (id, text)",
        "INSERT INTO t VALUES ('a', NULL), ('b', 'x'), (NULL, 'y')",
    )
    reader = CorpusReader([f"{path}::t"], on_error="skip")
    assert list(reader) == [Document("b", "x")]
    assert (reader.empty, reader.empty_at) == (1, [f"{path}::t: row 1"])
    assert reader.problems == [f"{path}::t: row 3: id is null, expected a string or an integer"]


def test_bytes_are_counted_by_rows(tmp_path):
    database = make(
        tmp_path / "data.db", "CREATE TABLE more (id, text)", "INSERT INTO more VALUES (7, 'x')"
    )
    reader = CorpusReader([f"{database}::docs", f"{database}::more"])
    counts = [reader.bytes_read for _ in reader]
    size = database.stat().st_size
    assert reader.total_bytes == 2 * size
    assert counts == sorted(counts)
    assert 0 < counts[1] < size
    assert reader.bytes_read == 2 * size


def test_a_file_whose_name_holds_the_separator_is_read_as_a_file(tmp_path):
    path = tmp_path / "a::b.txt"
    path.write_text("x\n")
    assert [one.text for one in CorpusReader([path])] == ["x"]
    table = make(tmp_path / "c::d.db")
    assert len(list(CorpusReader([f"{table}::docs"]))) == 3


WRITES = ["DELETE FROM docs RETURNING *", "INSERT INTO docs(text) VALUES ('x') RETURNING *"]


@pytest.mark.parametrize("sql", WRITES)
def test_nothing_is_written_to_a_database(database, sql):
    before = hashlib.sha256(database.read_bytes()).digest()
    refused(database, "the SQL query fails: attempt to write a readonly database", sql=sql)
    assert hashlib.sha256(database.read_bytes()).digest() == before
    assert len(list(CorpusReader([f"{database}::docs"]))) == 3


def test_all_rows_are_of_one_state_while_another_program_writes(tmp_path):
    path = make(tmp_path / "data.db", "DELETE FROM docs")
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.executemany("INSERT INTO docs(id, text) VALUES (?, 'old')", zip(range(2000)))
        writer.commit()
        documents = iter(CorpusReader([f"{path}::docs"]))
        texts = [next(documents).text]
        writer.execute("UPDATE docs SET text = 'new'")
        writer.commit()
        texts += [document.text for document in documents]
    assert texts == ["old"] * 2000


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_wal_database_in_a_folder_that_cannot_be_written_is_read(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    path = make(folder / "data.db")
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
    for one in (folder, *folder.parents):
        if one.stat().st_uid == 0 and str(one).startswith(str(folder.parents[1])):
            one.chmod(0o755)
    folder.chmod(0o555)
    program = (
        "import os, sys\n"
        "from retriever import CorpusReader\n"
        "import sqlite_utils\n"
        "os.setgid(65534); os.setuid(65534)\n"
        f"print(len(list(CorpusReader([{f'{path}::docs'!r}]))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("3\n", "")
    assert os.listdir(folder) == ["data.db"]


def test_a_reader_may_go_on_in_another_thread_and_be_left_halfway(database):
    documents = iter(CorpusReader([f"{database}::docs"]))
    found = [next(documents).id]
    thread = threading.Thread(target=lambda: found.append(next(documents).id))
    thread.start()
    thread.join()
    documents.close()
    assert found == ["10", "20"]
