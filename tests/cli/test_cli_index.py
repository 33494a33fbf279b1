"""`retriever index`: several sources, empty documents, interruptions, and what it notes."""

from __future__ import annotations

import json

import pytest

from retriever import Index
from retriever.index.add import CommitSettings
from tests.cli.error_cases import GOOD, refused


@pytest.fixture(autouse=True)
def elsewhere(in_a_folder):
    """Each test has a folder of its own."""


def test_an_empty_document_deletes_the_one_with_its_id(retriever, write_jsonl):
    source = write_jsonl({"id": "a", "text": "x"}, {"id": "b", "text": "y"})
    retriever("index", source)
    write_jsonl({"id": "a", "text": " "}, {"id": "b", "text": "y"})
    done = retriever("index", source)
    assert done.out.startswith(".retriever: 0 added, 0 updated, 1 unchanged, 1 deleted, ")
    assert done.err == (
        f"warning: 1 document without text skipped: {source}:1\n"
        "note: 1 document deleted, whose new version is empty\n"
    )
    facts = json.loads(retriever("index", source, "--json").out)
    assert (facts["deleted"], facts["empty"], facts["unchanged"]) == (0, 1, 1)


@pytest.mark.parametrize("windows", [0, 2])
def test_an_interrupted_run_says_what_it_committed(
    retriever, write_jsonl, fake_encoder, monkeypatch, windows
):
    records = [{"id": f"d{i}", "text": f"text number n{i}"} for i in range(20)]
    encode, left = fake_encoder.encode_pieces, [windows]

    def interrupted(pieces, done):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return encode(pieces, done)

    monkeypatch.setattr(fake_encoder, "encode_pieces", interrupted)
    small = CommitSettings(window_passages=4)
    monkeypatch.setattr("retriever.index.add.CommitSettings", lambda: small)
    done = retriever("index", write_jsonl(*records))
    said = f".retriever: {4 * windows} documents of this run committed, what was being encoded is "
    said += "lost; run the same command again to resume"
    assert (done.code, said in done.err) == (130, True)
    with Index.open(".retriever") as index:
        assert len(index) == 4 * windows
    monkeypatch.setattr(fake_encoder, "encode_pieces", encode)
    assert f"{4 * windows} unchanged" in retriever("index", write_jsonl(*records)).out


def test_an_existing_index_can_be_required(retriever, write_jsonl, tmp_path):
    new = write_jsonl({"id": "new", "text": "New text."}, name="new.jsonl")
    asked = ("index", new, "--existing")
    refused(retriever(*asked), ".retriever: no index here", "retriever index")
    (tmp_path / "stuff").mkdir()
    (tmp_path / "stuff" / "mine").touch()
    refused(retriever(*asked, "-i", "stuff"), "stuff: this folder is not an index")
    refused(retriever(*asked, "--recreate"), "--existing: --recreate makes a new index")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine", "new.jsonl", "stuff"]
    assert retriever("index", write_jsonl(*GOOD), "--language", "german", "-q").code == 0
    assert json.loads(retriever(*asked, "--json").out)["added"] == 1
    refused(retriever(*asked, "--language", "french"), "made with")
    info = json.loads(retriever("info", "--json").out)
    assert (info["documents"], info["analyzer"]["language"]) == (3, "german")
