"""OpenDocument, zipped or as one XML file: texts, spreadsheets, presentations and drawings."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from retriever.documents.dates import iso_date
from retriever.documents.document import Json
from retriever.documents.kinds import OutlinedText, Parsed, nonempty_metadata, one_line
from retriever.documents.kinds.docx import TextBlock, row_blocks
from retriever.documents.kinds.equations import attribute, equation_text, local_name
from retriever.documents.kinds.sheets import Cell, Row, Sheet, write_sheets
from retriever.documents.kinds.zipped import Archive, root_of
from retriever.documents.losses import Loss
from retriever.errors import SourceError

_ZIP = b"PK"
# Elements that are not text: deletions, comments, controls, and descriptions of pictures.
_NO_TEXT = frozenset(
    ("tracked-changes", "annotation", "annotation-end", "forms", "scripts", "event-listeners")
) | {"desc", "title", "sequence-decls", "variable-decls", "user-field-decls", "page-thumbnail"}
# Fields of a paragraph whose value differs from page to page.
_PAGE_FIELDS = frozenset(("page-number", "page-count"))
_SHAPES = frozenset(
    ("frame", "text-box", "custom-shape", "rect", "line", "polyline", "polygon", "path")
) | {"regular-polygon", "circle", "ellipse", "g", "connector", "caption", "control"}
_ROW_GROUPS = frozenset(("table-header-rows", "table-rows", "table-row-group"))
_HEADERS_AND_FOOTERS = frozenset(
    ("header", "header-left", "header-first", "footer", "footer-left", "footer-first")
)
_HIGHEST_LEVEL = 6
# Maximum number of parent styles to follow from a style.
_MOST_PARENT_STYLES = 20
# Maximum number of copies of a repeated cell, and of characters in such a cell.
_MOST_REPETITIONS = 1000
_LONGEST_REPEATED_TEXT = 1000
_MOST_SPACES = 100


class _OpenDocumentStyle(NamedTuple):
    parent: str
    level: str
    is_hidden: bool


def read_opendocument(content: bytes) -> Parsed:
    """Return the text of a document of any type, with its title, author and date."""
    if content.startswith(_ZIP):
        document = _OpenDocumentReader(Archive(content, "OpenDocument"))
    else:
        document = _OpenDocumentReader(None, root_of(content, "a damaged OpenDocument file"))
    body = next(iter(document.content.xpath("/*/*[local-name()='body']/*")), None)
    if body is None:
        raise SourceError("a damaged OpenDocument file: it has no body")
    kind = local_name(body)
    losses: tuple[Loss, ...] = ()
    if kind == "spreadsheet":
        text, losses = document.sheets(body)
    elif kind in ("presentation", "drawing"):
        text = document.slides(body)
    else:
        text = document.pages(body)
    title, metadata = document.properties()
    parsed = text.parsed(None, metadata, document.title or title)
    return parsed._replace(losses=losses + document.losses())


class _OpenDocumentReader:
    """Reads elements of a document as blocks."""

    def __init__(self, archive: Archive | None, root: Any = None) -> None:
        self._archive = archive
        # Names of parts that could not be parsed.
        self._damaged_parts: list[str] = []
        manifest = self._read_part("META-INF/manifest.xml")
        if (
            manifest is not None
            and next(manifest.iter("{*}encryption-data", "{*}encrypted-key"), None) is not None
        ):
            raise SourceError("encrypted; save a copy without its password")
        # In the form of one XML file, the root holds all of these parts.
        self._meta_root = root if archive is None else self._read_part("meta.xml")
        self._styles_root = root if archive is None else self._read_part("styles.xml")
        self.content = root if archive is None else archive.xml("content.xml")
        self._styles = _read_styles(self.content) | _read_styles(self._styles_root)
        self._notes: list[Any] = []
        self.title = ""

    def _read_part(self, name: str) -> Any:
        if self._archive is None or name not in self._archive:
            return None
        try:
            return self._archive.xml(name)
        except SourceError:
            # Some programs write a manifest that is not XML.
            self._damaged_parts.append(name)
            return None

    def losses(self) -> tuple[Loss, ...]:
        """Return the damaged parts that may hold text, as one loss."""
        names = [name for name in self._damaged_parts if not name.startswith("META-INF/")]
        if not names:
            return ()
        return (Loss("parts", f"{len(names)} damaged parts: {', '.join(names)}"),)

    def properties(self) -> tuple[str, dict[str, Json]]:
        """Return the title, and metadata: author, date of creation and keywords."""
        values = {
            local_name(element): one_line(element.text)
            for group in (() if self._meta_root is None else self._meta_root.iter("{*}meta"))
            for element in group
        }
        author = values.get("initial-creator") or values.get("creator", "")
        date = values.get("creation-date") or values.get("date", "")
        keywords = () if self._meta_root is None else self._meta_root.iter("{*}keyword")
        metadata = nonempty_metadata(
            author=author,
            date=date[:10],
            created=iso_date(values.get("creation-date", "")),
            keywords=", ".join(one_line(keyword.text) for keyword in keywords),
        )
        return values.get("title", ""), metadata

    def pages(self, body: Any) -> OutlinedText:
        """Return a text with its notes, and each header and footer once."""
        text = OutlinedText()
        for block in self.blocks(body):
            if block.level:
                text.mark("heading", one_line(block.text), block.level)
            text.add(block.text, block.before)
        # A note may have notes of its own.
        for number, note in enumerate(self._notes, 1):
            note_text = " ".join(block.text for block in self.blocks(note))
            text.add(f"[{number}] {note_text}", "\n" if number > 1 else "\n\n")
        margins = (
            element
            for page in (
                () if self._styles_root is None else self._styles_root.iter("{*}master-page")
            )
            for element in page
            if local_name(element) in _HEADERS_AND_FOOTERS
        )
        for line in dict.fromkeys(
            block.text for margin in margins for block in self.blocks(margin)
        ):
            text.add(line)
        return text

    def slides(self, body: Any) -> OutlinedText:
        """Return slides or drawings as pages, with titles as headings, and notes."""
        text = OutlinedText()
        pages = (page for page in body if local_name(page) == "page")
        for number, page in enumerate(pages, 1):
            text.mark("page", str(number))
            titles = [shape for shape in page if attribute(shape, "class") == "title"]
            title = one_line(" ".join(block.text for block in self.blocks(titles)))
            text.mark("heading", title or f"Slide {number}", 1)
            text.add(title)
            for shape in page:
                if shape not in titles:
                    for block in self.blocks([shape]):
                        text.add(block.text, block.before)
        return text

    def sheets(self, body: Any) -> tuple[OutlinedText, tuple[Loss, ...]]:
        """Return the visible sheets, and the number of hidden ones as a loss."""
        tables = [table for table in body if local_name(table) == "table"]
        visible = [table for table in tables if not self._is_hidden(table)]
        text = write_sheets(
            Sheet(attribute(table, "name"), self._rows(table), self._shape_text(table))
            for table in visible
        )
        hidden = len(tables) - len(visible)
        if not hidden:
            return text, ()
        return text, (Loss("data", f"hidden sheets: {hidden} of {len(tables)}"),)

    def _is_hidden(self, element: Any) -> bool:
        style = self._styles.get(attribute(element, "style-name"))
        return style is not None and style.is_hidden

    def _shape_text(self, table: Any) -> str:
        groups = (child for child in table if local_name(child) == "shapes")
        return "\n".join(block.text for group in groups for block in self.blocks(group))

    def _rows(self, table: Any) -> Iterator[Row]:
        for row in _table_rows(table):
            cells: Row = []
            column = 0
            for cell, repetitions in _cells(row):
                text, is_word = self._cell_text(cell)
                # Long texts are not repeated, nor are empty cells up to the last column.
                copies = repetitions if 0 < len(text) <= _LONGEST_REPEATED_TEXT else bool(text)
                style = attribute(cell, "style-name")
                cells += (
                    Cell(column + offset, text, style, is_word)
                    for offset in range(min(copies, _MOST_REPETITIONS))
                )
                column += repetitions
            yield cells

    def _cell_text(self, cell: Any) -> tuple[str, bool]:
        """Return the text that a cell shows, and whether it is a word."""
        value_type = attribute(cell, "value-type")
        number = attribute(cell, "value")
        if value_type == "date":
            return attribute(cell, "date-value").replace("T", " "), False
        if value_type in ("float", "percentage", "currency"):
            with suppress(ValueError):
                is_percentage = value_type == "percentage"
                text = f"{float(number) * 100:.12g}%" if is_percentage else f"{float(number):.15g}"
                return text, False
        lines = (self._inline_text(child, []) for child in cell if local_name(child) == "p")
        return one_line(" ".join(lines)), value_type in ("string", "")

    def blocks(self, parent: Any) -> Iterator[TextBlock]:
        """Yield the paragraphs, lists and tables in an element and its groups."""
        for child in parent:
            name = local_name(child)
            if name in ("p", "h"):
                yield from self._paragraph_blocks(child, name)
            elif name == "list":
                for block in self.blocks(child):
                    yield block if block.level else block._replace(before="\n")
            elif name == "table":
                yield from self._table_blocks(child)
            elif name == "object":
                yield TextBlock(self._equation_text(child))
            elif name and name not in _NO_TEXT:
                yield from self.blocks(child)

    def _table_blocks(self, table: Any) -> Iterator[TextBlock]:
        before = "\n\n"
        for row in _table_rows(table):
            cells = [list(self.blocks(cell)) for cell, _ in _cells(row)]
            for block in row_blocks(cells, before):
                yield block
                before = "\n"

    def _paragraph_blocks(self, paragraph: Any, name: str) -> Iterator[TextBlock]:
        drawings: list[Any] = []
        text = self._inline_text(paragraph, drawings)
        text = "\n".join(" ".join(line.split()) for line in text.split("\n")).strip()
        if text:
            level = self._heading_level(paragraph, name)
            yield TextBlock(one_line(text), level=level) if level else TextBlock(text)
        yield from self.blocks(drawings)

    def _heading_level(self, paragraph: Any, name: str) -> int:
        """Return the level of a heading by its element, its style or a parent style; else 0."""
        value = attribute(paragraph, "outline-level") or ("1" if name == "h" else "")
        style = attribute(paragraph, "style-name")
        for _ in range(_MOST_PARENT_STYLES):
            if style == "Title" and not value:
                self.title = self.title or one_line("".join(paragraph.itertext()))
                return 1
            if value or style not in self._styles:
                break
            value = self._styles[style].level
            style = self._styles[style].parent
        return min(max(int(value), 0), _HIGHEST_LEVEL) if value.isdecimal() else 0

    def _inline_text(self, paragraph: Any, drawings: list[Any]) -> str:
        """Return the text of a paragraph; add its drawings to `boxes`."""
        from lxml import etree

        pieces: list[str] = []
        ruby_texts: list[str] = []
        walk = etree.iterwalk(paragraph, events=("start", "end", "comment", "pi"))
        for event, element in walk:
            if event != "start":
                pieces.append((element.tail if element is not paragraph else None) or "")
                continue
            name = local_name(element)
            if name == "note":
                self._notes += [part for part in element if local_name(part) == "note-body"]
                pieces.append(f"[{len(self._notes)}]")
            elif name == "ruby-text":
                ruby_texts.append("".join(element.itertext()))
            elif name in _SHAPES:
                equations = [
                    self._equation_text(object_) for object_ in element.iterfind("{*}object")
                ]
                pieces += equations
                if not any(equations):
                    drawings.append(element)
            elif name == "s":
                spaces = attribute(element, "c")
                pieces.append(" " * min(int(spaces) if spaces.isdecimal() else 1, _MOST_SPACES))
            elif name in ("tab", "line-break"):
                pieces.append("\t" if name == "tab" else "\n")
            elif not (name in _NO_TEXT or name in _PAGE_FIELDS or self._is_hidden(element)):
                pieces.append(element.text or "")
                continue
            walk.skip_subtree()
        # Readings beside each character would divide the word.
        return "".join(pieces) + (f" ({', '.join(ruby_texts)})" if ruby_texts else "")

    def _equation_text(self, element: Any) -> str:
        """Return the letters of an equation, which is in an object or in a part of its own."""
        for equation in element.iter("{*}math"):
            return equation_text(equation)
        folder = posixpath.normpath(attribute(element, "href"))
        root = self._read_part(f"{folder}/content.xml")
        return equation_text(root) if root is not None and local_name(root) == "math" else ""


def _read_styles(root: Any) -> dict[str, _OpenDocumentStyle]:
    styles = {}
    for style in () if root is None else root.iter("{*}style"):
        properties = [*style.iterfind("{*}text-properties"), *style.iterfind("{*}table-properties")]
        is_hidden = any(attribute(group, "display") in ("none", "false") for group in properties)
        styles[attribute(style, "name")] = _OpenDocumentStyle(
            attribute(style, "parent-style-name"),
            attribute(style, "default-outline-level"),
            is_hidden,
        )
    return styles


def _table_rows(table: Any) -> Iterator[Any]:
    """Yield each row once, even if the file repeats it."""
    for child in table:
        name = local_name(child)
        if name == "table-row":
            yield child
        elif name in _ROW_GROUPS:
            yield from _table_rows(child)


def _cells(row: Any) -> Iterator[tuple[Any, int]]:
    """Yield the cells of a row with the number of their repetitions."""
    for cell in row:
        if local_name(cell) in ("table-cell", "covered-table-cell"):
            number = attribute(cell, "number-columns-repeated")
            yield cell, int(number) if number.isdecimal() else 1
