"""Creating and opening the database: what is an index, and the messages for what is not."""

import fcntl
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from index_samples import (
    SETTINGS,
    DyingConnection,
    commit,
    document,
    in_child,
    in_fork,
    make_index,
    texts,
)

import indexes.folder.connection
from indexes.errors import FormatVersionError, NotAnIndexError, StorageError
from indexes.folder.connection import (
    DATABASE_FILE,
    FORMAT_VERSION,
    is_index,
    open_reader,
    open_writer,
    read_setting,
    transaction,
    write_setting,
)
from indexes.folder.documents import create_database
from indexes.folder.verify import verify
from indexes.folder.view import FolderReader
from indexes.folder.writer import FolderWriter


@pytest.fixture
def index(tmp_path):
    return make_index(tmp_path / "index", [document("a", "apple")], [document("b", "banana")])


def test_settings_are_json_values_that_come_back(tmp_path):
    settings = {"text": "ü", "number": 1.5, "list": [1, None, True], "nested": {"b": {"a": 1}}}
    create_database(tmp_path, settings)
    connection = open_reader(tmp_path).connection
    assert {key: read_setting(connection, key) for key in settings} == settings
    with pytest.raises(KeyError):
        read_setting(connection, "none")
    connection.close()


def test_a_transaction_that_raises_leaves_everything_as_it_was(tmp_path):
    create_database(tmp_path, {"key": "before"})
    connection = open_writer(tmp_path)

    def interrupted():
        with transaction(connection):
            write_setting(connection, "key", "after")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert read_setting(connection, "key") == "before"
    with transaction(connection):
        write_setting(connection, "key", "later")
    assert read_setting(connection, "key") == "later"
    connection.close()


def test_a_reader_cannot_write(index):
    connection = open_reader(index).connection
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        write_setting(connection, "key", 1)
    connection.close()


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(NotAnIndexError, match=r"thesis\.txt") as caught:
        create_database(tmp_path, {})
    assert "\n" not in str(caught.value)
    with pytest.raises(NotAnIndexError), FolderWriter(tmp_path, create=SETTINGS):
        pass
    assert (tmp_path / "thesis.txt").read_text() == "mine"
    assert not (tmp_path / DATABASE_FILE).exists()
    assert not is_index(tmp_path)


def test_a_database_of_another_program_is_no_index(tmp_path):
    with sqlite3.connect(tmp_path / DATABASE_FILE) as other:
        other.execute("CREATE TABLE photos (name TEXT)")
    other.close()
    assert not is_index(tmp_path)
    for opening in (open_reader, open_writer):
        with pytest.raises(NotAnIndexError):
            opening(tmp_path)


@pytest.mark.parametrize("content", [b"", b"short", b"no database at all" * 100])
def test_a_file_that_only_bears_the_name_is_no_index(tmp_path, content):
    (tmp_path / DATABASE_FILE).write_bytes(content)
    with pytest.raises(NotAnIndexError, match=str(tmp_path)):
        open_reader(tmp_path)


@pytest.mark.parametrize("exists", [True, False])
def test_without_an_index_the_message_says_how_to_make_one(tmp_path, exists):
    folder = tmp_path / "index"
    if exists:
        folder.mkdir()
    for opening in (open_reader, open_writer, FolderReader, verify):
        with pytest.raises(NotAnIndexError, match="retriever index"):
            opening(folder)
    with pytest.raises(NotAnIndexError), FolderWriter(folder):
        pass
    # Asking leaves nothing behind.
    assert folder.exists() == exists
    assert not exists or list(folder.iterdir()) == []


def test_a_file_in_place_of_the_folder_is_no_index(tmp_path):
    (tmp_path / "index").write_text("")
    with pytest.raises(NotAnIndexError):
        open_reader(tmp_path / "index")


def test_a_newer_format_is_refused_with_both_versions(index):
    connection = sqlite3.connect(index / DATABASE_FILE)
    connection.execute(f"PRAGMA user_version={FORMAT_VERSION + 6}")
    connection.close()
    for opening in (open_reader, open_writer, verify, FolderReader):
        with pytest.raises(FormatVersionError) as caught:
            opening(index)
        message = str(caught.value)
        assert f"version {FORMAT_VERSION + 6}" in message
        assert f"up to {FORMAT_VERSION}" in message
        assert "pip install -U" in message
    with pytest.raises(FormatVersionError), FolderWriter(index, create=SETTINGS):
        pass


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_a_creation_cut_short_at_any_statement_is_done_again(tmp_path, monkeypatch, every):
    connect = sqlite3.connect

    def dying(*arguments, **options):
        return connect(*arguments, **options, factory=DyingConnection)

    complete = []
    for statement in range(200):
        folder = tmp_path / str(statement)
        folder.mkdir()

        def create(at=statement, place=folder):
            DyingConnection.dies_at = at
            monkeypatch.setattr(indexes.folder.connection.sqlite3, "connect", dying)
            create_database(place, SETTINGS)

        status = in_fork(create)
        complete.append(is_index(folder))
        if not complete[-1]:
            with pytest.raises(NotAnIndexError):
                open_reader(folder)
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


def test_an_index_whose_header_is_in_the_log_alone_is_found(tmp_path):
    outcome = in_child(
        """
import os, sqlite3, sys
from pathlib import Path
import indexes.folder.connection
import indexes.folder.documents

class Dying(sqlite3.Connection):
    def close(self):
        os._exit(9)

connect = sqlite3.connect
indexes.folder.connection.sqlite3.connect = lambda *a, **o: connect(*a, **o, factory=Dying)
indexes.folder.documents.create_database(Path(sys.argv[1]), {"key": 5})
""",
        tmp_path,
    )
    assert outcome.returncode == 9, outcome.stderr
    assert b"RTRV" not in (tmp_path / DATABASE_FILE).read_bytes()[:100]
    assert is_index(tmp_path)
    connection = open_reader(tmp_path).connection
    assert read_setting(connection, "key") == 5
    connection.close()


BECOME_ANOTHER_USER = """
import os, sys, json
from pathlib import Path
from index_samples import texts, texts_in, commit, document
from indexes.errors import RetrieverError
from indexes.folder.lock import writer_lock
from indexes.folder.view import FolderReader
from indexes.folder.verify import verify
from indexes.folder.writer import FolderWriter
import filelock, indexes.bm25.scoring, pyroaring

folder = Path(sys.argv[1])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
"""
READ_ONLY = (
    BECOME_ANOTHER_USER
    + """
print(json.dumps([texts(folder), verify(folder)]))
for create in (None, {"encoder": {}}):
    try:
        with FolderWriter(folder, create=create) as writer:
            commit(writer, document("new", "word"))
        print("written")
    except RetrieverError as error:
        print(type(error).__name__, error)
print(sorted(p.name for p in folder.iterdir()))
"""
)
FOLLOW = (
    BECOME_ANOTHER_USER
    + """
reader = FolderReader(folder)
for line in sys.stdin:
    try:
        with reader.view() as view:
            found = texts_in(view)
            if line == "begin\\n":
                print("begun", flush=True)
                sys.stdin.readline()
                found = texts_in(view)
        print(json.dumps([found, verify(folder)]), flush=True)
    except RetrieverError as error:
        print(json.dumps(f"{type(error).__name__}: {error}"), flush=True)
"""
)


@contextmanager
def reader_of_another_user(folder):
    """A process of a user who cannot write, with one reader; asks it and returns its answer.

    ``read``: what a view holds and what is damaged. ``begin`` begins a view and ``end`` reads in
    it again.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    process = subprocess.Popen(
        [sys.executable, "-c", FOLLOW, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(request):
        process.stdin.write(f"{request}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        return answer if request == "begin" else json.loads(answer)

    with process:
        try:
            yield ask
        finally:
            process.kill()


def without_log(folder):
    """As an earlier release left an index, or another program that was the last to close it."""
    for suffix in ("-wal", "-shm"):
        (folder / f"{DATABASE_FILE}{suffix}").unlink()
    return folder


def read_only(folder):
    """What another process reads in a folder that it cannot write, and how writing fails."""
    before = sorted(path.name for path in folder.iterdir())
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    outcome = in_child(READ_ONLY, folder)
    if "Operation not permitted" in outcome.stderr:
        pytest.skip("root cannot become another user here")
    assert outcome.returncode == 0, outcome.stderr
    *lines, names = outcome.stdout.splitlines()
    assert names == str(before)
    return lines


def test_a_folder_that_cannot_be_written_can_be_read(open_to_all):
    folder = make_index(open_to_all / "index", [document("a", "apple")])
    found, *refusals = read_only(folder)
    assert found == '[{"a": "apple"}, []]'
    assert len(refusals) == 2
    for refusal in refusals:
        assert refusal.startswith("StorageError")
        assert "permission denied" in refusal
        assert "choose another" in refusal


@pytest.mark.parametrize("log", [True, False])
def test_a_user_who_cannot_write_sees_every_commit(open_to_all, log):
    folder = make_index(open_to_all / "index", [document("a", "apple")])
    assert (folder / f"{DATABASE_FILE}-wal").stat().st_size == 0
    if not log:
        without_log(folder)
    with reader_of_another_user(folder) as ask:
        assert ask("read") == [{"a": "apple"}, []]
        with FolderWriter(folder, pending_limit=0) as writer:
            commit(writer, document("b", "banana"))
            assert ask("read") == [{"a": "apple", "b": "banana"}, []]
            writer.delete(["a"])
            assert ask("read") == [{"b": "banana"}, []]
        assert ask("read") == [{"b": "banana"}, []]
        with FolderWriter(folder) as writer:
            commit(writer, document("c", "cherry"))
            writer.compact()
        assert ask("read") == [{"b": "banana", "c": "cherry"}, []]
        assert texts(folder) == {"b": "banana", "c": "cherry"}


@pytest.mark.parametrize("log", [True, False])
def test_a_view_of_a_user_who_cannot_write_is_one_commit_or_an_error(open_to_all, log):
    many = {f"{i:03}": f"text {i}" for i in range(300)}
    folder = make_index(open_to_all / "index", [document(id_, many[id_]) for id_ in many])
    if not log:
        without_log(folder)
    with reader_of_another_user(folder) as ask:
        assert ask("begin") == "begun\n"
        with FolderWriter(folder) as writer:
            writer.delete(list(many)[1:])
            writer.compact()
        found = ask("end")
        if log:
            assert found[0] == many
        else:
            # Nothing locks the file that the writer changed.
            assert found.startswith("StorageError: ")
            assert "changed while it was read without locks" in found
        assert ask("read") == [{"000": "text 0"}, []]


def test_a_user_who_cannot_write_waits_for_a_writer_that_is_opening_the_index(open_to_all):
    """It has SQLite's shared memory open, and has not filled it yet."""
    folder = make_index(open_to_all / "index", [document("a", "apple")])

    def go_on():
        with FolderWriter(folder) as writer:
            writer.record("key", 1)

    with (
        reader_of_another_user(folder) as ask,
        (folder / f"{DATABASE_FILE}-shm").open("r+b") as memory,
    ):
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


def test_a_user_who_can_write_the_folder_alone_leaves_no_files_in_the_writers_way(open_to_all):
    folder = without_log(make_index(open_to_all / "index", [document("a", "apple")]))
    folder.chmod(0o777)
    before = sorted(folder.iterdir())
    with reader_of_another_user(folder) as ask:
        assert ask("read") == [{"a": "apple"}, []]
        assert sorted(folder.iterdir()) == before
        with FolderWriter(folder) as writer:
            commit(writer, document("b", "banana"))
        assert ask("read") == [{"a": "apple", "b": "banana"}, []]


UNREADABLE = (
    BECOME_ANOTHER_USER
    + """
for use in (texts, verify, FolderWriter):
    try:
        with use(folder):
            pass
    except RetrieverError as error:
        print(type(error).__name__, error)
"""
)


@pytest.mark.parametrize("name", [DATABASE_FILE, "."])
def test_an_index_that_may_not_be_read_is_not_called_damaged(open_to_all, name):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    folder = make_index(open_to_all / "index", [document("a", "apple")])
    (folder / name).chmod(0o600)
    outcome = in_child(UNREADABLE, folder)
    refusals = outcome.stdout.splitlines()
    assert len(refusals) == 3, outcome.stderr
    for refusal in refusals:
        assert refusal.startswith(f"StorageError {folder}")
        assert "permission denied" in refusal


@pytest.mark.parametrize("unreadable", ["-shm", "-wal"])
def test_the_log_of_a_writer_that_was_killed_is_read_or_the_error_says_who_can(
    open_to_all, unreadable
):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    folder = make_index(open_to_all / "index", [document("a", "apple")])

    def killed():
        with FolderWriter(folder) as writer:
            commit(writer, document("b", "banana"))
            os._exit(9)

    assert in_fork(killed) == 9
    with reader_of_another_user(folder) as ask:
        assert ask("read") == [{"a": "apple", "b": "banana"}, []]
    (folder / f"{DATABASE_FILE}{unreadable}").chmod(0o600)
    outcome = in_child(UNREADABLE, folder)
    assert f"StorageError {folder / DATABASE_FILE}-wal: a writer was killed" in outcome.stdout
    assert "as a user who can write" in outcome.stdout
    assert texts(folder) == {"a": "apple", "b": "banana"}


WITHOUT_SPACE = """
import resource, sys
from pathlib import Path
from index_samples import texts
from indexes.errors import StorageError
from indexes.folder.verify import verify

folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    print([texts(folder), verify(folder)])
except StorageError as error:
    print(error)
"""


def test_an_index_can_be_read_where_there_is_no_space_left(index):
    outcome = in_child(WITHOUT_SPACE, without_log(index))
    assert outcome.stdout == "[{'a': 'apple', 'b': 'banana'}, []]\n", outcome.stderr


def test_without_space_the_log_of_a_writer_that_was_killed_is_not_passed_over(index):
    def killed():
        with FolderWriter(index) as writer:
            commit(writer, document("c", "cherry"))
            os._exit(9)

    assert in_fork(killed) == 9
    (index / f"{DATABASE_FILE}-shm").unlink()
    outcome = in_child(WITHOUT_SPACE, index)
    assert outcome.stdout.startswith(f"{index / DATABASE_FILE}-wal: a writer was killed")
    assert "free some space" in outcome.stdout
    assert texts(index) == {"a": "apple", "b": "banana", "c": "cherry"}


@pytest.mark.parametrize("below", ["", "index"])
def test_a_file_where_the_index_is_to_be_made_is_in_the_way(tmp_path, below):
    (tmp_path / "notes.txt").write_text("mine")
    folder = tmp_path / "notes.txt" / below
    with (
        pytest.raises(StorageError, match=r"notes\.txt.*a file is in the way"),
        FolderWriter(folder, {}),
    ):
        pass
    assert (tmp_path / "notes.txt").read_text() == "mine"


WRITE = """
import sys
from pathlib import Path
from index_samples import commit, document
from indexes.folder.writer import FolderWriter

with FolderWriter(Path(sys.argv[1])) as writer:
    commit(writer, document("a", "avocado"), document("c", "cherry"))
    writer.delete(["b"])
"""


@pytest.mark.parametrize(
    "look",
    [
        is_index,
        verify,
        texts,
        lambda index: FolderWriter(index).__enter__().__exit__(None, None, None),
    ],
    ids=["is_index", "verify", "texts", "writer"],
)
def test_looking_at_an_index_leaves_the_locks_of_its_readers(index, look):
    """A process that opens and closes the file itself drops its own connections' locks."""
    reader = FolderReader(index)
    with reader.view():
        pass
    look(index)
    outcome = in_child(WRITE, index)
    assert outcome.returncode == 0, outcome.stderr
    # The other process was not the last to close the database, so the log is still there.
    assert (index / f"{DATABASE_FILE}-wal").exists()
    with reader.view() as view:
        assert view.count_documents() == 2
    reader.close()
