"""Small files of every kind, made of the least that their formats ask for."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from email.message import EmailMessage
from io import BytesIO

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
SLIDES = "http://schemas.openxmlformats.org/presentationml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
CORE = (
    f'<p:coreProperties xmlns:p="{PACKAGE}/metadata/core-properties" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:t="http://purl.org/dc/terms/">'
    "<dc:title>Core title</dc:title><dc:creator>Ada Lovelace</dc:creator>"
    "<t:created>2024-03-01T10:00:00Z</t:created></p:coreProperties>"
)
PAGE = (
    "<!doctype html><html lang=en><head><title>On bees | A site</title>"
    "<meta name=author content='Ada'><script>var hidden;</script></head><body>"
    "<nav><a href=/>Home</a></nav><main><h1>On bees<a class=headerlink href=#x>¶</a></h1>"
    "<p>Bees make\n <b>honey</b>.<!-- hidden --> See <a href=http://x>this</a>.</p>"
    "<h2>Food</h2><ul><li>nectar<li>pollen</ul><pre>a\n  b</pre>"
    "<table><tr><th>x</th><td>1</td></tr></table></main><footer>Imprint</footer></body></html>"
)
MARKDOWN = (
    "---\ntitle: On bees\ntags: [a, b]\ndate: 2024-03-01\nyear: 2024\n---\n\n# On bees\n\n"
    "Bees make honey.\n\n## Food\n\n```\n# no heading\n```\n\nNectar\n------\n\nSweet.\n"
)


def pdf(
    pages: list[str], *, objects: str = "", root: str = "", trailer: str = "", page: str = ""
) -> bytes:
    """A PDF whose pages have these texts, a line each; a page without text has nothing.

    A page that begins with `%` has that content instead, and `page` is in the entry of each page.
    """
    found = [f"<</Type/Catalog/Pages 2 0 R {root}>>"]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    found.append(f"<</Type/Pages/Count {len(pages)}/Kids[{kids}]>>")
    found.append("<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>")
    for number, text in enumerate(pages):
        found.append(
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 400]/Resources<</Font<</F 3 0 R>>>>"
            f"/Contents {5 + 2 * number} 0 R {page}>>"
        )
        lines = " ".join(f"({line}) Tj 0 -14 Td" for line in text.split("\n") if line)
        stream = text if text.startswith("%") else f"BT /F 12 Tf 20 380 Td {lines} ET"
        found.append(f"<</Length {len(stream)}>>stream\n{stream}\nendstream")
    found += objects.split("\n") if objects else []
    content = "%PDF-1.4\n"
    places = []
    for number, one in enumerate(found, 1):
        places.append(len(content))
        content += f"{number} 0 obj{one}endobj\n"
    start = len(content)
    content += f"xref\n0 {len(found) + 1}\n0000000000 65535 f \n"
    content += "".join(f"{place:010} 00000 n \n" for place in places)
    content += f"trailer<</Size {len(found) + 1}/Root 1 0 R {trailer}>>\nstartxref\n{start}\n%%EOF"
    return content.encode("latin-1")


def book_pdf() -> bytes:
    """Two pages, ii and 1, with a bookmark on the second, and a title, author and date."""
    return pdf(
        ["On bees", "Food\nnectar"],
        objects="<</First 9 0 R/Last 9 0 R/Count 1>>\n"
        "<</Title(Food)/Parent 8 0 R/Dest[6 0 R/Fit]>>\n"
        "<</Title(Bees)/Author(Ada)/CreationDate(D:20240301100000Z)>>",
        root="/Outlines 8 0 R/PageLabels<</Nums[0<</S/r/St 2>>1<</S/D>>]>>",
        trailer="/Info 10 0 R",
    )


def archive(parts: dict[str, str | bytes]) -> bytes:
    """A zip file."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return buffer.getvalue()


def relations(**targets: str) -> str:
    """The part that says what the parts are that another names by these ids."""
    rows = "".join(
        f'<Relationship Id="{id_}" Target="{target}" Type="{OFFICE}/'
        f'{"notesSlide" if "notes" in target else "officeDocument"}"/>'
        for id_, target in targets.items()
    )
    return f'<Relationships xmlns="{PACKAGE}/relationships">{rows}</Relationships>'


def docx(body: str = "", head: str = "") -> bytes:
    """A Word document; its paragraphs are of the styles Heading 1 and 2, and of none."""

    def paragraph(text: str, style: str = "") -> str:
        styled = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
        return f"<w:p>{styled}<w:r><w:t>{text}</w:t></w:r></w:p>"

    body = body or (
        paragraph("On bees", "H1")
        + paragraph("Bees make honey.")
        + paragraph("Food", "H2")
        + paragraph("Nectar.")
        + "<w:tbl><w:tr><w:tc>"
        + paragraph("x")
        + "</w:tc><w:tc>"
        + paragraph("1")
        + "</w:tc></w:tr></w:tbl>"
    )
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="H{level}"><w:name w:val="heading {level}"/>'
        "</w:style>"
        for level in (1, 2)
    )
    return archive(
        {
            "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"/>',
            "_rels/.rels": relations(a="word/document.xml"),
            "word/document.xml": f'{head}<w:document xmlns:w="{WORD}"><w:body>{body}</w:body>'
            "</w:document>",
            "word/styles.xml": f'<w:styles xmlns:w="{WORD}">{styles}</w:styles>',
            "docProps/core.xml": CORE,
        }
    )


def pptx(head: str = "") -> bytes:
    """Two slides, the first in the second file, with a note."""

    def slide(title: str, *lines: str) -> str:
        def shape(kind: str, *texts: str) -> str:
            rows = "".join(f"<a:p><a:r><a:t>{text}</a:t></a:r></a:p>" for text in texts)
            return (
                f'<p:sp><p:nvSpPr><p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr>'
                f"<p:txBody>{rows}</p:txBody></p:sp>"
            )

        return (
            f'<p:sld xmlns:p="{SLIDES}" xmlns:a="{DRAWING}">{shape("title", title)}'
            f"{shape('body', *lines)}</p:sld>"
        )

    return archive(
        {
            "ppt/presentation.xml": f'{head}<p:presentation xmlns:p="{SLIDES}" xmlns:r="{OFFICE}">'
            '<p:sldIdLst><p:sldId id="256" r:id="b"/><p:sldId id="257" r:id="a"/></p:sldIdLst>'
            "</p:presentation>",
            "ppt/_rels/presentation.xml.rels": relations(
                a="slides/slide1.xml", b="/ppt/slides/slide2.xml"
            ),
            "ppt/slides/slide1.xml": slide("Food", "nectar", "pollen"),
            "ppt/slides/slide2.xml": slide("On bees", "A talk"),
            "ppt/slides/_rels/slide1.xml.rels": relations(n="../notesSlides/notes1.xml"),
            "ppt/notesSlides/notes1.xml": slide("", "Say it slowly."),
            "docProps/core.xml": CORE,
        }
    )


def epub(head: str = "", parts: Mapping[str, str | bytes] = {}) -> bytes:
    """A book of two chapters, of which the second is named twice; `parts` replace its own."""
    items = "".join(
        f'<item id="{name}" href="{href}" media-type="application/xhtml+xml"/>'
        for name, href in (("a", "b%20c.xhtml#x"), ("b", "a.xhtml"), ("c", "b%20c.xhtml#y"))
    )
    return archive(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": f"{head}<container><rootfiles>"
            '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
            "OEBPS/book.opf": '<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
            "<dc:title>On bees</dc:title><dc:creator>Ada</dc:creator><dc:language>en</dc:language>"
            f'</metadata><manifest>{items}</manifest><spine><itemref idref="b"/>'
            '<itemref idref="a"/><itemref idref="c"/></spine></package>',
            "OEBPS/a.xhtml": '<?xml version="1.0" encoding="utf-8"?><html><body><h1>One</h1>'
            "<p>Bees.</p></body></html>",
            "OEBPS/b c.xhtml": "<html><body><h1>Two</h1><p>Honey.</p></body></html>",
            **parts,
        }
    )


def opendocument() -> bytes:
    """A text of one paragraph."""
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "text")
    )
    body = "<office:body><office:text><text:p>Bees make honey.</text:p></office:text></office:body>"
    return archive(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"<office:document-content {spaces}>{body}</office:document-content>",
        }
    )


def xlsx() -> bytes:
    """A workbook of one sheet, which has one row."""
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    cells = '<c t="inlineStr"><is><t>Bees</t></is></c><c><v>7</v></c>'
    return archive(
        {
            "xl/workbook.xml": f'<workbook {main} xmlns:r="{OFFICE}"><sheets>'
            '<sheet name="Sheet1" r:id="a"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">'
            f'<Relationship Id="a" Type="{OFFICE}/worksheet" Target="a.xml"/></Relationships>',
            "xl/a.xml": f"<worksheet {main}><sheetData><row>{cells}</row></sheetData></worksheet>",
        }
    )


def mail(subject: str = "Bees", *, html: bool = False) -> bytes:
    """A message with an attachment."""
    message = EmailMessage()
    message["From"] = "Ada Löwe <ada@example.org>"
    message["To"] = "bob@example.org"
    message["Date"] = "Fri, 01 Mar 2024 10:00:00 +0100"
    message["Subject"] = subject
    message["Message-ID"] = "<1@example.org>"
    message.set_content("<p>Bees <b>make</b> honey.</p>", subtype="html") if html else (
        message.set_content("Bees make honey.\n\nFrom here on.\n")
    )
    message.add_attachment(b"x", "application", "octet-stream", filename="bee.bin")
    return message.as_bytes()


def notebook() -> str:
    """A heading and a cell of code with an output."""
    cells = [
        {"cell_type": "markdown", "source": ["# On bees\n", "Bees make honey.\n", "## Food"]},
        {"cell_type": "code", "source": "eat()\n", "outputs": [{"text": "hidden"}]},
    ]
    return json.dumps({"cells": cells, "nbformat": 4})
