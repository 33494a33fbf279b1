"""Tables in LaTeX: nothing in a cell is interpreted."""

import re

import pytest

from eval.tables import Table, in_latex, latex_table
from tests.eval.sentences.sentence_samples import ODD

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
