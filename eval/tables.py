"""Tables of text for a terminal, in Markdown and in LaTeX, and text without control characters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wcwidth import ljust, rjust, width

# One character for one keeps places. Lone surrogates stand for bytes of names that are not UTF-8;
# what follows a character that turns the direction of text would be shown in another order.
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROLS = dict.fromkeys(
    [*range(0x09), *range(0x0E, 0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000), *_DIRECTIONS],
    "\ufffd",
)
_CONTROLS_AND_LINES = _CONTROLS | dict.fromkeys((*range(0x09, 0x0E), 0x2028, 0x2029), " ")

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


def on_one_line(text: str) -> str:
    """The text with spaces for tabs and line ends, and U+FFFD for other control characters."""
    return text.translate(_CONTROLS_AND_LINES)


def without_controls(text: str) -> str:
    """The text with U+FFFD for control characters other than tabs and line ends."""
    return text.translate(_CONTROLS)


def table_lines(table: Table) -> Iterator[str]:
    """The lines of a table, columns two spaces apart, aligned by the cells of a terminal.

    A wide character, such as a Chinese one, takes two cells and a combining one none. In a column
    with significance marks the other numbers leave a space for the mark.
    """
    rows = [[on_one_line(cell) for cell in row] for row in (table.columns, *table.rows)]
    for place in range(len(table.columns)):
        if place not in table.left and any(row[place].endswith("*") for row in rows[1:]):
            for row in rows:
                row[place] += "" if row[place].endswith("*") else " "
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(
            (ljust if place in table.left else rjust)(cell, cells)
            for place, (cell, cells) in enumerate(zip(row, widths, strict=True))
        ).rstrip()


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
