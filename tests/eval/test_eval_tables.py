"""Tables on a terminal and in LaTeX: columns are aligned, and nothing in a cell is interpreted."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.tables import Table, in_latex, latex_table, on_one_line, table_lines, without_controls
from tests.eval.sentences.sentence_samples import ODD

CELL = st.text(st.sampled_from("ab 1日本語ｶｷかéñ"), max_size=6).map(str.strip)
_MEANT = {
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"{\char34}": '"',
    r"{\char96}": "`",
    r"$\pm$": "±",
    r"$\times$": "×",
    "-{}": "-",
    "'{}": "'",
    ",{}": ",",
    **{f"\\{letter}": letter for letter in "{}&%$#_"},
}
_TOKEN = re.compile("|".join(re.escape(one) for one in sorted(_MEANT, key=len, reverse=True)))


def read_latex(text):
    """What LaTeX shows of escaped text; fails on a special character that is not escaped."""
    shown, place = [], 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token:
            shown.append(_MEANT[token[0]])
            place = token.end()
        else:
            assert text[place] not in '\\{}&%$#_~^<>|"`±×', text[place:]
            shown.append(text[place])
            place += 1
    return "".join(shown)


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
    lines = list(table_lines(Table(header, tuple(rows), left=(0, 2))))
    header = (*header[:2], "z\ufffd[2J ")
    widths = [max(map(cells, column)) for column in zip(header, *rows, strict=True)]
    for line, (first, second, third) in zip(lines, (header, *rows), strict=True):
        gaps = widths[0] - cells(first), widths[1] - cells(second)
        assert line == f"{first}{' ' * (gaps[0] + 2 + gaps[1])}{second}  {third}".rstrip()


@pytest.mark.parametrize("text", [ODD, "''a--b---c,,d", "plain", "50 ± 2 × 3", "\\\\{}"])
def test_latex_shows_what_was_typed(text):
    assert read_latex(in_latex(text)) == text


def test_no_ligature_and_no_line_end_is_left_in_latex():
    text = in_latex("--- '' ,, a\nb\tc\x00")
    assert not re.search(r"--|''|,,|[\n\t\x00]", text)


def test_rows_of_a_table_have_a_cell_for_each_column():
    lines = list(latex_table(Table(("a", "b&c"), (("[x]", "1 & 2"), (ODD, ""))), "t", "l"))
    rows = [line.removesuffix(" \\\\") for line in lines if line.endswith(" \\\\")]
    cells = [[cell[1:-1] for cell in row.split(" & ")] for row in rows if row.startswith("{")]
    # What was typed as " & " has a backslash before the sign, so that only separators divide.
    assert [[read_latex(cell) for cell in row] for row in cells] == [
        ["a", "b&c"],
        ["[x]", "1 & 2"],
        [ODD, ""],
    ]
    assert r"\begin{longtable}{lr}" in lines
