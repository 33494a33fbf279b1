"""Which column of a table, or field of an object, holds the id, the text and the title."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from retriever.corpus.documents import Fields
from retriever.errors import SourceError

ID_NAMES = ("id", "_id")
TEXT_NAMES = ("text", "contents", "passage", "sentence")
TITLE_NAMES = ("title",)

_LISTED = 20


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table that are not metadata; None where the table has no such column."""

    id: str | None
    text: str
    title: str | None


def detected(names: Iterable[str], present: Collection[str], fields: Fields) -> str | None:
    """The first of `names` that is in `present` and has no other role in `fields`, or None."""
    taken = (fields.id, fields.text, fields.title)
    return next((name for name in names if name in present and name not in taken), None)


def listed(names: Collection[str]) -> str:
    """The names quoted and joined for an error message, cut after 20; `nothing` where empty."""
    shown = ", ".join(repr(name) for name in islice(names, _LISTED))
    more = len(names) - _LISTED
    return f"{shown} and {more} more" if more > 0 else shown or "nothing"


def find_columns(header: Sequence[str], fields: Fields, where: str) -> Columns:
    """The id, text and title columns of a table with this header.

    Raises:
        SourceError: two columns share a name, a named column is not there, or none holds text.
    """
    if len(set(header)) != len(header):
        [(twice, _)] = Counter(header).most_common(1)
        raise SourceError(f"{where}: two columns are called {twice!r}; rename one of them")
    for role, name in (("id", fields.id), ("text", fields.text), ("title", fields.title)):
        if name is not None and name not in header:
            raise SourceError(
                f"{where}: no column {name!r} to take the {role} from; "
                f"the columns are {listed(header)}"
            )
    text = fields.text or detected(TEXT_NAMES, header, fields)
    if text is None:
        raise SourceError(
            f"{where}: no text column (looked for {listed(TEXT_NAMES)}); the columns are "
            f"{listed(header)}: name the one that holds the text"
        )
    return Columns(
        id=fields.id or detected(ID_NAMES, header, fields),
        text=text,
        title=fields.title or detected(TITLE_NAMES, header, fields),
    )
