"""Pairs per second of a cross-encoder and of sentence-transformers with the same weights, in turns.

    python benchmarks/rerank_cross.py [--data FOLDER] [--turns N] [--pairs N] [--threads N]

The pairs are pools of WikiQA's test questions, a part of them in each turn, including tokenization;
without --data and RETRIEVER_DATA they are random words of similar length. The transformer is
all-MiniLM-L6-v2 with its pooler and an output layer of random weights, so the scores have no
meaning. In each turn all scorers score the same pairs; ratios are within a turn.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from retriever.encoders.model_folders import find_model
from retriever.encoders.settings import DEFAULT_MODEL, Dtype
from retriever.encoders.transformer.backbone import Backbone
from retriever.rerankers.cross import CrossEncoder
from retriever.rerankers.scorers import CrossHead

BESIDE = "sentence-transformers float32"
DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")
Pairs = list[tuple[str, str]]
Score = Callable[[Pairs], Any]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    data = os.environ.get("RETRIEVER_DATA")
    default = Path(data) / "wikiqa" if data else None
    parser.add_argument("--data", type=Path, default=default, help="a folder of WikiQA")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--pairs", type=int, default=512, help="of a turn")
    parser.add_argument("--max-length", type=int, default=160, help="of a pair, in word pieces")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    wanted = arguments.turns * arguments.pairs
    pairs = made_up(wanted) if arguments.data is None else pools(arguments.data, wanted)
    turns = [pairs[i : i + arguments.pairs] for i in range(0, len(pairs), arguments.pairs)]
    with tempfile.TemporaryDirectory() as folder:
        ways = ways_to_score(Path(folder), arguments.max_length)
        source = "made-up words" if arguments.data is None else "WikiQA test"
        print(
            f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
            f"{arguments.threads} threads; PyTorch {torch.__version__}; {source}, {len(turns)} "
            f"turns of {arguments.pairs} pairs\n"
        )
        print("| cross-encoder | pairs/s | times ST's rate | largest difference of a score |")
        print("|---|---|---|---|")
        for row in compare(ways, turns):
            print(f"| {' | '.join(row)} |")


def ways_to_score(folder: Path, max_length: int) -> dict[str, Score]:
    """Each way by its name, all with the same weights, which are written to `folder`."""
    from sentence_transformers import CrossEncoder as Theirs
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, logging

    # They would tell that the last layer is new.
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    source = find_model(DEFAULT_MODEL).path
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    whole = AutoModelForSequenceClassification.from_pretrained(source, num_labels=1)
    torch.manual_seed(0)
    torch.nn.init.normal_(whole.classifier.weight, std=0.2)
    whole.save_pretrained(folder)
    peer = Theirs(str(folder), device="cpu", max_length=max_length)

    def theirs(pairs: Pairs) -> Any:
        return peer.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)

    def ours(dtype: Dtype) -> Score:
        backbone = Backbone(find_model(str(folder)), "cpu", dtype)
        head = CrossHead(backbone.width).eval()
        head.dense.load_state_dict(whole.bert.pooler.dense.state_dict())
        head.out.load_state_dict(whole.classifier.state_dict())
        model = CrossEncoder(backbone, head, max_length, dtype)
        return lambda pairs: model.score([one for one, _ in pairs], [one for _, one in pairs])

    return {BESIDE: theirs, **{f"retriever {dtype}": ours(dtype) for dtype in DTYPES}}


def compare(ways: dict[str, Score], turns: Sequence[Pairs]) -> list[tuple[str, ...]]:
    """One row a way: every turn is scored by each of them."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    furthest = dict.fromkeys(ways, 0.0)
    for score in ways.values():
        score(turns[0][:64])
    for turn in turns:
        scores = {}
        for name, score in ways.items():
            started = time.perf_counter()
            scores[name] = score(turn)
            seconds[name].append(time.perf_counter() - started)
        for name, found in scores.items():
            furthest[name] = max(furthest[name], float(np.abs(found - scores[BESIDE]).max()))
    rows: list[tuple[str, ...]] = []
    for name, times in seconds.items():
        rate = statistics.median(len(turn) / t for turn, t in zip(turns, times, strict=True))
        ratios = [a / b for a, b in zip(seconds[BESIDE], times, strict=True)]
        rows.append(
            (
                name,
                f"{rate:,.0f}",
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                f"{furthest[name]:.1e}",
            )
        )
    return rows


def pools(folder: Path, wanted: int) -> Pairs:
    """Questions, each with the passages of its pool; from the start again where they run out."""
    from eval.datasets.question_forms import read_question_set

    questions = read_question_set(folder, "test")
    pairs = [
        (question.text, questions.passages[passage])
        for question in questions.questions
        for passage in question.candidates
    ]
    return (pairs * -(-wanted // len(pairs)))[:wanted]


def made_up(wanted: int) -> Pairs:
    """Words that say nothing: 4 to 12 a question, 5 to 60 a passage, ten passages a question."""
    chance = random.Random(0)
    words = ["in", "of", "the", "a", "water", "stone", "house", "river", "first", "called", "year"]

    def text(least: int, most: int) -> str:
        return " ".join(chance.choices(words, k=chance.randint(least, most)))

    questions = [text(4, 12) for _ in range(-(-wanted // 10))]
    return [(questions[number // 10], text(5, 60)) for number in range(wanted)]


if __name__ == "__main__":
    main()
