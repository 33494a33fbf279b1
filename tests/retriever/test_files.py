"""Folders that appear complete or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from indexes.files import whole_folder
from retriever.errors import ConfigError, StorageError
from retriever.files import check_output


def contents_of(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def check(folder: Path) -> None:
    check_output(
        folder,
        "the folder of a thing",
        lambda names: None if "thing.json" in names else min(names),
    )


def test_a_folder_appears_and_is_replaced_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("made")
    for folder, name in ((tmp_path / "made", "a"), (tmp_path / "link", "b"), (Path("made"), "c")):
        check(folder)
        before = contents_of(folder) if folder.exists() else None
        with whole_folder(folder) as new:
            (new / name).write_text(name)
            (new / "thing.json").touch()
            assert (contents_of(folder) if folder.exists() else None) == before
            assert new.absolute().parent == tmp_path
        assert contents_of(tmp_path / "made") == {name: name, "thing.json": ""}
        assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "made"]
    assert Path("link").is_symlink()


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (OSError(errno.ENOSPC, "No space", "weights"), StorageError, "the disk is full"),
        (KeyboardInterrupt("now"), KeyboardInterrupt, "now"),
    ],
    ids=["full", "interrupted"],
)
def test_error_while_writing_folder_keeps_old_folder(tmp_path, error, expected, message):
    for names in ([], ["made"]):
        with pytest.raises(expected, match=message), whole_folder(tmp_path / "made") as new:  # noqa: PT012
            (new / "b").write_text("2")
            raise error
        assert [path.name for path in tmp_path.iterdir()] == names
        (tmp_path / "made").mkdir(exist_ok=True)
        assert contents_of(tmp_path / "made") == {}


@pytest.mark.parametrize("holds", [None, [], ["thing.json"], ["thing.json", "more"]])
def test_output_folder_may_be_new_empty_or_own(tmp_path: Path, holds: list[str] | None) -> None:
    folder = tmp_path / "made"
    if holds is not None:
        folder.mkdir()
        for name in holds:
            (folder / name).write_text("")
    check(folder)
    assert folder.exists() == (holds is not None)


def test_foreign_output_folder_is_refused(tmp_path: Path) -> None:
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
