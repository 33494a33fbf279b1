"""What each document's row is sealed with, so that an altered one is found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence


def document_checksum(
    id_: str,
    title: str | None,
    text: str,
    metadata: str,
    content_hash: bytes,
    passages: Sequence[tuple[int, int, int]],
) -> bytes:
    """16 bytes over everything that SQLite holds of a document.

    Args:
        id_: the user's id.
        title: or None.
        text: the whole text.
        metadata: as stored, a JSON object.
        content_hash: what tells whether title or text changed.
        passages: (passage id, start, stop), ascending.
    """
    # JSON keeps the parts apart, so that nothing can move from one into another unseen.
    sealed = json.dumps([id_, title, text, metadata, content_hash.hex(), passages])
    return hashlib.blake2b(sealed.encode(), digest_size=16).digest()
