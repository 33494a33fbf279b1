"""What indexing reports to its caller, during the work and at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

_EMPTY_NAMED = 10


@dataclass(slots=True)
class IndexingReport:
    """What indexing did. Documents are counted when they are committed.

    Attributes:
        added, updated, unchanged: documents; an update of metadata alone needs no encoding.
        deleted: documents removed because they are not in the new corpus, or are empty in it.
        empty: documents skipped because they hold neither text nor title.
        emptied: how many of these the index held, with an earlier text; they are deleted.
        empty_ids: ids of the first ten of these, or their places in a file.
        doubled: documents that the index also holds under an id generated from their content, under
            which they were added before.
        passages: passages that were encoded, or stored with a ready vector.
        repeated: how many of them share the vector of an equal passage of the same commit, which
            was encoded once.
        pieces: word pieces encoded.
        split: documents that became more than one passage.
        truncated: documents whose end was cut off, because `on_long` says so or because their
            title alone fills half the window.
        scaled: ready vectors that were brought to length 1, as those of the encoder are.
        merged_segments: segments merged at the end so that queries are fast; 1 if a single one got
            a search structure.
        merge_seconds: how long that took.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    empty: int = 0
    emptied: int = 0
    empty_ids: list[str] = field(default_factory=list)
    doubled: int = 0
    passages: int = 0
    repeated: int = 0
    pieces: int = 0
    split: int = 0
    truncated: int = 0
    scaled: int = 0
    merged_segments: int = 0
    merge_seconds: float = field(default=0.0, compare=False)

    @property
    def empty_note(self) -> str:
        """A sentence that counts and names the empty documents."""
        documents = "document holds" if self.empty == 1 else "documents hold"
        were = "was" if self.empty == 1 else "were"
        more = ", …" if self.empty > len(self.empty_ids) else ""
        return (
            f"{self.empty:,} {documents} neither text nor title and {were} skipped: "
            f"{', '.join(map(repr, self.empty_ids))}{more}"
            + (f"; deleted from the index: {self.emptied:,}" if self.emptied else "")
        )

    @property
    def doubled_note(self) -> str:
        """A sentence that counts the documents that the index holds twice, with the remedy."""
        documents = "document is" if self.doubled == 1 else "documents are"
        return (
            f"{self.doubled:,} {documents} in the index twice, under the id given now and, from "
            "before, under one generated from the content; --recreate replaces the index by one "
            "of the sources that you name, each document once"
        )


def count_empty(report: IndexingReport, number: int, names: Sequence[str]) -> None:
    """Count empty documents, of which at least the first ten have names."""
    report.empty += number
    report.empty_ids += names[: _EMPTY_NAMED - len(report.empty_ids)]


class Progress(Protocol):
    """Receives the progress of indexing."""

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
