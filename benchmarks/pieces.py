"""The tokenizer of multilingual-e5-small beside `tokenizers` with the same pieces.

    python benchmarks/pieces.py [--corpus corpus.jsonl] [--texts N]

Each runs in a process of its own, on one core: seconds and memory until the first text is divided,
then tokens a second. Loading transformers, which writes the file that `tokenizers` reads, does not
count.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

_BATCH = 64


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    data = os.environ.get("RETRIEVER_DATA")
    default = Path(data) / "scifact/corpus.jsonl" if data else None
    parser.add_argument("--corpus", type=Path, default=default, required=default is None)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with arguments.corpus.open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in itertools.islice(lines, arguments.texts)]
    if arguments.measure is not None:
        measure(arguments.measure, texts)
        return
    print("| tokenizer | load, s | load, MB | tokens/s |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        write_tokenizer(file)
        for tokenizer in (Path("own"), file):
            command = [sys.executable, __file__, *sys.argv[1:], "--measure", str(tokenizer)]
            environment = os.environ | {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            subprocess.run(command, check=True, env=environment)


def write_tokenizer(file: Path) -> None:
    """Write the file that `tokenizers` reads."""
    from retriever.encoders import find_model
    from retriever.encoders.transformer.four_bits import make_tokenizer

    make_tokenizer(find_model("multilingual-e5-small")).backend_tokenizer.save(str(file))


def measure(tokenizer: Path, texts: Sequence[str]) -> None:
    """Print the row of a tokenizer."""
    from retriever.encoders import find_model

    folder = find_model("multilingual-e5-small")
    start, memory = time.perf_counter(), used_megabytes()
    tokenize = load_own(folder) if tokenizer.name == "own" else load_library(tokenizer)
    tokenize(["a text"])
    loaded, grown = time.perf_counter() - start, used_megabytes() - memory
    start = time.perf_counter()
    tokens = 0
    for first in range(0, len(texts), _BATCH):
        tokens += sum(map(len, tokenize(texts[first : first + _BATCH])))
    rate = tokens / (time.perf_counter() - start)
    print(f"| {tokenizer.stem} | {loaded:.2f} | {grown:.0f} | {rate:,.0f} |", flush=True)


def load_own(folder: Any) -> Callable[[Sequence[str]], list[list[int]]]:
    """Load the tokenizer of this program."""
    from retriever.encoders.transformer.unigram import Unigram

    return Unigram(folder).tokenize


def load_library(file: Path) -> Callable[[Sequence[str]], list[list[int]]]:
    """Load the tokenizer of `tokenizers`."""
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(str(file))
    return lambda texts: [encoding.ids for encoding in loaded.encode_batch_fast(list(texts))]


def used_megabytes() -> float:
    """Return the memory of this process."""
    return psutil.Process().memory_info().rss / 1e6


if __name__ == "__main__":
    main()
