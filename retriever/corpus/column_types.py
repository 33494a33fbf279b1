"""Types for the columns of CSV and TSV, whose cells are all text.

A column has one type, so that one form of a filter finds all of its values. The first rows decide:
every cell that they hold must fit. What does not fit later is kept as the text that it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import Literal

ColumnType = Literal["string", "number", "boolean", "date"]

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
# Digits of the largest integer of 64 bits, with its sign.
_DIGITS = 20
_BOOLEANS = {"true": True, "false": False}
_YEAR_OR_MONTH = re.compile(r"[0-9]{4}(-(0[1-9]|1[0-2]))?")


def number(cell: str) -> int | float | None:
    """A number as JSON writes it, integers within 64 bits; None for any other text.

    Text with leading zeros, such as a postal code, is no number.
    """
    match = _NUMBER.fullmatch(cell)
    if match is None:
        return None
    if match.lastindex is not None:
        real = float(cell)
        return real if math.isfinite(real) else None
    if len(cell) > _DIGITS:
        return None
    whole = int(cell)
    return whole if -(2**63) <= whole < 2**63 else None


def boolean(cell: str) -> bool | None:
    """True or false in any case; None for any other text."""
    return _BOOLEANS.get(cell.lower())


def iso_date(cell: str) -> str | None:
    """A date of ISO 8601 in the one form whose order as a string is that of time; else None.

    The form is ``2020``, ``2020-03``, ``2020-03-31`` or ``2020-03-31T12:30:00``, and a fraction of
    the second only if it is not 0. A time with an offset from UTC becomes the time in UTC.
    """
    if _YEAR_OR_MONTH.fullmatch(cell):
        return cell
    try:
        return date.fromisoformat(cell).isoformat()
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(cell)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    return moment.isoformat()


# In the order in which they are tried; what fits none is a string.
_VALUES: dict[ColumnType, Callable[[str], int | float | str | None]] = {
    "number": number,
    "boolean": boolean,
    "date": iso_date,
    "string": str,
}


def value_of(cell: str, kind: ColumnType) -> int | float | str | None:
    """The cell as a value of the type; None if it does not fit."""
    return _VALUES[kind](cell)


def type_of(cells: Iterable[str]) -> ColumnType:
    """The type that all of the cells fit."""
    fitting = dict(_VALUES)
    for cell in cells:
        for kind in list(fitting):
            if fitting[kind](cell) is None:
                del fitting[kind]
        if len(fitting) == 1:
            break
    return next(iter(fitting))
