"""A place that a hit shows leads back to its part of the document."""

from __future__ import annotations

import pytest

from retriever import BadInputError, Document, Mark
from retriever.documents import find_part
from retriever.documents.outline import place

PAGED = Document(
    "report, final.pdf",
    "One.\nTwo.\nThree.\nFour.",
    outline=(
        Mark(0, "page", "i"),
        Mark(5, "page", "1"),
        Mark(5, "heading", "Results", 1),
        Mark(10, "page", "2"),
        Mark(17, "page", "3"),
    ),
)
HEADED = Document(
    "guide.html",
    "Intro.\nInstall\nRun it.\nLinux\napt.\nUse\nOpen it.",
    outline=(
        Mark(7, "heading", "Install", 1),
        Mark(23, "heading", "Linux", 2),
        Mark(34, "heading", "Use", 1),
    ),
)
MAIL = Document(
    "in.mbox",
    "Hello.\nYes.",
    outline=(
        Mark(0, "message", "2024-03-01 Ann: Hi, all"),
        Mark(7, "message", "2024-03-02 Bob: Re"),
    ),
)
LINED = Document("a:b.md", "# A\n\none\ntwo", outline=(Mark(0, "line", "1"),))
TITLED = Document("titled.html", HEADED.text, "Install", outline=HEADED.outline)
LABELED = Document(
    "r.pdf",
    "One.\nTwo.\nThree.",
    outline=(Mark(0, "page", "A-1"), Mark(5, "page", "A-2"), Mark(10, "page", "1, a")),
)
ODD = Document("a:1, b.md", "# B\n\nfirst\nsecond", outline=(Mark(0, "line", "1"),))
DOCUMENTS = {
    document.id: document for document in (PAGED, HEADED, MAIL, LINED, TITLED, LABELED, ODD)
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("guide.html", HEADED.text),
        ("guide.html[7:14]", "Install"),
        ("guide.html[34:]", "Use\nOpen it."),
        ("guide.html[46:]", ""),
        ("guide.html, Install", "Install\nRun it.\nLinux\napt.\n"),
        ("guide.html, Install › Linux", "Linux\napt.\n"),
        ("titled.html, Linux", "Linux\napt.\n"),
        ("titled.html, Install › Linux", "Linux\napt.\n"),
        ("guide.html, Use", "Use\nOpen it."),
        ("report, final.pdf, page 1", "Two.\n"),
        ("report, final.pdf, page i", "One.\n"),
        ("report, final.pdf, pages 1-2, Results", "Two.\nThree.\n"),
        ("report, final.pdf, page 3", "Four."),
        ("in.mbox, 2024-03-01 Ann: Hi, all", "Hello.\n"),
        ("in.mbox, 2024-03-02 Bob: Re", "Yes."),
        ("a:b.md:3", "one\n"),
        ("a:b.md:3-4", "one\ntwo"),
    ],
)
def test_place_selects_its_part_of_text(name, text):
    assert find_part(name, DOCUMENTS.get).text == text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.md", "no document has the id 'nothing.md'"),
        ("guide.html:3", "guide.html: its lines are not numbered: name characters"),
        ("guide.html[5:2]", "guide.html: characters .5:2.: expected a start before the stop"),
        ("guide.html[99:]", "at most 46"),
        ("guide.html, page 3", "no page or heading is called 'page 3'"),
        ("report, final.pdf, pages 3-1", "no page or heading is called 'pages 3-1'"),
        ("a:b.md:9-12", "a:b.md: lines 9 to 12: not in its stored text, which has lines 1 to 4"),
        ("a:b.md:4-3", "expected lines from 1 on, in ascending order"),
        ("a:b.md:0-3", "expected lines from 1 on, in ascending order"),
    ],
)
def test_place_outside_of_document_is_refused(name, message):
    with pytest.raises(BadInputError, match=message):
        find_part(name, DOCUMENTS.get)


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_every_passage_is_within_the_part_that_its_own_place_names(document):
    for start in range(len(document.text)):
        if document.text[start].isspace():
            continue
        found = place(document.outline, document.text, (start, start + 1))
        name, words = found.of(document.id, document.title)
        named = ", ".join(filter(None, (name, words)))
        part = find_part(named, DOCUMENTS.get)
        assert part.start <= start < part.stop, named
