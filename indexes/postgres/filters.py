"""Metadata filters as SQL conditions on rows of documents.

Equality and `contains` become containment (``@>``), for which the metadata has an index. Stored
numbers compare as Python's do; see `encode_metadata`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from indexes.filters.grammar import Expression, FieldComparison, Joined, Not, Scalar
from indexes.metadata import metadata_json

# Largest number of values of `in` that are looked up one by one in the index of the metadata.
_MAX_LOOKUPS = 16
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
# Numbers that JSONB changes: it has no exponents and no negative zero.
_CHANGED_BY_JSONB = re.compile(r"e\+|-0\.0")
# Python writes floats from this magnitude on with an exponent.
_MIN_EXPONENT_VALUE = 1e16


@dataclass(frozen=True, slots=True)
class SqlCondition:
    """A condition on a row `d` of documents, which is true where a filter matches."""

    text: str  # SQL with `%s` for each parameter; it holds no text of a user
    parameters: tuple[Any, ...]


MATCHES_ALL = SqlCondition("TRUE", ())


def sql_condition(expression: Expression) -> SqlCondition:
    """Return a filter as SQL."""
    match expression:
        case Not(part):
            inner = sql_condition(part)
            return SqlCondition(f"({inner.text} IS NOT TRUE)", inner.parameters)
        case Joined(operator, parts):
            return _join(f" {operator} ", [sql_condition(part) for part in parts])
        case _:
            return _compare(expression)


def encode_metadata(metadata: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return metadata as JSONB stores it, and its exact JSON where the two differ."""
    canonical = metadata_json(metadata)
    if not _CHANGED_BY_JSONB.search(canonical):
        return canonical, None
    return json.dumps(json.loads(canonical, parse_float=_parse_float)), canonical


def decode_metadata(stored: str, exact: str | None) -> dict[str, Any]:
    """Return stored metadata with its names in the order of code points."""
    return dict(json.loads(exact or stored, object_pairs_hook=lambda pairs: dict(sorted(pairs))))


def _parse_float(text: str) -> int | float:
    value = float(text)
    return int(value) if abs(value) >= _MIN_EXPONENT_VALUE else value


def _join(operator: str, parts: Sequence[SqlCondition]) -> SqlCondition:
    text = operator.join(part.text for part in parts)
    return SqlCondition(f"({text})", tuple(value for part in parts for value in part.parameters))


def _compare(comparison: FieldComparison) -> SqlCondition:
    if comparison.field.own:
        return _compare_own(comparison)
    names = comparison.field.names
    value = "d.metadata" + " -> %s::text" * len(names)
    operator = comparison.operator
    values = comparison.values
    if operator == "exists":
        return SqlCondition(_is_present(value), names)
    if operator == "contains":
        in_array = _contains_json(names, list(values))
        if not isinstance(values[0], str):
            return in_array
        return _join(" OR ", [in_array, _compare_value(value, names, operator, values[0])])
    if operator != "in":
        return _compare_value(value, names, operator, values[0])
    if len(values) <= _MAX_LOOKUPS:
        return _join(" OR ", [_contains_json(names, scalar) for scalar in values])
    literals = [_scalar_json(scalar) for scalar in values]
    return SqlCondition(f"(({value}) = ANY(%s::jsonb[]))", (*names, literals))


def _compare_own(comparison: FieldComparison) -> SqlCondition:
    """Return the condition for the document's own id or title, which is a string."""
    column = "d.id" if comparison.field.names[0] == "id" else "d.title"
    value = f"to_jsonb({column})"
    if comparison.operator == "exists":
        return SqlCondition(_is_present(value), ())
    if comparison.operator == "in":
        # The ids have an index.
        texts = [scalar for scalar in comparison.values if isinstance(scalar, str)]
        return SqlCondition(f"({column} = ANY(%s))", (texts,))
    scalar = comparison.values[0]
    if comparison.operator == "contains" and not isinstance(scalar, str):
        return SqlCondition("FALSE", ())
    return _compare_value(value, (), comparison.operator, scalar)


def _compare_value(
    value: str, names: tuple[str, ...], operator: str, scalar: Scalar
) -> SqlCondition:
    """Return the condition for a JSON value.

    Args:
        value: the SQL of the JSON value, with a mark for each of `names`.
        names: the parameters of `value`.
        operator: ``contains`` and ``like`` compare strings; others compare values of one type.
        scalar: the value of the filter.
    """
    text = f"(({value}) #>> ARRAY[]::text[])"
    is_string = f"jsonb_typeof({value}) = 'string'"
    parameter = _scalar_json(scalar)
    match operator:
        case "like":
            # In the collation "C", lower() changes A-Z and nothing else.
            test = f"""{is_string} AND (lower({text} COLLATE "C") LIKE %s ESCAPE '')"""
            parameter = str(scalar).translate(_ASCII_LOWER)
        case "contains":
            test = f"{is_string} AND strpos({text}, %s) > 0"
            parameter = str(scalar)
        case "!=":
            test = f"{_is_present(value)} AND ({value}) <> %s::jsonb"
        case _ if isinstance(scalar, str):
            test = f'{is_string} AND {text} COLLATE "C" {operator} %s'
            parameter = scalar
        case _:
            test = f"jsonb_typeof({value}) = 'number' AND ({value}) {operator} %s::jsonb"
    return SqlCondition(f"({test})", (*names, *names, parameter))


def _is_present(value: str) -> str:
    return f"(jsonb_typeof({value}) <> 'null')"


def _contains_json(names: Sequence[str], scalars: Scalar | list[Scalar]) -> SqlCondition:
    """Return the condition that a field equals a scalar or, for a list, contains its values."""
    content: Any = (
        _whole_as_integer(scalars)
        if not isinstance(scalars, list)
        else list(map(_whole_as_integer, scalars))
    )
    for name in reversed(names):
        content = {name: content}
    return SqlCondition("(d.metadata @> %s::jsonb)", (json.dumps(content),))


def _scalar_json(value: Scalar) -> str:
    return json.dumps(_whole_as_integer(value))


def _whole_as_integer(value: Scalar) -> Scalar:
    """Return a whole float as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
