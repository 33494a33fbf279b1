"""Dates of documents and files as strings of ISO 8601 that sort by time, in UTC."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime

_YEAR_OR_MONTH = re.compile(r"[0-9]{4}(-(0[1-9]|1[0-2]))?")
# A date as in mails, without a time.
_MAIL_DAY = re.compile(r"(?:[A-Za-z]{3}, *)?[0-9]{1,2} [A-Za-z]{3} [0-9]{4}")
# The date of a PDF: D:YYYYMMDDHHmmSS+hh'mm', of which only the year is required.
_PDF_DATE = re.compile(
    r"D:(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?(?:(Z)|([+-])(\d\d)'?(\d\d)?)?"
)
# Maximum length of a text that is parsed as a date.
_LONGEST_DATE = 100


def iso_date(text: str) -> str | None:
    """Return a date of ISO 8601 as a string that sorts by time, in UTC; None for other text."""
    if _YEAR_OR_MONTH.fullmatch(text):
        return text
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    try:
        return _utc_time(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def any_date(text: str) -> str | None:
    """Return a date of ISO 8601, or of mails and HTTP (RFC 5322), as `iso_date` does."""
    text = text.strip()
    if len(text) > _LONGEST_DATE:
        return None
    stated = iso_date(text)
    if stated is not None:
        return stated
    if _MAIL_DAY.fullmatch(text):
        text = f"{text} 00:00:00 +0000"
    with suppress(ValueError, TypeError, IndexError, OverflowError):
        return _utc_time(parsedate_to_datetime(text))
    return None


def pdf_date(text: str) -> str | None:
    """Return the date of a PDF's properties as `iso_date` does; None if it is none."""
    match = _PDF_DATE.match(text)
    if match is None:
        return None
    day = "-".join(filter(None, match.groups()[:3]))
    if match[4] is None:
        return iso_date(day)
    hour, minute, second, sign, hours, minutes = match.group(4, 5, 6, 8, 9, 10)
    clock = f"{hour}:{minute or '00'}:{second or '00'}"
    offset = f"{sign}{hours}:{minutes or '00'}" if sign else ""
    return iso_date(f"{day}T{clock}{offset}")


def file_time(nanoseconds: int) -> str | None:
    """Return the time of a file, in nanoseconds since 1970, to the second; None beyond year 9999.

    The form is ``2026-03-01T09:30:00``.
    """
    try:
        moment = datetime.fromtimestamp(nanoseconds // 10**9, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.replace(tzinfo=None).isoformat()


def _utc_time(moment: datetime) -> str:
    """Return a time in UTC, without its offset."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat()
