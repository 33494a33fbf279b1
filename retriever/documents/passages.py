"""The division of long texts into overlapping passages that fit the encoder's window."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import pairwise, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from retriever.documents.document import Document
from retriever.documents.outline import MarkKind, Outline, heading_path
from retriever.errors import ConfigError
from retriever.settings import Checked, setting

if TYPE_CHECKING:
    from retriever.encoders.encoder import Encoder

# Characters of a long text that are divided into passages at once.
BLOCK = 2**18

OnLong = Literal["split", "truncate", "error"]
Context = Literal["title", "headings", "none"]
# Values of settings that an index or shards of an earlier release do not store.
EARLIER: dict[str, Any] = {
    "context": "title",
    "structure": False,
    "tables": False,
    "labels": False,
    "lists": False,
}
_WORD_START = re.compile(r"(?<=\s)\S")
_WORD = re.compile(r"\w")
_LINE_START = re.compile(r"(?<=\n)")
_LINE_END = re.compile(r"\n")
# Blank lines, and the white space at the beginning of the next line. Possessive, since a text may
# have a hundred thousand of them.
_BLANK_LINES = re.compile(r"\n(?:[ \t\r]*+\n)++([ \t]*+)")
_FENCE = re.compile(
    r"^ {0,3}(`{3,})[^`\n]*\n.*?(?:^ {0,3}\1`*[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)
# A heading in a text, perhaps with a line of punctuation above and below it, and the white space
# that follows.
_HEADING = re.compile(r"(?:([^\w\s])\1{2,}[ \t]*\n)?[^\n]*(?:\n([^\w\s])\2{2,}[ \t]*(?=\n|\Z))?\s*")
# Maximum number of parts of a word in a label, and number of digits from which on it is left out.
# Such words are hashes and numbers.
_MOST_PARTS = 8
_MANY_DIGITS = 5
# The end of a paragraph with a colon, perhaps in emphasis, and the text below it.
_INTRODUCTION = re.compile(r"""[:：][*_"'”’)\]]{0,3}[ \t\r]*+\n\s*+(?=\S)""")
# The sign or number of a list's item: "-", "**", "•", "3.", "(b)", "#.", r"\item".
_ITEM = re.compile(
    r"(?:[*]{1,6}|[.]{1,6}|[-+•‣◦▪●○■□–—·]|#[.]|\\item|[(]?(?:[0-9]{1,3}|[A-Za-z]|[ivx]{1,5})[.)])"
    r"[ \t]+(?=\S)"
)
# The parts of a name, in which A stands for capital letters, a for others, and 0 for digits.
_PARTS = re.compile("A+(?!a)|A?a+|0+")
# Maximum length in characters of a heading, and of the first row of a table, before a passage.
_LONGEST_HEADING = 100
_LONGEST_ROW = 200
# Lines with bars between cells, at least three, and the signs of a line between header and rows.
_TABLE_ROWS = re.compile(r"(?:^[^\n|]*+\|[^\n]*+(?:\n|\Z)){3,}", re.MULTILINE)
_RULE_SIGNS = frozenset("|-:+> \t\r")
_BREAKING_MARKS: tuple[MarkKind, ...] = ("heading", "message", "page")
# Rank of sentences among the ends of passages.
_SENTENCE_RANK = 3


@dataclass(frozen=True, slots=True)
class PassageSettings(Checked):
    """Settings for texts longer than the encoder's window; stored with the index.

    Attributes:
        on_long: ``split`` into overlapping passages, or ``truncate`` to the first window.
        overlap: maximum number of word pieces that neighboring passages share, 0 or more.
        context: text before a passage for the encoder and BM25: the ``title`` of its document, the
            title and the ``headings`` above the passage, or ``none``.
        structure: whether passages of documents with an outline follow it; off in an index of an
            earlier release.
        tables: whether the context ``headings`` has the first row of a table within which a passage
            begins; off in an index of an earlier release.
        labels: whether names of files and keywords are read, unless `context` is ``none``; off in
            an index of an earlier release.
        lists: whether a list stays with the paragraph that introduces it; off in an index of an
            earlier release.

    Raises:
        ConfigError: a value is out of range.
    """

    on_long: Literal["split", "truncate"] = setting(
        "split",
        "A text beyond the encoder's window: split into passages, or cut.",
        section="Index",
    )
    overlap: int = setting(48, "Maximum number of tokens that neighboring passages share.", low=0)
    context: Context = setting(
        "headings",
        "Text that the encoder and BM25 read before each passage: its title, its title and "
        "headings, or nothing.",
        section="Index",
    )
    structure: bool = field(default=True, compare=False)
    tables: bool = field(default=True, compare=False)
    labels: bool = field(default=True, compare=False)
    lists: bool = field(default=True, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return the values as JSON, as the release that chose them wrote them; see `EARLIER`."""
        return {
            name: value for name, value in asdict(self).items() if value != EARLIER.get(name, ...)
        }


def passage_text(
    document: Document,
    span: tuple[int, int] | None,
    context: Context = "title",
    *,
    tables: bool = False,
    names: bool = True,
) -> str:
    """Return the text that is encoded for a passage: its context, if any, before its characters.

    The name of the file replaces a missing title. Without `names`, it does not: the analyzer adds
    the labels by itself.
    """
    start, stop = (0, len(document.text)) if span is None else span
    text = document.text[start:stop]
    if context == "none" and not document.text.isspace() and document.text:
        return text
    before = document.title or ""
    if names and not before and document.outline:
        path, *keywords = labels_of(document.outline, context) or [""]
        before = _title_words([path.rpartition("/")[2], *keywords])[:_LONGEST_HEADING]
    if context == "headings" and (document.outline or tables):
        start += len(text) - len(text.lstrip())
        above = _headings_above(document, start) if document.outline else []
        header = _header_above(document, start) if tables else []
        before = " ".join([before, *above, *header]).lstrip()
    return f"{before} {text}" if before else text


def label_text(outline: Outline, context: Context = "title") -> str:
    """Return the text of a document's labels that the analyzer reads with each passage."""
    labels = labels_of(outline, context)
    return " ".join([*labels, *_label_words(labels)])


def labels_of(outline: Outline, context: Context) -> list[str]:
    """Return the labels that are read with the passages of a document."""
    first = takewhile(lambda mark: mark.offset == 0, outline)
    return [mark.label for mark in first if mark.kind == "label" and context != "none"]


def _label_words(labels: Iterable[str]) -> Iterator[str]:
    """Yield the words of labels, divided at signs, at capital letters, and at numbers."""
    for label in labels:
        spaced = "".join(
            character if unicodedata.category(character)[0] in "LMN" else " " for character in label
        )
        for word in spaced.split():
            kinds = "".join(
                "0" if character.isdigit() else "A" if character.isupper() else "a"
                for character in word
            )
            spans = [match.span() for match in _PARTS.finditer(kinds)]
            # The parts of "e5", "iPhone" or a hash are no words.
            is_whole = any(stop - start < 2 for start, stop in spans) or len(spans) > _MOST_PARTS
            yield from [word] if is_whole else (word[start:stop] for start, stop in spans)


def _title_words(labels: Iterable[str]) -> str:
    """Return the words of labels for the encoder, without hashes, long numbers and repetitions."""
    words = [word for word in _label_words(labels) if len(re.findall("[0-9]", word)) < _MANY_DIGITS]
    return " ".join(dict.fromkeys(words))


def _headings_above(document: Document, start: int) -> list[str]:
    """Return the headings above a passage, without the title and one at its beginning."""
    path = heading_path(document.outline, start)
    # Signs before the first word of a heading, such as number signs, may not belong to a passage.
    above = [mark for mark in path if _WORD.search(document.text, mark.offset, start)]
    labels = [mark.label[:_LONGEST_HEADING] for mark in above]
    return labels[1:] if labels[:1] == [document.title] else labels


class _Table(NamedTuple):
    """The rows of a table in a text, and its first row without bars at the ends."""

    start: int
    # Offset of the first row below the header.
    body: int
    stop: int
    header: str


def _header_above(document: Document, start: int) -> list[str]:
    """Return the first row of the table within which a passage begins; empty if there is none."""
    tables = _document_tables(document)
    number = bisect_right(tables, start, key=attrgetter("body")) - 1
    is_within = number >= 0 and start < tables[number].stop
    return [tables[number].header] if is_within and tables[number].header else []


def _document_tables(document: Document) -> Sequence[_Table]:
    # In office files and web pages, rows of tables have bars between cells only. In texts with
    # lines, such rows may be code.
    has_lines = any(mark.kind == "line" for mark in document.outline)
    return _find_tables(document.text, bool(document.outline) and not has_lines)


# Each passage of a document needs the tables.
@lru_cache(maxsize=1)
def _find_tables(text: str, are_bars_enough: bool) -> Sequence[_Table]:
    """Return the tables of a text: rows with bars, below a header and a line of hyphens.

    If bars are enough, a table may also begin with two rows of equally many cells.
    """
    if "|" not in text:
        return ()
    tables = []
    for match in _TABLE_ROWS.finditer(text):
        lines = match[0].splitlines(keepends=True)
        rule = next((n for n in range(1, len(lines)) if _is_rule(lines[n])), 0)
        if not rule and not (are_bars_enough and lines[0].count(" | ") == lines[1].count(" | ")):
            continue
        first = max(rule - 1, 0)
        start = match.start() + sum(map(len, lines[:first]))
        body = start + sum(map(len, lines[first : rule + 1]))
        cells = (" ".join(cell.split()) for cell in lines[first].strip(" \t\r\n>").split("|"))
        header = " | ".join(filter(None, cells))[:_LONGEST_ROW]
        tables.append(_Table(start, body, match.end(), header))
    return tables


def _is_rule(line: str) -> bool:
    signs = set(line.rstrip("\n"))
    return signs <= _RULE_SIGNS and {"-", "|"} <= signs


class _Structure(NamedTuple):
    """Offsets at which passages of a text should end; all ascending."""

    # Beginnings of headings and messages.
    sections: list[int]
    # Beginnings of sections, pages, fences, and unindented text after a blank line.
    paragraphs: list[int]
    # Beginnings of paragraphs and of any other text after a blank line.
    blocks: list[int]
    # Beginning and end of each heading, of each header of a table, and of what joins a list to the
    # paragraph above it; no passage ends in between.
    headings: list[tuple[int, int]]
    # Beginning and end of each table.
    tables: list[tuple[int, int]]

    @classmethod
    def from_document(cls, document: Document, *, lists: bool = True) -> Self:
        """Return the structure of a document with an outline."""
        text = document.text
        fences = [match.span() for match in _FENCE.finditer(text)]
        paragraphs = [place for fence in fences for place in fence]
        blocks: list[int] = []
        for place, indentation in _after_blank_lines(text):
            fence = bisect_right(fences, (place, len(text)))
            fenced = fence > 0 and place < fences[fence - 1][1]
            (blocks if indentation or fenced else paragraphs).append(place)
        marks = {
            kind: [mark.offset for mark in document.outline if mark.kind == kind]
            for kind in _BREAKING_MARKS
        }
        sections = sorted(marks["heading"] + marks["message"])
        headings = [
            (place, match.end())
            for place in marks["heading"]
            if (match := _HEADING.match(text, place)) is not None
        ]
        tables = _document_tables(document)
        headings += [(table.start, table.body) for table in tables]
        headings = sorted([*headings, *(_list_beginnings(document) if lists else ())])
        paragraphs = sorted([*paragraphs, *sections, *marks["page"]])
        blocks = sorted([*blocks, *paragraphs])
        extents = [(table.start, table.stop) for table in tables]
        return cls(sections, paragraphs, blocks, headings, extents)

    def slice(self, start: int, stop: int) -> Self:
        """Return the structure from `start` to `stop`, with offsets counted from `start`."""

        def slice_offsets(places: list[int]) -> list[int]:
            inside = places[bisect_left(places, start) : bisect_left(places, stop)]
            return [place - start for place in inside]

        first = bisect_left(self.headings, (start,))
        last = bisect_left(self.headings, (stop,))
        headings = [(begin - start, end - start) for begin, end in self.headings[first:last]]
        tables = [
            (max(begin - start, 0), min(end, stop) - start)
            for begin, end in self.tables
            if begin < stop and end > start
        ]
        return type(self)(
            slice_offsets(self.sections),
            slice_offsets(self.paragraphs),
            slice_offsets(self.blocks),
            headings,
            tables,
        )


def _after_blank_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the beginning and the indentation of each line that follows blank ones."""
    for match in _BLANK_LINES.finditer(text):
        if match.end() < len(text) and not text[match.end()].isspace():
            yield match.start(1), match[1]


def _list_beginnings(document: Document) -> Iterator[tuple[int, int]]:
    """Yield the colon of each paragraph above a list, and the first word of the list."""
    text = document.text
    # Only texts with lines have signs before the items of their lists.
    has_signs = any(mark.kind == "line" for mark in document.outline)
    for match in _INTRODUCTION.finditer(text):
        item = _ITEM.match(text, match.end())
        if item is not None or not has_signs:
            yield match.start(), match.end() if item is None else item.end()


def cut_document(
    document: Document, encoder: Encoder, settings: PassageSettings
) -> Iterator[tuple[list[tuple[int, int]], list[Any], bool]]:
    """Yield for each block of a text the spans of passages, their word pieces, and truncation.

    Spans are (start, stop) in characters of the text. The last value says whether anything was cut
    off.
    """
    window = encoder.spec.max_length
    text = document.text
    context = settings.context
    is_structured = settings.structure and document.outline
    structure = _Structure.from_document(document, lists=settings.lists) if is_structured else None
    budget = _text_budget(document, encoder, context)
    start: int | None = 0
    size = BLOCK
    covered = 0
    while start is not None:
        block = text[start : _block_end(text, start, size)]
        is_last = start + len(block) == len(text)
        offsets = encoder.piece_offsets(block)
        here = None if structure is None else structure.slice(start, start + len(block))
        while True:
            overlap = min(settings.overlap, budget // 2)
            inside = split_passages(block, offsets, budget, overlap, max(covered - start, 0), here)
            spans = [(start + first, start + stop) for first, stop in inside]
            # The end of a block's last passage depends on the following text.
            following = None if is_last else spans.pop()[0]
            truncated = settings.on_long == "truncate" and (len(spans) > 1 or not is_last)
            texts = [
                passage_text(document, span, context, tables=settings.tables)
                for span in spans[: 1 if truncated else None]
            ]
            rows = encoder.tokenize(texts)
            excess = max(map(len, rows), default=0) - window
            # A passage can have slightly more pieces than its span in the block.
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
        start = None if truncated else following
        covered = spans[-1][1]


def _text_budget(document: Document, encoder: Encoder, context: Context) -> int:
    """Return the number of word pieces that the longest context leaves for text, at least half."""
    offsets = [0, *(mark.offset + 1 for mark in document.outline if mark.kind == "heading")]
    contexts = (passage_text(document, (offset, offset), context) for offset in offsets)
    context_length = len(encoder.tokenize([max(contexts, key=len)])[0])
    window = encoder.spec.max_length
    return max(window - context_length, window // 2)


def _block_end(text: str, start: int, size: int) -> int:
    """Return the end of the block of a text that begins at `start`, at white space if possible."""
    stop = start + size
    if stop >= len(text):
        return len(text)
    space = max(text.rfind(" ", start + 1, stop), text.rfind("\n", start + 1, stop))
    return stop if space < 0 else space


def split_passages(
    text: str,
    offsets: Sequence[tuple[int, int]],
    budget: int,
    overlap: int,
    covered: int = 0,
    structure: _Structure | None = None,
) -> list[tuple[int, int]]:
    """Split a text into spans of at most `budget` pieces.

    The first `covered` characters are in passages already.
    """
    if len(offsets) <= budget:
        return [(0, len(text))]
    # Queries load this module, but split nothing.
    from retriever.documents.sentences import sentence_ends

    starts = [start for start, _ in offsets]
    ends_of_sentences: Iterable[int] = sentence_ends(text)
    if structure is not None and structure.tables:
        ends_of_sentences = _between_rows(text, ends_of_sentences, structure.tables)
    sentences = _pieces_at(starts, ends_of_sentences)
    words = _pieces_at(starts, (match.start() for match in _WORD_START.finditer(text)))
    sections: list[int] = []
    # Ends of passages, best first, and the share of the budget in which they are not used.
    ends = [(sentences, 0.0), (words, 0.0)]
    if structure is not None:
        ends = _structured_ends(text, starts, structure, sentences, words)
        sections = ends[0][0]
    spans: list[tuple[int, int]] = []
    first = 0
    stop = bisect_left(starts, covered)
    while True:
        limit = first + budget
        if limit >= len(offsets):
            spans.append((starts[first] if spans else 0, len(text)))
            return spans
        # A sentence (with a structure rather a section, paragraph or block), else a word, else a
        # piece. An end within the overlap would make a passage with no new text.
        end = None
        choices = words
        for choices, share in ends:
            if end := _last_in(choices, max(stop + 1, first + int(share * budget)), limit):
                break
        stop = end or limit
        spans.append((starts[first] if spans else 0, offsets[stop - 1][1]))
        if structure is not None and choices is not ends[-1][0]:
            choices = ends[_SENTENCE_RANK][0]
        first = _first_in(choices, max(first + 1, stop - overlap), stop) or stop
        first = _last_in(sections, first, stop) or first


def _between_rows(
    text: str, places: Iterable[int], tables: Sequence[tuple[int, int]]
) -> Iterator[int]:
    """Yield the places outside tables, and the beginnings and ends of rows of tables."""
    for place in places:
        number = bisect_right(tables, (place, len(text))) - 1
        if number < 0 or place >= tables[number][1]:
            yield place
    for start, stop in tables:
        yield start
        yield from (match.end() for match in _LINE_END.finditer(text, start, stop))


def _structured_ends(
    text: str,
    starts: Sequence[int],
    structure: _Structure,
    sentences: Sequence[int],
    words: Sequence[int],
) -> list[tuple[list[int], float]]:
    """Return the pieces before which a passage may end, ranked; the first begin sections."""
    unbreakable = {
        piece
        for begin, end in structure.headings
        for piece in range(bisect_left(starts, begin) + 1, bisect_left(starts, end) + 1)
    }
    lines = _pieces_at(starts, (match.start() for match in _LINE_START.finditer(text)))
    ranked: list[tuple[list[int], float]] = []
    for pieces, share in (
        (_pieces_at(starts, structure.sections), 0.25),
        (_pieces_at(starts, structure.paragraphs), 0.5),
        (_pieces_at(starts, structure.blocks), 0.5),
        (sentences, 0.25),
        (lines, 0.0),
        (words, 0.0),
    ):
        above = ranked[-1][0] if ranked else []
        ranked.append((sorted({*above, *pieces} - unbreakable), share))
    return ranked


def _pieces_at(starts: Sequence[int], boundaries: Iterable[int]) -> list[int]:
    """Return the index of the first piece at or after each boundary; ascending, distinct."""
    pieces = {bisect_left(starts, boundary) for boundary in boundaries}
    return sorted(pieces - {0, len(starts)})


def _last_in(choices: Sequence[int], low: int, high: int) -> int | None:
    """Return the greatest choice in [low, high]."""
    index = bisect_right(choices, high) - 1
    return choices[index] if index >= 0 and choices[index] >= low else None


def _first_in(choices: Sequence[int], low: int, high: int) -> int | None:
    """Return the least choice in [low, high]."""
    index = bisect_left(choices, low)
    return choices[index] if index < len(choices) and choices[index] <= high else None


def extract_spans(text: str, *spans: tuple[int, int]) -> tuple[str, str]:
    """Return the text of ascending spans, joined by spaces, and the rest of the text."""
    ends = [0, *(place for span in spans for place in span), len(text)]
    parts = [text[start:stop] for start, stop in pairwise(ends)]
    return " ".join(parts[1::2]), "".join(parts[::2])


def check_on_long(requested: OnLong | None, stored: PassageSettings) -> OnLong:
    """Return the treatment of long texts for an existing index; raise ConfigError if it differs."""
    if requested in (None, "error", stored.on_long):
        return requested or stored.on_long
    raise ConfigError(
        f"--on-long {requested}: this index was made with {stored.on_long}; use --recreate to "
        "change it"
    )
