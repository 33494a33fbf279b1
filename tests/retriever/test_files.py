"""Folders that appear complete or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from indexes.files import whole_folder
from retriever.errors import ConfigError, StorageError
from retriever.files import check_output


def held(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def check(folder: Path) -> None:
    check_output(
        folder,
        "the folder of a thing",
        lambda names: None if "thing.json" in names else min(names),
    )


def test_a_folder_appears_at_the_end_and_not_before(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with whole_folder(folder) as new:
        (new / "a").write_text("1")
        assert not folder.exists()
        assert new.parent == tmp_path
    assert held(folder) == {"a": "1"}
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    for name in ("a", "b"):
        with whole_folder(folder) as new:
            (new / name).write_text(name)
    assert held(folder) == {"b": "b"}
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there_and_nothing_else(
    tmp_path: Path, error: type[BaseException], before: bool
) -> None:
    folder = tmp_path / "made"
    if before:
        folder.mkdir()
        (folder / "a").write_text("1")

    def fail() -> None:
        with whole_folder(folder) as new:
            (new / "b").write_text("2")
            raise error

    with pytest.raises(error):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == (["made"] if before else [])
    assert not before or held(folder) == {"a": "1"}


def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "made"

    def fail() -> None:
        with whole_folder(folder) as new:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(new / "weights"))

    with pytest.raises(StorageError, match="the disk is full") as caught:
        fail()
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with whole_folder(tmp_path / "link") as new:
        (new / "a").write_text("1")
    assert (tmp_path / "link").is_symlink()
    assert held(tmp_path / "real") == {"a": "1"}


@pytest.mark.parametrize("holds", [None, [], ["thing.json"], ["thing.json", "more"]])
def test_new_and_empty_folders_and_ours_will_do(tmp_path: Path, holds: list[str] | None) -> None:
    folder = tmp_path / "made"
    if holds is not None:
        folder.mkdir()
        for name in holds:
            (folder / name).write_text("")
    check(folder)
    assert folder.exists() == (holds is not None)


def test_a_relative_name_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(Path("made"))
    with whole_folder(Path("made")) as new:
        (new / "a").write_text("1")
    assert held(tmp_path / "made") == {"a": "1"}


def test_what_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "b.txt").write_text("Dear")
    (tmp_path / "letters" / "a.txt").write_text("Dear")
    (tmp_path / "file").write_text("mine")
    for name, message in (
        ("letters", "or the folder of a thing, found a.txt in it; change --output"),
        ("file", "expected a folder, found a file; change --output"),
        ("nowhere/made", "expected a name in a folder that exists; make the folder or change"),
        ("file/made", "expected a name in a folder that exists"),
    ):
        with pytest.raises(ConfigError) as caught:
            check(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path / name}: ")
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "letters"]
