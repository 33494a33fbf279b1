"""`train encoder` as a user runs it, on a small random model."""

from __future__ import annotations

import json

import pytest

from eval.reports import environment
from tests.cli.conftest import printed_json
from tests.eval.qa.samples import made_set, write_set


@pytest.fixture
def dataset(tmp_path):
    splits = ("train", "dev", "test")
    return write_set(tmp_path / "set", *(made_set(split, count=24) for split in splits))


@pytest.fixture
def model(tiny_models):
    return (
        *("--model", str(tiny_models["bert"])),
        *("--set", "max-length=32", "--set", "learning-rate=1e-3"),
    )


def test_questions_train_an_encoder_that_indexes_and_is_evaluated(
    retriever, dataset, model, tmp_path
):
    arguments = ("train", "encoder", dataset, "--output", "encoder", *model, "--epochs", "4")
    done = retriever(*arguments, "--set", "patience=4", "--json", "--plot", "curve.svg")
    report = printed_json(done)
    assert "dev AP" in (tmp_path / "curve.svg").read_text()
    assert (report["objective"], report["measure"]) == ("mnr", "AP")
    assert [epoch["epoch"] for epoch in report["curve"]] == [0, 1, 2, 3, 4]
    assert report["dev"] == max(epoch["dev"] for epoch in report["curve"])
    assert report["improved"] == (report["kept_epoch"] > 0)
    assert "fine-tuning: before training, dev AP" in done.err
    ranked = ("eval", "qa", dataset, "--split", "dev", "-s", "cosine", "--model", "encoder")
    scores = printed_json(retriever(*ranked, "--json"))["systems"][0]["scores"]
    assert scores["AP"]["value"] == pytest.approx(report["dev"], abs=0.02)
    assert retriever("index", dataset / "corpus.jsonl", "--model", "encoder").code == 0
    assert retriever("query", "w1 w2", "--mode", "dense").out
    record = json.loads((tmp_path / "encoder/training.json").read_text())
    assert record["kept_epoch"] == report["kept_epoch"]
    assert record["versions"] == environment(None)
    assert {"python", "layer-retriever", "torch", "transformers"} <= record["versions"].keys()


def test_a_corpus_alone_trains_an_encoder_that_finds_its_titles(
    retriever, write_jsonl, model, tmp_path
):
    # A title is the words of its text in another order: w0 to w19 occur in one document each.
    corpus = write_jsonl(
        *(
            {"id": str(n), "title": f"w{n} w{n + 30}", "text": f"w{n + 60} w{n} w{n + 90} w{n}"}
            for n in range(40)
        )
    )
    arguments = ("train", "encoder", corpus, "--pairs", "title", "--output", "encoder", *model)
    arguments += ("--epochs", "8", "--set", "patience=8", "--dev-share", "0.25")
    done = retriever(*arguments, "--json")
    report = printed_json(done)
    assert (report["measure"], report["improved"]) == ("RR", True)
    assert report["dev"] > report["dev_before"]
    assert "30 to train on, 10 to choose on; objective mnr" in done.err
    weights = tmp_path / "encoder/model.safetensors"
    write_time = weights.stat().st_mtime_ns
    assert "\nencoder: dev RR" in retriever(*arguments).out
    message = "encoder: expected the result of a run with settings.seed 1, found 0; "
    assert message in retriever(*arguments, "--set", "seed=1").err
    assert weights.stat().st_mtime_ns == write_time
    assert retriever(*arguments, "--set", "seed=1", "--restart").code == 0
    assert weights.stat().st_mtime_ns != write_time


def test_scored_and_labeled_pairs_train_an_encoder(retriever, model, tmp_path):
    scored = "".join(f"{n % 5}\tw{n} w{n % 5}\tw{n + 1} w{n % 3}\n" for n in range(40))
    labeled = "".join(f"{'yn'[n % 2]}\tw{n}\tw{n + n % 2}\n" for n in range(40))
    (tmp_path / "scored.tsv").write_text(f"score\tsentence1\tsentence2\n{scored}")
    (tmp_path / "labeled.tsv").write_text(f"label\tsentence1\tsentence2\n{labeled}")
    for name, measure, objective, dev in (
        ("scored", "Spearman", "sts", ()),
        ("labeled", "accuracy", "nli", ()),
        ("labeled", "Spearman", "nli", ("--dev", "scored.tsv")),
    ):
        arguments = ("train", "encoder", f"{name}.tsv", "--output", name + measure, *dev)
        arguments += ("--epochs", "1", "--train", "last:1")
        report = printed_json(retriever(*arguments, *model, "--json"))
        assert (report["measure"], report["objective"]) == (measure, objective)
