"""Text of any origin as LaTeX, and tables of it; the packages booktabs and longtable suffice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from eval.reports.markdown import printable

_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"{\char34}",
        "`": r"{\char96}",
        "±": r"$\pm$",
        "×": r"$\times$",
    }
)
# Two of them would become a dash or another quote.
_LIGATURE = re.compile(r"([-',])(?=\1)")


def latex_escaped(text: str) -> str:
    """On one line, and nothing in it is a command, a ligature or a comment."""
    return _LIGATURE.sub(r"\1{}", printable(text).translate(_ESCAPES))


def latex_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], label: str
) -> Iterator[str]:
    """The lines of a table that may break over pages, the columns after the first to the right.

    Args:
        title: of its caption.
        header: a cell for each column.
        rows: as many cells each.
        label: to refer to it; letters, digits and hyphens.
    """
    yield rf"\begin{{longtable}}{{l{'r' * (len(header) - 1)}}}"
    yield rf"\caption{{{latex_escaped(title)}}}\label{{{label}}}\\"
    yield r"\toprule"
    yield _row(header)
    yield r"\midrule"
    yield r"\endhead"
    yield from map(_row, rows)
    yield r"\bottomrule"
    yield r"\end{longtable}"


def _row(cells: Sequence[str]) -> str:
    # A cell in braces: an opening bracket would be an argument of the line end before it.
    return f"{' & '.join(f'{{{latex_escaped(cell)}}}' for cell in cells)} \\\\"
