"""Commands that messages name can be pasted into a shell."""

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest

from retriever import shell


@pytest.fixture
def installed_from(monkeypatch):
    """Return a function that sets the content of the package's direct_url.json."""

    def install(text):
        package = SimpleNamespace(read_text=lambda name: text)
        monkeypatch.setattr(shell, "distribution", lambda name: package)
        monkeypatch.setattr(shell, "program", lambda name: name)

    return install


@pytest.mark.parametrize(
    ("origin", "arguments"),
    [
        (None, ["layer-retriever[multilingual]"]),
        ({"url": "https://x.org/w.whl", "archive_info": {}}, ["layer-retriever[multilingual]"]),
        ({"url": "file:///home/a%20b/clone", "dir_info": {}}, ["/home/a b/clone[multilingual]"]),
        (
            {"url": "file:///clone", "dir_info": {"editable": True}},
            ["-e", "/clone[multilingual]"],
        ),
        ([], ["layer-retriever[multilingual]"]),
        ({"url": 5, "dir_info": {}}, ["layer-retriever[multilingual]"]),
    ],
)
def test_install_command_names_the_clone_that_the_package_came_from(
    origin, arguments, installed_from
):
    installed_from(None if origin is None else json.dumps(origin))
    command = shlex.split(shell.install_command("multilingual"))
    assert command == ["pip", "install", *arguments]


def test_install_command_without_installed_package_names_the_published_one(monkeypatch):
    def fail(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(shell, "distribution", fail)
    assert shell.install_command("cpu").endswith(" install 'layer-retriever[cpu]'")


def test_program_off_the_path_is_called_by_its_path(tmp_path, monkeypatch):
    folder = tmp_path / "my env"
    folder.mkdir()
    for name in ("python", "pip"):
        (folder / name).touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert shlex.split(shell.program("pip")) == [str(folder / "pip")]
    assert shell.program("retriever") == "retriever"
    monkeypatch.setenv("PATH", str(folder))
    assert shell.program("pip") == "pip"
    other = tmp_path / "other"
    other.mkdir()
    (other / "pip").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{other}:{folder}")
    assert Path(shlex.split(shell.program("pip"))[0]) == folder / "pip"
