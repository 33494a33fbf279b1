"""The files of sources by outcome: read, read in part, without text, left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from retriever.documents.losses import Loss

# Maximum number of files that are listed with their losses.
NAMED_FILES = 10


@dataclass(slots=True)
class FilesReport:
    """Number of files of folders, and of files that are one document, by outcome.

    Attributes:
        read: number of files by the label of their kind, such as "PDF". Files that were read in
            part or have no text are included.
        in_part: number of files with a part that is missing in their text.
        losses: number of files by `LossKind`.
        named: place and losses of the first 10 of these files, a line each.
        without_text: number of files in which no text was found.
        skipped: number of files that could not be read.
        faults: a line "path: fault" for each of the first 10 skipped files; empty in the report of
            a run, which names them as it reads.
        left_out: number of files that rules leave out, by suffix or reason, such as "hidden". A
            folder that is left out counts as one.
    """

    read: Counter[str] = field(default_factory=Counter)
    in_part: int = 0
    losses: Counter[str] = field(default_factory=Counter)
    named: list[str] = field(default_factory=list)
    without_text: int = 0
    skipped: int = 0
    faults: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def add_losses(self, place: str, losses: Sequence[Loss]) -> None:
        """Count a file that was read in part."""
        self.in_part += 1
        self.losses.update({loss.kind for loss in losses})
        if len(self.named) < NAMED_FILES:
            details = "; ".join(dict.fromkeys(loss.detail for loss in losses))
            self.named.append(f"{place}: {details}")

    def update(self, other: FilesReport) -> None:
        """Add the counts of other files."""
        self.read.update(other.read)
        self.in_part += other.in_part
        self.losses.update(other.losses)
        self.named += other.named[: NAMED_FILES - len(self.named)]
        self.without_text += other.without_text
        self.skipped += other.skipped
        self.faults += other.faults[: NAMED_FILES - len(self.faults)]
        self.left_out.update(other.left_out)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values, by the names of its attributes."""
        return {
            "read": dict(self.read),
            "in_part": self.in_part,
            "losses": dict(self.losses),
            "named": self.named,
            "without_text": self.without_text,
            "skipped": self.skipped,
            "faults": self.faults,
            "left_out": dict(self.left_out),
        }
