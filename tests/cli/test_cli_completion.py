"""Completion in real shells, from the scripts that click makes."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time
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


def needs(shell):
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


@pytest.fixture
def script(tmp_path):
    """Writes the script of a shell, as the documentation says."""

    def write(shell):
        done = subprocess.run(
            [BIN / "retriever"],
            env={**ENVIRONMENT, "_RETRIEVER_COMPLETE": f"{shell}_source"},
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        path = tmp_path / f"completion.{shell}"
        path.write_text(done.stdout)
        return path

    return write


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


@needs("bash")
def test_bash_completes_commands_options_and_files(script, tmp_path):
    (tmp_path / "corpus.jsonl").touch()
    code = f"""
        shopt -s progcomp; source {script("bash")}
        ask() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _retriever_completion \
            retriever; echo "${{COMPREPLY[*]}}"; }}
        ask retriever snap; ask retriever query --mod
    """
    done = subprocess.run(
        ["bash", "-c", code], env=ENVIRONMENT, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.splitlines() == ["snapshot", "--mode --model"], done.stderr


@needs("fish")
def test_fish_completes_commands_options_and_files(script, tmp_path):
    (tmp_path / "corpus.jsonl").touch()
    code = f"source {script('fish')}; " + "; ".join(
        f"complete -C '{line}'"
        for line in ("retriever snap", "retriever query --mod", "retriever index cor")
    )
    done = subprocess.run(
        ["fish", "--no-config", "-c", code],
        env={**ENVIRONMENT, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    found = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert found == ["snapshot", "--mode", "--model", "corpus.jsonl"], done.stderr


@needs("zsh")
def test_zsh_completes_commands_and_files(script, tmp_path):
    (tmp_path / "corpus.jsonl").touch()
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**ENVIRONMENT, "HOME": str(tmp_path)})
    try:
        source = (
            f"PS1=; autoload -Uz compinit; compinit -u -D; source {script('zsh')}; echo rea''dy\n"
        )
        assert "ready" in typed(terminal, source, "ready")
        assert "snapshot" in typed(terminal, "retriever snaps\t", "snapshot")
        assert "corpus.jsonl" in typed(terminal, "\x15retriever index cor\t", "corpus.jsonl")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def typed(terminal, keys, expected):
    """What a shell shows after some keys, until it shows what is expected."""
    os.write(terminal, keys.encode())
    shown, end = "", time.monotonic() + 20
    while expected not in shown and time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 4096).decode(errors="replace")
    return shown


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
