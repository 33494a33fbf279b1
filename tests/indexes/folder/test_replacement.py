"""Putting one index folder in the place of another, and recovering from a crash meanwhile."""

import errno
import os
from pathlib import Path

import pytest
from index_samples import in_fork

import indexes.files
from indexes.errors import IndexLockedError
from indexes.files import aside_of, replace_folder, whole_folder
from indexes.folder.lock import recover_replacement, remains, writer_lock


def index_like(folder, content):
    folder.mkdir()
    (folder / "index.sqlite").write_text(content)
    return folder


def content(folder):
    return (folder / "index.sqlite").read_text()


@pytest.fixture
def without_exchange(monkeypatch):
    """A system that cannot exchange two names in one step."""
    monkeypatch.setattr(indexes.files, "_exchange", lambda first, second: False)


def test_a_replaced_folder_holds_the_new_content_and_leaves_nothing(tmp_path):
    current, new = index_like(tmp_path / "i", "old"), index_like(tmp_path / "i.new", "new")
    replace_folder(new, current)
    assert content(current) == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


def test_the_remains_of_an_earlier_replacement_do_not_stop_the_next(tmp_path):
    current, new = index_like(tmp_path / "i", "old"), index_like(tmp_path / "i.new", "new")
    index_like(aside_of(tmp_path / "i"), "older")
    replace_folder(new, current)
    assert content(current) == "new"


def dies_after(renames):
    """An os.rename that ends the process after this number of renames."""
    rename, done = os.rename, []

    def count(*arguments, **options):
        if len(done) == renames:
            os._exit(9)
        rename(*arguments, **options)
        done.append(None)

    return count


@pytest.mark.usefixtures("without_exchange")
@pytest.mark.parametrize(("renames", "survivor"), [(0, "old"), (1, "old"), (2, "new")])
def test_a_replacement_cut_short_is_undone_or_finished(tmp_path, monkeypatch, renames, survivor):
    current, new = index_like(tmp_path / "i", "old"), index_like(tmp_path / "i.new", "new")

    def crash():
        monkeypatch.setattr(os, "rename", dies_after(renames))
        monkeypatch.setattr(indexes.files.shutil, "rmtree", removal_that_dies(renames))
        replace_folder(new, current)

    assert in_fork(crash) == 9
    assert current.exists() == (renames != 1)
    recover_replacement(current)
    assert content(current) == survivor
    assert not aside_of(tmp_path / "i").exists()
    recover_replacement(current)
    assert content(current) == survivor


def removal_that_dies(renames):
    """A shutil.rmtree that ends the process where two renames were to be the last step."""

    def remove(folder, ignore_errors=False):
        if renames == 2 and folder.exists():
            os._exit(9)

    return remove


def test_an_exchange_cut_short_leaves_one_whole_folder_under_the_name(tmp_path, monkeypatch):
    current, new = index_like(tmp_path / "i", "old"), index_like(tmp_path / "i.new", "new")
    if not indexes.files._exchange(new, current):
        pytest.skip("the file system cannot exchange two names")
    assert (content(current), content(new)) == ("new", "old")

    def crash():
        monkeypatch.setattr(os, "rename", dies_after(0))
        replace_folder(new, current)

    assert in_fork(crash) == 9
    assert (content(current), content(new)) == ("old", "new")


def test_recovery_leaves_a_folder_alone_that_is_no_index(tmp_path):
    aside_of(tmp_path / "i").mkdir()
    (aside_of(tmp_path / "i") / "notes.txt").write_text("mine")
    recover_replacement(tmp_path / "i")
    assert (aside_of(tmp_path / "i") / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "i").exists()


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.ENOTSUP])
def test_a_file_system_that_cannot_exchange_is_no_error(tmp_path, monkeypatch, code):
    monkeypatch.setattr(indexes.files.ctypes, "CDLL", lambda *_, **__: refusing_library())
    monkeypatch.setattr(indexes.files.ctypes, "get_errno", lambda: code)
    current, new = index_like(tmp_path / "i", "old"), index_like(tmp_path / "i.new", "new")
    replace_folder(new, current)
    assert content(current) == "new"


def test_an_exchange_refused_for_another_reason_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(indexes.files.ctypes, "CDLL", lambda *_, **__: refusing_library())
    monkeypatch.setattr(indexes.files.ctypes, "get_errno", lambda: errno.EACCES)
    current, new = index_like(tmp_path / "i", "old"), index_like(tmp_path / "i.new", "new")
    with pytest.raises(PermissionError):
        replace_folder(new, current)
    assert (content(current), content(new)) == ("old", "new")


def refusing_library():
    class Library:
        @staticmethod
        def renameat2(*_):
            return -1

    return Library()


def test_recovery_keeps_its_hands_off_a_replacement_under_way(tmp_path):
    aside = index_like(aside_of(tmp_path / "i"), "old")
    with writer_lock(aside), pytest.raises(IndexLockedError):
        recover_replacement(tmp_path / "i")
    assert content(aside) == "old"


def test_beside_the_root_of_a_disk_nothing_is_recovered():
    recover_replacement(Path("/"))


def test_an_index_that_a_user_calls_old_or_new_is_none_of_our_business(tmp_path):
    current, new = index_like(tmp_path / "i", "old"), index_like(tmp_path / "next", "new")
    kept = [index_like(tmp_path / name, "backup") for name in ("i.old", "i.new", "i.bak")]
    replace_folder(new, current)
    recover_replacement(current)
    assert [content(folder) for folder in kept] == ["backup"] * 3


def test_what_killed_processes_left_beside_an_index_is_named(tmp_path):
    current = index_like(tmp_path / "i", "sound")

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
