"""The cost of an index as it grows, compared with other libraries on the same passages.

    python benchmarks/scale/run.py --output DIR [--sizes 10000,100000] [--type auto] [--peers all]

Each step runs in its own process, and queries are timed on one thread. DIR gets `results.json` and
`report.md`; earlier measurements there at other sizes stay in the report. Libraries that are not
installed are skipped with a note.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = ("tantivy", "bm25s", "hnswlib", "usearch", "LanceDB", "txtai")
MODES, SHARES = ("dense", "bm25", "hybrid"), ("50%", "5%", "0.1%")
Results = dict[str, Any]


def main() -> None:
    """Measure at each size, then write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--type", default="auto")
    parser.add_argument("--peers", default="all", help="all, none, or names with semicolons")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--limit", type=int, default=1800, help="seconds for a peer")
    parser.add_argument("--work", type=Path, help="where indexes are made; needs much space")
    arguments = parser.parse_args()
    peer_lists: dict[str, tuple[str, ...]] = {"all": PEERS, "none": ()}
    peers = peer_lists.get(arguments.peers, tuple(arguments.peers.split(";")))
    for folder in (arguments.output, arguments.work):
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "results.json"
    results: Results = json.loads(path.read_text()) if path.exists() else {}
    for size in map(int, arguments.sizes.split(",")):
        with tempfile.TemporaryDirectory(dir=arguments.work) as work_folder:
            work = Path(work_folder)
            here: Results = {}
            results[str(size)] = here
            here["environment"] = (
                f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
            )
            here["retriever"] = {}
            for name, measurements in _ours(work / "index", size, arguments):
                here["retriever"][name] = measurements
                path.write_text(json.dumps(results, indent=1))
            shutil.rmtree(work / "index")
            for name in peers:
                command = ("peers.py", name, work, size, arguments.queries)
                here[name] = _step(1, arguments.limit, *command)
                path.write_text(json.dumps(results, indent=1))
    (arguments.output / "report.md").write_text(table(results))
    print(table(results))


def _ours(folder: Path, size: int, arguments: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """The name of each step and what it found."""
    search = ("ours.py", "search", folder, arguments.queries)
    yield "build", _step(None, None, "ours.py", "build", folder, size, arguments.type)
    yield "search", _step(1, None, *search)
    yield "change", _step(None, None, "ours.py", "change", folder, size)
    yield "changed", _step(1, None, *search)


def _step(threads: int | None, limit: float | None, script: str, *arguments: object) -> Any:
    """Return the output of a step, or the reason why there is none."""
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


def table(results: Results) -> str:
    """Markdown: our own costs against size, then every library at each size."""
    sizes = sorted(results, key=int)
    ours = {size: results[size]["retriever"] for size in sizes}
    lines = [f"{results[sizes[-1]]['environment']}.", "", *_costs(ours), ""]
    for size in sizes:
        if len(results[size]) <= 2:
            continue
        lines += [f"### {int(size):,} passages beside other libraries, one thread", ""]
        lines += [*_peers(results[size]), ""]
    return "\n".join(lines)


def _costs(ours: Results) -> Iterator[str]:
    yield "| cost | " + " | ".join(f"{int(size):,}" for size in ours) + " |"
    yield "|---" * (len(ours) + 1) + "|"
    for name, path, form in _COSTS:
        cells = [_cell(results, path, form) for results in ours.values()]
        yield f"| {name} | " + " | ".join(cells) + " |"
    columns: dict[str, Callable[[Any], str]] = {"recall@10": _three, **dict.fromkeys(MODES, _both)}
    for size, results in ours.items():
        yield f"\n| filter, {int(size):,} passages | " + " | ".join(columns) + " |"
        yield "|---" * (len(columns) + 1) + "|"
        for share in ("", *SHARES, *(f"new, {share}" for share in SHARES)):
            name = f", {share}" if share else ""
            cells = [
                _cell(results, f"search/{phase}{name}", form) for phase, form in columns.items()
            ]
            yield f"| {share or 'none'} | " + " | ".join(cells) + " |"


def _peers(results: Results) -> Iterator[str]:
    yield "| | build, s | size | open, ms | dense, ms | recall@10 | BM25, ms | first BM25, ms |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, measured in results.items():
        if name == "environment":
            continue
        own_results = _as_peer(measured) if name == "retriever" else measured
        if "failed" in own_results:
            yield f"| {name} | {own_results['failed']} | | | | | | |"
            continue
        cells = [
            _cell(own_results, "build_s", _seconds),
            _cell(own_results, "bytes", _bytes),
            _cell(own_results, "open_ms", _milliseconds),
            _cell(own_results, "dense", _both),
            _cell(own_results, "recall@10", _three),
            _cell(own_results, "bm25", _both),
            _cell(own_results, "first_bm25_ms", _milliseconds),
        ]
        yield f"| {name} | " + " | ".join(cells) + " |"


def _as_peer(results: Results) -> Results:
    """Ranking alone, which is what is measured of the peers."""
    search, build = results["search"], results["build"]
    return {
        **{name: search[name] for name in ("open_ms", "first_bm25_ms", "recall@10")},
        "dense": search["dense ranking"],
        "bm25": search["bm25 ranking"],
        "build_s": build["add_s"] + build["structure_s"],
        "bytes": build["bytes"],
    }


def _cell(results: Results, path: str, form: Callable[[Any], str]) -> str:
    """Format the value at a path of the results, or return an empty cell."""
    value: Any = results
    for name in path.split("/"):
        if name not in value:
            return ""
        value = value[name]
    return form(value)


def _seconds(value: float) -> str:
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def _milliseconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _both(value: dict[str, float]) -> str:
    return f"{_milliseconds(value['p50'])} / {_milliseconds(value['p95'])}"


def _three(value: float) -> str:
    return f"{value:.3f}"


def _bytes(value: float) -> str:
    return f"{value / 1e6:,.0f} MB" if value < 1e9 else f"{value / 1e9:,.1f} GB"


_COSTS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("structure", "search/structure", ", ".join),
    ("adding, s", "build/add_s", _seconds),
    ("structure, s", "build/structure_s", _seconds),
    ("size", "build/bytes", _bytes),
    ("peak of own memory, building", "build/peak", _bytes),
    ("opening, ms", "search/open_ms", _milliseconds),
    ("own memory, open", "search/memory_open/anonymous", _bytes),
    ("own memory, at the end", "search/memory_end/anonymous", _bytes),
    ("with mapped files, at the end", "search/memory_end/resident", _bytes),
    ("first BM25 query, ms", "search/first_bm25_ms", _milliseconds),
    ("dense ranking, ms", "search/dense ranking", _both),
    ("dense ranking again, ms", "search/dense ranking again", _both),
    ("bm25 ranking, ms", "search/bm25 ranking", _both),
    ("bm25 ranking again, ms", "search/bm25 ranking again", _both),
    ("adding 1,000, ms", "change/add_1000_ms", _milliseconds),
    ("deleting 1,000, ms", "change/delete_1000_ms", _milliseconds),
    ("dense after both, ms", "changed/dense", _both),
    ("bm25 after both, ms", "changed/bm25", _both),
)


if __name__ == "__main__":
    main()
