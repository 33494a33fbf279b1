"""Layout of a PDF's pages: headers and footers that run through the document."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

# Pages from which on a line can be seen to repeat.
_LEAST_PAGES = 4
# Lines at either edge of a page that may be a header or a footer.
_EDGE_LINES = 2
# Characters of the longest header or footer.
_LONGEST_LINE = 200
_NUMBER = re.compile(r"\d+")


class _EdgeLine(NamedTuple):
    """A line at an edge of a page: its words without digits and case, and its numbers."""

    page: int
    position: int
    words: str
    numbers: tuple[int, ...]


def remove_running_lines(texts: Sequence[str]) -> list[str]:
    """Return the texts of pages with each running header and footer only where it is first.

    Such a line is one of the first two or last two lines of more than half of the pages, compared
    without digits and case. Its numbers are the same on those pages, or count them. Other numbers
    are content, such as rows of a table. An inner line is removed only together with the outer one.
    """
    if len(texts) < _LEAST_PAGES:
        return list(texts)
    edges = [_edge_lines(page, text.split("\n")) for page, text in enumerate(texts)]
    running = _running_lines(edges, len(texts) // 2)
    return [_remove_lines(text, page, running) for text, page in zip(texts, edges, strict=True)]


def _edge_lines(page: int, lines: Sequence[str]) -> tuple[list[_EdgeLine], list[_EdgeLine]]:
    """Return the lines at the top and at the bottom of a page, each from its edge inwards."""
    positions = [position for position, line in enumerate(lines) if line.strip()]
    middle = (len(positions) + 1) // 2
    top = positions[:middle][:_EDGE_LINES]
    bottom = positions[middle:][::-1][:_EDGE_LINES]
    return _short_lines(page, top, lines), _short_lines(page, bottom, lines)


def _short_lines(page: int, positions: Sequence[int], lines: Sequence[str]) -> list[_EdgeLine]:
    """Return the lines at these positions up to the first that is too long for a header."""
    edge = []
    for position in positions:
        line = lines[position]
        if len(line) > _LONGEST_LINE:
            break
        words = " ".join(_NUMBER.sub("0", line).casefold().split())
        edge.append(_EdgeLine(page, position, words, tuple(map(int, _NUMBER.findall(line)))))
    return edge


def _running_lines(
    edges: Sequence[tuple[list[_EdgeLine], list[_EdgeLine]]], half: int
) -> dict[_EdgeLine, bool]:
    """Return the running lines of all pages, and whether each is the first with its words."""
    lines_by_words: defaultdict[str, list[_EdgeLine]] = defaultdict(list)
    for top, bottom in edges:
        for line in top + bottom:
            lines_by_words[line.words].append(line)
    running: dict[_EdgeLine, bool] = {}
    for candidates in lines_by_words.values():
        lines = _consistent_lines(candidates, half)
        if len({line.page for line in lines}) > half:
            running.update((line, number == 0) for number, line in enumerate(lines))
    return running


def _consistent_lines(lines: list[_EdgeLine], half: int) -> list[_EdgeLine]:
    """Return the lines whose every number is the usual one, or counts the pages as usual."""
    for place in range(len(lines[0].numbers)):
        fixed = Counter(line.numbers[place] for line in lines)
        counted = Counter(line.numbers[place] - line.page for line in lines)
        number, repeats = fixed.most_common(1)[0]
        offset, counts = counted.most_common(1)[0]
        if max(repeats, counts) <= half:
            return []
        lines = [
            line
            for line in lines
            if line.numbers[place] == (number if repeats >= counts else line.page + offset)
        ]
    return lines


def _remove_lines(
    text: str, edges: tuple[list[_EdgeLine], list[_EdgeLine]], running: dict[_EdgeLine, bool]
) -> str:
    """Return the text of a page without the running lines at its edges that are not the first."""
    removed = set()
    for edge in edges:
        for line in edge:
            if line not in running:
                break
            if not running[line]:
                removed.add(line.position)
    if not removed:
        return text
    rest = [line for position, line in enumerate(text.split("\n")) if position not in removed]
    # A page that has nothing else stays as it is.
    return "\n".join(rest) if any(map(str.strip, rest)) else text
