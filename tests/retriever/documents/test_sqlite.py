"""SQLite databases: tables, views and queries, and that nothing is written to them."""

from __future__ import annotations

import gzip
import sqlite3
import threading
from contextlib import closing

import pytest

from retriever import CorpusReader, Document, Fields
from tests.retriever.documents.source_samples import names_or_skips, read, refuses, write

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


def test_rows_come_in_the_order_of_the_primary_key_or_of_rowid_or_of_the_query(tmp_path):
    path = make(
        tmp_path / "data.db",
        "CREATE TABLE pairs (a, b, text, PRIMARY KEY (b, a)) WITHOUT ROWID",
        "INSERT INTO pairs VALUES (1, 2, 'x'), (2, 1, 'y'), (1, 1, 'z')",
    )
    assert read(f"{path}::docs") == [
        Document("10", "first", None, {"lang": "en"}),
        Document("20", "second", "", {"year": 1999, "lang": "de", "score": -2.0}),
        Document("30", "third", "C", {"year": 2020, "score": 1.5}),
    ]
    assert read(f'{path}::odd "name', Fields(id="key", text="body")) == [
        Document("b", "B", None, {"n": 2}),
        Document("a", "A", None, {"n": 1}),
    ]
    assert [document.text for document in read(f"{path}::pairs")] == ["z", "y", "x"]
    assert read(f"{path}::late") == [Document("30", "third")]
    sql = "SELECT year AS id, upper(text) AS text FROM docs ORDER BY year DESC LIMIT 2"
    reader = CorpusReader([path], sql=sql)
    assert list(reader) == [Document("2020", "THIRD"), Document("1999", "SECOND")]
    assert reader.total_bytes is None


def test_a_database_is_known_by_its_header_and_names_its_tables(tmp_path):
    path = make(tmp_path / "any.txt", "CREATE TABLE t (a INTEGER PRIMARY KEY AUTOINCREMENT)")
    assert refuses(path, "a SQLite database") == (
        f"{path}: a SQLite database; name one of its tables, as in {path}::docs, or give a "
        "query with --sql; the tables are 'docs', 'odd \"name', 't', 'late'"
    )


READ_ONLY = "the SQL query fails: attempt to write a readonly database"
FAULTS = [
    ("data.db::none", {}, "no table 'none'; the tables are 'docs', "),
    ('data.db::odd "name', {}, r"""data\.db::odd "name: no text column .* 'key', 'body'"""),
    ("no.db::docs", {}, "no such file"),
    ("c.jsonl::docs", {}, "expected a SQLite database .* 'docs' from, found jsonl"),
    ("c.jsonl", {"sql": "SELECT 1"}, "expected a SQLite database .* SQL queries from, found"),
    ("data.db::docs", {"sql": "SELECT 1"}, "both the table 'docs' and an SQL query"),
    ("data.db", {"sql": "SELECT * FROM none"}, "the SQL query fails: no such table: none"),
    ("data.db", {"sql": "SELECT 1; SELECT 2"}, "the SQL query fails: .*one statement"),
    ("data.db", {"sql": "SELECT id, id FROM docs"}, "two columns are called 'id'"),
    ("data.db", {"sql": "BEGIN"}, "without result columns"),
    ("data.db", {"sql": "DELETE FROM docs RETURNING *"}, READ_ONLY),
    ("data.db", {"sql": "INSERT INTO docs(text) VALUES ('x') RETURNING *"}, READ_ONLY),
    ("data.db.gz::docs", {}, "read from an uncompressed file"),
    ("damaged.db::docs", {}, "the database cannot be read: .*malformed"),
]


@pytest.mark.parametrize(("source", "options", "message"), FAULTS)
def test_unreadable_sqlite_source_is_named_and_not_written(
    database, tmp_path, source, options, message
):
    content = database.read_bytes()
    write(tmp_path / "c.jsonl", '{"text": "x"}')
    write(tmp_path / "data.db.gz", gzip.compress(content))
    write(tmp_path / "damaged.db", content[:4096] + b"\xff" * (len(content) - 4096))
    refuses(f"{tmp_path}/{source}", message, **options)
    assert database.read_bytes() == content


def test_a_cell_that_no_index_can_store_is_left_out_and_its_document_kept(tmp_path):
    cells = "lang = x'00ff', year = 9e999, score = CAST(x'80' AS TEXT)"
    path = make(tmp_path / "data.db", f"UPDATE docs SET {cells} WHERE id = 20")
    reader = CorpusReader([f"{path}::docs"])
    assert [document.id for document in reader] == ["10", "20", "30"]
    faults = {"year": "inf", "lang": "a value of type bytes", "score": "the lone surrogate"}
    for name, fault in faults.items():
        assert reader.left_out[name].records == 1
        assert reader.left_out[name].first.startswith(f"{path}::docs: row 2: holds {fault}")


def test_a_bad_row_is_named_and_null_text_is_empty(tmp_path):
    path = make(tmp_path / "data.db", "UPDATE docs SET text = x'00ff' WHERE id = 20")
    fault = r"the text field 'text' is b'\\x00\\xff'"
    names_or_skips(f"{path}::docs", ": row 2", fault, ["first", "third"])
    make(
        tmp_path / "nulls.db",
        "CREATE TABLE t (id, text)",
        "INSERT INTO t VALUES ('a', NULL), ('b', 'x'), (NULL, 'y')",
    )
    names_or_skips(f"{tmp_path}/nulls.db::t", ": row 3", "id is None, expected a string", ["x"])


def test_sqlite_bytes_read_grow_with_rows(tmp_path):
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
    assert [document.text for document in read(write(tmp_path / "a::b.txt", "x\n"))] == ["x"]
    table = make(tmp_path / "c::d.db")
    assert len(read(f"{table}::docs")) == 3


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


def test_sqlite_reader_works_across_threads_and_may_be_abandoned(database):
    documents = iter(CorpusReader([f"{database}::docs"]))
    found = [next(documents).id]
    thread = threading.Thread(target=lambda: found.append(next(documents).id))
    thread.start()
    thread.join()
    documents.close()
    assert found == ["10", "20"]
