"""Data within a text, such as base64 and minified code, which a mark with its length replaces."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from retriever.documents.kinds import Parsed
from retriever.documents.losses import Loss
from retriever.documents.outline import Mark, Outline, last_mark

# A run without white space. Longer ones are no words in any language that is written in ASCII.
_RUN = re.compile(r"(?<![!-~])[!-~]{2001,}+")
# Lines of base64, at least 20 of them; all but the last have 40 characters or more.
_LINES = re.compile(r"(?m)^(?:[ \t>]*+[A-Za-z0-9+/]{40,}+\r?\n){20,}+[ \t>]*+[A-Za-z0-9+/]*+={0,2}")
# Base64 has all of these; rows of letters such as DNA do not.
_SIGNS_OF_BASE64 = tuple(map(re.compile, ("[a-z]", "[A-Z]", "[0-9]")))


class _Block(NamedTuple):
    """A part of a text that is left out, and the mark in its place."""

    start: int
    stop: int
    mark: str


def without_data_blocks(parsed: Parsed) -> Parsed:
    """Replace blocks of data in a text by marks such as ``[2,345 characters left out]``."""
    blocks = list(_find_blocks(parsed.text))
    if not blocks:
        return parsed
    parts = []
    place = 0
    for block in blocks:
        parts += [parsed.text[place : block.start], block.mark]
        place = block.stop
    parts.append(parsed.text[place:])
    size = sum(block.stop - block.start for block in blocks)
    names = "block" if len(blocks) == 1 else "blocks"
    loss = Loss("data", f"{len(blocks):,} {names} of data with {size:,} characters left out")
    outline = _moved_outline(parsed.text, parsed.outline, blocks)
    losses = (*parsed.losses, loss)
    return parsed._replace(text="".join(parts), outline=outline, losses=losses)


def _find_blocks(text: str) -> Iterator[_Block]:
    """Yield the blocks of a text, ascending."""
    spans = [match.span() for match in _RUN.finditer(text)]
    spans += [match.span() for match in _LINES.finditer(text) if _is_base64(match[0])]
    stop = 0
    for start, end in sorted(spans):
        if start >= stop:
            yield _Block(start, end, f"[{end - start:,} characters left out]")
            stop = end


def _is_base64(block: str) -> bool:
    return all(sign.search(block) for sign in _SIGNS_OF_BASE64)


def _moved_outline(text: str, outline: Outline, blocks: Sequence[_Block]) -> Outline:
    """Return the marks of a text without the blocks, with the numbers of the lines after them."""
    starts = [block.start for block in blocks]
    removed = [0]
    for block in blocks:
        removed.append(removed[-1] + block.stop - block.start - len(block.mark))

    def moved(offset: int) -> int:
        number = bisect_right(starts, offset)
        if number and offset < blocks[number - 1].stop:
            # A mark within a block stands at its beginning.
            return starts[number - 1] - removed[number - 1]
        return offset - removed[number]

    marks = [mark._replace(offset=moved(mark.offset)) for mark in outline]
    for block in blocks:
        line_end = text.find("\n", block.stop)
        if "\n" in text[block.start : block.stop] and line_end >= 0:
            line = last_mark(outline, bisect_right(outline, (line_end + 1,)), "line")
            if line is not None:
                number = int(line.label) + text.count("\n", line.offset, line_end + 1)
                marks.append(Mark(moved(line_end + 1), "line", str(number)))
    return tuple(sorted(marks, key=lambda mark: mark.offset))
