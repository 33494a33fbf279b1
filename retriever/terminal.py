"""Text for a terminal: without control characters, and in aligned tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence

# Characters that change the direction of the text after them.
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
# Control characters, and lone surrogates, which stand for bytes of names that are not UTF-8. One
# character replaces each of them, so that offsets stay the same.
_CONTROLS = dict.fromkeys(
    [*range(0x09), *range(0x0E, 0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000), *_DIRECTIONS],
    "\ufffd",
)
_CONTROLS_AND_LINES = _CONTROLS | dict.fromkeys((*range(0x09, 0x0E), 0x2028, 0x2029), " ")


def on_one_line(text: str) -> str:
    """Replace tabs and line ends by spaces, and other control characters by U+FFFD."""
    return text.translate(_CONTROLS_AND_LINES)


def without_controls(text: str) -> str:
    """Replace control characters other than tabs and line ends by U+FFFD."""
    return text.translate(_CONTROLS)


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)
) -> list[str]:
    """Return the lines of a table with columns two spaces apart and visible control characters.

    Columns in `left` are aligned to the left, all others to the right. In a right column with marks
    (*), cells without a mark end with a space. A wide character, such as a Chinese one, takes two
    cells, and a combining character none.
    """
    # Imported here, since help pages need no table.
    from wcwidth import ljust, rjust, width

    lines = [[on_one_line(cell) for cell in row] for row in (header, *rows)]
    for column in range(len(header)):
        if column not in left and any(line[column].endswith("*") for line in lines[1:]):
            for line in lines:
                line[column] += "" if line[column].endswith("*") else " "
    widths = [max(map(width, cells)) for cells in zip(*lines, strict=True)]
    return [
        "  ".join(
            (ljust if column in left else rjust)(cell, column_width)
            for column, (cell, column_width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
