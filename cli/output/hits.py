"""Hits as text for a terminal."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from retriever.search.excerpts import Spans, excerpt
from retriever.terminal import on_one_line, table, without_controls

if TYPE_CHECKING:
    from retriever import Expansion, Facets, Hit, SearchSettings

# Lines of an excerpt of a passage.
_LINES = 3
_INDENT = 5 * " "
# Characters of the day in a date.
_DAY_LENGTH = 10


def hit_text(hit: Hit, spans: Spans, *, cells: int, styled: bool, full: bool) -> str:
    """Return rank, score, place and title, then the part of the passage with most highlights.

    `retriever get` reads the place: the id with its lines, or with its pages and headings. `spans`
    are (start, stop) of the words to highlight, ascending; `cells` is the width of the terminal.
    Without escape codes nothing is highlighted: any other mark could be the text's own.
    """
    title = f"  {on_one_line(hit.title)}" if hit.title and hit.title != hit.id else ""
    if hit.copies:
        title += f"  (+ {len(hit.copies)} near-{'copy' if len(hit.copies) == 1 else 'copies'})"
    id_, place = (hit.id, "") if hit.place is None else hit.place.of(hit.id, hit.title)
    has_lines = hit.place is not None and hit.place.lines is not None
    name = f"{id_}, {place}" if place and not has_lines else id_
    head = f"{hit.rank:>3}  {hit.score:.4f}  {on_one_line(name)}"
    where = f"  {on_one_line(place)}" if place and has_lines else ""
    day = "" if hit.date is None else f"  {on_one_line(hit.date[:_DAY_LENGTH])}"
    if styled:
        head = click.style(head, bold=True)
        title = click.style(title, fg="cyan")
        where = click.style(where, dim=True)
    text = without_controls(hit.passage)
    wrap: Callable[..., list[str]] = textwrap.wrap
    width: Callable[[str], int] = len
    narrow = text.isprintable() and text.replace("…", "").isascii()
    if not narrow or (styled and spans):
        # Loads slowly, and is needed only for characters of other widths than 1.
        import wcwidth

        wrap = wcwidth.wrap
        width = wcwidth.width
    if not full:
        room = (cells - len(_INDENT)) * _LINES
        text, spans = excerpt(text, spans, len(text) * room // max(width(text), room))
    if styled:
        text = _highlighted(text, spans)
    lines = wrap(text, cells, initial_indent=_INDENT, subsequent_indent=_INDENT)
    return "\n".join([f"{head}{day}{title}{where}", *(line.rstrip() for line in lines)])


def explanation(hits: Sequence[Hit], settings: SearchSettings) -> str:
    """Return a table of each hit's component scores and ranks, below the formula of the score."""
    fusion = settings.fusion
    reranked = any(hit.first_rank is not None for hit in hits)
    if reranked:
        how = "score = the reranker's"
    elif settings.mode != "hybrid":
        how = f"score = {settings.mode}"
    elif fusion.method == "rrf":
        how = f"score = 1/({fusion.rrf_k:g} + dense rank) + 1/({fusion.rrf_k:g} + bm25 rank)"
    else:
        how = (
            f"score = {fusion.weight:g} * dense + {1 - fusion.weight:g} * bm25, "
            f"both {fusion.normalization} normalized over the candidates"
        )
    columns = {"rank": "rank", "score": "score"}
    if settings.recency is not None:
        how += f", times 0.5 + 0.5 * 2^(-age in days / {settings.recency:g}) if positive"
        columns |= {"date": "date", "recency": "recency", "plain_score": "before"}
    columns |= {"first_rank": "first"} if reranked else {}
    columns |= {"dense": "dense", "dense_rank": "rank", "bm25": "bm25", "bm25_rank": "rank"}
    rows = [[*(_score_text(getattr(hit, name)) for name in columns), hit.id] for hit in hits]
    header = [*columns.values(), "id"]
    return "\n".join([how, *table(header, rows, left=(len(header) - 1,))])


def expansion_lines(expansions: Sequence[Expansion], cells: int) -> list[str]:
    """Return a line for each expansion of a query, cut at `cells`."""
    lines = []
    for expansion in expansions:
        terms = [" + ".join(alternative) for alternative in expansion.alternatives]
        head = f"{expansion.word}: bm25 also finds, with weight {expansion.weight:g}, "
        text = without_controls(head + ", ".join(terms))
        lines.append(text if len(text) <= cells else f"{text[: cells - 2]} …")
    return lines


def facets_text(facets: Facets) -> str:
    """Return a table for each field: its values, with matches and documents."""
    lines = []
    for name, facet in facets.fields.items():
        rows = [
            [
                value.value if isinstance(value.value, str) else json.dumps(value.value),
                f"{value.matches:,}",
                f"{value.documents:,}",
            ]
            for value in facet.values
        ]
        if facet.distinct > len(rows):
            rows.append([f"… {facet.distinct - len(rows):,} more", "", ""])
        lines += ["", *table([name, "matches", "documents"], rows)]
    return "\n".join(lines)


def _score_text(value: float | str | None) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return "-" if value is None else str(value)


def _highlighted(text: str, spans: Spans) -> str:
    parts = []
    last = 0
    for start, stop in spans:
        parts += [text[last:start], click.style(text[start:stop], fg="yellow", bold=True)]
        last = stop
    return "".join([*parts, text[last:]])
