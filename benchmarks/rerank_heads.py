"""Triples per second of training heads on frozen vectors, compared with a plain implementation.

    python benchmarks/rerank_heads.py [--questions N] [--threads N]

Random vectors in pools as those of TrecQA: 46 passages a question, of which 5 answer it, 384
dimensions; all triples of 32 questions in a step, Adam. The plain implementation is a loop over
batches of as many triples: the interaction of each triple's two pairs as one vector, and one linear
layer or MLP over it. Both are timed in turns: epochs of ours, a few batches of the other.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray

from retriever.rerankers.head import train_head
from retriever.rerankers.settings import HeadSettings, HeadTrainingSettings
from retriever.training.sampling import JudgedPools, SamplingSettings, epoch_batches

POOL, ANSWERS, DIMENSIONS = 46, 5, 384
Vectors = NDArray[np.float32]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=640)
    parser.add_argument("--step", type=int, default=32, help="questions of a step")
    parser.add_argument("--turns", type=int, default=3, help="of both ways; the medians count")
    parser.add_argument("--plain-batches", type=int, default=3, help="batches of a turn")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    questions, passages, pools = _made(arguments.questions)
    sampling = SamplingSettings(questions=arguments.step)
    triples = arguments.questions * ANSWERS * (POOL - ANSWERS)
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"{arguments.threads} threads; PyTorch {torch.__version__}; {arguments.questions} "
        f"questions, {len(passages):,} passages, {triples:,} triples an epoch\n"
    )
    print("| interaction | head | triples/s | plain, triples/s | ratio |\n|---|---|---|---|---|")
    for interaction, head in product(("bilinear", "concat", "uv"), ("linear", "mlp")):
        settings = HeadSettings(interaction, head)  # type: ignore[arg-type]
        rates: list[float] = []
        plain_rates: list[float] = []
        for _ in range(arguments.turns):
            rates.append(triples / _epoch_seconds(settings, sampling, questions, passages, pools))
            plain = _PlainHead(settings)
            plain_rates.append(
                plain.rate(questions, passages, pools, sampling, arguments.plain_batches)
            )
        ours, theirs = statistics.median(rates), statistics.median(plain_rates)
        print(
            f"| {interaction} | {head} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.1f} |",
            flush=True,
        )


def _made(questions: int) -> tuple[Vectors, Vectors, JudgedPools]:
    chance = np.random.default_rng(0)
    tables = []
    for rows in (questions, questions * POOL):
        table = chance.standard_normal((rows, DIMENSIONS), dtype=np.float32)
        tables.append(table / np.linalg.norm(table, axis=1, keepdims=True))
    starts = range(0, questions * POOL, POOL)
    pools = JudgedPools.of(
        [range(start, start + ANSWERS) for start in starts],
        [range(start + ANSWERS, start + POOL) for start in starts],
        questions * POOL,
    )
    return tables[0], tables[1], pools


def _epoch_seconds(
    settings: HeadSettings,
    sampling: SamplingSettings,
    questions: Vectors,
    passages: Vectors,
    pools: JudgedPools,
) -> float:
    """The second epoch of a training."""
    times: list[float] = []
    train_head(
        HeadTrainingSettings(epochs=2, patience=2, sampling=sampling),
        settings,
        questions,
        passages,
        pools,
        lambda _: 0.0,
        lambda _: times.append(time.perf_counter()),
    )
    return times[2] - times[1]


class _PlainHead(torch.nn.Module):
    """The same heads as they are usually written."""

    def __init__(self, settings: HeadSettings) -> None:
        super().__init__()
        self.interaction = settings.interaction
        width = DIMENSIONS * {"bilinear": 1, "concat": 2, "uv": 4}[settings.interaction]
        self.matrix = torch.nn.Linear(DIMENSIONS, DIMENSIONS, bias=False)
        if settings.head == "linear":
            self.top: torch.nn.Module = torch.nn.Linear(width, 1)
        else:
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

    def rate(
        self,
        questions: Vectors,
        passages: Vectors,
        pools: JudgedPools,
        sampling: SamplingSettings,
        batches: int,
    ) -> float:
        """Triples a second over a few batches, after one that is not counted."""
        u, v = torch.from_numpy(questions), torch.from_numpy(passages)
        optimizer = torch.optim.Adam(self.parameters())
        seconds, triples = 0.0, 0
        made = epoch_batches(pools, sampling, np.random.default_rng(0))
        for number, batch in zip(range(batches + 1), made, strict=False):
            started = time.perf_counter()
            right, wrong = batch.positive, batch.negative
            asked = u[batch.question[right]]
            gaps = self(asked, v[batch.passage[right]]) - self(asked, v[batch.passage[wrong]])
            loss = (1 - gaps).relu().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number:
                seconds += time.perf_counter() - started
                triples += len(right)
        return triples / seconds


if __name__ == "__main__":
    main()
