"""Queue of passages to encode, taken in windows so that the encoder can sort by length."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.computing import describe_unbounded, find_unbounded
from retriever.errors import SourceError

if TYPE_CHECKING:
    from indexes import Committer
    from retriever.encoders.encoder import Encoder
    from retriever.index.indexing.commit_buffer import PendingDocument
    from retriever.index.indexing.run import CommitSettings, IndexingReport, Progress

# Seconds that encoding a window may take, so that a slow encoder does not delay a commit.
_WINDOW_SECONDS = 20.0
# Size of the first window as a share of a full one: the encoder's speed is still unknown.
_FIRST_WINDOW_SHARE = 1 / 16


class _WaitingPassage(NamedTuple):
    pending: PendingDocument
    digest: bytes  # of the text that is encoded
    pieces: Any  # word pieces, as the encoder reads them


class EncodingQueue:
    """A queue of passages; vectors go to their pending documents.

    Equal texts are encoded once between two calls of `forget_vectors`.

    Attributes:
        computed: descriptions of how vectors were computed.
    """

    def __init__(
        self,
        writer: Committer,
        encoder: Callable[[], Encoder],
        settings: CommitSettings,
        progress: Progress,
        report: IndexingReport,
    ) -> None:
        self.computed: set[str] = set()
        self._writer = writer
        self._encoder = encoder
        self._settings = settings
        self._progress = progress
        self._report = report
        self._waiting_passages: deque[_WaitingPassage] = deque()
        self._waiting_pieces = 0
        self._window_pieces = max(1, int(settings.window_pieces * _FIRST_WINDOW_SHARE))
        # Digest of a text to its vector.
        self._vectors: dict[bytes, NDArray[np.float32]] = {}

    def __len__(self) -> int:
        """Return the number of passages that wait."""
        return len(self._waiting_passages)

    def put(self, pending: PendingDocument, digest: bytes, pieces: Any) -> None:
        """Add the next passage of a document."""
        self._waiting_passages.append(_WaitingPassage(pending, digest, pieces))
        self._waiting_pieces += len(pieces)

    def has_full_window(self) -> bool:
        """Whether a whole window waits."""
        return (
            self._waiting_pieces >= self._window_pieces
            or len(self._waiting_passages) >= self._settings.window_passages
        )

    def remember_vectors(self, vectors: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Reuse vectors, by digest, where a passage has the same text."""
        self._vectors.update(vectors)

    def forget_vectors(self) -> None:
        """Forget the vectors of encoded texts, for instance after a commit."""
        self._vectors = {}

    def encode_window(self, room: int) -> int:
        """Encode a window of at most `room` passages, but at least one; return their number.

        Raises:
            SourceError: the encoder gives a vector that cannot be stored.
        """
        window = self._take_window(max(1, min(self._settings.window_passages, room)))
        if not window:
            return 0
        new_pieces = {
            passage.digest: passage.pieces
            for passage in window
            if passage.digest not in self._vectors
        }
        stored_vectors = self._writer.partial_vectors(list(new_pieces))
        for digest, vector in stored_vectors.items():
            self._vectors[digest] = vector
            del new_pieces[digest]
        self._report.repeated += len(window) - len(new_pieces) - len(stored_vectors)
        vectors = self._encode(new_pieces)
        if len(new_pieces) < len(window):
            vectors = np.stack([self._vectors[passage.digest] for passage in window])
        row = find_unbounded(vectors)
        if row is not None:
            raise SourceError(
                f"document {window[row].pending.document.id!r}: {describe_unbounded(vectors[row])}"
            )
        start = 0
        for pending, passages in groupby(window, attrgetter("pending")):
            digests = [passage.digest for passage in passages]
            pending.encoded_windows.append((digests, vectors[start : start + len(digests)]))
            start += len(digests)
        return len(window)

    def _take_window(self, max_passages: int) -> list[_WaitingPassage]:
        """Take the passages of the next window, without those of superseded documents."""
        window: list[_WaitingPassage] = []
        pieces = 0
        while (
            self._waiting_passages and len(window) < max_passages and pieces < self._window_pieces
        ):
            passage = self._waiting_passages.popleft()
            self._waiting_pieces -= len(passage.pieces)
            if not passage.pending.is_superseded:
                pieces += len(passage.pieces)
                window.append(passage)
        return window

    def _encode(self, pieces: Mapping[bytes, Any]) -> NDArray[np.float32]:
        """Encode word pieces by digest, remember the vectors, and adapt the size of windows."""
        if not pieces:
            return np.empty((0, 0), np.float32)
        self._progress.window(len(pieces), len(self._waiting_passages))
        encoder = self._encoder()
        start = time.monotonic()
        vectors = encoder.encode_pieces(list(pieces.values()), self._progress.encoded)
        # An encoder that a program passes may lack this attribute.
        self.computed.update(getattr(encoder, "computed", ()))
        piece_count = sum(map(len, pieces.values()))
        seconds = max(time.monotonic() - start, 1e-6)
        affordable_pieces = int(piece_count * _WINDOW_SECONDS / seconds)
        self._window_pieces = max(1, min(self._settings.window_pieces, affordable_pieces))
        self._report.pieces += piece_count
        self._vectors.update(zip(pieces, vectors, strict=True))
        return vectors
