"""Tables and hits as a terminal shows them, characters of every width included."""

from __future__ import annotations

import io
import unicodedata
from contextlib import redirect_stderr
from dataclasses import replace

import pytest
import wcwidth
from hypothesis import given
from hypothesis import strategies as st

from cli.output.hits import explanation, hit_text
from cli.output.progress import DocumentsRead, EncodingProgress
from cli.output.text import say
from retriever.documents.outline import Place
from retriever.search import Hit, SearchSettings, search_settings


def cells(text):
    """Return the width of text without combining characters, from the Unicode database."""
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def hit(passage, **more):
    facts = {"rank": 1, "score": 0.5, "id": "文書", "title": None, "metadata": {}}
    scores = {"dense": 0.25, "dense_rank": 1, "bm25": None, "bm25_rank": None}
    return Hit(
        **(facts | scores | more), passage=passage, start=0, stop=len(passage), passage_number=1
    )


def test_long_lines_of_wide_characters_fit_the_terminal():
    passage = "日本語の文章。" * 40
    for full in (False, True):
        output = hit_text(hit(passage), [], cells=60, styled=False, full=full).splitlines()
        assert max(map(cells, output)) <= 60
        assert len(output) == (5 if not full else 12)
        assert ("…" in output[-1]) != full


def test_an_excerpt_shows_the_highlights_and_styles_only_them():
    passage = "Filler words. " * 50 + "The *zebra* crossing. " + "More filler. " * 50
    start = passage.index("zebra")
    spans = [(start, start + 5)]
    plain = hit_text(hit(passage), spans, cells=60, styled=False, full=False)
    assert "*zebra*" in plain
    assert "\x1b" not in plain
    styled = hit_text(hit(passage), spans, cells=60, styled=True, full=False)
    assert "*\x1b[33m\x1b[1mzebra\x1b[0m*" in styled
    # Escape codes take no room: lines break in the same places.
    assert [cells(line) for line in plain.splitlines()[1:]] == [
        cells(line.replace("\x1b[33m\x1b[1m", "").replace("\x1b[0m", ""))
        for line in styled.splitlines()[1:]
    ]


def test_an_explanation_is_one_aligned_table():
    hits = [
        hit("x"),
        hit("x", rank=10, id="b", dense=-0.125, dense_rank=123, bm25=1.5, bm25_rank=2),
    ]
    assert explanation(hits, SearchSettings()).splitlines()[1:] == [
        "rank   score    dense  rank    bm25  rank  id",
        "   1  0.5000   0.2500     1       -     -  文書",
        "  10  0.5000  -0.1250   123  1.5000     2  b",
    ]
    reranked = explanation([hit("x", first_rank=7)], SearchSettings()).splitlines()
    assert reranked == [
        "score = the reranker's",
        "rank   score  first   dense  rank  bm25  rank  id",
        "   1  0.5000      7  0.2500     1     -     -  文書",
    ]


@pytest.mark.parametrize(
    ("given", "how"),
    [
        ({"mode": "bm25"}, "bm25"),
        ({"mode": "dense"}, "dense"),
        ({"alpha": 0.3}, "0.3 * dense + 0.7 * bm25, both min-max normalized over the candidates"),
        ({"fusion": "rrf"}, "1/(60 + dense rank) + 1/(60 + bm25 rank)"),
    ],
)
def test_an_explanation_says_how_the_score_is_made(given, how):
    settings = search_settings(None, given)
    assert explanation([hit("x")], settings).splitlines()[0] == f"score = {how}"


@given(st.text(st.sampled_from("abc de-,'…"), max_size=200), st.integers(12, 60))
def test_narrow_text_is_wrapped_as_text_of_any_width(text, cells):
    indent = " " * 5
    wide = wcwidth.wrap(text, cells, initial_indent=indent, subsequent_indent=indent)
    output = hit_text(hit(text), [], cells=cells, styled=False, full=True)
    assert output.split("\n")[1:] == [line.rstrip() for line in wide]


def test_a_hit_shows_lines_behind_its_id_and_the_rest_of_its_place_behind_its_title():
    place = Place(("3", "4"), ("Methods", "Sampling"), (120, 141), None)
    output = hit_text(hit("Text.", place=place, title="T"), [], cells=60, styled=False, full=False)
    assert output.splitlines()[0] == "  1  0.5000  文書:120-141  T  pages 3-4, Methods › Sampling"
    # A first heading that is the title is not shown again.
    output = hit_text(
        hit("Text.", place=place, title="Methods"), [], cells=60, styled=False, full=0
    )
    assert output.splitlines()[0].endswith("  Methods  pages 3-4, Sampling")
    one = replace(place, pages=None, headings=(), lines=(7, 7))
    output = hit_text(hit("Text.", place=one), [], cells=60, styled=False, full=False)
    assert output.splitlines()[0] == "  1  0.5000  文書:7"


class Terminal(io.StringIO):
    """Standard error at a terminal."""

    def isatty(self):
        return True


class TestProgress:
    """The bar of a long command on a terminal."""

    def test_read_but_not_encoded_passages_keep_the_bar_back(self):
        reader = DocumentsRead(1000)
        with redirect_stderr(Terminal()), EncodingProgress(reader) as progress:
            # The whole corpus is read before the first of its 400 passages is encoded.
            reader.count(1000)
            positions = []
            for window in range(10):
                progress.window(40, 400 - 40 * (window + 1))
                for _ in range(4):
                    progress.encoded(10)
                    positions.append(progress._bar.n)
            assert positions == [25 * number for number in range(1, 41)]

    def test_bytes_without_passages_count_with_the_next_window(self):
        reader = DocumentsRead(1000)
        with redirect_stderr(Terminal()), EncodingProgress(reader) as progress:
            reader.count(500)
            progress.window(10, 0)
            progress.encoded(10)
            assert progress._bar.n == 500
            reader.count(500)
            progress.window(10, 10)
            progress.encoded(10)
            assert progress._bar.n == 750

    def test_a_message_begins_a_line_of_its_own(self):
        reader = DocumentsRead(10)
        terminal = Terminal()
        with redirect_stderr(terminal), EncodingProgress(reader) as progress:
            reader.count(5)
            progress.window(1, 0)
            progress.encoded(1)
            say("warning: something")
        before = terminal.getvalue().partition("warning: something\n")[0]
        # The bar was overwritten with spaces before.
        assert before.rpartition("\r")[2] == ""
        assert before.rstrip("\r").rpartition("\r")[2].strip() == ""
