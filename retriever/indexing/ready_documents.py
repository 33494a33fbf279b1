"""Documents with the vectors of their passages, and what keeps one from being stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retriever.documents import Document, string_fault
from retriever.encoders.spec import EncoderSpec

# A vector whose length is nearer to 1 than this stays as it is.
_UNIT = 1e-4


class AnalyzedTerms(NamedTuple):
    """The terms of the passages of a document.

    Attributes:
        analyzer: `Analyzer.identity` of the one that made them.
        passages: the terms of each passage, repeated as often as they occur, in any order.
    """

    analyzer: str
    passages: list[list[str]]


@dataclass(frozen=True, slots=True)
class ReadyDocument:
    """A document with the vectors of its passages.

    Attributes:
        document: the document.
        spans: (start, stop) character offsets of its passages in the text, at least one pair.
        vectors: (passages, dimensions) float32, finite; other floats are rounded.
        terms: of its passages; an index with another analyzer analyzes the text, as with None.
        computed: how the vectors were computed, as `info` shows it, if that is known.
    """

    document: Document
    spans: list[tuple[int, int]]
    vectors: NDArray[np.float32]
    terms: AnalyzedTerms | None = None
    computed: Sequence[str] = ()


def passages_fault(one: ReadyDocument, spec: EncoderSpec) -> str | None:
    """What keeps the passages of a ready document from being stored, or None.

    Args:
        one: its document can be stored.
        spec: of the index's encoder.
    """
    characters, vectors = len(one.document.text), one.vectors
    if not one.spans:
        return "expected at least one passage, found none"
    for number, span in enumerate(one.spans, start=1):
        # Not bool, which the database and the checksum of a document write differently.
        whole = isinstance(span, tuple | list) and [*map(type, span)] == [int, int]
        if not whole or not 0 <= span[0] <= span[1] <= characters:
            return (
                f"passage {number}: expected integers from 0 to {characters}, the characters of "
                f"the text, as start and stop, found {span!r:.60}"
            )
    shape = (len(one.spans), spec.dimensions)
    if not isinstance(vectors, np.ndarray) or vectors.dtype.kind not in "fiu":
        found = vectors.dtype if isinstance(vectors, np.ndarray) else type(vectors).__name__
        return f"expected vectors as an array of float32, found {found}"
    if vectors.shape != shape:
        return (
            f"expected vectors of shape {shape}, one for each passage, as {spec} gives them, found "
            f"{vectors.shape}"
        )
    with np.errstate(over="ignore"):
        finite = np.isfinite(vectors.astype(np.float32, copy=False)).all(axis=1)
    if not finite.all():
        return (
            f"passage {int(finite.argmin()) + 1}: expected a vector of numbers that float32 holds, "
            "found NaN, infinity or one too large"
        )
    if one.terms is not None:
        if len(one.terms.passages) != len(one.spans):
            return f"expected terms of {len(one.spans)} passages, found {len(one.terms.passages)}"
        try:
            fault = string_fault("".join(chain.from_iterable(one.terms.passages)))
        except TypeError as error:
            return f"expected strings as terms, found others ({error})"
        if fault is not None:
            return f"a term {fault}"
    return None


def unit_vectors(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float32], int]:
    """Bring vectors to length 1.

    Args:
        vectors: (n, d) float32, finite.

    Returns:
        (n, d) float32, and how many were changed: neither those within 1e-4 of length 1, which
        only rounding keeps from it, nor zero.
    """
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    far = (np.abs(lengths - 1) > _UNIT) & (lengths > 0)
    if not far.any():
        return vectors, 0
    scaled = vectors.astype(np.float64)
    scaled[far] /= lengths[far, np.newaxis]
    return scaled.astype(np.float32), int(np.count_nonzero(far))
