"""HTML by lxml, and the main text of pages by trafilatura."""

from __future__ import annotations

import logging
import re
from copy import deepcopy
from typing import Any

from retriever.documents.decoding import browser_encoding, page_text
from retriever.documents.kinds import OutlinedText, Parsed, named, one_line
from retriever.documents.text import iso_date
from retriever.errors import SourceError

_SKIPPED = re.compile(
    "head|script|style|noscript|template|nav|svg|math|object|iframe|button|select"
)
_BLOCK = re.compile(
    "address|article|aside|blockquote|body|caption|center|d[dlt]|details|div|fieldset|figcaption|"
    "figure|footer|form|h[1-6]|header|hr|li|main|ol|p|section|summary|table|tr|ul"
)
# Which begin on a new line, where other blocks are parted by a blank one.
_LINE = re.compile("li|d[dt]|tr|caption")
_HEADING = re.compile("h[1-6]")
# trafilatura's names to those of HTML; its headings have theirs as `rend`.
_NAMES = {"list": "ul", "item": "li", "row": "tr", "cell": "td", "quote": "blockquote", "lb": "br"}
_SPACE = re.compile(r"\s+")
# The main text is looked for in pages of at most so many bytes: longer ones are books, not pages
# with menus, and take minutes. What leaves out more than a third of a page, or of its headings and
# list items, has missed its text.
_LONGEST_PAGE = 1 << 19
_LEAST_SHARE = 2 / 3
_PARTS = ("h1", "h2", "h3", "h4", "h5", "h6", "li", "dt")
_DATES = ("article:published_time", "date", "dc.date", "dcterms.created")


def read_html(content: bytes, encoding: str | None = None) -> Parsed:
    """The main text of a page: the element that says so, else what trafilatura finds.

    `encoding` is the one that the user named; without it the page says its own.
    """
    root = tree_of(page_text(content, browser_encoding(encoding) or encoding))
    if root is None:
        return Parsed("")
    titles = root.xpath("//title")
    metas = {
        str(one.get("name") or one.get("property")).lower(): one.get("content")
        for one in root.xpath("//meta[@content]")
    }
    metadata = named(
        author=metas.get("author"),
        date=next(filter(None, (iso_date(metas.get(one) or "") for one in _DATES)), ""),
        language=root.get("lang") or root.get("{http://www.w3.org/XML/1998/namespace}lang"),
    )
    title = one_line("".join(titles[0].itertext())) if titles else ""
    return _main(root, len(content)).parsed(None, metadata, title)


def tree_of(page: str) -> Any:
    """The root of a page; None where there is nothing."""
    from lxml import etree, html

    parser = html.HTMLParser(encoding="utf-8", huge_tree=True)
    try:
        root = html.document_fromstring(page.encode(errors="replace"), parser)
    except (etree.ParserError, etree.XMLSyntaxError):
        return None
    # It would leave out the rest without a word.
    if any(error.type_name == "ERR_RESOURCE_LIMIT" for error in parser.error_log):
        raise SourceError("elements within each other are more than 2,048; simplify the page")
    return root


def _main(root: Any, size: int) -> OutlinedText:
    """The text of the one element that is the main one; else trafilatura's; else of all."""
    for path in ("//main | //*[@role='main']", "//article"):
        if len(mains := root.xpath(path)) == 1:
            return written(mains[0])
    everything = written(root)
    if size > _LONGEST_PAGE:
        return everything
    from trafilatura import bare_extraction

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    try:
        body: Any = bare_extraction(
            deepcopy(root), include_comments=False, include_links=False, with_metadata=False
        ).body
    except Exception:
        # It finds nothing, or it fails, which is no reason to read nothing.
        return everything
    for one in body.iter():
        one.tag = one.get("rend", "h2") if one.tag == "head" else _NAMES.get(one.tag, one.tag)
    main = written(body)
    links = sum(len(one_line(one.text_content())) for one in root.xpath("//body//a"))
    # Items with links are menus.
    parts = [
        one_line(one.text_content()).removesuffix("¶").rstrip()
        for one in root.iter(*_PARTS)
        if one.tag[0] == "h" or one.find(".//a") is None
    ]
    held = sum(part in one_line(main.text) for part in parts)
    is_whole = len(main) >= _LEAST_SHARE * (len(everything) - links)
    return main if is_whole and held >= _LEAST_SHARE * len(parts) else everything


def read_blocks(page: str) -> OutlinedText:
    """All text of a page or a part of one."""
    root = tree_of(page)
    return OutlinedText() if root is None else written(root)


def written(root: Any) -> OutlinedText:
    """The blocks of an element."""
    found = OutlinedText()
    BlockWriter(found).write(root)
    return found


class BlockWriter:
    """Adds the text of elements by blocks; headings are marked, white space counts in `pre`."""

    def __init__(self, found: OutlinedText) -> None:
        self._found = found
        self._line: list[str] = []
        self._before = "\n\n"

    def write(self, root: Any) -> None:
        """Add the text below an element."""
        from lxml import etree

        walk = etree.iterwalk(root, events=("start", "end", "comment", "pi"))
        fixed = 0
        for event, one in walk:
            tag = one.tag if isinstance(one.tag, str) else ""
            is_fixed = tag == "pre" or (tag == "code" and "\n" in (one.text or "").strip())
            is_block = is_fixed or _BLOCK.fullmatch(tag)
            if event == "start":
                if is_block:
                    self._flush(fixed)
                    self._before = "\n" if _LINE.fullmatch(tag) else self._before
                fixed += is_fixed
                if tag == "br":
                    self._line.append("\n")
                is_menu = one.get("role") == "navigation" or one.get("class") == "headerlink"
                if (is_menu or _SKIPPED.fullmatch(tag)) and one is not root:
                    walk.skip_subtree()
                    continue
                text = one.text
            else:
                if event == "end" and is_block:
                    self._flush(fixed, tag)
                fixed -= event == "end" and is_fixed
                if event == "end" and tag in ("td", "th"):
                    # The cells of a row are on one line.
                    self._line.append(" ")
                    self._before = self._before if "".join(self._line).strip() else " "
                text = one.tail if one is not root else None
            if text:
                self._line.append(text if fixed else _SPACE.sub(" ", text))
        self._flush(fixed)

    def _flush(self, fixed: int, tag: str = "") -> None:
        """Add what was met since the last block; `tag` is the element that it ends."""
        text = "".join(self._line)
        self._line.clear()
        if fixed:
            text = text.strip("\n").rstrip()
        else:
            text = "\n".join(" ".join(part.split()) for part in text.split("\n")).strip()
        if not text:
            return
        if _HEADING.fullmatch(tag):
            text = one_line(text).removesuffix("¶").rstrip()
            self._found.mark("heading", text, int(tag[1]))
        self._found.add(text, self._before)
        self._before = "\n\n"
