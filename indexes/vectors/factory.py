"""What FAISS makes of a factory string, before anything is built from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from indexes.errors import ConfigError
from indexes.vectors.library import faiss_reason, load_faiss
from indexes.vectors.unwrapped import code_bytes, unwrap

_LONGEST = 200
_LEAST_LINKS = 4


@dataclass(frozen=True, slots=True)
class FactoryFacts:
    """What a structure keeps and trains.

    Attributes:
        code_bytes: of each vector.
        lists: inverted lists; 0 without.
        centroids: of each part of a product quantizer; 0 without.
        links: of each node of a graph, for one direction; 0 without.
        is_flat: the vectors themselves, which need no file.
    """

    code_bytes: int
    lists: int
    centroids: int
    links: int
    is_flat: bool


def inspect_factory(name: str, d: int, names: Sequence[str]) -> FactoryFacts:
    """Have FAISS read a factory string for vectors of `d` dimensions; nothing is trained.

    Args:
        name: the factory string.
        d: at least 1.
        names: what else could have been given, for the error.

    Raises:
        ConfigError: FAISS refuses it, or it cannot hold a segment.
        MissingExtraError: FAISS is not installed.
    """
    faiss = load_faiss()

    def refused(reason: str) -> ConfigError:
        return ConfigError(
            f"index type {name[:_LONGEST]!r}: expected one of {', '.join(names)} or a FAISS "
            f"factory string for {d} dimensions; {reason}"
        )

    if len(name) > _LONGEST:
        raise refused(f"it has {len(name)} characters, more than {_LONGEST}")
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
    graph = hasattr(core, "hnsw")
    product = getattr(core, "pq", None)
    return FactoryFacts(
        code_bytes=(code_bytes(core) or 4 * d) + _refinement(faiss, index),
        lists=lists,
        centroids=int(product.ksub) if product is not None else 0,
        links=int(core.hnsw.nb_neighbors(1)) if graph else 0,
        is_flat=not transforms and type(core).__name__ in ("IndexFlat", "IndexFlatIP"),
    )


def _refinement(faiss: object, index: object) -> int:
    """Bytes of each vector that FAISS keeps a second time to refine its results."""
    refine = getattr(index, "refine_index", None)
    if refine is None:
        return 0
    return code_bytes(faiss.downcast_index(refine))  # type: ignore[attr-defined]
