"""The database: what is an index, who can read it, and settings that were altered."""

import fcntl
import json
import multiprocessing
import os
import resource
import sqlite3
import threading
import time
from contextlib import closing, contextmanager, nullcontext

import pytest

from indexes.errors import (
    DamagedIndexError,
    FormatVersionError,
    NotAnIndexError,
    RetrieverError,
    StorageError,
)
from indexes.folder.connection import (
    DATABASE_FILE,
    FORMAT_VERSION,
    Session,
    check_settings,
    is_index,
    open_writer,
    read_settings,
    transaction,
    write_setting,
)
from indexes.folder.documents import create_database
from indexes.folder.verify import verify
from indexes.folder.view import FolderReader
from indexes.folder.writer import FolderWriter
from tests.indexes.index_samples import (
    SETTINGS,
    alter,
    commit,
    document,
    dying_at,
    in_child,
    in_fork,
    make_index,
    texts,
    texts_in,
)

WAYS_IN = (
    Session,
    open_writer,
    verify,
    FolderReader,
    lambda folder: FolderWriter(folder).__enter__(),
)


@pytest.fixture
def index(tmp_path):
    return make_index(tmp_path / "index", [document("a", "apple")], [document("b", "banana")])


def test_a_transaction_that_raises_leaves_everything_as_it_was(index):
    with closing(open_writer(index)) as connection:
        for error, left in ((KeyboardInterrupt, pytest.raises(KeyError)), (None, nullcontext())):
            with pytest.raises(error) if error else nullcontext(), transaction(connection):
                write_setting(connection, "key", [1, {"ü": None}])
                if error:
                    raise error
            with left:
                assert json.loads(read_settings(connection)["key"]) == [1, {"ü": None}]


def test_a_reader_cannot_write(index):
    refused = pytest.raises(sqlite3.OperationalError, match="readonly")
    with closing(Session(index)) as session, refused:
        write_setting(session.connection, "key", 1)


@pytest.mark.parametrize(
    ("arrange", "message", "is_free"),
    [
        (lambda folder: folder.rmdir(), "retriever index", True),
        (lambda folder: None, "retriever index", True),
        (lambda folder: (folder.rmdir(), folder.write_text("mine")), "found a file", False),
        (lambda folder: (folder / "thesis.txt").write_text("mine"), "not an index", False),
        *(
            (lambda folder, statement=statement: alter(folder, statement), "not an index", True)
            for statement in ("CREATE TABLE photos (name TEXT)", "PRAGMA journal_mode=WAL")
        ),
        *(
            (
                lambda folder, content=content: (folder / DATABASE_FILE).write_bytes(content),
                "no",
                True,
            )
            for content in (b"", b"short", b"no database at all" * 100)
        ),
    ],
)
def test_opening_something_else_than_an_index_is_refused_and_changes_nothing(
    tmp_path, arrange, message, is_free
):
    folder = tmp_path / "index"
    folder.mkdir()
    arrange(folder)

    def state():
        return {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}

    before = state()
    assert not is_index(folder)
    for opening in WAYS_IN:
        with pytest.raises(NotAnIndexError, match=message) as caught:
            opening(folder)
        assert str(folder) in str(caught.value)
        assert "\n" not in str(caught.value)
    if not is_free:
        with pytest.raises((NotAnIndexError, StorageError)), FolderWriter(folder, create=SETTINGS):
            pass
        (folder / "writer.lock").unlink(missing_ok=True) if folder.is_dir() else None
    assert state() == before


def test_a_newer_format_is_refused_with_both_versions(index):
    alter(index, f"PRAGMA user_version={FORMAT_VERSION + 6}")
    message = f"version {FORMAT_VERSION + 6}, .* up to {FORMAT_VERSION}; .*pip install -U"
    for opening in WAYS_IN:
        with pytest.raises(FormatVersionError, match=message):
            opening(index)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_creation_killed_at_any_statement_is_repeated(tmp_path, every):
    complete = []
    for statement in range(200):
        folder = tmp_path / str(statement)
        folder.mkdir()
        status = dying_at(statement, lambda place=folder: create_database(place, SETTINGS))
        complete.append(is_index(folder))
        if not complete[-1]:
            with pytest.raises(NotAnIndexError):
                Session(folder)
        if status == 0 or statement % every == 0:
            with FolderWriter(folder, create=SETTINGS) as writer:
                commit(writer, document("a", "apple"))
            assert texts(folder) == {"a": "apple"}
            assert verify(folder) == []
        if status == 0:
            break
    assert status == 0
    assert len(complete) > 15
    # Created in one transaction: whole at the end and not before.
    assert complete == [False] * (len(complete) - 1) + [True]


def test_index_with_its_header_only_in_the_log_is_recognized(tmp_path):
    class Dying(sqlite3.Connection):
        def close(self):
            os._exit(9)

    def create():
        connect = sqlite3.connect
        sqlite3.connect = lambda *rest, **options: connect(*rest, **options, factory=Dying)
        create_database(tmp_path, {"key": 5})

    assert in_fork(create) == 9
    assert b"RTRV" not in (tmp_path / DATABASE_FILE).read_bytes()[:100]
    assert is_index(tmp_path)
    with closing(Session(tmp_path)) as session:
        assert json.loads(read_settings(session.connection)["key"]) == 5


def write(folder):
    with FolderWriter(folder) as writer:
        commit(writer, document("new", "word"))


ACTIONS = {
    "texts": texts,
    "verify": verify,
    "write": write,
    "create": lambda folder: FolderWriter(folder, create=SETTINGS).__enter__(),
    "fill the disk": lambda _: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
}


def answer_requests(folder, pipe, user):
    if user is not None and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    reader = None
    while True:
        request = pipe.recv()
        try:
            if request in ACTIONS:
                pipe.send(ACTIONS[request](folder))
                continue
            reader = reader or FolderReader(folder)
            with reader.view() as view:
                texts_seen = texts_in(view)
                if request == "begin":
                    pipe.send("begun")
                    pipe.recv()
                    texts_seen = texts_in(view)
            pipe.send([texts_seen, verify(folder)])
        except RetrieverError as error:
            pipe.send(f"{type(error).__name__}: {error}")


@contextmanager
def another_process(folder, user=65534):
    """Start a process, by default of a user who cannot write, and yield a function that asks it.

    ``read``: what a view of its one reader holds and what is damaged. ``begin`` begins a view and
    ``end`` reads in it again. The others are `ACTIONS`.
    """
    if user is not None and os.geteuid() != 0 and os.access(folder, os.W_OK):
        pytest.skip("only root can become another user")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=answer_requests, args=(folder, theirs, user))
    process.start()

    def ask(request):
        ours.send(request)
        assert ours.poll(30)
        return ours.recv()

    try:
        yield ask
    finally:
        process.kill()
        process.join()


def without_log(folder):
    """Remove the log, as an earlier release or another program leaves an index."""
    for suffix in ("-wal", "-shm"):
        (folder / f"{DATABASE_FILE}{suffix}").unlink()
    return folder


@pytest.fixture
def shared(open_to_all):
    """An index that another user can read, and that has an empty log."""
    folder = make_index(open_to_all / "index", [document("a", "apple")])
    assert verify(folder) == []
    assert (folder / f"{DATABASE_FILE}-wal").stat().st_size == 0
    return folder


def test_read_only_folder_can_be_read(shared):
    before = sorted(path.name for path in shared.iterdir())
    for path in [shared, *shared.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    with another_process(shared) as ask:
        assert ask("read") == [{"a": "apple"}, []]
        for action in ("write", "create"):
            assert ask(action).startswith(f"StorageError: {shared}")
            assert "permission denied: make the folder writable or choose another" in ask(action)
    assert sorted(path.name for path in shared.iterdir()) == before


@pytest.mark.parametrize("log", [True, False])
def test_a_user_who_cannot_write_sees_every_commit(shared, log):
    if not log:
        without_log(shared)
    with another_process(shared) as ask:
        assert ask("read") == [{"a": "apple"}, []]
        with FolderWriter(shared, pending_limit=0) as writer:
            commit(writer, document("b", "banana"))
            assert ask("read") == [{"a": "apple", "b": "banana"}, []]
            writer.delete(["a"])
            assert ask("read") == [{"b": "banana"}, []]
        assert ask("read") == [{"b": "banana"}, []]
        with FolderWriter(shared) as writer:
            commit(writer, document("c", "cherry"))
            writer.compact()
        assert ask("read") == [{"b": "banana", "c": "cherry"}, []]
        assert texts(shared) == {"b": "banana", "c": "cherry"}


@pytest.mark.parametrize("log", [True, False])
def test_view_of_a_read_only_user_is_one_commit_or_an_error(open_to_all, log):
    many = {f"{i:03}": f"text {i}" for i in range(300)}
    folder = make_index(open_to_all / "index", [document(id_, many[id_]) for id_ in many])
    if not log:
        without_log(folder)
    with another_process(folder) as ask:
        assert ask("begin") == "begun"
        with FolderWriter(folder) as writer:
            writer.delete(list(many)[1:])
            writer.compact()
        answer = ask("end")
        if log:
            assert answer[0] == many
        else:
            # Nothing locks the file that the writer changed.
            assert answer.startswith("StorageError: ")
            assert "changed while it was read without locks" in answer
        assert ask("read") == [{"000": "text 0"}, []]


def test_a_user_who_cannot_write_waits_for_a_writer_that_is_opening_the_index(shared):
    """It has SQLite's shared memory open, and has not filled it yet."""

    def go_on():
        with FolderWriter(shared) as writer:
            writer.record("key", 1)

    with another_process(shared) as ask, (shared / f"{DATABASE_FILE}-shm").open("r+b") as memory:
        assert ask("read") == [{"a": "apple"}, []]
        memory.write(bytes(136))
        memory.flush()
        # SQLite's lock of a process that has the shared memory open.
        fcntl.lockf(memory, fcntl.LOCK_SH, 1, 128)
        going_on = threading.Timer(0.2, go_on)
        began = time.monotonic()
        going_on.start()
        assert ask("read") == [{"a": "apple"}, []]
        assert time.monotonic() - began > 0.2
        going_on.join()


def test_user_who_can_write_only_the_folder_leaves_no_files_that_block_the_writer(shared):
    without_log(shared).chmod(0o777)
    before = sorted(shared.iterdir())
    with another_process(shared) as ask:
        assert ask("read") == [{"a": "apple"}, []]
        assert sorted(shared.iterdir()) == before
        with FolderWriter(shared) as writer:
            commit(writer, document("b", "banana"))
        assert ask("read") == [{"a": "apple", "b": "banana"}, []]


@pytest.mark.parametrize("name", [DATABASE_FILE, "."])
def test_an_index_that_may_not_be_read_is_not_called_damaged(shared, name):
    (shared / name).chmod(0o600)
    with another_process(shared) as ask:
        for action in ("texts", "verify", "write"):
            assert ask(action).startswith(f"StorageError: {shared}")
            assert "permission denied" in ask(action)


def kill_a_writer(folder):
    def killed():
        with FolderWriter(folder) as writer:
            commit(writer, document("c", "cherry"))
            os._exit(9)

    assert in_fork(killed) == 9


@pytest.mark.parametrize("unreadable", ["-shm", "-wal"])
def test_the_log_of_a_writer_that_was_killed_is_read_or_the_error_says_who_can(shared, unreadable):
    kill_a_writer(shared)
    with another_process(shared) as ask:
        assert ask("texts") == {"a": "apple", "c": "cherry"}
        (shared / f"{DATABASE_FILE}{unreadable}").chmod(0o600)
        answer = ask("texts")
    assert answer.startswith(
        f"StorageError: {shared / DATABASE_FILE}-wal: cannot read the last commits"
    )
    assert "as a user who can write" in answer
    assert texts(shared) == {"a": "apple", "c": "cherry"}


def test_on_a_full_disk_an_index_is_read_and_a_killed_writers_log_is_not_ignored(index):
    with another_process(index, user=None) as ask:
        ask("fill the disk")
        without_log(index)
        assert ask("texts") == {"a": "apple", "b": "banana"}
        assert ask("verify") == []
        kill_a_writer(index)
        (index / f"{DATABASE_FILE}-shm").unlink()
        answer = ask("texts")
    assert answer.startswith(
        f"StorageError: {index / DATABASE_FILE}-wal: cannot read the last commits"
    )
    assert "free some disk space" in answer
    assert texts(index) == {"a": "apple", "b": "banana", "c": "cherry"}


@pytest.mark.parametrize("below", ["", "index"])
def test_creating_an_index_over_a_file_is_refused(tmp_path, below):
    (tmp_path / "notes.txt").write_text("mine")
    refused = pytest.raises(StorageError, match=r"notes\.txt.*a file is in the way")
    with refused, FolderWriter(tmp_path / "notes.txt" / below, {}):
        pass
    assert (tmp_path / "notes.txt").read_text() == "mine"


WRITE = """
import sys
from pathlib import Path
from tests.indexes.index_samples import commit, document
from indexes.folder.writer import FolderWriter

with FolderWriter(Path(sys.argv[1])) as writer:
    commit(writer, document("a", "avocado"), document("c", "cherry"))
    writer.delete(["b"])
"""


@pytest.mark.parametrize("look", [is_index, verify, texts, write])
def test_is_index_keeps_the_locks_of_readers(index, look):
    """A process that opens and closes the file itself drops its own connections' locks."""
    with closing(FolderReader(index)) as reader:
        with reader.view():
            pass
        look(index)
        outcome = in_child(WRITE, index)
        assert outcome.returncode == 0, outcome.stderr
        # The other process was not the last to close the database, so the log is still there.
        assert (index / f"{DATABASE_FILE}-wal").exists()
        with reader.view() as view:
            assert view.count_documents() == 2 + (look is write)


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
        check_settings(read_settings(database), index)


def test_writing_settings_updates_their_seal(index, database):
    write_setting(database, "note", {"ü": [1, None]})
    assert json.loads(read_settings(database)["note"]) == {"ü": [1, None]}
    check_settings(read_settings(database), index)
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
    assert texts(index) == {"a": "apple", "b": "bread"}
    assert verify(index) == []
    database.execute("""UPDATE settings SET value = '"x"' WHERE key = 'encoder'""")
    assert len(verify(index)) == 1
