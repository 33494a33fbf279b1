"""Excerpts of passages around the words that match a query."""

from __future__ import annotations

from collections.abc import Sequence

Spans = Sequence[tuple[int, int]]


def excerpt(passage: str, spans: Spans, limit: int) -> tuple[str, Spans]:
    """Return the excerpt of about `limit` characters with the most spans, and the spans in it.

    `spans` are ascending (start, stop) of words of the passage. An ellipsis stands for what is
    left out at either end.
    """
    start = 0
    stop = len(passage)
    if limit < stop:
        best = max(
            [0, *(first for first, _ in spans)],
            key=lambda at: (sum(at <= a and b <= at + limit for a, b in spans), -at),
        )
        start = min(best, len(passage) - limit)
        start = passage.rfind(" ", 0, start) + 1 if start else 0
        stop = start + limit
    before = "… " if start else ""
    after = " …" if stop < len(passage) else ""
    shift = len(before) - start
    inside = [(a + shift, b + shift) for a, b in spans if start <= a and b <= stop]
    return f"{before}{passage[start:stop]}{after}", inside
