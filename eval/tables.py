"""Tables of text for a terminal, in Markdown and in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from retriever import terminal
from retriever.terminal import on_one_line

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~$&!])")
_LATEX = str.maketrans(
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


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text in columns.

    Attributes:
        columns: their names.
        rows: each with one cell per column.
        title: caption; may be empty.
        left: numbers of the columns that are aligned to the left; the others are aligned to the
            right.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    left: tuple[int, ...] = (0,)


def table_lines(table: Table) -> list[str]:
    """The lines of a table, aligned by the cells of a terminal."""
    return terminal.table(table.columns, table.rows, left=table.left)


def in_markdown(text: str) -> str:
    """The text on one line, with nothing in it that Markdown interprets."""
    return _MARKDOWN.sub(r"\\\1", on_one_line(text))


def markdown_table(table: Table) -> Iterator[str]:
    """The lines of a table with an empty line before it."""
    yield ""
    if table.title:
        yield f"**{in_markdown(table.title)}**"
        yield ""
    marks = ["---" if place in table.left else "---:" for place in range(len(table.columns))]
    for cells in (table.columns, *table.rows):
        yield f"| {' | '.join(map(in_markdown, cells))} |"
        if cells is table.columns:
            yield f"| {' | '.join(marks)} |"


def in_latex(text: str) -> str:
    """The text on one line, without commands, ligatures and comments."""
    return _LIGATURE.sub(r"\1{}", on_one_line(text).translate(_LATEX))


def latex_table(table: Table, caption: str, label: str) -> Iterator[str]:
    """The lines of a table that may break across pages, for booktabs and longtable."""
    columns = "".join("l" if place in table.left else "r" for place in range(len(table.columns)))
    yield rf"\begin{{longtable}}{{{columns}}}"
    yield rf"\caption{{{in_latex(caption)}}}\label{{{label}}}\\"
    yield r"\toprule"
    yield _latex_row(table.columns)
    yield r"\midrule"
    yield r"\endhead"
    yield from map(_latex_row, table.rows)
    yield r"\bottomrule"
    yield r"\end{longtable}"


def _latex_row(cells: Sequence[str]) -> str:
    # In braces: an opening bracket would be an argument of the line end before it.
    return f"{' & '.join(f'{{{in_latex(cell)}}}' for cell in cells)} \\\\"
