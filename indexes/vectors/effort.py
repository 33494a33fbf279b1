"""How a segment is searched: what its manifest says of its structure, and what effort suffices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.errors import ConfigError
from indexes.folder.checksums import UNGUARDED, BlockGuard

if TYPE_CHECKING:
    from indexes.filters.columns import Allowed
    from indexes.vectors.flat import Nearest
    from indexes.vectors.structure import Structure

FLAT = "flat"
# The recall by default.
USUAL_RECALL = 0.95


class Measured(NamedTuple):
    """The recall, from 0 to 1, that one search effort reaches."""

    effort: int
    recall: float


class SegmentStructure(NamedTuple):
    """What a segment's manifest says of its structure."""

    name: str  # ``flat``, another name or a factory string
    reasons: tuple[str, ...] = ()  # why, as sentences
    recall: tuple[Measured, ...] = ()  # @10, efforts ascending; empty for ``flat``
    structure: Structure | None = None  # None for ``flat``

    def search(
        self,
        vectors: NDArray[np.float32],
        queries: NDArray[np.float32],
        k: int,
        allowed: Allowed | None = None,
        recall: float | None = None,
        guard: BlockGuard = UNGUARDED,
    ) -> list[Nearest]:
        """The best vectors of a segment, exactly or through its structure."""
        if self.structure is None:
            from indexes.vectors.flat import search_flat

            return search_flat(vectors, queries, k, allowed, guard)
        searcher, effort = self.structure.searcher, self.effort(recall)
        return searcher.search(vectors, queries, k, allowed, effort, guard)

    def effort(self, recall: float | None) -> int | None:
        """The least effort that reaches a recall@10; None if there is nothing to choose."""
        if not self.recall:
            return None
        best = max(self.recall, key=lambda one: one.recall)
        if recall is None:
            recall = min(USUAL_RECALL, best.recall)
        elif not 0 < recall <= 1:
            raise ConfigError(f"--recall {recall}: expected a number above 0 and at most 1")
        elif recall > best.recall:
            raise ConfigError(
                f"--recall {recall}: the best that this structure reaches is {best.recall:.4f}, at "
                f"effort {best.effort}; ask for less, or `retriever compact` with another "
                "--index-type"
            )
        return min(one.effort for one in self.recall if one.recall >= recall)

    @classmethod
    def recorded(cls, manifest: Mapping[str, Any], structure: Structure | None) -> SegmentStructure:
        """What a manifest says of a structure that is open."""
        measured = tuple(Measured(**one) for one in manifest.get("recall", ()))
        return cls(manifest["structure"], tuple(manifest.get("reasons", ())), measured, structure)

    def to_json(self) -> dict[str, Any]:
        """What the manifest holds of it."""
        return {
            "structure": self.name,
            "reasons": list(self.reasons),
            "recall": [one._asdict() for one in self.recall],
        }


FLAT_STRUCTURE = SegmentStructure(FLAT)
