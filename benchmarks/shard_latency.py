"""What the slowest of several shards costs: a simulation over measured latencies of one.

    python benchmarks/shard_latency.py measure INDEX latencies.json [--queries FILE] [--mode MODE]
    python benchmarks/shard_latency.py simulate latencies.json

A search over n shards waits for the slowest of them. `measure` asks each query many times in turns
and writes the seconds of each, a list per query; any other program can write such a file, of
another store or of real requests. Queries are encoded before, since a search over shards encodes
once. Without --queries they are those of `benchmarks/scale/synthetic.py`.

`simulate` draws a query, and for each shard one of the times that this query took: a query that is
slow everywhere does not count as bad luck n times, what differs from time to time does. With
hedging, a shard that has not answered after the 95th percentile is asked a second time, of a
replica, and the first answer counts. Each shard holds as many passages as the measured index.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SHARDS = (1, 2, 4, 8, 16, 32, 64)
DRAWS = 200_000
PERCENTILES = (50, 95, 99, 99.9)
# Draws simulated at a time.
_PART = 20_000


def main() -> None:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("index")
    measuring.add_argument("latencies", type=Path)
    measuring.add_argument("--queries", type=Path, help="one query per line")
    measuring.add_argument("--number", type=int, default=200, help="of synthetic queries")
    measuring.add_argument("--rounds", type=int, default=100, help="times that each is asked")
    measuring.add_argument("--mode", default="hybrid", choices=["dense", "bm25", "hybrid"])
    measuring.add_argument("-k", type=int, default=10)
    simulating = commands.add_parser("simulate")
    simulating.add_argument("latencies", type=Path)
    simulating.add_argument("--hedge", type=float, default=95.0, help="percentile of the delay")
    simulating.add_argument("--network-ms", type=float, default=0.0, help="added to each answer")
    arguments = parser.parse_args()
    if arguments.command == "measure":
        measured = measure(arguments)
        arguments.latencies.write_text(json.dumps(measured))
    else:
        report(json.loads(arguments.latencies.read_text()), arguments.hedge, arguments.network_ms)


def measure(arguments: argparse.Namespace) -> dict[str, object]:
    """The seconds of each query, round by round, so that what disturbs meets all alike."""
    from retriever import Index, QueryVectors, SearchSettings

    settings = SearchSettings(mode=arguments.mode, k=arguments.k)
    with Index.open(arguments.index) as index:
        if arguments.queries is None:
            sys.path.insert(0, str(Path(__file__).parent / "scale"))
            from synthetic import queries

            texts, vectors = queries(arguments.number)
        else:
            texts = arguments.queries.read_text("utf-8").splitlines()
            vectors = index.encoder.encode(texts, query=True)
        seconds: list[list[float]] = [[] for _ in texts]
        for number in range(arguments.rounds + 1):
            for text, vector, found in zip(texts, vectors, seconds, strict=True):
                ready = QueryVectors(vector[None], index.encoder_spec)
                started = time.perf_counter()
                list(index.search_many([text], settings, ready=ready))
                # The first round reads the files.
                if number:
                    found.append(time.perf_counter() - started)
        what = f"{index.info()['passages']:,} passages, {arguments.mode}"
    return {"what": what, "seconds": seconds}


def report(measured: dict[str, object], hedge: float, network_ms: float) -> None:
    """Print the table of `docs/scale-out.md`."""
    rows = np.array(measured["seconds"], np.float64) * 1000 + network_ms
    delay = float(np.percentile(rows, hedge))
    print(f"{measured['what']}; {len(rows)} queries, {rows.shape[1]} times each\n")
    names = [f"p{one:g}" for one in PERCENTILES]
    print(f"| shards | {' | '.join(names)} | hedged: {' | '.join(names)} | asked twice |")
    print("|" + "---|" * (2 + 2 * len(names)))
    for shards in SHARDS:
        plain, _ = simulate(rows, shards, None)
        hedged, twice = simulate(rows, shards, delay)
        figures = [f"{one:.1f}" for one in np.percentile(plain, PERCENTILES)]
        figures += [f"{one:.1f}" for one in np.percentile(hedged, PERCENTILES)]
        print(f"| {shards} | {' | '.join(figures)} | {twice:.1%} |")


def simulate(
    rows: NDArray[np.float64], shards: int, delay: float | None, draws: int = DRAWS, seed: int = 0
) -> tuple[NDArray[np.float64], float]:
    """Milliseconds of searches that wait for the slowest shard.

    Args:
        rows: (queries, rounds) milliseconds of one shard.
        shards: how many answer.
        delay: milliseconds after which a shard is asked a second time; None for never.
        draws: how many searches to simulate.
        seed: of the draws.

    Returns:
        (draws,), and the share of requests that were sent twice.
    """
    chance = np.random.default_rng(seed)
    slowest, twice = [], 0
    for start in range(0, draws, _PART):
        size = (min(_PART, draws - start), shards)
        queries = chance.integers(0, len(rows), size[0])[:, None]
        found = rows[queries, chance.integers(0, rows.shape[1], size)]
        if delay is not None:
            again = rows[queries, chance.integers(0, rows.shape[1], size)]
            twice += int(np.count_nonzero(found > delay))
            found = np.where(found > delay, np.minimum(found, delay + again), found)
        slowest.append(found.max(axis=1))
    return np.concatenate(slowest), twice / (draws * shards)


if __name__ == "__main__":
    main()
