"""`retriever train meta`, and what commands do with its folder."""

import json

import numpy as np
import pytest

from retriever.encoders.encoder import Encoder

TEXTS = [f"w{number} w{number * 7 % 30} w{number % 5} w{number * 3 % 11}" for number in range(40)]


@pytest.fixture
def corpus(write_jsonl):
    return write_jsonl(*({"id": str(row), "text": text} for row, text in enumerate(TEXTS)))


@pytest.fixture
def pairs(tmp_path):
    def write(name, count=12):
        lines = [f"{row % 6}\t{TEXTS[row]}\t{TEXTS[row + row % 6]}" for row in range(count)]
        (tmp_path / name).write_text("\n".join(["score\tsentence1\tsentence2", *lines]) + "\n")

    for name in ("train.tsv", "dev.tsv", "test.tsv"):
        write(name)
    return tmp_path


@pytest.fixture
def train(retriever, tiny_models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sources = ["--source", tiny_models["bert"], "--source", f"{tiny_models['roberta']}::lc:0,2"]

    def call(*arguments, output="both"):
        return retriever("train", "meta", *arguments, *sources, "-o", output)

    return call


def test_it_prints_the_sources_and_a_line_to_paste(train, corpus, tiny_models):
    done = train(corpus, "--method", "svd", "--dimensions", "8")
    assert done.code == 0, done.err
    assert done.err == ""
    lines = done.out.splitlines()
    assert lines[0] == (
        "both: svd of 2 encoders, word level, mean pooling, 8 dimensions, window 40"
    )
    assert lines[1].split() == ["source", "dimensions", "weight", "fingerprint"]
    assert lines[2].split()[:3] == [f"{tiny_models['bert']}::max-length=40", "16", "1.000"]
    assert lines[-1] == "--model both"


def test_json_is_for_programs(train, corpus):
    arguments = [corpus, "--method", "gcca", "--set", "regularization=0.5", "--seed", "3"]
    done = train(*arguments, "--set", "sample=30", "--json", "--quiet")
    facts = json.loads(done.out)
    assert facts["parameters"]["regularization"] == 0.5
    assert facts["provenance"]["sampled"] == 30
    assert facts["provenance"]["texts"] == 40
    assert facts["fingerprint"] == Encoder.load("both").spec.fingerprint


@pytest.mark.parametrize("method", ["conc", "avg"])
def test_a_method_with_nothing_to_fit_needs_no_corpus(train, corpus, method):
    assert train("--method", method, "--quiet")[:2] == (0, "")
    done = train(corpus, "--method", method)
    assert done.code == 0
    assert "CORPUS is not read" in done.err


def test_training_takes_its_options(train, corpus, pairs):
    options = ["--set", "epochs=2", "--no-weights", "--dev", pairs / "dev.tsv"]
    facts = json.loads(train(corpus, "--method", "unsup", *options, "--json").out)
    assert facts["parameters"]["epochs"] == 2
    assert [one["weight"] for one in facts["sources"]] == [0.5, 0.5]
    assert facts["provenance"]["stopped_by"] == "dev Pearson"


def test_a_folder_gives_its_own_splits(train, pairs):
    done = train("--method", "sup", "--set", "epochs=1", "--train", pairs, "--dev", pairs, "--json")
    assert done.code == 0, done.err
    provenance = json.loads(done.out)["provenance"]
    assert (provenance["pairs"], provenance["dev_pairs"]) == (12, 12)


def test_info_and_inspect_show_sources_and_words(train, corpus, retriever, tmp_path, tiny_models):
    train(corpus, "--method", "svd", "--quiet")
    shown = retriever("info", "-i", "both")
    assert shown.code == 0
    assert "meta-embedding, svd of 2 encoders" in shown.out
    assert str(tiny_models["bert"]) in shown.out
    assert json.loads(retriever("info", "-i", "both", "--json").out)["method"] == "svd"
    found = retriever("inspect", "weights", "w1, unknown w2", "--model", "./both", "--json")
    words = json.loads(found.out)["words"]
    assert [word["text"] for word in words] == ["w1", ",", "unknown", "w2"]
    lengths = Encoder.load("both").contributions("w1, unknown w2").lengths
    np.testing.assert_allclose([word["lengths"] for word in words], lengths, rtol=1e-5)
    table = retriever("inspect", "weights", "w1, w2", "--model", "./both", "--plot", "a.png")
    assert table.out.splitlines()[-3].split()[0] == "w1"
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    long = retriever("inspect", "weights", "w1 " * 60, "--model", "./both")
    assert "exceeded the window of 40" in long.err
