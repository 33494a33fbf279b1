"""Outlines: what stands where in the text of a document, and where a passage is by it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.documents import Document, Fields
from retriever.documents.document import Assembler, Record, as_document, document_fault
from retriever.documents.outline import Mark, Place, outline_json, place, read_outline

LABELS = {
    "page": st.sampled_from(["iv", "1", "12"]),
    "line": st.integers(1, 99).map(str),
    "heading": st.sampled_from(["Methods", "Über „uns“", "3.1"]),
    "message": st.just("2024-03-01 Alice: Hello"),
}


@st.composite
def outlined(draw):
    text = draw(st.text(st.sampled_from("ab \n"), min_size=1, max_size=60))
    marks = []
    for offset in sorted(draw(st.lists(st.integers(0, len(text)), max_size=12))):
        kind = draw(st.sampled_from(sorted(LABELS)))
        level = draw(st.integers(1, 6)) if kind == "heading" else 0
        marks.append(Mark(offset, kind, draw(LABELS[kind]), level))
    ends = sorted(draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=2)))
    return Document("1", text, outline=tuple(marks)), tuple(ends)


def scanned(document, offset):
    """Page, headings, line and message at a character, by reading the text from its beginning."""
    page = line = message = None
    path = []
    for at in range(offset + 1):
        if line is not None and document.text[at - 1] == "\n":
            line += 1
        for mark in document.outline:
            if mark.offset != at:
                continue
            match mark.kind:
                case "page":
                    page = mark.label
                case "line":
                    line = int(mark.label)
                case "message":
                    message, path = mark.label, []
                case "heading":
                    path = [one for one in path if one.level < mark.level] + [mark]
    return page, tuple(one.label for one in path), line, message


@given(outlined())
def test_place_of_offset_equals_linear_scan_of_outline(case):
    document, (start, stop) = case
    said = [at for at in range(start, stop) if not document.text[at].isspace()]
    first, last = (said[0], said[-1]) if said else (stop, stop)
    found = place(document.outline, document.text, (start, stop))
    page, headings, line, message = scanned(document, first)
    last_page, _, last_line, _ = scanned(document, last)
    assert found.headings == headings
    assert found.message == message
    assert found.pages == (None if last_page is None else (page or last_page, last_page))
    assert found.lines == (None if line is None else (line, last_line))


@given(outlined())
def test_an_outline_is_stored_as_json_and_read_from_a_field(case):
    document, _ = case
    assert document_fault(document) is None
    stored = outline_json(document.outline)
    assert read_outline(stored) == document.outline
    record = {"id": "1", "text": document.text}
    if stored:
        record["outline"] = json.loads(stored)
    assert as_document(record) == document


def test_the_outline_of_a_record_is_that_of_its_document():
    outline = (Mark(0, "page", "iv"), Mark(9, "heading", "Methods", 1))
    record = Record(1, "a.pdf", {"text": "Contents\nMethods\nWe"}, outline=outline)
    assert Assembler(Fields()).document(record).outline == outline


@pytest.mark.parametrize(
    "value",
    ["A, B", [], [[0, "page"]], [[9, "page", "1"]], [[2, "page", "2"], [0, "page", "1"]], [1]],
)
def test_a_field_that_holds_no_outline_of_the_text_is_metadata(value):
    found = as_document({"text": "abc", "outline": value})
    assert (found.outline, found.metadata) == ((), {"outline": value})


@pytest.mark.parametrize(
    "mark",
    [
        Mark(4, "page", "1"),
        Mark(-1, "page", "1"),
        Mark(0, "section", "1"),
        Mark(0, "heading", "A"),
        Mark(0, "heading", "A", 7),
        Mark(0, "page", "1", 1),
        Mark(0, "line", "iv"),
        Mark(0, "page", "a\0"),
        Mark(0, "page", "\ud800"),
        Mark(True, "page", "1"),
        (0, "page", "1", 0),
    ],
)
def test_an_outline_that_does_not_fit_its_text_is_refused(mark):
    assert "mark 1 is" in document_fault(Document("1", "abc", outline=(mark,)))
    two = (Mark(2, "page", "2"), Mark(1, "page", "1"))
    assert "ascending" in document_fault(Document("1", "abc", outline=two))


@pytest.mark.parametrize(
    ("found", "words", "shown"),
    [
        (Place(), "", {}),
        (Place(("3", "3")), "page 3", {"pages": ["3", "3"]}),
        (
            Place(("iv", "2"), ("Methods", "Sampling")),
            "pages iv-2, Methods › Sampling",
            {"pages": ["iv", "2"], "headings": ["Methods", "Sampling"]},
        ),
        (Place(lines=(120, 141)), "lines 120-141", {"lines": [120, 141]}),
        (Place(message="2024 A: B"), "2024 A: B", {"message": "2024 A: B"}),
    ],
)
def test_place_prints_known_parts_as_text_and_json(found, words, shown):
    assert (str(found), found.to_json()) == (words, shown)
