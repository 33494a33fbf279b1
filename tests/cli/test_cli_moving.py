"""`export`, `import`, `snapshot` and `reindex`: what is printed, and what is refused."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest

from tests.cli.error_cases import refused
from tests.retriever.index.moving_samples import word_vectors

RECORDS = [
    {"id": "b", "title": "w5", "text": "w1 w2 w3", "year": 2020},
    {"id": "a", "text": "w4 " * 20 + "w6"},
    {"id": "ü", "text": "w7 Füße"},
]


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETRIEVER_INDEX", raising=False)
    word_vectors(tmp_path / "one.txt")
    word_vectors(tmp_path / "two.txt", seed=2, dimensions=5)
    return ("--model", "one.txt::max-length=12"), ("--model", "two.txt")


@pytest.fixture
def indexed(models, retriever, write_jsonl):
    corpus = write_jsonl(*RECORDS)
    assert retriever("index", corpus, *models[0], "--quiet") == (0, "", "")


def hits(retriever, *arguments):
    return retriever("query", "w4 w1", "--json", *arguments).out


def test_an_export_goes_to_a_file_or_to_standard_output(indexed, retriever, tmp_path):
    done = retriever("export", "out.jsonl")
    assert done == (0, "out.jsonl: 3 documents, 5 passages\n", "")
    printed = retriever("export", "-")
    assert (printed.code, printed.err) == (0, "")
    assert printed.out == (tmp_path / "out.jsonl").read_text("utf-8")
    assert [json.loads(line) for line in printed.out.splitlines()] == sorted(
        RECORDS, key=lambda record: record["id"]
    )
    assert retriever("index", "out.jsonl", "--json").out.startswith('{"added": 0, "updated": 0,')
    assert retriever("export", "out.jsonl", "--quiet") == (0, "", "")


def test_export_tells_of_its_files_as_json(indexed, retriever):
    done = retriever("export", "out.npy", "--json")
    assert json.loads(done.out) == {
        "documents": 3,
        "passages": 5,
        "files": ["out.npy", "out.ids.jsonl", "out.encoder.json"],
    }
    assert np.load("out.npy").shape == (5, 8)
    assert retriever("export", "v.jsonl", "--vectors").out == (
        "v.jsonl: 3 documents, 5 passages; beside it v.encoder.json\n"
    )


def test_an_export_with_vectors_makes_an_index_that_answers_the_same(
    indexed, retriever, models, tmp_path, monkeypatch
):
    retriever("export", "out.jsonl", "--vectors")
    done = retriever("import", "out.jsonl", "-i", "two")
    assert done == (0, "two: 3 added, 0 updated, 0 unchanged; 5 vectors stored\n", "")
    for mode in ("dense", "bm25", "hybrid"):
        assert hits(retriever, "-i", "two", "--mode", mode) == hits(retriever, "--mode", mode)
    stdin = io.TextIOWrapper(io.BytesIO((tmp_path / "out.jsonl").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    piped = retriever("import", "-", "-i", "three", *models[0], "--json")
    said = json.loads(piped.out)
    wanted = {"added": 3, "updated": 0, "unchanged": 0, "passages": 5, "scaled": 0}
    assert {name: said[name] for name in wanted} == wanted
    assert hits(retriever, "-i", "three") == hits(retriever)


def test_import_says_which_vectors_it_changed(models, retriever, write_jsonl):
    corpus = write_jsonl({"doc": "a", "body": "w1", "v": [2, 0, 0, 0, 0]})
    fields = ("--id-field", "doc", "--text-field", "body", "--vector-field", "v")
    done = retriever("import", corpus, *models[1], *fields, "--set", "stop-words=no")
    assert done.code == 0
    assert done.err == "note: 1 vector scaled to length 1, as the encoder's own are\n"
    assert json.loads(retriever("info", "--json").out)["analyzer"]["stop_words"] is False


@pytest.mark.parametrize("beside", [True, False])
def test_import_reports_documents_without_text(models, retriever, write_jsonl, tmp_path, beside):
    vector = [[1, 0, 0, 0, 0, 0, 0, 0]]
    records = [{"id": str(i), "text": text} for i, text in enumerate(["w1", " ", "w2"])]
    if beside:
        np.save(tmp_path / "v.npy", np.array(vector * 2, np.float32))
        corpus, option = write_jsonl(*records), ["--vectors", tmp_path / "v.npy"]
    else:
        corpus, option = write_jsonl(*({**one, "vector": vector[0]} for one in records)), []
    where = f"{corpus}:2" if beside else "1"
    said = f"^1 document holds neither text nor title and was skipped: {where!r}$"
    with pytest.warns(UserWarning, match=said):
        done = retriever("import", corpus, *models[0], *option)
    assert done.out == ".retriever: 2 added, 0 updated, 0 unchanged, 1 empty; 2 vectors stored\n"


def test_what_cannot_be_imported_is_one_line(indexed, retriever, models, write_jsonl):
    wrong = write_jsonl({"id": "a", "text": "w1", "vector": [1, 2]}, name="wrong.jsonl")
    before = hits(retriever)
    refused(retriever("import", wrong), "not known", "--model")
    refused(retriever("import", wrong, *models[0]), "wrong.jsonl:1", "8 dimensions", "found 2")
    refused(retriever("import", wrong, *models[1]), "two.txt")
    refused(retriever("import", wrong, *models[0], "--vectors", "none.npy"), "none.npy")
    assert hits(retriever) == before


def test_what_cannot_be_exported_is_one_line(indexed, retriever, tmp_path):
    refused(retriever("export", "out.csv"), "ends in .jsonl or .npy", "found '.csv'")
    refused(retriever("export", "out"), "found 'no ending'")
    refused(retriever("export", "nowhere/out.npy"), "make the folder")
    refused(retriever("export", "-", "-i", "nowhere"), "no index here")
    for arguments in (("-", "--json"), ("out.npy", "--id-field", "key")):
        refused(retriever("export", *arguments), "(see `retriever export --help`)")
    assert not list(tmp_path.glob("out*"))


def test_a_snapshot_is_an_index(indexed, retriever, tmp_path):
    done = retriever("snapshot", "copy")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("copy: 3 documents in 0 segments, generation 1; ")
    assert hits(retriever, "-i", "copy") == hits(retriever)
    assert retriever("verify", "-i", "copy") == (0, "copy: sound\n", "")
    refused(retriever("snapshot", "copy"), "copy: ", "found 'index.sqlite'")
    facts = json.loads(retriever("snapshot", "other", "--json").out)
    assert facts["folder"] == "other"
    assert facts["documents"] == 3
    retriever("compact")
    (tmp_path / ".retriever" / "segments" / "000001" / "vectors.npy").unlink()
    refused(retriever("snapshot", "third"), "vectors.npy: the file is missing", code=3)


def test_reindexing_takes_another_encoder_and_keeps_the_rest(indexed, retriever, models):
    retriever("index", "corpus.jsonl", "--recreate", *models[0], "--language", "german")
    done = retriever("reindex", *models[1], "--set", "stemming=no")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(".retriever: 3 documents, 3 passages encoded in ")
    info = json.loads(retriever("info", "--json").out)
    assert info["encoder"]["dimensions"] == 5
    assert info["analyzer"] == {"language": "german", "stemming": False, "stop_words": True}
    same = retriever("reindex", *models[1])
    assert same == (
        0,
        ".retriever: nothing changes, the index has this encoder and these settings\n",
        "",
    )
    assert json.loads(retriever("reindex", *models[1], "--json").out)["changed"] is False


def test_reindexing_counts_as_json_and_warns_of_what_it_cuts(indexed, retriever):
    done = retriever("reindex", "--on-long", "truncate", "--json")
    assert done.err == ("warning: 1 document truncated to the encoder's window\n")
    facts = json.loads(done.out)
    assert facts.pop("seconds") >= 0
    assert facts == {
        "changed": True,
        "documents": 3,
        "passages": 3,
        "resumed": 0,
        "split": 0,
        "truncated": 1,
    }


def test_what_cannot_be_reindexed_is_one_line(indexed, retriever):
    before = hits(retriever)
    refused(retriever("reindex", "--model", "none"), "none")
    refused(retriever("reindex", "-i", "nowhere", "--model", "two.txt"), "no index here")
    refused(retriever("reindex", "--pooling", "max"), "static")
    assert hits(retriever) == before
