"""What a reader yields, and which field of a record holds what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a corpus.

    Attributes:
        id: not blank, unique within its source.
        text: the body; blank only where the title is not, or where blank text was allowed.
        title: None where the source has none.
        metadata: every other field; integers fit in 64 bits, floats are finite.
    """

    id: str
    text: str
    title: str | None = None
    metadata: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fields:
    """Names of the fields that hold a record's id, text and title.

    A name that is None is detected (see `columns`); a name that is given must be in every record.
    """

    id: str | None = None
    text: str | None = None
    title: str | None = None


class Record(NamedTuple):
    """One record as a format read it, before its fields are told apart.

    Attributes:
        number: 1-based line, row or file within the source.
        where: the place for error messages, such as `corpus.jsonl:7`.
        values: the record's fields; empty where `fault` is set.
        fault: what is wrong with the record, or None.
    """

    number: int
    where: str
    values: dict[str, Json]
    fault: str | None = None
