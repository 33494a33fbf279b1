"""What indexing tells its caller, while it works and when it has done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True)
class IndexingReport:
    """What indexing did, counted as it goes.

    Attributes:
        added, updated, unchanged: documents; an update of metadata alone needs no encoding.
        deleted: documents removed because they are not in the new corpus.
        passages: passages encoded.
        pieces: word pieces encoded.
        split: documents that became more than one passage.
        truncated: documents of which the end was cut off, because `on_long` says so or because
            their title alone fills half the window.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    passages: int = 0
    pieces: int = 0
    split: int = 0
    truncated: int = 0


class Progress(Protocol):
    """Told how far indexing is."""

    def window(self, passages: int) -> None:
        """A window of so many passages is about to be encoded."""

    def encoded(self, passages: int, pieces: int) -> None:
        """So many more passages of the window are encoded."""


class NoProgress:
    """Tells nobody."""

    def window(self, passages: int) -> None:
        """Do nothing."""

    def encoded(self, passages: int, pieces: int) -> None:
        """Do nothing."""
