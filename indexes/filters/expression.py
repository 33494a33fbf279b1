"""A metadata filter as a syntax tree, from which each store makes its own query.

The grammar, and what each comparison means, is in `indexes.filters.grammar`. A comparison is true
or false for every document, never unknown: except for ``x = null``, it is false where the field is
absent or null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from indexes.filters.tokens import Value

Scalar = Value | bool
"""A string, a number (an integer of 64 bits or a finite float) or a boolean; 1 is not True."""


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
