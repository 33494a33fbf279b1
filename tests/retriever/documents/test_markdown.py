"""Markdown: front matter, headings as CommonMark has them, and labels that a reader sees."""

from __future__ import annotations

import base64
import json
import random
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retriever.documents.kinds.markdown import markdown_headings, visible_label
from retriever.documents.kinds.plain import read_markdown, read_notebook, read_plain

LINES = [
    "# a",
    "## b ##",
    "#no",
    "```",
    "~~~",
    "  ```x",
    "",
    "text",
    "    # code",
    "   # three spaces",
    "\t# tab",
    "#",
    "####### g",
    "### ",
    "x #",
    "=====",
    "---",
    "  --",
    "- item",
    "-",
    "  # in an item",
    "  ```",
    "1. one",
    "   ~~~",
    "7) seven",
    "> quoted",
    "> # quoted heading",
    "> ```",
    ">",
    "* * *",
    "<pre>",
    "</pre>",
    "<div>",
    "</div>",
    "<!-- a",
    "-->",
    "<b>",
    "<script>",
    "</script> x",
]


def reference_headings(text):
    """Line, level and label of the headings of a text that are in no container."""
    markdown = pytest.importorskip("markdown_it").MarkdownIt()
    return [
        (token.map[0], int(token.tag[1]), label_of(inline))
        for token, inline in pairwise(markdown.parse(text))
        if token.type == "heading_open" and token.level == 0 and label_of(inline)
    ]


def label_of(token):
    parts = (
        label_of(child) if child.type == "image" else child.content or " " * ("break" in child.type)
        for child in token.children or []
        if child.type != "html_inline"
    )
    return " ".join("".join(parts).split())


def headings_of(text):
    return [
        (text.count("\n", 0, mark.offset), mark.level, mark.label)
        for mark in markdown_headings(text)
    ]


@given(lines=st.lists(st.sampled_from(LINES), max_size=8))
def test_headings_are_those_of_commonmark(lines):
    text = "\n".join(lines)
    assert headings_of(text) == reference_headings(text)


@pytest.mark.parametrize(
    "source",
    [
        "The *quick*, **brown** and ***red*** fox",
        "snake_case_name, _lean_ and __init__",
        "Run `a*b*` and ``x ` y``",
        r"Not \*lean\*, \# and a \[bracket\](x)",
        "2 * 3 * 4, repr(u*), repr(i*)",
        "[Guide](https://a.example/b_(c) 'title') to [it](<x y>)",
        "[![Build](b.svg)](https://ci.example/x)",
        "See [the *notes*][n], [n] and [missing], [x][y]",
        "Fish &amp; chips &lt;b&gt; &#65;",
        'A<a name="x"></a> b <br/> c <!-- d -->',
        "Mail <a@b.example> or <https://b.example/x_y_z>",
        "Vec<T, U> and 1 < 2 > 0",
        "[a [b] c](x) ![](y.png)",
    ],
)
def test_a_label_is_what_commonmark_shows(source):
    text = f"# {source}\n\n[n]: https://n.example\n"
    assert headings_of(text) == reference_headings(text)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Setup {#setup .wide}", "Setup"),
        ("Setup {: #setup}", "Setup"),
        ("Setup {-}", "Setup"),
        ('Setup {.a key="b c"}', "Setup"),
        ("Sets {a, b} and {}", "Sets {a, b} and {}"),
        ("`{#id}` of a [box](x){.small} here", "{#id} of a box here"),
        ("[[notes/plan|The plan]] and [[Index]]", "The plan and Index"),
        ("![[map.png]] Map ![[old.png|of old]]", "Map of old"),
        ("Dose[^1] ~~old~~ ==new==", "Dose old new"),
        ("a == b == c", "a == b == c"),
    ],
)
def test_a_label_has_no_markup_of_dialects(source, expected):
    assert visible_label(source) == expected


@pytest.mark.parametrize(
    ("text", "title", "headings"),
    [
        ("Title\n=====\nx\n\nSub\n---\ny", "Title", ["Sub"]),
        ("\n\nTitle\n=====", "Title", []),
        ("A title of\ntwo lines\n===\nx", "A title of two lines", []),
        ("\n \n# A heading\r\n\nBody\n\n# Next\n", "A heading", ["Next"]),
        ("# Closed ##\nBody", "Closed", []),
        ("# Only a title\n", "Only a title", []),
        ("Body\n# Later\n", None, ["Later"]),
        ("# I\n```pip install x```\n## Usage\ny", "I", ["Usage"]),
        ("<!--\n# no\n-->\n## L\ny", None, ["L"]),
        ("---\ntitle: Foo: Bar\ntags: [a]\n---\n\n# Real\nx", "Foo: Bar", ["Real"]),
        ("---\nbad: !!bool zz\ntitle: T\n---\n# Real\nx", "T", ["Real"]),
        ("<h1 align=center>\n  <img src=x>\n  The <b>Otter</b>\n</h1>\n\nx", "The Otter", []),
        ("<div>\n<h1>Otter</h1><p>Beside.\n</div>\n\n## More", "Otter", ["Otter", "More"]),
        ("[a]: b\nOtter\n===\nx\n\n[c]: d\n---", None, ["Otter"]),
        ("| a |\n|---|\n| b |\n---", None, []),
        ("<!-- license -->\n# Otter\nx", "Otter", ["Otter"]),
        ("<div>\n<!-- <h2>a</h2> -->\n<h2>b</h2>\n</div>", None, ["b"]),
    ],
)
def test_markdown_headings_become_outline(text, title, headings):
    document = read_markdown(text)
    labels = [mark.label for mark in document.outline if mark.kind == "heading"]
    assert (document.title, labels) == (title, headings)


def test_a_heading_that_is_the_title_is_not_in_the_text():
    for heading in ("# Owl", "Owl\n===", "Snowy\nowl\n===", "<h1>\nOwl\n</h1>"):
        document = read_markdown(f"\n{heading}\n\nIt hunts.\n")
        assert document.text == "It hunts."
        assert document.outline[0].label == str(4 + heading.count("\n"))
    assert read_markdown("<h1>Owl</h1> <p>It hunts.").text == "<h1>Owl</h1> <p>It hunts."


@pytest.mark.parametrize(
    ("front", "metadata"),
    [
        ("lang: no\ncountry: NO\non: y", {"lang": "no", "country": "NO", "on": "y"}),
        ("at: 12:30\nzip: 010\nhex: 0x1f", {"at": "12:30", "zip": 10, "hex": 31}),
        ("eq: =\nmerge: <<\nn: 1_000", {"eq": "=", "merge": "<<", "n": "1_000"}),
        ("a: true\nb: FALSE\nc: ~\nd:", {"a": True, "b": False, "c": None, "d": None}),
        ("a: 1e3\nb: -.5\nc: .inf\nd: .nan", {"a": 1000.0, "b": -0.5, "c": ".inf", "d": ".nan"}),
        ("isbn: 99999999999999999999999", {"isbn": "99999999999999999999999"}),
        ("day: 2024-05-06\nno: 2024-02-30", {"day": "2024-05-06", "no": "2024-02-30"}),
        ("tags: [no, 1.10]\nby: {a: off}", {"tags": ["no", 1.1], "by": {"a": "off"}}),
        ("a: b: c\ntags:\n- @x\n- y\nn: [1]", {"a": "b: c", "tags": ["@x", "y"], "n": [1]}),
        ("a: b: c\n# comment\n\nd: e", {"a": "b: c", "d": "e"}),
    ],
)
def test_front_matter_has_the_values_of_yaml_1_2(front, metadata):
    for end in ("---", "...", "---  \r"):
        document = read_markdown(f"---\n{front}\n{end}\nThe text.")
        assert (document.metadata, document.text) == (metadata, "The text.")


@pytest.mark.parametrize(
    "text",
    [
        "---\n\nBring: the lamp\nAnd: the rope\n\n---\n\nLater.",
        "--- \n \t\nBring: the lamp\n---",
        "---\nBring: the lamp\nand the rope.\n---\nLater.",
        "---\nA sentence.\n---\nLater.",
        "---\n- a\n- b\n---\nLater.",
        "---\n# Heading\n---\nLater.",
        "---\nnever: closed\nLater.",
        "---\na: 1\n----\nLater.",
        "+++\nnot toml\n+++\nLater.",
    ],
)
def test_text_between_rules_without_front_matter_stays_in_text(text):
    document = read_markdown(text)
    assert (document.metadata, document.text) == ({}, text.strip())


@pytest.mark.parametrize("front", ["---\n---", "---\n\n---", "--- \n...", "+++\n+++"])
def test_empty_front_matter_adds_no_metadata(front):
    document = read_markdown(f"{front}\n\n# Owl\n\nIt hunts.")
    assert (document.title, document.metadata, document.text) == ("Owl", {}, "It hunts.")
    assert [mark.kind for mark in document.outline] == ["line"]


@pytest.mark.parametrize(
    "text",
    [
        "> " * 50_000 + "x" + "\n" * 20_000,
        "- " * 50_000 + "x" + "\n" * 20_000,
        "x\n" + "<h1>" * 100_000,
        "<div>" + "<h1>a" * 100_000,
        "# " + "[" * 100_000,
        "# " + "`" * 50_000 + " " + "*" * 50_000,
        "# " + "[a](" * 30_000,
        "a\n" * 200_000 + "===",
        "[a\n" * 200_000 + "# [a]",
        "<!--" * 200_000,
        "<a " * 200_000,
        "---\n" + "a: b: c\n" * 8_000 + "---",
    ],
)
def test_hostile_markdown_takes_little_time(text):
    started = time.process_time()
    read_markdown(text)
    assert time.process_time() - started < 5


DATA = base64.b64encode(random.Random(5).randbytes(900)).decode()
WRAPPED = "\n".join(DATA[start : start + 76] for start in range(0, len(DATA), 76))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"![o](data:image/png;base64,{DATA} 'An otter')", "![o](data:image/png 'An otter')"),
        (f"[o]: data:image/gif;base64,{DATA}\nNext words", "[o]: data:image/gif\nNext words"),
        (f"<img src='data:image/png;base64,\n{WRAPPED}'> x", "<img src='data:image/png'> x"),
        (
            f"a {{b: url(data:font/woff2;charset=utf-8;base64,{DATA})}}",
            "a {b: url(data:font/woff2)}",
        ),
        (f'"data:image/svg+xml;utf8,{"<p x=1/>" * 9}" b', '"data:image/svg+xml" b'),
        (f"url(data:image/svg+xml,{'%3Cp/%3E' * 9}) b", "url(data:image/svg+xml) b"),
        (f"DATA:IMAGE/PNG;BASE64,{DATA}", "DATA:IMAGE/PNG"),
    ],
)
def test_markdown_data_urls_are_left_out(text, expected):
    for read in (read_markdown, read_plain):
        document = read(text)
        assert (document.text, document.losses) == (expected, ())
    cells = [{"cell_type": "markdown", "source": text}]
    assert read_notebook(json.dumps({"cells": cells})).text == expected


@pytest.mark.parametrize(
    "text",
    [
        "data:text/plain;base64,SGVsbG8sIFdvcmxkIQ==",
        f"data:text/html,<p>{'many words ' * 9}end",
        f"metadata:image/png;base64,{DATA}",
        f"the data: image/png and base64,{DATA}",
    ],
)
def test_short_data_urls_and_words_stay_in_text(text):
    assert read_plain(text).text == text


def test_data_urls_without_picture_are_counted():
    document = read_markdown(f"[a](data:application/pdf;base64,{DATA})\n" * 2)
    assert document.losses == (("data", "2 data URIs with 2 kB of application/pdf left out"),)


def test_lines_below_data_of_several_lines_keep_their_numbers():
    picture = f'<img src="data:image/png;base64,{WRAPPED}">'
    text = f"---\nicon: x\n---\n\none\n{picture}\ntwo\n\n{picture} {picture}\n## three\n"
    document = read_markdown(text)
    lines = document.text.split("\n")
    numbers = {}
    marks = [mark for mark in document.outline if mark.kind == "line"]
    for mark in marks:
        first = document.text.count("\n", 0, mark.offset)
        numbers |= {line: int(mark.label) + n for n, line in enumerate(lines[first:])}
    source_lines = text.split("\n")
    for line in ("one", "two", "## three"):
        assert source_lines[numbers[line] - 1] == line


def test_the_first_heading_of_a_notebook_is_its_title():
    cells = [{"cell_type": "markdown", "source": ["# Otters *swim*\n", "## How"]}]
    document = read_notebook(json.dumps({"cells": cells}))
    assert (document.title, document.text) == ("Otters swim", "# Otters *swim*\n## How")


@pytest.mark.parametrize(
    "text",
    [
        '"data:a/b;base64,' * 50_000,
        "data:image/a," * 70_000,
        f'"data:a/b;base64,\n{"A" * 48}"\n' * 15_000,
        "data:" * 200_000,
        "data:a/b" + ";a" * 300_000,
    ],
)
def test_hostile_addresses_take_little_time(text):
    started = time.process_time()
    read_plain(text)
    assert time.process_time() - started < 5
