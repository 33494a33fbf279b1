"""Completion in real shells, from the scripts that click makes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from cli.main import cli
from cli.options import BUNDLED
from retriever.encoders import model_folders as finding

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


def completed(line):
    """Type and value of each completion of a line."""
    *words, last = line.split(" ")[1:]
    completer = BashComplete(cli, {}, "retriever", "_RETRIEVER_COMPLETE")
    return [(item.type, item.value) for item in completer.get_completions(words, last)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("retriever ins", [("plain", "inspect")]),
        ("retriever inspect wo", [("plain", "words")]),
        ("retriever query --mode b", [("plain", "bm25")]),
        ("retriever index --model all", [("plain", "all-MiniLM-L6-v2")]),
        ("retriever index --model ./my", [("file", "./my")]),
        ("retriever index corp", [("file", "corp")]),
        ("retriever import corp", [("file", "corp")]),
        ("retriever query -i ind", [("file", "ind")]),
        ("retriever query --queries q", [("file", "q")]),
    ],
)
def test_commands_values_and_paths_are_completed(line, expected):
    assert completed(line) == expected


def test_the_names_of_models_are_those_that_exist():
    assert set(BUNDLED) == set(finding.BUNDLED)


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


def test_completing_imports_nothing_heavy():
    code = (
        "import json, sys\n"
        "from click.shell_completion import BashComplete\n"
        "from cli.main import cli\n"
        "completer = BashComplete(cli, {}, 'retriever', '_RETRIEVER_COMPLETE')\n"
        "for words, last in (([], ''), (['query'], '--'), (['index', '--model'], 'all'),\n"
        "                    (['eval'], ''), (['train', 'encoder'], '--')):\n"
        "    assert completer.get_completions(words, last), words\n"
        "heavy = ('torch', 'transformers', 'faiss', 'numpy', 'scipy', 'pyarrow', 'mcp')\n"
        "print(json.dumps([name for name in heavy if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
