"""What an index costs as it grows, beside other libraries on the same passages.

    python benchmarks/scale/run.py --output DIR [--sizes 10000,100000] [--type auto] [--peers all]

Each step runs in a process of its own, on one thread where a query is timed unless said. DIR gets
`results.json`, `report.md` and `latency.png`; what was measured there before, at other sizes, stays
in the report. Peers that are not installed are left out, and said.
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
    arguments = parser.parse_args()
    peers = {"all": PEERS, "none": ()}.get(arguments.peers) or (
        () if arguments.peers == "none" else tuple(arguments.peers.split(";"))
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "results.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for size in map(int, arguments.sizes.split(",")):
        with tempfile.TemporaryDirectory(dir=arguments.work) as work:
            here = results.setdefault(str(size), {})
            here["environment"] = (
                f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
            )
            here["retriever"] = _ours(Path(work), size, arguments.type, arguments.queries)
            path.write_text(json.dumps(results, indent=1))
            for name in peers:
                here[name] = _step(
                    1, arguments.limit, "peers.py", name, work, size, arguments.queries
                )
                path.write_text(json.dumps(results, indent=1))
    (arguments.output / "report.md").write_text(table(results))
    figure(results, arguments.output / "latency.png")
    print(table(results))


def _ours(work: Path, size: int, index_type: str, count: int) -> dict[str, Any]:
    folder = work / "index"
    found = {"build": _step(None, None, "ours.py", "build", folder, size, index_type)}
    for threads in (1, 2):
        found[f"{threads} threads"] = _step(
            threads, None, "ours.py", "search", folder, threads, count
        )
    found["change"] = _step(None, None, "ours.py", "change", folder, size)
    found["changed"] = _step(1, None, "ours.py", "search", folder, 1, count)
    shutil.rmtree(folder)
    return found


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
