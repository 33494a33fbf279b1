"""`retriever mcp`: which indexes it serves, under which names. Serving is tested elsewhere."""

from __future__ import annotations

import pytest

pytest.importorskip("mcp")

from retriever import Index
from tests.cli.conftest import refused


@pytest.fixture
def served(monkeypatch):
    """The indexes that the command would serve, by name."""
    found = {}
    monkeypatch.setattr(
        "retriever.mcp.server.make_server",
        lambda indexes, version: {name: index.folder for name, index in indexes.items()},
    )
    monkeypatch.setattr("retriever.mcp.server.serve_stdio", found.update)
    return found


@pytest.fixture
def folders(tmp_path, fake_encoder):
    made = [tmp_path / name for name in ("wiki.index", "papers", "other/papers")]
    for folder in made:
        folder.parent.mkdir(exist_ok=True)
        Index.create(folder).close()
    return made


def test_an_index_is_called_like_its_folder_or_as_the_user_says(
    retriever, served, folders, monkeypatch
):
    wiki, papers, other = folders
    assert retriever("mcp", wiki, papers, f"more={other}").code == 0
    assert served == {"wiki": wiki, "papers": papers, "more": other}
    served.clear()
    monkeypatch.setenv("RETRIEVER_INDEX", str(papers))
    assert retriever("mcp", "--model", "::dtype=float32").code == 0
    assert served == {"papers": papers}


def test_what_cannot_be_served_is_refused(retriever, served, folders):
    said = "two indexes are called 'papers': give one as NAME=INDEX"
    refused(retriever("mcp", *folders[1:]), said)
    refused(retriever("mcp", folders[0], "--model", "another"), "another")
    assert not served
