"""One writer at a time, a lock that no dead process keeps, and folders that replace another."""

import ctypes
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

import indexes.files
from indexes import open_store, platforms
from indexes.errors import IndexLockedError
from indexes.files import aside_of, replace_folder, whole_folder
from indexes.folder.connection import foreign_files
from indexes.folder.lock import LOCK_FILE, recover_replacement, remains, writer_lock
from indexes.folder.writer import FolderWriter
from tests.indexes.index_samples import SETTINGS, commit, document, in_fork, make_index, texts

HOLD = """
import sys, time
from pathlib import Path
from indexes.folder.lock import writer_lock
with writer_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def held_elsewhere(folder):
    """Let another process hold the lock of `folder`."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_lock_held_by_another_process_is_refused_with_its_pid_until_it_dies(tmp_path):
    folder = make_index(tmp_path / "index", [document("a", "apple")])
    with held_elsewhere(folder) as process:
        holder = f"process {process.pid} on {socket.gethostname()}"
        for writer in (writer_lock(folder), FolderWriter(folder), FolderWriter(folder, SETTINGS)):
            with pytest.raises(IndexLockedError, match=rf"^{folder}: .*{holder} .* since "), writer:
                pass
        assert texts(folder) == {"a": "apple"}
        process.send_signal(signal.SIGKILL)
        process.wait()
        with writer_lock(folder):
            assert str(os.getpid()) in (folder / LOCK_FILE).read_text()


def test_two_writers_of_one_process_exclude_each_other(tmp_path):
    folder = make_index(tmp_path / "index", [document("a", "apple")])
    with FolderWriter(folder) as first:
        with pytest.raises(IndexLockedError, match=f"process {os.getpid()}"), FolderWriter(folder):
            pass
        commit(first, document("b", "banana"))
    with pytest.raises(ZeroDivisionError), FolderWriter(folder):
        raise ZeroDivisionError
    with FolderWriter(folder) as second:
        commit(second, document("c", "cherry"))
    assert set(texts(folder)) == {"a", "b", "c"}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": 1}', b"\xff\xfe"])
def test_lock_holder_without_signature_is_reported_as_just_started(tmp_path, content):
    with writer_lock(tmp_path):
        (tmp_path / LOCK_FILE).write_bytes(content)
        with (
            pytest.raises(IndexLockedError, match="a process that has just started"),
            writer_lock(tmp_path),
        ):
            pass


def test_lock_of_a_folder_that_is_replaced_during_locking_is_taken_again(tmp_path, monkeypatch):
    folder, other = tmp_path / "index", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    opened, swaps = os.open, []

    def open_then_replace(*arguments, **options):
        descriptor = opened(*arguments, **options)
        if not swaps:
            swaps.append(folder.rename(tmp_path / "old"))
            other.rename(folder)
        return descriptor

    monkeypatch.setattr(os, "open", open_then_replace)
    with writer_lock(folder):
        monkeypatch.undo()
        with pytest.raises(IndexLockedError), writer_lock(folder):
            pass
        with writer_lock(tmp_path / "old"):
            pass


def index_like(folder, content):
    folder.mkdir()
    (folder / "index.sqlite").write_text(content)
    return folder


def content(folder):
    return (folder / "index.sqlite").read_text()


@pytest.fixture
def current(tmp_path):
    return index_like(tmp_path / "i", "old")


@pytest.fixture
def new(tmp_path):
    return index_like(tmp_path / "next", "new")


def refuse_exchange(monkeypatch, code):
    """Let the exchange of two names in one step fail with this error."""
    library = SimpleNamespace(renameat2=lambda *_: -1)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)
    monkeypatch.setattr(ctypes, "get_errno", lambda: code)


@pytest.mark.parametrize("code", [None, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP])
def test_a_replaced_folder_holds_the_new_content_and_leaves_nothing(
    tmp_path, current, new, monkeypatch, code
):
    # The user's own folders, and what an earlier replacement left.
    other_indexes = [index_like(tmp_path / name, "backup") for name in ("i.old", "i.new", "i.bak")]
    index_like(aside_of(current), "older")
    if code is not None:
        refuse_exchange(monkeypatch, code)
    replace_folder(new, current)
    recover_replacement(current)
    assert content(current) == "new"
    assert [content(folder) for folder in other_indexes] == ["backup"] * 3
    assert sorted(tmp_path.iterdir()) == sorted([current, *other_indexes])


def test_failed_folder_exchange_changes_nothing(current, new, monkeypatch):
    refuse_exchange(monkeypatch, errno.EACCES)
    with pytest.raises(PermissionError):
        replace_folder(new, current)
    assert (content(current), content(new)) == ("old", "new")


def replaced_and_killed(new, current, renames):
    """Replace a folder in a process that is killed after this number of renames."""
    rename, done = os.rename, []

    def count(*arguments):
        if len(done) == renames:
            os._exit(9)
        rename(*arguments)
        done.append(None)

    def remove(folder, ignore_errors=False):
        if renames == 2 and folder.exists():
            os._exit(9)

    def crash():
        os.rename, indexes.files.shutil.rmtree = count, remove
        replace_folder(new, current)

    assert in_fork(crash) == 9


@pytest.mark.parametrize(("renames", "survivor"), [(0, "old"), (1, "old"), (2, "new")])
def test_a_replacement_cut_short_is_undone_or_finished(
    current, new, monkeypatch, renames, survivor
):
    monkeypatch.setattr(platforms, "exchange", lambda first, second: False)
    replaced_and_killed(new, current, renames)
    assert current.exists() == (renames != 1)
    for _ in range(2):
        recover_replacement(current)
        assert content(current) == survivor
        assert not aside_of(current).exists()


def test_an_exchange_cut_short_leaves_one_whole_folder_under_the_name(current, new):
    if not platforms.exchange(new, current):
        pytest.skip("the file system cannot exchange two names")
    assert (content(current), content(new)) == ("new", "old")
    replaced_and_killed(new, current, 0)
    assert (content(current), content(new)) == ("old", "new")


def test_recovery_skips_other_folders_and_running_replacements(tmp_path):
    recover_replacement(Path("/"))
    # A writer may remove what a reader is just looking at.
    assert foreign_files(tmp_path / "gone") == []
    aside = aside_of(tmp_path / "i")
    aside.mkdir()
    (aside / "notes.txt").write_text("mine")
    recover_replacement(tmp_path / "i")
    assert [path.name for path in aside.iterdir()] == ["notes.txt"]
    index_like(aside_of(tmp_path / "other"), "old")
    with writer_lock(aside_of(tmp_path / "other")), pytest.raises(IndexLockedError):
        recover_replacement(tmp_path / "other")
    assert content(aside_of(tmp_path / "other")) == "old"


def test_leftovers_of_killed_processes_beside_an_index_are_listed(tmp_path, current):
    def killed():
        with whole_folder(tmp_path / "snapshot"):
            os._exit(9)

    assert in_fork(killed) == 9
    ((path, what),) = remains(current).items()
    assert path.name.startswith(".snapshot.")
    assert "interrupted" in what
    with whole_folder(tmp_path / "snapshot"):
        assert remains(current) == {}
    assert remains(current) == {}


DENIED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
LOCKLESS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
static int denied(int command) {
    return command == F_SETLK || command == F_SETLKW || command == F_GETLK
        || (36 <= command && command <= 38);
}
#define WRAPPER(NAME) int NAME(int file, int command, ...) { \\
    va_list list; va_start(list, command); void *value = va_arg(list, void *); va_end(list); \\
    if (denied(command)) { errno = atoi(getenv("DENIED")); return -1; } \\
    int (*real)(int, int, ...) = dlsym(RTLD_NEXT, #NAME); return real(file, command, value); }
WRAPPER(fcntl)
WRAPPER(fcntl64)
int flock(int file, int operation) { errno = atoi(getenv("DENIED")); return -1; }
"""


@pytest.fixture(scope="module")
def lockless(tmp_path_factory):
    """The environment of a process whose file systems grant no locks, by error number."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler on Linux")
    folder = tmp_path_factory.mktemp("lockless")
    (folder / "lockless.c").write_text(LOCKLESS)
    library = folder / "lockless.so"
    build = [compiler, "-shared", "-fPIC", "-o", library, folder / "lockless.c", "-ldl"]
    subprocess.run(build, check=True)
    return lambda number: {**os.environ, "LD_PRELOAD": str(library), "DENIED": str(number)}


@pytest.mark.parametrize("number", DENIED)
def test_without_locks_a_writer_names_the_folder_and_the_remedy(tmp_path, lockless, number):
    script = "import sys; from indexes import open_store; open_store(sys.argv[1]).create({})"
    command = [sys.executable, "-c", script, str(tmp_path / "index")]
    done = subprocess.run(command, env=lockless(number), capture_output=True, text=True)
    message = done.stderr.strip().splitlines()[-1]
    assert f"StorageError: {tmp_path / 'index'}: its file system has no locks" in message
    assert "choose a folder on a local disk" in message
    # Nothing is left that would be in the way.
    assert not (tmp_path / "index").exists()


def test_without_locks_a_reader_says_so_at_once(tmp_path, lockless):
    open_store(tmp_path / "index").create({"encoder": {"dimensions": 8}, "structures": {}})
    script = "import sys; from indexes import open_store; open_store(sys.argv[1]).reader()"
    command = [sys.executable, "-c", script, str(tmp_path / "index")]
    done = subprocess.run(
        command, env=lockless(errno.ENOLCK), capture_output=True, text=True, timeout=20
    )
    assert "its file system has no locks" in done.stderr.strip().splitlines()[-1]
