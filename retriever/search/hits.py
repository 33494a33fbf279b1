"""The hits of a query as a list, a data frame and an HTML table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from retriever.errors import MissingExtraError, RetrieverError
from retriever.search.engine import HIT_FIELDS, Hit
from retriever.search.excerpts import Spans, excerpt
from retriever.terminal import on_one_line

# Characters of a passage that are shown.
_PASSAGE_LENGTH = 300
# The classes keep a notebook from typesetting what stands between dollar signs as a formula.
_TABLE = '<table class="tex2jax_ignore mathjax_ignore">'
_ALIGNED = ' style="text-align: left"'
_LEFT = f'{_ALIGNED} dir="auto"'
# Fields of the metadata that may have the date of a document, and how a date begins.
_DATE_FIELDS = ("date", "modified")
_DATE = re.compile(r"\d{4}(-\d\d){0,2}(?=T|\Z)")
# Returns for each passage the (start, stop) of its words that match the query, ascending.
FindHighlights = Callable[[Sequence[str]], Sequence[Spans]]


class Hits(list[Hit]):
    """The hits of one query, a list. A notebook shows them as a table."""

    # A copy has none: it does not keep the index.
    _find_highlights: FindHighlights | None = None

    def __init__(
        self, hits: Iterable[Hit] = (), find_highlights: FindHighlights | None = None
    ) -> None:
        super().__init__(hits)
        self._find_highlights = find_highlights

    def __getstate__(self) -> None:
        """Return no state: copies and pickles hold the hits alone."""

    def to_list(self) -> list[dict[str, Any]]:
        """Return the hits as JSON values, each as `Hit.to_json`."""
        return [hit.to_json() for hit in self]

    def to_pandas(self) -> Any:
        """Return a DataFrame: a row per hit, the columns of `Hit.to_json`; needs pandas."""
        try:
            import pandas  # type: ignore[import-untyped]
        except ModuleNotFoundError as error:
            raise MissingExtraError("to_pandas needs pandas: pip install pandas") from error
        columns = None if self else [*HIT_FIELDS, "metadata"]
        return pandas.DataFrame([hit.to_json() for hit in self], columns=columns)

    def _repr_html_(self) -> str:
        """Return an HTML table with the words of the query marked while the index is open."""
        spans: Sequence[Spans] = [()] * len(self)
        if self._find_highlights is not None:
            # Hits can be shown after their index was closed or erased.
            with suppress(RetrieverError):
                spans = self._find_highlights([hit.passage for hit in self])
        return _table(self, spans)


def _table(hits: Sequence[Hit], spans: Sequence[Spans]) -> str:
    """Return a table with a row for each hit, and the spans of each passage marked.

    All text is escaped. A long passage is cut around its marked words. The column of dates is there
    if a hit has a date.
    """
    if not hits:
        return "<p>no hits</p>"
    dates = [_day(hit) for hit in hits]
    names = ["rank", "score", "document", "passage", *(["date"] if any(dates) else [])]
    header = "".join(f"<th{_ALIGNED}>{name}</th>" for name in names)
    rows = [f"<tr>{header}</tr>"]
    for hit, hit_spans, date in zip(hits, spans, dates, strict=True):
        cells = [
            f"<td>{hit.rank}</td>",
            f"<td>{hit.score:.4f}</td>",
            f"<td{_LEFT}>{'<br>'.join(_document_lines(hit))}</td>",
            f"<td{_LEFT}>{_highlight(*excerpt(hit.passage, hit_spans, _PASSAGE_LENGTH))}</td>",
        ]
        if any(dates):
            cells.append(f"<td>{_text(date)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([_TABLE, *rows, "</table>"])


def _document_lines(hit: Hit) -> Iterator[str]:
    """Yield the title, the id with its lines, and the rest of the place, as HTML."""
    id_, place = (hit.id, "") if hit.place is None else hit.place.of(hit.id, hit.title)
    if hit.title and hit.title != hit.id:
        yield f"<b>{_text(hit.title)}</b>"
    yield _text(id_)
    if place:
        yield _text(place)


def _highlight(text: str, spans: Spans) -> str:
    """Return a text as HTML with its spans marked."""
    parts = []
    last = 0
    for start, stop in spans:
        parts += [_text(text[last:start]), f"<mark>{_text(text[start:stop])}</mark>"]
        last = stop
    return "".join([*parts, _text(text[last:])])


def _text(text: str) -> str:
    # Loads slowly, and only tables need it.
    from html import escape

    return escape(on_one_line(text))


def _day(hit: Hit) -> str:
    """Return the day of the date that the document states, else of its last change, or nothing."""
    for value in (hit.date, *(hit.metadata.get(field) for field in _DATE_FIELDS)):
        if isinstance(value, str) and (match := _DATE.match(value)):
            return match[0]
    return ""
