"""HTML by lxml, and the main text of pages by trafilatura."""

from __future__ import annotations

import logging
import re
from copy import deepcopy
from typing import Any

from indexes.platforms import time_limit
from retriever.documents.decoding import browser_encoding, page_text
from retriever.documents.kinds import OutlinedText, Parsed, one_line
from retriever.documents.kinds.equations import equation_text
from retriever.documents.kinds.html_metadata import read_page_facts
from retriever.documents.losses import Loss
from retriever.errors import SourceError

_SKIPPED_ELEMENT = re.compile(
    "head|script|style|noscript|template|nav|svg|object|iframe|button|select"
)
_BLOCK = re.compile(
    "address|article|aside|blockquote|body|caption|center|d[dlt]|details|div|fieldset|figcaption|"
    "figure|footer|form|h[1-6]|header|hr|li|main|ol|p|section|summary|table|tr|ul"
)
# Blocks that begin on a new line; other blocks are separated by a blank one.
_LINE_ELEMENT = re.compile("li|d[dt]|tr|caption")
_HEADING = re.compile("h[1-6]")
# HTML's names for trafilatura's elements. Its headings keep theirs in `rend`.
_HTML_NAMES = {
    "list": "ul",
    "item": "li",
    "row": "tr",
    "cell": "td",
    "quote": "blockquote",
    "lb": "br",
}
# Elements that may be menus, and roles and words of classes of menus.
_MENU_ELEMENT = re.compile("aside|center|d[dl]|div|footer|form|header|ol|p|section|table|ul")
_LIST_ELEMENT = re.compile("center|div|form|header|ol|section|table|ul")
_MENU_ROLES = ("navigation", "search", "banner", "contentinfo")
_MENU_WORD = re.compile(
    r"(?:.*[^a-z])?(?:nav[a-z]*|[a-z]*nav|[a-z]*menu[a-z]*|breadcrumbs?|pag(?:er|ination)"
    r"|skip[a-z]*|search-?(?:box|form|bar)|toolbar|[a-z]*lang)(?:[^a-z].*)?"
)
# A link to the page before or after.
_NEIGHBOR = re.compile("(?:prev(?:ious)?|next)(?:[-_]?page)?")
# Maximum length in characters of the classes that are inspected.
_LONGEST_NAMES = 200
# Maximum length in characters of a menu, and of a short one.
_LONGEST_MENU = 3000
_SHORT_MENU = 200
# Maximum number of characters outside links: in a menu that only its place shows, and before it.
_MOST_UNLINKED = 200
# The least share of links in a menu: by its class, unless it is short; by its place alone; and by
# its element. The last is high, since DocBook and Sphinx use such elements for boxes and footnotes.
_NAMED_SHARE = 0.3
_LEADING_SHARE = 0.4
_ELEMENT_SHARE = 0.6
# The least number of characters of a page without its menus.
_LEAST_TEXT = 40
# Number of first words by which a heading or an item is found in the main text.
_FIRST_WORDS = 4
_SPACE = re.compile(r"\s+")
_BETWEEN_CELLS = " | "
# Text of a page before JavaScript builds it. Its maximum length in characters; a request for
# JavaScript, which has this name in every language; and a note that the page is loading.
_LONGEST_REQUEST = 300
_REQUEST = re.compile(
    r"(?i)\b(?:enabl|disabl|turn|switch|requir|need|must|activ|aktiv|attiv|habilit|abilit|włącz|"
    r"включ|увімкн|inschakel|slå)|有効|启用|啟用|사용"
)
_LOADING = re.compile(
    r"(?i)\W*(?:loading|please wait|just a moment|wird geladen|laden|lädt|bitte warten|chargement|"
    r"patientez|cargando|carregando|caricamento|загрузка|加载中|読み込み中)"
    r"(?:\W+(?:please|wait|the|your|app|application|content|page|site|en|cours))*\W*"
)
# Limits of the main text. Pages of more bytes are books without menus, and take minutes. The main
# text must have two thirds of the text, and of the headings and list items, or trafilatura has
# missed the text.
_LONGEST_PAGE = 1 << 19
_LEAST_SHARE = 2 / 3
# Seconds for the main text, a part of the time limit of a file; then all text is read.
_EXTRACTION_SECONDS = 30.0
_EQUATIONS = ("math", "m:math", "mml:math")
_PART_ELEMENTS = ("h1", "h2", "h3", "h4", "h5", "h6", "li", "dt")


def read_html(content: bytes, encoding: str | None = None) -> Parsed:
    """Return the main text of a page: its main element, else what trafilatura finds, without menus.

    `encoding` is the one that the user named; without it, the page declares its own.
    """
    root = tree_of(page_text(content, browser_encoding(encoding) or encoding))
    if root is None:
        return Parsed("")
    title, metadata = read_page_facts(root)
    _remove_requests(root)
    has_scripts = root.find(".//script") is not None
    parsed = _main_text(root, len(content)).parsed(None, metadata, title)
    if _is_placeholder(parsed.text) and root.find(".//noscript") is not None:
        for element in root.iter("noscript"):
            element.tag = "div"
        parsed = _main_text(root, len(content)).parsed(None, metadata, title)
    if has_scripts and _is_placeholder(parsed.text):
        loss = Loss("parts", "no text, since JavaScript builds the page")
        return Parsed("", None if _is_placeholder(title) else title, metadata, losses=(loss,))
    return parsed


def _remove_requests(root: Any) -> None:
    """Remove requests for JavaScript in `noscript`; its other text stays."""
    for element in list(root.iter("noscript")):
        text = one_line(element.text_content())
        is_request = len(text) <= _LONGEST_REQUEST and "javascript" in text.lower()
        if (is_request or not text) and element.getparent() is not None:
            _remove(element)


def _is_placeholder(text: str) -> bool:
    """Return whether a text is empty, asks for JavaScript, or says that the page is loading."""
    if len(text) > _LONGEST_REQUEST:
        return False
    is_request = "javascript" in text.lower() and _REQUEST.search(text) is not None
    return not text or is_request or _LOADING.fullmatch(text) is not None


def tree_of(page: str) -> Any:
    """Return the root of a page; None if the page is empty."""
    from lxml import etree, html

    parser = html.HTMLParser(encoding="utf-8", huge_tree=True)
    try:
        root = html.document_fromstring(page.encode(errors="replace"), parser)
    except (etree.ParserError, etree.XMLSyntaxError):
        return None
    # lxml would silently leave out the rest.
    if any(error.type_name == "ERR_RESOURCE_LIMIT" for error in parser.error_log):
        raise SourceError("elements within each other are more than 2,048; simplify the page")
    for equation in list(root.iter(*_EQUATIONS)):
        _replace_equation(equation)
    return root


def _replace_equation(equation: Any) -> None:
    """Replace an equation by its letters, and remove the drawing of it."""
    parent = equation.getparent()
    if parent is None:
        return
    text = equation_text(equation) or equation.get("alttext", "")
    tail = equation.tail
    equation.clear()
    equation.tag = "span"
    equation.text = text
    equation.tail = tail
    for drawing in (parent.getprevious(), parent.getnext()):
        # KaTeX and MathJax keep the equation for screen readers beside its drawing.
        if drawing is not None and drawing.get("aria-hidden") == "true":
            _remove(drawing)


def _main_text(root: Any, size: int) -> OutlinedText:
    """Return the text of the only main element; else trafilatura's; else of the whole page."""
    mains = [
        element
        for element in root.iter("*")
        if element.tag == "main" or element.get("role") == "main"
    ]
    for candidates in (mains, list(root.iter("article"))):
        if len(candidates) == 1:
            remove_menus(candidates[0])
            return block_text(candidates[0])
    remove_menus(root)
    everything = block_text(root)
    if size > _LONGEST_PAGE:
        return everything
    body = _extract_main_text(root)
    if body is None:
        return everything
    for element in body.iter():
        element.tag = (
            element.get("rend", "h2")
            if element.tag == "head"
            else _HTML_NAMES.get(element.tag, element.tag)
        )
    main = block_text(body)
    links = sum(len(one_line(link.text_content())) for link in root.iterfind(".//body//a"))
    is_whole = len(main) >= _LEAST_SHARE * (len(everything) - links)
    is_sound = is_whole and not _is_joined_line(main.text, everything.text)
    return main if is_sound and _has_parts(main.text, root) else everything


def _is_joined_line(main: str, everything: str) -> bool:
    """Return whether trafilatura joined several blocks to one line, as without paragraphs."""
    is_line = "\n" not in main and len(main) > max(map(len, everything.split("\n")))
    return is_line and len(everything) >= _LEAST_SHARE * len(main)


def _extract_main_text(root: Any) -> Any:
    """Return the main text that trafilatura finds in time; None if it finds none or fails."""
    from trafilatura import bare_extraction

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    try:
        with time_limit(_EXTRACTION_SECONDS):
            extracted: Any = bare_extraction(
                deepcopy(root), include_comments=False, include_links=False, with_metadata=False
            )
            return extracted.body
    except Exception:
        # All text is read instead.
        return None


def _has_parts(text: str, root: Any) -> bool:
    """Return whether a text has most headings and list items of a page, by their first words."""
    words = text.split()
    word_sequences = {
        " ".join(words[start : start + length])
        for length in range(1, _FIRST_WORDS + 1)
        for start in range(len(words) - length + 1)
    }
    # Items with links are menus.
    parts = [
        element.text_content().strip().removesuffix("¶").split(maxsplit=_FIRST_WORDS)[:_FIRST_WORDS]
        for element in root.iter(*_PART_ELEMENTS)
        if element.tag[0] == "h" or element.find(".//a") is None
    ]
    present = sum(" ".join(part) in word_sequences or not part for part in parts)
    return present >= _LEAST_SHARE * len(parts)


class _Extent:
    """The content of an element: numbers of characters and links, and whether it has headings.

    `linked` are the characters in links, `removed` those in menus, `unlinked` those in neither.
    """

    __slots__ = ("has_heading", "linked", "links", "removed", "text", "unlinked")

    def __init__(self) -> None:
        self.text = 0
        self.linked = 0
        self.links = 0
        self.removed = 0
        self.unlinked = 0
        self.has_heading = False

    def add(self, other: _Extent) -> None:
        self.text += other.text
        self.linked += other.linked
        self.links += other.links
        self.removed += other.removed
        self.unlinked += other.unlinked
        self.has_heading |= other.has_heading


def remove_menus(root: Any) -> None:
    """Remove the menus of a page, and lists of links before its text.

    A menu is short and has no headings. Its element or its class names it as a menu. Or it is
    largely links, and stands before the first heading and the first sentences.
    """
    finder = _MenuFinder()
    rest = finder.read(root)
    # Menus without any other text are the text of the page.
    for element in finder.named_menus if rest else ():
        _remove(element)
    for element in finder.leading_lists if rest >= _LEAST_TEXT else ():
        _remove(element)


class _MenuFinder:
    """Finds menus in one pass over the elements of a page."""

    def __init__(self) -> None:
        self.named_menus: list[Any] = []
        self.leading_lists: list[Any] = []
        # Extents of the page and of each open element.
        self._extents = [_Extent()]
        self._is_leading = True
        self._open_links = 0
        # Characters of the page so far that are neither in links nor in menus.
        self._unlinked = 0

    def read(self, root: Any) -> int:
        """Find the menus below an element; return the number of characters outside them."""
        from lxml import etree

        walk = etree.iterwalk(root, events=("start", "end", "comment", "pi"))
        for event, element in walk:
            tag = element.tag if isinstance(element.tag, str) else ""
            is_link = tag == "a" and element.get("href") is not None
            if event == "start":
                self._extents.append(_Extent())
                if _SKIPPED_ELEMENT.fullmatch(tag) and element is not root:
                    walk.skip_subtree()
                    continue
                self._open_links += is_link
                self._add_text(element.text)
                continue
            if event == "end":
                extent = self._extents.pop()
                self._open_links -= is_link
                extent.links += is_link
                extent.has_heading |= bool(_HEADING.fullmatch(tag))
                self._is_leading = self._is_leading and not extent.has_heading
                if element is not root:
                    self._note_menu(element, tag, extent)
                self._extents[-1].add(extent)
                if element is root:
                    break
            self._add_text(element.tail)
        return self._extents[0].text - self._extents[0].removed

    def _note_menu(self, element: Any, tag: str, extent: _Extent) -> None:
        """Note an element that ends if it is a menu, and take its text out of its extent."""
        before = self._unlinked - extent.unlinked
        is_named = _is_named_menu(element, tag, extent)
        is_first = self._is_leading and before <= _MOST_UNLINKED
        if is_named or (is_first and _is_link_list(tag, extent)):
            (self.named_menus if is_named else self.leading_lists).append(element)
            extent.removed = extent.text
            extent.unlinked = 0
            self._unlinked = before

    def _add_text(self, text: str | None) -> None:
        if not text:
            return
        length = len("".join(text.split()))
        extent = self._extents[-1]
        extent.text += length
        if self._open_links:
            extent.linked += length
        else:
            extent.unlinked += length
            self._unlinked += length


def _is_named_menu(element: Any, tag: str, extent: _Extent) -> bool:
    """Return whether an element is a menu by its name, role or class."""
    if extent.has_heading or not 0 < extent.text <= _LONGEST_MENU:
        return False
    names = f"{element.get('class') or ''} {element.get('rel') or ''}".lower()[:_LONGEST_NAMES]
    if tag == "a":
        return any(map(_NEIGHBOR.fullmatch, names.split()))
    if not _MENU_ELEMENT.fullmatch(tag) or not extent.links:
        return False
    share = extent.linked / extent.text
    if tag in ("header", "footer", "aside") or element.get("role") in _MENU_ROLES:
        return share >= _ELEMENT_SHARE
    names += f" {element.get('id') or ''}".lower()[:_LONGEST_NAMES]
    is_short = extent.text <= _SHORT_MENU
    return (is_short or share >= _NAMED_SHARE) and any(map(_MENU_WORD.fullmatch, names.split()))


def _is_link_list(tag: str, extent: _Extent) -> bool:
    """Return whether an element before the text of a page is mostly links."""
    if not _LIST_ELEMENT.fullmatch(tag) or extent.has_heading:
        return False
    if not 0 < extent.text <= _LONGEST_MENU:
        return False
    unlinked = extent.text - extent.linked
    is_list = extent.links > 1 and extent.linked >= _LEADING_SHARE * extent.text
    return unlinked <= _MOST_UNLINKED and (is_list or (extent.links > 0 and not unlinked))


def _remove(element: Any) -> None:
    """Remove an element, but not the text after it."""
    parent = element.getparent()
    before = element.getprevious()
    if before is not None:
        before.tail = f"{before.tail or ''} {element.tail or ''}"
    else:
        parent.text = f"{parent.text or ''} {element.tail or ''}"
    parent.remove(element)


def read_blocks(page: str) -> OutlinedText:
    """Return all text of a page or a part of one."""
    root = tree_of(page)
    return OutlinedText() if root is None else block_text(root)


def block_text(root: Any) -> OutlinedText:
    """Return the blocks of an element."""
    text = OutlinedText()
    BlockWriter(text).write(root)
    return text


def _is_code_block(code: Any) -> bool:
    """Return whether code has several lines and stands alone, as trafilatura writes `pre`."""
    if "\n" not in (code.text or "").strip():
        return False
    before = code.getprevious()
    after = code.getnext()
    text_before = code.getparent().text if before is None else before.tail
    return not (
        (text_before or "").strip()
        or (code.tail or "").strip()
        or any(neighbor is not None and _is_inline(neighbor) for neighbor in (before, after))
    )


def _is_inline(element: Any) -> bool:
    tag = element.tag if isinstance(element.tag, str) else ""
    return bool(tag) and tag not in ("br", "pre", "code") and not _BLOCK.fullmatch(tag)


class BlockWriter:
    """Adds the text of elements by blocks; marks headings, and keeps white space in `pre`."""

    def __init__(self, text: OutlinedText) -> None:
        self._text = text
        self._line: list[str] = []
        self._before = "\n\n"
        # Length of the text at the beginning of the table row.
        self._row_start = 0

    def write(self, root: Any) -> None:
        """Add the text below an element."""
        from lxml import etree

        walk = etree.iterwalk(root, events=("start", "end", "comment", "pi"))
        open_fixed = 0
        for event, element in walk:
            tag = element.tag if isinstance(element.tag, str) else ""
            is_fixed = tag == "pre" or (tag == "code" and _is_code_block(element))
            is_block = is_fixed or _BLOCK.fullmatch(tag)
            if event == "start":
                if is_block:
                    self._flush(open_fixed)
                    self._before = "\n" if _LINE_ELEMENT.fullmatch(tag) else self._before
                if tag == "tr":
                    self._row_start = len(self._text)
                if tag in ("td", "th"):
                    self._begin_cell(open_fixed)
                open_fixed += is_fixed
                if tag == "br":
                    self._line.append("\n")
                is_menu = (
                    element.get("role") == "navigation" or element.get("class") == "headerlink"
                )
                if (is_menu or _SKIPPED_ELEMENT.fullmatch(tag)) and element is not root:
                    walk.skip_subtree()
                    continue
                text = element.text
            else:
                if event == "end" and is_block:
                    self._flush(open_fixed, tag)
                    # An empty cell leaves no separator behind.
                    self._before = "\n\n" if tag == "tr" else self._before
                open_fixed -= event == "end" and is_fixed
                text = element.tail if element is not root else None
            if text:
                self._line.append(text if open_fixed else _SPACE.sub(" ", text))
        self._flush(open_fixed)

    def _begin_cell(self, fixed: int) -> None:
        """Put a cell beside the one before it, unless that is empty."""
        self._flush(fixed)
        if len(self._text) > self._row_start:
            self._before = _BETWEEN_CELLS

    def _flush(self, fixed: int, tag: str = "") -> None:
        """Add the text since the last block; `tag` is the element that ends here."""
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
            self._text.mark("heading", text, int(tag[1]))
        self._text.add(text, self._before)
        self._before = "\n\n"
