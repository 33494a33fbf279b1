"""URLs of indexes in databases and servers, and that no message repeats a secret."""

from __future__ import annotations

import pytest

from indexes import open_store
from indexes.errors import ConfigError, MissingExtraError, StorageError

pytest.importorskip("psycopg", reason="psycopg is not installed")
from psycopg.conninfo import conninfo_to_dict

from indexes.milvus.connection import parse_location as milvus_location
from indexes.milvus.store import MilvusStore
from indexes.postgres.connection import parse_location as postgres_location
from indexes.postgres.store import PostgresStore

SECRET = "sekret"
NAME = "é" * 200


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://me@h/db?index=a", "postgresql://me@h/db?index=a"),
        ("postgres://me:sekret@h:1/db?index=a", "postgresql://me@h:1/db?index=a"),
        ("postgresql://h/db?index=a&password=sekret&sslmode=require", "postgresql://h/db?index=a"),
        ("postgresql://me:sekret%40%2F@[::1]:5/db?index=a%20b", "postgresql://me@[::1]:5/db?index=a%20b"),
        ("postgresql:///db?host=/tmp&index=a", "postgresql:///db?host=/tmp&index=a"),
        ("postgresql://h1:1,h2:2/db?index=a", "postgresql://h1:1,h2:2/db?index=a"),
        ("postgresql://h1,h2/db?index=a", "postgresql://h1,h2/db?index=a"),
    ],
)  # fmt: skip
def test_a_url_of_a_database_is_shown_without_its_password(url, expected):
    location = postgres_location(url)
    assert str(location) == expected
    assert SECRET not in repr(location) + repr(PostgresStore(url)) + str(PostgresStore(url))
    assert (conninfo_to_dict(location.conninfo).get("password") is None) != (SECRET in url)
    assert postgres_location(f"postgresql://me@h/db?index={NAME}").index == NAME


@pytest.mark.parametrize(
    ("url", "expected", "credentials", "uri"),
    [
        ("milvus://h/a", "milvus://h:19530/a", "token", "http://h:19530"),
        ("milvus://me:sekret@h:1/a", "milvus://me@h:1/a", "me:sekret", "http://h:1"),
        ("milvus://sekret@h/a?tls=true", "milvus://h:19530/a", "sekret", "https://h:19530"),
        ("milvus://me:se%40k@[::1]:5/a", "milvus://me@[::1]:5/a", "me:se@k", "http://[::1]:5"),
        ("milvus://h/a?database=d", "milvus://h:19530/a", "token", "http://h:19530"),
        ("milvus+lite:///x/y.db", "milvus+lite:///x/y.db?index=index", "", "/x/y.db"),
        ("milvus+lite:///x/y.db?index=b", "milvus+lite:///x/y.db?index=b", "", "/x/y.db"),
    ],
)
def test_a_url_of_milvus_is_shown_without_its_secret(monkeypatch, url, expected, credentials, uri):
    monkeypatch.setenv("MILVUS_TOKEN", "token")
    location = milvus_location(url)
    assert (str(location), location.credentials, location.uri) == (expected, credentials, uri)
    printed = repr(location) + repr(MilvusStore(url)) + str(MilvusStore(url))
    assert SECRET not in printed
    assert "token" not in printed
    with_options = milvus_location(f"milvus://h/{'a' * 100}?database=d&timeout=1.5")
    assert (with_options.database, with_options.timeout) == ("d", 1.5)


DATABASES = [
    "h/db", "h/db?index=", "h/db?index=a&index=b", "h/db?index=a%00b", "h/db?index=" + "a" * 201,
    "h/db?index=a&nonsense=1", "h:port/db?index=a", "[h/db?index=a", "%zz@h/db?index=a",
    "sekret@h/db?index=a",
]  # fmt: skip
SERVERS = [
    "h", "h/", "h/a/b", "h/a-b", "h/" + "a" * 101, "/a", "h:port/a", "h:99999/a", "[h/a",
    "h/a?nonsense=1", "h/a?tls", "h/a?tls=perhaps", "h/a?timeout=0", "h/a?timeout=soon",
    "h/a?timeout=1000000",
]  # fmt: skip
FILES = ["folder/y.db", "/x/y", "/x/y.db?index=a b", "/x/y.db?tls=true", "/x/y.db?timeout=1"]
PASSWORDS = ["sekret", "a/sekret", "a?sekret", "a#sekret"]


@pytest.mark.parametrize(
    ("parse", "url", "start"),
    [
        *((postgres_location, f"postgresql://me:{password}@{rest}", r"postgresql://…")
          for rest in DATABASES for password in PASSWORDS),
        *((milvus_location, f"milvus://me:sekret@{rest}", "Milvus URL") for rest in SERVERS),
        *((milvus_location, f"milvus+lite://{rest}", "Milvus URL") for rest in FILES),
    ],
)  # fmt: skip
def test_a_bad_url_is_refused_in_one_line_without_its_secret(parse, url, start):
    with pytest.raises(ConfigError, match=rf"^{start}: expected .*$") as caught:
        parse(url)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("library", "url", "package"),
    [
        ("psycopg", "postgresql://me:sekret@h/db?index=a", r"layer-retriever\[postgres\]"),
        ("pymilvus", "milvus://me:sekret@h/a", r"layer-retriever\[milvus\]"),
        ("milvus_lite", "milvus+lite:///x/y.db", "pip install milvus-lite"),
    ],
)
def test_a_missing_library_is_named(monkeypatch, library, url, package):
    monkeypatch.setattr("indexes.location.find_spec", lambda name: name != library or None)
    with pytest.raises(MissingExtraError, match=package) as caught:
        open_store(url)
    assert SECRET not in str(caught.value)


def test_a_url_of_an_unknown_kind_is_one_line_and_exit_code_2(retriever):
    outcome = retriever("info", "-i", "mysql://me:sekret@h/db?index=a")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert SECRET not in outcome.err


@pytest.mark.milvus
def test_a_milvus_server_that_is_away_is_one_line_without_a_secret(retriever):
    pytest.importorskip("pymilvus", reason="pymilvus is not installed")
    outcome = retriever("query", "x", "-i", f"milvus://me:{SECRET}@127.0.0.1:9/a?timeout=1")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "milvus://me@127.0.0.1:9/a: Milvus failed: Fail connecting to server" in outcome.err
    assert SECRET not in outcome.err + outcome.out


@pytest.mark.milvus
def test_a_file_in_no_folder_is_not_made(tmp_path):
    pytest.importorskip("milvus_lite", reason="Milvus Lite is not installed")
    with pytest.raises(StorageError, match="its folder exists"):
        open_store(f"milvus+lite://{tmp_path}/none/x.db").create({"encoder": {"dimensions": 8}})
    assert not open_store(f"milvus+lite://{tmp_path}/x.db").exists()
    assert list(tmp_path.iterdir()) == []
