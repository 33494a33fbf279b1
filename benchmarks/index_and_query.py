"""Index and query a corpus by one command, beside other libraries on the same machine.

    python benchmarks/index_and_query.py [--limit N] [--rounds N] [--systems NAME ...]
        [--python SYSTEM=PYTHON ...] [--corpus FILE] [--queries N] [--output REPORT.md]

Each system indexes the corpus for hybrid search in a process of its own, start included, and in
turns; then each answers the same queries in a process of its own, also in turns. `--python` names
the Python of an environment that holds a system (a key of `peer.HYBRID`) whose requirements exclude
ours. Systems that are not installed are left out with a note. The default corpus is
`$RETRIEVER_DATA/oewn_sentences/corpus.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from peer import BM25, HYBRID

HERE = Path(__file__).resolve().parent
RETRIEVER = str(Path(sys.executable).with_name("retriever"))
# By name in the table, the options of `retriever index`.
OURS = {
    "retriever": [],
    "retriever in bfloat16": ["--dtype", "bfloat16"],
    "retriever in int8": ["--dtype", "int8"],
}
BASELINE = "sentence-transformers + flat FAISS + bm25s"
# Queries of a process that are not in its latencies: some libraries load or compile meanwhile.
WARM_UP = 50
PEERS = [name for name in HYBRID if name != "retriever"]


def main() -> None:
    """Run every part and print the report."""
    arguments = _arguments()
    pythons = dict(given.split("=", 1) for given in arguments.python)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        corpus = _limited(arguments.corpus, arguments.limit, work)
        texts = [_text(json.loads(line)) for line in corpus.open(encoding="utf-8")]
        (work / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
        queries = _queries(texts, arguments.queries)
        (work / "queries.json").write_text(json.dumps(queries), encoding="utf-8")
        ours = [name for name in OURS if name in arguments.systems]
        systems = [*ours, *_prepared(work, pythons, arguments.systems)]
        built = _built(systems, corpus, work, pythons, arguments.rounds)
        asked = _asked(systems, work, pythons, arguments.rounds)
        lines = [
            f"{len(texts):,} documents; {platform.processor() or platform.machine()}, "
            f"{os.cpu_count()} cores; Python {platform.python_version()}",
            "",
            *_section("Indexing by one command and hybrid queries", _whole(built, asked, work)),
            *_section("Warm queries by part, milliseconds", _parts(work, queries)),
            *_section("BM25 queries, milliseconds, including the first", _bm25(work, pythons)),
        ]
    report = "\n".join(lines)
    print(report)
    if arguments.output:
        arguments.output.write_text(report + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = os.environ.get("RETRIEVER_DATA")
    default = Path(data) / "oewn_sentences/corpus.jsonl" if data else None
    parser.add_argument("--corpus", type=Path, default=default, required=default is None)
    parser.add_argument("--limit", type=int, help="use the first N documents only")
    parser.add_argument("--queries", type=int, default=250, help=f"more than {WARM_UP}")
    parser.add_argument("--rounds", type=int, default=3, help="turns of indexing and of queries")
    names = [*OURS, *PEERS]
    parser.add_argument("--systems", nargs="+", choices=names, default=names)
    parser.add_argument("--python", nargs="+", default=[], metavar="SYSTEM=PYTHON")
    parser.add_argument("--output", type=Path, help="write the report here too")
    arguments = parser.parse_args()
    if arguments.queries <= WARM_UP:
        parser.error(f"--queries: expected more than {WARM_UP}, found {arguments.queries}")
    return arguments


def _limited(corpus: Path, limit: int | None, work: Path) -> Path:
    if limit is None:
        return corpus
    target = work / "corpus.jsonl"
    with corpus.open(encoding="utf-8") as source, target.open("w", encoding="utf-8") as copy:
        copy.writelines(line for _, line in zip(range(limit), source, strict=False))
    return target


def _text(document: dict[str, Any]) -> str:
    return f"{document['title']} {document['text']}" if document.get("title") else document["text"]


def _queries(texts: Sequence[str], count: int) -> list[str]:
    """Queries of up to eight words, each from a document of the corpus."""
    chosen = random.Random(0).sample(list(texts), min(count, len(texts)))
    return [" ".join(text.split()[-8:]) for text in chosen]


def _section(title: str, rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield f"### {title}"
    yield ""
    yield "| " + " | ".join(rows[0]) + " |"
    yield "|" + "---|" * len(rows[0])
    for row in rows[1:]:
        yield "| " + " | ".join(row) + " |"
    yield ""


def _peer(step: str, name: str, work: Path, pythons: dict[str, str]) -> list[str]:
    return [pythons.get(name, sys.executable), str(HERE / "peer.py"), step, name, str(work)]


def _prepared(work: Path, pythons: dict[str, str], chosen: Sequence[str]) -> Iterator[str]:
    """The chosen peers that are installed, with what each makes once for a model."""
    for name in (name for name in PEERS if name in chosen):
        command = _peer("prepare", name, work, pythons)
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"{name}: left out: {reason}", file=sys.stderr)
        else:
            yield name


def _built(
    systems: Sequence[str], corpus: Path, work: Path, pythons: dict[str, str], rounds: int
) -> dict[str, list[tuple[float, int]]]:
    """Of each system, for each round: seconds and peak bytes of indexing."""
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name in systems:
            folder = work / name
            shutil.rmtree(folder, ignore_errors=True)
            command = (
                [RETRIEVER, "index", str(corpus), "-i", str(folder), "--quiet", *OURS[name]]
                if name in OURS
                else _peer("index", name, work, pythons)
            )
            found[name].append(_process(command))
    return found


def _asked(
    systems: Sequence[str], work: Path, pythons: dict[str, str], rounds: int
) -> dict[str, list[dict[str, Any]]]:
    """Of each system, for each round: what `peer.ask` measures."""
    found: dict[str, list[dict[str, Any]]] = {
        name: [] for name in systems if name not in list(OURS)[1:]
    }
    for _ in range(rounds):
        for name, measured in found.items():
            command = _peer("query", name, work, pythons)
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            measured.append(json.loads(done.stdout.splitlines()[-1]))
    return found


def _whole(
    built: dict[str, list[tuple[float, int]]], asked: dict[str, list[dict[str, Any]]], work: Path
) -> list[tuple[str, ...]]:
    rows = [
        ("", "index, s", f"times {BASELINE}", "peak memory", "disk", "first query, s", "query, ms")
    ]
    base = [seconds for seconds, _ in built.get(BASELINE, [])]
    for name, runs in built.items():
        seconds = [one for one, _ in runs]
        ratios = [other / one for one, other in zip(seconds, base, strict=False)]
        size = sum(path.stat().st_size for path in (work / name).rglob("*") if path.is_file())
        first = queries = ""
        if name in asked:
            first = (
                f"{statistics.median(one['open'] + one['queries'][0] for one in asked[name]):.2f}"
            )
            queries = " / ".join(
                _quantiles([s for one in asked[name] for s in one["queries"][WARM_UP:]])
            )
        rows.append(
            (
                name,
                _spread(seconds),
                _spread(ratios) if ratios else "",
                f"{max(memory for _, memory in runs) / 1e6:.0f} MB",
                f"{size / 1e6:.0f} MB",
                first,
                queries,
            )
        )
    return rows


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def _process(command: list[str]) -> tuple[float, int]:
    """Seconds and peak resident bytes of a command."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        raise SystemExit(f"{' '.join(command)} failed with status {status}")
    return seconds, usage.ru_maxrss * 1024


def _parts(work: Path, queries: Sequence[str]) -> list[tuple[str, ...]]:
    """Every mode, and encoding alone, in turns."""
    from retriever import Index, SearchSettings

    with Index.open(work / "retriever") as index:
        calls: dict[str, Callable[[str], object]] = {
            mode: partial(index.search, settings=SearchSettings(mode=mode))
            for mode in ("dense", "bm25", "hybrid")
        }
        calls["encoding alone"] = lambda query: index.encoder.encode([query], query=True)
        measured: dict[str, list[float]] = {name: [] for name in calls}
        for query in [queries[0], *queries]:
            for name, call in calls.items():
                measured[name].append(_timed(partial(call, query))[0])
    return [
        ("", "p50", "p95"),
        *((name, *_quantiles(seconds[WARM_UP:])) for name, seconds in measured.items()),
    ]


def _bm25(work: Path, pythons: dict[str, str]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("", "opening or building", "first query", "p50", "p95")]
    for name in BM25:
        command = _peer("query", name, work, pythons)
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            print(f"{name}: left out: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        rows.append(
            (
                name,
                f"{found['open'] * 1e3:.1f}",
                f"{found['queries'][0] * 1e3:.2f}",
                *_quantiles(found["queries"]),
            )
        )
    return rows


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = call()
    return time.perf_counter() - started, result


def _quantiles(seconds: Sequence[float]) -> tuple[str, str]:
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"{statistics.median(ordered) * 1e3:.2f}", f"{p95 * 1e3:.2f}"


if __name__ == "__main__":
    main()
