"""URLs of indexes, and that no message repeats a password."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from indexes.errors import ConfigError
from indexes.postgres.connection import parse_location
from indexes.postgres.store import PostgresStore

SECRET = "sekret"


@pytest.mark.parametrize(
    ("url", "shown"),
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
def test_a_url_is_shown_without_its_password(url, shown):
    location = parse_location(url)
    assert str(location) == shown
    assert SECRET not in repr(location) + repr(PostgresStore(url)) + str(PostgresStore(url))
    assert (conninfo_to_dict(location.conninfo).get("password") is None) != (SECRET in url)


@pytest.mark.parametrize(
    "rest",
    ["h/db", "h/db?index=", "h/db?index=a&index=b", "h/db?index=a%00b", "h/db?index=" + "a" * 201,
     "h/db?index=a&nonsense=1", "h:port/db?index=a", "[h/db?index=a", "%zz@h/db?index=a",
     "sekret@h/db?index=a"],
)  # fmt: skip
@pytest.mark.parametrize("password", ["sekret", "a/sekret", "a?sekret", "a#sekret"])
def test_a_bad_url_is_refused_in_one_line_without_its_password(password, rest):
    with pytest.raises(ConfigError, match=r"^postgresql://…: expected .*$") as caught:
        parse_location(f"postgresql://me:{password}@{rest}")
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_name_has_up_to_200_characters():
    name = "é" * 200
    assert parse_location(f"postgresql://me@h/db?index={name}").index == name


def test_psycopg_is_named_where_it_is_missing(retriever, monkeypatch):
    monkeypatch.setattr("indexes.location.find_spec", lambda name: None)
    outcome = retriever("info", "-i", "postgresql://me:sekret@h/db?index=a")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "layer-retriever[postgres]" in outcome.err
    assert SECRET not in outcome.err


def test_a_url_of_an_unknown_kind_is_refused(retriever):
    outcome = retriever("info", "-i", "mysql://me:sekret@h/db?index=a")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert SECRET not in outcome.err
