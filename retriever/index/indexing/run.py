"""A run of indexing: how often it commits, how it reports progress, and what it counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

# Empty documents whose ids a report keeps.
_MAX_EMPTY_IDS = 10


@dataclass(slots=True)
class IndexingReport:
    """Counts of what indexing did. Documents are counted when they are committed.

    Attributes:
        added, updated, unchanged: documents; an update of metadata alone needs no encoding.
        deleted: documents removed because they are not in the new corpus, or are empty in it.
        empty: documents skipped because they hold neither text nor title.
        emptied: how many of these the index held, with an earlier text; they are deleted.
        empty_ids: ids of the first ten of these, or their places in a file.
        passages: passages that were encoded, or stored with a ready vector.
        repeated: how many of them have the vector of an equal passage of the same commit, or of an
            earlier version of the document or its file.
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
    passages: int = 0
    repeated: int = 0
    pieces: int = 0
    split: int = 0
    truncated: int = 0
    scaled: int = 0
    merged_segments: int = 0
    merge_seconds: float = field(default=0.0, compare=False)

    def count_empty(self, number: int, names: Sequence[str]) -> None:
        """Count empty documents; `names` are ids or places of at least the first ten."""
        self.empty += number
        self.empty_ids += names[: _MAX_EMPTY_IDS - len(self.empty_ids)]

    @property
    def empty_note(self) -> str:
        """A sentence that counts and names the empty documents."""
        documents, were = (
            ("document holds", "was") if self.empty == 1 else ("documents hold", "were")
        )
        more = ", …" if self.empty > len(self.empty_ids) else ""
        return (
            f"{self.empty:,} {documents} neither text nor title and {were} skipped: "
            f"{', '.join(map(repr, self.empty_ids))}{more}"
            + (f"; deleted from the index: {self.emptied:,}" if self.emptied else "")
        )


class Progress(Protocol):
    """Receives the progress of encoding."""

    def window(self, passages: int, waiting: int) -> None:
        """Begin a window of `passages` passages; `waiting` more are read and follow it."""
        return

    def encoded(self, passages: int, pieces: int) -> None:
        """Count passages and word pieces of the window that were encoded since the last call."""
        return


class ShardProgress(Progress, Protocol):
    """Receives the progress of `encode_shards`, by all processes."""

    def finished(self, bytes_read: int) -> None:
        """End a shard, made or found; `bytes_read` is the source's byte offset of its end."""
        return


class NoProgress(ShardProgress):
    """Reports nothing."""


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """How often a long call of `Index.add` commits: an interruption loses at most that much.

    Attributes:
        passages: number of encoded passages after which it commits.
        characters: number of characters of documents read after which it commits.
        seconds: time since the last commit after which it commits.
        window_pieces, window_passages: maximum size of a window, in word pieces and passages.
            Texts within a window are sorted by length, so that batches need little padding. A
            slow encoder gets smaller windows, which take it 20 seconds.
    """

    passages: int = 65536
    characters: int = 2**24
    seconds: float = 120.0
    window_pieces: int = 65536
    window_passages: int = 8192
