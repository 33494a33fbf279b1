"""`retriever train static` on small files of word vectors."""

import pytest

from retriever.encoders.static import StaticModel
from tests.cli.conftest import assert_refused, printed_json


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


def test_train_static_saves_encoder_and_prints_model_option(train, vectors, corpus, tmp_path):
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
    arguments = ("--vectors", vectors, "--method", "sif")
    facts = printed_json(train(corpus, *arguments, "--set", "a=0.25", "--json"))
    assert "77.8% of them known; a = 0.25; " in train(corpus, *arguments, "--set", "a=0.25").out
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


def test_train_static_without_fitted_parameters_needs_no_corpus(train, vectors, corpus):
    arguments = ("--vectors", vectors, "--method", "p-mean")
    assert train(*arguments, "--quiet") == (0, "", "")
    assert StaticModel.load("my encoder").dimensions == 9
    done = train(corpus, *arguments)
    assert done.err == "note: p-mean needs no texts; SOURCE is not read\n"
    assert done.out.startswith("my encoder: p-mean of 4 words, 9 dimensions\n")


def test_bad_records_are_counted_and_skipped_if_asked_for(train, vectors, write_jsonl, tmp_path):
    corpus = write_jsonl({"id": "1", "body": "one two"}, {"id": "2", "body": 5}, {"id": "3"})
    arguments = (corpus, "--vectors", vectors, "--method", "sif", "--set", "text-field=body")
    assert_refused(train(*arguments), f"{corpus}:2:")
    assert not (tmp_path / "my encoder").exists()
    done = train(*arguments, "--set", "on-error=skip")
    assert (done.code, done.err.count("skipped:")) == (0, 2)


def test_train_static_lsa_needs_no_word_vectors(train, write_jsonl):
    records = [{"id": str(row), "text": f"word{row % 7} word{row % 4} all"} for row in range(20)]
    arguments = (write_jsonl(*records), "--method", "lsa", "--dimensions", "3")
    # What is in more than half of the texts is left out.
    for options, words in ((), 7), (("--set", "max-df=1"), 8):
        facts = printed_json(train(*arguments, *options, "--json"))
        assert (facts["method"], facts["dimensions"], facts["words"]) == ("lsa", 3, words)
        assert facts["provenance"]["texts"] == 20
    assert train(*arguments).out.startswith("my encoder: lsa of 7 words, 3 dimensions\n")
