"""The cost of SBERT-WK relative to the forward pass, and the savings of skipped layers.

    python benchmarks/fusion_cost.py [--texts N ...] [--turns N] [--threads N]

Batches of 32 texts, and of one, which is what the paper times; all-MiniLM-L6-v2, a BERT-base shape
with random weights (times do not depend on them) and, if RETRIEVER_MODELS names a folder that
holds it, all-mpnet-base-v2. Forward pass and fusion are timed in turns in one run; the ratio is
that of the medians. The forward pass is the one that the fusion runs on, every layer of it, with
packed weights; plain transformers' own is given too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch

from retriever.encoders.fusion.sbert_wk import SBERTWKSettings, first_state, sbert_wk
from retriever.encoders.model_folders import ModelFolder, find_model
from retriever.encoders.settings import DEFAULT_MODEL
from retriever.encoders.transformer.backbone import Backbone

TEXTS = (1, 32)
LENGTHS = (20, 64, 128)


def main() -> None:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, nargs="+", default=TEXTS, help="texts in a batch")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        models = {"all-MiniLM-L6-v2": find_model(DEFAULT_MODEL), "BERT-base": _base(Path(folder))}
        mpnet = Path(os.environ.get("RETRIEVER_MODELS", "")) / "all-mpnet-base-v2"
        if mpnet.is_dir():
            models[mpnet.name] = find_model(str(mpnet))
        else:
            print(f"{mpnet.name} is not in RETRIEVER_MODELS: left out", file=sys.stderr)
        print(
            "| model | texts | pieces | preset | transformers, ms | forward, ms | fusion, ms "
            "| ratio |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for name, found in models.items():
            backbone, plain = Backbone(found, "cpu"), _plain(found)
            for texts, length, preset in product(arguments.texts, LENGTHS, ("paper", "released")):
                settings = SBERTWKSettings(preset).resolved(backbone.depth)
                row = _sbert_wk(backbone, plain, texts, length, settings, arguments.turns)
                print(f"| {name} | {texts} | {length} | {preset} | {row} |", flush=True)
        print(
            "\n| model | pieces | layers read | forward, ms | of the whole |\n|---|---|---|---|---|"
        )
        backbone = Backbone(models["all-MiniLM-L6-v2"], "cpu")
        for length in LENGTHS:
            for row in _early_exit(backbone, length, arguments.turns):
                print(f"| all-MiniLM-L6-v2 | {length} | {row} |", flush=True)


def _base(folder: Path) -> ModelFolder:
    """A BERT-base shape with random weights, beside the bundled model's tokenizer."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(0)
    BertModel(BertConfig()).save_pretrained(folder)
    AutoTokenizer.from_pretrained(find_model(DEFAULT_MODEL).path).save_pretrained(folder)
    return find_model(str(folder))


def _plain(found: ModelFolder) -> Any:
    from transformers import AutoModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    return AutoModel.from_pretrained(found.path, dtype=torch.float32).eval()


def _batch(backbone: Backbone, texts: int, length: int) -> Any:
    draw = torch.Generator().manual_seed(length)
    ids = torch.randint(1000, 30_000, (texts, length), generator=draw)
    return backbone.batch(ids.tolist())


def _sbert_wk(
    backbone: Backbone, plain: Any, texts: int, length: int, settings: SBERTWKSettings, turns: int
) -> str:
    batch = _batch(backbone, texts, length)
    layers = range(first_state(settings), backbone.depth + 1)
    kept = torch.ones(texts, length, dtype=torch.bool)
    kept[:, -1] = settings.preset == "paper"
    states: list[torch.Tensor] = []

    def forward() -> None:
        states.clear()
        backbone.run(batch, layers, lambda _, state: states.append(state))

    ways = [
        lambda: plain(**batch.inputs),
        forward,
        lambda: sbert_wk(states, kept, settings),
    ]
    theirs, ours, fusion = _in_turns(ways, turns)
    return f"{theirs:.1f} | {ours:.1f} | {fusion:.2f} | {100 * fusion / ours:.1f}%"


def _early_exit(backbone: Backbone, length: int, turns: int) -> list[str]:
    batch = _batch(backbone, max(TEXTS), length)
    chosen = [(backbone.depth,), (0, 2), (0,)]
    ways = [lambda layers=layers: backbone.run(batch, layers, lambda *_: None) for layers in chosen]
    times = _in_turns(ways, turns)
    return [
        f"{','.join(map(str, layers))} | {taken:.1f} | {taken / times[0]:.2f}"
        for layers, taken in zip(chosen, times, strict=True)
    ]


def _in_turns(ways: list[Callable[[], Any]], turns: int) -> list[float]:
    """The median milliseconds of each, called one after the other again and again."""
    taken: list[list[float]] = [[] for _ in ways]
    for turn in range(turns + 2):
        for way, times in zip(ways, taken, strict=True):
            started = time.perf_counter()
            way()
            if turn >= 2:
                times.append(1000 * (time.perf_counter() - started))
    return [statistics.median(times) for times in taken]


if __name__ == "__main__":
    main()
