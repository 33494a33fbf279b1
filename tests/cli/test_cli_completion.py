"""Completion in real shells, from the scripts that click makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from cli.main import cli
from cli.options import BUNDLED
from retriever.encoders import model_folders

BIN = Path(sys.executable).parent
ENVIRONMENT = {
    "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "TERM": "dumb",
    "LC_ALL": "C.UTF-8",
}

pytestmark = pytest.mark.skipif(
    not (BIN / "retriever").exists(), reason="the command is not installed beside Python"
)


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


def test_bash_completes_commands_and_options(tmp_path):
    """By the script that the documentation tells to load."""
    code = """
        shopt -s progcomp; source <(_RETRIEVER_COMPLETE=bash_source retriever)
        ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _retriever_completion \
            retriever; echo "${COMPREPLY[*]}"; }
        ask retriever snap; ask retriever query --mod
    """
    done = subprocess.run(
        ["bash", "-c", code], env=ENVIRONMENT, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.splitlines() == ["snapshot", "--mode --model"], done.stderr
