"""Writes the pictures of `docs/how-it-works.md` into `docs/images`: `python docs/make_pictures.py`.

A picture is some boxes on a grid and arrows between them. It follows the light or dark theme.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "images"
# Sizes in pixels of a cell of the grid, and of the box in it.
CELL_WIDTH = 190
CELL_HEIGHT = 92
BOX_WIDTH = 160
BOX_HEIGHT = 60
MARGIN = 15
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2933; text-anchor: middle }
.note { font-size: 12px; fill: #52606d }
rect { fill: #eef2f7; stroke: #7b8794 }
.kept rect { fill: #dff3e4; stroke: #3f8f5b }
path { stroke: #7b8794; stroke-width: 1.5; fill: none; marker-end: url(#head) }
marker path { fill: #7b8794; stroke: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb } .note { fill: #9aa5b1 }
  rect { fill: #2b3440 } .kept rect { fill: #1e3d2a }
}
"""


class Box(NamedTuple):
    """A box on the grid: its column and row, its name, a note below the name."""

    column: float
    row: float
    name: str
    note: str = ""
    # Whether it shows a file that is kept.
    is_kept: bool = False


class Picture(NamedTuple):
    """The boxes of a picture, and the pairs of boxes that an arrow joins, by their names."""

    title: str
    boxes: Sequence[Box]
    arrows: Sequence[tuple[str, str]]


PICTURES = {
    "floors": Picture(
        "The four packages; each uses those below it",
        [
            Box(1, 0, "cli", "options, output"),
            Box(1, 1, "eval", "which one is better"),
            Box(1, 2, "retriever", "texts, ranking"),
            Box(1, 3, "indexes", "files, databases"),
            Box(2.2, 2, "encoder", "text to vector"),
            Box(2.2, 3, "FAISS, SQLite"),
            Box(0, 2, "HTTP, MCP", "for programs"),
        ],
        [
            ("cli", "eval"),
            ("eval", "retriever"),
            ("retriever", "indexes"),
            ("retriever", "encoder"),
            ("indexes", "FAISS, SQLite"),
            ("HTTP, MCP", "retriever"),
        ],
    ),
    "document-path": Picture(
        "The way of a document into the index",
        [
            Box(0, 0, "file", "PDF, mail, notes"),
            Box(1, 0, "text", "with pages, headings"),
            Box(2, 0, "passages", "that fit the encoder"),
            Box(3, 0, "terms", "stems, whole terms"),
            Box(3, 1, "vector", "by the encoder"),
            Box(4, 0.5, "commit", "all or nothing"),
            Box(5, 0.5, "index folder", "one folder", is_kept=True),
        ],
        [
            ("file", "text"),
            ("text", "passages"),
            ("passages", "terms"),
            ("passages", "vector"),
            ("terms", "commit"),
            ("vector", "commit"),
            ("commit", "index folder"),
        ],
    ),
    "query-path": Picture(
        "The way of a query to its hits",
        [
            Box(0, 0.5, "query", "words, filter"),
            Box(1, 0, "BM25", "passages by words"),
            Box(1, 1, "embedding", "passages by meaning"),
            Box(2, 0.5, "fusion", "both scores of each"),
            Box(3, 0.5, "documents", "by best passage"),
            Box(4, 0.5, "hits", "page, heading, line"),
        ],
        [
            ("query", "BM25"),
            ("query", "embedding"),
            ("BM25", "fusion"),
            ("embedding", "fusion"),
            ("fusion", "documents"),
            ("documents", "hits"),
        ],
    ),
    "commit": Picture(
        "A commit: a reader sees all of it or nothing",
        [
            Box(0, 0, "new passages", "terms and vectors"),
            Box(1, 0, "segment files", "written, synced", is_kept=True),
            Box(2, 0, "SQLite commit", "names the segment", is_kept=True),
            Box(3, 0, "readers", "see the new commit"),
            Box(1, 1, "crash here", "files nobody names"),
            Box(2, 1, "next writer", "removes them"),
        ],
        [
            ("new passages", "segment files"),
            ("segment files", "SQLite commit"),
            ("SQLite commit", "readers"),
            ("segment files", "crash here"),
            ("crash here", "next writer"),
        ],
    ),
}


def draw(picture: Picture) -> str:
    """Return the SVG of a picture."""
    boxes = {box.name: box for box in picture.boxes}
    width = round(max(map(left, picture.boxes)) + BOX_WIDTH + MARGIN)
    height = round(max(map(top, picture.boxes)) + BOX_HEIGHT + MARGIN)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{escape(picture.title)}</title>",
        f"<style>{STYLE}</style>",
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0 8 4 0 8z"/></marker>',
        *(draw_arrow(boxes[start], boxes[stop]) for start, stop in picture.arrows),
        *map(draw_box, picture.boxes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def left(box: Box) -> float:
    """Return the left edge of a box."""
    return MARGIN + box.column * CELL_WIDTH


def top(box: Box) -> float:
    """Return the upper edge of a box."""
    return MARGIN + box.row * CELL_HEIGHT


def draw_box(box: Box) -> str:
    """Return the SVG of a box with its name and note."""
    x = left(box)
    y = top(box)
    middle = x + BOX_WIDTH / 2
    name_line = y + (26 if box.note else 35)
    note = f'<text class="note" x="{middle:g}" y="{y + 45:g}">{escape(box.note)}</text>'
    return (
        f'<g class="{"kept" if box.is_kept else "step"}">'
        f'<rect x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8"/>'
        f'<text x="{middle:g}" y="{name_line:g}">{escape(box.name)}</text>'
        f"{note if box.note else ''}</g>"
    )


def draw_arrow(start: Box, stop: Box) -> str:
    """Return the SVG of an arrow: to the right or left, else down or up."""
    is_sideways = abs(start.column - stop.column) >= 1
    if is_sideways:
        is_right = stop.column > start.column
        x1 = left(start) + (BOX_WIDTH if is_right else 0)
        x2 = left(stop) + (0 if is_right else BOX_WIDTH)
        y1 = top(start) + BOX_HEIGHT / 2
        y2 = top(stop) + BOX_HEIGHT / 2
        middle = (x1 + x2) / 2
        return f'<path d="M{x1:g} {y1:g} C{middle:g} {y1:g} {middle:g} {y2:g} {x2:g} {y2:g}"/>'
    x = left(start) + BOX_WIDTH / 2
    return f'<path d="M{x:g} {top(start) + BOX_HEIGHT:g} L{x:g} {top(stop):g}"/>'


def main() -> None:
    """Write all pictures."""
    for name, picture in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(picture), "utf-8")


if __name__ == "__main__":
    main()
