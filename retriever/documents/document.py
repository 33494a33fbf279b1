"""Documents: their fields, what an index can store, and the way from a record to a document.

`reader` reads sources; each format (`text`, `tables`) takes an open source and yields records.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, time
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeGuard, get_args

from retriever.documents.outline import Outline, outline_fault, parse_outline, read_outline
from retriever.errors import ConfigError, SourceError, string_fault

if TYPE_CHECKING:
    from indexes import StoredDocument
    from retriever.documents.losses import Loss

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
ColumnType = Literal["string", "number", "boolean", "date"]

ID_NAMES = ("id", "_id")
TEXT_NAMES = ("text", "contents", "passage", "sentence")
TITLE_NAMES = ("title",)
# Field with an outline in the form of `outline_json`; in any other form it is metadata.
OUTLINE_NAME = "outline"

# Levels of nested metadata.
_MAX_DEPTH = 100
# Hexadecimal digits of a generated id.
_ID_DIGITS = 16
# Names that an error message lists.
_MOST_QUOTED = 20


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a corpus.

    Attributes:
        id: unique name; not blank.
        text: the body; may be empty if there is a title.
        title: the title without NUL, or None.
        metadata: JSON values by field, for filters; integers within 64 bits, finite numbers,
            strings without NUL.
        outline: marks of pages, headings, lines and messages in the text; empty if unknown.
    """

    id: str
    text: str
    title: str | None = None
    metadata: dict[str, Json] = field(default_factory=dict)
    outline: Outline = ()

    @property
    def is_empty(self) -> bool:
        """Whether both text and title are empty or white space."""
        return not (self.text.strip() or (self.title or "").strip())


# A document in any form that programs pass.
AnyDocument = str | Mapping[str, Any] | Document


def content_id(title: str | None, text: str) -> str:
    """Return an id of 16 hex digits that depends on title and text alone."""
    return blake2b(f"{title or ''}\x1f{text}".encode()).hexdigest()[:_ID_DIGITS]


def _id_fault(value: str) -> str | None:
    if not value.strip():
        return "is empty, expected a string or an integer"
    return _comparable_fault(value)


def _comparable_fault(value: str) -> str | None:
    """Describe why filters cannot compare a string; None if they can."""
    if "\0" in value:
        # Some functions of SQLite end a string at NUL.
        return "holds a NUL character (\\u0000), which only the text of a document may hold"
    return string_fault(value)


# The check of each part of a document, and the expected type for messages.
_PARTS: dict[str, tuple[Callable[[str], str | None], str]] = {
    "id": (_id_fault, "a string or an integer"),
    "text": (string_fault, "a string"),
    "title": (_comparable_fault, "a string or null"),
}


def is_id(value: object) -> TypeGuard[str]:
    """Return whether a document can have this id."""
    return isinstance(value, str) and _id_fault(value) is None


def document_fault(document: Document) -> str | None:
    """Describe why a document cannot be stored; None if it can."""
    for role, (fault_of, _) in _PARTS.items():
        value = getattr(document, role)
        if role == "title" and value is None:
            continue
        if not isinstance(value, str):
            return f"{role} is {value!r:.60}, expected a string"
        if (fault := fault_of(value)) is not None:
            return f"{role} {fault}"
    if document.outline and (fault := outline_fault(document.outline, len(document.text))):
        return f"outline: {fault}"
    return metadata_fault(document.metadata)


def metadata_fault(metadata: Mapping[str, object]) -> str | None:
    """Describe why metadata cannot be stored, with the top-level field; None if it can."""
    for name, value in metadata.items():
        fault = _field_fault(name, value, 1)
        if fault is not None:
            return f"the field {name!r} {fault}"
    return None


def plain_metadata(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return metadata with JSON values for NumPy's numbers and arrays, and ISO 8601 for dates."""
    if metadata_fault(metadata) is None:
        return metadata
    return {name: _to_json_value(value, 1, True) for name, value in metadata.items()}


def _to_json_value(value: Any, depth: int, keeps_nan: bool) -> Any:
    """Return the JSON form of a value as far as it has one; null for NaN unless it is kept."""
    if isinstance(value, date | time):
        written = value.isoformat()
        # The value of pandas for a missing time.
        return None if written == "NaT" else written
    if type(value).__name__ == "datetime64":
        # Times finer than microseconds would become integers.
        return _to_json_value(value.astype("datetime64[us]").tolist(), depth, keeps_nan)
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return _to_json_value(value.tolist(), depth, keeps_nan)
    if isinstance(value, float) and math.isnan(value) and not keeps_nan:
        return None
    if depth <= _MAX_DEPTH:
        if isinstance(value, list | tuple):
            return [_to_json_value(item, depth + 1, keeps_nan) for item in value]
        if isinstance(value, dict):
            return {key: _to_json_value(item, depth + 1, keeps_nan) for key, item in value.items()}
    return value


def _field_fault(key: object, value: object, depth: int) -> str | None:
    if not isinstance(key, str):
        return "has a name that is not a string"
    return _comparable_fault(key) or _value_fault(value, depth)


def _value_fault(value: object, depth: int) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _comparable_fault(value)
    if isinstance(value, float):
        return None if math.isfinite(value) else f"holds {value}, expected a finite number"
    if isinstance(value, int):
        # Filters compare metadata inside SQLite, whose integers end at 64 bits.
        fits = -(2**63) <= value < 2**63
        return None if fits else "holds an integer beyond 64 bits; write it as a string"
    if isinstance(value, Exception):
        return f"holds a value that cannot be converted: {' '.join(str(value).split())}"
    if depth > _MAX_DEPTH:
        return f"is nested deeper than {_MAX_DEPTH} levels"
    if isinstance(value, list | tuple):
        return next(filter(None, (_value_fault(item, depth + 1) for item in value)), None)
    if isinstance(value, dict):
        faults = (_field_fault(key, item, depth + 1) for key, item in value.items())
        return next(filter(None, faults), None)
    return f"holds a value of type {type(value).__name__}, which JSON does not have"


@dataclass(frozen=True, slots=True)
class Fields:
    """Names of the fields that hold a record's id, text and title, and types of columns.

    A name that is None is detected. The id is the first of `id` and `_id`. The text is the first
    of `text`, `contents`, `passage` and `sentence`. The title is `title`. If none is present, the
    same names are accepted in any case, such as `ID`. A name that you specify must be in every
    record.

    Attributes:
        id, text, title: names, or None to detect them.
        types: "string", "number", "boolean" or "date" by column, for CSV and TSV, which have no
            types of their own. Types of other columns are detected, see `CorpusReader`.

    Raises:
        ConfigError: one field is named for two roles, or a type is unknown.
    """

    id: str | None = None
    text: str | None = None
    title: str | None = None
    types: Mapping[str, ColumnType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = [name for name in (self.id, self.text, self.title) if name is not None]
        if len(set(named)) != len(named):
            raise ConfigError(f"one field is named for two roles: {self}; name each field once")
        for name, kind in self.types.items():
            if kind not in get_args(ColumnType):
                raise ConfigError(
                    f"column {name!r}: expected one of the types "
                    f"{', '.join(get_args(ColumnType))}, found {kind!r}"
                )


class Columns(NamedTuple):
    """The columns of a table that are not metadata; None if the table has no such column."""

    id: str | None
    text: str
    title: str | None


def find_columns(header: Sequence[str], fields: Fields, where: str) -> Columns:
    """Return the id, text and title columns of a table; raise SourceError if none holds text."""
    if len(set(header)) != len(header):
        [(twice, _)] = Counter(header).most_common(1)
        raise SourceError(f"{where}: two columns are called {twice!r}; rename one of them")
    for role in _PARTS:
        name = getattr(fields, role)
        if name is not None and name not in header:
            raise SourceError(
                f"{where}: no column {name!r} to take the {role} from; "
                f"the columns are {quote_names(header)}: name one with --{role}-field"
            )
    text = fields.text or detect_field(TEXT_NAMES, header, fields)
    if text is None:
        delimiter = next((sign for sign in ";\t|" if len(header) == 1 and sign in header[0]), None)
        if delimiter is not None:
            raise SourceError(
                f"{where}: one column, {header[0]!r}; perhaps --set delimiter={delimiter!r}"
            )
        raise SourceError(
            f"{where}: no text column (looked for {quote_names(TEXT_NAMES)}); the columns are "
            f"{quote_names(header)}: name the text field with --text-field"
        )
    return Columns(
        fields.id or detect_field(ID_NAMES, header, fields),
        text,
        fields.title or detect_field(TITLE_NAMES, header, fields),
    )


def detect_field(names: Iterable[str], present: Collection[str], fields: Fields) -> str | None:
    """Return the first of `names` that is present without a role, if need be in another case."""
    assigned_names = (fields.id, fields.text, fields.title)
    for name in names:
        if name in present and name not in assigned_names:
            return name
    names_by_lower_case: dict[str, str] = {}
    for name in present:
        if name not in assigned_names and isinstance(name, str):
            names_by_lower_case.setdefault(name.lower(), name)
    return next((names_by_lower_case[name] for name in names if name in names_by_lower_case), None)


def quote_names(names: Collection[str]) -> str:
    """Return names quoted and joined for an error message, cut after 20; `nothing` if empty."""
    quoted = ", ".join(repr(name) for name in islice(names, _MOST_QUOTED))
    omitted = len(names) - _MOST_QUOTED
    return f"{quoted} and {omitted} more" if omitted > 0 else quoted or "nothing"


class Record(NamedTuple):
    """A record as a format reads it, before its fields are assigned."""

    # 1-based line, row or file within the source.
    number: int
    # Place for messages, as in "corpus.jsonl:7".
    where: str
    # Values before any check; an exception stands for a value that cannot be read.
    values: dict[str, Any]
    fault: str | None = None
    # Whether `fault` is no error but a reason to leave the file out of the source.
    passed_over: bool = False
    # Whether the record is a part of a file, such as a message of a mailbox.
    is_part: bool = False
    # Outline of the text, as in `Document`.
    outline: Outline = ()
    # Path of the record's file below its folder; empty for other sources.
    file: str = ""
    # Kind of a file by its content, and its losses.
    kind: str = ""
    losses: tuple[Loss, ...] = ()


class Assembler:
    """Turns records into documents; the first record decides on the names of id and text."""

    def __init__(
        self, fields: Fields, leave_out: Callable[[str, str, str], None] | None = None
    ) -> None:
        self._fields = fields
        self._leave_out = leave_out
        self._id_name = fields.id
        self._text_name = fields.text
        self._first: str | None = None

    def document(self, record: Record) -> Document:
        """Assemble a document; if it has no id, generate one from its content."""
        document = self.assemble(record)
        if document.id:
            return document
        return replace(document, id=content_id(document.title, document.text))

    def assemble(self, record: Record) -> Document:
        """Assemble a document from a record; the id is empty if the record has none.

        Consumes `record.values`: what no other field takes becomes the metadata.
        """
        where = record.where
        values = record.values
        if record.fault is not None:
            raise SourceError(f"{where}: {record.fault}")
        if self._first is None:
            self._first = where
            self._id_name = self._id_name or detect_field(ID_NAMES, values, self._fields)
        if self._text_name is None:
            self._text_name = detect_field(TEXT_NAMES, values, self._fields)
        self._check_present(where, values)
        id_ = ""
        if self._id_name is not None:
            raw_id = values.pop(self._id_name)
            is_number = isinstance(raw_id, int) and not isinstance(raw_id, bool)
            id_ = _require_string("id", "id", str(raw_id) if is_number else raw_id, where)
        name = self._text_name or ""
        text = _require_string("text", f"the text field {name!r}", values.pop(name), where)
        name = self._fields.title or detect_field(TITLE_NAMES, values, self._fields) or ""
        title = values.pop(name, None)
        if title is not None:
            title = _require_string("title", f"the title field {name!r}", title, where)
        outline = record.outline
        if not outline and (parsed := parse_outline(values.get(OUTLINE_NAME), text)) is not None:
            outline = parsed
            del values[OUTLINE_NAME]
        if metadata_fault(values) is not None:
            values = self._storable_metadata(where, values)
        return Document(id_, text, title, values, outline)

    def _storable_metadata(self, where: str, values: dict[str, Any]) -> dict[str, Any]:
        """Return metadata without fields that no index can store, each of which is reported."""
        plain = {name: _to_json_value(value, 1, False) for name, value in values.items()}
        for name in list(plain):
            if (fault := _field_fault(name, plain[name], 1)) is None:
                continue
            if self._leave_out is None:
                raise SourceError(f"{where}: the field {name!r} {fault}")
            self._leave_out(where, name, fault)
            del plain[name]
        return plain

    def _check_present(self, where: str, values: dict[str, Any]) -> None:
        if self._text_name is None:
            raise SourceError(
                f"{where}: no text field (looked for {quote_names(TEXT_NAMES)}); the record has "
                f"{quote_names(values)}: name the text field with --text-field"
            )
        named = (("id", self._id_name), ("text", self._text_name), ("title", self._fields.title))
        for role, name in named:
            if name is not None and name not in values:
                raise SourceError(
                    f"{where}: no {role} field {name!r}; the record has {quote_names(values)}"
                )
        if (
            self._id_name is None
            and (late := detect_field(ID_NAMES, values, self._fields)) is not None
        ):
            raise SourceError(
                f"{where}: has the id field {late!r}, but the first record ({self._first}) has "
                "none; give every record an id, or none"
            )


def _require_string(role: str, label: str, value: object, where: str) -> str:
    fault_of, expected = _PARTS[role]
    if not isinstance(value, str):
        raise SourceError(f"{where}: {label} is {value!r:.60}, expected {expected}")
    fault = fault_of(value)
    if fault is not None:
        raise SourceError(f"{where}: {role} {fault}")
    return value


def as_document(value: AnyDocument) -> Document:
    """Return the document that a program passes; a mapping has the fields of a JSON line."""
    if isinstance(value, Document):
        metadata = plain_metadata(value.metadata)
        return value if metadata is value.metadata else replace(value, metadata=dict(metadata))
    if isinstance(value, str):
        return Document(content_id(None, value), value)
    if not isinstance(value, Mapping):
        raise TypeError(
            "expected a text, a Document or a mapping such as {'id': 'a', 'text': '...'}, found "
            f"{type(value).__name__}"
        )
    where = f"document {value['id']!r}" if "id" in value else "a document without id"
    return Assembler(Fields()).document(Record(1, where, dict(value)))


def document_of(stored: StoredDocument) -> Document:
    """Return the document of a stored one."""
    outline = read_outline(stored.outline)
    return Document(stored.id, stored.text, stored.title, stored.metadata, outline)
