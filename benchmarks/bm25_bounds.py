"""The postings that BM25 would still have to read with dynamic pruning, at best.

    python benchmarks/bm25_bounds.py [--passages 1000000] [--queries 60]
    python benchmarks/bm25_bounds.py --texts CORPUS.jsonl ... --questions QUERIES.jsonl

Passages are the synthetic ones of `benchmarks/scale`, or the texts of files of JSON lines, 60 words
each. A block is a number of consecutive passages; its bound is the sum, over the query's terms, of
the most that a passage of the block gets from the term (block-max: Ding and Suel, "Faster Top-k
Document Retrieval Using Block-Max Indexes", SIGIR 2011). Blocks are left whose bound reaches the
score of the k-th best passage, as if that were known from the start. *term* leaves the postings of
MaxScore's essential terms (Turtle and Flood, 1995). *bounds* is how many numbers the blocks need
for each posting.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent / "scale"))

import synthetic

from indexes.bm25.postings import Postings, merge_postings
from indexes.bm25.scoring import BM25, Contributions, SearchableSegment, contributions_of
from retriever.documents.analyzer import Analyzer

BLOCKS = (16, 64, 256, 1024)
AT_ONCE = 1_000_000
WORDS = 60


def main() -> None:
    """Print a table for each k."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--texts", type=Path, nargs="+")
    parser.add_argument("--questions", type=Path)
    arguments = parser.parse_args()
    if arguments.texts and not arguments.questions:
        parser.error("--texts needs --questions")
    if arguments.texts:
        analyzer = Analyzer()
        passages: Iterable[list[str]] = map(analyzer.tokens, _pieces(arguments.texts))
        asked = random.Random(0).sample(list(_texts([arguments.questions])), arguments.queries)
        queries = [analyzer.tokens(text) for text in asked]
    else:
        blocks = synthetic.blocks(0, arguments.passages)
        passages = (text.split() for _, texts, _ in blocks for text in texts)
        queries = [text.split() for text in synthetic.queries(arguments.queries)[0]]
    with tempfile.TemporaryDirectory() as folder:
        postings = _postings(passages, Path(folder))
        print(f"{len(postings):,} passages")
        for k in (10, 100):
            _report(postings, queries, k)


def _texts(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            yield from (json.loads(line)["text"] for line in lines)


def _pieces(paths: list[Path]) -> Iterator[str]:
    for text in _texts(paths):
        words = text.split()
        yield from (" ".join(words[i : i + WORDS]) for i in range(0, len(words), WORDS))


def _postings(passages: Iterable[list[str]], folder: Path) -> Postings:
    """The postings of all passages, built in parts, since there may be ten million."""
    parts: list[Path] = []
    rest = iter(passages)
    while part := Postings.build(islice(rest, AT_ONCE)):
        parts.append(folder / f"{len(parts)}")
        parts[-1].mkdir()
        part.write(parts[-1])
    whole = folder / "whole"
    whole.mkdir()
    merge_postings([Postings.open(part) for part in parts], [None] * len(parts), whole)
    return Postings.open(whole)


def _report(postings: Postings, queries: list[list[str]], k: int) -> None:
    bm25 = BM25([SearchableSegment(postings)])
    left: dict[str, list[float]] = {name: [] for name in ("term", *map(str, BLOCKS))}
    needed: dict[str, list[float]] = {str(size): [] for size in BLOCKS}
    counts = []
    for terms in queries:
        query = bm25.query(terms)
        found = query.search(k)
        if len(found.scores) < k:
            continue
        read = postings.read(dict.fromkeys(terms))
        each = contributions_of(postings, read, query.weighting)
        counts.append(len(each.positions))
        least = float(found.scores.min())
        left["term"].append(_essential(each, least))
        for size in BLOCKS:
            share, numbers = _reached(each, len(postings), size, least)
            left[str(size)].append(share)
            needed[str(size)].append(numbers)
    print(f"k = {k}: {np.mean(counts):,.0f} postings a query")
    for name, shares in left.items():
        bounds = f", {np.mean(needed[name]):.2f} bounds" if name in needed else ""
        print(f"  {name:>4}: {np.mean(shares):.2f} of the postings left{bounds}")


def _of_terms(each: Contributions) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.float64]]]:
    ends = np.cumsum(each.counts).tolist()
    for start, stop in zip([0, *ends], ends, strict=False):
        if start < stop:
            yield each.positions[start:stop], each.values[start:stop]


def _essential(each: Contributions, least: float) -> float:
    """The share of postings of terms without which no passage reaches the least score."""
    sizes, most = zip(*[(len(values), values.max()) for _, values in _of_terms(each)], strict=True)
    ascending = np.argsort(most)
    first = int(np.searchsorted(np.cumsum(np.array(most)[ascending]), least))
    return float(np.array(sizes)[ascending[first:]].sum() / sum(sizes))


def _reached(each: Contributions, n: int, size: int, least: float) -> tuple[float, float]:
    """The share of postings in blocks whose bound reaches the least score; bounds per posting."""
    bound = np.zeros(-(-n // size))
    bounds = 0
    for positions, values in _of_terms(each):
        blocks = positions // size
        firsts = np.flatnonzero(np.diff(blocks.astype(np.int64), prepend=-1))
        bound[blocks[firsts]] += np.maximum.reduceat(values, firsts)
        bounds += len(firsts)
    # Sums in another order may differ in the last bits.
    reached = bound[each.positions // size] >= least * (1 - 1e-12)
    return float(reached.mean()), bounds / len(each.positions)


if __name__ == "__main__":
    main()
