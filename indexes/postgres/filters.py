"""Metadata filters as conditions over rows of documents.

Equality and `contains` become containment (``@>``), which the index over the metadata answers. The
metadata is stored so that its numbers compare as Python's do, see `stored_metadata`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from indexes.filters.grammar import Comparison, Expression, Joined, Not, Scalar
from indexes.folder.documents import metadata_json

# Values that are looked up one by one in the index over the metadata.
_FEW_VALUES = 16
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
# Numbers that JSONB would change: it has no exponents, and no zero below zero.
_INEXACT = re.compile(r"e\+|-0\.0")
_EXPONENT = 1e16


@dataclass(frozen=True, slots=True)
class SqlCondition:
    """A boolean expression over a row `d` of documents: true where a filter passes, else not."""

    text: str  # SQL without user text, with `%s` marks
    parameters: tuple[Any, ...]


MATCHES_ALL = SqlCondition("TRUE", ())


def condition(expression: Expression) -> SqlCondition:
    """A filter as SQL."""
    match expression:
        case Not(part):
            inner = condition(part)
            return SqlCondition(f"({inner.text} IS NOT TRUE)", inner.parameters)
        case Joined(operator, parts):
            return _joined(f" {operator} ", [condition(part) for part in parts])
        case _:
            return _compared(expression)


def stored_metadata(metadata: Mapping[str, Any]) -> tuple[str, str | None]:
    """Metadata as JSONB stores it, and its exact text where that has another."""
    canonical = metadata_json(metadata)
    if not _INEXACT.search(canonical):
        return canonical, None
    return json.dumps(json.loads(canonical, parse_float=_whole)), canonical


def read_metadata(stored: str, exact: str | None) -> dict[str, Any]:
    """The metadata again, with its names in the order of code points."""
    return dict(json.loads(exact or stored, object_pairs_hook=lambda pairs: dict(sorted(pairs))))


def _whole(text: str) -> int | float:
    value = float(text)
    return int(value) if abs(value) >= _EXPONENT else value


def _joined(joint: str, parts: Sequence[SqlCondition]) -> SqlCondition:
    text = joint.join(part.text for part in parts)
    return SqlCondition(f"({text})", tuple(value for part in parts for value in part.parameters))


def _compared(comparison: Comparison) -> SqlCondition:
    own = comparison.field.own
    names = comparison.field.names
    wanted = comparison.values
    value = "d.metadata" + " -> %s::text" * len(names)
    if own:
        column = "d.id" if names[0] == "id" else "d.title"
        names = ()
        value = f"to_jsonb({column})"
    text = f"(({value}) #>> ARRAY[]::text[])"
    string = f"jsonb_typeof({value}) = 'string'"
    present = SqlCondition(f"(jsonb_typeof({value}) <> 'null')", names)
    match comparison.operator:
        case "exists":
            return present
        case "like":
            like = _like(text, str(wanted[0]))
            return SqlCondition(f"({string} AND {like.text})", (*names, *names, *like.parameters))
        case "contains":
            held = SqlCondition("FALSE", ()) if own else _holds(names, list(wanted))
            if not isinstance(wanted[0], str):
                return held
            part = SqlCondition(
                f"({string} AND strpos({text}, %s) > 0)", (*names, *names, wanted[0])
            )
            return _joined(" OR ", [held, part])
        case "in" if own:
            # The ids have an index.
            strings = [one for one in wanted if isinstance(one, str)]
            return SqlCondition(f"({column} = ANY(%s))", (strings,))
        case "in":
            if len(wanted) <= _FEW_VALUES:
                return _joined(" OR ", [_holds(names, one) for one in wanted])
            literals = [_json(one) for one in wanted]
            return SqlCondition(f"(({value}) = ANY(%s::jsonb[]))", (*names, literals))
        case "!=":
            test = f"{present.text} AND ({value}) <> %s::jsonb"
            return SqlCondition(f"({test})", (*names, *names, _json(wanted[0])))
        case operator if isinstance(wanted[0], str):
            test = f'{string} AND {text} COLLATE "C" {operator} %s'
            return SqlCondition(f"({test})", (*names, *names, wanted[0]))
        case operator:
            test = f"jsonb_typeof({value}) = 'number' AND ({value}) {operator} %s::jsonb"
            return SqlCondition(f"({test})", (*names, *names, _json(wanted[0])))


def _holds(names: Sequence[str], wanted: Scalar | list[Scalar]) -> SqlCondition:
    """The metadata has this scalar at the field's path; or, in a list, an array that holds it."""
    whole: Any = [_exact(one) for one in wanted] if isinstance(wanted, list) else _exact(wanted)
    for name in reversed(names):
        whole = {name: whole}
    return SqlCondition("(d.metadata @> %s::jsonb)", (json.dumps(whole),))


def _like(text: str, pattern: str) -> SqlCondition:
    folded = pattern.translate(_ASCII_LOWER)
    # In the collation "C", lower() changes A-Z and nothing else.
    return SqlCondition(f"""(lower({text} COLLATE "C") LIKE %s ESCAPE '')""", (folded,))


def _json(value: Scalar) -> str:
    return json.dumps(_exact(value))


def _exact(value: Scalar) -> Scalar:
    """A whole float as the integer that it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
