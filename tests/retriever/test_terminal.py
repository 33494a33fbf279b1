"""Text and tables on a terminal: control characters are visible, columns are aligned."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from retriever.terminal import on_one_line, table, without_controls

CELL = st.text(st.sampled_from("ab 1日本語ｶｷかéñ"), max_size=6).map(str.strip)


def test_controls_are_visible_and_letters_of_any_script_stay():
    text = "a\tb\r\nc\u2028d \x1b[1m\x85\x00\ud800\u202ee\u2066 می\u200cخواهم 👩\u200d🔬 \u00a0"
    shown = "\ufffd[1m\ufffd\ufffd\ufffd\ufffde\ufffd می\u200cخواهم 👩\u200d🔬 \u00a0"
    assert on_one_line(text) == f"a b  c d {shown}"
    assert without_controls(text) == f"a\tb\r\nc\u2028d {shown}"


def cells(text):
    """The width of text without combining characters, from the Unicode database."""
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


@given(rows=st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=5))
def test_columns_begin_and_end_in_the_same_cell_of_every_line(rows):
    header = ("名前", "Success@10", "z\x1b[2J\n")
    lines = table(header, rows, left=(0, 2))
    header = (*header[:2], "z\ufffd[2J ")
    widths = [max(map(cells, column)) for column in zip(header, *rows, strict=True)]
    for line, (first, second, third) in zip(lines, (header, *rows), strict=True):
        gaps = widths[0] - cells(first), widths[1] - cells(second)
        assert line == f"{first}{' ' * (gaps[0] + 2 + gaps[1])}{second}  {third}".rstrip()


def test_combining_characters_take_no_cell_and_marks_do_not_move_numbers():
    assert table(["a", "b"], [["e\u0301e\u0301", "1"], ["xxx", "22*"]]) == [
        "a     b",
        "e\u0301e\u0301    1",
        "xxx  22*",
    ]
