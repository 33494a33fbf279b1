"""Spreadsheets: a section per sheet, and a line per row with the names of its columns.

Rows are read one after the other, since a sheet may declare a million of them. A formula has the
value that the program that saved it computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from io import BytesIO
from itertools import chain
from math import isfinite
from typing import Any, NamedTuple

from retriever.documents.kinds import OutlinedText, Parsed, one_line
from retriever.documents.kinds.equations import local_name
from retriever.documents.kinds.zipped import Archive, Relation, relations, shape_text
from retriever.documents.losses import Loss
from retriever.documents.sources import LONGEST, TOO_LONG
from retriever.errors import SourceError

# Maximum length in characters of the name of a column.
_LONGEST_NAME = 80
# A default name of a sheet.
_DEFAULT_NAME = re.compile(r"[^\W\d_]+ ?\d+")
# Numbers of built-in formats of dates and times, and of percents.
_DATES = frozenset((*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)))
_PERCENT = frozenset((9, 10))
# A character that XML cannot hold, by its hexadecimal number.
_ESCAPED_CHARACTER = re.compile("_x([0-9A-Fa-f]{4})_")
# Parts of a format that are no code: texts, colors, conditions and escaped characters.
_NO_CODE = re.compile(r'"[^"]*"|\[(?!h+\]|m+\]|s+\])[^\]]*\]|\\.|_.|\*.', re.IGNORECASE)
# Number of days to the end of the year 9999, counted from 1904.
_LAST_DAY = 2_957_003


class Cell(NamedTuple):
    """A cell that is not empty: its column, its visible text, and an identifier of its style."""

    column: int
    text: str
    style: str
    is_word: bool = True


# The cells of a row by ascending columns; a row may have only one, in the last column.
Row = list[Cell]


class Sheet(NamedTuple):
    """A sheet: its name, its rows, and the text of drawings over it."""

    name: str
    rows: Iterable[Row]
    drawn: str = ""


def read_xlsx(content: bytes) -> Parsed:
    """Return the visible sheets of a workbook."""
    archive = Archive(content, "XLSX")
    book = _Workbook(archive)
    text = write_sheets(book.sheets())
    title, metadata = archive.properties()
    return text.parsed(None, metadata, title)._replace(losses=book.losses())


def write_sheets(sheets: Iterable[Sheet]) -> OutlinedText:
    """Return the sheets that are not empty, as sections by their names."""
    text = OutlinedText()
    sections = [(sheet, _row_lines(sheet.rows)) for sheet in sheets]
    begun = [(sheet, next(lines, ""), lines) for sheet, lines in sections]
    filled = [(sheet, first, lines) for sheet, first, lines in begun if first or sheet.drawn]
    for sheet, first, lines in filled:
        # The default name of an only sheet is left out.
        if len(filled) > 1 or not _DEFAULT_NAME.fullmatch(sheet.name):
            text.mark("heading", one_line(sheet.name), 1)
            text.add(one_line(sheet.name))
        before = "\n\n"
        for line in chain([first], lines):
            text.add(line, before)
            before = "\n"
            if len(text) > LONGEST:
                raise SourceError(TOO_LONG)
        text.add(sheet.drawn)
    return text


def _row_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Yield rows as lines; below a header, each value has the name of its column."""
    names: dict[int, str] = {}
    candidate: Row = []
    # Whether a table may begin: at the first row, and below rows that are no header.
    is_open = True
    for row in rows:
        if not row:
            is_open = True
            candidate = []
            continue
        if candidate and _is_header(candidate, row):
            names = {cell.column: cell.text for cell in candidate}
            is_open = False
        candidate = row if is_open and _may_be_header(row) else []
        if candidate or not names:
            yield " | ".join(cell.text for cell in row)
        else:
            yield " | ".join(
                f"{names[cell.column]}: {cell.text}" if cell.column in names else cell.text
                for cell in row
            )


def _may_be_header(row: Row) -> bool:
    """Return whether a row has only words, all different, in adjacent columns."""
    return (
        len(row) > 1
        and row[-1].column - row[0].column == len(row) - 1
        and all(cell.is_word and len(cell.text) <= _LONGEST_NAME for cell in row)
        and len({cell.text for cell in row}) == len(row)
    )


def _is_header(names: Row, row: Row) -> bool:
    """Return whether a row of words is a header, by its style and the values of the row below.

    Two columns of words are often keys and values; more columns have a header.
    """
    header_styles = {cell.column: cell.style for cell in names}
    cells = [cell for cell in row if cell.column in header_styles]
    return (
        len(cells) > 2
        or any(not cell.is_word for cell in cells)
        or (bool(cells) and all(cell.style != header_styles[cell.column] for cell in cells))
    )


class _Workbook:
    """The parts of a workbook that its sheets share."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        path = "xl/workbook.xml"
        for relation in relations(archive, "").values():
            if relation.kind == "officeDocument":
                path = relation.target
        root = archive.xml(path)
        self._relations = relations(archive, path)
        sheets = [element for element in root.iter() if local_name(element) == "sheet"]
        self.visible = [sheet for sheet in sheets if sheet.get("state", "visible") == "visible"]
        self._hidden = len(sheets) - len(self.visible)
        self._damaged: list[str] = []
        dates = next(iter(root.xpath("//*[local-name()='workbookPr']/@date1904")), "0")
        self._first_day = datetime(1904, 1, 1) if dates in ("1", "true") else datetime(1899, 12, 30)
        self._strings = [_shared_string(string) for string in self._elements("sharedStrings", "si")]
        self._formats = self._read_formats()

    def losses(self) -> tuple[Loss, ...]:
        """Return hidden sheets, and sheets that end too early."""
        total = self._hidden + len(self.visible)
        losses = []
        if self._hidden:
            losses.append(Loss("data", f"hidden sheets: {self._hidden} of {total}"))
        if self._damaged:
            names = ", ".join(self._damaged)
            losses.append(Loss("parts", f"damaged sheets: {names:.200}"))
        return tuple(losses)

    def sheets(self) -> Iterator[Sheet]:
        """Yield the visible sheets, whose rows can be read once."""
        for sheet in self.visible:
            name = sheet.get("name", "")
            ids = [value for key, value in sheet.attrib.items() if key.endswith("}id")]
            relation = self._relations.get(ids[0] if ids else "")
            if relation is None or relation.target not in self._archive:
                self._damaged.append(name)
            elif relation.kind == "worksheet":
                yield Sheet(name, self._rows(name, relation), self._drawing_text(relation))

    def _drawing_text(self, sheet: Relation) -> str:
        """Return the text of boxes over a sheet."""
        drawings = [
            relation.target
            for relation in relations(self._archive, sheet.target).values()
            if relation.kind == "drawing" and relation.target in self._archive
        ]
        shapes = (
            shape
            for drawing in drawings
            for shape in self._archive.xml(drawing).xpath("//*[local-name()='txBody']")
        )
        return "\n".join(filter(None, map(shape_text, shapes)))

    def _rows(self, name: str, sheet: Relation) -> Iterator[Row]:
        try:
            last = 0
            for element in _stream_elements(self._archive.read(sheet.target), "row"):
                number = element.get("r", "")
                last += 1
                if number.isdecimal() and int(number) != last:
                    last = int(number)
                    yield []
                yield list(self._cells(element))
        except SyntaxError:
            self._damaged.append(name)

    def _cells(self, row: Any) -> Iterator[Cell]:
        column = -1
        for element in row:
            # Columns are counted where a cell does not name its own.
            column = _column_number(element.get("r", ""), column + 1)
            look = element.get("s", "0")
            text, is_word = self._cell_text(element, look)
            if text:
                yield Cell(column, text, look, is_word)

    def _cell_text(self, cell: Any, look: str) -> tuple[str, bool]:
        """Return the text that a cell shows, and whether it is a word."""
        kind = cell.get("t", "n")
        if kind == "inlineStr":
            return _shared_string(cell), True
        value = ""
        for child in cell:
            if child.tag.endswith("}v"):
                value = (child.text or "").strip()
        if not value:
            return "", True
        if kind == "s":
            number = int(value) if value.isdecimal() else len(self._strings)
            return (self._strings[number] if number < len(self._strings) else ""), True
        if kind == "n":
            return self._format_number(value, look), False
        if kind == "b":
            return ("FALSE" if value == "0" else "TRUE"), False
        return _string_line(value), kind == "str"

    def _format_number(self, value: str, look: str) -> str:
        """Return a number in its format: as a date, a time, percent, or as it is."""
        try:
            number = float(value)
        except ValueError:
            return one_line(value)
        if not isfinite(number):
            return one_line(value)
        code = self._formats.get(look, "")
        if code == "%":
            return f"{number * 100:.12g}%"
        if code == "[]":
            minutes = round(number * 24 * 60)
            return f"{minutes // 60}:{minutes % 60:02}"
        if code and 0 <= number < _LAST_DAY:
            return self._format_moment(number, code)
        return f"{number:.15g}"

    def _format_moment(self, number: float, code: str) -> str:
        # 1900 was no leap year, but Lotus 1-2-3 and Excel treat it as one.
        is_early = number < 60 and self._first_day.year == 1899
        moment = self._first_day + timedelta(days=number + is_early, milliseconds=500)
        if number < 1:
            # A time without a day; a day zero is often an empty cell.
            is_time = "h" in code or "s" in code
            return f"{moment:%H:%M:%S}".removesuffix(":00") if is_time else f"{number:.15g}"
        is_day = moment.hour == moment.minute == moment.second == 0
        return f"{moment:%Y-%m-%d}" if is_day else f"{moment:%Y-%m-%d %H:%M:%S}".removesuffix(":00")

    def _read_formats(self) -> dict[str, str]:
        """Return the code of date formats (`[]` for durations) and percents, by style."""
        codes = {
            str(number): "%" if number in _PERCENT else "h" if number in (18, 19, 20, 21) else "d"
            for number in _DATES | _PERCENT
        }
        codes["46"] = "[]"
        formats: dict[str, str] = {}
        for styles in self._elements("styles", "numFmts", "cellXfs"):
            for number, element in enumerate(styles):
                if local_name(styles) == "cellXfs":
                    formats[str(number)] = codes.get(element.get("numFmtId", ""), "")
                else:
                    codes[element.get("numFmtId", "")] = _format_code(element.get("formatCode", ""))
        return formats

    def _elements(self, kind: str, *names: str) -> Iterator[Any]:
        """Yield elements of the only part of a kind."""
        for relation in self._relations.values():
            if relation.kind == kind and relation.target in self._archive:
                try:
                    yield from _stream_elements(self._archive.read(relation.target), *names)
                except SyntaxError:
                    self._damaged.append(relation.target)
                return


def _format_code(code: str) -> str:
    """Return "%" for percent, "[]" for a duration, the code of a date, or an empty string."""
    # The part after the first semicolon is for negative numbers.
    code = _NO_CODE.sub("", code.lower()).partition(";")[0]
    if "%" in code:
        return "%"
    if "[" in code:
        return "[]"
    return code if code != "general" and re.search("[ymdhs]", code) else ""


def _stream_elements(content: bytes, *names: str) -> Iterator[Any]:
    """Yield elements of a part, each of which is removed when the next one is read."""
    from lxml import etree

    if b"<!ENTITY" in content:
        raise SourceError("declares XML entities, which are not expanded")
    tags = [f"{{*}}{name}" for name in names]
    parser = etree.iterparse(BytesIO(content), tag=tags, resolve_entities=False, no_network=True)
    for _, element in parser:
        yield element
        element.clear()
        while element.getprevious() is not None:
            del element.getparent()[0]


def _shared_string(element: Any) -> str:
    """Return the text of a string, without phonetic readings."""
    return _string_line(
        "".join(
            text.text or ""
            for text in element.iter("{*}t")
            if not text.getparent().tag.endswith("}rPh")
        )
    )


def _string_line(text: str) -> str:
    """Return a string as one line, with the characters that it writes as `_x000D_`."""
    return one_line(_ESCAPED_CHARACTER.sub(_escaped_character, text))


def _escaped_character(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    # Half of a surrogate pair is no character.
    is_half = "\ud800" <= character <= "\udfff"
    return escape[0] if is_half else character if character >= " " else " "


def _column_number(reference: str, default: int) -> int:
    """Return the number, from 0 on, of the column of a cell such as AB12."""
    number = 0
    # The last column is XFD.
    for letter in reference[:3]:
        if not "A" <= letter <= "Z":
            break
        number = number * 26 + ord(letter) - 64
    return number - 1 if number else default
