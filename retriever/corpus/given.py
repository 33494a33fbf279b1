"""Documents that a program gives: as `Document`, as a mapping, or as a text alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retriever.corpus.documents import Document, Record
from retriever.corpus.fields import Assembler, Fields
from retriever.corpus.identity import content_id


def as_document(given: str | Mapping[str, Any] | Document) -> Document:
    """A document in the form that the index takes.

    Args:
        given: a `Document`; a text, whose id is made from its content; or a mapping with the
            fields of a line of JSON Lines: ``text``, and if it has them ``id`` and ``title``.
            Every other field is metadata.

    Raises:
        SourceError: the mapping has no text, or a field of the wrong type.
        TypeError: it is something else.
    """
    if isinstance(given, Document):
        return given
    if isinstance(given, str):
        return Document(content_id(None, given), given)
    if not isinstance(given, Mapping):
        raise TypeError(f"expected a text, a mapping or a Document, found {type(given).__name__}")
    where = f"document {given['id']!r}" if "id" in given else "a document without id"
    record = Record(1, where, dict(given))
    id_, text, title, metadata = Assembler(Fields()).split(record)
    return Document(content_id(title, text) if id_ is None else id_, text, title, metadata)
