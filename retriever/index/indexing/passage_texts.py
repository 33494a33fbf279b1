"""Texts of passages as they are encoded and analyzed, and digests that show what has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from indexes import CONTENT_BYTES
from retriever.documents.document import Document, document_of
from retriever.documents.outline import outline_json
from retriever.documents.passages import PassageSettings, passage_text

if TYPE_CHECKING:
    from indexes import StoredDocument


def passage_texts(
    document: Document,
    spans: Iterable[tuple[int, int]],
    settings: PassageSettings,
    *,
    names: bool = True,
) -> list[str]:
    """Return the text of each span as it is encoded; as it is analyzed if not `names`."""
    context = settings.context
    tables = settings.tables
    return [passage_text(document, span, context, tables=tables, names=names) for span in spans]


def stored_texts(
    stored: StoredDocument, settings: PassageSettings, *, names: bool = True
) -> list[str]:
    """Return the text of each passage of a stored document; see `passage_texts`."""
    spans = ((start, stop) for _, start, stop in stored.passages)
    return passage_texts(document_of(stored), spans, settings, names=names)


def content_hash(document: Document, settings: PassageSettings) -> bytes:
    """Return 16 bytes that change with title or text, or with an outline that passages follow.

    Labels, where they are read, change the last four bytes only.
    """
    title = document.title or ""
    outline = tuple(mark for mark in document.outline if mark.kind != "label")
    places = outline_json(outline) if settings.structure else ""
    digest = text_digest(f"{len(title)} {title}{document.text}{places and chr(0) + places}")
    labels = [mark.label for mark in document.outline if mark.kind == "label"]
    if not (labels and settings.labels):
        return digest
    return digest[:CONTENT_BYTES] + text_digest("\n".join(labels))[CONTENT_BYTES:]


def text_digest(text: str) -> bytes:
    """Return 16 bytes that identify a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
