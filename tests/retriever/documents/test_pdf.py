"""PDF: fields, notes, hyphens at line ends, pages without text, fonts that name no characters."""

from __future__ import annotations

import time

import pytest

from retriever import CorpusReader, SourceError
from retriever.documents import hyphens
from retriever.documents.hyphens import join_parted_words
from tests.retriever.documents import file_samples as samples
from tests.retriever.documents.source_samples import read, write

pytest.importorskip("pypdfium2")
from retriever.documents.kinds.pdf import _clean_text, _reads_as_text, read_pdf

PICTURE = "%\nq 300 0 0 300 9 9 cm BI /W 2 /H 2 /CS /G /BPC 8 ID abcd EI Q"
RULE = "%\n9 9 m 300 9 l S"
# The appearance of a stamp, and of a box that is checked.
SHOWN = "BT /F 9 Tf 2 4 Td (Approved 7) Tj ET"
DRAWN = (
    "<</Type/XObject/Subtype/Form/BBox[0 0 200 20]/Resources<</Font<</F 3 0 R>>>>"
    f"/Length {len(SHOWN)}>>stream\r{SHOWN}\rendstream"
)


def form(*annotations: str, fields: str = "", text: str = "Membership form") -> bytes:
    """A page with annotations, which are objects 7 and on; 6 is the appearance."""
    numbers = " ".join(f"{7 + number} 0 R" for number in range(len(annotations)))
    return samples.pdf(
        [text],
        objects="\n".join((DRAWN, *annotations)),
        root=f"/AcroForm<</Fields[{fields or numbers}]/DA(/F 9 Tf)/DR<</Font<</F 3 0 R>>>>>>",
        page=f"/Annots[{numbers}]",
    )


def widget(rest: str, place: int = 300) -> str:
    return f"<</Type/Annot/Subtype/Widget/Rect[20 {place} 220 {place + 20}]{rest}>>"


FIELDS = {
    "text": (widget("/FT/Tx/T(name)/V(Marten Otterby)"), "Marten Otterby"),
    "with a label": (widget("/FT/Tx/T(n1)/TU(Surname)/V(Otterby)"), "Surname: Otterby"),
    "drawn": (widget("/FT/Tx/T(name)/V(Otterby)/AP<</N 6 0 R>>"), "Otterby"),
    "UTF-16": (widget("/FT/Tx/T(town)/V<FEFF0141006F0064017A>"), "Łodź"),
    "lines": (widget("/FT/Tx/Ff 4096/T(a)/V(Mill Lane\\r7)"), "Mill Lane\n7"),
    "choice": (widget("/FT/Ch/Ff 131072/T(c)/Opt[(Rye)(Oats)]/V(Oats)"), "Oats"),
    "choice with names": (widget("/FT/Ch/T(c)/Opt[[(r)(Rye)][(o)(Oats)]]/V(r)"), "Rye"),
    "choices": (widget("/FT/Ch/Ff 2097152/T(c)/Opt[(A)(B)(C)]/V[(A)(C)]/I[0 2]"), "A, C"),
    "checked": (
        widget("/FT/Btn/T(news)/TU(Send me news)/V/On/AS/On/AP<</N<</On 6 0 R/Off 6 0 R>>>>"),
        "Send me news",
    ),
    "not checked": (
        widget("/FT/Btn/T(news)/V/Off/AS/Off/AP<</N<</On 6 0 R/Off 6 0 R>>>>"),
        "",
    ),
    "password": (widget("/FT/Tx/Ff 8192/T(pin)/V(4711)"), ""),
    "hidden": (widget("/FT/Tx/F 2/T(id)/V(x17)"), ""),
    "empty": (widget("/FT/Tx/T(name)"), ""),
    "free text": ("<</Type/Annot/Subtype/FreeText/Rect[9 9 99 29]/Contents(Paid in May)>>", 0),
    "note": ("<</Type/Annot/Subtype/Text/Rect[9 9 29 29]/Contents(Ask Ada)>>", "Ask Ada"),
    "stamp": ("<</Type/Annot/Subtype/Stamp/Rect[9 9 209 29]/AP<</N 6 0 R>>>>", "Approved 7"),
    "link": ("<</Type/Annot/Subtype/Link/Rect[9 9 29 29]/Contents(a link)>>", ""),
}
FIELDS["free text"] = (FIELDS["free text"][0], "Paid in May")


@pytest.mark.parametrize("kind", FIELDS)
def test_pdf_form_values_and_notes_are_text_of_their_page(kind):
    annotation, expected = FIELDS[kind]
    parsed = read_pdf(form(annotation))
    assert parsed.text == "\n\n".join(filter(None, ("Membership form", expected)))
    assert [mark.kind for mark in parsed.outline] == ["page"]
    assert parsed.losses == ()


def test_pdf_form_value_of_parent_field_is_read_once():
    kids = [widget("/Parent 9 0 R"), widget("/Parent 9 0 R", 200)]
    parent = "<</FT/Tx/T(town)/V(Quillbury)/Kids[7 0 R 8 0 R]>>"
    parsed = read_pdf(form(*kids, parent, fields="9 0 R"))
    assert parsed.text == "Membership form\n\nQuillbury"


def test_a_value_that_the_page_shows_in_its_place_is_not_repeated():
    field = widget("/FT/Tx/T(a)/V(Membership form)", 374)
    assert read_pdf(form(field)).text == "Membership form"
    elsewhere = widget("/FT/Tx/T(a)/V(form)", 100)
    assert read_pdf(form(elsewhere)).text == "Membership form\n\nform"


def test_pages_without_text_are_counted_unless_they_are_blank(tmp_path):
    write(tmp_path / "scans.pdf", samples.pdf(["Cover", PICTURE, PICTURE, "", RULE, "Back"]))
    write(tmp_path / "text.pdf", samples.pdf(["Cover", ""]))
    reader = CorpusReader(tmp_path)
    assert [document.id for document in reader] == ["scans.pdf", "text.pdf"]
    assert reader.files.named == [
        f"{tmp_path}/scans.pdf: 2 of 6 pages have no text; --ocr COMMAND recognizes it, such as "
        "--ocr 'tesseract - -'"
    ]


def glyphs(*pages: str) -> bytes:
    """Pages in a font whose glyphs have numbers alone, in the order of many fonts."""
    contents = []
    for page in pages:
        numbers = "".join(f"{ord(letter) - 29:04x}" for letter in page)
        contents.append(f"%\nBT /G 12 Tf 20 300 Td <{numbers}> Tj ET" if page else "Plain words")
    first = 4 + 2 * len(pages)
    return samples.pdf(
        contents,
        objects=f"<</Type/Font/Subtype/Type0/BaseFont/AB+Foo/Encoding/Identity-H"
        f"/DescendantFonts[{first + 1} 0 R]>>\n"
        "<</Type/Font/Subtype/CIDFontType2/BaseFont/AB+Foo/CIDSystemInfo<</Registry(Adobe)"
        f"/Ordering(Identity)/Supplement 0>>/FontDescriptor {first + 2} 0 R/DW 500>>\n"
        "<</Type/FontDescriptor/FontName/AB+Foo/Flags 4/FontBBox[0 0 9 9]/ItalicAngle 0"
        "/Ascent 8/Descent -2/CapHeight 7/StemV 8>>",
        page=f"/Resources<</Font<</F 3 0 R/G {first} 0 R>>>>",
    )


def test_pdf_text_of_glyph_numbers_is_left_out_and_its_pages_named(tmp_path):
    sentence = "The otter swims below the mill and waits for fish"
    write(tmp_path / "half.pdf", glyphs("", sentence, "", sentence))
    reader = CorpusReader(tmp_path)
    [document] = reader
    assert document.text == "Plain words\n\nPlain words"
    assert reader.files.named == [
        f"{tmp_path}/half.pdf: text of 2 of 4 pages is left out, as its fonts do not say which "
        "characters they show: 2, 4"
    ]
    with pytest.raises(SourceError, match=r"all\.pdf: no text that can be read"):
        read(write(tmp_path / "all.pdf", glyphs(sentence, sentence)))


def test_readable_text_is_told_from_shifted_glyphs():
    assert _reads_as_text("The PDF version of this document cannot be built.")
    assert _reads_as_text("老いた粉屋は小麦のパンを持ってきた")
    assert not _reads_as_text("7KH\x03RWWHU\x03VZLPV")
    assert not _reads_as_text("7KHRWWHUVZLPVEHORZWKHPLOO")


HYPHENS = {
    "of the document": (["the climate", "cli\ufffemate"], "climate"),
    "of the dictionary": (["wea\ufffether"], "weather"),
    "a compound of the document": (["a well-known mill", "well\ufffeknown"], "well-known"),
    "two words": (["price\ufffedetermining"], "price-determining"),
    "more often joined": (["email email e-mail", "e\ufffemail"], "email"),
    "a number": (["pre\ufffe1914"], "pre-1914"),
    "a name": (["Saint\ufffeExupéry"], "Saint-Exupéry"),
    "capitals": (["CLIMATE", "CLI\ufffeMATE"], "CLIMATE"),
    "three lines": (["in\ufffestalla\ufffetion", "an installation"], "installation"),
    "unknown": (["Zwie\ufffeback"], "Zwie-back"),
    "with the line's end": (["wea\x02\r\nther"], "weather"),
    "beside a sign": (["(x)\ufffey"], "(x)-y"),
}


@pytest.mark.parametrize("kind", HYPHENS)
def test_hyphens_at_line_ends_part_syllables_or_compounds(kind, monkeypatch):
    english = frozenset({"weather", "price", "determining", "email"})
    monkeypatch.setattr(hyphens, "_read_dictionary", lambda: english)
    texts, expected = HYPHENS[kind]
    assert expected in join_parted_words(texts)


def test_pdf_line_end_hyphen_joins_words_unknown_with_hyphen(monkeypatch):
    monkeypatch.setattr(hyphens, "_read_dictionary", frozenset)
    characters = "".join(
        f"wort{chr(97 + number)}end wort\ufffe{chr(97 + number)}end " for number in range(12)
    )
    assert join_parted_words([characters, "Zwie\ufffeback"])[1] == "Zwieback"


@pytest.mark.parametrize("text", ["a" * 3_000_000, "a\ufffe" * 300_000, "ab-" * 300_000 + "\ufffe"])
def test_many_line_end_hyphens_are_read_in_linear_time(text):
    started = time.monotonic()
    join_parted_words([text])
    assert time.monotonic() - started < 20


def test_a_word_over_two_lines_of_a_page_is_found(tmp_path):
    write(tmp_path / "a.pdf", samples.pdf(["A review of the wea-\nther, and of weather maps"]))
    [document] = read(tmp_path)
    assert document.text == "A review of the weather, and of weather maps"


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        ("Sch¨opf, Sch¨ utz, ¨Uber", "Schöpf, Schütz, Über"),
        ("Fran¸cois, Dvoˇrak, ˚Angström", "François, Dvořak, Ångström"),
        ("¨quite¨, 20˚C, l´amour, 5 ¨ a", "¨quite¨, 20˚C, l´amour, 5 ¨ a"),
    ],
)
def test_accents_that_are_drawn_apart_are_joined_to_their_letters(drawn, expected):
    assert _clean_text(drawn) == expected
