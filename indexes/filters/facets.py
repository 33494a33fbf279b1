"""Facets: how many documents have each value of a metadata field, and summaries of fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.errors import FilterError
from indexes.filters.grammar import (
    compile_where,
    parse_field,
    type_of,
    written_field,
    written_value,
)
from indexes.metadata import UNKEPT, FieldType, values_of
from indexes.protocol import Facet, FacetValue, FieldSummary

FieldPath = tuple[str, ...]

# The kind of a value, so that 1 and True differ, and the value.
_Key = tuple[str, Any]


def counted_facet(
    name: str, values: Iterable[tuple[Any, int, int]], limit: int, *, queried: bool
) -> Facet:
    """Return the facet of one field from its values, each with its documents and matches."""
    path = parse_field(name)
    # Value to the numbers of documents and matches that have it alone, and in a list.
    totals: dict[_Key, NDArray[np.int64]] = {}
    for value, documents, matches in values:
        for leaf, listed in _leaves(value, path[1:]) if documents else ():
            total = totals.setdefault(leaf, np.zeros((2, 2), np.int64))
            total[int(listed)] += (documents, matches)
    strings = any(kind == "string" and total[0, 0] for (kind, _), total in totals.items())
    facet_values = []
    for (kind, value), total in sorted(totals.items(), key=_order)[:limit]:
        documents, matches = total.sum(axis=0).tolist()
        where = _where(path, kind, value, total, strings=strings)
        facet_values.append(FacetValue(value, documents, matches if queried else None, where))
    return Facet(name, tuple(facet_values), len(totals))


def python_value(kind: str, value: Any) -> Any:
    """Convert a value of `json_each` to a Python value."""
    if kind in ("true", "false"):
        return kind == "true"
    return json.loads(value) if kind in ("array", "object") else value


def _leaves(value: Any, path: FieldPath) -> Iterator[tuple[_Key, bool]]:
    """Yield the distinct values at the end of a path, and whether they are in a list."""
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return
        value = value[name]
    listed = isinstance(value, list | tuple)
    for key in dict.fromkeys(_key(element) for element in (value if listed else [value])):
        if key is not None:
            yield key, listed


def _key(value: Any) -> _Key | None:
    """Return type and value; None for values that no facet counts: null, nested lists, objects."""
    return (type_of(value), value) if isinstance(value, str | int | float) else None


def _order(item: tuple[_Key, NDArray[np.int64]]) -> tuple[Any, ...]:
    (kind, value), total = item
    documents, matches = total.sum(axis=0).tolist()
    return -matches, -documents, ("number", "string", "boolean").index(kind), value


def _where(
    path: FieldPath, kind: str, value: Any, total: NDArray[np.int64], *, strings: bool
) -> str | None:
    """Return the filter that selects the documents of a value; None if it is too long."""
    name = written_field(path)
    literal = written_value(value)
    alone = f"{name} = {literal}"
    listed = f"{name} contains {literal}"
    if kind == "string" and strings:
        listed = f"({listed} and not {name} like '%')"
    parts = [
        text for text, documents in zip((alone, listed), total[:, 0], strict=True) if documents
    ]
    where = parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"
    try:
        compile_where(where)
    except FilterError:
        return None
    return where


TYPES: dict[str, FieldType] = {
    "text": "string",
    "integer": "number",
    "real": "number",
    "true": "boolean",
    "false": "boolean",
    "array": "array",
    "object": "object",
}

# Rows that are read for each segment, field and type: the least values.
READ = 12


@dataclass
class FieldValues:
    """Values of one field that were read."""

    types: set[FieldType] = field(default_factory=set)
    examples: set[_Key] = field(default_factory=set)
    # Numbers, among which are the least and the greatest one.
    ends: set[float] = field(default_factory=set)
    complete: bool = True
    distinct: int = 0

    def add(self, kind: str, value: Any, *, example: bool = True) -> None:
        """Add a value, with type and value as `json_each` gives them."""
        if kind == UNKEPT:
            # Too long to be kept: a string, or an array or object.
            self.complete = False
            return
        self.types.add(TYPES[kind])
        if TYPES[kind] == "number":
            self.ends.add(value)
        if kind in ("array", "object"):
            self.complete = False
            elements = json.loads(value) if kind == "array" else []
            self.examples.update(key for element in elements if (key := _key(element)) is not None)
        elif example and (key := _key(python_value(kind, value))) is not None:
            self.examples.add(key)

    def summary(self, name: str) -> FieldSummary:
        """Return the summary of the field."""
        strings, numbers, booleans = (
            sorted(value for kind, value in self.examples if kind == type_name)
            for type_name in ("string", "number", "boolean")
        )
        return FieldSummary(
            name,
            tuple(sorted(self.types)),
            (*strings[:READ], *numbers[:READ], *booleans),
            self.complete and max(len(strings), len(numbers)) < READ,
            (min(self.ends), max(self.ends)) if self.ends else None,
            self.distinct,
        )


def summaries_of(documents: Iterable[Mapping[str, Any]]) -> list[FieldSummary]:
    """Return summaries of the fields of metadata, ascending by name."""
    values_by_name: dict[str, FieldValues] = {}
    add_documents(values_by_name, documents)
    return [values.summary(name) for name, values in sorted(values_by_name.items()) if values.types]


def add_documents(
    values_by_name: dict[str, FieldValues], documents: Iterable[Mapping[str, Any]]
) -> None:
    """Add the values of documents' metadata to `seen`, field by field."""
    for name, by_value in values_of(([], metadata) for metadata in documents).items():
        field_values = values_by_name.setdefault(name, FieldValues())
        field_values.distinct += len(by_value)
        for value in by_value:
            field_values.add(*value)
