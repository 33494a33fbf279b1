"""What is completed; the scripts for shells are click's."""

from __future__ import annotations

import pytest
from click.shell_completion import BashComplete

from cli.main import cli
from cli.options import BUNDLED
from retriever.encoders import model_folders


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ins", [("plain", "inspect")]),
        ("inspect wo", [("plain", "words")]),
        ("query --mode b", [("plain", "bm25")]),
        ("index --model all", [("plain", "all-MiniLM-L6-v2")]),
        ("index --model ./my", [("file", "./my")]),
        ("index corp", [("file", "corp")]),
        ("import corp", [("file", "corp")]),
        ("query -i ind", [("file", "ind")]),
        ("query --queries q", [("file", "q")]),
        ("query --set rrf", [("plain", "rrf-k=")]),
    ],
)
def test_commands_values_and_paths_are_completed(line, expected):
    *words, last = line.split(" ")
    completer = BashComplete(cli, {}, "retriever", "_RETRIEVER_COMPLETE")
    found = completer.get_completions(words, last)
    assert [(item.type, item.value) for item in found] == expected
    assert set(BUNDLED) == set(model_folders.BUNDLED)
