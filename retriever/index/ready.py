"""Documents with the vectors of their passages, from a program or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retriever.documents.document import AnyDocument, Document, as_document
from retriever.encoders.computing import describe_unbounded, find_unbounded
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, SourceError

T = TypeVar("T")
# A vector whose length is nearer to 1 than this stays as it is.
_UNIT = 1e-4


class AnalyzedTerms(NamedTuple):
    """The terms of each passage of a document, and the `Analyzer.identity` of what made them."""

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
    vectors: NDArray[np.floating[Any]]
    terms: AnalyzedTerms | None = None
    computed: Sequence[str] = ()

    @classmethod
    def whole(cls, document: Document, vector: ArrayLike) -> Self:
        """A document of one passage."""
        with np.errstate(over="ignore"):
            row = np.asarray(vector, np.float32)
        return cls(document, [(0, len(document.text))], row[np.newaxis])


def require_sound(one: ReadyDocument, spec: EncoderSpec, where: str) -> ReadyDocument:
    """The document itself; SourceError with its place if its passages cannot be stored."""
    fault = _passages_fault(one, spec)
    if fault is not None:
        raise SourceError(f"{where}: {fault}")
    return one


def _passages_fault(one: ReadyDocument, spec: EncoderSpec) -> str | None:
    """What keeps the passages of a ready document from being stored, or None."""
    characters = len(one.document.text)
    vectors = one.vectors
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
            f"{vectors.shape}; name the encoder that made them"
        )
    with np.errstate(over="ignore"):
        finite = np.isfinite(vectors.astype(np.float32, copy=False)).all(axis=1)
    if not finite.all():
        return (
            f"passage {int(finite.argmin()) + 1}: expected a vector of numbers that float32 holds, "
            "found NaN, infinity or one too large; make it again or leave the document out"
        )
    if not spec.meaning("normalize"):
        single = vectors.astype(np.float32, copy=False)
        row = find_unbounded(single)
        if row is not None:
            return f"passage {row + 1}: {describe_unbounded(single[row])}"
    return None


def counted(documents: Iterable[T], progress: Callable[[int], object] | None) -> Iterator[T]:
    """The documents; `progress` is called after each, with 1."""
    for one in documents:
        yield one
        if progress is not None:
            progress(1)


def unit_vectors(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float32], int]:
    """Vectors (n, d) of length 1, zeros aside, and how many were off by more than rounding."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    far = (np.abs(lengths - 1) > _UNIT) & (lengths > 0)
    if not far.any():
        return vectors, 0
    scaled = vectors.astype(np.float64)
    scaled[far] /= lengths[far, np.newaxis]
    return scaled.astype(np.float32), int(np.count_nonzero(far))


def with_vectors(
    documents: Iterable[AnyDocument | ReadyDocument],
    vectors: ArrayLike | Iterable[ArrayLike] | None,
) -> Iterator[Document | ReadyDocument]:
    """The documents, with their vectors if there are any."""
    if vectors is None:
        for one in documents:
            yield one if isinstance(one, ReadyDocument) else as_document(one)
        return
    rows = iter(vectors)  # type: ignore[arg-type]
    count = 0
    for one in documents:
        count += 1
        row = next(rows, None)
        if row is None:
            raise ConfigError(f"vectors: expected one for each document, found {count - 1}")
        if isinstance(one, ReadyDocument):
            raise TypeError("vectors are given twice: leave one of them out")
        yield ReadyDocument.whole(as_document(one), row)
    if next(rows, None) is not None:
        raise ConfigError(f"vectors: expected {count}, one for each document, found more")
