"""The first change of the contributing page can be made, and gives the output that it shows."""

import re
from pathlib import Path

import pytest

from cli.guesses import COMMAND_GUESSES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
DIFFS = re.findall(r"^```diff\n--- a/(.*)\n\+\+\+ b/.*\n((?:.*\n)*?)```", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("path", "diff"), DIFFS, ids=[path for path, _ in DIFFS])
def test_lines_around_the_edit_are_neighbors_in_the_file(path, diff):
    before, edit, after = diff.splitlines()
    assert edit.startswith("+")
    lines = (ROOT / path).read_text().splitlines()
    start = lines.index(before[1:])
    neighbors = [line for line in lines[start + 1 : start + 3] if line != edit[1:]]
    assert neighbors[0] == after[1:]


def test_edits_of_the_page_change_the_test_and_then_the_code():
    assert [path for path, _ in DIFFS] == ["tests/cli/test_cli_guesses.py", "cli/guesses.py"]


def test_commands_of_the_first_change_print_what_the_page_shows(retriever, monkeypatch):
    shown = re.findall(r"^\$ \.venv/bin/retriever (.*)\n(.*\n)", PAGE, re.MULTILINE)
    assert [arguments for arguments, _ in shown] == ["optimize", "peek", "peek"]
    _, code_diff = DIFFS[1]
    word, command = re.findall(r"\w+", code_diff.splitlines()[1])
    # A reader may have made the change.
    monkeypatch.delitem(COMMAND_GUESSES, word, raising=False)
    assert [retriever(arguments).err for arguments, _ in shown[:2]] == [out for _, out in shown[:2]]
    monkeypatch.setitem(COMMAND_GUESSES, word, command)
    assert retriever("peek").err == shown[2][1]
