"""URLs of indexes in Milvus, and that no message repeats a secret."""

from __future__ import annotations

import pytest
from store_samples import SETTINGS

from indexes import open_store
from indexes.errors import ConfigError, MissingExtraError, StorageError
from indexes.milvus.connection import parse_location
from indexes.milvus.store import MilvusStore

SECRET = "sekret"


@pytest.mark.parametrize(
    ("url", "shown", "credentials", "uri"),
    [
        ("milvus://h/a", "milvus://h:19530/a", "", "http://h:19530"),
        ("milvus://me:sekret@h:1/a", "milvus://me@h:1/a", "me:sekret", "http://h:1"),
        ("milvus://sekret@h/a?tls=true", "milvus://h:19530/a", "sekret", "https://h:19530"),
        ("milvus://me:se%40k@[::1]:5/a", "milvus://me@[::1]:5/a", "me:se@k", "http://[::1]:5"),
        ("milvus://h/a?database=d", "milvus://h:19530/a", "", "http://h:19530"),
        ("milvus+lite:///x/y.db", "milvus+lite:///x/y.db?index=index", "", "/x/y.db"),
        ("milvus+lite:///x/y.db?index=b", "milvus+lite:///x/y.db?index=b", "", "/x/y.db"),
    ],
)
def test_a_url_is_shown_without_its_secret(url, shown, credentials, uri):
    location = parse_location(url)
    assert (str(location), location.credentials, location.uri) == (shown, credentials, uri)
    assert SECRET not in repr(location) + repr(MilvusStore(url)) + str(MilvusStore(url))


def test_the_token_can_be_in_the_environment(monkeypatch):
    monkeypatch.setenv("MILVUS_TOKEN", SECRET)
    assert parse_location("milvus://h/a").credentials == SECRET
    assert parse_location("milvus://me:other@h/a").credentials == "me:other"
    assert SECRET not in repr(parse_location("milvus://h/a"))
    known = parse_location(f"milvus://h/{'a' * 100}?database=d&timeout=1.5")
    assert (known.database, known.timeout) == ("d", 1.5)


@pytest.mark.parametrize(
    "rest",
    ["h", "h/", "h/a/b", "h/a-b", "h/" + "a" * 101, "/a", "h:port/a", "h:99999/a", "[h/a",
     "h/a?nonsense=1", "h/a?tls", "h/a?tls=perhaps", "h/a?timeout=0", "h/a?timeout=soon",
     "h/a?timeout=1000000"],
)  # fmt: skip
def test_a_bad_url_is_refused_in_one_line_without_its_secret(rest):
    with pytest.raises(ConfigError, match=r"^Milvus URL: expected .*$") as caught:
        parse_location(f"milvus://me:{SECRET}@{rest}")
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "url", ["folder/y.db", "/x/y", "/x/y.db?index=a b", "/x/y.db?tls=true", "/x/y.db?timeout=1"]
)
def test_a_bad_url_of_a_file_is_refused(url):
    with pytest.raises(ConfigError, match="Milvus URL: expected "):
        parse_location(f"milvus+lite://{url}")


@pytest.mark.milvus
def test_a_server_that_is_away_is_one_line_without_a_secret(retriever):
    pytest.importorskip("pymilvus", reason="pymilvus is not installed")
    outcome = retriever("query", "x", "-i", f"milvus://me:{SECRET}@127.0.0.1:9/a?timeout=1")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "milvus://me@127.0.0.1:9/a: cannot connect to Milvus: " in outcome.err
    assert SECRET not in outcome.err + outcome.out


@pytest.mark.parametrize("module", ["pymilvus", "milvus_lite"])
def test_a_missing_library_is_named(monkeypatch, tmp_path, module):
    monkeypatch.setattr("indexes.location.find_spec", lambda name: name != module or None)
    with pytest.raises(MissingExtraError, match=module.replace("_", "-")):
        open_store(f"milvus+lite://{tmp_path}/x.db")


def test_a_file_in_no_folder_is_not_made(tmp_path, own_file):
    with pytest.raises(StorageError, match="does not exist"):
        MilvusStore(f"milvus+lite://{tmp_path}/none/x.db").create(SETTINGS)
    assert not MilvusStore(own_file).exists()
    assert list(tmp_path.iterdir()) == []
