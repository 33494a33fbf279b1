"""What indexing tells its caller, while it works and when it is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class IndexingReport:
    """What indexing did. Documents are counted when they are committed.

    Attributes:
        added, updated, unchanged: documents; an update of metadata alone needs no encoding.
        deleted: documents removed because they are not in the new corpus.
        empty: documents skipped because they hold neither text nor title.
        empty_ids: ids of the first ten of these.
        passages: passages encoded, or stored with a ready vector.
        pieces: word pieces encoded.
        split: documents that became more than one passage.
        truncated: documents of which the end was cut off, because `on_long` says so or because
            their title alone fills half the window.
        scaled: ready vectors that were brought to length 1, as the encoder's own are.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    empty: int = 0
    empty_ids: list[str] = field(default_factory=list)
    passages: int = 0
    pieces: int = 0
    split: int = 0
    truncated: int = 0
    scaled: int = 0

    @property
    def empty_note(self) -> str:
        """What to say of empty documents."""
        more = ", …" if self.empty > len(self.empty_ids) else ""
        return (
            f"{self.empty:,} documents hold neither text nor title and were skipped: "
            f"{', '.join(map(repr, self.empty_ids))}{more}"
        )


class Progress(Protocol):
    """Told how far indexing is."""

    def window(self, passages: int) -> None:
        """The number of passages of the window that is about to be encoded."""

    def encoded(self, passages: int, pieces: int) -> None:
        """Passages of the window, and their word pieces, that were encoded since the last call."""


class NoProgress:
    """Reports nothing."""

    def window(self, passages: int) -> None:
        """Do nothing."""

    def encoded(self, passages: int, pieces: int) -> None:
        """Do nothing."""
