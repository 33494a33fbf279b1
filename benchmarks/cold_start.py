"""One command in a new process: time to its output, processor time and peak memory.

    python benchmarks/cold_start.py [--documents N] [--turns N]

An index of short sentences is made once; then each command runs in turn, so that files are in the
page cache. sentence-transformers encodes one query and nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_QUERY = "the study of fossils and of former life"
_PEER = """
from pathlib import Path
import layer_retriever_minilm
from sentence_transformers import SentenceTransformer
folder = Path(layer_retriever_minilm.__file__).parent / "model"
print(SentenceTransformer(str(folder), device="cpu").encode([{query!r}]).shape)
"""


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    data = os.environ.get("RETRIEVER_DATA")
    default = Path(data) / "oewn_sentences/corpus.jsonl" if data else None
    parser.add_argument("--corpus", type=Path, default=default, required=default is None)
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        corpus, short = folder / "corpus.jsonl", folder / "few.jsonl"
        with arguments.corpus.open(encoding="utf-8") as lines:
            head = list(itertools.islice(lines, arguments.documents))
        corpus.write_text("".join(head), encoding="utf-8")
        short.write_text("".join(head[:20]), encoding="utf-8")
        tool = [sys.executable, "-m", "cli.main"]
        subprocess.run([*tool, "index", str(corpus), "-i", str(folder / "index"), "-q"], check=True)
        query = [*tool, "query", _QUERY, "-i", str(folder / "index"), "-k", "3"]
        commands = {
            "query, bm25": [*query, "--mode", "bm25"],
            "query, hybrid": query,
            "query, dense": [*query, "--mode", "dense"],
            "query, hybrid, by openvino": [*query, "--model", "::backend=openvino"],
            "query, hybrid, by torch": [*query, "--model", "::backend=torch"],
            "encode 20 texts": [*tool, "encode", str(short), "-o", str(folder / "few.npy"), "-q"],
            "index 20 texts": [
                *(*tool, "index", str(short), "-i", str(folder / "new"), "-q", "--recreate"),
            ],
            "sentence-transformers, one text": [sys.executable, "-c", _PEER.format(query=_QUERY)],
        }
        seconds: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
        for turn in range(arguments.turns + 1):
            for name, command in commands.items():
                duration = run(command)
                # The first turn fills the page cache.
                if turn:
                    seconds[name].append(duration)
    print("| command | seconds, median (range) | processor seconds | peak memory, MB |")
    print("|---|---|---|---|")
    for name, measured in seconds.items():
        wall, processor, memory = zip(*measured, strict=True)
        spread = f"{statistics.median(wall):.2f} ({min(wall):.2f} to {max(wall):.2f})"
        print(f"| {name} | {spread} | {statistics.median(processor):.2f} | {max(memory):.0f} |")


def run(command: list[str]) -> tuple[float, float, float]:
    """Seconds to the end of a command, processor seconds, and megabytes at its peak."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    elapsed = time.perf_counter() - started
    return elapsed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
