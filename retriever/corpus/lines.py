"""Plain text: a passage a line; blank lines are separators."""

from __future__ import annotations

from collections.abc import Iterator

from retriever.corpus.decoding import TextLines
from retriever.corpus.documents import Fields, Record
from retriever.corpus.sources import OpenSource
from retriever.errors import SourceError


def read(source: OpenSource, fields: Fields) -> Iterator[Record]:
    """The passages of a source, in file order, each without its line end.

    Raises:
        SourceError: the caller names an id or title field, which plain text cannot have.
    """
    refuse_named_fields(source.name, fields)
    key = fields.text or "text"
    lines = TextLines(source.stream)
    for line in lines:
        fault = lines.take_fault()
        where = f"{source.name}:{lines.number}"
        if fault is not None:
            yield Record(lines.number, where, {}, fault)
        elif line.strip():
            text = line[:-1].removesuffix("\r") if line.endswith("\n") else line
            yield Record(lines.number, where, {key: text})


def refuse_named_fields(name: str, fields: Fields) -> None:
    """Raise SourceError where `fields` names what plain text does not have: an id or a title."""
    for role, field in (("id", fields.id), ("title", fields.title)):
        if field is not None:
            raise SourceError(
                f"{name}: read as plain text, which has no {role} field {field!r}; "
                "use JSONL, CSV, TSV or Parquet to give one"
            )
