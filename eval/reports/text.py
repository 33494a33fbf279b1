"""A report as lines of text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from wcwidth import ljust, rjust, width

from eval.reports.model import Report, Table


def printable(text: str) -> str:
    """The text on one line: spaces for white space, U+FFFD for other unprintable characters."""
    return "".join(
        letter if letter.isprintable() else " " if letter.isspace() else "\ufffd" for letter in text
    )


def text_lines(report: Report) -> Iterator[str]:
    """The title and the brief sections: facts, aligned tables and remarks."""
    yield printable(report.title)
    for section in report.sections:
        if not section.brief:
            continue
        for name, text in section.facts.items():
            yield printable(f"  {name}: {text}")
        for one in section.tables:
            yield ""
            if one.title:
                yield printable(one.title)
            yield from table_lines(one)
        if section.remarks:
            yield ""
            yield from map(printable, section.remarks)


def table_lines(table: Table) -> Iterator[str]:
    """The lines of a table, columns two spaces apart, aligned by the cells of a terminal.

    A wide character, such as a Chinese one, takes two cells and a combining one none. In a column
    with significance marks the other numbers leave a space for the mark.
    """
    rows = [[printable(cell) for cell in row] for row in (table.columns, *table.rows)]
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
