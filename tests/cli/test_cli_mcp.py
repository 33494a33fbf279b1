"""`retriever mcp`: which indexes it serves, under which names. Serving is tested elsewhere."""

from __future__ import annotations

import pytest

pytest.importorskip("mcp")

from retriever import Index
from tests.cli.conftest import assert_refused


@pytest.fixture
def served(monkeypatch):
    """Arguments of the server that the command would start: indexes by name, and the address."""
    calls = {}
    monkeypatch.setattr(
        "retriever.mcp.server.make_server",
        lambda indexes, version: calls.update(
            indexes={name: index.folder for name, index in indexes.items()}
        ),
    )
    monkeypatch.setattr("retriever.mcp.server.serve_stdio", lambda _: calls.update(http=None))

    def serve_http(server, host, port, token, ready):
        calls["http"] = (host, port, token)
        ready()

    monkeypatch.setattr("retriever.mcp.server.serve_http", serve_http)
    return calls


@pytest.fixture
def folders(tmp_path, fake_encoder):
    paths = [tmp_path / name for name in ("wiki.index", "papers", "other/papers")]
    for folder in paths:
        folder.parent.mkdir(exist_ok=True)
        Index.create(folder).close()
    return paths


def test_mcp_names_index_after_folder_or_given_name(retriever, served, folders, monkeypatch):
    wiki, papers, other = folders
    assert retriever("mcp", wiki, papers, f"more={other}").code == 0
    assert served == {"indexes": {"wiki": wiki, "papers": papers, "more": other}, "http": None}
    monkeypatch.setenv("RETRIEVER_INDEX", str(papers))
    assert retriever("mcp", "--model", "::dtype=float32").code == 0
    assert served["indexes"] == {"papers": papers}


def test_mcp_refuses_indexes_it_cannot_serve(retriever, served, folders):
    message = "two indexes have the name 'papers'; give them different names with NAME=INDEX"
    assert_refused(retriever("mcp", *folders[1:]), message)
    assert_refused(retriever("mcp", folders[0], "--model", "another"), "another")
    assert not served


def test_http_is_served_on_this_machine_alone_by_default(retriever, served, folders, monkeypatch):
    done = retriever("mcp", folders[0], "--http", "8766")
    assert served["http"] == ("127.0.0.1", 8766, None)
    assert done.err == "http://127.0.0.1:8766/mcp (Ctrl-C ends)\n"
    monkeypatch.setenv("RETRIEVER_TOKEN", "secret")
    done = retriever("mcp", folders[0], "--http", "8766", "--host", "::")
    assert served["http"] == ("::", 8766, "secret")
    assert done.err.startswith("http://[::]:8766/mcp")
