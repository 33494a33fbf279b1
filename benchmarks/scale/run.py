"""The cost of an index as it grows, compared with other libraries on the same passages.

    python benchmarks/scale/run.py --output DIR [--sizes 10000,100000] [--type auto] [--peers all]

Each step runs in its own process, and queries are timed on one thread unless the report says
otherwise. DIR gets `results.json` and `report.md`; earlier measurements there at
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
from collections.abc import Callable, Iterator
from contextlib import ExitStack
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
    parser.add_argument("--keep", action="store_true", help="leave them there and go on with them")
    arguments = parser.parse_args()
    if arguments.keep and arguments.work is None:
        parser.error("--keep needs --work")
    known: dict[str, tuple[str, ...]] = {"all": PEERS, "none": ()}
    peers = known.get(arguments.peers, tuple(arguments.peers.split(";")))
    for folder in (arguments.output, arguments.work):
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "results.json"
    results: Results = json.loads(path.read_text()) if path.exists() else {}
    for size in map(int, arguments.sizes.split(",")):
        with ExitStack() as stack:
            if arguments.keep:
                work = arguments.work / str(size)
                work.mkdir(exist_ok=True)
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
                asked = ("peers.py", name, work, size, arguments.queries)
                here[name] = _step(1, arguments.limit, *asked)
                path.write_text(json.dumps(results, indent=1))
    (arguments.output / "report.md").write_text(table(results))
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
    def of(*path: str, form: Callable[[Any], str] = str) -> Callable[[str], str]:
        def value(size: str) -> str:
            found = ours[size]
            for name in path:
                if not isinstance(found, dict) or name not in found:
                    return ""
                found = found[name]
            return form(found)

        return value

    rows: list[tuple[str, Callable[[str], str]]] = [
        ("structure", of("1 threads", "structure", form=", ".join)),
        ("adding, s", of("build", "add_s", form=_seconds)),
        ("structure, s", of("build", "structure_s", form=_seconds)),
        ("size", of("build", "bytes", form=_bytes)),
        ("peak of own memory, building", of("build", "peak", form=_bytes)),
        ("opening, ms", of("1 threads", "open_ms", form=_milliseconds)),
        ("own memory, open", of("1 threads", "memory_open", "anonymous", form=_bytes)),
        ("own memory, at the end", of("1 threads", "memory_end", "anonymous", form=_bytes)),
        ("with mapped files, at the end", of("1 threads", "memory_end", "resident", form=_bytes)),
        ("first BM25 query, ms", of("1 threads", "first_bm25_ms", form=_milliseconds)),
        *(
            (name, of("1 threads", name, form=lambda value: f"{value:.3f}"))
            for name in ("recall@10", *(f"recall@10, {share}" for share in SHARES))
        ),
    ]
    for threads in ("1 threads", "2 threads"):
        label = threads.replace("1 threads", "1 thread")
        for mode in ("dense", "bm25"):
            ranking = f"{mode} ranking"
            rows.append((f"{ranking}, {label}, ms", of(threads, ranking, form=_both)))
            again = of(threads, f"{ranking} again", form=_both)
            rows.append((f"{ranking} again, {label}, ms", again))
        for mode in MODES:
            rows.append((f"{mode}, {label}, ms", of(threads, mode, form=_both)))
    for new in ("", "new, "):
        for mode in MODES:
            for share in SHARES:
                allowed = f"{share} allowed by a new filter" if new else f"{share} allowed"
                value = of("1 threads", f"{mode}, {new}{share}", form=_both)
                rows.append((f"{mode}, {allowed}, ms", value))
    rows += [
        ("adding 1,000, ms", of("change", "add_1000_ms", form=_milliseconds)),
        ("deleting 1,000, ms", of("change", "delete_1000_ms", form=_milliseconds)),
        ("dense after both, ms", of("changed", "dense", form=_both)),
        ("bm25 after both, ms", of("changed", "bm25", form=_both)),
    ]
    yield "| cost | " + " | ".join(f"{int(size):,}" for size in ours) + " |"
    yield "|---" * (len(ours) + 1) + "|"
    for name, value in rows:
        yield f"| {name} | " + " | ".join(map(value, ours)) + " |"


def _peers(results: Results) -> Iterator[str]:
    yield "| | build, s | size | open, ms | dense, ms | recall@10 | BM25, ms | first BM25, ms |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, measured in results.items():
        if name == "environment":
            continue
        found = _as_peer(measured) if name == "retriever" else measured
        if "failed" in found:
            yield f"| {name} | {found['failed']} | | | | | | |"
            continue
        cells = [
            _cell(found, "build_s", _seconds),
            _cell(found, "bytes", _bytes),
            _cell(found, "open_ms", _milliseconds),
            _cell(found, "dense", _both),
            _cell(found, "recall@10", lambda value: f"{value:.3f}"),
            _cell(found, "bm25", _both),
            _cell(found, "first_bm25_ms", _milliseconds),
        ]
        yield f"| {name} | " + " | ".join(cells) + " |"


def _as_peer(found: Results) -> Results:
    """Ranking alone, which is what is measured of the peers."""
    search, build = found["1 threads"], found["build"]
    return {
        **{name: search[name] for name in ("open_ms", "first_bm25_ms", "recall@10")},
        "dense": search["dense ranking"],
        "bm25": search["bm25 ranking"],
        "build_s": build["add_s"] + build["structure_s"],
        "bytes": build["bytes"],
    }


def _cell(found: Results, name: str, form: Callable[[Any], str]) -> str:
    return form(found[name]) if name in found else ""


def _seconds(value: float) -> str:
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def _milliseconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _both(value: dict[str, float]) -> str:
    return f"{_milliseconds(value['p50'])} / {_milliseconds(value['p95'])}"


def _bytes(value: float) -> str:
    return f"{value / 1e6:,.0f} MB" if value < 1e9 else f"{value / 1e9:,.1f} GB"


if __name__ == "__main__":
    main()
