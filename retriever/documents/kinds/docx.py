"""Word documents: the visible text of the body, its notes, and each header and footer once.

The XML is read here, since documents often deviate from the standard. A part beside the body that
is missing or damaged costs no other text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from retriever.documents.decoding import page_text
from retriever.documents.kinds import OutlinedText, Parsed, one_line
from retriever.documents.kinds.equations import attribute, equation_text, local_name, symbol
from retriever.documents.kinds.html import read_blocks
from retriever.documents.kinds.zipped import Archive, drawing_text, relations
from retriever.documents.losses import Loss
from retriever.errors import SourceError

# Elements that are replaced by their children, and elements that were deleted or moved.
_WRAPPERS = frozenset(("sdt", "sdtContent", "customXml", "smartTag", "ins", "moveTo"))
_DELETED = frozenset(("del", "moveFrom"))
# Elements of a paragraph that are not part of its text.
_NO_TEXT = _DELETED | {"pPr", "rPr", "sdtPr", "sdtEndPr", "rubyPr", "delText", "delInstrText"}
_SPACES = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "\u2011"}
_NOTES = {"footnoteReference": "footnotes", "endnoteReference": "endnotes"}
# Fields whose value differs from page to page.
_PAGE_FIELDS = frozenset(("PAGE", "NUMPAGES", "SECTIONPAGES"))
_OFF = ("0", "false", "off", "none")
_HEADING = re.compile(r"heading ?([1-9])(?:,.*)?", re.IGNORECASE)
# Styles from which others inherit no heading level.
_NO_HEADINGS = ("normal", "subtitle", "toc heading")
_HIGHEST_LEVEL = 6
# Maximum length of a heading in characters. Some documents give all of their text an outline level.
_LONGEST_HEADING = 300
# Maximum depth of styles that are based on one another.
_MOST_STYLES = 20
# Maximum length in characters of a table row on one line. A longer row is layout.
_LONGEST_ROW = 1000


class TextBlock(NamedTuple):
    """A paragraph, or a row of a table; `level` is that of a heading, or 0."""

    text: str
    before: str = "\n\n"
    level: int = 0


class _WordStyle(NamedTuple):
    level: int = 0
    is_title: bool = False
    is_list: bool = False


class _OpenField:
    """A field that has begun; its result starts at an index of a paragraph's pieces of text."""

    __slots__ = ("choice", "has_result", "instruction", "start")

    def __init__(self, start: int, choice: str) -> None:
        self.start = start
        # The chosen entry of a drop-down list.
        self.choice = choice
        self.instruction = ""
        self.has_result = False


def read_docx(content: bytes) -> Parsed:
    """Return the paragraphs, tables and notes of a Word document; styles mark the headings."""
    archive = Archive(content, "DOCX")
    path = "word/document.xml"
    for relation in relations(archive, "").values():
        if relation.kind == "officeDocument":
            path = relation.target
    root = archive.xml(path)
    document = _WordReader(archive, path)
    text = OutlinedText()
    for block in document.blocks(root):
        if block.level:
            text.mark("heading", one_line(block.text), block.level)
        text.add(block.text, block.before)
    for block in (*document.notes(), *document.margins(root)):
        text.add(block.text, block.before)
    title, metadata = archive.properties()
    parsed = text.parsed(None, metadata, document.title or title)
    return parsed._replace(losses=document.losses())


def row_blocks(cells: list[list[TextBlock]], before: str) -> Iterator[TextBlock]:
    """Yield a row of a table as one line, or the blocks of its cells if the table is layout."""
    blocks = [block for cell in cells for block in cell]
    line = " | ".join(" ".join(one_line(block.text) for block in cell) for cell in cells)
    is_layout = any(block.level for block in blocks) or len(line) > _LONGEST_ROW
    if is_layout or (len(blocks) > 1 and len(cells) == 1):
        yield from blocks
    elif blocks:
        yield TextBlock(one_line(line).rstrip(" |"), before)


def is_of_page(instruction: str) -> bool:
    """Return whether the value of a field differs from page to page."""
    return not _PAGE_FIELDS.isdisjoint(instruction.split(maxsplit=1)[:1])


def heading_level(name: str) -> int:
    """Return the level of a heading by the name of its style; 0 for another name."""
    match = _HEADING.fullmatch(name)
    return min(int(match[1]), _HIGHEST_LEVEL) if match else 0


class _WordReader:
    """Reads elements of a document as blocks."""

    def __init__(self, archive: Archive, path: str) -> None:
        self._archive = archive
        self._folder = posixpath.dirname(path)
        self._relations = relations(archive, path)
        # Names of missing or damaged parts.
        self._lost: dict[str, None] = {}
        self._styles = _read_styles(self._read_related("styles"))
        self._note_bodies: dict[str, dict[str, Any]] = {}
        # Numbers of the notes by kind and id, and their elements.
        self._note_numbers: dict[tuple[str, str], int] = {}
        self._notes: list[Any] = []
        self._fields: list[_OpenField] = []
        # The text of paragraphs that continue in the next one, since their marks are deleted.
        self._carried: list[str] = []
        self.title = ""

    def losses(self) -> tuple[Loss, ...]:
        """Return the parts that the document names and that are missing or damaged."""
        if not self._lost:
            return ()
        names = ", ".join(self._lost)
        return (Loss("parts", f"{len(self._lost)} missing or damaged parts: {names:.200}"),)

    def notes(self) -> Iterator[TextBlock]:
        """Yield footnotes and endnotes in the order of their references."""
        # A note may refer to others, which are appended meanwhile.
        for number, note in enumerate(self._notes, 1):
            body = " ".join(block.text for block in self.blocks(note))
            yield TextBlock(f"[{number}] {body}", "\n" if number > 1 else "\n\n")

    def margins(self, root: Any) -> Iterator[TextBlock]:
        """Return the texts of headers, then of footers, each once."""
        targets = dict.fromkeys(
            relation.target
            for name in ("headerReference", "footerReference")
            for reference in root.iter("{*}" + name)
            if (relation := self._relations.get(_value(reference, "id"))) is not None
        )
        margins = (margin for target in targets if (margin := self._read_part(target)) is not None)
        texts = dict.fromkeys(block.text for margin in margins for block in self.blocks(margin))
        return map(TextBlock, texts)

    def blocks(self, parent: Any) -> Iterator[TextBlock]:
        """Yield the paragraphs and tables in an element."""
        for child in _content_elements(parent):
            name = local_name(child)
            if name == "p":
                yield from self._paragraph_blocks(child)
            elif name == "tbl":
                yield from self._table_blocks(child)
            elif name == "altChunk":
                yield from self._imported_blocks(child)
            elif name in ("oMath", "oMathPara"):
                yield TextBlock(equation_text(child))
            elif name == "body":
                yield from self.blocks(child)

    def _table_blocks(self, table: Any) -> Iterator[TextBlock]:
        before = "\n\n"
        for row in _content_elements(table):
            if local_name(row) != "tr" or _find(row, "trPr", "del") is not None:
                continue
            cells = [
                list(self.blocks(cell))
                for cell in _content_elements(row)
                if local_name(cell) == "tc"
            ]
            for block in row_blocks(cells, before):
                yield block
                before = "\n"

    def _imported_blocks(self, chunk: Any) -> Iterator[TextBlock]:
        """Yield a page that Word would import."""
        relation = self._relations.get(_value(chunk, "id"))
        path = "" if relation is None else relation.target
        if path.lower().endswith((".htm", ".html", ".xhtml")) and path in self._archive:
            yield TextBlock(read_blocks(page_text(self._archive.read(path))).text)
        elif path:
            self._lost[path] = None

    def _paragraph_blocks(self, paragraph: Any) -> Iterator[TextBlock]:
        pieces = self._carried
        self._carried = []
        boxes: list[Any] = []
        readings: list[str] = []
        self._read_inline(paragraph, pieces, boxes, readings)
        if readings:
            # Readings beside each character would divide the word.
            pieces.append(f" ({', '.join(readings)})")
        mark = _find(paragraph, "pPr", "rPr")
        if mark is not None and any(local_name(child) in _DELETED for child in mark):
            self._carried = pieces
        else:
            text = "".join(pieces)
            text = "\n".join(" ".join(line.split()) for line in text.split("\n")).strip()
            if text:
                yield self._styled_block(paragraph, text)
        for box in boxes:
            yield from (
                self.blocks(box) if local_name(box) == "txbxContent" else self._drawing_blocks(box)
            )

    def _styled_block(self, paragraph: Any, text: str) -> TextBlock:
        """Return a paragraph with the level of its style and its own properties."""
        properties = _child(paragraph, "pPr")
        name = _value(_child(properties, "pStyle"))
        style = self._styles.get(name) or _WordStyle(heading_level(name))
        own_level = _outline_level(properties)
        level = style.level if own_level is None else own_level
        if level and len(text) <= _LONGEST_HEADING:
            if style.is_title and not self.title:
                self.title = one_line(text)
            return TextBlock(one_line(text), level=level)
        own_number = _find(properties, "numPr", "numId")
        is_list = style.is_list if own_number is None else _value(own_number) != "0"
        return TextBlock(text, "\n" if is_list else "\n\n")

    def _read_inline(
        self, paragraph: Any, pieces: list[str], boxes: list[Any], readings: list[str]
    ) -> None:
        """Add the text of a paragraph, its text boxes and drawings, and readings of characters."""
        from lxml import etree

        for field in self._fields:
            # An instruction that continues in another paragraph may be text that lost its end.
            field.start = len(pieces)
            field.instruction = ""
            field.has_result = True
        walk = etree.iterwalk(paragraph, events=("start",))
        for _, element in walk:
            name = local_name(element)
            if name == "t":
                pieces.append(element.text or "")
            elif _is_passed_over(element, name):
                walk.skip_subtree()
            elif name == "oMath":
                pieces.append(equation_text(element))
                walk.skip_subtree()
            elif name == "rt":
                readings.append("".join(part.text or "" for part in element.iter("{*}t")))
                walk.skip_subtree()
            elif name == "fldChar":
                self._follow_field(element, pieces)
                walk.skip_subtree()
            elif name in ("txbxContent", "relIds", "chart"):
                boxes.append(element)
                walk.skip_subtree()
            elif name == "instrText" and self._fields:
                self._fields[-1].instruction += element.text or ""
            else:
                pieces.append(self._replacement_text(element, name))

    def _replacement_text(self, element: Any, name: str) -> str:
        """Return the text of an element that stands for a character, a note or a word."""
        if name in _SPACES:
            return _SPACES[name]
        if name == "sym":
            return _symbol(element)
        if name in _NOTES:
            return self._note_mark(_NOTES[name], _value(element, "id"))
        if name == "textpath":
            return f" {element.get('string', '')} "
        return ""

    def _follow_field(self, element: Any, pieces: list[str]) -> None:
        """Keep the result of a field, and drop its instruction."""
        kind = _value(element, "fldCharType")
        if kind == "begin":
            self._fields.append(_OpenField(len(pieces), _chosen_entry(element)))
        elif kind in ("separate", "end") and self._fields:
            field = self._fields[-1]
            if not field.has_result or (kind == "end" and is_of_page(field.instruction)):
                del pieces[field.start :]
            field.has_result = True
            if kind == "end":
                pieces.append(field.choice)
                self._fields.pop()

    def _note_mark(self, kind: str, id_: str) -> str:
        """Return the mark of a note in the text; empty if the note is missing."""
        if kind not in self._note_bodies:
            part = self._read_related(kind)
            self._note_bodies[kind] = {} if part is None else {_value(n, "id"): n for n in part}
        note = self._note_bodies[kind].get(id_)
        if note is None:
            self._lost[f"{kind[:-1]} {id_}"] = None
            return ""
        number = self._note_numbers.setdefault((kind, id_), len(self._notes) + 1)
        if number > len(self._notes):
            self._notes.append(note)
        return f"[{number}]"

    def _drawing_blocks(self, reference: Any) -> Iterator[TextBlock]:
        """Yield the words of a diagram or chart."""
        id_ = _value(reference, "dm" if local_name(reference) == "relIds" else "id")
        drawing = self._read_part(self._relations[id_].target) if id_ in self._relations else None
        if drawing is not None:
            yield TextBlock(drawing_text(drawing))

    def _read_related(self, kind: str) -> Any:
        """Return the root of the only part of a kind; None if there is none."""
        path = posixpath.join(self._folder, f"{kind}.xml")
        for relation in self._relations.values():
            if relation.kind == kind:
                return self._read_part(relation.target)
        return self._read_part(path) if path in self._archive else None

    def _read_part(self, path: str) -> Any:
        """Return the root of a part beside the body; None, with a loss, if it cannot be read."""
        try:
            return self._archive.xml(path)
        except SourceError:
            self._lost[path] = None
            return None


def _content_elements(parent: Any) -> Iterator[Any]:
    """Yield the children of an element and of wrappers among them, without deleted ones."""
    for child in parent:
        name = local_name(child)
        if name in _WRAPPERS:
            yield from _content_elements(child)
        elif name == "AlternateContent":
            yield from (element for branch in child[:1] for element in _content_elements(branch))
        elif name not in _DELETED:
            yield child


def _is_passed_over(element: Any, name: str) -> bool:
    """Return whether an element is no text, hidden, or an alternative to text."""
    if name == "r":
        hidden = _find(element, "rPr", "vanish")
        return hidden is not None and _value(hidden) not in _OFF
    if name == "Fallback":
        return _has_text_choice(element)
    return name in _NO_TEXT or (name == "fldSimple" and is_of_page(_value(element, "instr")))


def _has_text_choice(fallback: Any) -> bool:
    """Return whether the alternative before this one has text."""
    choice = fallback.getprevious()
    return choice is not None and next(choice.iter("{*}t", "{*}textpath"), None) is not None


def _child(parent: Any, name: str) -> Any:
    """Return the first child of a name; None if there is none."""
    if parent is not None:
        for child in parent:
            if local_name(child) == name:
                return child
    return None


def _find(element: Any, first: str, second: str) -> Any:
    return _child(_child(element, first), second)


def _value(element: Any, name: str = "val") -> str:
    """Return an attribute of an element; empty if either is missing."""
    return "" if element is None else attribute(element, name)


def _chosen_entry(begin: Any) -> str:
    """Return the chosen entry of a drop-down list, which has no other result."""
    choices = _find(begin, "ffData", "ddList")
    if choices is None:
        return ""
    entries = [_value(entry) for entry in choices if local_name(entry) == "listEntry"]
    number = _value(_child(choices, "result")) or _value(_child(choices, "default")) or "0"
    return entries[int(number)] if number.isdecimal() and int(number) < len(entries) else ""


def _symbol(element: Any) -> str:
    """Return the character that a document names by its code in a font."""
    try:
        code = int(_value(element, "char"), 16)
    except ValueError:
        return ""
    if _value(element, "font") == "Symbol":
        return symbol(code)
    # Private characters of other fonts are drawings.
    return chr(code) if 0x20 <= code < 0xD800 else ""


def _read_styles(root: Any) -> dict[str, _WordStyle]:
    """Return the styles of paragraphs by id; a style inherits from the one that it is based on."""
    elements = {
        _value(style, "styleId"): style
        for style in (() if root is None else root)
        if local_name(style) == "style" and _value(style, "type") in ("paragraph", "")
    }
    return {id_: _read_style(id_, elements) for id_ in elements}


def _read_style(id_: str, elements: dict[str, Any]) -> _WordStyle:
    level: int | None = None
    is_title = is_list = False
    for step in range(_MOST_STYLES):
        element = elements.get(id_)
        if element is None:
            break
        name = _value(_child(element, "name")).lower()
        properties = _child(element, "pPr")
        number = _find(properties, "numPr", "numId")
        is_list = is_list or (number is not None and _value(number) != "0")
        if level is None:
            level = _outline_level(properties)
        if level is None:
            level = heading_level(name) or heading_level(id_) or None
        if name == "title" and level in (None, 1):
            level = 1
            is_title = True
        # "heading" is the style of Pages, and in LibreOffice a style that others are based on.
        if name == "heading" and not step and level is None:
            level = 1
        if level is None and name in _NO_HEADINGS:
            level = 0
        id_ = _value(_child(element, "basedOn"))
    return _WordStyle(level or 0, is_title, is_list)


def _outline_level(properties: Any) -> int | None:
    """Return the level in properties of a paragraph; 0 for text, None if there is no level."""
    value = _value(_child(properties, "outlineLvl"))
    if not value.isdecimal():
        return None
    return min(int(value) + 1, _HIGHEST_LEVEL) if int(value) < 9 else 0
