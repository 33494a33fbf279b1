"""Encoding by every backend and number format, compared with sentence-transformers, in turns.

    python benchmarks/encoding.py [--corpus FILE] [--chunks N] [--way BACKEND:DTYPE ...]
    python benchmarks/encoding.py --queries [...]

Passages are neighboring texts of the corpus joined to about 120 word pieces; short sentences are
single texts. Tokenizing is part of every time. sentence-transformers runs with its own OpenVINO
backend, too, where optimum-intel is installed. The rate is shown
beside the machine's own on matrix products of the model's shapes; a model of this size needs 2
floating-point operations per weight and word piece. With `--queries`, texts of at most eight
words are encoded one at a time.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    data = os.environ.get("RETRIEVER_DATA")
    default = Path(data) / "oewn_sentences/corpus.jsonl" if data else None
    parser.add_argument("--corpus", type=Path, default=default, required=default is None)
    parser.add_argument("--chunks", type=int, default=7, help="turns")
    parser.add_argument("--size", type=int, default=256, help="passages a turn")
    parser.add_argument("--model", default="", help="folder or name; default: the bundled model")
    specs = [f"torch:{number_format}" for number_format in ("float32", "bfloat16")]
    specs += [f"openvino:{number_format}" for number_format in ("float32", "bfloat16", "int8")]
    parser.add_argument("--way", nargs="+", default=specs, metavar="BACKEND:DTYPE")
    parser.add_argument("--queries", action="store_true", help="measure one text at a time")
    arguments = parser.parse_args()
    with arguments.corpus.open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in itertools.islice(lines, 40_000)]
    if arguments.queries:
        print("| encoder | p50, ms | p95, ms |\n|---|---|---|")
        for row in one_by_one(texts, arguments.model, arguments.way):
            print(f"| {' | '.join(row)} |")
        return
    print(f"{torch.get_num_threads()} threads; matrix products, GFLOP/s: ", end="")
    print(", ".join(f"{dtype} {product_rate(dtype):.0f}" for dtype in ("float32", "bfloat16")))
    print("| passages | encoder | pieces/s | GFLOP/s | times ST's rate | least cosine to ST |")
    print("|---|---|---|---|---|---|")
    kinds = (("5 to 16 texts", 5, 16, 1), ("11 texts", 11, 11, 1), ("short sentences", 1, 1, 8))
    for name, least, most, times in kinds:
        chunks = joined(texts, least, most, arguments.chunks, times * arguments.size)
        for row in compare(chunks, arguments.model, arguments.way):
            print(f"| {name} | {' | '.join(row)} |")


def compare(
    chunks: Sequence[list[str]], model: str, computing: Sequence[str]
) -> list[tuple[str, ...]]:
    """One row an encoder: every chunk is encoded by each of them in turn."""
    from sentence_transformers import SentenceTransformer

    from retriever.encoders import DEFAULT_MODEL, find_model

    path = str(find_model(model or DEFAULT_MODEL).path)
    peer = SentenceTransformer(path, device="cpu")
    encoders = loaded(model, computing)
    first = next(iter(encoders.values()))
    weights = sum(
        parameter.numel()
        for name, parameter in peer[0].named_parameters()
        if parameter.ndim == 2 and "embeddings" not in name and "pooler" not in name
    )

    def st(chunk: list[str]) -> Any:
        return peer.encode(chunk, normalize_embeddings=True, show_progress_bar=False)

    runs: dict[str, Callable[[list[str]], Any]] = {
        "sentence-transformers float32": st,
        **{f"retriever {run}": encoder.encode for run, encoder in encoders.items()},
    }
    if importlib.util.find_spec("optimum.intel") if importlib.util.find_spec("optimum") else None:
        # Converted from the local folder at each start.
        compiled = SentenceTransformer(path, device="cpu", backend="openvino")
        runs["sentence-transformers openvino"] = lambda chunk: compiled.encode(
            chunk, normalize_embeddings=True, show_progress_bar=False
        )
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    cosines: dict[str, float] = dict.fromkeys(runs, 1.0)
    for run in runs.values():
        run(chunks[0][:64])
    for chunk in chunks:
        vectors = {}
        for name, run in runs.items():
            started = time.perf_counter()
            vectors[name] = run(chunk)
            seconds[name].append(time.perf_counter() - started)
        reference = vectors["sentence-transformers float32"]
        for name, own_vectors in vectors.items():
            cosines[name] = min(cosines[name], float(np.sum(own_vectors * reference, axis=1).min()))
    pieces = [sum(map(len, first.tokenize(chunk))) for chunk in chunks]
    rows = []
    for name, times in seconds.items():
        rate = statistics.median(n / t for n, t in zip(pieces, times, strict=True))
        ratios = [a / b for a, b in zip(seconds[next(iter(runs))], times, strict=True)]
        rows.append(
            (
                name,
                f"{rate:.0f}",
                f"{2 * weights * rate / 1e9:.0f}",
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                f"{cosines[name]:.5f}",
            )
        )
    return rows


def loaded(model: str, computing: Sequence[str]) -> dict[str, Any]:
    """By name in the tables, an encoder for each backend and number format."""
    from retriever import Encoder

    encoders = {}
    for spec in computing:
        backend, _, dtype = spec.partition(":")
        text = f"{model}::backend={backend}::dtype={dtype}"
        encoders[f"{dtype} by {backend}"] = Encoder.load(text, device="cpu")
    return encoders


def one_by_one(
    texts: Sequence[str], model: str, computing: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    """One row for each encoder."""
    queries = [" ".join(text.split()[:8]) for text in texts[:300]]
    for name, encoder in loaded(model, computing).items():
        seconds = []
        for query in queries:
            started = time.perf_counter()
            encoder.encode([query], query=True)
            seconds.append(time.perf_counter() - started)
        # The first ones load and compile.
        p50, p95 = 1000 * np.percentile(seconds[20:], [50, 95])
        yield name, f"{p50:.1f}", f"{p95:.1f}"


def product_rate(dtype: str) -> float:
    """GFLOP/s of (1536, 384) x (384, 1536), the model's largest product; the best of five."""
    a = torch.randn(1536, 384).to(getattr(torch, dtype))
    b = torch.randn(384, 1536).to(getattr(torch, dtype))
    best = 0.0
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(100):
            a @ b
        best = max(best, 100 * 2 * 1536 * 384 * 1536 / (time.perf_counter() - started) / 1e9)
    return best


def joined(texts: Sequence[str], least: int, most: int, chunks: int, size: int) -> list[list[str]]:
    """Passages of `least` to `most` neighboring texts, in `chunks` lists of `size`."""
    draw = random.Random(0)
    source = itertools.cycle(texts)
    passages = [
        ". ".join(itertools.islice(source, draw.randint(least, most))) for _ in range(chunks * size)
    ]
    return [passages[i : i + size] for i in range(0, len(passages), size)]


if __name__ == "__main__":
    main()
