"""Runs the sessions of pages and writes what they print: `python docs/run_sessions.py PAGE...`.

A block of the language `console` is a session: commands after `$ `, each with its output, standard
output and standard error together. The sessions of a page run in order in one folder, which holds
`home`, the folder of `examples/sample_folder.py`. A line `...` stands for any lines. An output that
still holds is left as it is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Scores, seconds, sizes, names of caches and days differ between machines.
VARIABLE = [
    (re.compile(r"\b\d\.\d{4,}\b"), "SCORE"),
    (re.compile(r"\b\d+\.\d+ s\b"), "SECONDS"),
    (re.compile(r"\b[\d.]+ ?[kM]?B\b"), "SIZE"),
    (re.compile(r"-[0-9a-f]{8}\.index"), "-HASH.index"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:]{8}Z"), "NOW"),
]


class Shell:
    """A folder with the sample folder in it, and commands that run there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(folder / ".cache"),
            "COLUMNS": "100",
            "PYTHONUNBUFFERED": "1",
        }
        for name in ("RETRIEVER_CACHE", "RETRIEVER_INDEX", "RETRIEVER_TOKEN", "RETRIEVER_OCR"):
            self._environment.pop(name, None)
        self.run(f"python {ROOT}/examples/sample_folder.py home")

    def run(self, command: str) -> list[str]:
        """Return the lines that a command prints, with `~` for the folder."""
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        text = done.stdout.replace(str(self._folder), "~")
        return [line.rstrip() for line in text.splitlines()]


def steps(block: str) -> list[tuple[str, list[str]]]:
    """Return each command of a session with the lines that it shows."""
    pairs = []
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = step.partition("\n")
        pairs.append((command, output.splitlines()))
    return pairs


def is_shown(expected: Sequence[str], printed: Sequence[str]) -> bool:
    """Return whether printed lines are as expected, in which `...` stands for any lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else f"{re.escape(_normal_line(line))}\n"
        for line in expected
    )
    text = "".join(f"{_normal_line(line)}\n" for line in printed)
    return re.fullmatch(pattern, text) is not None


def _normal_line(line: str) -> str:
    for pattern, name in VARIABLE:
        line = pattern.sub(name, line)
    return line.rstrip()


def written_page(text: str, shell: Shell) -> str:
    """Return a page with the output of its sessions as it is now."""

    def written_block(match: re.Match[str]) -> str:
        lines = []
        for command, expected in steps(match[1]):
            printed = shell.run(command)
            lines += [f"$ {command}", *(expected if is_shown(expected, printed) else printed)]
        return "\n".join(["```console", *lines, "```"])

    return BLOCK.sub(written_block, text)


def main() -> None:
    """Write the pages that are named."""
    for name in sys.argv[1:]:
        page = Path(name)
        with tempfile.TemporaryDirectory() as folder:
            text = page.read_text("utf-8")
            page.write_text(written_page(text, Shell(Path(folder))), "utf-8")


if __name__ == "__main__":
    main()
