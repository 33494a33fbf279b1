"""`retriever serve` beside a plain FastAPI app around sentence-transformers and FAISS.

    python benchmarks/serve.py [--documents N] [--clients 1,10,50,200] [--seconds S] [--rounds N]

Both services have the same vectors, model and queries. Clients keep their connection and ask again
as soon as they have an answer; the systems take turns, and all run on this machine. Memory is the
resident set of the service's process at the end of its turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import psutil
from pydantic import BaseModel

from retriever import CorpusReader, Index

K = 10
# A sentence of WordNet is a short text; queries are its first words.
WORDS_OF_A_QUERY = 6


class Search(BaseModel):
    """A request to the plain app."""

    query: str
    k: int = K


@dataclass
class Load:
    """Latencies and errors that clients saw, total seconds, and the service's CPU seconds."""

    seconds: list[float] = field(default_factory=list)
    errors: int = 0
    elapsed: float = 0.0
    cpu: float = 0.0

    def row(self) -> str:
        """Throughput and percentiles as cells of a table."""
        cuts = statistics.quantiles(self.seconds, n=100, method="inclusive")
        rate = len(self.seconds) / self.elapsed
        times = " | ".join(f"{1000 * cuts[place]:.1f}" for place in (49, 94, 98))
        cpu = 1000 * self.cpu / len(self.seconds)
        return f"{rate:.0f} | {times} | {cpu:.1f} | {self.errors}"


@dataclass(frozen=True)
class System:
    """A service that runs, and the request of a search to it."""

    name: str
    port: int
    path: str
    body: dict[str, object]
    process: psutil.Process


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, help="JSON Lines; oewn_sentences by default")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--clients", default="1,10,50,200")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each number of clients")
    parser.add_argument("--rounds", type=int, default=3, help="turns among which they are divided")
    parser.add_argument("--dtype", default="auto", help="that queries are encoded in")
    parser.add_argument("--work", type=Path, help="folder that keeps the index for the next run")
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        _peer(arguments.peer)
        return
    with ExitStack() as stack:
        work = arguments.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = work / "index"
        texts = _texts(arguments.corpus, arguments.documents)
        with Index.create(folder) as index:
            if len(index) < len(texts):
                index.add({"id": str(number), "text": text} for number, text in enumerate(texts))
            index.export(work / "vectors.npy")
        chance = random.Random(1)
        queries = [
            " ".join(text.split()[:WORDS_OF_A_QUERY]) for text in chance.choices(texts, k=2000)
        ]
        times = ", ".join(f"{_first_answer(folder):.2f}" for _ in range(3))
        print(f"first answer after the start of the process, s: {times}\n", flush=True)
        ours = stack.enter_context(
            _started("serve", "-m", "cli.main", "serve", str(folder), "--dtype", arguments.dtype)
        )
        peer = stack.enter_context(_started("peer", __file__, "--peer", str(work / "vectors.npy")))
        systems = [
            System("retriever serve, dense", *ours[:1], "/search", {"mode": "dense"}, ours[1]),
            System("retriever serve, hybrid", *ours[:1], "/search", {"mode": "hybrid"}, ours[1]),
            System("FastAPI + sentence-transformers + FAISS", *peer[:1], "/search", {}, peer[1]),
        ]
        for system in systems:
            asyncio.run(_load(system, queries, 2, 3.0, Load()))
        print(f"{len(texts):,} documents, k = {K}, {arguments.seconds:g} s for each row\n")
        print(
            "| clients | system | queries a second | p50, ms | p95, ms | p99, ms "
            "| CPU, ms a query | errors |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for clients in map(int, arguments.clients.split(",")):
            loads = [Load() for _ in systems]
            for _ in range(arguments.rounds):
                for system, load in zip(systems, loads, strict=True):
                    seconds = arguments.seconds / arguments.rounds
                    asyncio.run(_load(system, queries, clients, seconds, load))
            for system, load in zip(systems, loads, strict=True):
                print(f"| {clients} | {system.name} | {load.row()} |", flush=True)
        for system in (systems[0], systems[2]):
            print(f"\n{system.name}: {system.process.memory_info().rss / 2**20:.0f} MiB")


def _texts(corpus: Path | None, documents: int) -> list[str]:
    path = corpus or Path(os.environ["RETRIEVER_DATA"]) / "oewn_sentences/corpus.jsonl"
    texts = []
    for document in CorpusReader(path):
        for line in document.text.splitlines():
            if len(line.split()) >= WORDS_OF_A_QUERY:
                texts.append(line)
            if len(texts) == documents:
                return texts
    return texts


@contextmanager
def _started(kind: str, *command: str) -> Iterator[tuple[int, psutil.Process]]:
    """A service as a process: its port, and the process."""
    options = ["--port", "0"] if kind == "serve" else []
    with subprocess.Popen(
        [sys.executable, *command, *options], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            yield int(line.split("http://127.0.0.1:")[1].split("/")[0]), psutil.Process(process.pid)
        finally:
            process.terminate()


def _first_answer(folder: Path) -> float:
    """Seconds from the start of a process to its first answer."""
    begun = time.perf_counter()
    with _started("serve", "-m", "cli.main", "serve", str(folder)) as (port, _):
        with urlopen(f"http://127.0.0.1:{port}/search?query=a+large+animal") as answer:
            answer.read()
        return time.perf_counter() - begun


async def _load(
    system: System, queries: Sequence[str], clients: int, seconds: float, load: Load
) -> None:
    """Let some clients ask for some seconds."""
    begun, spent = time.perf_counter(), _cpu(system.process)
    until = begun + seconds
    await asyncio.gather(
        *(_client(system, queries, number, until, load) for number in range(clients))
    )
    load.elapsed += time.perf_counter() - begun
    load.cpu += _cpu(system.process) - spent


async def _client(
    system: System, queries: Sequence[str], number: int, until: float, load: Load
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", system.port)
    chance = random.Random(number)
    try:
        while time.perf_counter() < until:
            body = json.dumps({"query": chance.choice(queries), "k": K, **system.body}).encode()
            begun = time.perf_counter()
            writer.write(
                f"POST {system.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
                f"\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode().lower().split("\r\n")
            length = next(line for line in lines if line.startswith("content-length:"))
            await reader.readexactly(int(length.split(":")[1]))
            if " 200 " in lines[0]:
                load.seconds.append(time.perf_counter() - begun)
            else:
                load.errors += 1
    finally:
        writer.close()


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _peer(vectors: Path) -> None:
    """The plain app: each request encodes its query and searches a flat index."""
    import faiss
    import uvicorn
    from fastapi import FastAPI
    from sentence_transformers import SentenceTransformer

    from retriever.encoders import DEFAULT_MODEL, find_model
    from retriever.service import open_socket

    model = SentenceTransformer(str(find_model(DEFAULT_MODEL, download=False).path), device="cpu")
    passage_vectors = np.load(vectors).astype(np.float32)
    index = faiss.IndexFlatIP(passage_vectors.shape[1])
    index.add(passage_vectors)
    ids = [json.loads(line)["id"] for line in vectors.with_suffix(".ids.jsonl").open()]

    app = FastAPI()

    @app.post("/search")
    def search(request: Search) -> dict[str, object]:
        vector = model.encode([request.query], normalize_embeddings=True, show_progress_bar=False)
        scores, places = index.search(vector, request.k)
        return {
            "hits": [
                {"id": ids[place], "score": float(score)}
                for place, score in zip(places[0].tolist(), scores[0].tolist(), strict=True)
            ]
        }

    with open_socket("127.0.0.1", 0) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()
