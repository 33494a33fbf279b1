"""Files that survive a crash, and clear error messages."""

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest

import indexes.files
from indexes import platforms
from indexes.errors import DamagedIndexError, IndexLockedError, StorageError
from indexes.files import (
    GrowingArray,
    abandoned,
    fsync_path,
    save_array,
    storage_errors,
    unique,
    whole_files,
    whole_folder,
    write_lines,
)
from tests.indexes.index_samples import in_fork


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission denied"),
        (errno.EPERM, "permission denied"),
        (errno.EFBIG, "too large"),
        (errno.EEXIST, "a file is in the way"),
        (errno.ENOTDIR, "a file is in the way"),
        (errno.EIO, "the disk reports an error"),
    ],
)
def test_operating_system_errors_become_storage_errors_with_file_and_reason(code, words):
    with pytest.raises(StorageError, match=words) as caught, storage_errors(Path("index")):
        raise OSError(code, os.strerror(code), "index/file.npy")
    assert str(caught.value).startswith("index/file.npy: ")
    assert "\n" not in str(caught.value)


def test_error_without_file_name_names_the_folder():
    with pytest.raises(StorageError, match=r"^i: the disk is full"), storage_errors(Path("i")):
        raise OSError(errno.ENOSPC, "full")
    with pytest.raises(FileNotFoundError), storage_errors(Path("index")):
        raise FileNotFoundError(errno.ENOENT, "gone", "file")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, StorageError),
        (sqlite3.SQLITE_READONLY, StorageError),
        (sqlite3.SQLITE_READONLY_DBMOVED, StorageError),
        (sqlite3.SQLITE_CANTOPEN, StorageError),
        (sqlite3.SQLITE_IOERR_WRITE, StorageError),
        (sqlite3.SQLITE_PROTOCOL, IndexLockedError),
        (sqlite3.SQLITE_CORRUPT, DamagedIndexError),
        (sqlite3.SQLITE_NOTADB, DamagedIndexError),
    ],
)
def test_sqlite_errors_become_storage_errors_in_one_line(code, kind):
    error = sqlite3.OperationalError("reason")
    error.sqlite_errorcode = code
    with pytest.raises(kind, match="index") as caught, storage_errors(Path("index")):
        raise error
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [sqlite3.IntegrityError, sqlite3.ProgrammingError])
def test_other_sqlite_errors_pass_unchanged(kind):
    with pytest.raises(kind), storage_errors(Path("index")):
        raise kind("twice")


@pytest.mark.parametrize(
    "statement", ["SELECT CAST(x'ff' AS TEXT)", "SELECT 1 FROM lost", "SELECT \u00fc"]
)
def test_invalid_text_and_schema_are_damage(statement):
    connection = sqlite3.connect(":memory:")
    with (
        pytest.raises(DamagedIndexError, match=r"i/index\.sqlite") as caught,
        storage_errors(Path("i")),
    ):
        connection.execute(statement).fetchall()
    connection.close()
    assert "\n" not in str(caught.value)


def test_write_lines_replaces_a_file_atomically(tmp_path, monkeypatch):
    path = tmp_path / "a.run"
    flushed = []
    monkeypatch.setattr(
        "indexes.files.fsync_path", lambda file_path: flushed.append(file_path.parent)
    )
    write_lines(path, ["one\n", "\udcff\r\n"], "the run")
    assert path.read_bytes() == b"one\n\\udcff\r\n"
    assert flushed == [tmp_path, tmp_path.parent]

    def broken():
        yield "two\n"
        raise ValueError("no more lines")

    with pytest.raises(ValueError, match="no more lines"):
        write_lines(path, broken(), "the run")
    assert path.read_bytes().startswith(b"one")
    assert [file_path.name for file_path in tmp_path.iterdir()] == ["a.run"]


@pytest.mark.parametrize("place", ["no/where/a.run", "folder", "file/a.run"])
def test_a_text_file_that_cannot_be_written_is_one_clear_line(tmp_path, place):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=f"{place}: cannot write the run") as caught:
        write_lines(tmp_path / place, ["one\n"], "the run")
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


def test_a_folder_that_holds_something_is_replaced_only_if_that_is_allowed(tmp_path):
    folder = tmp_path / "made"
    for replace in (False, True, False):
        if replace or not folder.exists():
            with whole_folder(folder, replace=replace) as new:
                (new / "inner").mkdir()
                (new / "inner" / "a").write_text(str(replace))
        else:
            with pytest.raises(OSError, match="not empty"), whole_folder(folder, replace=replace):
                pass
    assert (folder / "inner" / "a").read_text() == "True"
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_folder_whose_name_cannot_be_flushed_is_not_made(tmp_path, monkeypatch):
    def refused(path):
        if path == tmp_path and (tmp_path / "made").exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(indexes.files, "fsync_path", refused)
    with (
        pytest.raises(StorageError, match="the disk reports an error"),
        whole_folder(tmp_path / "made", replace=False),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_flushing_leaves_no_file_open(tmp_path):
    before = len(os.listdir("/dev/fd"))
    for _ in range(10):
        fsync_path(tmp_path)
    assert len(os.listdir("/dev/fd")) == before


@contextmanager
def made_file(path):
    with whole_files(path) as (new,):
        new.write_text("content")
        yield new


@contextmanager
def made_folder(path):
    with whole_folder(path) as new:
        (new / "inner").mkdir()
        (new / "inner" / "a").write_text("content")
        yield new


Making = Callable[[Path], AbstractContextManager[Path]]


def killed(making, path):
    """Let another process write `path` and kill it before the file is whole."""

    def make():
        with making(path):
            os._exit(9)

    assert in_fork(make) == 9


@pytest.mark.parametrize("making", [made_file, made_folder])
def test_next_write_removes_temporary_files_of_a_killed_process(tmp_path, making):
    killed(making, tmp_path / "made")
    killed(making, tmp_path / "other")
    left = list(abandoned(tmp_path))
    assert sorted(left) == sorted(tmp_path.iterdir())
    assert len(left) == 2
    with making(tmp_path / "made") as new:
        (leftovers,) = abandoned(tmp_path)
        assert leftovers.name.startswith(".other.")
        assert sorted(tmp_path.iterdir()) == sorted([new, leftovers])
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "made", leftovers])


@pytest.mark.parametrize("making", [made_file, made_folder])
def test_temporary_file_of_a_running_process_is_kept(tmp_path, making):
    with making(tmp_path / "made") as first:
        assert list(abandoned(tmp_path)) == []
        assert in_fork(lambda: making(tmp_path / "made").__enter__()) == 0
        with making(tmp_path / "made"):
            assert first.exists()


def test_only_names_of_new_files_count_as_abandoned(tmp_path):
    other_names = [".a.1.tmp", "a.1-0123abcd.tmp", ".a.1-0123abcd", ".a.x-0123abcd.tmp"]
    for name in other_names:
        (tmp_path / name).write_text("")
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / ".a.1-00000000.tmp").symlink_to(outside)
    os.mkfifo(tmp_path / ".a.1-00000001.tmp")
    write_lines(tmp_path / "a", ["one\n"], "the run")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted([*other_names, "a", "outside", ".a.1-00000000.tmp"])
    assert list(abandoned(tmp_path / "none")) == []


@pytest.mark.parametrize("making", [made_file, made_folder])
@pytest.mark.parametrize("removes", [False, True])
def test_new_file_locked_by_another_process_is_refused(tmp_path, making, removes, monkeypatch):
    """The other process comes before the lock is taken, or removes the file in between."""
    lock = platforms.lock_path

    def overtaken(path):
        if not removes:
            raise BlockingIOError
        lock_file = lock(path)
        path.rmdir() if path.is_dir() else path.unlink()
        return lock_file

    monkeypatch.setattr(platforms, "lock_path", overtaken)
    with pytest.raises(StorageError, match="in the same moment"), making(tmp_path / "made"):
        pytest.fail("the block ran")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("parts", [[], [0], [3], [2, 0, 5], [1] * 1200])
@pytest.mark.parametrize("columns", [(), (3,)])
@pytest.mark.parametrize("dtype", ["<f4", "<i8"])
def test_a_saved_array_is_read_back_by_numpy_in_parts_or_at_once(tmp_path, parts, columns, dtype):
    whole = np.arange(sum(parts) * (columns or (1,))[0], dtype=dtype).reshape(-1, *columns)
    with GrowingArray(tmp_path / "parts.npy", whole.dtype, columns) as growing:
        for stop, rows in zip(np.cumsum(parts), parts, strict=True):
            growing.append(whole[stop - rows : stop])
    save_array(tmp_path / "whole.npy", whole)
    assert (tmp_path / "parts.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    array = np.load(tmp_path / "whole.npy", allow_pickle=False)
    assert (array.dtype, array.shape) == (whole.dtype, whole.shape)
    np.testing.assert_array_equal(array, whole)


@pytest.mark.parametrize("values", [[], [3], [2, 2, 1], [[5, 1], [5, -1], [9, 1]]])
def test_unique_values_equal_numpy(values):
    array = np.array(values, np.int64)
    np.testing.assert_array_equal(unique(array), np.unique(array))
