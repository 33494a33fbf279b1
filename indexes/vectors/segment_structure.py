"""How the vectors of a segment are searched: by a scan, or through a structure that was built.

The manifest of a segment keeps what was decided when it was merged: the structure's name and why it
was chosen, and the recall that was measured for each search effort.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import MissingExtraError
from indexes.files.checksums import UNGUARDED, BlockGuard, unguarded
from indexes.filters.allowed import Allowed
from indexes.progress import Stage, no_progress
from indexes.vectors.choice import AUTO, FLAT, Choice, StructureSettings
from indexes.vectors.flat import Nearest, search_flat
from indexes.vectors.library import load_faiss
from indexes.vectors.recall import Measured, cheapest, measure, sample_queries
from indexes.vectors.structure import Guarding, Structure, open_structure, write_structure

STRUCTURE_FILE = "structure.faiss"
# The recall by default.
USUAL_RECALL = 0.95


@dataclass(frozen=True, slots=True)
class SegmentStructure:
    """What a segment's manifest says of its structure.

    Attributes:
        name: ``flat``, another name or a factory string.
        reasons: why, as sentences.
        recall: recall@10 against the exact search by effort, efforts ascending; empty for ``flat``.
        structure: None for ``flat``.
    """

    name: str
    reasons: tuple[str, ...] = ()
    recall: tuple[Measured, ...] = ()
    structure: Structure | None = None

    def effort(self, recall: float | None) -> int | None:
        """The least effort that reaches a recall@10; None if there is nothing to choose.

        Args:
            recall: above 0, at most 1; None for 0.95 or, if that is not reached, all there is.

        Raises:
            ConfigError: the recall is not reached.
        """
        if not self.recall:
            return None
        if recall is None:
            best = max(one.recall for one in self.recall)
            return cheapest(self.recall, min(USUAL_RECALL, best) or 1.0)
        return cheapest(self.recall, recall)

    def to_json(self) -> dict[str, Any]:
        """What the manifest holds of it."""
        return {
            "structure": self.name,
            "reasons": list(self.reasons),
            "recall": [asdict(one) for one in self.recall],
        }


FLAT_STRUCTURE = SegmentStructure(FLAT)


def build_structure(
    folder: Path,
    vectors: NDArray[np.float32],
    settings: StructureSettings,
    stage: Stage = no_progress,
) -> SegmentStructure:
    """Choose a structure for the vectors of a new segment, write it to its folder and measure it.

    Args:
        folder: of the segment; gets `STRUCTURE_FILE` unless the choice is ``flat``.
        vectors: (n, d) float32; may be memory-mapped.
        settings: the requested structure.
        stage: receives the progress.

    Raises:
        ConfigError: FAISS does not know the requested structure, or cannot build it.
        MissingExtraError: FAISS is not installed, and the structure needs it.
        StorageError: the disk is full.
    """
    choice = buildable_choice(settings, *vectors.shape)
    if choice.spec.name == FLAT:
        return SegmentStructure(FLAT, choice.reasons)
    write_structure(folder / STRUCTURE_FILE, vectors, choice.spec, stage=stage)
    structure = open_structure(folder / STRUCTURE_FILE, *vectors.shape)
    measured = measure(structure.searcher, vectors, sample_queries(vectors))
    return SegmentStructure(choice.spec.name, choice.reasons, tuple(measured), structure)


def buildable_choice(settings: StructureSettings, passages: int, dimensions: int) -> Choice:
    """The structure that `build_structure` builds for this number of vectors.

    Raises:
        ConfigError, MissingExtraError: see `build_structure`.
    """
    choice = settings.choice(passages, dimensions)
    if choice.spec.name != FLAT:
        try:
            load_faiss()
        except MissingExtraError:
            if settings.index_type != AUTO:
                raise
            # BM25 needs no FAISS, and an index that only BM25 searches is merged without it.
            reasons = (*choice.reasons, "FAISS is not installed: flat")
            return replace(StructureSettings(FLAT).choice(passages, dimensions), reasons=reasons)
    return choice


def open_segment_structure(
    folder: Path,
    manifest: Mapping[str, Any],
    shape: tuple[int, int],
    guard: Guarding = unguarded,
) -> SegmentStructure:
    """What `build_structure` made, in time that does not depend on its size.

    Args:
        folder: of the segment.
        manifest: of the segment.
        shape: of its vectors.
        guard: see `indexes.files.checksums.SegmentSums.guard`.

    Raises:
        DamagedIndexError: its file is missing or of another form.
    """
    name = manifest["structure"]
    return SegmentStructure(
        name,
        tuple(manifest.get("reasons", ())),
        tuple(Measured(**one) for one in manifest.get("recall", ())),
        None if name == FLAT else open_structure(folder / STRUCTURE_FILE, *shape, guard),
    )


def search_vectors(
    how: SegmentStructure,
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    allowed: Allowed | None = None,
    recall: float | None = None,
    guard: BlockGuard = UNGUARDED,
) -> list[Nearest]:
    """The best vectors of a segment, exactly or through its structure.

    Args:
        how: of that segment.
        vectors: (n, d) float32, C-contiguous.
        queries: (q, d) float32.
        k: at least 1; may exceed n.
        allowed: some of them, or None for all; only these can be returned.
        recall: see `SegmentStructure.effort`.
        guard: checks what is read of the vectors.

    Returns:
        As `indexes.vectors.flat.search_flat`.

    Raises:
        ConfigError: the recall is not reached.
        DamagedIndexError, FormatVersionError, MissingExtraError: see `Structure.searcher`.
    """
    if how.structure is None:
        return search_flat(vectors, queries, k, allowed, guard)
    return how.structure.searcher.search(vectors, queries, k, allowed, how.effort(recall), guard)
