"""The choice of a search structure for a segment, from its size and the memory allowed.

docs/reference/index-format.md has the names, their costs and the choice of `auto`. FAISS trains
lists on 39 to 256 vectors each ("Guidelines to choose an index" in its wiki, which advises 4 √n to
16 √n lists). Training time grows as the square of their number, which stops growing at a million
passages.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from indexes.errors import ConfigError
from indexes.vectors.library import FLAT, code_bytes, faiss_reason, load_faiss, unwrap

AUTO = "auto"
NAMES = (AUTO, FLAT, "hnsw", "ivf", "ivf-sq8", "ivf-pq")

# Passages up to which `auto` scans all vectors, in some milliseconds.
FLAT_LIMIT = 50_000
# Vectors that FAISS needs to train each list or centroid.
LEAST_TRAINING = 39
# Vectors that each list is trained on, and all lists at least.
_SAMPLED_PER_LIST = 64
_LEAST_SAMPLE = 65_536
# The 4 √n lists of a million passages.
_MOST_LISTS = 4096
# Centroids of each part of a product quantizer: as many as a byte has values.
_PQ_CENTROIDS = 256
# Dimensions that one byte of a product quantizer stands for.
_PQ_WIDTH = 4
# Links of each node of a graph, for one direction; FAISS's own default.
_HNSW_LINKS = 32
# Bytes beside a code: its id (int64), and its place in the member lists (int32), for filters.
_LIST_ENTRY_BYTES = 8 + 4
# With fewer links FAISS ends the process while it builds a graph.
_LEAST_LINKS = 4


@dataclass(frozen=True, slots=True)
class Choice:
    """A structure for n passages, the reasons for it and its expected cost."""

    name: str  # one of `NAMES` but `auto`, or the factory string
    factory: str  # FAISS's factory string, for inner products
    reasons: tuple[str, ...]  # sentences for a person, in the order of the decisions
    # Bytes that a search can read, without the few vectors that score candidates.
    memory_bytes: int
    build_bytes: int  # peak memory while it is built; 0 for `flat`

    @property
    def build_size(self) -> str:
        """`build_bytes` as text."""
        return _size(self.build_bytes)


def choose(n: int, d: int, memory_bytes: int | None) -> Choice:
    """Return the structure that `auto` chooses."""
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
    """Return the structure of a name or, if n is too small to train it, the nearest one."""
    if name == AUTO:
        return choose(n, d, memory_bytes)
    reason = f"{name} was asked for"
    if name not in NAMES:
        return _custom_choice(name, n, d, inspect_factory(name, d), reason)
    if name == "ivf-pq" and LEAST_TRAINING <= n < LEAST_TRAINING * _PQ_CENTROIDS:
        too_few = (
            f"{n:,} passages are too few to train a product quantizer, which needs "
            f"{LEAST_TRAINING * _PQ_CENTROIDS:,}: ivf-sq8 instead"
        )
        return _choice("ivf-sq8", n, d, (reason, too_few))
    if name != FLAT and n < LEAST_TRAINING:
        too_few = f"{n:,} passages are too few for any structure: flat"
        return _choice(FLAT, n, d, (reason, too_few))
    return _choice(name, n, d, (reason,))


def list_count(n: int) -> int:
    """Return the number of inverted lists: 4 √n, from 1 to 4,096, each of 39 passages or more."""
    return max(1, min(math.isqrt(16 * n), n // LEAST_TRAINING, _MOST_LISTS))


def training_size(n: int, lists: int) -> int:
    """Return the number of vectors to train on: 64 a list, at least 65,536, at most n."""
    return min(n, max(_LEAST_SAMPLE, _SAMPLED_PER_LIST * lists))


def _choice(name: str, n: int, d: int, reasons: tuple[str, ...]) -> Choice:
    """Return the choice of a named structure; n must suffice to train it."""
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
    return _with_cost(name, factory, n, d, reasons, facts)


def _custom_choice(name: str, n: int, d: int, facts: FactoryFacts, asked_for: str) -> Choice:
    """Return the choice of a factory string, or flat if n is too small to train it."""
    least = max(facts.lists, facts.centroids, 1)
    if facts.is_flat:
        return _choice(FLAT, n, d, (f"{name} is flat: the vectors themselves are scanned",))
    if n < least:
        reason = f"{n:,} passages are too few to train it, which needs {least:,}: flat instead"
        return _choice(FLAT, n, d, (asked_for, reason))
    reasons = [asked_for]
    if n < LEAST_TRAINING * least:
        reasons.append(
            f"FAISS advises {LEAST_TRAINING} vectors for each of {least:,} centroids, "
            f"{LEAST_TRAINING * least:,} in all; there are {n:,}"
        )
    return _with_cost(name, name, n, d, tuple(reasons), facts)


def _with_cost(
    name: str, factory: str, n: int, d: int, reasons: tuple[str, ...], facts: FactoryFacts
) -> Choice:
    """Return a choice with the memory that searching and building take."""
    sample = training_size(n, facts.lists)
    entry_bytes = facts.code_bytes
    if facts.lists:
        entry_bytes += _LIST_ENTRY_BYTES
    if facts.links:
        # Both directions at the bottom, an upper level for one node in `links`, level and offset.
        entry_bytes += 4 * (2 * facts.links + 1) + 12
    memory = n * entry_bytes + 4 * d * (facts.lists + facts.centroids)
    return Choice(name, factory, reasons, memory, memory + 4 * d * sample)


def _size(count: int) -> str:
    """Format a number of bytes."""
    if count < 10**9:
        return f"{count / 10**6:,.0f} MB"
    return f"{count / 10**9:,.1f} GB"


@dataclass(frozen=True, slots=True)
class FactoryFacts:
    """The parts of a structure that cost memory or training; 0 for a part that it lacks."""

    code_bytes: int  # of each vector
    lists: int = 0
    centroids: int = 0  # of each part of a product quantizer
    links: int = 0  # of each node of a graph, for one direction
    is_flat: bool = False  # searches the vectors themselves, and needs no file


def inspect_factory(name: str, d: int) -> FactoryFacts:
    """Read a factory string for vectors of `d` dimensions by FAISS, without training."""
    faiss = load_faiss()

    def refused(reason: str) -> ConfigError:
        return ConfigError(
            f"index type {name!r:.200}: expected one of {', '.join(NAMES)} or a FAISS "
            f"factory string for {d} dimensions; {reason}"
        )

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
    # A second code of each vector, by which FAISS refines its results.
    refine = getattr(index, "refine_index", None)
    refine_bytes = 0 if refine is None else code_bytes(faiss.downcast_index(refine))
    product = getattr(core, "pq", None)
    return FactoryFacts(
        code_bytes=(code_bytes(core) or 4 * d) + refine_bytes,
        lists=lists,
        centroids=int(product.ksub) if product is not None else 0,
        links=int(core.hnsw.nb_neighbors(1)) if hasattr(core, "hnsw") else 0,
        is_flat=not transforms and type(core).__name__ in ("IndexFlat", "IndexFlatIP"),
    )
