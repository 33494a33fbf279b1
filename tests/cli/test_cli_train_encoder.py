"""`train encoder` as a user runs it, on a small random model."""

from __future__ import annotations

import json

import pytest

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


@pytest.fixture
def corpus(write_jsonl):
    # A title is the words of its text in another order: w0 to w19 occur in one document each.
    return write_jsonl(
        *(
            {"id": str(n), "title": f"w{n} w{n + 30}", "text": f"w{n + 60} w{n} w{n + 90} w{n}"}
            for n in range(40)
        )
    )


def test_questions_train_an_encoder_that_indexes_and_is_evaluated(
    retriever, dataset, model, tmp_path
):
    output = tmp_path / "encoder"
    done = retriever(
        "train", "encoder", dataset, "--output", output, *model, "--epochs", "4",
        "--set", "patience=4", "--json", "--plot", tmp_path / "curve.svg",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "dev AP" in (tmp_path / "curve.svg").read_text()
    found = json.loads(done.out)
    assert (found["objective"], found["measure"]) == ("mnr", "AP")
    assert [one["epoch"] for one in found["curve"]] == [0, 1, 2, 3, 4]
    assert found["dev"] == max(one["dev"] for one in found["curve"])
    assert found["improved"] == (found["kept_epoch"] > 0)
    assert "fine-tuning: before training, dev AP" in done.err
    ranked = retriever(
        "eval", "qa", dataset, "--split", "dev", "-s", "cosine", "--model", output, "--json"
    )
    scores = json.loads(ranked.out)["systems"][0]["scores"]
    assert scores["AP"]["value"] == pytest.approx(found["dev"], abs=0.02)
    index = tmp_path / "index"
    assert retriever("index", dataset / "corpus.jsonl", "-i", index, "--model", output).code == 0
    assert retriever("query", "w1 w2", "-i", index, "--mode", "dense").out
    record = json.loads((output / "training.json").read_text())
    assert record["kept_epoch"] == found["kept_epoch"]
    assert record["versions"].keys() == {"python", "layer-retriever", "torch", "transformers"}


def test_a_corpus_alone_trains_an_encoder_that_finds_its_titles(retriever, corpus, model, tmp_path):
    output = tmp_path / "encoder"
    asked = (
        "train", "encoder", corpus, "--pairs", "title", "--output", output, *model,
        "--epochs", "8", "--set", "patience=8", "--dev-share", "0.25",
    )  # fmt: skip
    done = retriever(*asked, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["measure"] == "RR"
    assert found["improved"]
    assert found["dev"] > found["dev_before"]
    assert "30 to train on, 10 to choose on; objective mnr" in done.err
    written = (output / "model.safetensors").stat().st_mtime_ns
    again = retriever(*asked)
    assert again.code == 0
    assert (output / "model.safetensors").stat().st_mtime_ns == written
    assert f"{output}: dev RR" in again.out
    other = retriever(*asked, "--seed", "1")
    assert other.code == 2
    assert f"{output}: expected the result of a run with settings.seed 1, found 0; " in other.err
    assert (output / "model.safetensors").stat().st_mtime_ns == written
    other = retriever(*asked, "--seed", "1", "--restart")
    assert other.code == 0
    assert (output / "model.safetensors").stat().st_mtime_ns != written


def test_scored_and_labeled_pairs_train_too(retriever, model, tmp_path):
    scored = "".join(f"{n % 5}\tw{n} w{n % 5}\tw{n + 1} w{n % 3}\n" for n in range(40))
    (tmp_path / "scored.tsv").write_text("score\tsentence1\tsentence2\n" + scored)
    labeled = "".join(f"{'yn'[n % 2]}\tw{n}\tw{n + n % 2}\n" for n in range(40))
    (tmp_path / "labeled.tsv").write_text("label\tsentence1\tsentence2\n" + labeled)
    for name, measure, objective, dev in (
        ("scored", "Spearman", "sts", ()),
        ("labeled", "accuracy", "nli", ()),
        ("labeled", "Spearman", "nli", ("--dev", tmp_path / "scored.tsv")),
    ):
        done = retriever(
            "train", "encoder", tmp_path / f"{name}.tsv", "--output", tmp_path / (name + measure),
            *model, "--epochs", "1", "--train", "lora:2", *dev, "--json",
        )  # fmt: skip
        assert done.code == 0, done.err
        found = json.loads(done.out)
        assert (found["measure"], found["objective"]) == (measure, objective)
