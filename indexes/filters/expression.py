"""A metadata filter as a syntax tree, from which each store makes its own query.

The grammar, and what each comparison means, is in `indexes.filters.grammar`. A comparison is true
or false for every document, never unknown: except for ``x = null``, it is false where the field is
absent or null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from indexes.protocol import FieldType

Value = str | int | float
# A string, a number (an integer of 64 bits or a finite float) or a boolean; 1 is not True.
Scalar = Value | bool

KEYWORDS = frozenset(
    ("and", "or", "not", "in", "like", "contains", "exists", "true", "false", "null")
)
# The fields of a document itself.
OWN = ("id", "title")

_PLAIN = re.compile(r"[^\W\d]\w*")
_PLURALS: dict[FieldType, str] = {
    "number": "numbers",
    "boolean": "booleans",
    "string": "strings",
    "array": "lists",
    "object": "objects",
}
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
# Values of a list that a message repeats, and characters of each value.
_MOST_VALUES, _LONGEST = 3, 40


@dataclass(frozen=True, slots=True)
class Field:
    """What a comparison looks at.

    Attributes:
        names: the path into the metadata, one name or more; ``id`` or ``title`` for the document's
            own.
        own: whether it is the document's own id or title.
    """

    names: tuple[str, ...]
    own: bool = False


@dataclass(frozen=True, slots=True)
class Exists:
    """The field is there and not null."""

    field: Field


@dataclass(frozen=True, slots=True)
class Like:
    """The field is a string that fits a pattern of ``%`` and ``_``; A-Z and a-z are equal."""

    field: Field
    pattern: str


@dataclass(frozen=True, slots=True)
class Contains:
    """The field is an array that holds the value, or a string that holds the string."""

    field: Field
    value: Scalar


@dataclass(frozen=True, slots=True)
class Among:
    """The field is one of the values, of the same JSON type; None stands for absent or null."""

    field: Field
    values: tuple[Scalar | None, ...]


@dataclass(frozen=True, slots=True)
class Differs:
    """The field is present, and is not the value."""

    field: Field
    value: Scalar


@dataclass(frozen=True, slots=True)
class Ordered:
    """The field is of the value's JSON type, and this holds: field, operator, value."""

    field: Field
    operator: Literal["<", "<=", ">", ">="]
    value: Value


@dataclass(frozen=True, slots=True)
class Not:
    """The part is false; never directly inside another `Not`."""

    part: Expression


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more parts are true."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of two or more parts is true."""

    parts: tuple[Expression, ...]


Comparison = Exists | Like | Contains | Among | Differs | Ordered
Expression = Comparison | Not | And | Or


def written_field(names: Sequence[str]) -> str:
    """A metadata field, as a filter writes it."""

    def written(name: str) -> str:
        is_plain = _PLAIN.fullmatch(name) and name.lower() not in KEYWORDS
        is_own = len(names) == 1 and name in OWN
        return name if is_plain and not is_own else _quoted(name, "`")

    return ".".join(map(written, names))


def written_value(value: Scalar) -> str:
    """A value, as a filter writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value, '"') if isinstance(value, str) else repr(value)


def _quoted(text: str, quote: str) -> str:
    return quote + text.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote


def type_mismatch(
    expression: Expression, has_type: Callable[[str, Collection[FieldType]], bool]
) -> str | None:
    """What to say of the first comparison with a type that no value of its field has.

    Args:
        expression: a filter.
        has_type: as `indexes.protocol.View` has it.

    Returns:
        The field, the types that it has, and the form that can match; None if every comparison can,
        or is of a field without values.
    """
    for comparison in _comparisons(expression):
        name = comparison.field.names[0]
        # The id and the title of a document are strings.
        has = _is_string if comparison.field.own else partial(has_type, name)
        for wanted in _types_wanted(comparison):
            present = [] if has(wanted) else [type_ for type_ in _PLURALS if has([type_])]
            if present:
                there = " and ".join(_PLURALS[type_] for type_ in present)
                missing = " or ".join(_PLURALS[type_] for type_ in wanted)
                form = _form(comparison, present)
                return f"the field {name!r} has {there} and no {missing}; write {form}"
    return None


def _is_string(types: Collection[FieldType]) -> bool:
    return "string" in types


def _comparisons(node: Expression) -> Iterator[Comparison]:
    match node:
        case Not(part):
            yield from _comparisons(part)
        case And(parts) | Or(parts):
            for part in parts:
                yield from _comparisons(part)
        case _:
            yield node


def _values(comparison: Comparison) -> list[Scalar]:
    match comparison:
        case Exists():
            return []
        case Like(pattern=pattern):
            return [pattern]
        case Among(values=values):
            return [value for value in values if value is not None]
        case _:
            return [comparison.value]


def _types_wanted(comparison: Comparison) -> list[list[FieldType]]:
    """For each type of its values, the types of which the field must have one to match."""
    types = list(dict.fromkeys(map(_type, _values(comparison))))
    if types and len(comparison.field.names) > 1:
        return [["object"]]
    if isinstance(comparison, Contains):
        return [["string", "array"] if types == ["string"] else ["array"]]
    return [[type_] for type_ in types]


def _type(value: Scalar) -> FieldType:
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


def _form(comparison: Comparison, present: Sequence[FieldType]) -> str:
    """The comparison in a form that can match a value of one of the types that are there."""
    values = _values(comparison)
    converted = {type_: [_converted(value, type_) for value in values] for type_ in present}
    # The first type that all values can be of.
    type_ = next((x for x in present if None not in converted[x]), present[0])
    texts = [type_.upper() if text is None else _short(text) for text in converted[type_]]
    texts[_MOST_VALUES:] = ["…"] if len(texts) > _MOST_VALUES else []
    name = written_field(comparison.field.names[:1])
    if comparison.field.own:
        name = comparison.field.names[0]
    if type_ == "array":
        held = " or ".join(f"{name} contains {text}" for text in texts)
        if isinstance(comparison, Differs):
            return f"not {held}"
        return f"({held})" if len(texts) > 1 else held
    if type_ == "object":
        name += ".FIELD"
    match comparison:
        case Among() if len(texts) > 1:
            return f"{name} in ({', '.join(texts)})"
        case Differs():
            operator = "!="
        case Ordered() if type_ != "boolean":
            operator = comparison.operator
        case Like() if type_ in ("string", "object"):
            operator = "like"
        case Contains() if type_ in ("string", "object"):
            operator = "contains"
        case _:
            operator = "="
    return f"{name} {operator} {texts[0]}"


def _converted(value: Scalar, type_: FieldType) -> str | None:
    """A value as one of another type, as a filter writes it; None if it cannot be one."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    match type_:
        case "number":
            return text if _NUMBER.fullmatch(text) or _type(value) == "number" else None
        case "boolean":
            truth = _TRUTH.get(text.lower())
            return None if truth is None else written_value(truth)
        case "string":
            return written_value(text)
        case "array" if isinstance(value, str):
            # As an element: `contains` takes no pattern.
            return written_value(value.strip("%"))
    return written_value(value)


def _short(text: str) -> str:
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return clean if len(clean) <= _LONGEST else clean[: _LONGEST - 1] + "…"
