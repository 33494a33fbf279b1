"""Long texts become overlapping passages that fit the encoder's window."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from retriever.documents import Document
from retriever.errors import ConfigError
from retriever.settings import check_settings, setting

if TYPE_CHECKING:
    from retriever.encoders.encoder import Encoder

# Characters of a long text that are split into passages at once.
BLOCK = 2**18

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

    on_long: Literal["split", "truncate"] = setting("split", "Treatment of long texts.")
    overlap: int = setting(48, "Maximum number of word pieces of an overlap.", low=0)

    def __post_init__(self) -> None:
        check_settings(self)


# A sentence ends at closing punctuation before white space, at a full-width stop, or at a line
# break that starts a new paragraph or list item.
_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*\s+|[。！？]+|\n\s*\n|\n(?=\s*[-*#>])")
_WORD_START = re.compile(r"(?<=\s)\S")


def passage_text(document: Document, span: tuple[int, int] | None) -> str:
    """What is encoded and analyzed for a passage: the title, if any, before its characters."""
    text = document.text if span is None else document.text[span[0] : span[1]]
    return f"{document.title} {text}" if document.title else text


def cut_document(
    document: Document, encoder: Encoder, settings: PassageSettings
) -> Iterator[tuple[list[tuple[int, int]], list[Any], bool]]:
    """Spans of some passages of a document, their word pieces, and whether anything was cut off.

    Its text is read in blocks, of which one is in memory; the passages are those of the whole.
    """
    window, text = encoder.spec.max_length, document.text
    around = len(encoder.tokenize([passage_text(document, (0, 0))])[0])
    # A title that fills the window would leave no room for text: it gets at most half.
    budget = max(window - around, window // 2)
    start: int | None = 0
    size, covered = BLOCK, 0
    while start is not None:
        block = text[start : _block_end(text, start, size)]
        is_last = start + len(block) == len(text)
        offsets = encoder.piece_offsets(block)
        while True:
            overlap = min(settings.overlap, budget // 2)
            inside = split_passages(block, offsets, budget, overlap, max(covered - start, 0))
            spans = [(start + first, start + stop) for first, stop in inside]
            # Where the last passage of a block ends depends on what follows.
            following = None if is_last else spans.pop()[0]
            truncated = settings.on_long == "truncate" and (len(spans) > 1 or not is_last)
            texts = [passage_text(document, span) for span in spans[: 1 if truncated else None]]
            rows = encoder.tokenize(texts)
            excess = max(map(len, rows), default=0) - window
            # The pieces of a passage can differ slightly from those of its span in the block.
            if excess <= 0 or budget - excess < window // 4:
                break
            budget -= excess
        if not spans:
            size *= 2
            continue
        cut = [i for i, row in enumerate(rows) if len(row) > window]
        for i, row in zip(cut, encoder.truncate([texts[i] for i in cut]), strict=True):
            rows[i] = row
        yield spans[: len(rows)], rows, truncated or bool(cut)
        start, covered = None if truncated else following, spans[-1][1]


def _block_end(text: str, start: int, size: int) -> int:
    """Where a block of a text ends that begins at `start`: at white space, if there is any."""
    stop = start + size
    if stop >= len(text):
        return len(text)
    space = max(text.rfind(" ", start + 1, stop), text.rfind("\n", start + 1, stop))
    return stop if space < 0 else space


def split_passages(
    text: str, offsets: Sequence[tuple[int, int]], budget: int, overlap: int, covered: int = 0
) -> list[tuple[int, int]]:
    """Cut a text into passages of at most `budget` pieces; all begin and end after the one before.

    A passage ends at the last sentence end that fits, else at a word, else at a piece. The next one
    begins with the whole sentences found in the last `overlap` pieces, or, where a sentence was
    cut, about `overlap` pieces back at a word. An earlier passage holds the first `covered`
    characters.
    """
    if len(offsets) <= budget:
        return [(0, len(text))]
    starts = [start for start, _ in offsets]
    sentences = _pieces_at(starts, (match.end() for match in _SENTENCE_END.finditer(text)))
    words = _pieces_at(starts, (match.start() for match in _WORD_START.finditer(text)))
    spans: list[tuple[int, int]] = []
    first, stop = 0, bisect_left(starts, covered)
    while True:
        limit = first + budget
        if limit >= len(offsets):
            spans.append((starts[first] if spans else 0, len(text)))
            return spans
        # An end within the overlap would make a passage with nothing new.
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
    """What to do with long texts in an existing index, which was not made with the other way."""
    if wanted in (None, "error", stored.on_long):
        return wanted or stored.on_long
    raise ConfigError(
        f"--on-long {wanted}: this index was made with {stored.on_long}; mixing the two would "
        "make its scores depend on history: use --recreate to change it"
    )
