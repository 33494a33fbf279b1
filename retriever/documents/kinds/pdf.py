"""PDF by pypdfium2: the text of each page, bookmarks as headings."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from retriever.documents.kinds import OutlinedText, Parsed, PassedOverError, named, one_line
from retriever.documents.outline import Mark
from retriever.errors import SourceError

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

# Seconds for the bookmarks of a file: each may be looked up in a list of all names.
_BOOKMARK_SECONDS = 20.0
# Characters of a bookmark that are looked for on its page, and how many of the page may be passed
# meanwhile: as many as it has, so many times, but at least the second number.
_LONGEST_SOUGHT = 100
_PASSES = 32
_LEAST_PASSED = 1 << 20
# What parts words at the ends of lines; dots of tables of contents.
_HYPHENS = re.compile("[\ufffe\x02](?:\r?\n)?")
_LEADERS = re.compile(r"(?:[ .]\.){4,}")
# Titles that programs make of file names.
_MADE = re.compile(r"(?i)untitled.*|.*\.(docx?|dvi|indd|odt|pdf|pptx?|qxd|rtf|tex|txt|xlsx?)")
_DATE = re.compile(r"D:(\d{4})(\d{2})(\d{2})")


def read_pdf(content: bytes) -> Parsed:
    """The text layer by pages; one without any is passed over."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error):
            raise SourceError(
                "encrypted; save a copy without its password, as `qpdf --decrypt` does"
            ) from error
        raise SourceError(f"a damaged PDF: {one_line(error)}") from error
    found = OutlinedText()
    bookmarks = _bookmarks(document)
    number = 0
    for number in range(1, len(document) + 1):
        found.mark("page", document.get_page_label(number - 1) or str(number))
        text = _page_text(document, number - 1)
        here = _placed(text, bookmarks.get(number - 1, ()))
        for one in here if not text else ():
            found.mark(one.kind, one.label, one.level)
        found.add(text, marks=here)
    given = document.get_metadata_dict()
    date = _DATE.match(given.get("CreationDate", ""))
    title = one_line(given.get("Title")).removeprefix("Microsoft Word - ")
    metadata = named(
        author=given.get("Author"),
        date="-".join(date.groups()) if date else "",
        keywords=given.get("Keywords"),
    )
    parsed = found.parsed("" if _MADE.fullmatch(title) else title, {**metadata, "pages": number})
    if not parsed.text:
        raise PassedOverError(
            f"no text layer: its {number} pages are images (a scan); recognize the text first, as "
            "`ocrmypdf` does"
        )
    return parsed


def _placed(text: str, bookmarks: Iterable[tuple[str, int]]) -> list[Mark]:
    """Where the bookmarks of a page are, in their order; one not found is where the last one is."""
    marks: list[Mark] = []
    offset = 0
    room = max(_LEAST_PASSED, _PASSES * len(text))
    for label, level in bookmarks:
        words = r"\s+".join(map(re.escape, label[:_LONGEST_SOUGHT].split()))
        for pattern in (rf"(?m)^(?:(?:[A-Z]|\d+)(?:\.\d+)*\.?\s+)?{words}", words):
            at = re.compile(pattern).search(text, offset) if room > 0 else None
            room -= (len(text) if at is None else at.end()) - offset
            if at is not None:
                offset = at.start()
                break
        marks.append(Mark(offset, "heading", label, level))
    return marks


def _page_text(document: PdfDocument, index: int) -> str:
    """The text of a page; nothing where the page is damaged."""
    import pypdfium2

    try:
        page = document[index]
        layer = page.get_textpage()
        text = layer.get_text_range()
        layer.close()
        page.close()
    except pypdfium2.PdfiumError:
        return ""
    text = _HYPHENS.sub("", text).replace("\r\n", "\n").replace("\r", "").replace("\0", "")
    text = _LEADERS.sub(" ...", text)
    return "\n".join(line.rstrip() for line in text.split("\n")).strip()


def _bookmarks(document: PdfDocument) -> dict[int, list[tuple[str, int]]]:
    """Titles and levels of bookmarks by page, as many as are read in time."""
    import pypdfium2

    last = time.monotonic() + _BOOKMARK_SECONDS
    found: dict[int, list[tuple[str, int]]] = {}
    try:
        for one in document.get_toc():
            if time.monotonic() > last:
                break
            label = one_line(one.get_title())
            target = one.get_dest()
            page = target.get_index() if target is not None else None
            if label and page is not None:
                found.setdefault(page, []).append((label, min(6, one.level + 1)))
    except pypdfium2.PdfiumError:
        pass
    return found
