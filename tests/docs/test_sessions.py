"""The sessions on documentation pages print what the pages say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def session(page, heading):
    """The Python of a section and what it prints, by the page."""
    _, section = re.split(rf"^##+ {heading}$", (DOCS / page).read_text(), flags=re.MULTILINE)
    found = re.search(r"^```python\n(.*?)^```\n\n```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return found[1], found[2]


@pytest.mark.parametrize(
    ("page", "heading", "needed"),
    [
        ("mcp.md", "A session", "mcp"),
        ("integrations.md", "LangChain", "langchain_core"),
        ("integrations.md", "LlamaIndex", "llama_index.core"),
        ("integrations.md", "Haystack", "haystack"),
        ("integrations.md", "MTEB", "mteb"),
        ("moving.md", "A session with Chroma", "chromadb"),
        ("moving.md", "A session with FAISS", "faiss"),
    ],
)
def test_a_session_prints_what_the_page_says(
    page, heading, needed, tmp_path, monkeypatch, fake_encoder
):
    pytest.importorskip(needed)
    code, expected = session(page, heading)
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, page, "exec"), {})
    assert printed.getvalue() == expected
