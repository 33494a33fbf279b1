"""Pages that JavaScript builds: what they show without it is no text."""

from __future__ import annotations

import pytest

from retriever import CorpusReader
from tests.retriever.documents.source_samples import write

pytest.importorskip("trafilatura")
from retriever.documents.kinds.html import read_html

SCRIPT = "<script src=/app.js></script>"
SHELLS = {
    "noscript": f"<noscript>Please enable JavaScript to use the shop.</noscript>{SCRIPT}",
    "noscript in blocks": f"<noscript><h1>Oops</h1><p>This needs JavaScript.</noscript>{SCRIPT}",
    "loading": f"<div id=app>Loading...</div>{SCRIPT}",
    "loading in a heading": f"<div id=app><h1>Please wait</h1></div>{SCRIPT}",
    "a request": f"<p>Bitte aktivieren Sie JavaScript in Ihrem Browser.</p>{SCRIPT}",
    "nothing": f"<div id=app></div>{SCRIPT}",
}


@pytest.mark.parametrize("kind", SHELLS)
def test_html_shell_has_no_text_and_is_named(tmp_path, kind):
    write(tmp_path / "shell.html", f"<title>Shop</title>{SHELLS[kind]}")
    reader = CorpusReader(tmp_path)
    [document] = reader
    assert (document.text, document.title) == ("", "Shop")
    assert reader.files.named == [
        f"{tmp_path}/shell.html: no text, since JavaScript builds the page"
    ]


def test_html_shell_without_title_is_empty_document(tmp_path):
    write(tmp_path / "shell.html", SHELLS["noscript"])
    reader = CorpusReader(tmp_path)
    assert list(reader) == []
    assert reader.empty_at == [f"{tmp_path}/shell.html"]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (
            f"<noscript>JavaScript shows maps.</noscript><p>The weir is open.{SCRIPT}",
            "The weir is open.",
        ),
        (f"<noscript><p>The weir is open.</noscript><div></div>{SCRIPT}", "The weir is open."),
        (f"<p>Loading bay: ring twice{SCRIPT}", "Loading bay: ring twice"),
        (f"<main><p>JavaScript is a language.</main>{SCRIPT}", "JavaScript is a language."),
        ("<p>Loading", "Loading"),
    ],
)
def test_html_page_with_text_is_no_shell(page, text):
    parsed = read_html(page.encode())
    assert parsed.text == text
    assert parsed.losses == ()
