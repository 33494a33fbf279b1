"""Tables of text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from cli.output.safe_text import on_one_line


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns, the first to the left, the others to the right; controls made visible."""
    lines = [[on_one_line(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
