"""`retriever train static` on small files of word vectors."""

import pytest

from retriever.encoders.static import StaticModel
from tests.cli.conftest import found, refused


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


@pytest.fixture
def train(retriever):
    return lambda *arguments: retriever("train", "static", *arguments, "-o", "my encoder")


def test_what_was_fitted_is_saved_and_told_with_a_line_to_paste(train, vectors, corpus, tmp_path):
    done = train(corpus, "--vectors", vectors, "--method", "usif")
    assert (done.code, done.err) == (0, "")
    model = StaticModel.load("my encoder")
    parameters, origin = model.fitted.parameters, model.provenance
    assert done.out.splitlines() == [
        "my encoder: usif of 4 words, 3 dimensions; fitted on 3 texts of 3.0 words, 77.8% of them "
        f"known; a is infinite: all words have the same weight; {parameters['components']} "
        f"components removed, which hold {origin['components_hold']:.1%} of the squared length "
        "of 2 texts",
        "--model 'my encoder'",
    ]
    asked = ("--vectors", vectors, "--method", "sif")
    facts = found(train(corpus, *asked, "--set", "a=0.25", "--json"))
    assert "77.8% of them known; a = 0.25; " in train(corpus, *asked, "--set", "a=0.25").out
    model = StaticModel.load("my encoder")
    assert facts == {
        "encoder": "my encoder",
        "method": "sif",
        "words": 4,
        "dimensions": 3,
        "weights": model.weights,
        "parameters": dict(model.fitted.parameters),
        "provenance": dict(model.provenance),
    }
    assert facts["parameters"]["a"] == 0.25


def test_a_method_with_nothing_to_fit_needs_no_source(train, vectors, corpus):
    asked = ("--vectors", vectors, "--method", "p-mean")
    assert train(*asked, "--quiet") == (0, "", "")
    assert StaticModel.load("my encoder").dimensions == 9
    done = train(corpus, *asked)
    assert done.err == "note: p-mean has nothing to fit; SOURCE is not read\n"
    assert done.out.startswith("my encoder: p-mean of 4 words, 9 dimensions\n")


def test_bad_records_are_counted_and_skipped_if_asked_for(train, vectors, write_jsonl, tmp_path):
    corpus = write_jsonl({"id": "1", "body": "one two"}, {"id": "2", "body": 5}, {"id": "3"})
    asked = (corpus, "--vectors", vectors, "--method", "sif", "--set", "text-field=body")
    refused(train(*asked), f"{corpus}:2:")
    assert not (tmp_path / "my encoder").exists()
    done = train(*asked, "--set", "on-error=skip")
    assert (done.code, done.err.count("skipped:")) == (0, 2)


def test_lsa_makes_its_own_word_vectors(train, write_jsonl):
    records = [{"id": str(row), "text": f"word{row % 7} word{row % 4} all"} for row in range(20)]
    asked = (write_jsonl(*records), "--method", "lsa", "--dimensions", "3")
    # What is in more than half of the texts is left out.
    for options, words in ((), 7), (("--set", "max-df=1"), 8):
        facts = found(train(*asked, *options, "--json"))
        assert (facts["method"], facts["dimensions"], facts["words"]) == ("lsa", 3, words)
        assert facts["provenance"]["texts"] == 20
    assert train(*asked).out.startswith("my encoder: lsa of 7 words, 3 dimensions\n")
