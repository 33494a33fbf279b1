"""What a segment's manifest says of its structure, and the effort that a recall takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from indexes.errors import ConfigError

if TYPE_CHECKING:
    from indexes.vectors.structure import Structure

FLAT = "flat"
# The recall by default.
USUAL_RECALL = 0.95


class Measured(NamedTuple):
    """The recall, from 0 to 1, that one search effort reaches."""

    effort: int
    recall: float


def cheapest(measured: Sequence[Measured], target: float) -> int:
    """The least effort whose recall is `target` or more."""
    if not 0 < target <= 1:
        raise ConfigError(f"--recall {target}: expected a number above 0 and at most 1")
    enough = [one.effort for one in measured if one.recall >= target]
    if not enough:
        best = max(measured, key=lambda one: one.recall)
        raise ConfigError(
            f"--recall {target}: the best that this structure reaches is {best.recall:.4f}, at "
            f"effort {best.effort}; ask for less, or `retriever compact` with another --index-type"
        )
    return min(enough)


class SegmentStructure(NamedTuple):
    """What a segment's manifest says of its structure."""

    name: str  # ``flat``, another name or a factory string
    reasons: tuple[str, ...] = ()  # why, as sentences
    recall: tuple[Measured, ...] = ()  # @10, efforts ascending; empty for ``flat``
    structure: Structure | None = None  # None for ``flat``

    def effort(self, recall: float | None) -> int | None:
        """The least effort that reaches a recall@10; None if there is nothing to choose."""
        if not self.recall:
            return None
        if recall is None:
            best = max(one.recall for one in self.recall)
            return cheapest(self.recall, min(USUAL_RECALL, best) or 1.0)
        return cheapest(self.recall, recall)

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
