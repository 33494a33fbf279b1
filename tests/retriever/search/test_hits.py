"""Hits as the table of a notebook, read back by an HTML parser."""

from __future__ import annotations

import copy
import pickle
import shutil
from html.parser import HTMLParser

import pytest

from retriever import Hits, Index
from retriever.search.engine import hit_of

SCRIPT = "<script>alert('&')</script>"
NAMES = ["rank", "score", "document", "passage"]


class TableReader(HTMLParser):
    """The cells of a table as text, its marked words, and the names of all elements."""

    def __init__(self, html):
        super().__init__()
        self.rows = []
        self.marks = []
        self.elements = set()
        self.is_marked = False
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.elements.add(tag)
        self.is_marked = tag == "mark"
        if tag == "tr":
            self.rows.append([])
        elif tag in {"th", "td"}:
            self.rows[-1].append("")
        elif tag == "br":
            self.rows[-1][-1] += "\n"

    def handle_endtag(self, tag):
        self.is_marked = False

    def handle_data(self, text):
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += text.rstrip("\n")
        if self.is_marked:
            self.marks.append(text)


def read(hits) -> TableReader:
    return TableReader(hits._repr_html_())


def a_hit(passage="text", **fields):
    stored = (1, "id", None, passage, {}, 0, len(passage), None)
    hit = hit_of(stored, 1, 0.5)
    for name, value in fields.items():
        setattr(hit, name, value)
    return hit


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        index.add(
            [
                {"id": "a", "title": "Ships", "text": "Sailing ships need wind.", "date": "2020"},
                {"id": "b", "text": "Coal moves steamers."},
                {"id": "c", "text": "A ship carries coal.", "modified": "2021-02-03T10:00:00Z"},
            ]
        )
        yield index


def test_search_shows_rank_score_document_passage_and_date_of_each_hit(index):
    hits = index.search("ship", mode="bm25")
    table = read(hits)
    dates = {"a": "2020", "b": "", "c": "2021-02-03"}
    assert table.rows == [
        [*NAMES, "date"],
        *(
            [
                str(hit.rank),
                f"{hit.score:.4f}",
                "\n".join([hit.title, hit.id] if hit.title else [hit.id]),
                hit.passage,
                dates[hit.id],
            ]
            for hit in hits
        ),
    ]
    assert {hit.id for hit in hits} == {"a", "c"}


def test_words_of_the_query_are_marked_in_any_form_and_excluded_words_are_not(index):
    assert sorted(read(index.search("ship", mode="bm25")).marks) == ["ship", "ships"]
    assert read(index.search("wind -coal")).marks == ["wind"]
    # A raw query has no operators.
    raw = read(index.search("wind -coal", raw=True, mode="bm25"))
    assert sorted(raw.marks) == ["Coal", "coal", "wind"]


@pytest.mark.parametrize(
    "fields",
    [
        {"title": SCRIPT},
        {"id": SCRIPT},
        {"passage": SCRIPT},
        {"metadata": {"date": SCRIPT, "modified": SCRIPT, SCRIPT: SCRIPT}},
        {"date": f"2020-01-01T{SCRIPT}"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_markup_in_any_text_of_a_hit_is_shown_as_text(fields):
    table = read(Hits([a_hit(**fields)]))
    assert table.elements <= {"table", "tr", "th", "td", "b", "br"}
    if not fields.keys() & {"metadata", "date"}:
        assert any(SCRIPT in cell for cell in table.rows[1])


def test_markup_in_stored_documents_and_marked_words_is_shown_as_text(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index") as index:
        text = f"{SCRIPT} <b>bold</b>"
        record = {"id": SCRIPT, "title": f"{SCRIPT}!", "text": text, "author": SCRIPT}
        index.add([record])
        table = read(index.search("script bold", mode="bm25"))
    assert table.rows[1][2:] == [f"{SCRIPT}!\n{SCRIPT}", text]
    assert table.marks == ["script", "script", "bold"]
    assert table.elements == {"table", "tr", "th", "td", "b", "br", "mark"}


def test_place_of_a_hit_is_shown_with_its_id(tmp_path, fake_encoder):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/sails.md").write_text("# Boats\n\n## Sails\nSails need wind.\n")
    with Index.create(tmp_path / "index") as index:
        index.add(tmp_path / "notes")
        hits = index.search("wind", mode="bm25")
        id_with_lines, place = hits[0].place.of(hits[0].id, hits[0].title)
        assert id_with_lines.startswith("sails.md:")
        assert "Sails" in place
        assert read(hits).rows[1][2].split("\n")[-2:] == [id_with_lines, place]


def test_long_passage_is_cut_around_its_marked_words():
    passage = "Filler. " * 60 + "A zebra." + " Filler." * 60
    start = passage.index("zebra")
    table = read(Hits([a_hit(passage)], lambda passages: [[(start, start + 5)]]))
    shown = table.rows[1][3]
    assert table.marks == ["zebra"]
    assert shown.startswith("… ")
    assert shown.endswith(" …")
    assert len(shown) < 320


def test_control_characters_of_a_passage_are_replaced():
    assert read(Hits([a_hit("a\x1b[1m\u202eb\nc")])).rows[1][3] == "a\ufffd[1m\ufffdb c"


def test_table_without_dates_has_no_such_column():
    assert read(Hits([a_hit()])).rows == [NAMES, ["1", "0.5000", "id", "text"]]
    assert read(Hits()).rows == []
    assert "no hits" in Hits()._repr_html_()


def test_hits_are_shown_unmarked_where_the_index_is_closed_or_was_copied_away(index, tmp_path):
    hits = index.search("ship", mode="bm25")
    for copied in (copy.copy(hits), copy.deepcopy(hits), pickle.loads(pickle.dumps(hits))):
        assert type(copied) is Hits
        assert copied == hits
        assert read(copied).marks == []
    assert read(hits).marks
    index.close()
    shutil.rmtree(index.folder)
    assert read(hits).marks == []
    assert len(read(hits).rows) == 1 + len(hits)
