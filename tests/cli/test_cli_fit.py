"""`retriever train static` on small files of word vectors."""

import json

import pytest

from retriever.encoders.static.model import StaticModel


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("one 1 0 0\ntwo 0 1 0\nthree 0.5 0.5 1\nfour 0 0.25 -1\n")
    return path


@pytest.fixture
def corpus(write_jsonl):
    return write_jsonl(
        {"id": "1", "title": "four", "text": "One two three."},
        {"id": "2", "text": "two two three"},
        {"id": "3", "text": "unknown words"},
    )


@pytest.mark.parametrize("method", ["sif", "usif"])
def test_what_was_fitted_is_saved_and_told_with_a_line_to_paste(
    retriever, vectors, corpus, tmp_path, method
):
    folder = tmp_path / "my encoder"
    arguments = ["--vectors", vectors, "--method", method, "--output", folder]
    done = retriever("train", "static", corpus, *arguments)
    assert done.code == 0
    assert done.err == ""
    first, last = done.out.splitlines()
    assert f"{method} of 4 words, 3 dimensions; fitted on 3 texts of 3.0 words, 77.8%" in first
    assert last == f"--model '{folder}'"
    model = StaticModel.load(folder)
    assert model.method == method
    assert model.provenance["texts"] == 3


def test_json_tells_the_same_to_programs(retriever, vectors, corpus, tmp_path):
    (tmp_path / "counts.txt").write_text("one 3\nelsewhere 1\n")
    done = retriever(
        "train", "static", corpus, "--vectors", vectors, "--method", "sif", "--json",
        "-o", tmp_path / "sif", "--set", "a=0.25", "--set", f"word-counts={tmp_path}/counts.txt",
    )  # fmt: skip
    assert done.code == 0
    facts = json.loads(done.out)
    model = StaticModel.load(tmp_path / "sif")
    assert facts == {
        "encoder": str(tmp_path / "sif"),
        "method": "sif",
        "words": 4,
        "dimensions": 3,
        "weights": model.weights,
        "parameters": dict(model.fitted.parameters),
        "provenance": dict(model.provenance),
    }
    assert facts["parameters"]["a"] == 0.25
    assert facts["provenance"]["word_counts"] == "counts.txt"


def test_a_method_with_nothing_to_fit_needs_no_source(retriever, vectors, corpus, tmp_path):
    folder = tmp_path / "plain"
    arguments = ["--vectors", vectors, "--method", "p-mean", "--output", folder]
    done = retriever("train", "static", *arguments, "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert StaticModel.load(folder).dimensions == 9
    done = retriever("train", "static", corpus, *arguments)
    assert done.code == 0
    assert "SOURCE is not read" in done.err


def test_bad_records_are_counted_and_skipped_if_asked_for(
    retriever, vectors, write_jsonl, tmp_path
):
    corpus = write_jsonl({"id": "1", "body": "one two"}, {"id": "2", "body": 5}, {"id": "3"})
    arguments = ["--vectors", vectors, "--method", "sif", "-o", tmp_path / "sif"]
    failed = retriever("train", "static", corpus, *arguments, "--set", "text-field=body")
    assert failed.code == 2
    assert not (tmp_path / "sif").exists()
    done = retriever(
        "train", "static", corpus, *arguments, "--set", "text-field=body", "--set", "on-error=skip"
    )
    assert done.code == 0
    assert done.err.count("skipped:") == 2


def test_lsa_makes_its_own_word_vectors(retriever, write_jsonl, tmp_path):
    records = [{"id": str(row), "text": f"word{row % 7} word{row % 4} all"} for row in range(20)]
    corpus = write_jsonl(*records)
    arguments = ["--method", "lsa", "--dimensions", "3", "-o", tmp_path / "lsa"]
    done = retriever("train", "static", corpus, *arguments, "--json")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert (facts["method"], facts["dimensions"]) == ("lsa", 3)
    # What is in more than half of the texts is left out.
    assert facts["words"] == 7
    assert facts["provenance"]["texts"] == 20
    whole = retriever("train", "static", corpus, *arguments, "--set", "max-df=1", "--json")
    assert json.loads(whole.out)["words"] == 8
    told = retriever("train", "static", corpus, *arguments)
    assert told.out.startswith(f"{tmp_path / 'lsa'}: lsa of 7 words, 3 dimensions\n")
