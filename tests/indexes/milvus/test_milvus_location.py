"""URLs of indexes in Milvus, and that no message repeats a secret."""

from __future__ import annotations

import pytest
from store_samples import SETTINGS

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


@pytest.mark.parametrize(
    "url",
    [
        "milvus://me:sekret@h",
        "milvus://me:sekret@h/",
        "milvus://me:sekret@h/a/b",
        "milvus://me:sekret@h/a-b",
        "milvus://me:sekret@h/" + "a" * 101,
        "milvus://me:sekret@/a",
        "milvus://me:sekret@h:port/a",
        "milvus://me:sekret@h:99999/a",
        "milvus://me:sekret@[h/a",
        "milvus://me:sekret@h/a?nonsense=1",
        "milvus://me:sekret@h/a?tls",
        "milvus://me:sekret@h/a?tls=perhaps",
        "milvus://me:sekret@h/a?timeout=0",
        "milvus://me:sekret@h/a?timeout=soon",
        "milvus://me:sekret@h/a?tenant=a",
        "milvus+lite://folder/y.db",
        "milvus+lite:///x/y",
        "milvus+lite:///x/y.db?index=a b",
        "milvus+lite:///x/y.db?tls=true",
    ],
)
def test_a_bad_url_is_refused_in_one_line_without_its_secret(url):
    with pytest.raises(ConfigError) as caught:
        parse_location(url)
    message = str(caught.value)
    assert message.startswith("Milvus URL: ")
    assert "expected" in message
    assert "\n" not in message
    assert SECRET not in message
    assert caught.value.exit_code == 2


@pytest.mark.milvus
def test_a_server_that_is_away_is_one_line_without_a_secret(retriever):
    pytest.importorskip("pymilvus", reason="pymilvus is not installed")
    outcome = retriever("query", "x", "-i", f"milvus://me:{SECRET}@127.0.0.1:9/a?timeout=1")
    assert outcome.code == 2
    assert outcome.err.startswith(
        "retriever: milvus://me@127.0.0.1:9/a: cannot connect to Milvus: "
    )
    assert outcome.err.count("\n") == 1
    assert SECRET not in outcome.err + outcome.out


@pytest.mark.parametrize("module", ["pymilvus", "milvus_lite"])
def test_a_missing_library_is_named(monkeypatch, tmp_path, module):
    monkeypatch.setattr("indexes.milvus.connection.find_spec", lambda name: name != module or None)
    with pytest.raises(MissingExtraError, match=module.replace("_", "-")):
        MilvusStore(f"milvus+lite://{tmp_path}/x.db").create(SETTINGS)


def test_a_file_in_no_folder_is_not_made(tmp_path, own_file):
    with pytest.raises(StorageError, match="does not exist"):
        MilvusStore(f"milvus+lite://{tmp_path}/none/x.db").create(SETTINGS)
    assert not MilvusStore(own_file).exists()
    assert list(tmp_path.iterdir()) == []
