"""A meta-embedding of two layer choices of one model: one forward pass for both, or one for each.

    python benchmarks/sharing.py [--corpus FILE] [--texts N] [--turns N]

Times are seconds of the processor, all cores together, so that other processes disturb them
little. Queries are encoded one at a time in NumPy, passages together by the engine for many texts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from retriever.encoders import Encoder, EncoderSettings, load_encoder, parse_encoder
from retriever.encoders.meta.linear import concatenation
from retriever.encoders.meta.model import MetaModel, MetaParts
from retriever.encoders.meta.sources import MetaSource, MetaSources
from retriever.encoders.registry import LoadContext
from retriever.encoders.transformer.sharing import BackboneSharing

_QUERIES = 16


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    data = os.environ.get("RETRIEVER_DATA")
    default = Path(data) / "oewn_sentences/corpus.jsonl" if data else None
    parser.add_argument("--corpus", type=Path, default=default, required=default is None)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--source", nargs="+", default=["::lc:0,6", "::last4"])
    arguments = parser.parse_args()
    with arguments.corpus.open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in itertools.islice(lines, arguments.texts)]
    seconds: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for turn in range(arguments.turns):
        # The one that was first is second in the next turn.
        for is_shared in (turn % 2 == 0, turn % 2 == 1):
            encoder = combine(arguments.source, is_shared)
            encoder.encode(texts[:1])
            start = time.process_time()
            for text in texts[:_QUERIES]:
                encoder.encode([text])
            seconds["a query", is_shared].append((time.process_time() - start) / _QUERIES)
            # The engine for many texts starts.
            encoder.encode(texts[:200])
            start = time.process_time()
            encoder.encode(texts)
            passage = (time.process_time() - start) / len(texts)
            seconds["a passage of many", is_shared].append(passage)
    print("| encoded | each alone, ms | shared, ms | ratio (range) |\n|---|---|---|---|")
    for name in ("a query", "a passage of many"):
        alone = np.array(seconds[name, False])
        shared = np.array(seconds[name, True])
        ratios = alone / shared
        milliseconds = [1000 * statistics.median(values) for values in (alone, shared)]
        print(
            f"| {name} | {milliseconds[0]:.2f} | {milliseconds[1]:.2f} | "
            f"{np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f}) |"
        )


def combine(forms: Sequence[str], is_shared: bool) -> Encoder:
    """Return the concatenation of encoders, which share their forward passes or do not."""
    context = LoadContext("cpu", sharing=BackboneSharing() if is_shared else None)
    loaded = [MetaSource(*load_encoder(parse_encoder(form), context)) for form in forms]
    sources = MetaSources(loaded, "word")
    projection = concatenation(sources.widths)
    parts = MetaParts("conc", "word", "mean", projection, sources.specs, {}, {})
    model = MetaModel(sources, parts)
    return Encoder(model.spec(EncoderSettings(model="both")), model)


if __name__ == "__main__":
    main()
