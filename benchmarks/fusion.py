"""Cost of layer fusion: SBERT-WK beside the forward pass, and the search over all sets of layers.

    python benchmarks/fusion.py [--texts N ...] [--turns N] [--threads N]
    python benchmarks/fusion.py --layers

SBERT-WK: batches of 32 texts, and of one, which is what its paper times; all-MiniLM-L6-v2, a
BERT-base shape with random weights (times do not depend on them) and, if RETRIEVER_MODELS names a
folder that holds it, all-mpnet-base-v2. The forward pass is the one that the fusion runs on, with
packed weights; plain transformers' is given too. The three are timed in turns; medians count. A
second table has the forward pass of which not all layers are read.

`--layers`: the case of Hosseini et al. 2023, Appendix A, 1,000 pairs, 13 hidden states of 768
dimensions, 8,191 sets, in float64, from the vectors of the layers to the objective of every set
(the paper: 5.65 s, and 1,067 s for its naive one), beside a naive vectorized search. Then 24 layers
with sets of up to 8, with the peak memory. Vectors are random with a common part.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from eval.layers.search import LayerTask, subset_values
from eval.layers.subsets import layer_subsets, pair_grams
from eval.metrics.correlation import CORRELATED_DECIMALS, Correlation
from retriever.encoders import DEFAULT_MODEL, find_model, parse_encoder
from retriever.encoders.fusion import SBERTWKSettings
from retriever.encoders.fusion.sbert_wk import sbert_wk
from retriever.encoders.model_folders import ModelFolder
from retriever.encoders.transformer.backbone import Backbone

TEXTS, LENGTHS = (1, 32), (20, 64, 128)
# Pairs, hidden states, dimensions.
PAPER, DEEP = (1000, 13, 768), (350, 25, 1024)
SEARCHES = 5
IDENTICAL = 20
Vectors = NDArray[np.float32]


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, nargs="+", default=TEXTS, help="texts in a batch")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", action="store_true", help="the search for layers instead")
    parser.add_argument("--deep", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.deep:
        print(deep_search())
    elif arguments.layers:
        # In a process of its own, so that its peak memory is its own; and first, because Linux
        # counts what a process held when it started another as the peak of that one.
        deep = subprocess.run(
            [sys.executable, __file__, "--deep"], check=True, capture_output=True, text=True
        ).stdout
        print(f"{search_beside_naive()}\n{deep}", end="")
    else:
        torch.set_num_threads(arguments.threads)
        for line in sbert_wk_tables(arguments.texts, arguments.turns):
            print(line, flush=True)


def sbert_wk_tables(texts: Sequence[int], turns: int) -> Iterator[str]:
    """The lines of both tables, each as soon as it is measured."""
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        models = {"all-MiniLM-L6-v2": find_model(DEFAULT_MODEL), "BERT-base": _base(Path(folder))}
        mpnet = Path(os.environ.get("RETRIEVER_MODELS", "")) / "all-mpnet-base-v2"
        if mpnet.is_dir():
            models[mpnet.name] = find_model(str(mpnet))
        else:
            print(f"{mpnet.name} is not in RETRIEVER_MODELS: left out", file=sys.stderr)
        columns = "transformers, ms | forward, ms | fusion, ms | ratio"
        yield f"| model | texts | pieces | preset | {columns} |"
        yield "|---|---|---|---|---|---|---|---|"
        for name, model_folder in models.items():
            backbone, plain = Backbone(model_folder, "cpu"), _plain(model_folder)
            for count, length, preset in product(texts, LENGTHS, ("paper", "released")):
                wk_settings = parse_encoder(fusion="sbert-wk", wk_preset=preset)
                settings = SBERTWKSettings.of(wk_settings, backbone.depth)
                row = _sbert_wk(backbone, plain, count, length, settings, turns)
                yield f"| {name} | {count} | {length} | {preset} | {row} |"
        yield "\n| model | pieces | layers read | forward, ms | of the whole |"
        yield "|---|---|---|---|---|"
        backbone = Backbone(models["all-MiniLM-L6-v2"], "cpu")
        for length in LENGTHS:
            for row in _early_exit(backbone, length, turns):
                yield f"| all-MiniLM-L6-v2 | {length} | {row} |"


def _base(folder: Path) -> ModelFolder:
    """A BERT-base shape with random weights, beside the bundled model's tokenizer."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(0)
    BertModel(BertConfig()).save_pretrained(folder)
    AutoTokenizer.from_pretrained(find_model(DEFAULT_MODEL).path).save_pretrained(folder)
    return find_model(str(folder))


def _plain(folder: ModelFolder) -> Any:
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    return AutoModel.from_pretrained(folder.path, dtype=torch.float32).eval()


def _batch(backbone: Backbone, texts: int, length: int) -> Any:
    draw = torch.Generator().manual_seed(length)
    return backbone.batch(torch.randint(1000, 30_000, (texts, length), generator=draw).tolist())


def _sbert_wk(
    backbone: Backbone, plain: Any, texts: int, length: int, settings: SBERTWKSettings, turns: int
) -> str:
    batch = _batch(backbone, texts, length)
    layers = range(settings.first_state, backbone.depth + 1)
    mask = torch.ones(texts, length, dtype=torch.bool)
    mask[:, -1] = settings.preset == "paper"
    states: list[torch.Tensor] = []

    def forward() -> None:
        states.clear()
        backbone.run(batch, layers, lambda _, state: states.append(state))

    ways = [lambda: plain(**batch.inputs), forward, lambda: sbert_wk(states, mask, settings)]
    theirs, ours, fusion = _in_turns(ways, turns)
    return f"{theirs:.1f} | {ours:.1f} | {fusion:.2f} | {100 * fusion / ours:.1f}%"


def _early_exit(backbone: Backbone, length: int, turns: int) -> Iterator[str]:
    batch = _batch(backbone, max(TEXTS), length)
    layer_sets = [(backbone.depth,), (0, 2), (0,)]
    ways = [
        lambda layers=layers: backbone.run(batch, layers, lambda *_: None) for layers in layer_sets
    ]
    times = _in_turns(ways, turns)
    for layers, seconds in zip(layer_sets, times, strict=True):
        yield f"{','.join(map(str, layers))} | {seconds:.1f} | {seconds / times[0]:.2f}"


def _in_turns(runs: Sequence[Callable[[], Any]], turns: int) -> list[float]:
    """The median milliseconds of each, called one after the other again and again."""
    seconds: list[list[float]] = [[] for _ in runs]
    for turn in range(turns + 2):
        for run, times in zip(runs, seconds, strict=True):
            started = time.perf_counter()
            run()
            if turn >= 2:
                times.append(1000 * (time.perf_counter() - started))
    return [statistics.median(times) for times in seconds]


def search_beside_naive() -> str:
    """The table of both ways."""
    left, right, gold = _random_states(*PAPER)
    subsets = layer_subsets(PAPER[1])
    times = []
    for _ in range(SEARCHES):
        start = time.perf_counter()
        values = subset_values(LayerTask(pair_grams(left, right), Correlation(gold)), subsets)
        times.append(time.perf_counter() - start)
    start = time.perf_counter()
    naive_values = _naive(left, right, gold, [subsets.layers(i) for i in range(len(subsets))])
    naive = time.perf_counter() - start
    apart = float(np.abs(naive_values - values).max())
    if apart > 1e-9:
        raise SystemExit(f"the two ways differ by {apart:.1e}: expected at most 1e-9")
    fast = statistics.median(times)
    return (
        f"{PAPER[0]:,} pairs, {PAPER[1]} hidden states, {PAPER[2]} dimensions, {len(subsets):,} "
        f"sets, Spearman, float64; the objectives differ by at most {apart:.1e}\n\n"
        f"| | seconds |\n|---|---|\n"
        f"| search, median of {SEARCHES} ({min(times):.3f} to {max(times):.3f}) | {fast:.3f} |\n"
        f"| naive | {naive:.1f} |\n| ratio | {naive / fast:,.0f} |\n"
    )


def deep_search() -> str:
    """Time and peak memory of the search over many layers."""
    left, right, gold = _random_states(*DEEP)
    subsets = layer_subsets(DEEP[1], 8)
    before, start = _peak_mb(), time.perf_counter()
    subset_values(LayerTask(pair_grams(left, right), Correlation(gold)), subsets)
    return (
        f"{DEEP[0]} pairs, {DEEP[1]} hidden states, {DEEP[2]} dimensions, sets of up to 8 "
        f"({len(subsets):,}): {time.perf_counter() - start:.1f} s, peak memory {_peak_mb():.0f} "
        f"MB, of which {before:.0f} MB before the search (vectors and Python)"
    )


def _naive(
    left: Vectors, right: Vectors, gold: NDArray[np.float64], sets: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Each set separately: mean over its layers, cosines, ranks; in its fastest layout."""
    a, b = (
        np.ascontiguousarray(side.transpose(1, 0, 2), dtype=np.float64) for side in (left, right)
    )
    gold_ranks = rankdata(gold)
    values = np.empty(len(sets))
    for place, layers in enumerate(sets):
        x, y = a[list(layers)].mean(axis=0), b[list(layers)].mean(axis=0)
        products = np.einsum("ij,ij->i", x, y)
        squares = np.einsum("ij,ij->i", x, x) * np.einsum("ij,ij->i", y, y)
        ranks = rankdata(np.round(products / np.sqrt(squares), CORRELATED_DECIMALS))
        values[place] = np.corrcoef(ranks, gold_ranks)[0, 1]
    return values


def _random_states(
    pairs: int, hidden_states: int, dimensions: int
) -> tuple[Vectors, Vectors, NDArray[np.float64]]:
    chance = np.random.default_rng(0)
    shared = chance.standard_normal((pairs, 1, dimensions), dtype=np.float32)
    alike = chance.random((pairs, 1, 1), dtype=np.float32)
    shape = (pairs, hidden_states, dimensions)
    left, right = (chance.standard_normal(shape, dtype=np.float32) for _ in range(2))
    left += shared
    right += alike * shared
    right[:IDENTICAL] = left[:IDENTICAL]
    gold = np.round(5 * alike[:, 0, 0] + chance.standard_normal(pairs), 1).astype(np.float64)
    return left, right, gold


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()
