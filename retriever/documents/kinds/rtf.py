"""Rich Text Format: the visible text, read in one pass over control words, groups and bytes."""

from __future__ import annotations

import codecs
import re
from copy import copy

from retriever.documents.kinds import OutlinedText, Parsed, nonempty_metadata, one_line
from retriever.documents.kinds.docx import TextBlock, heading_level, is_of_page, row_blocks
from retriever.documents.kinds.equations import symbol
from retriever.errors import SourceError

_TOKEN = re.compile(
    r"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?[0-9]{1,10})? ?"
    r"|\\'(?P<byte>[0-9a-fA-F]{2})|\\(?P<sign>.)|(?P<brace>[{}])|[\r\n]+|(?P<text>[^\\{}\r\n]+)",
    re.DOTALL,
)
# Groups without visible text, besides those that begin with a star.
_HIDDEN = frozenset(
    ("colortbl", "pict", "objdata", "objclass", "nonshppict", "shprslt", "upr", "xe", "tc", "rxe")
) | {"annotation", "filetbl", "listtable", "revtbl", "sp", "nonesttables"}
# Groups with a star that are read.
_SHOWN = frozenset(("shpinst", "fldinst", "footnote"))
_MARGIN_GROUPS = frozenset(
    ("header", "headerl", "headerr", "headerf", "footer", "footerl", "footerr", "footerf")
)
_TABLES = frozenset(("fonttbl", "stylesheet", "info"))
_PROPERTIES = ("title", "author", "keywords")
_CHARACTERS = {
    "tab": "\t",
    "line": "\n",
    "emdash": "—",
    "endash": "–",
    "bullet": "•",
    "lquote": "‘",
    "rquote": "’",
    "ldblquote": "“",
    "rdblquote": "”",
    "emspace": " ",
    "enspace": " ",
    "qmspace": " ",
    "nestcell": " | ",
}
_SIGNS = {"~": " ", "_": "\u2011", "\\": "\\", "{": "{", "}": "}", "\t": "\t"}
_PARAGRAPH_ENDS = frozenset(("par", "sect", "page", "column", "nestrow"))
# Encodings of fonts by their character sets; 2 is the set of symbol fonts.
_CHARSETS = {
    0: "cp1252",
    77: "mac_roman",
    128: "cp932",
    129: "cp949",
    130: "johab",
    134: "gbk",
    136: "cp950",
    161: "cp1253",
    162: "cp1254",
    163: "cp1258",
    177: "cp1255",
    178: "cp1256",
    186: "cp1257",
    204: "cp1251",
    222: "cp874",
    238: "cp1250",
    255: "cp437",
}
_SYMBOL_CHARSET = 2
_SYMBOLS = "symbols"
_NO_FONT = -1
_PAGES = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}
_HIGHEST_LEVEL = 6
# The outline level of plain text, counted from 1.
_TEXT_LEVEL = 10
# Maximum depth of styles that are based on one another.
_MOST_STYLES = 20


def read_rtf(content: bytes) -> Parsed:
    """Return the paragraphs, tables, notes, headers and footers of a document in RTF."""
    if not content.lstrip().startswith(b"{\\rtf"):
        raise SourceError("no RTF file: expected {\\rtf as its first characters; rename it")
    reader = _RtfReader(content.decode("latin-1"))
    reader.read()
    text = OutlinedText()
    for block in reader.body.finish():
        if block.level:
            text.mark("heading", one_line(block.text), block.level)
        text.add(block.text, block.before)
    for number, note in enumerate(reader.notes, 1):
        text.add(f"[{number}] {note.words()}", "\n" if number > 1 else "\n\n")
    lines = (block.text for margin in reader.margins for block in margin.finish())
    for line in dict.fromkeys(lines):
        text.add(line)
    values = {name: target.words() for name, target in reader.properties.items()}
    metadata = nonempty_metadata(
        author=values["author"],
        date=reader.date(),
        created=reader.date(),
        keywords=values["keywords"],
    )
    return text.parsed(None, metadata, values["title"])


class _Destination:
    """The destination of text: a growing paragraph, cells of a row, and finished blocks."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._cell: list[TextBlock] = []
        self._cells: list[list[TextBlock]] = []
        self._blocks: list[TextBlock] = []
        self._after_row = False

    def end_paragraph(self, level: int = 0, in_cell: bool = False) -> None:
        """Make a block of the text since the last one."""
        text = "".join(self.pieces)
        self.pieces.clear()
        text = "\n".join(" ".join(line.split()) for line in text.split("\n")).strip()
        if not text:
            return
        block = TextBlock(one_line(text), level=level) if level else TextBlock(text)
        if in_cell:
            self._cell.append(block)
        else:
            self._blocks.append(block)
            self._after_row = False

    def end_cell(self, level: int) -> None:
        """End a cell of a row."""
        self.end_paragraph(level, in_cell=True)
        self._cells.append(self._cell)
        self._cell = []

    def end_row(self) -> None:
        """Make a block of the cells since the last row."""
        if self._cell:
            self.end_cell(0)
        self._blocks += row_blocks(self._cells, "\n" if self._after_row else "\n\n")
        self._cells = []
        self._after_row = True

    def finish(self) -> list[TextBlock]:
        """End the open row and paragraph, and return all blocks."""
        if self._cells or self._cell:
            self.end_row()
        self.end_paragraph()
        return self._blocks

    def add(self, blocks: list[TextBlock]) -> None:
        """Add the blocks of a text box."""
        self._blocks += blocks

    def words(self) -> str:
        """Return the text of all blocks on one line."""
        return one_line(" ".join(block.text for block in self.finish()))


class _GroupState:
    """The state of a group; the end of the group restores the previous state."""

    def __init__(self, target: _Destination) -> None:
        self.target = target
        # The control word at the beginning of the group, if it defines the group's type.
        self.name = ""
        self.is_skipped = False
        self.is_hidden = False
        self.is_deleted = False
        self.font: int | None = None
        # Number of characters after a Unicode character that replace it in old programs.
        self.substitutes = 1
        self.style = 0
        self.level: int | None = None
        self.in_cell = False
        # Whether the field in this group shows the number of a page.
        self.is_page_field = False

    def format(self, word: str, number: int | None) -> None:
        """Set the properties of the text after a control word."""
        if word == "v":
            self.is_hidden = number != 0
        elif word == "deleted":
            self.is_deleted = number != 0
        elif word == "plain":
            self.is_hidden = False
            self.is_deleted = False
            self.font = None
        elif word == "pard":
            self.style = 0
            self.level = None
            self.in_cell = False
        elif word == "intbl":
            self.in_cell = True
        elif word == "s":
            self.style = number or 0
        elif word == "outlinelevel":
            self.level = (number or 0) + 1
        elif word == "f":
            self.font = number
        elif word == "uc":
            self.substitutes = max(number or 0, 0)


class _RtfReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self.body = _Destination()
        self.notes: list[_Destination] = []
        self.margins: list[_Destination] = []
        self.properties = {name: _Destination() for name in _PROPERTIES}
        self._date = dict.fromkeys(("yr", "mo", "dy"), 0)
        self._group = _GroupState(self.body)
        self._groups: list[_GroupState] = []
        # Whether nothing of the group was read yet, or only a star.
        self._is_first = False
        self._is_starred = False
        self._encoding = "cp1252"
        # Encodings of fonts by their numbers, and the font that is being described.
        self._fonts: dict[int, str] = {}
        self._symbol_fonts: set[int] = set()
        self._described_font = 0
        self._default_font = 0
        self._levels: dict[int, int | None] = {}
        self._bases: dict[int, int] = {}
        # Bytes that wait to be decoded, since a character may have several.
        self._bytes = bytearray()
        # The first half of a surrogate pair, and the number of substitutes to skip.
        self._half = 0
        self._skip = 0

    def date(self) -> str:
        """Return the day on which the document was created; empty if unknown."""
        year, month, day = self._date.values()
        return f"{year:04}-{month:02}-{day:02}" if year and month and day else ""

    def read(self) -> None:
        """Read the whole text."""
        place = 0
        while (token := _TOKEN.match(self._text, place)) is not None:
            place = token.end()
            kind = token.lastgroup
            if kind == "text":
                self._add_bytes(token[0].encode("latin-1"))
            elif kind == "byte":
                self._add_bytes(bytes.fromhex(token["byte"]))
            elif kind == "brace" and token[0] == "{":
                self._open_group()
            elif kind == "brace":
                self._close_group()
            elif kind == "sign":
                self._read_sign(token["sign"])
            elif kind is not None:
                number = int(token["number"]) if token["number"] else None
                if token["word"] == "bin":
                    place += max(number or 0, 0)
                else:
                    self._read_word(token["word"], number)
        self._flush()

    def _open_group(self) -> None:
        self._flush()
        self._skip = 0
        self._groups.append(self._group)
        self._group = copy(self._group)
        self._group.name = ""
        self._is_first = True
        self._is_starred = False

    def _close_group(self) -> None:
        self._flush()
        self._skip = 0
        self._is_first = False
        if not self._groups:
            return
        group = self._group
        self._group = self._groups.pop()
        if group.name == "fldinst":
            self._group.is_page_field = is_of_page(group.target.words())
        elif group.name == "style":
            name = group.target.words().rstrip("; ")
            self._levels[group.style] = group.level or heading_level(name) or None
        elif group.name == "shptxt":
            self._group.target.add(group.target.finish())

    def _read_sign(self, sign: str) -> None:
        if sign == "*":
            self._is_starred = self._is_first
            return
        self._is_first = False
        if sign in "\r\n":
            self._flush()
            self._end_paragraph()
        elif sign in _SIGNS:
            self._add_text(_SIGNS[sign])

    def _read_word(self, word: str, number: int | None) -> None:
        if word == "u":
            self._is_first = False
            self._add_unicode((number or 0) & 0xFFFF)
            return
        if self._skip:
            self._skip -= 1
            return
        self._flush()
        if self._is_first:
            self._is_first = False
            self._begin_group(word)
        group = self._group
        if group.name in ("fonttbl", "font"):
            self._describe_font(word, number or 0)
        elif group.name == "creatim" and word in self._date:
            self._date[word] = min(max(number or 0, 0), 9999)
        elif word == "nestrow":
            group.target.end_paragraph(in_cell=True)
        elif not group.is_skipped:
            self._apply_word(word, number)

    def _begin_group(self, word: str) -> None:
        """Begin a group by its first control word."""
        group = self._group
        parent = self._groups[-1]
        if parent.name in _TABLES:
            self._begin_entry(word, parent.name)
        elif word in ("ud", "shptxt") and parent.name in ("upr", "shpinst", ""):
            group.name = word
            group.is_skipped = False
            group.target = _Destination() if word == "shptxt" else group.target
        elif group.is_skipped:
            pass
        elif word in _TABLES or word in _HIDDEN or (self._is_starred and word not in _SHOWN):
            group.name = word
            group.is_skipped = True
        elif word == "fldinst":
            group.name = word
            group.target = _Destination()
        elif word == "fldrslt":
            group.is_skipped = parent.is_page_field
        elif word == "footnote":
            group.target = _Destination()
            self.notes.append(group.target)
            parent.target.pieces.append(f"[{len(self.notes)}]")
        elif word in _MARGIN_GROUPS:
            group.target = _Destination()
            self.margins.append(group.target)

    def _begin_entry(self, word: str, table: str) -> None:
        """Begin a font, a style or a property of the document."""
        group = self._group
        if table == "fonttbl":
            group.name = "font"
        elif table == "stylesheet":
            group.name = "style"
            group.style = 0
            group.level = None
            group.target = _Destination()
            group.is_skipped = False
        else:
            group.name = word
            group.target = self.properties.get(word, group.target)
            group.is_skipped = word not in self.properties
            group.font = _NO_FONT

    def _describe_font(self, word: str, number: int) -> None:
        if word == "f":
            self._described_font = number
        elif word == "fcharset" and number == _SYMBOL_CHARSET:
            self._fonts[self._described_font] = _SYMBOLS
        elif word == "fcharset" and number in _CHARSETS:
            self._fonts.setdefault(self._described_font, _CHARSETS[number])
        elif word == "cpg":
            self._fonts[self._described_font] = _code_page_encoding(number)

    def _apply_word(self, word: str, number: int | None) -> None:
        """Apply a control word to the text before or after it."""
        if word in _CHARACTERS:
            self._add_text(_CHARACTERS[word])
        elif word in _PARAGRAPH_ENDS:
            self._end_paragraph()
        elif word == "cell":
            self._group.target.end_cell(self._heading_level())
        elif word == "row":
            self._group.target.end_row()
        elif word == "sbasedon":
            self._bases[self._group.style] = number or 0
        elif word == "deff":
            self._default_font = number or 0
        elif word == "ansicpg":
            self._encoding = _code_page_encoding(number or 0)
        elif word in _PAGES:
            self._encoding = _PAGES[word]
        else:
            self._group.format(word, number)

    def _heading_level(self) -> int:
        """Return the level of a heading by the paragraph, its style or a parent style; else 0."""
        level = self._group.level
        style = self._group.style
        for _ in range(_MOST_STYLES):
            if level is not None:
                break
            level = self._levels.get(style)
            style = self._bases.get(style, style)
        return min(level, _HIGHEST_LEVEL) if level is not None and level < _TEXT_LEVEL else 0

    def _end_paragraph(self) -> None:
        group = self._group
        if not group.is_skipped:
            group.target.end_paragraph(self._heading_level(), group.in_cell)

    def _add_text(self, text: str) -> None:
        group = self._group
        if self._skip:
            self._skip -= 1
        elif not (group.is_skipped or group.is_hidden or group.is_deleted):
            self._flush()
            group.target.pieces.append(text)

    def _add_bytes(self, content: bytes) -> None:
        self._is_first = False
        group = self._group
        if group.name in ("font", "fonttbl"):
            if b"symbol" in content.lower():
                self._symbol_fonts.add(self._described_font)
            return
        skipped = min(self._skip, len(content))
        self._skip -= skipped
        if not (group.is_skipped or group.is_hidden or group.is_deleted):
            # Outlook ends the text with a NUL.
            self._bytes += content[skipped:].replace(b"\0", b"")

    def _add_unicode(self, code: int) -> None:
        """Add a character, which may come in two halves; substitutes follow."""
        self._flush()
        self._skip = 0
        if 0xDC00 <= code < 0xE000 and self._half:
            self._add_text(chr(0x10000 + ((self._half - 0xD800) << 10) + code - 0xDC00))
        elif code and not 0xD800 <= code < 0xE000:
            # Word puts the characters of the font Symbol into an area for private use.
            is_symbol = 0xF000 <= code < 0xF100 and self._current_font() in self._symbol_fonts
            self._add_text(symbol(code) if is_symbol else chr(code))
        self._half = code if 0xD800 <= code < 0xDC00 else 0
        self._skip = self._group.substitutes

    def _current_font(self) -> int:
        return self._default_font if self._group.font is None else self._group.font

    def _flush(self) -> None:
        """Decode the bytes since the last character of another form."""
        if not self._bytes:
            return
        font = self._current_font()
        encoding = self._fonts.get(font, self._encoding)
        if encoding != _SYMBOLS:
            text = self._bytes.decode(encoding, "replace")
        else:
            # Characters of other symbol fonts are drawings.
            text = "".join(map(symbol, self._bytes)) if font in self._symbol_fonts else ""
        self._bytes.clear()
        self._group.target.pieces.append(text)


def _code_page_encoding(page: int) -> str:
    """Return the encoding of a code page; that of Western Europe if it is unknown."""
    names = {65001: "utf-8", 10000: "mac_roman", 1361: "johab", 936: "gbk"}
    try:
        return codecs.lookup(names.get(page, f"cp{page}")).name
    except LookupError:
        return "cp1252"
