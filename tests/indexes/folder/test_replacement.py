"""Putting one index folder in the place of another, and recovering from a crash meanwhile."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from index_samples import in_fork

import indexes.files
from indexes.errors import IndexLockedError
from indexes.files import aside_of, replace_folder, whole_folder
from indexes.folder.connection import foreign_files
from indexes.folder.lock import recover_replacement, remains, writer_lock


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
    """A system that cannot exchange two names in one step, for this reason."""
    library = SimpleNamespace(renameat2=lambda *_: -1)
    monkeypatch.setattr(indexes.files.ctypes, "CDLL", lambda *_, **__: library)
    monkeypatch.setattr(indexes.files.ctypes, "get_errno", lambda: code)


@pytest.mark.parametrize("code", [None, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP])
def test_a_replaced_folder_holds_the_new_content_and_leaves_nothing(
    tmp_path, current, new, monkeypatch, code
):
    # The user's own folders, and what an earlier replacement left.
    kept = [index_like(tmp_path / name, "backup") for name in ("i.old", "i.new", "i.bak")]
    index_like(aside_of(current), "older")
    if code is not None:
        refuse_exchange(monkeypatch, code)
    replace_folder(new, current)
    recover_replacement(current)
    assert content(current) == "new"
    assert [content(folder) for folder in kept] == ["backup"] * 3
    assert sorted(tmp_path.iterdir()) == sorted([current, *kept])


def test_an_exchange_refused_for_another_reason_changes_nothing(current, new, monkeypatch):
    refuse_exchange(monkeypatch, errno.EACCES)
    with pytest.raises(PermissionError):
        replace_folder(new, current)
    assert (content(current), content(new)) == ("old", "new")


def replaced_and_killed(new, current, renames):
    """Another process is killed after this number of renames, the second one a step before."""
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
    monkeypatch.setattr(indexes.files, "_exchange", lambda first, second: False)
    replaced_and_killed(new, current, renames)
    assert current.exists() == (renames != 1)
    for _ in range(2):
        recover_replacement(current)
        assert content(current) == survivor
        assert not aside_of(current).exists()


def test_an_exchange_cut_short_leaves_one_whole_folder_under_the_name(current, new):
    if not indexes.files._exchange(new, current):
        pytest.skip("the file system cannot exchange two names")
    assert (content(current), content(new)) == ("new", "old")
    replaced_and_killed(new, current, 0)
    assert (content(current), content(new)) == ("old", "new")


def test_recovery_leaves_alone_what_is_no_index_or_is_being_replaced(tmp_path):
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


def test_what_killed_processes_left_beside_an_index_is_named(tmp_path, current):
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
