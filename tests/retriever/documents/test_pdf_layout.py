"""PDF: headers and footers that run through a document are read once."""

from __future__ import annotations

import time

import pytest

from retriever.documents.kinds.pdf_layout import remove_running_lines
from tests.retriever.documents import file_samples as samples

BODIES = ["On bees", "On wasps", "On ants", "On flies", "On moths"]


def read_pages(pages: list[str]) -> list[str]:
    pytest.importorskip("pypdfium2")
    from retriever.documents.kinds.pdf import read_pdf

    parsed = read_pdf(samples.pdf(pages))
    starts = [mark.offset for mark in parsed.outline if mark.kind == "page"]
    ends = [*starts[1:], len(parsed.text)]
    return [parsed.text[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def test_pdf_header_and_footer_are_read_once_at_their_first_page():
    pages = [
        f"ACME Report\nDraft 7\n{body}\nmore {body}\nPage {number} of 5"
        for number, body in enumerate(BODIES, 1)
    ]
    assert read_pages(pages) == [
        "ACME Report\nDraft 7\nOn bees\nmore On bees\nPage 1 of 5",
        *(f"{body}\nmore {body}" for body in BODIES[1:]),
    ]


def test_header_in_other_case_and_page_number_alone_are_removed():
    texts = [f"{number}\r\nThe Hive\r\n{body}" for number, body in enumerate(BODIES, 17)]
    texts[3] = texts[3].replace("The Hive", "THE  HIVE")
    assert remove_running_lines(texts) == [texts[0], *BODIES[1:]]


def test_header_that_begins_on_a_later_page_is_kept_there():
    texts = ["Title", *(f"Head\n{body}" for body in BODIES)]
    assert remove_running_lines(texts) == ["Title", "Head\nOn bees", *BODIES[1:]]


def test_page_with_a_header_alone_keeps_it():
    texts = [f"Head\n{body}" for body in BODIES]
    texts[2] = "Head"
    assert remove_running_lines(texts) == [texts[0], "On wasps", "Head", "On flies", "On moths"]


UNCHANGED = {
    "three pages": [f"Head\n{body}" for body in BODIES[:3]],
    "half of the pages": [f"Head\n{body}" for body in BODIES[:3]] + BODIES[:3],
    "within pages": [f"{body}\na\nHead\nb\n{body}s" for body in BODIES],
    "numbers that are content": [f"Sensor {7 * n * n} shows {n * n}\n{n}" for n in (3, 9, 4, 7, 1)],
    "numbers alone that are content": [f"{n * n}\n{n * 3}\n{n * 5}" for n in (3, 9, 4, 7, 1)],
    "inner line below others": [f"{body}\nSame\nx{body}\ny{body}" for body in BODIES],
    "long line": ["long " * 50 + f"\n{body}" for body in BODIES],
    "empty": ["", "", "", "", ""],
    "none": [],
}


@pytest.mark.parametrize("case", UNCHANGED)
def test_line_that_may_be_content_stays(case):
    assert remove_running_lines(UNCHANGED[case]) == UNCHANGED[case]


def test_page_number_that_is_not_in_order_stays():
    texts = [f"{body}\nPage {number}" for number, body in enumerate(BODIES, 1)]
    texts[3] = "On flies\nPage 99"
    assert remove_running_lines(texts) == [texts[0], "On wasps", "On ants", texts[3], "On moths"]


HOSTILE = {
    "the same line": ["Head"] * 10_000,
    "one line many times": ["Head\n" * 100] * 10_000,
    "numbers": [f"{number} " * 30 + "\n1" for number in range(10_000)],
    "blank lines": ["\n" * 1_000] * 10_000,
    "a number of many digits": ["9" * 100_000] * 100,
    "a long line": ["a 1 " * 1_000_000] * 4,
}


@pytest.mark.parametrize("case", HOSTILE)
def test_running_lines_of_hostile_pages_take_bounded_time(case):
    started = time.process_time()
    assert len(remove_running_lines(HOSTILE[case])) == len(HOSTILE[case])
    assert time.process_time() - started < 5


def draw(cells: list[tuple[int, int, str]]) -> str:
    """The content of a page that draws each text at its place, in this order."""
    parts = " ".join(f"1 0 0 1 {left} {bottom} Tm ({text}) Tj" for left, bottom, text in cells)
    return f"%\nBT /F 12 Tf {parts} ET"


def test_pdf_table_drawn_row_by_row_keeps_a_row_on_a_line():
    rows = [["Crop", "Field", "Yield"], ["Rye", "North", "41"], ["Barley", "West", "12"]]
    cells = [
        (20 + 120 * column, 380 - 14 * row, text)
        for row, texts in enumerate(rows)
        for column, text in enumerate(texts)
    ]
    assert read_pages([draw(cells)]) == ["Crop Field Yield\nRye North 41\nBarley West 12"]


def test_pdf_columns_drawn_one_by_one_are_read_one_by_one():
    left = [(20, 380 - 14 * row, f"left {row}") for row in range(6)]
    right = [(220, 380 - 14 * row, f"right {row}") for row in range(6)]
    expected = "\n".join(text for _, _, text in left + right)
    assert read_pages([draw(left + right)]) == [expected]
