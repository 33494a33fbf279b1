"""Which field of a record, column of a table or key of a mapping holds id, text and title."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, get_args

from retriever.corpus.column_types import ColumnType
from retriever.corpus.documents import (
    Document,
    Json,
    Record,
    compared_fault,
    id_fault,
    storable_metadata,
    string_fault,
)
from retriever.corpus.identity import content_id
from retriever.errors import ConfigError, SourceError

ID_NAMES = ("id", "_id")
TEXT_NAMES = ("text", "contents", "passage", "sentence")
TITLE_NAMES = ("title",)

# A document in any of the forms that programs pass.
AnyDocument = str | Mapping[str, Any] | Document

_LISTED = 20
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Fields:
    """Names of the fields that hold a record's id, text and title, and types of columns.

    A name that is None is detected: the first of `id` and `_id`; of `text`, `contents`, `passage`
    and `sentence`; and `title`. If there is none, the same names count in any case, such as `ID`.
    A name that is given must be in every record.

    Attributes:
        id, text, title: names, or None.
        types: "string", "number", "boolean" or "date" by column, for CSV and TSV, which have no
            types of their own; those of other columns are chosen, see `CorpusReader`.

    Raises:
        ConfigError: one field is named for two roles, or a type is none of these.
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


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table that are not metadata; None if the table has no such column."""

    id: str | None
    text: str
    title: str | None


def find_columns(header: Sequence[str], fields: Fields, where: str) -> Columns:
    """The id, text and title columns of a table with this header.

    Raises:
        SourceError: two columns share a name, a named column is missing, or none holds text.
    """
    if len(set(header)) != len(header):
        [(twice, _)] = Counter(header).most_common(1)
        raise SourceError(f"{where}: two columns are called {twice!r}; rename one of them")
    for role, name in (("id", fields.id), ("text", fields.text), ("title", fields.title)):
        if name is not None and name not in header:
            raise SourceError(
                f"{where}: no column {name!r} to take the {role} from; "
                f"the columns are {listed(header)}: name one with --{role}-field"
            )
    text = fields.text or detected(TEXT_NAMES, header, fields)
    if text is None:
        raise SourceError(
            f"{where}: no text column (looked for {listed(TEXT_NAMES)}); the columns are "
            f"{listed(header)}: name the one that holds the text with --text-field"
        )
    return Columns(
        id=fields.id or detected(ID_NAMES, header, fields),
        text=text,
        title=fields.title or detected(TITLE_NAMES, header, fields),
    )


def detected(names: Iterable[str], present: Collection[str], fields: Fields) -> str | None:
    """The first of `names` that is in `present` and has no other role in `fields`, or None.

    If none is, the first that is there in another case, as it is spelled there.
    """
    taken = (fields.id, fields.text, fields.title)
    for name in names:
        if name in present and name not in taken:
            return name
    spelled: dict[str, str] = {}
    for name in present:
        if name not in taken and isinstance(name, str):
            spelled.setdefault(name.lower(), name)
    return next((spelled[name] for name in names if name in spelled), None)


def listed(names: Collection[str]) -> str:
    """The names quoted and joined for an error message, cut after 20; `nothing` if empty."""
    shown = ", ".join(repr(name) for name in islice(names, _LISTED))
    more = len(names) - _LISTED
    return f"{shown} and {more} more" if more > 0 else shown or "nothing"


class Parts(NamedTuple):
    """A checked record; `id` is None if the source has no ids."""

    id: str | None
    text: str
    title: str | None
    metadata: dict[str, Json]

    @property
    def is_empty(self) -> bool:
        """Whether neither the text nor the title holds anything but white space."""
        return not (self.text.strip() or (self.title or "").strip())


class Assembler:
    """Splits the records of one source; its first record decides which field is which.

    Args:
        fields: names of fields.
        leave_out: called with the place, the name and the fault of a field of metadata that cannot
            be stored, which is then left out; if None, such a field is an error.
    """

    def __init__(
        self, fields: Fields, leave_out: Callable[[str, str, str], None] | None = None
    ) -> None:
        self._fields = fields
        self._leave_out = leave_out
        self._id_name = fields.id
        self._text_name = fields.text
        self._first: str | None = None

    def split(self, record: Record) -> Parts:
        """The parts of a record; takes ownership of its `values`.

        Raises:
            SourceError: the record cannot be used; the message names its place.
        """
        where, values = record.where, record.values
        if record.fault is not None:
            raise SourceError(f"{where}: {record.fault}")
        if self._first is None:
            self._first = where
            self._id_name = self._id_name or detected(ID_NAMES, values, self._fields)
        if self._text_name is None:
            self._text_name = detected(TEXT_NAMES, values, self._fields)
        self._check_present(where, values)

        doc_id = None if self._id_name is None else _id(values.pop(self._id_name), where)
        text = _text(values.pop(self._text_name or ""), self._text_name, where)
        title_name = self._fields.title or detected(TITLE_NAMES, values, self._fields) or ""
        title = _title(values.pop(title_name, None), title_name, where)
        metadata, faults = storable_metadata(values)
        for name, fault in faults.items():
            if self._leave_out is None:
                raise SourceError(f"{where}: the field {name!r} {fault}")
            self._leave_out(where, name, fault)
        return Parts(doc_id, text, title, metadata)

    def _check_present(self, where: str, values: dict[str, Any]) -> None:
        if self._text_name is None:
            raise SourceError(
                f"{where}: no text field (looked for {listed(TEXT_NAMES)}); the record has "
                f"{listed(values)}: name the one that holds the text with --text-field"
            )
        named = (("id", self._id_name), ("text", self._text_name), ("title", self._fields.title))
        for role, name in named:
            if name is not None and name not in values:
                raise SourceError(
                    f"{where}: no {role} field {name!r}; the record has {listed(values)}"
                )
        if self._id_name is None and (late := detected(ID_NAMES, values, self._fields)) is not None:
            raise SourceError(
                f"{where}: has the id field {late!r}, but the first record ({self._first}) has "
                "none; give every record an id, or none"
            )


def _id(value: object, where: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise SourceError(f"{where}: id is {_shown(value)}, expected a string or an integer")
    fault = id_fault(value)
    if fault is not None:
        raise SourceError(f"{where}: id {fault}")
    return value


def _text(value: object, name: str | None, where: str) -> str:
    if not isinstance(value, str):
        raise SourceError(f"{where}: the text field {name!r} is {_shown(value)}, expected a string")
    return _storable(value, "text", where, string_fault(value))


def _title(value: object, name: str, where: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise SourceError(
            f"{where}: the title field {name!r} is {_shown(value)}, expected a string or null"
        )
    return _storable(value, "title", where, compared_fault(value))


def _storable(value: str, role: str, where: str, fault: str | None) -> str:
    if fault is not None:
        raise SourceError(f"{where}: {role} {fault}")
    return value


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Exception):
        return "a value that cannot be converted"
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
    kinds: dict[type, str] = {dict: "an object", list: "a list", bytes: "the bytes"}
    kinds |= {float: "the number", int: "the number"}
    return f"{kinds.get(type(value), 'a string')} {shown}"


def as_document(given: AnyDocument) -> Document:
    """A document in the form that the index takes.

    Args:
        given: a `Document`; a text, whose id is made from its content; or a mapping with the
            fields of a line of JSON Lines: ``text``, and if it has them ``id`` and ``title``.
            Every other field is metadata.

    Raises:
        SourceError: the mapping has no text, or a field of the wrong type.
        TypeError: it is something else.
    """
    if isinstance(given, Document):
        return given
    if isinstance(given, str):
        return Document(content_id(None, given), given)
    if not isinstance(given, Mapping):
        raise TypeError(f"expected a text, a mapping or a Document, found {type(given).__name__}")
    where = f"document {given['id']!r}" if "id" in given else "a document without id"
    record = Record(1, where, dict(given))
    id_, text, title, metadata = Assembler(Fields()).split(record)
    return Document(content_id(title, text) if id_ is None else id_, text, title, metadata)
