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
# Distance of a vector's length from 1 that counts as rounding.
_UNIT_TOLERANCE = 1e-4


class AnalyzedTerms(NamedTuple):
    """The terms of each passage of a document, and the analyzer that made them."""

    analyzer: str  # its `Analyzer.identity`
    passages: list[list[str]]


@dataclass(frozen=True, slots=True)
class ReadyDocument:
    """A document with the vectors of its passages.

    Attributes:
        document: the document.
        spans: (start, stop) character offsets of its passages in the text, at least one pair.
        vectors: (passages, dimensions) float32, finite; other floats are rounded.
        terms: of its passages; an index with another analyzer analyzes the text, as with None.
        computed: how the vectors were computed, as `info` shows it; empty if unknown.
    """

    document: Document
    spans: list[tuple[int, int]]
    vectors: NDArray[np.floating[Any]]
    terms: AnalyzedTerms | None = None
    computed: Sequence[str] = ()

    @classmethod
    def whole(cls, document: Document, vector: ArrayLike) -> Self:
        """Make a document of one passage, with its vector (dimensions,)."""
        with np.errstate(over="ignore"):
            row = np.asarray(vector, np.float32)
        return cls(document, [(0, len(document.text))], row[np.newaxis])


def require_sound(document: ReadyDocument, spec: EncoderSpec, where: str) -> ReadyDocument:
    """Return the document; raise SourceError, with its place, if its passages cannot be stored."""
    fault = _passages_fault(document, spec)
    if fault is not None:
        raise SourceError(f"{where}: {fault}")
    return document


def _passages_fault(document: ReadyDocument, spec: EncoderSpec) -> str | None:
    """Say why the passages of a document cannot be stored; None if they can."""
    fault = _spans_fault(document.spans, len(document.document.text))
    if fault is not None:
        return fault
    return _vectors_fault(document.vectors, len(document.spans), spec)


def _spans_fault(spans: Sequence[Any], characters: int) -> str | None:
    """Say why the spans do not fit a text of so many characters; None if they do."""
    if not spans:
        return "expected at least one passage, found none"
    for number, span in enumerate(spans, start=1):
        # Not bool, which the database and the checksum of a document write differently.
        is_pair = isinstance(span, tuple | list) and [*map(type, span)] == [int, int]
        if not is_pair or not 0 <= span[0] <= span[1] <= characters:
            return (
                f"passage {number}: expected integers from 0 to {characters}, the characters of "
                f"the text, as start and stop, found {span!r:.60}"
            )
    return None


def _vectors_fault(vectors: object, passages: int, spec: EncoderSpec) -> str | None:
    """Say why the vectors cannot be those of so many passages; None if they can."""
    if not isinstance(vectors, np.ndarray) or vectors.dtype.kind not in "fiu":
        kind = vectors.dtype if isinstance(vectors, np.ndarray) else type(vectors).__name__
        return f"expected vectors as an array of float32, found {kind}"
    shape = (passages, spec.dimensions)
    if vectors.shape != shape:
        return (
            f"expected vectors of shape {shape}, one for each passage, as {spec} gives them, found "
            f"{vectors.shape}; name the encoder that made them"
        )
    with np.errstate(over="ignore"):
        single = vectors.astype(np.float32, copy=False)
    is_finite = np.isfinite(single).all(axis=1)
    if not is_finite.all():
        return (
            f"passage {int(is_finite.argmin()) + 1}: expected a vector of numbers that float32 "
            "holds, found NaN, infinity or one too large; make it again or leave the document out"
        )
    if not spec.effective_value("normalize"):
        row = find_unbounded(single)
        if row is not None:
            return f"passage {row + 1}: {describe_unbounded(single[row])}"
    return None


def counted(documents: Iterable[T], progress: Callable[[int], object] | None) -> Iterator[T]:
    """Yield the documents; call `progress` with 1 after each."""
    for document in documents:
        yield document
        if progress is not None:
            progress(1)


def unit_vectors(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float32], int]:
    """Scale vectors (n, d) to length 1; vectors of zeros stay.

    Returns the vectors and how many were scaled. A vector whose length differs from 1 only by
    rounding stays as it is.
    """
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    is_scaled = (np.abs(lengths - 1) > _UNIT_TOLERANCE) & (lengths > 0)
    if not is_scaled.any():
        return vectors, 0
    scaled = vectors.astype(np.float64)
    scaled[is_scaled] /= lengths[is_scaled, np.newaxis]
    return scaled.astype(np.float32), int(np.count_nonzero(is_scaled))


def with_vectors(
    documents: Iterable[AnyDocument | ReadyDocument],
    vectors: ArrayLike | Iterable[ArrayLike] | None,
) -> Iterator[Document | ReadyDocument]:
    """Yield the documents, with their vectors if there are any.

    ConfigError if the vectors are more or fewer than the documents.
    """
    if vectors is None:
        for document in documents:
            yield document if isinstance(document, ReadyDocument) else as_document(document)
        return
    rows = iter(vectors)  # type: ignore[arg-type]
    count = 0
    for document in documents:
        count += 1
        row = next(rows, None)
        if row is None:
            raise ConfigError(f"vectors: expected one for each document, found {count - 1}")
        if isinstance(document, ReadyDocument):
            raise TypeError("vectors are given twice: leave one of them out")
        yield ReadyDocument.whole(as_document(document), row)
    if next(rows, None) is not None:
        raise ConfigError(f"vectors: expected {count}, one for each document, found more")
