"""What a reader yields, and which values an index can store."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeGuard

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_MAX_DEPTH = 100
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a corpus.

    Attributes:
        id: not blank.
        text: the body; may be empty if there is a title.
        title: None if there is none; without NUL.
        metadata: JSON values by field, for filters; integers within 64 bits, finite numbers,
            strings without NUL.
    """

    id: str
    text: str
    title: str | None = None
    metadata: dict[str, Json] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether neither the text nor the title holds anything but white space."""
        return not (self.text.strip() or (self.title or "").strip())


class Record(NamedTuple):
    """One record as a format reads it, before its fields are assigned.

    Attributes:
        number: 1-based line, row or file within the source.
        where: the place for error messages, such as `corpus.jsonl:7`.
        values: the record's fields, not yet checked; empty if `fault` is set. An exception stands
            for a value that cannot be read.
        fault: what is wrong with the record, or None.
        passed_over: `fault` is no error but says why the source does not include the file.
    """

    number: int
    where: str
    values: dict[str, Any]
    fault: str | None = None
    passed_over: bool = False


@dataclass(slots=True)
class FieldCount:
    """In how many records something is the matter with a field.

    Attributes:
        first: the place of the first one, and what is there.
        records: their number.
    """

    first: str
    records: int = 0

    @staticmethod
    def add(counts: dict[str, FieldCount], name: str, first: str) -> None:
        """Count one more record; `first` is kept if it is the first of that name."""
        counts.setdefault(name, FieldCount(first)).records += 1


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


def id_fault(value: str) -> str | None:
    """What keeps `value` from being an id, or None."""
    if not value.strip():
        return "is empty, expected a string or an integer"
    return compared_fault(value)


def compared_fault(value: str) -> str | None:
    """What keeps `value` from being stored where filters compare it, or None."""
    if "\0" in value:
        # Some functions of SQLite end a string at NUL.
        return "holds a NUL character (\\u0000), which only the text of a document may hold"
    return string_fault(value)


def is_id(value: object) -> TypeGuard[str]:
    """Whether a document can have this id, so that a store can look it up."""
    return isinstance(value, str) and id_fault(value) is None


def document_fault(document: Document) -> str | None:
    """What keeps a document, which any program may have made, from being stored, or None."""
    for role, value in (("id", document.id), ("text", document.text), ("title", document.title)):
        if not isinstance(value, str):
            if role == "title" and value is None:
                continue
            return f"{role} is {value!r:.60}, expected a string"
        check = {"id": id_fault, "text": string_fault, "title": compared_fault}[role]
        fault = check(value)
        if fault is not None:
            return f"{role} {fault}"
    return metadata_fault(document.metadata)


def metadata_fault(metadata: Mapping[str, object]) -> str | None:
    """What keeps `metadata` from being stored, naming the top-level field, or None.

    Refused are integers beyond 64 bits, NaN and infinities, NUL and lone surrogates (in keys as
    well), types that JSON does not have, and nesting deeper than 100 levels.
    """
    for name, value in metadata.items():
        fault = _key_fault(name) or _value_fault(value, 1)
        if fault is not None:
            return f"the field {name!r} {fault}"
    return None


def storable_metadata(metadata: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The fields that can be stored, with null for NaN, and what is wrong with each other one."""
    if metadata_fault(metadata) is None:
        return metadata, {}
    kept, faults = {}, {}
    for name, given in metadata.items():
        value = _null_for_nan(given, 1)
        fault = _key_fault(name) or _value_fault(value, 1)
        if fault is None:
            kept[name] = value
        else:
            faults[name] = fault
    return kept, faults


def _null_for_nan(value: object, depth: int) -> object:
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if depth <= _MAX_DEPTH:
        if isinstance(value, list | tuple):
            return [_null_for_nan(item, depth + 1) for item in value]
        if isinstance(value, dict):
            return {key: _null_for_nan(item, depth + 1) for key, item in value.items()}
    return value


def _key_fault(key: object) -> str | None:
    return compared_fault(key) if isinstance(key, str) else "has a name that is not a string"


def _value_fault(value: object, depth: int) -> str | None:
    if isinstance(value, str):
        return compared_fault(value)
    if isinstance(value, float):
        return None if math.isfinite(value) else f"holds {value}, expected a finite number"
    if isinstance(value, int):
        # Filters compare metadata inside SQLite, whose integers end at 64 bits.
        return None if value in _INT64 else "holds an integer beyond 64 bits; write it as a string"
    if value is None:
        return None
    if isinstance(value, Exception):
        return f"holds a value that cannot be converted: {' '.join(str(value).split())}"
    if depth > _MAX_DEPTH:
        return f"is nested deeper than {_MAX_DEPTH} levels"
    if isinstance(value, list | tuple):
        return next(filter(None, (_value_fault(item, depth + 1) for item in value)), None)
    if not isinstance(value, dict):
        return f"holds a value of type {type(value).__name__}, which JSON does not have"
    for key, item in value.items():
        fault = _key_fault(key) or _value_fault(item, depth + 1)
        if fault is not None:
            return fault
    return None
