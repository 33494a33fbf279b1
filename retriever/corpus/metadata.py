"""Which values can be kept: the limits of UTF-8, of JSON and of SQLite's integers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from retriever.corpus.documents import Json

_MAX_DEPTH = 100
_INT64 = range(-(2**63), 2**63)


def string_fault(value: str) -> str | None:
    """What keeps `value` from being stored as UTF-8, or None."""
    if value.isascii():
        return None
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code = ord(value[error.start])
        return f"holds the lone surrogate \\u{code:04x}, which no text may hold"
    return None


def metadata_fault(metadata: Mapping[str, Json]) -> str | None:
    """What keeps `metadata` from being stored, naming the top-level field, or None.

    Refused are integers beyond 64 bits, NaN and infinities, lone surrogates (in keys as well),
    and nesting deeper than 100 levels.
    """
    for name, value in metadata.items():
        fault = string_fault(name) or _value_fault(value, 1)
        if fault is not None:
            return f"the field {name!r} {fault}"
    return None


def _value_fault(value: Json, depth: int) -> str | None:
    if isinstance(value, str):
        return string_fault(value)
    if isinstance(value, float):
        return None if math.isfinite(value) else f"holds {value}, expected a finite number"
    if isinstance(value, int):
        # Filters compare metadata inside SQLite, whose integers end at 64 bits.
        return None if value in _INT64 else "holds an integer beyond 64 bits; write it as a string"
    if value is None:
        return None
    if depth > _MAX_DEPTH:
        return f"is nested deeper than {_MAX_DEPTH} levels"
    if isinstance(value, list):
        return next(filter(None, (_value_fault(item, depth + 1) for item in value)), None)
    for key, item in value.items():
        fault = string_fault(key) or _value_fault(item, depth + 1)
        if fault is not None:
            return fault
    return None
