"""Text of documents for a terminal: without control characters, and in aligned tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

# One character for one keeps places. Lone surrogates stand for bytes of names that are not UTF-8.
_CONTROLS = dict.fromkeys(
    [*range(0x09), *range(0x0E, 0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000)], "\ufffd"
)
_CONTROLS_AND_LINES = _CONTROLS | dict.fromkeys(range(0x09, 0x0E), " ")


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


def meta_summary(facts: dict[str, Any]) -> str:
    """One line on what `MetaParts.describe` returns."""
    pooling = f", {facts['pooling']} pooling" if facts["pooling"] else ""
    return (
        f"{facts['method']} of {len(facts['sources'])} encoders, {facts['level']} level"
        f"{pooling}, {facts['dimensions']} dimensions"
    )


def meta_lines(facts: dict[str, Any]) -> list[str]:
    """The sources as a table."""
    rows = [
        [one["encoder"], str(one["dimensions"]), f"{one['weight']:.3f}", one["fingerprint"]]
        for one in facts["sources"]
    ]
    return table(["source", "dimensions", "weight", "fingerprint"], rows)
