"""What an import reads of another store, and how its ranking compares with ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from retriever.indexing.ready_documents import ReadyDocument

Metric = Literal["cosine", "ip", "l2"]
_NAMES: dict[Metric, str] = {
    "cosine": "the cosine",
    "ip": "the inner product",
    "l2": "the Euclidean distance",
}


@dataclass(frozen=True, slots=True)
class Store:
    """A collection of another store.

    Attributes:
        documents: in the order of the store, read as a stream.
        metric: what the store ranks by.
    """

    documents: Iterator[ReadyDocument]
    metric: Metric


def ranking_note(source: str, metric: Metric, normalized: bool, scaled: int) -> str | None:
    """What to say if a dense search ranks otherwise than the store did; None if it does not.

    On vectors of length 1, all three metrics rank alike.

    Args:
        source: of the vectors.
        metric: what it ranks by.
        normalized: whether the encoder of the index gives vectors of length 1.
        scaled: number of vectors that were brought to that length.
    """
    if metric == ("cosine" if normalized else "ip") or (normalized and not scaled):
        return None
    ours = _NAMES["cosine" if normalized else "ip"]
    remedy = {
        "ip": "; for the same order, name the encoder with ::normalize=no",
        "cosine": "; for the same order, name the encoder without normalize=no",
        "l2": "",
    }[metric]
    lengths = f"{scaled:,} vectors are not of length 1, " if normalized else ""
    return (
        f"{source}: {lengths}the source ranks by {_NAMES[metric]}, a dense search here by {ours}, "
        f"so the order can differ{remedy}"
    )
