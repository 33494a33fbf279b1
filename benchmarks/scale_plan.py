"""Machines, memory, disk and money for many passages, from measured costs of one.

    python benchmarks/scale_plan.py [--passages 1e7,1e8,1e9] [--target-ms 100] [--help]

Prints the tables of `docs/scale-out.md`. Everything beyond the sizes that were measured is
extrapolated: bytes and core-seconds grow with the number of passages, the time of a query is a
constant and a part that grows likewise. Every assumption is an option, and every measured figure
is in `PROFILES` or `ENGINES`, with its source.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict, dataclass, fields, replace

GIB = 2**30
HOURS = 730.0


@dataclass(frozen=True, slots=True)
class Profile:
    """What a passage costs in a store.

    Attributes:
        name: of the store.
        measured: number of passages of the largest index that was measured.
        hot: bytes of a passage that queries read all over, and that memory should hold.
        disk: bytes of a passage on the disk.
        base_ms, million_ms: p95 of a hybrid query on one thread: a constant, and what each million
            passages of the shard adds.
        build: core-seconds to add a million passages and build their search structure.
        many: whether the store divides an index among machines.
    """

    name: str
    measured: float
    hot: float
    disk: float
    base_ms: float
    million_ms: float
    build: float
    many: bool


# docs/scale.md: at 10 million passages 24.0 GB, 1,546 s on two cores to add and build, and hybrid
# queries at 6.09 and 30 ms (p95, 1 and 10 million, one thread). `hot` is the sum of structure, ids,
# order and postings in docs/scale-out.md.
_FOLDER = Profile("folder", 1e7, 620, 2400, 3.4, 2.66, 309, many=False)
# docs/scale-out.md: hybrid queries of 100,000 and 1 million passages at 9.3 and 16.4 ms (p95, one
# connection); 103 s to add a million and 313 s to build the graph, on two cores. `hot` is the graph
# and the postings.
_POSTGRES = Profile("PostgreSQL with pgvector", 1e6, 2942, 4992, 8.5, 7.9, 833, many=False)
PROFILES = [
    _FOLDER,
    _POSTGRES,
    replace(_FOLDER, name="a store of many machines, at the folder's costs", many=True),
]
# Passages of about 120 word pieces that one core encodes in a second with all-MiniLM-L6-v2: 45 on
# two cores by sentence-transformers (docs/benchmarks.md, AMD EPYC), times the ratios to it of
# docs/computing.md (Intel Sapphire Rapids).
_PEER = 45 / 2
ENGINES = {
    "sentence-transformers, float32": _PEER,
    "OpenVINO, float32": 1.48 * _PEER,
    "OpenVINO, int8": 3.61 * _PEER,
    "OpenVINO, bfloat16": 4.43 * _PEER,
}
# Bytes of a passage in a shard of `retriever encode --shards`; see docs/scale-out.md.
SHARD_BYTES = 2166


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the plan assumes; each is an option.

    Attributes:
        engine: one of `ENGINES`.
        target_ms: p95 of a hybrid query that a shard may take.
        queries: per second, on average over the busiest hour.
        busy: share of its cores that a machine may use for queries.
        replicas: machines that hold each shard.
        cores, memory_gib, disk_gib: of a machine.
        usable: share of its memory for what queries read.
        core_hour, memory_month, disk_month: price of a core for an hour, and of a GiB of memory and
            of SSD for a month, in dollars.
        encode_cores: cores that encode at the same time.
    """

    engine: str = "OpenVINO, bfloat16"
    target_ms: float = 100.0
    queries: float = 20.0
    busy: float = 0.5
    replicas: int = 2
    cores: int = 16
    memory_gib: float = 64.0
    disk_gib: float = 1000.0
    usable: float = 0.75
    core_hour: float = 0.03
    memory_month: float = 2.5
    disk_month: float = 0.10
    encode_cores: int = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """Machines for an index, and what each need alone would take.

    Attributes:
        needs: machines by need; the greatest decides.
        hot_gib, disk_gib: of one copy of the index.
        p95_ms: of a hybrid query on one shard.
        dollars: a month, all replicas.
    """

    needs: dict[str, int]
    hot_gib: float
    disk_gib: float
    p95_ms: float
    dollars: float

    @property
    def machines(self) -> int:
        """Shards, each on one machine."""
        return max(self.needs.values())

    @property
    def bottleneck(self) -> str:
        """The need that takes most machines; none where one machine does."""
        return "none" if self.machines == 1 else max(self.needs, key=lambda one: self.needs[one])


def plan(profile: Profile, passages: float, given: Assumptions) -> Plan:
    """How many machines an index of `passages` passages needs."""
    millions = passages / 1e6
    hot, disk = profile.hot * passages / GIB, profile.disk * passages / GIB
    most = max(given.target_ms - profile.base_ms, 0.1) / profile.million_ms
    # Every query runs on every shard: the part that grows is divided, the constant is not.
    spare = 1000 * given.cores * given.busy / given.queries - profile.base_ms
    needs = {
        "memory": math.ceil(hot / (given.memory_gib * given.usable)),
        "disk": math.ceil(disk / given.disk_gib),
        "latency": math.ceil(millions / most),
        "throughput": math.ceil(millions * profile.million_ms / max(spare, 1e-3)),
    }
    machines = max(needs.values())
    month = given.cores * given.core_hour * HOURS + given.memory_gib * given.memory_month
    month += given.disk_gib * given.disk_month
    p95 = profile.base_ms + profile.million_ms * millions / machines
    return Plan(needs, hot, disk, p95, month * machines * given.replicas)


def encoding_table(sizes: list[float], given: Assumptions) -> str:
    """Core-hours and dollars to encode, by engine."""
    lines = [
        f"| engine | passages/s of a core | {' | '.join(f'{one:,.0f}' for one in sizes)} |",
        "|---|---|" + "---|" * len(sizes),
    ]
    for name, rate in ENGINES.items():
        hours = [one / rate / 3600 for one in sizes]
        cells = [f"{one:,.0f} h, ${one * given.core_hour:,.0f}" for one in hours]
        lines.append(f"| {name} | {rate:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plan_table(profile: Profile, sizes: list[float], given: Assumptions) -> str:
    """One column for each number of passages."""
    plans = [plan(profile, one, given) for one in sizes]
    hours = [one / ENGINES[given.engine] / 3600 / given.encode_cores for one in sizes]
    links = [SHARD_BYTES * one / 1e9 for one in sizes]
    rows = {
        f"encoding on {given.encode_cores} cores, hours": [f"{one:,.1f}" for one in hours],
        "shards, GB": [f"{one:,.0f}" for one in links],
        "adding and building, core-hours": [
            f"{profile.build * one / 1e6 / 3600:,.1f}" for one in sizes
        ],
        "read by queries, GiB": [f"{one.hot_gib:,.0f}" for one in plans],
        "on the disk, GiB": [f"{one.disk_gib:,.0f}" for one in plans],
        **{
            f"machines for {need}": [f"{one.needs[need]:,}" for one in plans]
            for need in plans[0].needs
        },
        "machines, times replicas": [f"{one.machines:,} × {given.replicas}" for one in plans],
        "bottleneck": [one.bottleneck for one in plans],
        "hybrid query on a shard, p95, ms": [f"{one.p95_ms:,.0f}" for one in plans],
        "dollars a month": [f"{one.dollars:,.0f}" for one in plans],
    }
    header = f"| passages | {' | '.join(f'{one:,.0f}' for one in sizes)} |"
    lines = [header, "|---|" + "---|" * len(sizes)]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(row)} |" for name, row in rows.items())])


def largest(profile: Profile, given: Assumptions) -> float:
    """The most passages that one machine serves, to a tenth of a million."""
    low, high = 0, 100_000
    while high - low > 1:
        middle = (low + high) // 2
        fits = plan(profile, middle * 1e5, given).machines <= 1
        low, high = (middle, high) if fits else (low, middle)
    return low * 1e5


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--passages", default="1e7,1e8,1e9")
    for one in fields(Assumptions):
        kind = type(one.default)
        parser.add_argument(
            f"--{one.name.replace('_', '-')}",
            type=kind,
            default=one.default,
            choices=list(ENGINES) if one.name == "engine" else None,
            help=f"default: {one.default}",
        )
    asked = vars(parser.parse_args())
    sizes = [float(one) for one in asked.pop("passages").split(",")]
    given = replace(Assumptions(), **asked)
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in asdict(given).items()))
    print(f"\n{encoding_table(sizes, given)}")
    for profile in PROFILES:
        print(
            f"\n{profile.name}: measured to {profile.measured:,.0f} passages; one machine "
            f"serves up to {largest(profile, given):,.0f}"
        )
        if profile.many:
            print(f"\n{plan_table(profile, sizes, given)}")


if __name__ == "__main__":
    main()
