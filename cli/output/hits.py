"""Hits as text for a person, and as JSON for a program."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

import click

from cli.output.safe_text import on_one_line, without_controls
from retriever.analyzer import Analyzer
from retriever.search.engine import Hit
from retriever.search.settings import SearchSettings

_LINES = 3


def hit_json(hit: Hit, query: str | None = None) -> str:
    """One line of JSON with every component score and rank; `query` is the query's id."""
    record: dict[str, Any] = {} if query is None else {"query": query}
    record |= {
        "rank": hit.rank,
        "score": hit.score,
        "id": hit.id,
        "title": hit.title,
        "passage": hit.passage,
        "start": hit.start,
        "stop": hit.stop,
        "dense": hit.dense,
        "dense_rank": hit.dense_rank,
        "bm25": hit.bm25,
        "bm25_rank": hit.bm25_rank,
        **({} if hit.first_rank is None else {"first_rank": hit.first_rank}),
        "metadata": hit.metadata,
    }
    return json.dumps(record, ensure_ascii=False)


def hit_text(
    hit: Hit, terms: frozenset[str], analyzer: Analyzer, *, width: int, color: bool, full: bool
) -> str:
    """Rank, score, id and title, then the part of the best passage that holds most of `terms`.

    Args:
        hit: what to show.
        terms: the query's terms, whose words are marked: in bold with `color`, else *so*.
        analyzer: finds them.
        width: columns of the terminal.
        color: whether escape codes may be used.
        full: show the whole passage.
    """
    title = f"  {on_one_line(hit.title)}" if hit.title and hit.title != hit.id else ""
    head = f"{hit.rank:>3}  {hit.score:.4f}  {on_one_line(hit.id)}"
    if color:
        head, title = click.style(head, bold=True), click.style(title, fg="cyan")
    passage = without_controls(hit.passage)
    text, spans = _excerpt(passage, terms, analyzer, None if full else (width - 6) * _LINES)
    marked = _mark(text, spans, color)
    body = textwrap.fill(
        marked, width, initial_indent="     ", subsequent_indent="     ", break_long_words=False
    )
    return f"{head}{title}\n{body}" if body else f"{head}{title}"


def explanation(hits: Sequence[Hit], settings: SearchSettings) -> str:
    """A table of each hit's component scores and ranks, and how they became one score."""
    fusion = settings.fusion
    if any(hit.first_rank is not None for hit in hits):
        return _reranked_explanation(hits)
    if settings.mode != "hybrid":
        how = f"score = {settings.mode}"
    elif fusion.method == "rrf":
        how = f"score = 1/({fusion.rrf_k:g} + dense rank) + 1/({fusion.rrf_k:g} + bm25 rank)"
    else:
        how = (
            f"score = {fusion.alpha:g} * dense + {1 - fusion.alpha:g} * bm25, "
            f"both {fusion.normalization} normalised over the candidates"
        )
    lines = [
        how,
        f"{'rank':>4}  {'score':>8}  {'dense':>8} {'rank':>5}  {'bm25':>8} {'rank':>5}  id",
    ]
    for hit in hits:
        lines.append(f"{hit.rank:>4}  {hit.score:>8.4f}  {_components(hit)}")
    return "\n".join(lines)


def _reranked_explanation(hits: Sequence[Hit]) -> str:
    lines = [
        "score = the reranker's",
        f"{'rank':>4}  {'score':>8}  {'first':>5}  {'dense':>8} {'rank':>5}  {'bm25':>8} "
        f"{'rank':>5}  id",
    ]
    for hit in hits:
        lines.append(
            f"{hit.rank:>4}  {hit.score:>8.4f}  {_rank(hit.first_rank)}  {_components(hit)}"
        )
    return "\n".join(lines)


def _components(hit: Hit) -> str:
    return (
        f"{_number(hit.dense)} {_rank(hit.dense_rank)}  "
        f"{_number(hit.bm25)} {_rank(hit.bm25_rank)}  {on_one_line(hit.id)}"
    )


def _number(value: float | None) -> str:
    return f"{'-':>8}" if value is None else f"{value:>8.4f}"


def _rank(value: int | None) -> str:
    return f"{'-':>5}" if value is None else f"{value:>5}"


def _excerpt(
    passage: str, terms: frozenset[str], analyzer: Analyzer, limit: int | None
) -> tuple[str, list[tuple[int, int]]]:
    """The stretch of at most `limit` characters with the most matches, and where they are in it."""
    spans = [(start, stop) for term, start, stop in analyzer.spans(passage) if term in terms]
    start, stop = 0, len(passage)
    if limit is not None and len(passage) > limit:
        best = max(
            [0, *(first for first, _ in spans)],
            key=lambda at: (sum(at <= a and b <= at + limit for a, b in spans), -at),
        )
        start = min(best, len(passage) - limit)
        start = passage.rfind(" ", 0, start) + 1 if start else 0
        stop = start + limit
    before, after = ("… " if start else ""), (" …" if stop < len(passage) else "")
    shift = len(before) - start
    inside = [(a + shift, b + shift) for a, b in spans if start <= a and b <= stop]
    return f"{before}{passage[start:stop]}{after}", inside


def _mark(text: str, spans: Sequence[tuple[int, int]], color: bool) -> str:
    parts, last = [], 0
    for start, stop in spans:
        word = text[start:stop]
        parts += [
            text[last:start],
            click.style(word, fg="yellow", bold=True) if color else f"*{word}*",
        ]
        last = stop
    return "".join([*parts, text[last:]])
