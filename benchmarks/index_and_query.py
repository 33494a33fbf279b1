"""Index and query a corpus by one command, beside other libraries on the same machine.

    python benchmarks/index_and_query.py [--limit N] [--rounds N] [--systems NAME ...]
        [--python SYSTEM=PYTHON ...] [--corpus FILE] [--queries N]

Each system indexes the corpus for hybrid search in a process of its own, start included, and in
turns; then each answers the same queries in a process of its own, also in turns. `--python` names
the Python of an environment that holds a system whose requirements exclude ours. Systems that are
not installed are left out with a note. The default corpus is
`$RETRIEVER_DATA/oewn_sentences/corpus.jsonl`.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
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
from typing import Any, NamedTuple

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
DEPTH, TOP = 100, 10
STEPS = ("prepare", "index", "query")
Search = Callable[[str], object]


class Hybrid(NamedTuple):
    """A library that ranks by embeddings and words."""

    # Makes what belongs to the model, in a folder.
    prepare: Callable[[Path], None]
    # Of texts, in a folder, with what belongs to the model.
    index: Callable[[list[str], Path, Path], None]
    opened: Callable[[Path, Path], Search]


def model_folder() -> str:
    """Where the package of all-MiniLM-L6-v2 has its files."""
    import layer_retriever_minilm

    return str(Path(layer_retriever_minilm.__file__).parent / "model")


def _sentence_transformer(kind: str, model: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    if kind == "torch":
        return SentenceTransformer(model_folder(), device="cpu")
    file = {"file_name": "openvino_model_int8.xml"} if kind == "int8" else {}
    return SentenceTransformer(str(model), device="cpu", backend="openvino", model_kwargs=file)


def _st_prepare(kind: str, model: Path) -> None:
    """Convert the model, for int8 with static ranges measured on 300 of the texts."""
    importlib.import_module("bm25s")
    from sentence_transformers import SentenceTransformer

    if kind == "torch":
        return
    encoder = SentenceTransformer(model_folder(), device="cpu", backend="openvino")
    encoder.save_pretrained(str(model))
    if kind != "int8":
        return
    from datasets import Dataset
    from optimum.intel import OVConfig, OVQuantizationConfig, OVQuantizer

    texts = _read(model.parent, "texts")
    sample = [texts[i] for i in range(0, len(texts), max(1, len(texts) // 300))]
    pieces = encoder.tokenizer(sample, padding="max_length", max_length=128, truncation=True)
    quantizer = OVQuantizer(encoder[0].auto_model)
    quantizer.quantize(
        ov_config=OVConfig(quantization_config=OVQuantizationConfig()),
        calibration_dataset=Dataset.from_dict(dict(pieces)),
        save_directory=str(model / "int8"),
    )
    for suffix in ("xml", "bin"):
        exported = model / "int8/openvino" / f"openvino_model.{suffix}"
        exported.rename(model / "openvino" / f"openvino_model_int8.{suffix}")


def _st_index(kind: str, texts: list[str], folder: Path, model: Path) -> None:
    """Index as a user of sentence-transformers, FAISS and bm25s would."""
    import bm25s
    import faiss
    import Stemmer

    folder.mkdir()
    encoder = _sentence_transformer(kind, model)
    vectors = encoder.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    faiss.write_index(flat, str(folder / "flat.faiss"))
    stemmer = Stemmer.Stemmer("english")
    tokens = bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)
    side = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    side.index(tokens, show_progress=False)
    side.save(str(folder / "bm25s"))
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")


def _st_opened(kind: str, folder: Path, model: Path) -> Search:
    """The mean of both scores, each divided by its best, over the candidates of both."""
    import bm25s
    import faiss
    import Stemmer

    encoder = _sentence_transformer(kind, model)
    flat = faiss.read_index(str(folder / "flat.faiss"))
    side, stemmer = bm25s.BM25.load(str(folder / "bm25s")), Stemmer.Stemmer("english")
    texts = _read(folder, "texts")

    def search(query: str) -> list[str]:
        vector = encoder.encode([query], normalize_embeddings=True, show_progress_bar=False)
        nearest, positions = flat.search(vector, DEPTH)
        tokens = bm25s.tokenize(query, stopwords="en", stemmer=stemmer, show_progress=False)
        numbers, words = side.retrieve(tokens, k=DEPTH, show_progress=False)
        scores: dict[int, float] = {}
        for rows, values in ((positions[0], nearest[0]), (numbers[0], words[0])):
            best = max(float(values[0]), 1e-9)
            for row, value in zip(rows.tolist(), values.tolist(), strict=True):
                scores[row] = scores.get(row, 0.0) + 0.5 * value / best
        return [texts[row] for row in sorted(scores, key=scores.__getitem__, reverse=True)[:TOP]]

    return search


def _txtai_index(texts: list[str], folder: Path, _: Path) -> None:
    from txtai import Embeddings

    embeddings = Embeddings(path=model_folder(), hybrid=True, content=True, gpu=False)
    embeddings.index(texts)
    embeddings.save(str(folder))


def _txtai_opened(folder: Path, _: Path) -> Search:
    from txtai import Embeddings

    embeddings = Embeddings()
    embeddings.load(str(folder))
    return lambda query: embeddings.search(query, TOP)


def _opened(folder: Path, mode: str, brief: bool = False) -> Search:
    from retriever import Index, SearchSettings

    opened = Index.open(folder)
    settings = SearchSettings(mode=mode, k=TOP)  # type: ignore[arg-type]
    if brief:
        return lambda query: next(opened.rank([query], settings))
    return lambda query: opened.search(query, settings)


HYBRID = {
    **{
        f"sentence-transformers{name} + flat FAISS + bm25s": Hybrid(
            partial(_st_prepare, kind), partial(_st_index, kind), partial(_st_opened, kind)
        )
        for name, kind in (
            ("", "torch"),
            (" by OpenVINO", "openvino"),
            (" by OpenVINO, int8", "int8"),
        )
    },
    "txtai, hybrid": Hybrid(
        lambda _: (importlib.import_module("txtai"), None)[1], _txtai_index, _txtai_opened
    ),
}


def _bm25s(work: Path) -> Search:
    import bm25s
    import Stemmer

    (folder,) = work.glob("sentence-transformers + */bm25s")
    stemmer, side = Stemmer.Stemmer("english"), bm25s.BM25.load(str(folder))
    return lambda query: side.retrieve(
        bm25s.tokenize(query, stopwords="en", stemmer=stemmer, show_progress=False),
        k=TOP,
        show_progress=False,
    )


def _tantivy(work: Path) -> Search:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("body", tokenizer_name="en_stem", index_option="freq", stored=True)
    index = tantivy.Index(builder.build())
    writer = index.writer(heap_size=500_000_000, num_threads=1)
    for text in _read(work, "texts"):
        writer.add_document(tantivy.Document(body=text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def search(query: str) -> list[Any]:
        # Its query language has operators; the words stand alone.
        words = "".join(c if c.isalnum() else " " for c in query)
        hits = searcher.search(index.parse_query(words.lower(), ["body"]), TOP).hits
        return [searcher.doc(address) for _, address in hits]

    return search


BM25: dict[str, Callable[[Path], Search]] = {
    "retriever, BM25": lambda work: _opened(work / "retriever", "bm25"),
    "retriever, ids and scores": lambda work: _opened(work / "retriever", "bm25", True),
    "tantivy": _tantivy,
    "bm25s": _bm25s,
}


def step(name: str, system: str, work: Path) -> None:
    """Run one step of one library in this process; `query` prints a line of JSON."""
    model = work / f"{system}.model"
    if name == "prepare":
        HYBRID[system].prepare(model)
        return
    if name == "index":
        HYBRID[system].index(_read(work, "texts"), work / system, model)
        return
    started = time.perf_counter()
    if system in BM25:
        search = BM25[system](work)
    elif system in HYBRID:
        search = HYBRID[system].opened(work / system, model)
    else:
        search = _opened(work / system, "hybrid")
    opened = time.perf_counter() - started
    queries = _read(work, "queries")
    # Of each query, the first included; by BM25 also of all of them again.
    turns = [
        [_timed(partial(search, query)) for query in queries] for _ in range(1 + (system in BM25))
    ]
    print(json.dumps({"open": opened, "queries": turns[0], "again": turns[-1]}))


def _read(folder: Path, name: str) -> list[str]:
    texts: list[str] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return texts


def main() -> None:
    """Run every part and print the report."""
    if sys.argv[1:2] and sys.argv[1] in STEPS:
        step(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
        return
    arguments = _arguments()
    pythons = dict(setting.split("=", 1) for setting in arguments.python)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        corpus = work / "corpus.jsonl"
        with arguments.corpus.open(encoding="utf-8") as source:
            lines = list(itertools.islice(source, arguments.limit))
        corpus.write_text("".join(lines), encoding="utf-8")
        texts = [_text(json.loads(line)) for line in lines]
        (work / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
        # Of up to eight words, each from a document of the corpus.
        sample = random.Random(0).sample(texts, min(arguments.queries, len(texts)))
        queries = [" ".join(text.split()[-8:]) for text in sample]
        (work / "queries.json").write_text(json.dumps(queries), encoding="utf-8")
        ours = [name for name in OURS if name in arguments.systems]
        systems = [*ours, *_prepared(work, pythons, arguments.systems)]
        built = _build_all(systems, corpus, work, pythons, arguments.rounds)
        queried = _query_all(systems, work, pythons, arguments.rounds)
        report = [
            f"{len(texts):,} documents; {platform.processor() or platform.machine()}, "
            f"{os.cpu_count()} cores; Python {platform.python_version()}",
            "",
            *_section("Indexing by one command and hybrid queries", _whole(built, queried, work)),
            *_section("Warm queries by part, milliseconds", _parts(work, queries)),
            *_section("BM25 queries, milliseconds, including the first", _bm25(work, pythons)),
        ]
    print("\n".join(report))


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
    names = [*OURS, *HYBRID]
    parser.add_argument("--systems", nargs="+", choices=names, default=names)
    parser.add_argument("--python", nargs="+", default=[], metavar="SYSTEM=PYTHON")
    return parser.parse_args()


def _text(document: dict[str, Any]) -> str:
    return f"{document['title']} {document['text']}" if document.get("title") else document["text"]


def _section(title: str, rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield f"### {title}\n"
    yield f"| {' | '.join(rows[0])} |"
    yield "|" + "---|" * len(rows[0])
    yield from (f"| {' | '.join(row)} |" for row in rows[1:])
    yield ""


def _peer(name: str, system: str, work: Path, pythons: dict[str, str]) -> list[str]:
    return [pythons.get(system, sys.executable), __file__, name, system, str(work)]


def _prepared(work: Path, pythons: dict[str, str], systems: Sequence[str]) -> Iterator[str]:
    """The chosen peers that are installed, with what each makes once for a model."""
    for name in (name for name in HYBRID if name in systems):
        command = _peer("prepare", name, work, pythons)
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            _left_out(name, done.stderr)
        else:
            yield name


def _left_out(name: str, errors: str) -> None:
    reason = (errors.strip().splitlines() or ["no message"])[-1]
    print(f"{name}: left out: {reason}", file=sys.stderr)


def _build_all(
    systems: Sequence[str], corpus: Path, work: Path, pythons: dict[str, str], rounds: int
) -> dict[str, list[tuple[float, int]]]:
    """Return seconds and peak bytes of indexing for each system and round."""
    measurements: dict[str, list[tuple[float, int]]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name in systems:
            folder = work / name
            shutil.rmtree(folder, ignore_errors=True)
            command = (
                [RETRIEVER, "index", str(corpus), "-i", str(folder), "--quiet", *OURS[name]]
                if name in OURS
                else _peer("index", name, work, pythons)
            )
            measurements[name].append(_process(command))
    return measurements


def _query_all(
    systems: Sequence[str], work: Path, pythons: dict[str, str], rounds: int
) -> dict[str, list[dict[str, Any]]]:
    """Return the measurements of the step `query` for each system and round."""
    measurements: dict[str, list[dict[str, Any]]] = {
        name: [] for name in systems if name not in list(OURS)[1:]
    }
    for _ in range(rounds):
        for name, measured in measurements.items():
            command = _peer("query", name, work, pythons)
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            measured.append(json.loads(done.stdout.splitlines()[-1]))
    return measurements


def _whole(
    built: dict[str, list[tuple[float, int]]], queried: dict[str, list[dict[str, Any]]], work: Path
) -> list[tuple[str, ...]]:
    rows = [
        ("", "index, s", f"times {BASELINE}", "peak memory", "disk", "first query, s", "query, ms")
    ]
    base = [seconds for seconds, _ in built.get(BASELINE, [])]
    for name, runs in built.items():
        seconds = [duration for duration, _ in runs]
        ratios = [theirs / ours for ours, theirs in zip(seconds, base, strict=False)]
        size = sum(path.stat().st_size for path in (work / name).rglob("*") if path.is_file())
        first = queries = ""
        if name in queried:
            firsts = [run["open"] + run["queries"][0] for run in queried[name]]
            first = f"{statistics.median(firsts):.2f}"
            warm = [second for run in queried[name] for second in run["queries"][WARM_UP:]]
            queries = " / ".join(_quantiles(warm))
        memory = max(memory for _, memory in runs)
        rows.append(
            (
                name,
                _spread(seconds),
                _spread(ratios) if ratios else "",
                f"{memory / 1e6:.0f} MB",
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
    if status:
        raise SystemExit(f"{' '.join(command)} failed with status {status}")
    return time.perf_counter() - started, usage.ru_maxrss * 1024


def _parts(work: Path, queries: Sequence[str]) -> list[tuple[str, ...]]:
    """Every mode, and encoding alone, in turns."""
    from retriever import Index, SearchSettings

    with Index.open(work / "retriever") as index:
        calls: dict[str, Callable[[str], object]] = {
            mode: partial(index.search, settings=SearchSettings(mode=mode))  # type: ignore[arg-type]
            for mode in ("dense", "bm25", "hybrid")
        }
        calls["encoding alone"] = lambda query: index.encoder.encode([query], query=True)
        measured: dict[str, list[float]] = {name: [] for name in calls}
        for query in [queries[0], *queries]:
            for name, call in calls.items():
                measured[name].append(_timed(partial(call, query)))
    return [
        ("", "p50", "p95"),
        *((name, *_quantiles(seconds[WARM_UP:])) for name, seconds in measured.items()),
    ]


def _bm25(work: Path, pythons: dict[str, str]) -> list[tuple[str, ...]]:
    head = ("", "opening or building", "first query", "p50 / p95", "the same queries again")
    rows: list[tuple[str, ...]] = [head]
    for name in BM25:
        command = _peer("query", name, work, pythons)
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            _left_out(name, done.stderr)
            continue
        measurement = json.loads(done.stdout.splitlines()[-1])
        opening, first = (
            f"{measurement['open'] * 1e3:.1f}",
            f"{measurement['queries'][0] * 1e3:.2f}",
        )
        turns = measurement["queries"], measurement["again"]
        rows.append((name, opening, first, *(" / ".join(_quantiles(turn)) for turn in turns)))
    return rows


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _quantiles(seconds: Sequence[float]) -> tuple[str, str]:
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"{statistics.median(ordered) * 1e3:.2f}", f"{p95 * 1e3:.2f}"


if __name__ == "__main__":
    main()
