"""Text as a source: JSON Lines, and plain text with a passage a line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from retriever.documents import Fields, Json, Record
from retriever.documents.sources import OpenSource, TextLines
from retriever.errors import SourceError

_SPACE = " \t\r\n"


def read_jsonl(source: OpenSource, fields: Fields) -> Iterator[Record]:
    """An object a line, in file order; blank lines are skipped."""
    decode = json.JSONDecoder(object_pairs_hook=_object).decode
    lines = TextLines(source.stream)
    for line in lines:
        fault = lines.take_fault()
        # The line end is removed first, so that an error's position is a column of this line.
        text = line.rstrip(_SPACE)
        if not text and fault is None:
            continue
        value: Json = {}
        if fault is None:
            try:
                value = decode(text)
            except json.JSONDecodeError as error:
                fault = (
                    f"not JSON, expected one object per line: {error.msg} at column {error.pos + 1}"
                )
            except KeyError as error:
                fault = f"the key {error.args[0]!r} occurs twice in one object; keep one of them"
            except RecursionError:
                fault = "the JSON is nested too deeply"
            except ValueError:
                fault = "holds an integer of thousands of digits; write it as a string"
        if not isinstance(value, dict):
            value, fault = {}, f"expected a JSON object, found {text:.60}"
        yield Record(lines.number, f"{source.name}:{lines.number}", value, fault)


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    values = dict(pairs)
    if len(values) != len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise KeyError(twice)
    return values


def read_lines(source: OpenSource, fields: Fields) -> Iterator[Record]:
    """The passages of a source, each without its line end; blank lines are skipped."""
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
    """Refuse names of fields that a text does not have."""
    for role, named in (("id", fields.id), ("title", fields.title)):
        if named is not None:
            raise SourceError(
                f"{name}: read as plain text, which has no {role} field {named!r}; "
                "use JSONL, CSV, TSV, Parquet or SQLite to give one"
            )
