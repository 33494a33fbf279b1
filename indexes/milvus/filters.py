"""Metadata filters as expressions of Milvus.

What Milvus makes of a comparison of JSON where a field is absent, or of another type, differs
between its releases. So each row has an array of *facts*, hashes that say "the field x is there",
"the field x is the number 1", "the list x holds 1", and an expression looks whether one is there.
Order is compared in JSON where a fact says that there is something to compare.

What Milvus cannot decide (``like``, a string that contains another, the order of large numbers) is
refused where a document has a value that it concerns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from indexes.errors import FilterError
from indexes.filters.grammar import Expression, Joined, Not, Where, type_of

# Milvus compares an integer with a float as floats, which are exact below it.
_EXACT = 2**53
_LONGEST = 1024
ALL = "passage >= 0"
_INVERSE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_Path = tuple[str, ...]


def number_of(*parts: Any) -> int:
    """A hash of 63 bits: that of a term, a document's id, or a passage."""
    text = parts[0] if len(parts) == 1 else json.dumps(parts)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


# A hash of "exists" or a type of JSON and a path, or of "name" and a top-level field.
fact = number_of


def facts_of(
    id_: str, title: str | None, metadata: Mapping[str, Any]
) -> tuple[list[int], dict[str, Any]]:
    """The facts of a document, and by place its numbers and strings that Milvus orders exactly."""
    facts = {fact("name", name) for name in metadata}
    values: dict[str, Any] = {}
    for path, value in _walked((), {"own": {"id": id_, "title": title}, "metadata": metadata}):
        kind = type_of(value)
        facts |= {fact("exists", path), fact(kind, path)}
        if kind in ("string", "number", "boolean"):
            facts.add(fact("equals", path, *_key(value)))
        if kind in ("string", "number"):
            if _is_ordered(value):
                values[_place(path)] = value
            else:
                facts.add(fact("unordered", kind, path))
        elif kind == "array":
            for element in value:
                if isinstance(element, str | int | float):
                    facts.add(fact("holds", path, *_key(element)))
    return list(facts), values


def _walked(path: _Path, value: Any) -> Iterator[tuple[_Path, Any]]:
    if path and value is not None:
        yield path, value
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _walked((*path, name), inner)


def _key(value: str | float) -> tuple[str, Any]:
    """The JSON type and the value; equal numbers have one key."""
    kind = type_of(value)
    return kind, int(value) if kind == "number" and value == int(value) else value


def _place(path: _Path) -> str:
    """The name in ``values`` of a field's value."""
    return f"v{number_of('place', path):x}"


def _is_ordered(value: str | float) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST and value.isprintable()
    return abs(value) < _EXACT


def _selected(node: Expression, doubts: set[int], *, negated: bool = False) -> str:
    """The expression for a filter, or for its negation; adds the facts that it cannot decide."""
    if isinstance(node, Not):
        return _selected(node.part, doubts, negated=not negated)
    if isinstance(node, Joined):
        word = " and " if (node.operator == "and") != negated else " or "
        parts = [_selected(part, doubts, negated=negated) for part in node.parts]
        return f"({word.join(parts)})"
    path = ("own" if node.field.own else "metadata", *node.field.names)
    exists, string = fact("exists", path), fact("string", path)
    equal = [fact("equals", path, *_key(value)) for value in node.values]
    match node.operator:
        case "exists":
            return has(exists, negated=negated)
        case "in":
            return has(*equal, negated=negated)
        case "!=":
            word = "or" if negated else "and"
            other = has(*equal, negated=not negated)
            return f"({has(exists, negated=negated)} {word} {other})"
        case "contains":
            (value,) = node.values
            doubts |= {string} if isinstance(value, str) else set()
            return has(fact("holds", path, *_key(value)), negated=negated)
        case "like":
            pattern = str(node.values[0])
            doubts |= {string} if pattern.strip("%") or not pattern else set()
            return has(string, negated=negated)
        case operator:
            (value,) = node.values
            kind = type_of(value)
            typed, unordered = fact(kind, path), fact("unordered", kind, path)
            doubts.add(unordered if _is_ordered(value) else typed)
            text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
            place = f'values["{_place(path)}"]'
            if negated:
                return f"({has(typed, negated=True)} or {place} {_INVERSE[operator]} {text})"
            return f"({has(typed)} and {place} {operator} {text})"


def has(*facts: int, negated: bool = False) -> str:
    """That a document has at least one of some facts; negated, that it has none of them."""
    return f"{'not ' * negated}array_contains_any(facts, {list(facts)})"


def expression_of(where: Where | None, count: Callable[[str], int]) -> str:
    """An expression for the rows that a filter matches; FilterError where Milvus cannot tell."""
    doubts: set[int] = set()
    selected = ALL if where is None else _selected(where.expression, doubts)
    if doubts and count(has(*sorted(doubts))):
        raise FilterError(
            "filter: Milvus cannot evaluate 'like', a string that 'contains' another, nor the "
            "order of long strings and of numbers beyond 2^53, and documents have such values "
            "there; compare with '=' or 'in', or keep the index in a folder"
        )
    return selected
