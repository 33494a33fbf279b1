"""Faults between an index and its server are one line each and lose or tear nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from indexes import Query, StructureSettings, open_store
from indexes.errors import (
    ClosedIndexError,
    ConfigError,
    FormatVersionError,
    NotAnIndexError,
    StorageError,
)
from indexes.postgres import connection as connection_module
from indexes.postgres import schema as schema_module
from tests.indexes.store_samples import DIMENSIONS, SETTINGS, documents, ids_of, open_view
from tests.postgres_server import PostgresServer

BATCH = 10


@contextmanager
def refused(kind, match=None):
    with pytest.raises(kind, match=match) as caught:
        yield
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert "sekret" not in str(caught.value)


def end_sessions(server: PostgresServer) -> None:
    with server.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE application_name = 'retriever'"
        )


def test_lost_connection_is_one_error_and_the_next_call_reconnects(store, postgres_server):
    with closing(store.reader()) as reader:
        with store.writer() as writer:
            writer.commit(*documents(["a"]))
            end_sessions(postgres_server)
            with refused(StorageError, match="the connection was lost"):
                writer.commit(*documents(["b"]))
        with reader.view() as view:
            assert view.content_hashes(["a"])
            end_sessions(postgres_server)
            with refused(StorageError, match="the connection was lost"):
                view.content_hashes(["a"])
        with store.writer() as writer:
            for _ in range(2):
                writer.commit(*documents(["a", "b"]))
        with reader.view() as view:
            assert view.content_hashes(["b"])
    with pytest.raises(ClosedIndexError), reader.view():
        pass
    assert ids_of(store) == ["a", "b"]
    assert store.verify() == []


SLEEPER = """
import signal, sys
sys.path[:0] = sys.argv[2:]
from indexes import open_store
# A background job ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
reader = open_store(sys.argv[1]).reader()
try:
    with reader.view() as view:
        view.rows("SELECT pg_sleep(30)")
except KeyboardInterrupt:
    with reader.view() as view:
        print("interrupted,", view.count_documents(), "documents")
reader.close()
"""


def test_an_interrupted_statement_leaves_no_connection_behind(store, postgres_server, postgres_url):
    # In a process of its own: the signal can end one that runs tests beside others.
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, postgres_url, str(Path(__file__).parents[3])],
        stdout=subprocess.PIPE,
        text=True,
    )
    statement = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)%'"
    statement += " AND state = 'active' AND pid <> pg_backend_pid()"
    with postgres_server.connect() as connection:
        end = time.monotonic() + 20
        while connection.execute(statement).fetchone() == (0,):
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[0] == "interrupted, 0 documents\n"
        assert connection.execute(statement).fetchone() == (0,)


def test_a_forked_child_connects_itself(store):
    statement = "SELECT pg_backend_pid()"
    with closing(store.reader()) as reader:
        with reader.view() as view:
            own = view.rows(statement)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with reader.view() as view:
                    status = 2 if view.rows(statement) == own else 0
                reader.close()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with reader.view() as view:
            assert view.rows(statement) == own


def test_streams_of_one_view_are_read_side_by_side(store):
    ids = [f"d{n}" for n in range(5)]
    with store.writer() as writer:
        writer.commit(*documents(ids))
    with open_view(store) as view:
        pairs = [(a.id, b.id) for a, b in zip(view.documents(), view.documents(), strict=True)]
        assert pairs == list(zip(ids, ids, strict=True))


def test_an_old_server_or_extension_is_refused(postgres_server, postgres_url, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(connection_module, "OLDEST_SERVER", 99)
        with refused(ConfigError, match="expected PostgreSQL 99 or newer"):
            open_store(postgres_url).exists()
    monkeypatch.setattr(schema_module, "_OLDEST_VECTOR", (99, 0))
    with postgres_server.connect() as connection:
        connection.execute("CREATE DATABASE old")
    with refused(ConfigError, match=r"expected pgvector .* found 0\."):
        open_store(postgres_server.url(database="old")).create(SETTINGS)


def test_a_database_lacks_first_the_extension_then_rights_then_has_newer_tables(postgres_server):
    with postgres_server.connect() as connection:
        connection.execute("CREATE DATABASE bare")
        connection.execute("CREATE ROLE plain LOGIN")
    bare = open_store(postgres_server.url(database="bare", user="plain"))
    assert not bare.exists()
    with pytest.raises(NotAnIndexError):
        bare.reader()
    with postgres_server.connect("bare") as connection:
        with refused(ConfigError, match="lacks the extension vector"):
            bare.create(SETTINGS)
        connection.execute("CREATE EXTENSION vector")
        with refused(StorageError, match="permission denied"):
            bare.create(SETTINGS)
        connection.execute("CREATE SCHEMA retriever AUTHORIZATION plain")
        for _ in range(2):
            bare.create(SETTINGS)
        assert ids_of(bare) == []
        connection.execute("UPDATE retriever.format SET version = 99")
    opened, created = bare.writer().__enter__, lambda: bare.create(SETTINGS)
    for call in (bare.exists, bare.reader, opened, created):
        with refused(FormatVersionError, match="format 99"):
            call()


def test_read_only_user_can_search_and_not_write(store, postgres_server, postgres_url):
    with store.writer() as writer:
        writer.commit(*documents(["a"]))
    with postgres_server.connect() as connection:
        connection.execute("CREATE ROLE guest LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA retriever TO guest")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA retriever TO guest")
    guest = open_store(postgres_url.replace("postgres@", "guest@"))
    assert ids_of(guest) == ["a"]
    with guest.writer() as writer, refused(StorageError, match="permission denied"):
        writer.commit(*documents(["b"]))


def test_verify_finds_altered_rows(store, postgres_server):
    with store.writer() as writer:
        writer.commit(*documents([f"d{n}" for n in range(4)]))
        writer.record("computed", ["x"])
        assert writer.setting("computed") == ["x"]
        with pytest.raises(KeyError):
            writer.setting("none")
        writer.rebuild(StructureSettings("hnsw"))
        writer.delete(["d3"])
        number = writer._tables.number
    assert store.verify() == []
    first = f"(SELECT min(passage) FROM retriever.passages_{number})"
    changes = (
        (f"UPDATE documents_{number} SET text = 'x' WHERE id = 'd1'", "'d1' was altered"),
        (f"UPDATE passages_{number} SET length = 5 WHERE passage = {first}",
         "expected 12 terms, as the index says, found 15; "
         "postings of 1 passages do not add up to their lengths, and 2"),
        (f"DELETE FROM deleted_{number}", "expected 2 deleted passages; 0"),
        (f"UPDATE indexes SET documents = 9 WHERE number = {number}", "expected 9 documents"),
        (f"DELETE FROM documents_{number} WHERE id = 'd2'", "6 passages of documents; found 4"),
        (f"DROP INDEX retriever.hnsw_{number}", "graph is missing"),
        ("UPDATE indexes SET settings = replace(settings, 'x', 'y')", "a setting was altered"),
    )  # fmt: skip
    with postgres_server.connect() as connection:
        connection.execute("SET search_path = retriever")
        for change, expected in changes:
            connection.execute(change)
            problems = "\n".join(store.verify())
            for part in expected.split("; "):
                assert part in problems, change


WORK = """
import sys
sys.path[:0] = sys.argv[2:]
from tests.indexes.store_samples import documents
from indexes import open_store
with open_store(sys.argv[1]).writer() as writer:
    for number in range(10_000):
        writer.commit(*documents([f"{number:05}-{i}" for i in range(10)] + ["shared"], seed=7))
        print(number, flush=True)
        if number % 3 == 2:
            writer.delete([f"{number - 1:05}-{i}" for i in range(10)])
        writer.merge()
"""


def start_writer(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORK, url, str(Path(__file__).parents[3])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check_whole(store, last: int) -> None:
    """Assert that every batch is stored whole or not at all, and every commit is there."""
    assert store.verify() == []
    batches: dict[str, int] = {}
    for id_ in ids_of(store):
        if id_ != "shared":
            batches[id_[:5]] = batches.get(id_[:5], 0) + 1
    assert set(batches.values()) == {BATCH}
    deleted = {n - 1 for n in range(2, last + 2, 3)}
    committed = {f"{n:05}" for n in range(last + 1) if n not in deleted}
    assert committed <= batches.keys()
    assert len(batches.keys() - committed) <= 2


def test_a_writer_that_is_killed_loses_and_tears_nothing(store, postgres_url):
    process = start_writer(postgres_url)
    assert process.stdout is not None
    last = -1
    while last < 40:
        last = int(process.stdout.readline())
    process.kill()
    rest = process.communicate()[0].split()
    time.sleep(0.1)
    check_whole(store, int(rest[-1]) if rest else last)
    with store.writer() as writer:
        writer.commit(*documents(["after"]))


def test_wrong_password_is_refused(tmp_path_factory, monkeypatch):
    server = PostgresServer(auth="scram-sha-256")
    try:
        with server.connect() as connection:
            connection.execute("SET password_encryption = 'scram-sha-256'")
            connection.execute("CREATE ROLE me LOGIN SUPERUSER PASSWORD 'sekret'")
        at = f"127.0.0.1:{server.port}/postgres?index=a"
        for account in ("me", "me:sekret1"):
            monkeypatch.delenv("PGPASSWORD", raising=False)
            with refused(StorageError, match="password"):
                open_store(f"postgresql://{account}@{at}").exists()
        assert not open_store(f"postgresql://me:sekret@{at}").exists()
        monkeypatch.setenv("PGPASSWORD", "sekret")
        store = open_store(f"postgresql://me@{at}")
        store.create({**SETTINGS, "x": 1})
        with server.connect() as connection:
            (text,) = connection.execute("SELECT settings FROM retriever.indexes").fetchone()
        assert "sekret" not in text
    finally:
        server.remove()


@pytest.mark.soak
def test_read_replica_can_be_searched(tmp_path_factory):
    primary = PostgresServer()
    replica = None
    try:
        store = open_store(primary.url())
        store.create(SETTINGS)
        with store.writer() as writer:
            writer.commit(*documents(["a", "b"]))
        replica = primary.standby()
        copy = open_store(replica.url())
        end = time.monotonic() + 20
        while ids_of(copy) != ["a", "b"]:
            assert time.monotonic() < end
            time.sleep(0.1)
        with open_view(copy) as view:
            query = Query(["apple"], np.ones(DIMENSIONS, np.float32))
            (candidates,) = view.ranking().candidates([query], "hybrid", 2)
            assert len(candidates.passages) >= 2
            assert "a read replica" in view.describe()["store"]["server"]
            assert view.facets(["x"], None, ["apple"], 3).matches == 2
        assert copy.verify() == []
        with refused(StorageError, match="read-only.*primary server"), copy.writer() as writer:
            writer.commit(*documents(["c"]))
    finally:
        if replica is not None:
            replica.remove()
        primary.remove()
