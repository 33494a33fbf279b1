"""What encoding with a meta-embedding costs beside its sources alone.

    python benchmarks/meta_cost.py [--source FORM ...] [--texts N] [--turns N] [--threads N]

Sentences of STS-B test. Sources and meta-embeddings encode the same texts in turns; the ratio is
that of the medians, the time of the meta-embedding over the sum of its sources' times. Without
--source they are all-MiniLM-L6-v2 and, if RETRIEVER_MODELS names a folder that
examples/offline_models.py made, all-mpnet-base-v2; otherwise layers of all-MiniLM-L6-v2,
which share a forward pass, so that the ratio is below 1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from eval import read_pairs
from retriever import Encoder, MetaSettings, fit_meta

MINILM = "all-MiniLM-L6-v2"
METHODS = (("conc", "mean"), ("svd", "mean"), ("svd", "max"))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", action="append", help="text form; give two or more")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    pairs = read_pairs([Path(os.environ["RETRIEVER_DATA"]) / "stsb/test.tsv"])
    texts = list(dict.fromkeys([*pairs.left, *pairs.right]))[: arguments.texts]
    second = Path(os.environ.get("RETRIEVER_MODELS", "")) / "all-mpnet-base-v2"
    if not arguments.source and not second.is_dir():
        print(
            f"{second.name} is not in RETRIEVER_MODELS: layers of {MINILM} instead", file=sys.stderr
        )
    there = str(second) if second.is_dir() else f"{MINILM}::layers=2,3,4"
    forms = arguments.source or [MINILM, there]
    with tempfile.TemporaryDirectory() as folder:
        encoders = {form: Encoder.load(form, device="cpu") for form in forms}
        for method, pooling in METHODS:
            name = f"{method}, {pooling}"
            settings = MetaSettings(method, pooling=pooling)
            output = Path(folder) / f"{method}-{pooling}"
            fit_meta(texts, forms, output, settings, device="cpu")
            encoders[name] = Encoder.load(str(output), device="cpu")
        times: dict[str, list[float]] = {name: [] for name in encoders}
        for turn in range(arguments.turns + 1):
            for name, encoder in encoders.items():
                start = time.perf_counter()
                encoder.encode(texts)
                # The first turn only warms up.
                times[name] += [time.perf_counter() - start] * bool(turn)
    medians = {name: statistics.median(one) for name, one in times.items()}
    total = sum(medians[form] for form in forms)
    print(f"{len(texts)} texts, {arguments.threads} threads\n")
    print("| encoder | seconds | over the sum of the sources |\n|---|---|---|")
    for name, seconds in medians.items():
        ratio = "" if name in forms else f"{seconds / total:.3f}"
        print(f"| `{name}` | {seconds:.2f} | {ratio} |")
    print(f"| sum of the sources | {total:.2f} | 1 |")


if __name__ == "__main__":
    main()
