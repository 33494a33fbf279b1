"""`retriever mcp`: which indexes it serves, under which names. Serving is tested elsewhere."""

from __future__ import annotations

import pytest

pytest.importorskip("mcp")

from retriever import Index


@pytest.fixture
def served(monkeypatch):
    """What the command would serve: indexes by name, and the address."""
    found = {}
    monkeypatch.setattr(
        "retriever.mcp.server.make_server",
        lambda indexes, version: found.update(
            indexes={name: index.folder for name, index in indexes.items()}
        ),
    )
    monkeypatch.setattr("retriever.mcp.server.serve_stdio", lambda _: found.update(http=None))

    def serve_http(server, host, port, token, ready):
        found["http"] = (host, port, token)
        ready()

    monkeypatch.setattr("retriever.mcp.server.serve_http", serve_http)
    return found


@pytest.fixture
def folders(tmp_path, fake_encoder):
    made = [tmp_path / name for name in ("wiki.index", "papers", "other/papers")]
    for folder in made:
        folder.parent.mkdir(exist_ok=True)
        Index.create(folder).close()
    return made


def test_an_index_is_called_like_its_folder_or_as_the_user_says(retriever, served, folders):
    wiki, papers, other = folders
    assert retriever("mcp", wiki, papers, f"more={other}").code == 0
    assert served == {"indexes": {"wiki": wiki, "papers": papers, "more": other}, "http": None}


def test_two_indexes_of_one_name_are_refused(retriever, served, folders):
    refused = retriever("mcp", *folders[1:])
    assert refused.code == 2
    assert "'papers'" in refused.err
    assert "NAME=INDEX" in refused.err
    assert not served


def test_without_a_folder_it_serves_the_index_of_the_environment(
    retriever, served, folders, monkeypatch
):
    monkeypatch.setenv("RETRIEVER_INDEX", str(folders[0]))
    assert retriever("mcp").code == 0
    assert served["indexes"] == {"wiki": folders[0]}


def test_http_is_served_on_this_machine_alone_by_default(retriever, served, folders, monkeypatch):
    done = retriever("mcp", folders[0], "--http", "8766")
    assert served["http"] == ("127.0.0.1", 8766, None)
    assert done.err.startswith("http://127.0.0.1:8766/mcp")
    monkeypatch.setenv("RETRIEVER_TOKEN", "secret")
    retriever("mcp", folders[0], "--http", "8766", "--host", "::")
    assert served["http"] == ("::", 8766, "secret")


def test_the_encoder_and_how_it_computes_can_be_named(retriever, served, folders):
    refused = retriever("mcp", folders[0], "--model", "another")
    assert refused.code == 2
    assert "another" in refused.err
    assert not served
    assert retriever("mcp", folders[0], "--dtype", "float32").code == 0
