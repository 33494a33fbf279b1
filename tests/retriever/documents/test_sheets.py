"""Spreadsheets: rows with the names of their columns, and values as a person reads them."""

from __future__ import annotations

import time

import pytest

from retriever import SourceError
from retriever.documents.kinds import sheets
from retriever.documents.kinds.opendocument import read_opendocument
from retriever.documents.kinds.sheets import read_xlsx
from tests.retriever.documents.file_samples import OFFICE, PACKAGE, archive

pytest.importorskip("lxml")

MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
FORMATS = (
    '<numFmts><numFmt numFmtId="200" formatCode="[h]:mm"/>'
    '<numFmt numFmtId="201" formatCode="[Red]#,##0.00 &quot;days&quot;"/>'
    '<numFmt numFmtId="202" formatCode="[$-407]d. mmmm yyyy;@"/></numFmts><cellXfs>'
    + "".join(f'<xf numFmtId="{number}"/>' for number in (0, 14, 22, 20, 10, 200, 201, 202))
    + "</cellXfs>"
)


def xlsx(
    *contents: str,
    names: tuple[str, ...] = ("Boats", "Costs", "Notes"),
    states: tuple[str, ...] = (),
    strings: str = "",
    book: str = "",
) -> bytes:
    """A workbook whose sheets have these rows."""
    parts = {"styles": "styles.xml", "sharedStrings": "sharedStrings.xml"}
    rows = "".join(
        f'<Relationship Id="{kind}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for kind, target in parts.items()
    )
    listed = ""
    files = {}
    for number, content in enumerate(contents):
        state = f'state="{states[number]}"' if number < len(states) and states[number] else ""
        listed += f'<sheet name="{names[number]}" {state} r:id="r{number}"/>'
        rows += (
            f'<Relationship Id="r{number}" Type="{OFFICE}/worksheet" Target="/xl/s{number}.xml"/>'
        )
        files[f"xl/s{number}.xml"] = (
            f"<worksheet {MAIN}><sheetData>{content}</sheetData></worksheet>"
        )
    return archive(
        {
            "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"/>',
            "xl/workbook.xml": f'<workbook {MAIN} xmlns:r="{OFFICE}">{book}<sheets>{listed}'
            "</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": f"<Relationships>{rows}</Relationships>",
            "xl/styles.xml": f"<styleSheet {MAIN}>{FORMATS}</styleSheet>",
            "xl/sharedStrings.xml": f"<sst {MAIN}>{strings}</sst>",
            **files,
        }
    )


def row(*values: object, look: int = 0) -> str:
    """A row of words and numbers; None is a column without a cell."""
    cells = ""
    for column, value in zip("ABCDEFGH", values, strict=False):
        if isinstance(value, str):
            cells += f'<c r="{column}1" s="{look}" t="inlineStr"><is><t>{value}</t></is></c>'
        elif value is not None:
            cells += f'<c r="{column}1" s="{look}"><v>{value}</v></c>'
    return f"<row>{cells}</row>"


def test_a_sheet_is_a_section_and_a_row_has_the_names_of_its_columns():
    boats = row("Fleet") + row("Boat", "Year", "Port") + row("Walrus", 1998) + row(None, 7, "Oslo")
    parsed = read_xlsx(xlsx(boats, row("Paint", "48.5"), row()))
    assert parsed.text == (
        "Boats\n\nFleet\nBoat | Year | Port\nBoat: Walrus | Year: 1998\nYear: 7 | Port: Oslo\n\n"
        "Costs\n\nPaint | 48.5"
    )
    assert [(mark.label, mark.level) for mark in parsed.outline] == [("Boats", 1), ("Costs", 1)]


@pytest.mark.parametrize(
    ("rows", "last"),
    [
        # Keys and values, words of another look, and many words.
        (row("Rent", "monthly") + row("Water", "yearly"), "Water | yearly"),
        (row("Key", "Value", look=1) + row("Water", "yearly"), "Key: Water | Value: yearly"),
        (row("A", "B", "C") + row("x", "y", "z"), "A: x | B: y | C: z"),
        # No names: a gap, a number, one word twice.
        (row("A", None, "C") + row(1, 2, 3), "1 | 2 | 3"),
        (row("A", 2) + row("B", 3), "B | 3"),
        (row("A", "A") + row("B", 3), "B | 3"),
        # A second table below an empty row.
        (
            row("A", "B") + row("x", 1) + "<row r='9'/>" + row("C", "D") + row("y", 2),
            "C: y | D: 2",
        ),
    ],
)
def test_names_of_columns_are_told_by_what_is_below_them(rows, last):
    assert read_xlsx(xlsx(rows)).text.split("\n")[-1] == last


@pytest.mark.parametrize(
    ("look", "value", "text"),
    [
        (0, "48215", "48215"),
        (0, "3.3000000000000003", "3.3"),
        (0, "1E-3", "0.001"),
        (1, "45352", "2024-03-01"),
        (2, "45352.5", "2024-03-01 12:00"),
        (3, "0.75", "18:00"),
        (4, "0.0525", "5.25%"),
        (4, "0.07", "7%"),
        (4, "2166826.6770000001", "216682667.7%"),
        (5, "1.5", "36:00"),
        (6, "7", "7"),
        (7, "45352", "2024-03-01"),
        (1, "1", "1900-01-01"),
        (1, "0", "0"),
        (1, "1e300", "1e+300"),
        (1, "nan", "nan"),
        (5, "inf", "inf"),
        (9, "7", "7"),
    ],
)
def test_numbers_are_read_as_their_format_shows_them(look, value, text):
    cell = f'<row><c s="{look}"><v>{value}</v></c></row>'
    assert read_xlsx(xlsx(cell, names=("Sheet1",))).text == text


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        ("Rich_x000d_\nText", "Rich Text"),
        ("a_x0041_b", "aAb"),
        ("a_x005F_x0041_b", "a_x0041_b"),
        ("a_xD83D_b", "a_xD83D_b"),
        ("snake_xcode_", "snake_xcode_"),
    ],
)
def test_xlsx_characters_written_by_number_are_decoded(escaped, text):
    assert read_xlsx(xlsx(row(escaped))).text == text


def test_days_are_counted_from_1904_where_a_workbook_says_so():
    book = xlsx('<row><c s="1"><v>43890</v></c></row>', book='<workbookPr date1904="1"/>')
    assert read_xlsx(book).text.endswith("2024-03-01")
    late = xlsx('<row><c s="1"><v>2958400</v></c></row>', book='<workbookPr date1904="1"/>')
    assert read_xlsx(late).text.endswith("2958400")


def test_xlsx_cells_of_every_type_are_read():
    strings = (
        "<si><r><t>rich </t></r><r><t>text</t></r><rPh><t>reading</t></rPh></si><si><t>two</t></si>"
    )
    cells = (
        '<c t="s"><v>0</v></c><c t="s"><v>1</v></c><c t="s"><v>7</v></c><c t="b"><v>1</v></c>'
        '<c t="e"><v>#N/A</v></c><c t="str"><f>A1</f><v>made</v></c><c><f>1+1</f><v>2</v></c><c/>'
    )
    parsed = read_xlsx(xlsx(f"<row>{cells}</row>", names=("Tabelle 1",), strings=strings))
    assert parsed.text == "rich text | two | TRUE | #N/A | made | 2"
    assert parsed.outline == ()


def test_hidden_and_damaged_sheets_are_counted():
    content = xlsx(row("a"), row("b"), row("c") + "<row", states=("", "veryHidden", ""))
    parsed = read_xlsx(content)
    assert parsed.text == "Boats\n\na\n\nNotes\n\nc"
    assert [tuple(loss) for loss in parsed.losses] == [
        ("data", "hidden sheets: 1 of 3"),
        ("parts", "damaged sheets: Notes"),
    ]


def test_sheets_with_huge_declared_sizes_are_read_in_little_time():
    far = '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD9"><v>2</v></c></row>'
    started = time.monotonic()
    assert read_xlsx(xlsx(far)).text.endswith("1\n2")
    wide = '<row><c r="XFD1"><v>7</v></c></row>' * 20_000
    assert read_xlsx(xlsx(wide)).text.endswith("7\n7")
    cells = '<table:table-cell table:number-columns-repeated="9999999"/>'
    name = '<table:table-cell office:value-type="string"><text:p>x</text:p></table:table-cell>'
    repeated = name.replace("cell ", 'cell table:number-columns-repeated="999999999" ', 1)
    rows = f'<table:table-row table:number-rows-repeated="1048576">{cells}{name}{repeated}'
    content = open_sheet(f'<table:table table:name="A">{rows}</table:table-row></table:table>')
    assert read_opendocument(content).text.count("x") == 1001
    assert time.monotonic() - started < 20


def test_sheet_with_too_long_text_is_refused(monkeypatch):
    monkeypatch.setattr(sheets, "LONGEST", 10_000)
    cell = '<c t="s"><v>0</v></c>'
    content = xlsx(f"<row>{cell * 50}</row>" * 50, strings=f"<si><t>{'x' * 1000}</t></si>")
    with pytest.raises(SourceError, match="split it"):
        read_xlsx(content)


def open_sheet(content: str, styles: str = "") -> bytes:
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "text", "table", "style")
    )
    return (
        f'<?xml version="1.0"?><office:document {spaces}><office:automatic-styles>{styles}'
        f"</office:automatic-styles><office:body><office:spreadsheet>{content}"
        "</office:spreadsheet></office:body></office:document>"
    ).encode()


def test_opendocument_sheets_are_read_like_xlsx():
    def cell(text: str, more: str = "") -> str:
        return f"<table:table-cell {more}><text:p>{text}</text:p></table:table-cell>"

    rows = (
        ("Day", "Share", "Sum"),
        (
            cell("1.3.24", 'office:value-type="date" office:date-value="2024-03-01T10:30:00"'),
            cell("5,0 %", 'office:value-type="percentage" office:value="0.05"'),
            cell("1.200 €", 'office:value-type="currency" office:value="1200"'),
        ),
        (cell("yes", 'office:value-type="boolean" office:boolean-value="true"'),),
    )
    lines = "".join(
        "<table:table-row>"
        + "".join(
            content_ if content_.startswith("<") else cell(content_, 'office:value-type="string"')
            for content_ in cells
        )
        + "</table:table-row>"
        for cells in rows
    )
    hidden = (
        '<style:style style:name="h"><style:table-properties table:display="false"/></style:style>'
    )
    content = (
        f'<table:table table:name="Costs"><table:table-rows>{lines}</table:table-rows>'
        "</table:table>"
        f'<table:table table:name="Old" table:style-name="h">{lines}</table:table>'
    )
    parsed = read_opendocument(open_sheet(content, hidden))
    assert (parsed.title, parsed.text) == (
        "Costs",
        "Day | Share | Sum\nDay: 2024-03-01 10:30:00 | Share: 5% | Sum: 1200\nDay: yes",
    )
    assert [loss.detail for loss in parsed.losses] == ["hidden sheets: 1 of 2"]
