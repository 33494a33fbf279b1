"""Text for a terminal: without control characters, and in aligned tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence

# One character for one keeps places. Lone surrogates stand for bytes of names that are not UTF-8;
# what follows a character that turns the direction of text would be shown in another order.
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROLS = dict.fromkeys(
    [*range(0x09), *range(0x0E, 0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000), *_DIRECTIONS],
    "\ufffd",
)
_CONTROLS_AND_LINES = _CONTROLS | dict.fromkeys((*range(0x09, 0x0E), 0x2028, 0x2029), " ")


def on_one_line(text: str) -> str:
    """The text with spaces for tabs and line ends, and U+FFFD for other control characters."""
    return text.translate(_CONTROLS_AND_LINES)


def without_controls(text: str) -> str:
    """The text with U+FFFD for control characters other than tabs and line ends."""
    return text.translate(_CONTROLS)


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)
) -> list[str]:
    """The lines of a table, columns two spaces apart; control characters become visible.

    A wide character, such as a Chinese one, takes two cells, and a combining one none. Columns are
    aligned to the left or to the right. In a column to the right with marks (*), other cells leave
    a space for one.
    """
    # Imported here, so that help pages come sooner.
    from wcwidth import ljust, rjust, width

    lines = [[on_one_line(cell) for cell in row] for row in (header, *rows)]
    for place in range(len(header)):
        if place not in left and any(line[place].endswith("*") for line in lines[1:]):
            for line in lines:
                line[place] += "" if line[place].endswith("*") else " "
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            (ljust if place in left else rjust)(cell, cells)
            for place, (cell, cells) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
