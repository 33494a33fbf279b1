"""Install libraries into new environments, one after the other: seconds, megabytes, files.

    python benchmarks/install.py [--dist FOLDER] [--systems NAME ...] [--passages N]

`make wheels` makes what `--dist` (default: dist) holds. A library that asks for torch gets the
CPU build of constraints.txt, in the same command. Packages come from the index that pip is set up
for, without its cache. For retriever the row also has the time from typing the command to the first
answer over N passages of `$RETRIEVER_DATA/oewn_sentences`, in an environment that did not exist.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = next(
    line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:7] == "torch=="
)
OURS = "retriever"
# What a user installs to embed texts and search them, by name in the table.
SYSTEMS = {
    OURS: ["layer-retriever[cpu,offline]"],
    "sentence-transformers, FAISS, bm25s": [TORCH, "sentence-transformers", "faiss-cpu", "bm25s"],
    "txtai": [TORCH, "txtai"],
    "chromadb": ["chromadb"],
    "fastembed": ["fastembed"],
    "lancedb, fastembed": ["lancedb", "fastembed"],
    "semble": ["semble"],
}


def run(*command: str | Path, cwd: Path) -> str:
    """The output of a command; its errors end the benchmark."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{command}: {done.stderr[-2000:]}")
    return done.stdout


def size(folder: Path) -> tuple[float, int]:
    """Megabytes (2^20 bytes of disk) and the number of files."""
    files = [file.lstat() for file in folder.rglob("*") if not file.is_dir()]
    return sum(file.st_blocks * 512 for file in files) / 2**20, len(files)


def measure(name: str, dist: Path, corpus: Path, folder: Path) -> list[str]:
    """A row of the table."""
    started = time.perf_counter()
    venv.create(folder / "env", with_pip=True)
    programs = folder / "env/bin"
    pip: list[str | Path] = [programs / "python", "-m", "pip", "install", "-q", "--no-cache-dir"]
    links: list[str | Path] = ["--find-links", dist] if name == OURS else []
    run(*pip, *links, *SYSTEMS[name], cwd=folder)
    installed = time.perf_counter() - started
    answered = ""
    if name == OURS:
        run(programs / "retriever", "index", corpus, "--quiet", cwd=folder)
        answer = run(programs / "retriever", "query", "running water in a house", cwd=folder)
        assert answer.strip()
        answered = f"{time.perf_counter() - started:.0f}"
    megabytes, files = size(folder / "env")
    return [name, f"{installed:.0f}", answered, f"{megabytes:.0f}", f"{files:,}"]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="Install libraries into new environments.")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--passages", type=int, default=1_000)
    options = parser.parse_args()
    data = Path(os.environ["RETRIEVER_DATA"], "oewn_sentences/corpus.jsonl")
    print("| | seconds to install | to the first answer | MB | files |\n|---|---|---|---|---|")
    for name in options.systems:
        with tempfile.TemporaryDirectory() as place, data.open(encoding="utf-8") as lines:
            corpus = Path(place, "corpus.jsonl")
            corpus.write_text("".join(itertools.islice(lines, options.passages)), encoding="utf-8")
            row = measure(name, options.dist.resolve(), corpus, Path(place))
        print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
