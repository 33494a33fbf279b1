"""Tables of text for a terminal, aligned by the cells that characters take there."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cli.output.safe_text import on_one_line


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)
) -> list[str]:
    """The lines of a table, columns two spaces apart; control characters become visible.

    A wide character, such as a Chinese one, takes two cells, and a combining one none.

    Args:
        header: the names of the columns.
        rows: as many cells each.
        left: the columns that are aligned to the left; the others are aligned to the right.
    """
    # Imported here, so that help pages come sooner.
    from wcwidth import ljust, rjust, width

    lines = [[on_one_line(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            (ljust if place in left else rjust)(cell, cells)
            for place, (cell, cells) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
