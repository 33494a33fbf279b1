"""Hits by score and age, and by date, against a ranking of all documents by hand."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever import Index, SearchSettings
from retriever.errors import ConfigError, FilterError
from retriever.search import recency
from retriever.search.recency import recency_factor, stated_date

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = 86_400
WORDS = ["honey", "bees", "hive", "wax"]


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(recency, "current_time", NOW.timestamp)


def day(age):
    return (NOW - timedelta(days=age)).date().isoformat()


@pytest.fixture
def index(tmp_path, fake_encoder):
    documents = [
        {
            "id": f"d{number:02}",
            "text": " ".join(WORDS[: 1 + number % 4] * (1 + number % 3)),
            **({} if number % 5 == 0 else {"date": day(37 * number % 200)}),
            "modified": day(number),
        }
        for number in range(60)
    ]
    with Index.create(tmp_path / "my.index") as index:
        index.add(documents)
        yield index


@pytest.mark.parametrize("mode", ["bm25", "dense", "hybrid"])
def test_hits_are_those_of_all_documents_by_score_times_factor(index, mode):
    # All documents are candidates, so the scores of the two searches are the same.
    plain = index.search("honey wax", k=60, mode=mode)
    expected = []
    for hit in plain:
        date = stated_date(hit.metadata, None)
        age = (NOW.timestamp() - date[1]) / DAY
        factor = 0.5 + 0.5 * 2 ** (-age / 30)
        score = hit.score * factor if hit.score > 0 else hit.score
        expected.append((-score, hit.id))
    expected = sorted(expected)[:10]
    hits = index.search("honey wax", k=10, mode=mode, recency=30)
    assert [hit.id for hit in hits] == [id_ for _, id_ in expected]
    assert [hit.score for hit in hits] == pytest.approx([-score for score, _ in expected])
    assert [hit.rank for hit in hits] == list(range(1, 11))
    plain_scores = {hit.id: hit.score for hit in plain}
    assert all(hit.plain_score == pytest.approx(plain_scores[hit.id]) for hit in hits)


def test_the_best_of_depth_are_sorted_by_date_and_undated_ones_are_last(index):
    best = index.search("honey wax", k=20, mode="bm25")
    hits = index.search("honey wax", k=20, depth=20, mode="bm25", sort="date", date_field="date")
    assert {hit.id for hit in hits} == {hit.id for hit in best}
    dates = [hit.date or "" for hit in hits]
    assert dates == sorted(dates, reverse=True)
    first = index.search("honey wax", k=3, depth=20, mode="bm25", sort="date", date_field="date")
    assert [hit.id for hit in first] == [hit.id for hit in hits[:3]]


def test_ids_alone_have_the_order_of_the_hits(index):
    settings = SearchSettings(k=10, recency=30)
    hits = index.search("honey", settings)
    (ids,) = index.rank(["honey"], settings)
    assert ids == [(hit.id, hit.score) for hit in hits]


def test_more_like_prefers_newer_documents_too(index):
    hits = index.more_like("d01", SearchSettings(k=5, recency=10))
    assert len(hits) == 5
    assert "d01" not in {hit.id for hit in hits}
    assert all(hit.recency is not None for hit in hits)


def test_a_search_without_recency_has_no_dates(index):
    hit = index.search("honey", k=1)[0]
    assert (hit.date, hit.recency, hit.plain_score) == (None, None, None)
    assert not {"date", "recency", "plain_score"} & hit.to_json().keys()


def test_newer_of_two_copies_is_kept(tmp_path, fake_encoder):
    text = "the roof of the house will be repaired by the end of august this year"
    with Index.create(tmp_path / "copies.index") as index:
        index.add(
            [
                {"id": "a-old", "text": text, "date": "2020"},
                {"id": "b-new", "text": text, "date": "2026-05-30"},
            ]
        )
        assert [hit.id for hit in index.search("roof", collapse=True)] == ["a-old"]
        hits = index.search("roof", collapse=True, recency=100)
    assert [(hit.id, hit.copies) for hit in hits] == [("b-new", ("a-old",))]


def test_a_field_that_no_document_has_is_a_warning(index):
    with pytest.warns(UserWarning, match="no document has the field 'day'"):
        index.search("honey", recency=10, date_field="day")


@pytest.mark.parametrize("days", [0, -1, math.nan, math.inf])
def test_days_must_be_a_positive_number(days):
    with pytest.raises(ConfigError, match="recency: expected above 0"):
        SearchSettings(recency=days)


@given(
    st.one_of(st.none(), st.floats(-1e12, 1e12)),
    st.floats(1e-3, 1e6),
    st.floats(-1e10, 1e10),
)
def test_a_factor_is_between_half_and_one_and_falls_with_age(seconds, days, now):
    factor = recency_factor(seconds, days, now)
    assert 0.5 <= factor <= 1
    if seconds is None:
        assert factor == 0.5
    elif seconds >= now:
        assert factor == 1
    else:
        assert factor >= recency_factor(seconds - 1000, days, now)


@pytest.mark.parametrize(
    ("metadata", "field", "expected"),
    [
        ({"date": "2026-05-01", "modified": "2026-06-01"}, None, "2026-05-01"),
        ({"date": "soon", "modified": "2026-06-01T10:00:00"}, None, "2026-06-01T10:00:00"),
        ({"date": "2026"}, None, "2026"),
        ({"date": 2026}, None, None),
        ({"born": "2026-03"}, "born", "2026-03"),
        ({"date": "2026-03"}, "born", None),
        ({"date": "0000"}, None, None),
        ({}, None, None),
    ],
)
def test_the_date_is_the_first_field_that_holds_one(metadata, field, expected):
    date = stated_date(metadata, field)
    assert (None if date is None else date[0]) == expected


def test_a_year_stands_for_its_first_day():
    assert stated_date({"date": "2026"}, None)[1] == datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    with_offset = stated_date({"date": "2026-01-01T02:00:00+02:00"}, None)[1]
    assert with_offset == datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def test_a_database_gives_the_same_order(index, postgres_url, fake_encoder):
    with Index.create(postgres_url) as other:
        other.add(iter(index))
        for keywords in ({"recency": 30.0}, {"sort": "date", "depth": 20}):
            for mode in ("bm25", "hybrid"):
                expected = index.search("honey wax", k=10, mode=mode, **keywords)
                hits = other.search("honey wax", k=10, mode=mode, **keywords)
                assert [hit.id for hit in hits] == [hit.id for hit in expected]
        months = [store.facets(["date:month"], "wax").fields for store in (index, other)]
        assert months[0] == months[1]


def test_facets_count_dates_by_month_with_the_newest_first(index):
    facet = index.facets(["date:month", "date"], "honey", limit=3).fields["date:month"]
    days = index.facets(["date"], "honey", limit=1000).fields["date"].values
    months = sorted({value.value[:7] for value in days}, reverse=True)
    assert [value.value for value in facet.values] == months[:3]
    assert facet.distinct == len(months)
    for value in facet.values:
        expected = [day for day in days if day.value.startswith(value.value)]
        assert value.documents == sum(day.documents for day in expected)
        assert value.matches == sum(day.matches for day in expected)
        assert len(index.browse(value.where, k=100)) == value.documents


def test_facets_refuse_other_periods_than_months(index):
    with pytest.raises(FilterError, match=r"'date:year': dates are counted.*: write date:month"):
        index.facets(["date:year"], "honey")


def test_months_of_values_that_are_no_dates_are_not_counted(tmp_path, fake_encoder):
    with Index.create(tmp_path / "odd.index") as index:
        index.add(
            [
                {"id": "a", "text": "x", "on": "2026"},
                {"id": "b", "text": "x", "on": "soon"},
                {"id": "c", "text": "x", "on": 2026},
                {"id": "d", "text": "x", "on": "2026-03-01T10:00:00"},
            ]
        )
        facet = index.facets(["on:month"]).fields["on:month"]
        found = {
            value.value: [hit.id for hit in index.browse(value.where)] for value in facet.values
        }
    assert found == {"2026-03": ["d"], "2026": ["a"]}
