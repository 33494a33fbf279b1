"""Word documents as programs and people make them: what is seen is text, and nothing else."""

from __future__ import annotations

import time
from io import BytesIO
from zipfile import ZipFile

import pytest

from tests.retriever.documents.file_samples import OFFICE, PACKAGE, WORD, archive

pytest.importorskip("lxml")

from retriever.documents.kinds.docx import read_docx

SPACES = (
    f'xmlns:w="{WORD}" xmlns:r="{OFFICE}" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:c="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:v="urn:schemas-microsoft-com:vml"'
)


def docx(body: str, styles: str = "", core: str = "", **parts: str) -> bytes:
    """A document whose parts have the id and the kind of their names, less digits."""
    rows = "".join(
        f'<Relationship Id="{name}" Target="{name}.xml" Type="{OFFICE}/{name.rstrip("1234")}"/>'
        for name in ("styles", *parts)
    )
    files = {
        f"word/{name}.xml": f"<w:{name} {SPACES}>{content}</w:{name}>"
        for name, content in parts.items()
        if content
    }
    return archive(
        {
            "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="a" '
            f'Type="{OFFICE}/officeDocument" Target="/word/document2.xml"/></Relationships>',
            "word/_rels/document2.xml.rels": f"<Relationships>{rows}</Relationships>",
            "word/document2.xml": f"<w:document {SPACES}><w:body>{body}</w:body></w:document>",
            "word/styles.xml": f"<w:styles {SPACES}>{styles}</w:styles>",
            **files,
        }
    )


def run(text: str, properties: str = "") -> str:
    return f"<w:r><w:rPr>{properties}</w:rPr><w:t>{text}</w:t></w:r>"


def paragraph(text: str, properties: str = "") -> str:
    inner = text if text.startswith("<") else run(text)
    return f"<w:p><w:pPr>{properties}</w:pPr>{inner}</w:p>"


def style(id_: str, name: str, base: str = "", properties: str = "") -> str:
    based = f'<w:basedOn w:val="{base}"/>' if base else ""
    return (
        f'<w:style w:type="paragraph" w:styleId="{id_}"><w:name w:val="{name}"/>{based}'
        f"<w:pPr>{properties}</w:pPr></w:style>"
    )


def field(instruction: str, result: str = "") -> str:
    marks = [f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("separate", "end")]
    begin = marks[0] + run(result) if result else ""
    code = (
        instruction
        if "<" in instruction
        else f"<w:r><w:instrText>{instruction}</w:instrText></w:r>"
    )
    return f'<w:r><w:fldChar w:fldCharType="begin"/></w:r>{code}{begin}{marks[1]}'


LIST = "".join(f'<w:listEntry w:val="{name}"/>' for name in ("oak", "elm"))
INLINE = {
    '<w:fldSimple w:instr=" MERGEFIELD Town ">' + run("Lund") + "</w:fldSimple>": "Lund",
    field("REF x", "Lund"): "Lund",
    # What stands in an instruction is seen only by its result.
    field(field("MERGEFIELD x", "hidden"), "Lund"): "Lund",
    field("PAGE", "7"): "",
    '<w:fldSimple w:instr="NUMPAGES">' + run("7") + "</w:fldSimple>": "",
    # A field that never ends hides nothing.
    '<w:r><w:fldChar w:fldCharType="begin"/></w:r>' + run("Lund"): "Lund",
    '<w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:ddList><w:result w:val="1"/>'
    f'{LIST}</w:ddList></w:ffData></w:fldChar><w:fldChar w:fldCharType="end"/></w:r>': "elm",
    "<w:r><w:ruby><w:rt>"
    + run("とう")
    + "</w:rt><w:rubyBase>"
    + run("東")
    + "</w:rubyBase></w:ruby>"
    "<w:ruby><w:rt>"
    + run("きょう")
    + "</w:rt><w:rubyBase>"
    + run("京")
    + "</w:rubyBase></w:ruby></w:r>"
    + run("へ"): "東京へ (とう, きょう)",
    f"<w:ins>{run('in')}</w:ins><w:del>{run('out')}</w:del>": "in",
    f"<w:moveTo>{run('in')}</w:moveTo><w:moveFrom>{run('out')}</w:moveFrom>": "in",
    f"<w:sdt><w:sdtPr/><w:sdtContent>{run('in')}</w:sdtContent></w:sdt>": "in",
    f'<w:hyperlink r:id="none">{run("a link")}</w:hyperlink>': "a link",
    run("hidden", "<w:vanish/>") + run("seen", '<w:vanish w:val="0"/>'): "seen",
    "<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t></w:r>": "a b\nc",
    '<w:r><w:sym w:font="Symbol" w:char="F06D"/><w:t>m</w:t></w:r>': "μm",
    '<w:r><w:sym w:font="Webdings" w:char="F0FC"/><w:sym w:font="Arial" w:char="20AC"/></w:r>': "€",
    "<w:r><c:AlternateContent><c:Choice>"
    f"<w:txbxContent>{paragraph('boxed')}</w:txbxContent></c:Choice><c:Fallback>"
    f"<w:txbxContent>{paragraph('boxed')}</w:txbxContent></c:Fallback></c:AlternateContent></w:r>"
    + run("beside"): "beside\n\nboxed",
    '<w:r><w:pict><v:textpath string="Draft"/></w:pict></w:r>': "Draft",
    '<w:r><w:footnoteReference w:id="9"/></w:r>' + run("alone"): "alone",
}


@pytest.mark.parametrize("inline", INLINE)
def test_docx_text_is_visible_text_of_paragraphs(inline):
    assert read_docx(docx(paragraph(inline))).text == INLINE[inline]


OMML = {
    "<m:f><m:num><m:r><m:t>way</m:t></m:r></m:num><m:den><m:r><m:t>a+b</m:t></m:r></m:den></m:f>": (
        "way/(a+b)"
    ),
    "<m:sSup><m:sSupPr/><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup>"
    "</m:sSup>": "x^2",
    "<m:sSub><m:e><m:r><m:t>v</m:t></m:r></m:e><m:sub><m:r><m:t>max</m:t></m:r></m:sub></m:sSub>": (
        "v max"
    ),
    '<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub><m:r><m:t>i</m:t></m:r></m:sub>'
    "<m:e><m:r><m:t>k</m:t></m:r></m:e></m:nary>": "∑ i k",
    '<m:d><m:dPr><m:begChr m:val="["/></m:dPr><m:e><m:r><m:t>k</m:t></m:r></m:e></m:d>': "[k)",
    "<m:rad><m:deg/><m:e><m:r><m:t>mass</m:t></m:r></m:e></m:rad>": "√mass",
}


@pytest.mark.parametrize("equation", OMML)
def test_the_letters_of_an_equation_stand_in_their_place(equation):
    body = paragraph(run("is ") + f"<m:oMathPara><m:oMath>{equation}</m:oMath></m:oMathPara>")
    assert read_docx(docx(body)).text == f"is {OMML[equation]}"


def test_docx_style_is_heading_by_name_outline_level_or_base_style():
    def styled(name: str, more: str = "") -> str:
        return paragraph(name, f'<w:pStyle w:val="{name}"/>{more}')

    def level(number: int) -> str:
        return f'<w:outlineLvl w:val="{number}"/>'

    styles = (
        style("H1", "heading 1")
        + style("H8", "Heading 8")
        + style("Mine", "Chapter", "H1")
        + style("Deep", "Clause", "Mine", level(2))
        + style("Plain", "Not", "H1", level(9))
        + style("Base", "Heading")
        + style("Sub", "Subtitle", "Base")
        + style("Loop", "Loop", "Loop2")
        + style("Loop2", "Loop", "Loop")
    )
    names = ("H1", "H8", "Mine", "Deep", "Plain", "Base", "Sub", "Loop", "Heading3", "Gone")
    body = "".join(map(styled, names)) + styled("Sub", level(4)) + styled("H1", level(9))
    parsed = read_docx(docx(body, styles))
    assert [(mark.label, mark.level) for mark in parsed.outline] == [
        ("H1", 1),
        ("H8", 6),
        ("Mine", 1),
        ("Deep", 3),
        ("Base", 1),
        ("Heading3", 3),
        ("Sub", 5),
    ]
    assert parsed.text.split("\n\n") == [*names, "Sub", "H1"]


def test_a_paragraph_of_the_style_title_is_the_title():
    body = paragraph("On bees", '<w:pStyle w:val="T"/>') + paragraph("A", '<w:pStyle w:val="H"/>')
    parsed = read_docx(docx(body, style("T", "Title") + style("H", "heading 1")))
    assert (parsed.title, parsed.text) == ("On bees", "On bees\n\nA")


def test_headers_and_footers_are_read_once_and_after_the_text():
    reference = "".join(
        f'<w:{kind}Reference w:type="{type_}" r:id="{id_}"/>'
        for kind, type_, id_ in (
            ("footer", "default", "footer1"),
            ("header", "first", "header1"),
            ("header", "default", "header2"),
            ("header", "even", "header3"),
            ("header", "even", "header4"),
        )
    )
    section = f"<w:sectPr>{reference}</w:sectPr>"
    body = paragraph("Text", section) + paragraph("More") + section
    number = paragraph(field("PAGE", "3"))
    parts = {
        "header1": paragraph("Contract 4711"),
        "header2": paragraph("Contract 4711") + number,
        "header3": "",
        "footer1": paragraph("Lund & Co".replace("&", "&amp;")),
    }
    parsed = read_docx(docx(body, **parts))
    assert parsed.text == "Text\n\nMore\n\nContract 4711\n\nLund & Co"
    [loss] = parsed.losses
    assert (loss.kind, loss.detail) == ("parts", "1 missing or damaged parts: word/header3.xml")


def test_notes_stand_at_the_end_in_the_order_of_their_marks():
    body = paragraph(
        run("Bees")
        + '<w:r><w:endnoteReference w:id="1"/></w:r>'
        + run("fly")
        + '<w:r><w:footnoteReference w:id="7"/><w:footnoteReference w:id="7"/></w:r>'
        + '<w:r><w:footnoteReference w:id="8"/></w:r>'
    )
    notes = {
        "footnotes": f'<w:footnote w:id="7">{paragraph("fast")}{paragraph("far")}</w:footnote>',
        "endnotes": f'<w:endnote w:id="1">{paragraph("Apis")}</w:endnote>',
    }
    parsed = read_docx(docx(body, **notes))
    assert parsed.text == "Bees[1]fly[2][2]\n\n[1] Apis\n[2] fast far"
    assert [loss.detail for loss in parsed.losses] == ["1 missing or damaged parts: footnote 8"]


def test_rows_of_a_table_are_lines_unless_they_are_layout():
    def table(*rows: tuple[str, ...]) -> str:
        lines = "".join(
            "<w:tr>" + "".join(f"<w:tc>{cell}</w:tc>" for cell in row) + "</w:tr>" for row in rows
        )
        return f"<w:tbl>{lines}</w:tbl>"

    heading = paragraph("Head", '<w:outlineLvl w:val="0"/>')
    body = (
        table((paragraph("key"), paragraph("unit"), paragraph("")), ("", paragraph("ms"), ""))
        + table((paragraph("a") + paragraph("b"), table((paragraph("c"), paragraph("d")))))
        + table((heading + paragraph("text"), paragraph("side")))
        + "<w:tbl><w:tr><w:trPr><w:del/></w:trPr><w:tc>"
        + paragraph("out")
        + "</w:tc></w:tr></w:tbl>"
    )
    parsed = read_docx(docx(body))
    assert parsed.text == "key | unit\n| ms\n\na b | c | d\n\nHead\n\ntext\n\nside"
    assert [mark.label for mark in parsed.outline] == ["Head"]


def test_docx_deleted_paragraph_mark_joins_paragraphs():
    body = paragraph("Bees ", "<w:rPr><w:del/></w:rPr>") + paragraph("fly")
    assert read_docx(docx(body)).text == "Bees fly"


def test_docx_embedded_html_is_read_and_other_chunks_are_losses():
    content = docx('<w:altChunk r:id="chunk"/><w:altChunk r:id="other"/>' + paragraph("end"))
    rows = "".join(
        f'<Relationship Id="{id_}" Target="{target}" Type="{OFFICE}/aFChunk"/>'
        for id_, target in (("chunk", "a.html"), ("other", "b.doc"))
    )
    with ZipFile(BytesIO(content)) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    parts["word/_rels/document2.xml.rels"] = f"<Relationships>{rows}</Relationships>".encode()
    parsed = read_docx(
        archive({**parts, "word/a.html": "<p>From <b>a page</b>", "word/b.doc": "x"})
    )
    assert parsed.text == "From a page\n\nend"
    assert [loss.detail for loss in parsed.losses] == ["1 missing or damaged parts: word/b.doc"]


def test_hostile_documents_are_read_in_little_time():
    begin = '<w:r><w:fldChar w:fldCharType="begin"/></w:r>'
    chain = "".join(style(f"S{n}", "x", f"S{n + 1}") for n in range(5_000))
    started = time.monotonic()
    assert read_docx(docx(paragraph(begin * 50_000 + run("x")))).text == "x"
    assert read_docx(docx(paragraph("x", '<w:pStyle w:val="S0"/>'), chain)).outline == ()
    nested = "<w:tbl><w:tr><w:tc>" * 80 + paragraph("x") + "</w:tc></w:tr></w:tbl>" * 80
    assert read_docx(docx(nested)).text == "x"
    assert time.monotonic() - started < 20
