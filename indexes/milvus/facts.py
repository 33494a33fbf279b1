"""What Milvus stores of a document for filters, and the expressions that read it.

Milvus's own comparisons of JSON differ between releases where a field is absent or of another type
(``not (x < 1)`` matches a document without x in one, and not in another). So equality is a matter
of *facts*: each document has an array of numbers, hashes of 63 bits, that say "the field x is
there", "the field x is the number 1", "the list x holds 1". An array is never absent, and
``array_contains`` is true or false. Order is compared in JSON, but only where a fact says that
there is a number, or a string, to compare.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from indexes.filters.grammar import Field

# Milvus compares an integer with a float as floats, which are exact below it.
_EXACT = 2**53
_LONGEST = 1024
Path = tuple[str, ...]


def number_of(*parts: Any) -> int:
    """A hash of 63 bits: that of a term, an id or a fact."""
    text = parts[0] if len(parts) == 1 else json.dumps(parts)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def path_of(field: Field) -> Path:
    """The path of a field, in which the document's own are apart."""
    return ("own" if field.own else "metadata", *field.names)


def facts_of(
    id_: str, title: str | None, metadata: Mapping[str, Any]
) -> tuple[list[int], dict[str, Any]]:
    """The facts of a document, and by place its numbers and strings that have an order."""
    facts: dict[int, None] = {}
    values: dict[str, Any] = {}
    own = {"own": {"id": id_, "title": title}, "metadata": metadata}
    for path, value in _walked((), own):
        for fact in _facts(path, value):
            facts[fact] = None
        if is_ordered(value):
            values[place_of(path)] = value
    return list(facts), values


def _walked(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if path and value is not None:
        yield path, value
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _walked((*path, name), inner)


def _facts(path: Path, value: Any) -> Iterator[int]:
    yield exists(path)
    if is_orderable(value):
        yield ordered(path, value) if is_ordered(value) else unordered(path, value)
    if isinstance(value, str):
        yield is_string(path)
    if isinstance(value, str | int | float):
        yield equals(path, value)
    elif isinstance(value, list | tuple):
        for one in value:
            if isinstance(one, str | int | float):
                yield holds(path, one)


def exists(path: Path) -> int:
    """The field is there and not null."""
    return number_of("exists", path)


def equals(path: Path, value: str | float) -> int:
    """The field is a value."""
    return number_of("equals", path, *_key(value))


def holds(path: Path, value: str | float) -> int:
    """The field is a list that holds a value."""
    return number_of("holds", path, *_key(value))


def is_string(path: Path) -> int:
    """The field is a string."""
    return number_of("string", path)


def ordered(path: Path, value: str | float) -> int:
    """The field is of the value's type, a number or a string, and Milvus orders it exactly."""
    return number_of("ordered", "string" if isinstance(value, str) else "number", path)


def unordered(path: Path, value: str | float) -> int:
    """The field is of the value's type, a number or a string, which Milvus does not order so."""
    return number_of("unordered", "string" if isinstance(value, str) else "number", path)


def scalar_types(path: Path) -> dict[str, list[int]]:
    """By JSON type, the facts of which a field has one if it is a string, number or boolean."""
    return {
        "string": [is_string(path)],
        "number": [ordered(path, 0), unordered(path, 0)],
        "boolean": [equals(path, True), equals(path, False)],
    }


def place_of(path: Path) -> str:
    """Under what name the value of a field that has an order is stored."""
    return f"v{number_of('place', path):x}"


def is_orderable(value: Any) -> bool:
    """Whether a value is a number or a string."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def is_ordered(value: Any) -> bool:
    """Whether it is one that Milvus orders as filters do."""
    if isinstance(value, str):
        return len(value) <= _LONGEST and value.isprintable()
    return is_orderable(value) and abs(value) < _EXACT


def _key(value: str | float) -> tuple[str, Any]:
    """The JSON type and the value; equal numbers have one key."""
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, str):
        return "string", value
    return "number", int(value) if value == int(value) else value
