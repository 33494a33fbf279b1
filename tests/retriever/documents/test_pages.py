"""Pages in HTML: their menus, code within sentences, and pages of many items."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from retriever.documents.kinds import html
from retriever.documents.kinds.html import read_html

for module in ("lxml", "trafilatura"):
    pytest.importorskip(module)

TEXT = "<p>Bees make honey of nectar, which they find in flowers near their hive.</p>"
MENU = "<ul><li><a href=a>Home</a><li><a href=b>About</a><li><a href=c>Hives</a></ul>"
MENUS = {
    "list before the first heading": f"<div><p>Small. Sweet.</p>{MENU}</div><h2>Bees</h2>{TEXT}",
    "list before text without headings": f"<div>{MENU}</div>{TEXT}",
    "class": f"<div class='docnav top'><a href=a>Prev</a> The book</div><h2>Bees</h2>{TEXT}",
    "class below the text": f"<h2>Bees</h2>{TEXT}<div class=navfooter><a href=a>Next</a></div>",
    "table": f"<div class=navheader><table><tr><td><a href=a>Up</a></table></div>{TEXT}",
    "role": f"<h2>Bees</h2><div role=navigation><a href=a>Up</a> <a href=b>On</a></div>{TEXT}",
    "footer": f"<h2>Bees</h2>{TEXT}<footer><a href=a>Imprint</a></footer>",
    "neighbors": f"<h2>Bees</h2><a class=previous_page href=a>before</a>{TEXT}",
    "path": f"<div class=breadcrumbs><a href=a>Top</a></div><h2>Bees</h2>{TEXT}",
}


def text_without_menus(page: str) -> str:
    """All text of a page but its menus, which the library has not seen."""
    root = html.tree_of(page)
    html.remove_menus(root)
    return html.block_text(root).text


@pytest.mark.parametrize("name", MENUS)
def test_html_menus_are_left_out(name):
    page = f"<title>Hive</title><body>{MENUS[name]}"
    assert text_without_menus(page).removeprefix("Bees\n\n") == TEXT[3:-4]
    main = read_html(f"<title>Hive</title><main>{MENUS[name]}</main>".encode())
    assert main.text.removeprefix("Bees\n\n") == TEXT[3:-4]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        # A box of DocBook, and a footnote of Sphinx.
        (f"{TEXT}<div class=sidebar>Hives: <a href=a>see there</a></div>", "Hives: see there"),
        (f"{TEXT}<aside>[1] As <a href=a>Ada</a> says of her bees.</aside>", "[1] As Ada says of"),
        # What a link list stands below is a contents list.
        (f"<h1>Bees</h1>{MENU}{TEXT}", "Home\nAbout\nHives"),
        # Nothing else is there.
        (f"<body>{MENU}", "Home\nAbout\nHives"),
        # A section about menus, and the tail of a menu.
        (f"<div class=menu><h2>Menus</h2><a href=a>x</a></div>{TEXT}", "Menus\n\nx"),
        (f"<h2>B</h2><p>one <a rel=next href=a>on</a> two {TEXT}", "one two"),
        # Targets of links are no links.
        (
            f"<div><a name=a>Drones</a> <a name=b>Queens</a></div><h2>Bees</h2>{TEXT}",
            "Drones Queens",
        ),
    ],
)
def test_text_that_looks_like_a_menu_stays(page, text):
    assert text in text_without_menus(f"<title>Hive</title>{page}")


def test_code_with_a_line_break_is_part_of_its_sentence():
    page = "<main><p>Use <code>git\nrebase</code> or <b>not</b>.<p>See <code>a\nb</code></main>"
    assert read_html(page.encode()).text == "Use git rebase or not.\n\nSee a b"
    block = "<main><p>Use:</p><pre><code>git\n  rebase</code></pre><code>a\n  b</code></main>"
    assert read_html(block.encode()).text == "Use:\n\ngit\n  rebase\n\na\n  b"


def test_a_page_of_many_items_is_read_in_linear_time():
    items = [f"item number {number}" for number in range(20_400)]
    page = f"<title>List</title><h1>All</h1><ul>{''.join(f'<li>{item}' for item in items)}</ul>"
    started = time.monotonic()
    parsed = read_html(page.encode())
    assert time.monotonic() - started < 40
    assert (parsed.title, parsed.text.split("\n")) == ("All", items)


def test_a_page_on_which_the_library_fails_is_read_as_a_whole(monkeypatch):
    def fail(*_arguments, **_options):
        raise RuntimeError

    page = f"<title>Hive</title><h2>Bees</h2>{TEXT}".encode()
    monkeypatch.setattr("trafilatura.bare_extraction", fail)
    assert read_html(page).text == f"Bees\n\n{TEXT[3:-4]}"


def test_a_page_on_which_the_library_hangs_is_read_as_a_whole():
    # The limit is a signal of the process, which workers of pytest do not bear.
    script = """if True:
        import sys, time
        import trafilatura
        from retriever.documents.kinds import html
        trafilatura.bare_extraction = lambda *_, **__: time.sleep(60)
        html._EXTRACTION_SECONDS = 0.2
        sys.stdout.write(html.read_html(sys.stdin.buffer.read()).text)
    """
    page = f"<title>Hive</title><h2>Bees</h2>{TEXT}"
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=page,
        capture_output=True,
        text=True,
        timeout=40,
        check=True,
    )
    assert done.stdout == f"Bees\n\n{TEXT[3:-4]}"


@pytest.mark.parametrize(
    "page",
    [
        "<main role=main>" * 500 + "x",
        "<meta name=a content=b>" * 50_000 + "<p>x",
        "<title>a</title>" * 50_000 + "<p>x",
        f"<p class='{'nav-' * 200_000}x'><a href=a>x</a> x",
        "<div class=menu><a href=a>b</a>" * 900 + "x",
        "<ul class=nav><li><a href=a>b</a></ul>" * 10_000 + "<p>x",
        "<a href=a>" * 20_000 + "x",
    ],
)
def test_a_hostile_page_is_read_in_little_time(page):
    started = time.monotonic()
    assert "x" in read_html(page.encode()).text
    assert time.monotonic() - started < 40


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ("<tr><th>key<th>unit<tr><td>retry<td>ms", "key | unit\nretry | ms"),
        (
            "<tr><td><p>key</p><td><p>unit</p><tr><td>retry<td><div>ms</div>",
            "key | unit\nretry | ms",
        ),
        # An empty cell does not join two rows.
        ("<tr><td>key<td>unit<tr><td><td>ms", "key | unit\nms"),
        ("<tr><td>key<td><td>unit", "key | unit"),
        ("<tr><td>key<td></table><p>text", "key\n\ntext"),
        ("<tr><td>key<td><table><tr><td>a<td>b</table><td>c", "key\na | b | c"),
    ],
)
def test_cells_of_a_row_are_parted_on_one_line(rows, text):
    assert read_html(f"<main><table>{rows}</table></main>".encode()).text == text


EQUATIONS = {
    "<mfrac><mi>way</mi><mi>time</mi></mfrac>": "way/time",
    "<msup><mi>c</mi><mn>2</mn></msup>": "c^2",
    "<msub><mi>H</mi><mn>2</mn></msub><mi>O</mi>": "H2O",
    "<msub><mi>v</mi><mi>max</mi></msub>": "v max",
    "<mi>a</mi><mi>b</mi><mo>=</mo><mi>area</mi><mi>side</mi>": "ab=area side",
    "<msqrt><mi>a</mi><mo>+</mo><mi>b</mi></msqrt>": "√(a+b)",
    "<mtable><mtr><mtd><mn>1</mn></mtd><mtd>2</mtd></mtr><mtr><mtd>3</mtd></mtr></mtable>": (
        "1 2; 3"
    ),
    "<semantics><mi>k</mi><annotation encoding='TeX'>\\kappa</annotation></semantics>": "k",
    "<semantics><mi>k</mi><annotation-xml><ci>kappa</ci></annotation-xml></semantics>": "k",
    "<mrow>" * 1000 + "<mi>k</mi>": "k",
}


@pytest.mark.parametrize("content", EQUATIONS)
def test_the_letters_of_an_equation_stand_where_it_does(content):
    page = f"<main><p>It is <math>{content}</math>, so <m:math><m:mi>x</m:mi></m:math>.</main>"
    assert read_html(page.encode()).text == f"It is {EQUATIONS[content]}, so x."


@pytest.mark.parametrize(
    "drawn",
    [
        # As KaTeX and MathJax 2 write it.
        "<span class=katex><span class=katex-mathml>{}</span><span class=katex-html "
        "aria-hidden=true><span>k</span><span>x2</span></span></span>",
        "<span class=MathJax><nobr aria-hidden=true><span>kx2</span></nobr><span role=x>{}</span>"
        "</span>",
    ],
)
def test_an_equation_that_is_drawn_beside_its_letters_is_read_once(drawn):
    equation = "<math><mi>k</mi><msup><mi>x</mi><mn>2</mn></msup></math>"
    page = f"<main><p>It is {drawn.format(equation)}, he said.</main>"
    assert " ".join(read_html(page.encode()).text.split()) in (
        "It is kx^2, he said.",
        "It is kx^2 , he said.",
    )


def test_tables_and_headings_of_pages_without_paragraphs_stay_apart():
    rows = "".join(f"<tr><td>hive {number}</td><td>{number} kg</td></tr>" for number in range(4))
    table = f"<table><tr><th>Place</th><th>Honey</th></tr>{rows}</table>"
    parsed = read_html(f"<html><body><h1>Harvest</h1>{table}</body></html>".encode())
    assert parsed.title == "Harvest"
    assert parsed.text.splitlines()[:2] == ["Place | Honey", "hive 0 | 0 kg"]
    items = (
        "<dl><dt>Drone</dt><dd>a male bee</dd></dl><details><summary>Queen</summary>one</details>"
    )
    parsed = read_html(f"<html><body><h1>Words</h1>{items}</body></html>".encode())
    assert (parsed.title, parsed.text) == ("Words", "Drone\na male bee\n\nQueen\n\none")
