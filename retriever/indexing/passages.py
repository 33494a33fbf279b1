"""Long texts become overlapping passages that fit the encoder's window."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from retriever.errors import ConfigError

OnLong = Literal["split", "truncate", "error"]


@dataclass(frozen=True, slots=True)
class PassageSettings:
    """How texts longer than the encoder's window are treated; stored with the index.

    Attributes:
        on_long: ``split`` into overlapping passages, or ``truncate`` to the first window.
        overlap: maximum number of word pieces that neighboring passages share, 0 or more.

    Raises:
        ConfigError: a value is out of range.
    """

    on_long: Literal["split", "truncate"] = "split"
    overlap: int = 48

    def __post_init__(self) -> None:
        if self.on_long not in ("split", "truncate"):
            raise ConfigError(f"on_long: expected split or truncate, found {self.on_long!r}")
        if self.overlap < 0:
            raise ConfigError(f"overlap: expected 0 or more, found {self.overlap}")


# A sentence ends at closing punctuation before white space, at a full-width stop, or at a line
# break that starts a new paragraph or list item.
_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*\s+|[。！？]+|\n\s*\n|\n(?=\s*[-*#>])")
_WORD_START = re.compile(r"(?<=\s)\S")


def split_passages(
    text: str, offsets: Sequence[tuple[int, int]], budget: int, overlap: int
) -> list[tuple[int, int]]:
    """Cut a text into passages of at most `budget` word pieces.

    A passage ends at the last sentence end that fits, else before the last word that fits, else
    after the last piece that fits; always further than the one before. The next one begins with
    the whole sentences found in the last `overlap` pieces, or, where a sentence was cut, about
    `overlap` pieces back at a word.

    Args:
        text: the text.
        offsets: (start, stop) character offsets of its word pieces, ascending.
        budget: at least 1.
        overlap: at least 0, less than `budget`.

    Returns:
        (start, stop) character offsets, ascending. Together they cover every word piece; the
        first starts at 0, the last stops at the end of the text. One passage if all pieces fit.
    """
    if len(offsets) <= budget:
        return [(0, len(text))]
    starts = [start for start, _ in offsets]
    sentences = _pieces_at(starts, (match.end() for match in _SENTENCE_END.finditer(text)))
    words = _pieces_at(starts, (match.start() for match in _WORD_START.finditer(text)))
    spans: list[tuple[int, int]] = []
    first = stop = 0
    while True:
        limit = first + budget
        if limit >= len(offsets):
            spans.append((starts[first] if spans else 0, len(text)))
            return spans
        # An end that the overlap reaches already would make a passage of nothing new.
        at_sentence = _last_in(sentences, stop + 1, limit)
        stop = at_sentence or _last_in(words, stop + 1, limit) or limit
        spans.append((starts[first] if spans else 0, offsets[stop - 1][1]))
        choices = sentences if at_sentence else words
        first = _first_in(choices, max(first + 1, stop - overlap), stop) or stop


def _pieces_at(starts: Sequence[int], boundaries: Iterable[int]) -> list[int]:
    """Index of the first piece at or after each boundary; ascending, distinct."""
    found = {bisect_left(starts, boundary) for boundary in boundaries}
    return sorted(found - {0, len(starts)})


def _last_in(choices: Sequence[int], low: int, high: int) -> int | None:
    """The greatest choice in [low, high]."""
    index = bisect_right(choices, high) - 1
    return choices[index] if index >= 0 and choices[index] >= low else None


def _first_in(choices: Sequence[int], low: int, high: int) -> int | None:
    """The least choice in [low, high]."""
    index = bisect_left(choices, low)
    return choices[index] if index < len(choices) and choices[index] <= high else None


def check_on_long(wanted: OnLong | None, stored: PassageSettings) -> OnLong:
    """What to do with long texts in an existing index.

    Raises:
        ConfigError: the index was made with the other of split and truncate.
    """
    if wanted in (None, "error", stored.on_long):
        return wanted or stored.on_long
    raise ConfigError(
        f"--on-long {wanted}: this index was made with {stored.on_long}; mixing the two would "
        "make its scores depend on history: use --recreate to change it"
    )
