"""Texts and presentations of OpenDocument, zipped or as one file."""

from __future__ import annotations

import pytest

from retriever import SourceError
from retriever.documents.kinds.opendocument import read_opendocument
from tests.retriever.documents.file_samples import archive

pytest.importorskip("lxml")

SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for name in ("office", "text", "table", "style", "draw", "presentation", "meta", "manifest")
)
SPACES += ' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:x="http://www.w3.org/1999/xlink"'
META = (
    "<office:meta><dc:title>On bees</dc:title><meta:initial-creator>Ada</meta:initial-creator>"
    "<dc:creator>Bob</dc:creator><meta:creation-date>2024-03-01T10:00:00</meta:creation-date>"
    "</office:meta>"
)
STYLES = (
    '<style:style style:name="Chapter" style:default-outline-level="2"/>'
    '<style:style style:name="P1" style:parent-style-name="Chapter"/>'
    '<style:style style:name="T1"><style:text-properties text:display="none"/></style:style>'
)


def document(body: str, kind: str = "text", pages: str = "", **parts: str) -> bytes:
    """A zipped document without the parts that it can do without."""

    def root(name: str, content: str) -> str:
        return f"<office:document-{name} {SPACES}>{content}</office:document-{name}>"

    content = f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
    styles = f"<office:automatic-styles>{STYLES}</office:automatic-styles>"
    return archive(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": root("content", styles + content),
            "styles.xml": root("styles", f"<office:master-styles>{pages}</office:master-styles>"),
            "meta.xml": root("meta", META),
            **parts,
        }
    )


BLOCKS = {
    "<text:p>a<text:s text:c='3'/>b<text:tab/>c<text:line-break/>d<text:span>e</text:span>f"
    "</text:p>": "a b c\ndef",
    "<text:p>a<text:span text:style-name='T1'>hidden</text:span>b</text:p>": "ab",
    "<text:p>a<office:annotation><dc:creator>c</dc:creator><text:p>c</text:p></office:annotation>b"
    "</text:p>": "ab",
    "<text:tracked-changes><text:p>out</text:p></text:tracked-changes><text:p>in</text:p>": "in",
    "<text:p><text:ruby><text:ruby-base>東京</text:ruby-base><text:ruby-text>とうきょう"
    "</text:ruby-text></text:ruby>へ</text:p>": "東京へ (とうきょう)",
    "<text:p>x</text:p><text:list><text:list-item><text:p>a</text:p><text:list><text:list-item>"
    "<text:p>b</text:p></text:list-item></text:list></text:list-item></text:list>": "x\na\nb",
    "<table:table><table:table-header-rows><table:table-row><table:table-cell><text:p>k</text:p>"
    "</table:table-cell><table:table-cell><text:p>v</text:p></table:table-cell></table:table-row>"
    "</table:table-header-rows><table:table-row><table:table-cell><text:p>1</text:p>"
    "</table:table-cell><table:covered-table-cell/></table:table-row></table:table>": "k | v\n1",
    "<text:p>a<draw:frame><draw:text-box><text:p>boxed</text:p></draw:text-box></draw:frame>b</text:p>"
    "<text:p>c</text:p>": "ab\n\nboxed\n\nc",
    "<text:p>Is <draw:frame><draw:object x:href='./Object 1'/></draw:frame>.</text:p>": "Is k^2.",
    "<text:p>a<text:note><text:note-citation>9</text:note-citation><text:note-body><text:p>n"
    "</text:p></text:note-body></text:note>b</text:p>": "a[1]b\n\n[1] n",
    "<text:section><text:p>a</text:p></text:section>": "a",
}


@pytest.mark.parametrize("body", BLOCKS)
def test_opendocument_text_is_visible_text(body):
    equation = "<math xmlns='m'><msup><mi>k</mi><mn>2</mn></msup></math>"
    parsed = read_opendocument(document(body, **{"Object 1/content.xml": equation}))
    assert (parsed.text, parsed.title) == (BLOCKS[body], "On bees")
    dates = {"date": "2024-03-01", "created": "2024-03-01T10:00:00"}
    assert parsed.metadata == {"author": "Ada", **dates}


def test_headings_are_elements_or_styles_and_the_style_title_is_the_title():
    body = (
        "<text:p text:style-name='Title'>Bees</text:p><text:h>One</text:h>"
        "<text:h text:outline-level='9'>Two</text:h><text:p text:style-name='P1'>Three</text:p>"
        "<text:p text:style-name='Standard'>Four</text:p>"
    )
    parsed = read_opendocument(document(body))
    levels = [("Bees", 1), ("One", 1), ("Two", 6), ("Three", 2)]
    assert [(mark.label, mark.level) for mark in parsed.outline] == levels
    assert parsed.title == "Bees"


def test_headers_and_footers_are_read_once_and_without_page_numbers():
    header = "<style:header><text:p>Contract 4711</text:p></style:header>"
    footer = "<style:footer><text:p><text:page-number>3</text:page-number></text:p></style:footer>"
    page = f"<style:master-page>{header}{footer}</style:master-page>"
    parsed = read_opendocument(document("<text:p>Text</text:p>", pages=page * 2))
    assert parsed.text == "Text\n\nContract 4711"


def test_slides_are_pages_with_titles_and_notes():
    def frame(kind: str, text: str) -> str:
        return (
            f"<draw:frame presentation:class='{kind}'><draw:text-box><text:p>{text}</text:p>"
            "</draw:text-box></draw:frame>"
        )

    notes = f"<presentation:notes>{frame('notes', 'Say it slowly.')}</presentation:notes>"
    body = (
        f"<draw:page>{frame('outline', 'nectar')}{frame('title', 'Food')}{notes}</draw:page>"
        f"<draw:page>{frame('outline', 'pollen')}</draw:page>"
    )
    parsed = read_opendocument(document(body, "presentation"))
    assert parsed.text == "Food\n\nnectar\n\nSay it slowly.\n\npollen"
    assert [(mark.kind, mark.label) for mark in parsed.outline] == [
        ("page", "1"),
        ("heading", "Food"),
        ("page", "2"),
        ("heading", "Slide 2"),
    ]


def test_flat_opendocument_xml_is_read_like_archive():
    body = "<office:body><office:text><text:p>Bees</text:p></office:text></office:body>"
    flat = f"<office:document {SPACES}>{META}{body}</office:document>"
    parsed = read_opendocument(flat.encode())
    assert (parsed.title, parsed.text) == ("On bees", "Bees")


def test_encrypted_and_damaged_documents_are_refused():
    manifest = f"<manifest:manifest {SPACES}><manifest:encryption-data/></manifest:manifest>"
    content = document("", **{"META-INF/manifest.xml": manifest})
    with pytest.raises(SourceError, match="encrypted; save a copy"):
        read_opendocument(content)
    with pytest.raises(SourceError, match="damaged OpenDocument file: it has no body"):
        read_opendocument(archive({"content.xml": "<x/>"}))
    with pytest.raises(SourceError, match=r"damaged OpenDocument file: no part 'content.xml'"):
        read_opendocument(archive({"mimetype": "x"}))


def test_opendocument_with_damaged_side_parts_keeps_content():
    whole = "<text:p>bees fly</text:p>"
    parsed = read_opendocument(document(whole, **{"META-INF/manifest.xml": "<m:manifest/>"}))
    assert (parsed.title, parsed.text, parsed.losses) == ("On bees", "bees fly", ())
    parsed = read_opendocument(document(whole, **{"styles.xml": "<style", "meta.xml": "&"}))
    assert parsed.text == "bees fly"
    assert [loss.detail for loss in parsed.losses] == ["2 damaged parts: meta.xml, styles.xml"]


def test_keywords_are_metadata():
    words = "<meta:keyword>honey comb</meta:keyword><meta:keyword>wax</meta:keyword></office:meta>"
    meta = META.replace("</office:meta>", words)
    parts = {"meta.xml": f"<office:document-meta {SPACES}>{meta}</office:document-meta>"}
    parsed = read_opendocument(document("<text:p>a</text:p>", **parts))
    assert parsed.metadata["keywords"] == "honey comb, wax"
