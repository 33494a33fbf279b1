"""How the vectors of a segment are searched: by a scan, or through a structure that was built.

The manifest of a segment keeps what was decided when it was merged: the structure's name and why it
was chosen, and the recall that was measured for each search effort.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import ConfigError, MissingExtraError
from indexes.files.checksums import UNGUARDED, BlockGuard, unguarded
from indexes.filters.allowed import Allowed
from indexes.vectors.choice import AUTO, FLAT, Choice, resolve
from indexes.vectors.flat import search_flat
from indexes.vectors.library import load_faiss
from indexes.vectors.recall import (
    Behind,
    Found,
    Measured,
    cheapest,
    measure,
    measure_behind,
    sample_queries,
)
from indexes.vectors.structure import Guarding, Structure, open_structure, write_structure

STRUCTURE_FILE = "structure.faiss"
# What is aimed at where nothing is asked for.
USUAL_RECALL = 0.95
# Of what a recall lets a search leave out, so much may be left out behind filters.
_LEFT_OUT = 0.8


@dataclass(frozen=True, slots=True)
class StructureSettings:
    """Which structure the segments of an index get when they are merged.

    Attributes:
        index_type: a name of `indexes.vectors.choice.NAMES` or a FAISS factory string.
        memory_bytes: how much a structure may take; None for as much as it needs. Counts for
            ``auto`` alone.

    Raises:
        ConfigError: the memory is below 1 byte.
    """

    index_type: str = AUTO
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.memory_bytes is not None and self.memory_bytes < 1:
            raise ConfigError(f"memory: expected 1 byte or more, found {self.memory_bytes}")

    def choice(self, passages: int, dimensions: int) -> Choice:
        """The structure for so many vectors.

        Raises:
            ConfigError: FAISS does not know what was asked for.
            MissingExtraError: FAISS is not installed, and is needed to tell.
        """
        return resolve(self.index_type, passages, dimensions, self.memory_bytes)

    def to_json(self) -> dict[str, Any]:
        """The settings as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> StructureSettings:
        """The settings that `to_json` gave.

        Raises:
            ConfigError, TypeError: they are others.
        """
        return cls(**values)


@dataclass(frozen=True, slots=True)
class SegmentStructure:
    """What a segment's manifest says of its structure.

    Attributes:
        name: ``flat``, another name or a factory string.
        reasons: why, as sentences.
        recall: recall@10 against the exact search by effort, efforts ascending; empty for ``flat``.
        filtered: the same behind filters, shares descending; empty where it was not measured.
        structure: None for ``flat``.
    """

    name: str
    reasons: tuple[str, ...] = ()
    recall: tuple[Measured, ...] = ()
    structure: Structure | None = None
    filtered: tuple[Behind, ...] = ()

    def effort(self, recall: float | None) -> int | None:
        """The least effort that reaches a recall@10; None where there is nothing to choose.

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

    def behind(self, recall: float | None) -> list[tuple[float, int]]:
        """(share, effort): the least that reach a recall@10 behind filters, or come nearest.

        They leave out a fifth less than `recall` would let them: a filter can be less even than
        those that were measured by so little that it cannot be told from chance.

        Args:
            recall: see `effort`, which refuses one that is out of range.
        """
        target = 1 - _LEFT_OUT * (1 - (recall or USUAL_RECALL))
        return [
            (one.share, cheapest(one.recall, min(target, max(each.recall for each in one.recall))))
            for one in self.filtered
        ]

    def to_json(self) -> dict[str, Any]:
        """What the manifest holds of it."""
        return {
            "structure": self.name,
            "reasons": list(self.reasons),
            "recall": [asdict(one) for one in self.recall],
            "filtered": [asdict(one) for one in self.filtered],
        }


FLAT_STRUCTURE = SegmentStructure(FLAT)


def build_structure(
    folder: Path, vectors: NDArray[np.float32], settings: StructureSettings
) -> SegmentStructure:
    """Choose a structure for the vectors of a new segment, write it to its folder and measure it.

    Args:
        folder: of the segment; gets `STRUCTURE_FILE` unless the choice is ``flat``.
        vectors: (n, d) float32; may be memory-mapped.
        settings: what was asked for.

    Raises:
        ConfigError: FAISS does not know or cannot build what was asked for.
        MissingExtraError: FAISS is not installed, and is needed for what was asked for.
        StorageError: the disk is full.
    """
    choice = settings.choice(*vectors.shape)
    if choice.spec.name == FLAT:
        return SegmentStructure(FLAT, choice.reasons)
    try:
        load_faiss()
    except MissingExtraError:
        if settings.index_type != AUTO:
            raise
        # BM25 alone needs no FAISS, and an index that only it searches is merged all the same.
        return SegmentStructure(FLAT, (*choice.reasons, "FAISS is not installed: flat"))
    write_structure(folder / STRUCTURE_FILE, vectors, choice.spec)
    structure = open_structure(folder / STRUCTURE_FILE, *vectors.shape)
    sample = sample_queries(vectors)
    return SegmentStructure(
        choice.spec.name,
        choice.reasons,
        tuple(measure(structure, vectors, sample)),
        structure,
        tuple(measure_behind(structure, vectors, sample)),
    )


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
        guard: see `indexes.files.segment_sums.SegmentSums.guard`.

    Raises:
        DamagedIndexError: its file is missing or of another form.
    """
    name = manifest["structure"]
    return SegmentStructure(
        name,
        tuple(manifest.get("reasons", ())),
        tuple(Measured(**one) for one in manifest.get("recall", ())),
        None if name == FLAT else open_structure(folder / STRUCTURE_FILE, *shape, guard),
        tuple(
            Behind(one["share"], tuple(Measured(**each) for each in one["recall"]))
            for one in manifest.get("filtered", ())
        ),
    )


def search_vectors(
    how: SegmentStructure,
    vectors: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    allowed: Allowed | None = None,
    recall: float | None = None,
    guard: BlockGuard = UNGUARDED,
) -> Found:
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
        DamagedIndexError, FormatVersionError, MissingExtraError: see `Structure.efforts`.
    """
    if how.structure is None:
        return search_flat(vectors, queries, k, allowed, guard)
    return how.structure.search(
        vectors, queries, k, allowed, how.effort(recall), guard, how.behind(recall)
    )
