"""The search structure of one segment as its manifest records it, and the search through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.checksums import UNGUARDED, BlockGuard
from indexes.errors import ConfigError, MissingExtraError
from indexes.protocol import Stage, StructureSettings, no_progress
from indexes.vectors.flat import Nearest, QuantizedVectors, search_flat
from indexes.vectors.library import FLAT, load_faiss
from indexes.vectors.recall import Measured, measure, sample_queries

if TYPE_CHECKING:
    from indexes.passage_mask import PassageMask
    from indexes.vectors.choice import Choice
    from indexes.vectors.structure import Structure

# The recall@10 that a search without a recall of its own reaches, or the best there is.
USUAL_RECALL = 0.95


class SegmentStructure(NamedTuple):
    """The search structure of a segment, and what its manifest says of it."""

    name: str  # ``flat``, another name or a factory string
    reasons: tuple[str, ...] = ()  # why it was chosen, as sentences
    recall: tuple[Measured, ...] = ()  # @10, efforts ascending; empty for ``flat``
    structure: Structure | None = None  # None for ``flat``
    quantized: QuantizedVectors | None = None  # of a ``flat`` segment in files

    def search(
        self,
        vectors: NDArray[np.float32],
        queries: NDArray[np.float32],
        k: int,
        mask: PassageMask | None = None,
        recall: float | None = None,
        guard: BlockGuard = UNGUARDED,
    ) -> list[Nearest]:
        """Find the best vectors of a segment, exactly or through its structure."""
        if self.structure is None:
            return search_flat(vectors, queries, k, mask, guard, self.quantized)
        searcher = self.structure.searcher
        return searcher.search(vectors, queries, k, mask, self.effort(recall), guard)

    def effort(self, recall: float | None) -> int | None:
        """Return the least effort that reaches a recall@10; None if there is nothing to choose."""
        if not self.recall:
            return None
        best = max(self.recall, key=lambda measured: measured.recall)
        if recall is None:
            recall = min(USUAL_RECALL, best.recall)
        elif not 0 < recall <= 1:
            raise ConfigError(f"recall: expected a number above 0 and at most 1, found {recall}")
        elif recall > best.recall:
            raise ConfigError(
                f"recall {recall}: the best that this structure reaches is {best.recall:.4f}, at "
                f"effort {best.effort}; ask for less, or `retriever compact` with another "
                "--index-type"
            )
        return min(measured.effort for measured in self.recall if measured.recall >= recall)

    @classmethod
    def recorded(cls, manifest: Mapping[str, Any], structure: Structure | None) -> SegmentStructure:
        """Read from a manifest what it says of an opened structure."""
        recall = tuple(Measured(**measured) for measured in manifest.get("recall", ()))
        reasons = tuple(manifest.get("reasons", ()))
        quantized = QuantizedVectors() if structure is None else None
        return cls(manifest["structure"], reasons, recall, structure, quantized)

    def to_json(self) -> dict[str, Any]:
        """Return what the manifest holds of it."""
        return {
            "structure": self.name,
            "reasons": list(self.reasons),
            "recall": [measured._asdict() for measured in self.recall],
        }


FLAT_STRUCTURE = SegmentStructure(FLAT)


def build_structure(
    folder: Path,
    vectors: NDArray[np.float32],
    settings: StructureSettings,
    stage: Stage = no_progress,
) -> SegmentStructure:
    """Choose a structure for the vectors of a new segment, write it and measure its recall."""
    from indexes.vectors.structure import STRUCTURE_FILE, open_structure, write_structure

    choice = buildable_choice(settings, *vectors.shape)
    if choice.name == FLAT:
        return SegmentStructure(FLAT, choice.reasons)
    write_structure(folder / STRUCTURE_FILE, vectors, choice, stage)
    structure = open_structure(folder / STRUCTURE_FILE, *vectors.shape)
    recall = measure(structure.searcher, vectors, *sample_queries(vectors))
    return SegmentStructure(choice.name, choice.reasons, tuple(recall), structure)


def buildable_choice(settings: StructureSettings, passages: int, dimensions: int) -> Choice:
    """Return the structure that `build_structure` builds for this number of vectors."""
    choice = settings.choice(passages, dimensions)
    if choice.name == FLAT:
        return choice
    try:
        load_faiss()
    except MissingExtraError:
        from indexes.vectors.choice import AUTO, resolve

        if settings.index_type != AUTO:
            raise
        # BM25 needs no FAISS, and an index that only BM25 searches is merged without it.
        reasons = (*choice.reasons, "FAISS is not installed: flat")
        return replace(resolve(FLAT, passages, dimensions, None), reasons=reasons)
    return choice
