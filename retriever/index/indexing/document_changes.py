"""Decide for each document whether it is new, changed, unchanged or empty."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from indexes import metadata_json
from retriever.documents.document import Document, document_fault
from retriever.errors import SourceError
from retriever.index.indexing.embedded_documents import ReadyDocument, require_sound
from retriever.index.indexing.passage_texts import content_hash

if TYPE_CHECKING:
    from indexes import StoredVersion
    from retriever.documents.passages import PassageSettings
    from retriever.encoders.spec import EncoderSpec


class DocumentChange(NamedTuple):
    """How a document differs from the stored one with its id."""

    kind: Literal["new", "changed", "metadata", "unchanged", "empty"]
    hash: bytes  # `content_hash` of the document


def detect_change(
    document: Document, stored: StoredVersion | None, settings: PassageSettings
) -> DocumentChange:
    """Compare a document with the stored one; None if the index holds none with its id."""
    digest = content_hash(document, settings)
    if document.is_empty:
        return DocumentChange("empty", digest)
    if stored is None:
        return DocumentChange("new", digest)
    if stored.hash != digest:
        return DocumentChange("changed", digest)
    if stored.metadata != metadata_json(document.metadata):
        return DocumentChange("metadata", digest)
    return DocumentChange("unchanged", digest)


def prepare_source(
    source: Document | ReadyDocument, settings: PassageSettings, spec: EncoderSpec
) -> Document | ReadyDocument:
    """Return a document as the index reads it; raise SourceError if it cannot be stored."""
    if not settings.labels:
        source = _without_labels(source)
    document = document_in(source)
    fault = document_fault(document)
    if fault is not None:
        raise SourceError(f"document {document.id!r}: {fault}")
    if isinstance(source, ReadyDocument):
        require_sound(source, spec, f"document {document.id!r}")
    return source


def document_in(source: Document | ReadyDocument) -> Document:
    """Return the document itself, without vectors."""
    return source.document if isinstance(source, ReadyDocument) else source


def _without_labels(source: Document | ReadyDocument) -> Document | ReadyDocument:
    """Remove labels, which an index of an earlier release does not read."""
    document = document_in(source)
    outline = tuple(mark for mark in document.outline if mark.kind != "label")
    if outline != document.outline:
        document = replace(document, outline=outline)
    if isinstance(source, ReadyDocument):
        # Its terms may include those of labels.
        return replace(source, document=document, terms=None)
    return document
