"""A report as LaTeX; it needs the packages booktabs and longtable."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from eval.reports.model import Report, Table
from eval.reports.text import printable

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
# Two of them would become a dash or another quotation mark.
_LIGATURE = re.compile(r"([-',])(?=\1)")


def latex_lines(report: Report) -> Iterator[str]:
    r"""The lines of report.tex, for \input: all tables and remarks; names the packages it needs."""
    yield r"% needs \usepackage{booktabs,longtable}"
    yield from (f"% {printable(line)}" for line in report.command.splitlines())
    tables = [(section.heading, table) for section in report.sections for table in section.tables]
    for number, (heading, table) in enumerate(tables, 1):
        yield ""
        yield from _table(table, table.title or heading, f"tab:{report.name}-{number}")
    remarks = [remark for section in report.sections for remark in section.remarks]
    if remarks:
        yield ""
        yield r"\begin{itemize}"
        yield from (rf"\item {escaped(remark)}" for remark in remarks)
        yield r"\end{itemize}"


def escaped(text: str) -> str:
    """The text on one line, without commands, ligatures and comments."""
    return _LIGATURE.sub(r"\1{}", printable(text).translate(_ESCAPES))


def _table(table: Table, caption: str, label: str) -> Iterator[str]:
    """The lines of a table that may break across pages."""
    columns = "".join("l" if place in table.left else "r" for place in range(len(table.columns)))
    yield rf"\begin{{longtable}}{{{columns}}}"
    yield rf"\caption{{{escaped(caption)}}}\label{{{label}}}\\"
    yield r"\toprule"
    yield _row(table.columns)
    yield r"\midrule"
    yield r"\endhead"
    yield from map(_row, table.rows)
    yield r"\bottomrule"
    yield r"\end{longtable}"


def _row(cells: Sequence[str]) -> str:
    # In braces: an opening bracket would be an argument of the line end before it.
    return f"{' & '.join(f'{{{escaped(cell)}}}' for cell in cells)} \\\\"
