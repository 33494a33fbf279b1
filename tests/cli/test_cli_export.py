"""`export`, `import`, `snapshot` and `reindex`: what is printed, and what is refused."""

from __future__ import annotations

import io
import shlex
import sys

import numpy as np
import pytest

from tests.cli.conftest import assert_refused, printed_json, printed_lines
from tests.retriever.index.collection_samples import word_vectors

RECORDS = [
    {"id": "b", "title": "w5", "text": "w1 w2 w3", "year": 2020},
    {"id": "a", "text": "w4 " * 20 + "w6"},
    {"id": "ü", "text": "w7 Füße"},
]
ONE = ("--model", "one.txt::max-length=12")
TWO = ("--model", "two.txt")


@pytest.fixture(autouse=True)
def _models(tmp_path):
    word_vectors(tmp_path / "one.txt")
    word_vectors(tmp_path / "two.txt", seed=2, dimensions=5)


@pytest.fixture
def indexed(retriever, write_jsonl):
    assert retriever("index", write_jsonl(*RECORDS), *ONE, "--quiet") == (0, "", "")


@pytest.fixture
def hits(retriever):
    return lambda *arguments: printed_lines(retriever("query", "w4 w1", "--json", *arguments))


def test_an_export_goes_to_files_or_to_standard_output(indexed, retriever, tmp_path):
    assert retriever("export", "out.jsonl") == (0, "out.jsonl: 3 documents, 5 passages\n", "")
    printed = retriever("export", "-")
    assert (printed.err, printed.out) == ("", (tmp_path / "out.jsonl").read_text("utf-8"))
    assert printed_lines(printed) == sorted(RECORDS, key=lambda record: record["id"])
    named = retriever("export", "-", "--id-field", "key", "--text-field", "body")
    assert printed_lines(named)[0] == {"key": "a", "body": RECORDS[1]["text"]}
    assert retriever("export", "out.jsonl", "--quiet") == (0, "", "")
    assert printed_json(retriever("export", "out.npy", "--json")) == {
        "documents": 3,
        "passages": 5,
        "files": ["out.npy", "out.ids.jsonl", "out.encoder.json"],
    }
    assert np.load("out.npy").shape == (5, 8)


def test_an_export_with_vectors_makes_an_index_that_answers_the_same(
    indexed, retriever, hits, tmp_path, monkeypatch
):
    message = "out.jsonl: 3 documents, 5 passages; beside it out.encoder.json\n"
    assert retriever("export", "out.jsonl", "--vectors").out == message
    done = retriever("import", "out.jsonl", "-i", "two")
    assert done == (0, "two: 3 added, 0 updated, 0 unchanged; 5 vectors stored\n", "")
    stdin = io.TextIOWrapper(io.BytesIO((tmp_path / "out.jsonl").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    piped = printed_json(retriever("import", "-", "-i", "three", *ONE, "--json"))
    counts = {"added": 3, "passages": 5, "split": 1}
    assert {name: count for name, count in piped.items() if count} == counts
    assert hits("-i", "two") == hits("-i", "three") == hits()


def test_import_notes_scaled_vectors_and_skipped_documents(retriever, write_jsonl, tmp_path):
    records = [{"doc": str(i), "body": text} for i, text in enumerate(["w1", " ", "w2"])]
    fields = ("--id-field", "doc", "--text-field", "body", "--set", "stop-words=no")
    fielded = write_jsonl(*({**record, "v": [2, 0, 0, 0, 0]} for record in records), name="v.jsonl")
    np.save(tmp_path / "v.npy", np.eye(2, 5, dtype=np.float32))
    for folder, source, options, where, message in (
        ("i", fielded, ("--set", "vector-field=v"), "1", "note: 2 vectors scaled to length 1"),
        ("j", write_jsonl(*records), ("--vectors", "v.npy"), f"{tmp_path}/corpus.jsonl:2", ""),
    ):
        warning = f"^1 document holds neither text nor title and was skipped: {where!r}$"
        with pytest.warns(UserWarning, match=warning):
            done = retriever("import", source, *TWO, *fields, *options, "-i", folder)
        added = f"{folder}: 2 added, 0 updated, 0 unchanged, 1 empty; 2 vectors stored\n"
        assert done.out == added
        assert done.err.startswith(message)
        info = printed_json(retriever("info", "-i", folder, "--json"))
        assert info["analyzer"]["stop_words"] is False


REFUSED = [
    ("import wrong.jsonl", "--model"),
    ("import wrong.jsonl --model one.txt::max-length=12", "of 8 dimensions"),
    ("export out.csv", "or - for JSONL to standard output, found '.csv"),
    ("export out", "found 'no ending'"),
    ("export nowhere/out.npy", "make the folder"),
    ("export - --json", "(see `retriever export --help`)"),
    ("export out.npy --id-field key", "(see `retriever export --help`)"),
    ("reindex --model none", "none"),
    ("reindex -i nowhere --model two.txt", "no index here"),
    ("reindex --model ::pooling=max", "static"),
    ("snapshot .retriever", "is the index itself"),
]


def test_export_import_reindex_refusals_are_one_line_and_change_nothing(
    indexed, retriever, hits, write_jsonl, tmp_path
):
    write_jsonl({"id": "a", "text": "w1", "vector": [1, 2]}, name="wrong.jsonl")
    before = hits()
    for line, message in REFUSED:
        assert_refused(retriever(*shlex.split(line)), message)
    assert hits() == before
    assert not list(tmp_path.glob("out*"))


def test_snapshot_answers_like_its_index(indexed, retriever, hits, tmp_path):
    done = retriever("snapshot", "copy")
    assert (done.code, done.err) == (0, "")
    assert done.out == "copy: 3 documents copied and verified\n"
    assert hits("-i", "copy") == hits()
    assert retriever("verify", "-i", "copy") == (0, "copy: sound\n", "")
    facts = printed_json(retriever("snapshot", "other", "--json"))
    assert facts.items() >= {"folder": "other", "documents": 3, "segments": 0}.items()
    retriever("compact")
    (tmp_path / ".retriever" / "segments" / "000001" / "vectors.npy").unlink()
    assert_refused(retriever("snapshot", "third"), "vectors.npy: the file is missing", code=3)


def test_reindexing_takes_another_encoder_and_keeps_the_rest(indexed, retriever):
    retriever("index", "corpus.jsonl", "--recreate", *ONE, "--language", "german")
    done = retriever("reindex", "--on-long", "truncate", "--json")
    assert done.err == "warning: 1 document truncated to the encoder's window\n"
    facts = printed_json(done)
    assert facts.pop("seconds") >= 0
    counts = {"documents": 3, "passages": 3, "resumed": 0, "split": 0, "truncated": 1}
    assert facts == {"changed": True, **counts}
    done = retriever("reindex", *TWO, "--set", "stemming=no")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(".retriever: 3 documents, 3 passages encoded in ")
    info = printed_json(retriever("info", "--json"))
    assert info["encoder"]["dimensions"] == 5
    division = info["analyzer"].pop("division")
    assert info["analyzer"].pop("detection") == "words"
    assert info["analyzer"].pop("terms") == "whole"
    assert division in ("icu", "grams")
    assert info["analyzer"] == {"language": "german", "stemming": False, "stop_words": True}
    assert info["long_texts"]["on_long"] == "truncate"
    unchanged = ".retriever: nothing changes, the index has this encoder and these settings\n"
    assert retriever("reindex", *TWO) == (0, unchanged, "")
    assert printed_json(retriever("reindex", *TWO, "--json"))["changed"] is False
