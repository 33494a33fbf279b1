"""Metadata of documents: its canonical JSON, the checksum over a document, and values by type.

A value that is too long to be kept, or holds a NUL (at which releases of SQLite end a text
differently), has the type `UNKEPT`.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from json.encoder import encode_basestring_ascii as _json_string
from typing import Any, Literal, NamedTuple

# JSON types of the values of a field.
FieldType = Literal["string", "number", "boolean", "array", "object"]

_METADATA = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
)


def metadata_json(metadata: Any) -> str:
    """Return the canonical JSON of metadata; raise where JSON cannot represent a value.

    Equal objects have equal text.
    """
    return _METADATA.encode(metadata)


def document_checksum(
    passages: Sequence[tuple[int, int, int]],
    id_: str,
    title: str | None,
    text: str,
    metadata: str,
    content_hash: bytes,
    outline: str,
) -> bytes:
    """Return a checksum of 16 bytes over all stored columns of a document."""
    # A JSON list separates the parts unambiguously: text that moves from one part to another
    # changes the checksum. json.dumps takes three times as long.
    parts = [
        "null" if string is None else _json_string(string)
        for string in (id_, title, text, metadata)
    ]
    spans = ", ".join([f"[{number}, {start}, {stop}]" for number, start, stop in passages])
    parts += [
        f'"{content_hash.hex()}"',
        f"[{spans}]",
        *([_json_string(outline)] if outline else []),
    ]
    checksum_input = f"[{', '.join(parts)}]"
    return hashlib.blake2b(checksum_input.encode(), digest_size=16).digest()


UNKEPT = "unkept"

# Characters of the longest value that is kept.
LONGEST = 1024


class Value(NamedTuple):
    """A value of a metadata field, as `json_each` gives it."""

    type: str  # JSON type, or `UNKEPT`
    value: int | float | str  # the JSON of an array or object; 1 and 0 for booleans


def values_of(
    documents: Iterable[tuple[Sequence[int], Mapping[str, Any]]],
) -> dict[str, dict[Value, list[int]]]:
    """Return the positions of each value of each field."""
    # By Python's type first: 1, 1.0 and True are equal.
    by_type: dict[str, dict[type, dict[Any, list[int]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for positions, metadata in documents:
        for name, value in metadata.items():
            kind = type(value)
            if kind is list or kind is dict or kind is tuple:
                value = metadata_json(value)  # noqa: PLW2901
            by_type[name][kind][value] += positions
    fields: dict[str, dict[Value, list[int]]] = {}
    for name, values_by_type in by_type.items():
        # Names end at a NUL, as they do for releases of SQLite.
        is_truncated = "\0" in name
        field = fields.setdefault(name.partition("\0")[0], {})
        for kind, by_value in values_by_type.items():
            for value, positions in by_value.items():
                if value is not None:
                    key = Value(UNKEPT, "") if is_truncated else _typed_value(kind, value)
                    field.setdefault(key, []).extend(positions)
    return fields


def _typed_value(kind: type, value: Any) -> Value:
    if kind is bool:
        return Value("true", 1) if value else Value("false", 0)
    if kind is int or kind is float:
        return Value("integer" if kind is int else "real", value)
    # metadata_json writes a NUL inside of an array or object as an escape.
    if len(value) > LONGEST or "\0" in value or (kind is not str and "\\u0000" in value):
        return Value(UNKEPT, "")
    return Value("text" if kind is str else "object" if kind is dict else "array", value)
