"""Tells the id, text and title of a record from its metadata, and checks each of them."""

from __future__ import annotations

from typing import NamedTuple

from retriever.corpus.columns import ID_NAMES, TEXT_NAMES, TITLE_NAMES, detected, listed
from retriever.corpus.documents import Fields, Json, Record
from retriever.corpus.metadata import id_fault, metadata_fault, string_fault
from retriever.errors import SourceError

_SHOWN = 60


class Parts(NamedTuple):
    """A checked record; `id` is None where the source has no ids and one has to be made."""

    id: str | None
    text: str
    title: str | None
    metadata: dict[str, Json]


class Assembler:
    """Splits the records of one source, whose first record decides which field is which."""

    def __init__(self, fields: Fields, *, blank_text: bool) -> None:
        self._fields = fields
        self._blank_text = blank_text
        self._id_name = fields.id
        self._text_name = fields.text
        self._first: str | None = None

    def split(self, record: Record) -> Parts:
        """The parts of a record; takes its `values` over.

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
        title_name = self._fields.title or TITLE_NAMES[0]
        title = _title(values.pop(title_name, None), title_name, where)
        if not (self._blank_text or text.strip() or (title or "").strip()):
            raise SourceError(f"{where}: text is empty (and there is no title to index instead)")
        fault = metadata_fault(values)
        if fault is not None:
            raise SourceError(f"{where}: {fault}")
        return Parts(doc_id, text, title, values)

    def _check_present(self, where: str, values: dict[str, Json]) -> None:
        if self._text_name is None:
            raise SourceError(
                f"{where}: no text field (looked for {listed(TEXT_NAMES)}); the record has "
                f"{listed(values)}: name the field that holds the text"
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


def _id(value: Json, where: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise SourceError(f"{where}: id is {_shown(value)}, expected a string or an integer")
    fault = id_fault(value)
    if fault is not None:
        raise SourceError(f"{where}: id {fault}")
    return value


def _text(value: Json, name: str | None, where: str) -> str:
    if not isinstance(value, str):
        raise SourceError(f"{where}: the text field {name!r} is {_shown(value)}, expected a string")
    return _storable(value, "text", where)


def _title(value: Json, name: str, where: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise SourceError(
            f"{where}: the title field {name!r} is {_shown(value)}, expected a string or null"
        )
    return _storable(value, "title", where)


def _storable(value: str, role: str, where: str) -> str:
    fault = string_fault(value)
    if fault is not None:
        raise SourceError(f"{where}: {role} {fault}")
    return value


def _shown(value: Json) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
    kinds = {dict: "an object", list: "a list", float: "the number", int: "the number"}
    return f"{kinds.get(type(value), 'a string')} {shown}"
