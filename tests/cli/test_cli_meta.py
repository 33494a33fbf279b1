"""`retriever train meta`, and what commands do with its folder."""

import pytest

from retriever.encoders import Encoder
from tests.cli.conftest import printed_json

TEXTS = [f"w{number} w{number * 7 % 30} w{number % 5} w{number * 3 % 11}" for number in range(40)]


@pytest.fixture
def corpus(write_jsonl):
    return write_jsonl(*({"id": str(row), "text": text} for row, text in enumerate(TEXTS)))


@pytest.fixture
def train(retriever, tiny_models):
    sources = ["--source", tiny_models["bert"], "--source", f"{tiny_models['roberta']}::lc:0,2"]
    return lambda *arguments: retriever("train", "meta", *arguments, *sources, "-o", "both")


def test_train_meta_prints_sources_and_model_option(train, corpus, tiny_models):
    done = train(corpus, "--method", "svd", "--dimensions", "8")
    assert (done.code, done.err) == (0, "")
    first, names, row, *_, last = done.out.splitlines()
    assert first == "both: svd of 2 encoders, word level, mean pooling, 8 dimensions, window 40"
    assert names.split() == ["source", "dimensions", "weight", "fingerprint"]
    assert row.split()[:3] == [f"{tiny_models['bert']}::max-length=40", "16", "1.000"]
    assert last == "--model both"
    arguments = (corpus, "--method", "gcca", "--set", "regularization=0.5", "--set", "sample=30")
    facts = printed_json(train(*arguments, "--set", "seed=3", "--json"))
    assert facts["parameters"]["regularization"] == 0.5
    assert facts["provenance"].items() >= {"sampled": 30, "texts": 40}.items()
    assert facts["fingerprint"] == Encoder.load("both").spec.fingerprint
    message = "note: conc needs no texts; CORPUS is not read\n"
    assert train(corpus, "--method", "conc", "--quiet") == (0, "", message)


def test_train_meta_takes_options_and_split_folder(train, corpus, tmp_path):
    lines = [f"{row % 6}\t{TEXTS[row]}\t{TEXTS[row + row % 6]}" for row in range(12)]
    (tmp_path / "pairs").mkdir()
    for name in ("train.tsv", "dev.tsv", "test.tsv"):
        text = "\n".join(["score\tsentence1\tsentence2", *lines, ""])
        (tmp_path / "pairs" / name).write_text(text)
    options = ["--set", "epochs=2", "--no-weights", "--dev", "pairs/dev.tsv"]
    facts = printed_json(train(corpus, "--method", "unsup", *options, "--json"))
    assert facts["parameters"]["epochs"] == 2
    assert [source["weight"] for source in facts["sources"]] == [0.5, 0.5]
    assert facts["provenance"]["stopped_by"] == "dev Pearson"
    options = ["--set", "epochs=1", "--train", "pairs", "--dev", "pairs"]
    facts = printed_json(train("--method", "sup", *options, "--json"))
    assert facts["provenance"].items() >= {"pairs": 12, "dev_pairs": 12}.items()


def test_info_shows_sources_of_meta_embedding(train, corpus, retriever, tiny_models):
    train(corpus, "--method", "svd", "--quiet")
    output = retriever("info", "-i", "both").out
    assert "meta-embedding, svd of 2 encoders" in output
    assert str(tiny_models["bert"]) in output
    assert printed_json(retriever("info", "-i", "both", "--json"))["method"] == "svd"
