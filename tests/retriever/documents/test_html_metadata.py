"""Title, author and dates that a page states in one of the usual forms."""

import json

import pytest

from retriever.documents.kinds.html import read_html

BODY = "<p>Bees make honey of nectar, and they keep it in their hive for the winter.</p>"


def facts(head, body=BODY):
    parsed = read_html(f"<html><head>{head}</head><body>{body}</body></html>".encode())
    return parsed.title, parsed.metadata


def linked(value):
    return f'<script type="application/ld+json">{json.dumps(value)}</script>'


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ('<meta name="date" content="2026-03-01">', {"date": "2026-03-01"}),
        (
            '<meta name="date" content="Tue, 3 Mar 2026 08:00:00 +0100">',
            {"date": "2026-03-03T07:00:00"},
        ),
        (
            '<meta property="article:published_time" content="2026-03-01T10:00:00Z">'
            '<meta property="article:modified_time" content="2026-04-01">',
            {"date": "2026-03-01T10:00:00", "modified": "2026-04-01"},
        ),
        (
            '<meta http-equiv="last-modified" content="Tue, 03 Mar 2026 08:00:00 GMT">',
            {"modified": "2026-03-03T08:00:00"},
        ),
        ('<meta name="date" content="Tue, 3 Mar 2026">', {"date": "2026-03-03T00:00:00"}),
        (
            '<script type="application/LD+JSON; charset=utf-8">'
            '{"@graph": {"datePublished": "2026"}}</script>',
            {"date": "2026"},
        ),
        ('<meta name="DC.creator" content="Ada">', {"author": "Ada"}),
        ('<meta property="article:author" content="https://example.org/ada">', {}),
        ('<meta name="date" content="0001-01-01">', {}),
        ('<meta name="date" content="yesterday">', {}),
        (
            linked(
                {
                    "@type": "Article",
                    "author": [{"name": "Ada"}, {"name": "Bob"}],
                    "datePublished": "2026-03-01",
                    "dateModified": "2026-03-02",
                }
            ),
            {"author": "Ada, Bob", "date": "2026-03-01", "modified": "2026-03-02"},
        ),
        (
            linked(
                {
                    "@graph": [
                        {"@type": "Organization", "name": "Press", "datePublished": "1900-01-01"},
                        {"@type": "BlogPosting", "author": "Ada", "datePublished": "2026-03-01"},
                    ]
                }
            ),
            {"author": "Ada", "date": "2026-03-01"},
        ),
    ],
)
def test_a_page_states_its_author_and_dates(head, expected):
    assert facts(f"<title>T</title>{head}") == ("T", expected)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('<span itemprop="author">Ada</span>', {"author": "Ada"}),
        ('<meta itemprop="datePublished" content="2026-03-01">', {"date": "2026-03-01"}),
        (
            '<time itemprop="dateModified" datetime="2026-03-02">x</time>',
            {"modified": "2026-03-02"},
        ),
        ('<time pubdate datetime="2026-03-01">March</time>', {"date": "2026-03-01"}),
        (
            f'<article><header><time datetime="2026-03-01">x</time></header>{BODY}</article>',
            {"date": "2026-03-01"},
        ),
        # Two times in a header do not say which is that of the article.
        (
            '<article><header><time datetime="2026-03-01">a</time>'
            f'<time datetime="2026-03-05">b</time></header>{BODY}</article>',
            {},
        ),
        # The time of an event in the text.
        (f'<p>Meet us <time datetime="2026-03-01">soon</time></p>{BODY}', {}),
    ],
)
def test_elements_of_the_text_state_an_author_or_a_date(body, expected):
    assert facts("<title>T</title>", body + BODY)[1] == expected


@pytest.mark.parametrize(
    "head",
    [
        '<meta property="og:title" content="Bees">',
        linked({"@type": "NewsArticle", "headline": "Bees"}),
    ],
)
def test_a_page_without_a_title_has_the_one_that_it_states(head):
    assert facts(head)[0] == "Bees"
    assert facts(f"<title>Own</title>{head}")[0] == "Own"


@pytest.mark.parametrize(
    "text",
    ["{", "[" * 100_000, "null", '"a"', '{"@graph": 7}', '{"author": {"name": {}}}', "[[[]]]"],
)
def test_damaged_linked_data_says_nothing(text):
    head = f'<title>T</title><script type="application/ld+json">{text}</script>'
    assert facts(head) == ("T", {})
