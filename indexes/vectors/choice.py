"""Which FAISS structure a segment gets: a pure function of its size and of the memory allowed.

The names, what they cost, and what `auto` chooses, are in docs/index-format.md. FAISS trains lists
on 39 to 256 vectors each ("Guidelines to choose an index" in its wiki, which advises 4 √n to 16 √n
lists). Training takes as their square: beyond a million passages there are no more of them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from indexes.errors import ConfigError
from indexes.vectors.library import FLAT, code_bytes, faiss_reason, load_faiss, unwrap

AUTO = "auto"
NAMES = (AUTO, FLAT, "hnsw", "ivf", "ivf-sq8", "ivf-pq")

FLAT_LIMIT = 50_000
LEAST_TRAINING = 39  # vectors for each list or centroid
_SAMPLED = 64
_LEAST_SAMPLE = 65_536
_MOST_LISTS = 4096
_PQ_CENTROIDS = 256
_PQ_WIDTH = 4
_HNSW_LINKS = 32
# Beside the code: its id (int64), and the list that holds it (int32), for filters.
_LIST_ENTRY = 8 + 4


@dataclass(frozen=True, slots=True)
class Choice:
    """A structure for n passages, why, and what it is expected to cost."""

    name: str  # one of `NAMES` but `auto`, or the factory string
    factory: str  # FAISS's factory string, for inner products
    reasons: tuple[str, ...]  # sentences for a person, in the order of the decisions
    # What a search can touch, apart from the few vectors that are read to score candidates.
    memory_bytes: int
    build_bytes: int  # peak memory while it is built; 0 for `flat`

    @property
    def build_size(self) -> str:
        """`build_bytes` as text."""
        return _size(self.build_bytes)


def choose(n: int, d: int, memory_bytes: int | None) -> Choice:
    """The structure that `auto` chooses."""
    if n <= FLAT_LIMIT:
        reason = f"{n:,} passages, at most {FLAT_LIMIT:,}: scanning them all is fast and exact"
        return _choice(FLAT, n, d, (reason,))
    reasons = [f"{n:,} passages, more than {FLAT_LIMIT:,}: a query reads only the nearest lists"]
    for name in ("ivf-sq8", "ivf-pq"):
        choice = _choice(name, n, d, ())
        size = f"{name} takes about {_size(choice.memory_bytes)}"
        if memory_bytes is None:
            return _choice(name, n, d, (*reasons, f"{size}, and no limit is set"))
        if choice.memory_bytes <= memory_bytes:
            return _choice(name, n, d, (*reasons, f"{size} of {_size(memory_bytes)} allowed"))
        reasons.append(f"{size}, more than the {_size(memory_bytes)} allowed")
    reasons.append("no structure is smaller: parts are read from the disk")
    return _choice(name, n, d, tuple(reasons))


def resolve(name: str, n: int, d: int, memory_bytes: int | None) -> Choice:
    """The structure of a given name or, where n is too small to train it, the nearest."""
    if name == AUTO:
        return choose(n, d, memory_bytes)
    given = f"{name} was asked for"
    if name not in NAMES:
        return _custom(name, n, d, inspect_factory(name, d), given)
    if name == "ivf-pq" and LEAST_TRAINING <= n < LEAST_TRAINING * _PQ_CENTROIDS:
        reason = (
            f"{n:,} passages are too few to train a product quantizer, which needs "
            f"{LEAST_TRAINING * _PQ_CENTROIDS:,}: ivf-sq8 instead"
        )
        return _choice("ivf-sq8", n, d, (given, reason))
    if name != FLAT and n < LEAST_TRAINING:
        return _choice(FLAT, n, d, (given, f"{n:,} passages are too few for any structure: flat"))
    return _choice(name, n, d, (given,))


def list_count(n: int) -> int:
    """The number of inverted lists: 4 √n, with 39 passages or more per list, from 1 to 4,096."""
    return max(1, min(math.isqrt(16 * n), n // LEAST_TRAINING, _MOST_LISTS))


def training_size(n: int, lists: int) -> int:
    """The number of vectors to train on: 64 per list, and at least 65,536, or all n."""
    return min(n, max(_LEAST_SAMPLE, _SAMPLED * lists))


def _choice(name: str, n: int, d: int, reasons: tuple[str, ...]) -> Choice:
    """A named kind at its cost; n must suffice to train it."""
    if name == FLAT:
        return Choice(FLAT, "Flat", reasons, 4 * n * d, 0)
    lists = list_count(n)
    product = -(-d // _PQ_WIDTH)
    padding = f"Pad{product * _PQ_WIDTH}," if d % _PQ_WIDTH else ""
    factory, facts = {
        "hnsw": (f"HNSW{_HNSW_LINKS},Flat", FactoryFacts(4 * d, links=_HNSW_LINKS)),
        "ivf": (f"IVF{lists},Flat", FactoryFacts(4 * d, lists)),
        "ivf-sq8": (f"IVF{lists},SQ8", FactoryFacts(d, lists)),
        "ivf-pq": (
            f"{padding}IVF{lists},PQ{product}",
            FactoryFacts(product, lists, _PQ_CENTROIDS),
        ),
    }[name]
    return _priced(name, factory, n, d, reasons, facts)


def _custom(name: str, n: int, d: int, facts: FactoryFacts, given: str) -> Choice:
    least = max(facts.lists, facts.centroids, 1)
    if facts.is_flat:
        return _choice(FLAT, n, d, (f"{name} is flat: the vectors themselves are scanned",))
    if n < least:
        reason = f"{n:,} passages are too few to train it, which needs {least:,}: flat instead"
        return _choice(FLAT, n, d, (given, reason))
    reasons = [given]
    if n < LEAST_TRAINING * least:
        reasons.append(
            f"FAISS advises {LEAST_TRAINING} vectors for each of {least:,} centroids, "
            f"{LEAST_TRAINING * least:,} in all; there are {n:,}"
        )
    return _priced(name, name, n, d, tuple(reasons), facts)


def _priced(
    name: str, factory: str, n: int, d: int, reasons: tuple[str, ...], facts: FactoryFacts
) -> Choice:
    sample = training_size(n, facts.lists)
    entry = facts.code_bytes
    if facts.lists:
        entry += _LIST_ENTRY
    if facts.links:
        # Both directions at the bottom, an upper level for one in `links`, level and offset.
        entry += 4 * (2 * facts.links + 1) + 12
    memory = n * entry + 4 * d * (facts.lists + facts.centroids)
    return Choice(name, factory, reasons, memory, memory + 4 * d * sample)


def _size(count: int) -> str:
    if count < 10**9:
        return f"{count / 10**6:,.0f} MB"
    return f"{count / 10**9:,.1f} GB"


_LEAST_LINKS = 4


@dataclass(frozen=True, slots=True)
class FactoryFacts:
    """What a structure keeps and trains; 0 for what it does not have."""

    code_bytes: int  # of each vector
    lists: int = 0
    centroids: int = 0  # of each part of a product quantizer
    links: int = 0  # of each node of a graph, for one direction
    is_flat: bool = False  # the vectors themselves, which need no file


def inspect_factory(name: str, d: int) -> FactoryFacts:
    """Have FAISS read a factory string for vectors of `d` dimensions; nothing is trained."""
    faiss = load_faiss()

    def refused(reason: str) -> ConfigError:
        return ConfigError(
            f"index type {name!r:.200}: expected one of {', '.join(NAMES)} or a FAISS "
            f"factory string for {d} dimensions; {reason}"
        )

    # With fewer links FAISS ends the process while it builds the graph.
    links = re.search(r"(?:HNSW|NSG)(\d+)", name)
    if links and int(links[1]) < _LEAST_LINKS:
        raise refused(f"a graph needs at least {_LEAST_LINKS} links, found {links[1]}")
    try:
        index = faiss.index_factory(d, name, faiss.METRIC_INNER_PRODUCT)
    except (RuntimeError, MemoryError) as error:
        raise refused(f"FAISS says: {faiss_reason(error)}") from error
    transforms, core = unwrap(index)
    if isinstance(core, faiss.IndexIDMap) or re.match(r"IDMap", name):
        raise refused("passages have ids of their own: leave IDMap out")
    lists = int(getattr(core, "nlist", 0))
    if "IVF" in name and lists < 1:
        raise refused("it has no lists")
    # What FAISS keeps of each vector a second time to refine its results.
    refine = getattr(index, "refine_index", None)
    kept = 0 if refine is None else code_bytes(faiss.downcast_index(refine))
    product = getattr(core, "pq", None)
    return FactoryFacts(
        code_bytes=(code_bytes(core) or 4 * d) + kept,
        lists=lists,
        centroids=int(product.ksub) if product is not None else 0,
        links=int(core.hnsw.nb_neighbors(1)) if hasattr(core, "hnsw") else 0,
        is_flat=not transforms and type(core).__name__ in ("IndexFlat", "IndexFlatIP"),
    )
