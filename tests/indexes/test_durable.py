"""Files that survive a crash, the replacement of a folder, and clear words for refusals."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_samples import in_fork

import indexes.durable
from indexes.durable import (
    fsync_path,
    fsync_tree,
    recover_replacement,
    replace_folder,
    save_array,
    storage_errors,
)
from indexes.errors import DamagedIndexError, StorageError


def index_like(folder: Path, content: str) -> Path:
    folder.mkdir()
    (folder / "index.sqlite").write_text(content)
    return folder


def content(folder: Path) -> str:
    return (folder / "index.sqlite").read_text()


@pytest.fixture
def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that cannot exchange two names in one step."""
    monkeypatch.setattr(indexes.durable, "_exchange", lambda first, second: False)


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


def test_other_errors_of_sqlite_stay_as_they_are() -> None:
    with pytest.raises(sqlite3.IntegrityError), storage_errors(Path("index")):
        raise sqlite3.IntegrityError("twice")


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


def test_a_replaced_folder_holds_the_new_content_and_leaves_nothing(tmp_path: Path) -> None:
    current, new = index_like(tmp_path / "i", "old"), index_like(tmp_path / "i.new", "new")
    replace_folder(new, current)
    assert content(current) == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


@pytest.mark.usefixtures("without_exchange")
def test_a_folder_is_replaced_where_names_cannot_be_exchanged(tmp_path: Path) -> None:
    current, new = index_like(tmp_path / "i", "old"), index_like(tmp_path / "i.new", "new")
    replace_folder(new, current)
    assert content(current) == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


def test_the_remains_of_an_earlier_replacement_do_not_stop_the_next(tmp_path: Path) -> None:
    current, new = index_like(tmp_path / "i", "old"), index_like(tmp_path / "i.new", "new")
    index_like(tmp_path / "i.old", "older")
    replace_folder(new, current)
    assert content(current) == "new"


def dies_after(renames: int) -> Callable[..., None]:
    """An os.rename that ends the process after so many renames."""
    rename, done = os.rename, []

    def count(*arguments: Any, **options: Any) -> None:
        if len(done) == renames:
            os._exit(9)
        rename(*arguments, **options)
        done.append(None)

    return count


@pytest.mark.usefixtures("without_exchange")
@pytest.mark.parametrize(("renames", "survivor"), [(0, "old"), (1, "old"), (2, "new")])
def test_a_replacement_cut_short_is_undone_or_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int, survivor: str
) -> None:
    current, new = index_like(tmp_path / "i", "old"), index_like(tmp_path / "i.new", "new")

    def crash() -> None:
        monkeypatch.setattr(os, "rename", dies_after(renames))
        monkeypatch.setattr(indexes.durable.shutil, "rmtree", removal_that_dies(renames))
        replace_folder(new, current)

    assert in_fork(crash) == 9
    assert current.exists() == (renames != 1)
    recover_replacement(current)
    assert content(current) == survivor
    assert not (tmp_path / "i.old").exists()
    recover_replacement(current)
    assert content(current) == survivor


def removal_that_dies(renames: int) -> Callable[..., None]:
    """A shutil.rmtree that ends the process where two renames were to be the last step."""

    def remove(folder: Path, ignore_errors: bool = False) -> None:
        if renames == 2 and not ignore_errors:
            os._exit(9)

    return remove


def test_an_exchange_cut_short_leaves_one_whole_folder_under_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current, new = index_like(tmp_path / "i", "old"), index_like(tmp_path / "i.new", "new")
    if not indexes.durable._exchange(new, current):
        pytest.skip("the file system cannot exchange two names")
    assert (content(current), content(new)) == ("new", "old")

    def crash() -> None:
        monkeypatch.setattr(os, "rename", dies_after(0))
        replace_folder(new, current)

    assert in_fork(crash) == 9
    assert (content(current), content(new)) == ("old", "new")


def test_recovery_with_nothing_to_recover_does_nothing(tmp_path: Path) -> None:
    recover_replacement(tmp_path / "none")
    current = index_like(tmp_path / "i", "here")
    recover_replacement(current)
    assert content(current) == "here"
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


def test_recovery_leaves_a_folder_alone_that_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "i.old").mkdir()
    (tmp_path / "i.old" / "notes.txt").write_text("mine")
    recover_replacement(tmp_path / "i")
    assert (tmp_path / "i.old" / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "i").exists()


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.ENOTSUP])
def test_a_file_system_that_cannot_exchange_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(indexes.durable.ctypes, "CDLL", lambda *_, **__: refusing_library())
    monkeypatch.setattr(indexes.durable.ctypes, "get_errno", lambda: code)
    current, new = index_like(tmp_path / "i", "old"), index_like(tmp_path / "i.new", "new")
    replace_folder(new, current)
    assert content(current) == "new"


def test_an_exchange_refused_for_another_reason_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes.durable.ctypes, "CDLL", lambda *_, **__: refusing_library())
    monkeypatch.setattr(indexes.durable.ctypes, "get_errno", lambda: errno.EACCES)
    current, new = index_like(tmp_path / "i", "old"), index_like(tmp_path / "i.new", "new")
    with pytest.raises(PermissionError):
        replace_folder(new, current)
    assert (content(current), content(new)) == ("old", "new")


def refusing_library() -> Any:
    class Library:
        @staticmethod
        def renameat2(*_: Any) -> int:
            return -1

    return Library()
