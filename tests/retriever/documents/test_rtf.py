"""Rich Text Format: text in all its encodings, and nothing that a reader does not see."""

from __future__ import annotations

import time

import pytest

from retriever import SourceError
from retriever.documents.kinds.rtf import read_rtf

HEAD = (
    r"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\froman\fcharset0 Times;}{\f1\fcharset204 Arial;}"
    r"{\f2\fcharset2 Symbol;}{\f3\fcharset2 Wingdings;}{\f4\fcharset128 Gothic;}}"
    r"{\colortbl;\red0\green0\blue0;}{\stylesheet{\s0 Normal;}{\s1\sbasedon0 heading 1;}"
    r"{\s2\sbasedon1 Chapter;}{\s3\outlinelevel3 Clause;}{\*\cs5 Strong;}}{\*\generator none;}"
)
TEXTS = {
    r"Bees {\b make} hon\'e9y\emdash .\~x\\y\{z\}": "Bees make honéy—. x\\y{z}",
    r"one\par two\line three\tab four" "\\\nfive": "one\n\ntwo\nthree four\n\nfive",
    "a\nword\r\n goes on": "aword goes on",
    # Unicode, with substitutes of one character, of none, and of two bytes.
    r"\u9731?\u-10179?\u-8704\'3f.": "☃😀.",
    r"{\uc0\u9731 x}{\uc2\u9731\'81\'48y}": "☃x☃y",
    r"{\uc1\u9731 \u9731 ?}": "☃☃",
    # Code pages of fonts, and characters of two bytes, of which the second may be a letter.
    r"\f1\'ec\'e8\'f0\f0 \'e9": "мирé",
    r"\f4\'93\'fa\'83A\f0 a": "日アa",
    r"\f2 m\'b3\f3 \'fc\f0 m": "μ≥m",
    r"{\f2\u61549?}": "μ",
    r"seen{\v hidden}{\v0 seen}{\deleted gone}": "seenseen",
    r"\v hidden\plain seen": "seen",
    r"{\field{\*\fldinst HYPERLINK x}{\fldrslt the link}}": "the link",
    r"Page {\field{\*\fldinst { PAGE }}{\fldrslt 7}}": "Page",
    r"{\pict\pngblip 89504e47}{\*\unknown hidden{\b hidden}}{\xe{index}}seen": "seen",
    r"{\object{\*\objdata 0105}{\result shown}}": "shown",
    r"{\upr{plain}{\*\ud{unicode}}}": "unicode",
    r"{\*\shpinst{\sp{\sn name}{\sv value}}{\shptxt boxed\par}}{\shprslt boxed}beside": (
        "boxed\n\nbeside"
    ),
    r"{\*\annotation A reviewer}text": "text",
    r"{\listtext 3.\tab}item": "3. item",
    r"a{\footnote {\super 1} far}b\par c{\footnote near}": "a[1]b\n\nc[2]\n\n[1] 1 far\n[2] near",
    r"{\header Contract}{\footer Contract}{\footerf Lund}Text": "Text\n\nContract\n\nLund",
    r"\trowd\intbl k\cell v\cell\row\trowd\intbl\pard\intbl 1\par 2\cell\cell\row\pard after": (
        "k | v\n1 2\n\nafter"
    ),
    r"\trowd\intbl k\cell v\cell\row\pard x\par\trowd y\cell z\cell\row": "k | v\n\nx\n\ny | z",
    r"\bin3 }}}text": "text",
    r"}}} text after too many ends": "text after too many ends",
}


@pytest.mark.parametrize("body", TEXTS)
def test_rtf_text_is_visible_text(body):
    assert read_rtf((HEAD + body + "}").encode("latin-1")).text == TEXTS[body]


def test_headings_are_told_by_their_styles_and_levels():
    body = (
        r"\pard\s1 One\par\pard\s2 Two\par\pard\s3 Three\par\pard\outlinelevel8 Nine\par"
        r"\pard\outlinelevel9 Text\par\pard\s1\outlinelevel9 No\par\pard\s9 Text\par"
    )
    parsed = read_rtf((HEAD + body).encode())
    levels = [("One", 1), ("Two", 1), ("Three", 4), ("Nine", 6)]
    assert [(mark.label, mark.level) for mark in parsed.outline] == levels


def test_title_author_date_and_keywords_are_those_of_the_document():
    info = (
        r"{\info{\title \'cf\u1095?}{\author Ada}{\operator Bob}{\creatim\yr2024\mo3\dy1\hr9}"
        r"{\keywords owl, moth}{\revtim\yr2025\mo1\dy1}{\*\company x}}"
    )
    content = HEAD.replace("1252", "1251") + info + r"\f1 Text\par"
    parsed = read_rtf(content.encode())
    assert (parsed.title, parsed.text) == ("Пч", "Text")
    dates = dict.fromkeys(("date", "created"), "2024-03-01")
    metadata = {"author": "Ada", **dates, "keywords": "owl, moth"}
    assert parsed.metadata == metadata


def test_file_without_rtf_header_is_refused():
    with pytest.raises(SourceError, match="no RTF file"):
        read_rtf(b"only words")


@pytest.mark.parametrize(
    "body",
    [
        "{" * 300_000,
        r"\'" * 300_000,
        r"\u-1?" * 100_000,
        r"{\footnote x" * 20_000,
        r"\cell" * 200_000 + r"\row",
        "\\" + "a" * 300_000,
        r"\bin99999999999999",
    ],
)
def test_hostile_text_is_read_in_little_time(body):
    started = time.monotonic()
    read_rtf((HEAD + body).encode())
    assert time.monotonic() - started < 20
