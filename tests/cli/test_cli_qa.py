"""`eval qa`, `train` and `query --rerank` as a user runs them, on a small random model."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.cli.conftest import printed_json, printed_lines
from tests.eval.qa.samples import made_set, write_set

WINDOW = "::max-length=32"
# Of cross-encoders.
SHORT = ("--set", "max-length=32")


@pytest.fixture
def dataset(tmp_path):
    splits = ("train", "dev", "test")
    return write_set(tmp_path / "set", *(made_set(split, answered=0.75) for split in splits))


@pytest.fixture
def model(tiny_models):
    return ("--model", str(tiny_models["bert"]) + WINDOW)


@pytest.fixture
def bert(tiny_models):
    return str(tiny_models["bert"])


def test_eval_qa_ranks_and_compares_systems(retriever, dataset, model, tmp_path):
    arguments = ("-s", "bm25,cosine,hybrid:tuned", "-s", "uv:mlp", "--set", "seeds=2")
    arguments = ("eval", "qa", dataset, *arguments, *model, "-m", "AP", "-m", "P@1")
    report = tmp_path / "report"
    printed = printed_json(retriever(*arguments, "--json", "--output", report))
    assert printed == json.loads((report / "report.json").read_text())
    names = ["bm25", "cosine", "hybrid:tuned", "uv:mlp"]
    assert [system["name"] for system in printed["systems"]] == names
    runs = {"bm25", "cosine", "hybrid-tuned", "uv-mlp.seed-0", "uv-mlp.seed-1"}
    assert {path.stem for path in (report / "runs").iterdir()} == runs
    rows = retriever(*arguments).out.splitlines()
    start = rows.index("Means × 100")
    assert rows[start + 1].split()[:2] == ["system", "AP"]
    assert [row.split()[0] for row in rows[start + 2 : start + 6]] == names
    message = "means over 9 questions; 3 questions without a relevant passage are left out"
    assert message in rows


def test_second_eval_qa_run_encodes_nothing(retriever, dataset, model, tmp_path, monkeypatch):
    assert retriever("eval", "qa", dataset, *model, "-s", "cosine", "--set", "cache=no").code == 0
    cache = tmp_path / "cache"
    assert not cache.exists()
    assert retriever("eval", "qa", dataset, *model, "-s", "cosine").code == 0
    from retriever.encoders.transformer.model import TransformerModel

    monkeypatch.setattr(TransformerModel, "embed", lambda *_: pytest.fail("encoded again"))
    assert retriever("eval", "qa", dataset, *model, "-s", "cosine").code == 0
    assert len(list(cache.iterdir())) == 1


def test_a_trained_head_ranks_the_set_and_the_hits_of_an_index(retriever, dataset, model, tmp_path):
    head = tmp_path / "head"
    done = retriever(
        "train", "reranker", dataset, "--output", head, *model, "--system", "bilinear",
        "--seeds", "2", "--epochs", "3", "--negatives", "hard",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "dev AP" in done.out
    assert retriever("eval", "qa", dataset, *model, "-s", head).code == 0
    index = tmp_path / "index"
    assert retriever("index", dataset / "corpus.jsonl", "-i", index, "-q", *model).code == 0
    plain = printed_lines(retriever("query", "w1 w2 w3", "-i", index, "-k", "20", "--json"))
    arguments = ("query", "w1 w2 w3", "-i", index, "-k", "20", "--rerank", head)
    again = printed_lines(retriever(*arguments, "--json"))
    assert [hit["rank"] for hit in again] == list(range(1, 21))
    assert [hit["score"] for hit in again] == sorted((hit["score"] for hit in again), reverse=True)
    first = {hit["id"]: hit["rank"] for hit in plain}
    for hit in again:
        assert hit["first_rank"] == first.get(hit["id"], hit["first_rank"])
    assert "the reranker's" in retriever(*arguments, "--explain").out


def test_a_cross_encoder_is_trained_and_used_and_not_trained_again(
    retriever, dataset, bert, tmp_path
):
    folder = tmp_path / "cross"
    arguments = ("train", "cross-encoder", dataset, "-o", folder, "--model", bert, *SHORT)
    arguments += ("--epochs", "2")
    printed = printed_json(retriever(*arguments, "--json"))
    assert [epoch["epoch"] for epoch in printed["curve"]] == [0, 1, 2]
    write_time = (folder / "model.safetensors").stat().st_mtime_ns
    assert retriever(*arguments).code == 0
    before = printed["curve"][0]["dev"]
    ending = f"epoch {printed['kept_epoch']}; {100 * before:.2f} before training\n"
    assert retriever(*arguments).out.endswith(ending)
    assert (folder / "model.safetensors").stat().st_mtime_ns == write_time
    ranked = retriever("eval", "qa", dataset, "-s", folder, "-m", "AP", "--json")
    assert ranked.code == 0, ranked.err


def test_a_cross_encoder_is_trained_on_from_its_head_and_without_what_another_set_has(
    retriever, dataset, model, bert, tmp_path
):
    first, second = tmp_path / "first", tmp_path / "second"
    arguments = ("train", "cross-encoder", dataset, "--json", "--epochs", "1")
    start = retriever(*arguments, *SHORT, "--output", first, "--model", bert)
    assert start.code == 0, start.err
    frozen = ("--set", "learning-rate=1e-12", "--set", "head-learning-rate=1e-12")
    other = write_set(tmp_path / "other", *(made_set(split) for split in ("dev", "test")))
    question = made_set("train", answered=0.75).questions[2]
    (other / "queries.dev.jsonl").write_text(json.dumps({"id": "q0", "text": question.text}) + "\n")
    (other / "candidates.dev.jsonl").write_text(
        json.dumps({"qid": "q0", "candidates": ["dev-d0"]}) + "\n"
    )
    (other / "qrels.dev.tsv").write_text("q0 0 dev-d0 1\n")
    done = retriever(
        *arguments, "--output", second, "--model", first, *frozen, "--set", "tolerance=1",
        "--without", other, "--set", "max-length=40",
    )  # fmt: skip
    assert done.code == 0, done.err
    note = f"left out 1 of 12 questions, which overlap with {other}"
    assert f"note: {dataset.name}: {note}\n" in done.err
    assert "epoch 1" in start.err
    before, after = json.loads(done.out)["curve"]
    # A new head would rank otherwise.
    assert before["epoch"] == 0
    assert before["dev"] == after["dev"] == json.loads(start.out)["dev_map"]
    head = [load_file(folder / "head.safetensors") for folder in (first, second)]
    np.testing.assert_allclose(head[0]["out.weight"], head[1]["out.weight"], atol=1e-9)
