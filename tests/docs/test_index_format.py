"""The page on the index folder: its examples run, and its tables are those of an index."""

import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from indexes.folder.connection import FORMAT_VERSION
from retriever import Index

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/index-format.md").read_text()


@pytest.fixture
def folder(tmp_path, monkeypatch, fake_encoder):
    monkeypatch.chdir(tmp_path)
    with Index.create("my.index") as index:
        index.add(
            [
                {"id": "old", "text": "ships sail", "year": 1999},
                {"id": "new", "title": "Trains", "text": "trains run", "year": 2021},
            ]
        )
    return tmp_path / "my.index"


def examples(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_sqlite_utils_commands_of_the_page_read_the_view(folder):
    commands = [line for block in examples("") for line in block.splitlines()]
    commands = [line for line in commands if line.startswith("sqlite-utils ")]
    printed = [
        subprocess.run(
            [sys.executable, "-m", "sqlite_utils", *shlex.split(line)[1:]],
            cwd=folder.parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for line in commands
    ]
    assert len(printed) == 2
    assert all(word in printed[0] for word in ("old", "new", "ships sail", '\\"year\\":1999'))
    assert "2021" in printed[1]
    assert "1999" not in printed[1]


def test_the_python_example_of_the_view_runs(folder, capsys):
    (example,) = examples("python")
    names = {}
    exec(compile(example, "index-format.md", "exec"), names)
    names["database"].close()
    assert capsys.readouterr().out == "new Trains 1\n"


def test_the_page_describes_every_table_of_an_index(folder):
    section = PAGE.partition("\n## Tables\n")[2].partition("\n## ")[0]
    described = set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))
    with closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        assert described == {name for (name,) in rows}


def test_the_page_names_the_current_format_version():
    assert f"It is {FORMAT_VERSION}." in PAGE
    assert re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE) == [
        str(number) for number in range(1, FORMAT_VERSION + 1)
    ]
