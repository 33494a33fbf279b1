"""Files that survive a crash, and clear words for refusals."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexes.errors import DamagedIndexError, StorageError
from indexes.files.arrays import save_array
from indexes.files.atomic import fsync_path, fsync_tree
from indexes.files.faults import storage_errors


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
def test_what_the_system_refuses_names_the_file_and_the_reason(code: int, words: str) -> None:
    with pytest.raises(StorageError, match=words) as caught, storage_errors(Path("index")):
        raise OSError(code, os.strerror(code), "index/file.npy")
    assert str(caught.value).startswith("index/file.npy: ")
    assert "\n" not in str(caught.value)


def test_a_refusal_without_a_file_name_names_the_folder() -> None:
    with pytest.raises(StorageError, match=r"^i: the disk is full"), storage_errors(Path("i")):
        raise OSError(errno.ENOSPC, "full")


def test_other_errors_of_the_system_stay_as_they_are() -> None:
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
        (sqlite3.SQLITE_CORRUPT, DamagedIndexError),
        (sqlite3.SQLITE_NOTADB, DamagedIndexError),
    ],
)
def test_what_sqlite_refuses_becomes_one_clear_line(code: int, kind: type[Exception]) -> None:
    error = sqlite3.OperationalError("reason")
    error.sqlite_errorcode = code
    with pytest.raises(kind, match="index") as caught, storage_errors(Path("index")):
        raise error
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [sqlite3.IntegrityError, sqlite3.ProgrammingError])
def test_other_errors_of_sqlite_stay_as_they_are(kind: type[Exception]) -> None:
    with pytest.raises(kind), storage_errors(Path("index")):
        raise kind("twice")


@pytest.mark.parametrize(
    "statement", ["SELECT CAST(x'ff' AS TEXT)", "SELECT 1 FROM lost", "SELECT \u00fc"]
)
def test_text_and_schemas_that_nobody_wrote_are_damage(statement: str) -> None:
    connection = sqlite3.connect(":memory:")
    with (
        pytest.raises(DamagedIndexError, match=r"i/index\.sqlite") as caught,
        storage_errors(Path("i")),
    ):
        connection.execute(statement).fetchall()
    connection.close()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.empty((0, 4), np.float32),
        np.arange(3, dtype=np.int64),
        np.empty(0, np.uint8),
    ],
)
def test_a_saved_array_is_read_back_by_numpy(tmp_path: Path, array: Any) -> None:
    save_array(tmp_path / "a.npy", array)
    found = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    np.testing.assert_array_equal(found, array)


def test_a_tree_is_flushed_file_by_file_then_its_folder_then_the_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "segments"
    folder.mkdir()
    for name in "ab":
        (folder / name).write_text(name)
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda fd: flushed.append(os.readlink(f"/proc/self/fd/{fd}")))
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("the system does not tell which file a descriptor is")
    fsync_tree(folder)
    assert flushed == [str(path) for path in (folder / "a", folder / "b", folder, tmp_path)]


def test_flushing_leaves_no_file_open(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    for _ in range(10):
        fsync_path(tmp_path)
    assert len(os.listdir("/dev/fd")) == before
