"""The cost of an index as it grows, compared with other libraries on the same passages.

    python benchmarks/scale/run.py --output DIR [--sizes 10000,100000] [--type auto] [--peers all]

Each step runs in its own process, and queries are timed on one thread unless the report says
otherwise. DIR gets `results.json`, `report.md` and `latency.png`; earlier measurements there at
other sizes stay in the report. Libraries that are not installed are skipped with a note. With
`--keep` the index stays in `--work`, and the next run with both skips the steps that
`results.json` holds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from report import figure, table

HERE = Path(__file__).resolve().parent
PEERS = (
    "tantivy",
    "bm25s",
    "bm25s, numba",
    "rank-bm25",
    "hnswlib",
    "usearch",
    "LanceDB",
    "txtai",
    "milvus-lite",
)


def main() -> None:
    """Measure at each size, then write table and figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--type", default="auto")
    parser.add_argument("--peers", default="all", help="all, none, or names with semicolons")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--limit", type=int, default=1800, help="seconds for a peer")
    parser.add_argument("--work", type=Path, help="where indexes are made; needs much space")
    parser.add_argument("--keep", action="store_true", help="leave them there and go on with them")
    arguments = parser.parse_args()
    peers = {"all": PEERS, "none": ()}.get(arguments.peers) or (
        () if arguments.peers == "none" else tuple(arguments.peers.split(";"))
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.work:
        arguments.work.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "results.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if arguments.keep and arguments.work is None:
        parser.error("--keep needs --work")
    for size in map(int, arguments.sizes.split(",")):
        with ExitStack() as stack:
            if arguments.keep:
                work = arguments.work / str(size)
                work.mkdir(parents=True, exist_ok=True)
            else:
                made = stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.work))
                work = Path(made)
            here = results.setdefault(str(size), {})
            here["environment"] = (
                f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
            )
            if not (work / "index").exists():
                here["retriever"] = {}
            for name, found in _ours(work / "index", size, arguments, here["retriever"]):
                here["retriever"][name] = found
                path.write_text(json.dumps(results, indent=1))
            if not arguments.keep:
                shutil.rmtree(work / "index")
            for name in peers:
                here[name] = _step(
                    1, arguments.limit, "peers.py", name, work, size, arguments.queries
                )
                path.write_text(json.dumps(results, indent=1))
    (arguments.output / "report.md").write_text(table(results))
    figure(results, arguments.output / "latency.png")
    print(table(results))


def _ours(
    folder: Path, size: int, asked: argparse.Namespace, done: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Each step that is not done: its name and what it found."""
    steps: list[tuple[str, int | None, tuple[object, ...]]] = [
        ("build", None, ("build", folder, size, asked.type)),
        ("1 threads", 1, ("search", folder, 1, asked.queries)),
        ("2 threads", 2, ("search", folder, 2, asked.queries)),
        ("change", None, ("change", folder, size)),
        ("changed", 1, ("search", folder, 1, asked.queries)),
    ]
    for name, threads, arguments in steps:
        if name not in done or "failed" in done[name]:
            yield name, _step(threads, None, "ours.py", *arguments)


def _step(threads: int | None, limit: float | None, script: str, *arguments: object) -> Any:
    """What a step prints, or why there is nothing."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    print(" ".join(command[1:]), file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {limit:,.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    main()
