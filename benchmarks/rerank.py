"""Rerankers beside other implementations, in turns: heads in training, a cross-encoder that scores.

    python benchmarks/rerank.py [--data FOLDER] [--turns N] [--threads N]

Heads: random vectors in pools as those of TrecQA, 46 passages a question of which 5 answer it, 384
dimensions; all triples of 32 questions in a step, Adam. Beside them a plain loop over batches of as
many triples: the interaction of each triple's two pairs as one vector, then a linear layer or MLP.
Cross-encoder: pools of WikiQA's test questions, a part of them in each turn, with tokenizing,
beside sentence-transformers with the same random weights over all-MiniLM-L6-v2. Ratios are within a
turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from retriever.encoders import DEFAULT_MODEL, find_model
from retriever.encoders.transformer.backbone import Backbone
from retriever.rerankers import CrossEncoder, CrossHead, train_head
from retriever.training import HeadSettings, HeadTrainingSettings, JudgedPools, SamplingSettings
from retriever.training.sampling import epoch_batches

POOL, ANSWERS, DIMENSIONS = 46, 5, 384
PLAIN_BATCHES = 3
PAIRS, MAX_LENGTH = 512, 160
Vectors = NDArray[np.float32]
Pairs = list[tuple[str, str]]


def main() -> None:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data = os.environ.get("RETRIEVER_DATA")
    default = Path(data) / "wikiqa" if data else None
    parser.add_argument("--data", type=Path, default=default, required=default is None)
    parser.add_argument("--questions", type=int, default=640, help="to train heads on")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{arguments.threads} of {os.cpu_count()} cores; PyTorch {torch.__version__}\n")
    for line in heads(arguments.questions, arguments.turns):
        print(line, flush=True)
    pair_count = arguments.turns * PAIRS
    pairs = pools(arguments.data, pair_count)
    print()
    with tempfile.TemporaryDirectory() as folder:
        turns = [pairs[i : i + PAIRS] for i in range(0, len(pairs), PAIRS)]
        for line in cross(ways_to_score(Path(folder)), turns):
            print(line)


def heads(count: int, turns: int) -> Iterator[str]:
    """The lines of the table of heads."""
    chance = np.random.default_rng(0)
    questions, passages = (_unit(chance, rows) for rows in (count, count * POOL))
    starts = range(0, count * POOL, POOL)
    pools = JudgedPools.of(
        [range(start, start + ANSWERS) for start in starts],
        [range(start + ANSWERS, start + POOL) for start in starts],
        count * POOL,
    )
    triples = count * ANSWERS * (POOL - ANSWERS)
    yield "| interaction | head | triples/s | plain, triples/s | ratio |"
    yield "|---|---|---|---|---|"
    for interaction, head in product(("bilinear", "concat", "uv"), ("linear", "mlp")):
        settings = HeadSettings(interaction, head)  # type: ignore[arg-type]
        rates: list[float] = []
        plain: list[float] = []
        for _ in range(turns):
            ends: list[float] = []
            train_head(
                HeadTrainingSettings(epochs=2, patience=2, sampling=SamplingSettings(batch=32)),
                settings,
                questions,
                passages,
                pools,
                # Of the untrained head, and after each epoch.
                lambda _, ends=ends: ends.append(time.perf_counter()) or 0.0,
            )
            rates.append(triples / (ends[2] - ends[1]))
            plain.append(PlainHead(settings).rate(questions, passages, pools))
        ours, theirs = statistics.median(rates), statistics.median(plain)
        yield f"| {interaction} | {head} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.1f} |"


def _unit(chance: np.random.Generator, rows: int) -> Vectors:
    table = chance.standard_normal((rows, DIMENSIONS), dtype=np.float32)
    return table / np.linalg.norm(table, axis=1, keepdims=True)


class PlainHead(torch.nn.Module):
    """The same heads as they are usually written."""

    def __init__(self, settings: HeadSettings) -> None:
        super().__init__()
        self.interaction = settings.interaction
        width = DIMENSIONS * {"bilinear": 1, "concat": 2, "uv": 4}[settings.interaction]
        self.matrix = torch.nn.Linear(DIMENSIONS, DIMENSIONS, bias=False)
        self.top: torch.nn.Module = torch.nn.Linear(width, 1)
        if settings.head == "mlp":
            self.top = torch.nn.Sequential(
                torch.nn.Linear(width, settings.hidden),
                torch.nn.ReLU(),
                torch.nn.Dropout(settings.dropout),
                torch.nn.Linear(settings.hidden, 1),
            )

    def forward(self, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """(triples, dimensions) twice to (triples,)."""
        if self.interaction == "bilinear":
            return self.top(self.matrix(u) * v)[:, 0]
        parts = [u, v] if self.interaction == "concat" else [u, v, u * v, (u - v).abs()]
        return self.top(torch.cat(parts, 1))[:, 0]

    def rate(self, questions: Vectors, passages: Vectors, pools: JudgedPools) -> float:
        """Triples a second over a few batches, after one that is not counted."""
        u, v = torch.from_numpy(questions), torch.from_numpy(passages)
        optimizer = torch.optim.Adam(self.parameters())
        seconds, triples = 0.0, 0
        batches = epoch_batches(pools, SamplingSettings(batch=32), np.random.default_rng(0))
        for number, batch in zip(range(PLAIN_BATCHES + 1), batches, strict=False):
            started = time.perf_counter()
            right, wrong = batch.positive, batch.negative
            question_vectors = u[batch.question[right]]
            gaps = self(question_vectors, v[batch.passage[right]]) - self(
                question_vectors, v[batch.passage[wrong]]
            )
            optimizer.zero_grad()
            (1 - gaps).relu().mean().backward()
            optimizer.step()
            if number:
                seconds += time.perf_counter() - started
                triples += len(right)
        return triples / seconds


def ways_to_score(folder: Path) -> dict[str, Callable[[Pairs], Any]]:
    """Each way by its name, the peer first, all with the weights that are written to `folder`."""
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
    peer = Theirs(str(folder), device="cpu", max_length=MAX_LENGTH)
    quiet = {"activation_fn": torch.nn.Identity(), "show_progress_bar": False}
    ways: dict[str, Callable[[Pairs], Any]] = {
        "sentence-transformers float32": lambda pairs: peer.predict(pairs, **quiet)
    }
    for dtype in ("float32", "bfloat16"):
        backbone = Backbone(find_model(str(folder)), "cpu", dtype)  # type: ignore[arg-type]
        head = CrossHead(backbone.width).eval()
        head.dense.load_state_dict(whole.bert.pooler.dense.state_dict())
        head.out.load_state_dict(whole.classifier.state_dict())
        model = CrossEncoder(backbone, head, MAX_LENGTH, dtype)  # type: ignore[arg-type]
        ways[f"retriever {dtype}"] = partial(_score, model)
    return ways


def _score(model: CrossEncoder, pairs: Pairs) -> Any:
    return model.score([question for question, _ in pairs], [passage for _, passage in pairs])


def cross(ways: dict[str, Callable[[Pairs], Any]], turns: list[Pairs]) -> Iterator[str]:
    """The lines of the table of cross-encoders: every turn is scored by each of them."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    furthest = dict.fromkeys(ways, 0.0)
    first = next(iter(ways))
    for score in ways.values():
        score(turns[0][:64])
    for turn in turns:
        scores = {}
        for name, score in ways.items():
            started = time.perf_counter()
            scores[name] = score(turn)
            seconds[name].append(time.perf_counter() - started)
        for name, values in scores.items():
            furthest[name] = max(furthest[name], float(np.abs(values - scores[first]).max()))
    yield "| cross-encoder | pairs/s | times ST's rate | largest difference of a score |"
    yield "|---|---|---|---|"
    for name, times in seconds.items():
        rate = statistics.median(len(turn) / t for turn, t in zip(turns, times, strict=True))
        ratios = [a / b for a, b in zip(seconds[first], times, strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        yield f"| {name} | {rate:,.0f} | {spread} | {furthest[name]:.1e} |"


def pools(folder: Path, pair_count: int) -> Pairs:
    """Questions, each with the passages of its pool; from the start again where they run out."""
    from eval import read_question_set

    questions = read_question_set(folder, "test")
    pairs = [
        (question.text, questions.passages[passage])
        for question in questions.questions
        for passage in question.candidates
    ]
    return (pairs * -(-pair_count // len(pairs)))[:pair_count]


if __name__ == "__main__":
    main()
