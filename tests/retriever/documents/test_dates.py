"""Dates of ISO 8601, of mails, of PDF files and of files become strings that sort by time."""

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.documents.dates import any_date, file_time, pdf_date

ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(datetime(1900, 1, 2), datetime(2999, 1, 1), timezones=ZONES).map(
    lambda moment: moment.replace(microsecond=0)
)


def in_utc(moment):
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat()


@given(MOMENTS)
def test_a_moment_is_the_same_in_every_form(moment):
    assert any_date(moment.isoformat()) == in_utc(moment)
    assert any_date(format_datetime(moment)) == in_utc(moment)
    offset = f"{moment:%z}"
    assert pdf_date(f"D:{moment:%Y%m%d%H%M%S}{offset[:3]}'{offset[3:5]}'") == in_utc(moment)
    assert file_time(int(moment.timestamp()) * 10**9) == in_utc(moment)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("D:2019", "2019"),
        ("D:201903", "2019-03"),
        ("D:20190307", "2019-03-07"),
        ("D:2019030710", "2019-03-07T10:00:00"),
        ("D:20190307103000Z", "2019-03-07T10:30:00"),
        ("D:20191347", None),
        ("2019", None),
        ("", None),
    ],
)
def test_the_date_of_a_pdf_may_lack_its_end(text, expected):
    assert pdf_date(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "2019-02-30", "Tue, 40 Mar 2026", "9" * 200])
def test_other_text_is_no_date(text):
    assert any_date(text) is None


def test_the_time_of_a_file_beyond_the_calendar_is_unknown():
    assert file_time(10**25) is None
    assert file_time(-1) == "1969-12-31T23:59:59"
