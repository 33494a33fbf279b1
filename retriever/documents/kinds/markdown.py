"""Headings of Markdown according to CommonMark, with the labels that a reader sees.

Only blocks that separate headings are parsed: containers, fences, HTML and paragraphs. Headings in
lists and quotations begin no section, so they are left out.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from retriever.documents.kinds import one_line
from retriever.documents.outline import Mark

# Maximum depth of lists and quotations; deeper ones are text.
_DEEPEST = 100
# Marks a quotation among the columns of list items.
_QUOTATION = 0
# Maximum length in characters of a heading.
_LONGEST_HEADING = 2000

_QUOTE = re.compile(r" {0,3}> ?")
_ATX = re.compile(r"(#{1,6})(?: +(.*))?")
_FENCE = re.compile(r"(`{3,})[^`]*|(~{3,}).*")
_UNDERLINE = re.compile(r"=+|-+")
_RULE = re.compile(r"(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,}")
_ITEM = re.compile(r"(?:[-+*]|([0-9]{1,9})[.)])(?= |$)")
# Beginnings and ends of blocks of HTML; other blocks of HTML end at a blank line.
_RAW = "(?:script|pre|style|textarea)"
_HTML_ENDS = tuple(
    (re.compile(begin, re.I), re.compile(end, re.I))
    for begin, end in (
        (rf"<{_RAW}(?:[ >]|$)", f"</{_RAW}>"),
        ("<!--", "-->"),
        (r"<\?", r"\?>"),
        ("<![a-z]", ">"),
        (r"<!\[CDATA\[", r"\]\]>"),
    )
)
_HTML_BLOCK = re.compile(
    "</?(?:address|article|aside|base(?:font)?|blockquote|body|caption|center|col(?:group)?|dd"
    "|details|dialog|dir|div|d[lt]|fieldset|fig(?:caption|ure)|footer|form|frame(?:set)?|h[1-6]"
    "|head(?:er)?|hr|html|iframe|legend|li|link|main|menu(?:item)?|nav|noframes|ol|optgroup"
    "|option|p|param|search|section|summary|table|tbody|t[dhr]|tfoot|thead|title|track|ul)"
    r"(?:[ >]|/>|$)",
    re.I,
)
_ATTRIBUTE = r"""\s+[a-zA-Z_:][\w.:-]*(?:\s*=\s*(?:[^\s"'=<>`]+|'[^']*'|"[^"]*"))?"""
_TAG = rf"<(?:[a-zA-Z][a-zA-Z0-9-]*(?:{_ATTRIBUTE})*\s*/?|/[a-zA-Z][a-zA-Z0-9-]*\s*)>"
_HTML_TAG = re.compile(_TAG)
_HTML_HEADING = re.compile(r"<!--|-->|<(/?)h([1-6])\b[^<>]*+>", re.I)
# Definitions of links above a paragraph and anywhere, and the line below the header of a table.
_DEFINITIONS = re.compile(r"(?: {0,3}\[[^\[\]\n]+\]:[ \t]*\S+[^\n]*\n)+")
_DEFINITION = re.compile(r"^ {0,3}\[([^\[\]\n]{1,999})\]:", re.M)
_DELIMITERS = re.compile(r"^[ \t]*\|?(?:[ \t]*:?-+:?[ \t]*\|)+(?:[ \t]*:?-+:?)?[ \t]*$", re.M)

# Parts of a label: literal characters, and tags.
_LITERAL = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?<!`)(?P<ticks>`+)(?!`)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)(?:\{[.#:=][^{}]*\})?"
    r"|<(?P<address>[a-zA-Z][a-zA-Z0-9+.-]{1,31}:[^\s<>]*|[\w.+-]+@[\w.-]+)>"
    rf"|(?P<tag><!--.*?-->|{_TAG})"
    r"|(?P<entity>&(?:\#[0-9]{1,7}|\#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});)"
)
_SIGNS = "".join(map(chr, range(0x21, 0x7F)))
# Replacements of literal signs while markup is removed; no text has these characters.
_PLAIN_SIGNS = {ord(sign): 0x10F700 + ord(sign) for sign in _SIGNS if not sign.isalnum()}
_SIGNS_AGAIN = {plain: sign for sign, plain in _PLAIN_SIGNS.items()}
_TARGET = (
    r"""\(\s*(?:<[^<>]*>|[^\s()]*+(?:\([^\s()]*+\)[^\s()]*+)*+)"""
    r"""(?:\s+(?:"[^"]*"|'[^']*'|\([^()]*\)))?\s*\)"""
)
_NESTED = r"\[((?:[^\[\]]|\[[^\[\]]*\])*+)\]"
_EMBEDDED = re.compile(r"!\[\[[^\[\]|]*(?:\|(?:[0-9x]+|([^\[\]]*)))?\]\]")
_WIKI_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]]*)\]\]")
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]+\]")
_LINK = re.compile(rf"!?{_NESTED}{_TARGET}")
_REFERENCE = re.compile(rf"!?{_NESTED}(?:\[([^\[\]]*)\])?")
_FIELD = r"""(?:[#.][^\s{}]+|[\w:-]+=(?:"[^"]*"|'[^']*'|[^\s{}"']+)|-)"""
_FIELDS = rf"\{{:? ?{_FIELD}(?: {_FIELD})* ?\}}"
# Attributes of a span, of a link or of the heading.
_SPAN = re.compile(rf"{_NESTED}{_FIELDS}")
_ATTRIBUTES = re.compile(rf"(?<=\)){_FIELDS}| ?{_FIELDS}$")
_EMPHASIS = (
    re.compile(r"(?:(?<!\w)|(?=\*+\w))(\*{1,3})(?![\s*])([^*]*[^\s*])\1"),
    re.compile(r"(?<!\w)(_{1,3})(?![\s_])((?:[^_]|(?<=\w)_+(?=\w))*?[^\s_])\1(?!\w)"),
    re.compile(r"(~~)(?![\s~])([^~]*[^\s~])~~"),
    re.compile(r"(?<![=\w])(==)(?![\s=])([^=]*[^\s=])==(?![=\w])"),
)


class Heading(NamedTuple):
    """A heading, and the offset of the line after it; -1 if its last line continues."""

    mark: Mark
    stop: int


def markdown_headings(text: str) -> Iterator[Mark]:
    """Return the headings of a text outside lists, quotations, code and comments."""
    return (heading.mark for heading in headings(text))


def headings(text: str) -> Iterator[Heading]:
    """Yield the headings of a text, each with its end."""
    blocks = _Blocks(text)
    offset = 0
    for line in text.split("\n"):
        yield from blocks.read(line, offset)
        offset += len(line) + 1
    yield from blocks.close(0, len(text))


class _Blocks:
    """The open blocks at a line of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        # Columns of the content of each list item, counted from its marker, and `_QUOTATION`.
        self._containers: list[int] = []
        # The innermost block: "paragraph", "fence", "html", or "" for another.
        self._leaf = ""
        self._start = 0
        self._end: re.Pattern[str] | None = None
        self._is_empty_item = False

        @cache
        def definitions() -> frozenset[str]:
            return frozenset(map(_normalize_label, _DEFINITION.findall(text)))

        self._definitions = definitions

    def read(self, line: str, offset: int) -> Iterator[Heading]:
        """Read a line that begins at `offset`; it may end a heading."""
        rest = line.expandtabs(4).rstrip()
        depth, rest = self._match_containers(rest)
        if self._leaf in ("fence", "html"):
            if depth == len(self._containers):
                is_end = (self._end.search(rest) is not None) if self._end else not rest
                if is_end:
                    yield from self.close(depth, offset + len(line))
                return
            yield from self.close(depth, offset)
        yield from self._read_blocks(rest, depth, offset, offset + len(line) + 1)

    def _read_blocks(self, rest: str, depth: int, offset: int, stop: int) -> Iterator[Heading]:
        """Read the blocks that a line from `offset` to `stop` begins.

        The line continues the first `depth` containers.
        """
        is_inside = depth == len(self._containers)
        is_paragraph = self._leaf == "paragraph"
        while True:
            body = rest.lstrip(" ")
            indentation = len(rest) - len(body)
            if not body or (indentation > 3 and is_paragraph):
                break
            if indentation > 3:
                self._open(depth, "")
                return
            interrupts = is_paragraph and is_inside
            if interrupts and _UNDERLINE.fullmatch(body):
                yield from self._underlined_heading(1 if body[0] == "=" else 2, offset, stop)
                if not self._leaf:
                    return
                break
            if self._begins_leaf(body, depth, offset, is_paragraph):
                yield from self._read_first_line(body, offset, stop)
                return
            content = self._parse_container(body, interrupts)
            if content is None or len(self._containers) >= _DEEPEST:
                break
            self._open(depth, "")
            indent, rest = content
            self._containers.append(indent and indent + indentation)
            depth = len(self._containers)
            is_paragraph = False
            is_inside = True
            self._is_empty_item = bool(indent and not rest)
        if not body:
            self._leaf = "" if is_paragraph else self._leaf
            self._containers = self._containers[:depth]
        elif not is_paragraph:
            self._open(depth, "paragraph", offset)

    def _read_first_line(self, body: str, offset: int, stop: int) -> Iterator[Heading]:
        """Yield the heading on the first line of a block; end HTML that ends on this line."""
        if body[0] == "#":
            yield from self._atx_heading(body, offset, stop)
        elif self._leaf == "html" and self._end and self._end.search(body):
            self._leaf = ""

    def close(self, depth: int, stop: int) -> Iterator[Heading]:
        """Close the innermost block, before `stop`, and all but the first `depth` containers."""
        leaf = self._leaf
        is_top = not self._containers
        self._open(depth, "")
        if leaf == "html" and self._end is None and is_top:
            yield from self._html_headings(self._start, stop)

    def _match_containers(self, rest: str) -> tuple[int, str]:
        """Return the number of containers that continue in a line, and the rest of the line."""
        if self._is_empty_item and not rest:
            # An item begins with at most one blank line.
            self._containers.pop()
        self._is_empty_item = False
        for depth, columns in enumerate(self._containers):
            if columns == _QUOTATION:
                match = _QUOTE.match(rest)
                if match is None:
                    return depth, rest
                rest = rest[match.end() :]
            elif rest:
                if rest[:columns].strip(" "):
                    return depth, rest
                rest = rest[columns:]
        return len(self._containers), rest

    def _open(self, depth: int, leaf: str, start: int = 0) -> None:
        """Begin a block in the first `depth` containers; the others are closed."""
        del self._containers[depth:]
        self._leaf = leaf
        self._start = start

    def _begins_leaf(self, body: str, depth: int, offset: int, is_paragraph: bool) -> bool:
        """Begin the block of a line unless it is a paragraph; return whether it was begun."""
        first = body[0]
        if first == "#" and _ATX.fullmatch(body):
            self._open(depth, "")
        elif first in "`~" and (match := _FENCE.fullmatch(body)):
            self._open(depth, "fence")
            fence = match[1] or match[2]
            self._end = re.compile(rf"^ {{0,3}}{fence}{first}*$")
        elif first == "<":
            for begin, end in _HTML_ENDS:
                if begin.match(body):
                    self._open(depth, "html", offset)
                    self._end = end
                    return True
            tag = None if is_paragraph else _HTML_TAG.fullmatch(body)
            if not _HTML_BLOCK.match(body) and tag is None:
                return False
            self._open(depth, "html", offset)
            self._end = None
        elif first in "*-_" and _RULE.fullmatch(body):
            self._open(depth, "")
        else:
            return False
        return True

    @staticmethod
    def _parse_container(body: str, interrupts: bool) -> tuple[int, str] | None:
        """Return columns and content of a quotation or list item that a line begins, or None."""
        if body[0] == ">":
            return _QUOTATION, body[1:].removeprefix(" ")
        match = _ITEM.match(body)
        if match is None:
            return None
        content = body[match.end() :]
        if interrupts and (not content or match[1] not in (None, "1")):
            return None
        spaces = len(content) - len(content.lstrip(" "))
        columns = match.end() + (spaces if content and spaces <= 4 else 1)
        return columns, body[columns:]

    def _atx_heading(self, body: str, offset: int, stop: int) -> Iterator[Heading]:
        match = _ATX.fullmatch(body)
        if match is None or self._containers:
            return
        label = match[2] or ""
        closed = label.rstrip("#")
        label = closed if not closed or closed.endswith(" ") else label
        yield from self._heading(label, len(match[1]), offset, stop)

    def _underlined_heading(self, level: int, offset: int, stop: int) -> Iterator[Heading]:
        """Yield the heading that a paragraph becomes by the line below it."""
        source = self._text[self._start : offset]
        definitions = _DEFINITIONS.match(source)
        start = definitions.end() if definitions else 0
        if not source[start:].strip():
            # Only definitions of links: the line is text or a rule.
            self._leaf = "" if level == 2 else "paragraph"
            return
        self._leaf = ""
        if not self._containers and not _DELIMITERS.search(source):
            yield from self._heading(source[start:], level, self._start + start, stop)

    def _html_headings(self, start: int, stop: int) -> Iterator[Heading]:
        """Yield the headings in a block of HTML."""
        begin: re.Match[str] | None = None
        is_comment = False
        for match in _HTML_HEADING.finditer(self._text, start, stop):
            if match[2] is None or is_comment:
                is_comment = match[0] == "<!--" or (is_comment and match[0] != "-->")
            elif not match[1]:
                begin = match
            elif begin is not None and begin[2] == match[2]:
                line_end = self._text.find("\n", match.end(), stop)
                line_end = stop if line_end < 0 else line_end
                goes_on = bool(self._text[match.end() : line_end].strip())
                yield from self._heading(
                    self._text[begin.end() : match.start()],
                    int(match[2]),
                    begin.start(),
                    -1 if goes_on else line_end + 1,
                )
                begin = None

    def _heading(self, source: str, level: int, offset: int, stop: int) -> Iterator[Heading]:
        label = visible_label(one_line(source)[:_LONGEST_HEADING], self._definitions)
        if label:
            yield Heading(Mark(offset, "heading", label, level), stop)


def visible_label(source: str, definitions: Callable[[], frozenset[str]] = frozenset) -> str:
    """Return the text of a heading in Markdown as a reader sees it, on one line.

    Args:
        source: the heading, of at most some thousand characters.
        definitions: the labels of links that the document defines elsewhere.
    """

    def literal(match: re.Match[str]) -> str:
        if match["tag"]:
            return " " if match["tag"][:3].lower() == "<br" else ""
        text = match["escaped"] or match["code"] or match["address"]
        return (text or html.unescape(match["entity"])).translate(_PLAIN_SIGNS)

    def reference(match: re.Match[str]) -> str:
        if _normalize_label(match[2] or match[1]) in definitions():
            return str(match[1])
        return match[0]

    label = _LITERAL.sub(literal, one_line(source))
    label = _ATTRIBUTES.sub("", _SPAN.sub(r"\1", label.strip()))
    label = _WIKI_LINK.sub(r"\1", _EMBEDDED.sub(r"\1", _FOOTNOTE.sub("", label)))
    # A picture may be the text of a link.
    for _ in range(2):
        label = _REFERENCE.sub(reference, _LINK.sub(r"\1", label))
    before = ""
    while before != label:
        before = label
        for emphasis in _EMPHASIS:
            label = emphasis.sub(r"\2", label)
    return one_line(label.translate(_SIGNS_AGAIN))


def _normalize_label(label: str) -> str:
    return " ".join(label.translate(_SIGNS_AGAIN).replace("`", "").casefold().split())
