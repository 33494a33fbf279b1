"""`retriever index`: several sources, empty documents, interruptions, and what it notes."""

from __future__ import annotations

from retriever import Index
from retriever.index.add import CommitSettings
from tests.cli.conftest import GOOD, found, refused


def test_an_empty_document_deletes_the_one_with_its_id(retriever, fake_encoder, write_jsonl):
    source = write_jsonl({"id": "a", "text": "x"}, {"id": "b", "text": "y"})
    retriever("index", source)
    write_jsonl({"id": "a", "text": " "}, {"id": "b", "text": "y"})
    done = retriever("index", source)
    assert done.out.startswith(".retriever: 0 added, 0 updated, 1 unchanged, 1 deleted, ")
    assert done.err == (
        f"warning: 1 document without text skipped: {source}:1\n"
        "note: 1 document deleted, whose new version is empty\n"
    )


def test_an_interrupted_run_says_what_it_committed(
    retriever, write_jsonl, fake_encoder, monkeypatch
):
    source = write_jsonl(*({"id": f"d{i}", "text": f"text number n{i}"} for i in range(20)))
    encode, windows = fake_encoder.encode_pieces, iter(range(2))

    def interrupted(pieces, done):
        if next(windows, None) is None:
            raise KeyboardInterrupt
        return encode(pieces, done)

    small = CommitSettings(window_passages=4)
    monkeypatch.setattr("retriever.index.add.CommitSettings", lambda: small)
    with monkeypatch.context() as patch:
        patch.setattr(fake_encoder, "encode_pieces", interrupted)
        done = retriever("index", source)
    said = ".retriever: 8 documents of this run committed, what was being encoded is lost; run the "
    said += "same command again to resume\n\nretriever: interrupted\n"
    assert (done.code, done.err) == (130, said)
    with Index.open(".retriever") as index:
        assert len(index) == 8
    assert "12 added, 0 updated, 8 unchanged" in retriever("index", source).out


def test_an_existing_index_can_be_required(retriever, fake_encoder, write_jsonl):
    asked = (
        "index",
        write_jsonl({"id": "new", "text": "New text."}, name="new.jsonl"),
        "--existing",
    )
    retriever("index", write_jsonl(*GOOD), "--language", "german", "-q")
    assert found(retriever(*asked, "--json"))["added"] == 1
    refused(retriever(*asked, "--language", "french"), "made with")
    info = found(retriever("info", "--json"))
    assert (info["documents"], info["analyzer"]["language"]) == (3, "german")


def test_exact_copies_are_counted(retriever, fake_encoder, write_jsonl):
    texts = {"a": "one", "b": "one", "c": "two", "d": "one"}
    source = write_jsonl(
        *({"id": id_, "text": text, "n": id_} for id_, text in texts.items()),
        {"id": "e", "text": "one", "title": "another"},
    )
    assert "; exact copies of others: 2; " in retriever("index", source).out
    retriever("delete", "a")
    info = retriever("info").out
    assert "documents    4, 1 of them exact copies of others\n" in info
    source = write_jsonl({"id": "d", "text": "three"})
    assert found(retriever("index", source, "--json"))["copies"] == 0
    assert found(retriever("info", "--json"))["copies"] == 0
