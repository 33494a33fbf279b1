"""Newer documents first: a factor by age for scores, and hits in the order of their dates.

The age of a document is that of its metadata field `date`, else of `modified`, or of a field that
the settings name. A date is a string of ISO 8601; without an offset it is in UTC.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from retriever.documents.dates import iso_date

if TYPE_CHECKING:
    from indexes import View
    from retriever.search.engine import Hit
    from retriever.search.settings import SearchSettings

# The fields of the date, the first that holds one.
DATE_FIELDS = ("date", "modified")
# What completes a year and a month.
_FIRST_DAY = "0000-01-01"
_SECONDS_A_DAY = 86_400
# The factor of a document without a date, and of one that is very old.
_LEAST_FACTOR = 0.5


def current_time() -> float:
    """Return the time to which ages are counted, in seconds since 1970."""
    return time.time()


def stated_date(metadata: Mapping[str, Any], field: str | None) -> tuple[str, float] | None:
    """Return the date of a document as text and in seconds since 1970; None without a date."""
    for name in DATE_FIELDS if field is None else (field,):
        value = metadata.get(name)
        seconds = _seconds(value) if isinstance(value, str) else None
        if seconds is not None:
            return str(value), seconds
    return None


def recency_factor(seconds: float | None, days: float, now: float) -> float:
    """Return 0.5 + 0.5 * 2^(-age / days), from 0.5 for a document without a date to 1.

    Args:
        seconds: the date in seconds since 1970; a date in the future has the age 0.
        days: the age in days at which the second half of a score is halved.
        now: the time to which the age is counted, in seconds since 1970.
    """
    if seconds is None:
        return _LEAST_FACTOR
    age = max(now - seconds, 0.0) / _SECONDS_A_DAY
    return _LEAST_FACTOR + (1 - _LEAST_FACTOR) * math.exp2(-age / days)


def order_by_date(hits: Sequence[Hit], settings: SearchSettings, now: float) -> list[Hit]:
    """Return all hits ranked by recency, or the best `depth` sorted by date, as settings say."""
    ranked = rank_by_recency(hits, settings, now)
    if settings.sort == "date":
        return sort_by_date(ranked[: max(settings.k, settings.depth)], settings)
    return ranked


def rank_by_recency(hits: Sequence[Hit], settings: SearchSettings, now: float) -> list[Hit]:
    """Return the hits by score times factor, with the dates; equal scores are ordered by id.

    Only a positive score is multiplied, so that an old document never gains.
    """
    if settings.recency is None:
        return _with_dates(hits, settings)
    dated = []
    for hit in hits:
        date = stated_date(hit.metadata, settings.date_field)
        factor = recency_factor(None if date is None else date[1], settings.recency, now)
        score = hit.score * factor if hit.score > 0 else hit.score
        dated.append(
            replace(
                hit,
                score=score,
                date=None if date is None else date[0],
                recency=factor,
                plain_score=hit.score,
            )
        )
    dated.sort(key=lambda hit: (-hit.score, hit.id))
    return _numbered(dated)


def sort_by_date(hits: Sequence[Hit], settings: SearchSettings) -> list[Hit]:
    """Return the hits with the newest first; of equal dates the higher score, then the lower id.

    Hits without a date are last.
    """

    def order(hit: Hit) -> tuple[bool, float, float, str]:
        date = stated_date(hit.metadata, settings.date_field)
        return date is None, 0.0 if date is None else -date[1], -hit.score, hit.id

    return _numbered(sorted(hits, key=order))


def describe_missing_dates(view: View, field: str | None) -> str | None:
    """Describe that no document has a field with a date; None if one may have it."""
    names = DATE_FIELDS if field is None else (field,)
    unknown = view.unknown_fields(names)
    if len(unknown) < len(names):
        return None
    listed = ", ".join(next(iter(unknown.values()))) or "none"
    return (
        f"no document has the field {' or '.join(map(repr, names))} (fields: {listed}); name "
        "another with date_field"
    )


def _with_dates(hits: Sequence[Hit], settings: SearchSettings) -> list[Hit]:
    """Return the hits with the text of their dates."""
    dates = (stated_date(hit.metadata, settings.date_field) for hit in hits)
    return [
        replace(hit, date=None if date is None else date[0])
        for hit, date in zip(hits, dates, strict=True)
    ]


def _numbered(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits with ranks from 1."""
    return [replace(hit, rank=rank) for rank, hit in enumerate(hits, start=1)]


def _seconds(text: str) -> float | None:
    """Return a date of ISO 8601 in seconds since 1970; None for other text."""
    date = iso_date(text)
    if date is None:
        return None
    try:
        moment = datetime.fromisoformat(date + _FIRST_DAY[len(date) :])
    except ValueError:
        # The year 0.
        return None
    return moment.replace(tzinfo=UTC).timestamp()
