"""`eval qa`, `train` and `query --rerank` as a user runs them, on a small random model."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from eval.metrics.measures import evaluate
from eval.metrics.trec import read_qrels, read_run
from eval.papers.categories import gather_categories
from retriever.errors import SourceError
from tests.eval.datasets.question_samples import QUASAR, write
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


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RETRIEVER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_systems_are_ranked_and_compared(retriever, dataset, model, tmp_path):
    asked = ("-s", "bm25,cosine,hybrid:tuned", "-s", "uv:mlp", "--set", "seeds=2")
    report = tmp_path / "report"
    done = retriever(
        "eval", "qa", dataset, *asked, *model, "-m", "AP", "-m", "P@1", "--json", "--output", report
    )
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found == json.loads((report / "report.json").read_text())
    qrels = {
        query: grades
        for query, grades in read_qrels(dataset / "qrels.test.tsv").items()
        if max(grades.values()) > 0
    }
    names = {"bm25": ["bm25"], "cosine": ["cosine"], "hybrid:tuned": ["hybrid-tuned"]}
    names["uv:mlp"] = ["uv-mlp.seed-0", "uv-mlp.seed-1"]
    assert [one["name"] for one in found["systems"]] == list(names)
    for one in found["systems"]:
        runs = [read_run(report / f"runs/{name}.run") for name in names[one["name"]]]
        means = [evaluate(run, qrels, ["AP"]).means["AP"] for run in runs]
        assert one["scores"]["AP"]["value"] == pytest.approx(sum(means) / len(means), abs=1e-12)
    assert len(list((report / "runs").iterdir())) == 5


def test_the_table_names_every_system_and_says_what_was_left_out(retriever, dataset, model):
    done = retriever("eval", "qa", dataset, *model, "-s", "bm25,cosine,hybrid", "-m", "map")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    start = lines.index("Means × 100")
    assert lines[start + 1].split() == ["system", "AP"]
    assert [line.split()[0] for line in lines[start + 2 : start + 5]] == [
        "bm25",
        "cosine",
        "hybrid",
    ]
    said = "means over 9 questions; 3 questions without a relevant passage are left out"
    assert said in lines


def test_a_second_run_encodes_nothing(retriever, dataset, model, cache, monkeypatch):
    assert retriever("eval", "qa", dataset, *model, "-s", "cosine").code == 0
    from retriever.encoders.transformer.model import TransformerModel

    monkeypatch.setattr(TransformerModel, "embed", lambda *_: pytest.fail("encoded again"))
    assert retriever("eval", "qa", dataset, *model, "-s", "cosine").code == 0
    assert len(list(cache.iterdir())) == 1


def test_without_a_cache_nothing_is_written(retriever, dataset, model, cache):
    assert retriever("eval", "qa", dataset, *model, "-s", "cosine", "--no-cache").code == 0
    assert not cache.exists()


def test_a_trained_head_ranks_the_set_and_the_hits_of_an_index(retriever, dataset, model, tmp_path):
    head = tmp_path / "head"
    done = retriever(
        "train", "reranker", dataset, "--output", head, *model, "--system", "bilinear",
        "--seeds", "2", "--epochs", "3",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "dev AP" in done.out
    assert retriever("eval", "qa", dataset, *model, "-s", head).code == 0
    index = tmp_path / "index"
    assert retriever("index", dataset / "corpus.jsonl", "-i", index, "-q", *model).code == 0
    plain = _hits(retriever("query", "w1 w2 w3", "-i", index, "-k", "20", "--json"))
    again = _hits(
        retriever("query", "w1 w2 w3", "-i", index, "-k", "20", "--json", "--rerank", head)
    )
    assert [hit["rank"] for hit in again] == list(range(1, 21))
    assert [hit["score"] for hit in again] == sorted((hit["score"] for hit in again), reverse=True)
    first = {hit["id"]: hit["rank"] for hit in plain}
    for hit in again:
        assert hit["first_rank"] == first.get(hit["id"], hit["first_rank"])
    shown = retriever("query", "w1 w2 w3", "-i", index, "--explain", "--rerank", head)
    assert "the reranker's" in shown.out


@pytest.fixture
def insurance(tmp_path):
    """InsuranceQA v1's files: training questions have no pools."""
    made = {split: made_set(split) for split in ("train", "dev", "test1")}
    labels: dict[str, int] = {}
    for split, one in made.items():
        labels |= {f"{split}-{id_}": len(labels) + 1 + at for at, id_ in enumerate(one.passages)}

    def tokens(text):
        return " ".join(f"idx_{word.removeprefix('w')}" for word in text.split())

    files = {
        "vocabulary": [f"idx_{number}\tw{number}" for number in range(200)],
        "answers.label.token_idx": [
            f"{labels[f'{split}-{id_}']}\t{tokens(text)}"
            for split, one in made.items()
            for id_, text in one.passages.items()
        ],
    }
    for split, one in made.items():
        rows = []
        for question in one.questions:
            right = " ".join(
                str(labels[f"{split}-{id_}"]) for id_, grade in question.grades.items() if grade
            )
            pool = " ".join(str(labels[f"{split}-{id_}"]) for id_ in question.candidates)
            asked = tokens(question.text)
            rows.append(f"{asked}\t{right}" if split == "train" else f"{right}\t{asked}\t{pool}")
        name = "train.token_idx.label" if split == "train" else f"{split}.label.token_idx.pool"
        files[f"question.{name}"] = rows
    folder = tmp_path / "insurance"
    folder.mkdir()
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_a_set_whose_training_questions_have_no_pools_is_trained_on_other_negatives(
    retriever, insurance, model, tmp_path
):
    heads, few = [], ("--seeds", "1", "--epochs", "2", "--set", "margin=0.5", "--json")
    refused = retriever("eval", "qa", insurance, "--split", "test1", "-s", "uv", *model)
    assert refused.code == 2
    assert "(--negatives random --count 50) or by BM25 (--negatives hard)" in refused.err
    for negatives in (("random", "--count", "5"), ("hard",)):
        heads.append(tmp_path / negatives[0])
        asked = ("train", "reranker", insurance, "--output", heads[-1], *model, *few)
        done = retriever(*asked, "--negatives", *negatives)
        assert done.code == 0, done.err
    ranked = retriever(
        "eval", "qa", insurance, "--split", "test1", *model, "-s", heads[0], "-s", heads[1]
    )
    assert ranked.code == 0, ranked.err
    refused = retriever(*asked, "--negatives", "random")
    assert (refused.code, "set --count" in refused.err) == (2, True)


def test_sets_whose_passages_hold_the_answer_are_measured_by_success(retriever, model, tmp_path):
    (tmp_path / "quasart").mkdir()
    folder = write(tmp_path / "quasart", QUASAR)
    done = retriever("eval", "qa", folder, "-s", "bm25", "--json")
    assert done.code == 0, done.err
    measures = ["Success@1", "Success@5", "Success@10", "AP", "RR", "P@1"]
    found = json.loads(done.out)
    assert found["measures"] == measures
    assert found["systems"][0]["scores"]["Success@5"]["value"] == 1
    done = retriever("eval", "qa", folder, "-s", "bm25", "-m", "R@1", "--json")
    assert json.loads(done.out)["measures"] == ["R@1"]


def test_a_head_of_another_encoder_is_refused(retriever, dataset, model, tmp_path):
    head, index = tmp_path / "head", tmp_path / "index"
    options = ("--system", "bilinear", "--seeds", "1", "--epochs", "1")
    assert retriever("train", "reranker", dataset, "--output", head, *model, *options).code == 0
    corpus = dataset / "corpus.jsonl"
    assert retriever("index", corpus, "-i", index, "-q", *model, "--layers", "0").code == 0
    done = retriever("query", "w1", "-i", index, "--rerank", head)
    assert done.code == 2
    assert "layers=0" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_cross_encoder_is_trained_and_used_and_not_trained_again(
    retriever, dataset, model, bert, tmp_path
):
    report = tmp_path / "report"
    folder = report / "rerankers" / "cross-encoder-seed-0"
    folder.parent.mkdir(parents=True)
    name = ("--model", bert)
    done = retriever(
        "train", "cross-encoder", dataset, "--output", folder, *name, *SHORT, "--epochs", "2",
        "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert [one["epoch"] for one in found["curve"]] == [0, 1, 2]
    assert found["dev_map"] == max(one["dev"] for one in found["curve"][1:])
    assert not list(folder.parent.glob(".*"))
    written = (folder / "model.safetensors").stat().st_mtime_ns
    again = retriever(
        "train", "cross-encoder", dataset, "--output", folder, *name, *SHORT, "--epochs", "2",
        "--quiet",
    )  # fmt: skip
    assert again == (0, "", "")
    shown = retriever(
        "train", "cross-encoder", dataset, "--output", folder, *name, *SHORT, "--epochs", "2"
    )
    before = found["curve"][0]["dev"]
    assert shown.out.endswith(f"epoch {found['kept_epoch']}; {100 * before:.2f} before training\n")
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    ranked = retriever("eval", "qa", dataset, "-s", folder, "-m", "AP", "--json")
    assert ranked.code == 0, ranked.err
    index = tmp_path / "index"
    retriever("index", dataset / "corpus.jsonl", "-i", index, "-q", *model)
    hits = _hits(
        retriever("query", "w1 w2", "-i", index, "--mode", "bm25", "--json", "--rerank", folder)
    )
    assert hits
    assert all("first_rank" in hit for hit in hits)


def test_a_cross_encoder_is_trained_on_from_its_head_and_without_what_another_set_has(
    retriever, dataset, model, bert, tmp_path
):
    first, second = tmp_path / "first", tmp_path / "second"
    asked = ("train", "cross-encoder", dataset, *SHORT, "--json", "--epochs", "1")
    start = retriever(*asked, "--output", first, "--model", bert)
    assert start.code == 0, start.err
    still = ("--set", "learning-rate=1e-12", "--set", "head-learning-rate=1e-12")
    other = write_set(tmp_path / "other", *(made_set(split) for split in ("dev", "test")))
    one = made_set("train", answered=0.75).questions[2]
    (other / "queries.dev.jsonl").write_text(json.dumps({"id": "q0", "text": one.text}) + "\n")
    (other / "candidates.dev.jsonl").write_text(
        json.dumps({"qid": "q0", "candidates": ["dev-d0"]}) + "\n"
    )
    (other / "qrels.dev.tsv").write_text("q0 0 dev-d0 1\n")
    done = retriever(
        *asked, "--output", second, "--model", first, *still, "--set", "tolerance=1",
        "--without", other, "--quiet",
    )  # fmt: skip
    assert done.code == 0, done.err
    note = f"left out 1 of 12 questions, which overlap with {other}"
    assert done.err == f"note: {dataset.name}: {note}\n"
    assert "epoch 1" in start.err
    before, after = json.loads(done.out)["curve"]
    # A new head would rank otherwise.
    assert before["epoch"] == 0
    assert before["dev"] == after["dev"] == json.loads(start.out)["dev_map"]
    head = [load_file(folder / "head.safetensors") for folder in (first, second)]
    np.testing.assert_allclose(head[0]["out.weight"], head[1]["out.weight"], atol=1e-9)
    refused = retriever(
        "train", "encoder", dataset / "corpus.jsonl", "--pairs", "cloze", "--output",
        tmp_path / "encoder", "--model", bert, "--without", other,
    )  # fmt: skip
    assert refused.code == 2
    assert "leave out --without" in refused.err


def test_a_cross_encoder_of_which_the_last_layer_is_trained(retriever, dataset, bert, tmp_path):
    folder = tmp_path / "cross"
    command = (
        "train", "cross-encoder", dataset, "--output", folder, "--model", bert, *SHORT,
        "--epochs", "1", "--train",
    )  # fmt: skip
    done = retriever(*command, "last:1")
    assert done.code == 0, done.err
    identity = json.loads((folder / "reranker.json").read_text())["training"]["identity"]
    assert identity["settings"]["trained"] == {"part": "last", "size": 1}
    for given, message in (("half", "expected full, last:N or lora:RANK"), ("last:9", "last:1 to")):
        refused = retriever(*command, given, "--restart")
        assert refused.code == 2
        assert f"train: expected {message.removeprefix('expected ')}" in refused.err


def test_a_loss_and_a_decay_of_the_rates_reach_the_training(retriever, dataset, bert, tmp_path):
    folder = tmp_path / "cross"
    done = retriever(
        "train", "cross-encoder", dataset, "--output", folder, "--model", bert, *SHORT,
        "--epochs", "1", "--loss", "softmax", "--set", "layer-decay=0.5",
    )  # fmt: skip
    assert done.code == 0, done.err
    identity = json.loads((folder / "reranker.json").read_text())["training"]["identity"]
    assert identity["settings"]["loss"] == "softmax"
    assert identity["settings"]["layer_decay"] == 0.5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-s", "cross-encoder", "--set", "seeds=2"], "--set seeds: it is for training a head"),
        (["-s", "uv", "--cross-seeds", "2"], "--cross-seeds: it is for training a cross-encoder"),
        (["--by-layer", "--cross-seeds", "2"], "--cross-seeds: it is for training a cross"),
    ],
)
def test_options_of_trainings_without_an_effect_are_refused(
    retriever, dataset, model, options, said
):
    done = retriever("eval", "qa", dataset, *model, *options)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_layers_rank_in_place_of_systems(retriever, dataset, model, tmp_path):
    report, asked = tmp_path / "qa", ("--by-layer", "--set", "poolings=cls,mean")
    done = retriever("eval", "qa", dataset, *model, *asked, "--json", "--output", report)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert [grid["measure"] for grid in found["by_layer"]] == ["AP", "RR"]
    assert len(list(report.rglob("layers-*.svg"))) == 2
    assert "question answering" in gather_categories([report]).text()
    for options in (("-s", "bm25,cosine,hybrid"), ("--baseline", "cosine")):
        refused = retriever("eval", "qa", dataset, *model, *asked, *options)
        assert refused.code == 2
        assert "leave out --systems and --baseline" in refused.err
    systems = retriever("eval", "qa", dataset, *model, "-s", "cosine", "--output", tmp_path / "s")
    assert systems.code == 0
    with pytest.raises(SourceError, match="or eval qa --by-layer"):
        gather_categories([tmp_path / "s"])


def test_a_set_without_pools_is_ranked_through_an_index(retriever, dataset, model, tmp_path):
    for path in dataset.glob("candidates.*"):
        path.unlink()
    done = retriever("eval", "qa", dataset, *model, "-s", "bm25")
    assert done.code == 2
    assert "--index" in done.err
    asked = (
        "-s",
        "bm25,cosine,hybrid,hybrid:tuned,bilinear",
        "--set",
        "seeds=1",
        "--set",
        "depth=10",
    )
    index = tmp_path / "index"
    done = retriever("eval", "qa", dataset, *model, *asked, "--index", index, "--json")
    assert done.code == 0, done.err
    scores = {one["name"]: one["scores"]["AP"]["value"] for one in json.loads(done.out)["systems"]}
    assert list(scores) == ["bm25", "cosine", "hybrid", "hybrid:tuned", "bilinear"]
    qrels = {
        query: grades
        for query, grades in read_qrels(dataset / "qrels.test.tsv").items()
        if max(grades.values()) > 0
    }
    queries = dataset / "queries.test.jsonl"
    for name, mode in (("bm25", "bm25"), ("cosine", "dense"), ("hybrid", "hybrid")):
        run = tmp_path / f"{mode}.run"
        asked = ("--queries", queries, "-i", index, "--mode", mode, "-k", "10", "--depth", "10")
        assert retriever("query", *asked, "--run", run).code == 0
        expected = evaluate(read_run(run), qrels, ["AP"]).means["AP"]
        assert scores[name] == pytest.approx(expected, abs=1e-9)


def test_an_index_that_is_not_of_the_corpus_is_completed_or_refused(
    retriever, dataset, model, tmp_path
):
    for path in dataset.glob("candidates.*"):
        path.unlink()
    asked = ("eval", "qa", dataset, *model, "-s", "bm25", "--json")
    whole = retriever(*asked, "--index", tmp_path / "whole")
    assert whole.code == 0, whole.err
    lines = (dataset / "corpus.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "part.jsonl").write_text("".join(lines[::9]))
    index = tmp_path / "part"
    assert retriever("index", tmp_path / "part.jsonl", "-i", index, "-q", *model).code == 0
    part = retriever(*asked, "--index", index)
    assert part.code == 0
    assert f"{len(lines) - len(lines[::9])} documents of the corpus were missing" in part.err
    first, second = (json.loads(done.out)["per_question"] for done in (part, whole))
    assert first == second
    (tmp_path / "more.jsonl").write_text('{"id": "foreign", "text": "w1"}\n')
    assert retriever("index", tmp_path / "more.jsonl", "-i", index, "-q").code == 0
    refused = retriever(*asked, "--index", index)
    assert (refused.code, refused.out) == (2, "")
    assert "found 1 of its" in refused.err
    assert len(refused.err.splitlines()) == 1


def test_the_published_baseline_stands_beside_ours(retriever, dataset, model, monkeypatch):
    done = retriever("eval", "qa", dataset, *model, "-s", "bm25,rank-bm25")
    assert done.code == 0, done.err
    noted = "BM25Okapi of rank-bm25 with k1 1.5, b 0.75, epsilon 0.25"
    assert [line for line in done.out.splitlines() if line.startswith("rank-bm25  " + noted)]
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "retriever.errors.find_spec", lambda name: None if name == "rank_bm25" else find(name)
    )
    refused = retriever("eval", "qa", dataset, *model, "-s", "bm25,rank-bm25")
    assert (refused.code, refused.out) == (2, "")
    assert 'pip install "layer-retriever[baselines]"' in refused.err
    assert len(refused.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("eval", "qa", "{set}", "-s", "nonsense"), "found none of them"),
        (("eval", "qa", "{set}", "--split", "nonsense"), "nonsense"),
        (("eval", "qa", "{set}", "-m", "magic"), "unknown measure"),
        (("eval", "qa", "{set}", "--baseline", "uv"), "baseline: expected one of the systems"),
        (("eval", "qa", "{set}", "--index", "i"), "leave out --index"),
        (("eval", "qa", "{set}/nothing"), "nothing"),
        (("eval", "qa", "{set}", "-s", "uv", "--train-split", "none"), "none"),
        (("eval", "qa", "{set}", "-s", "cross-encoder:ensemble"), "--cross-seeds 2 or more"),
        (("eval", "qa", "{set}", "-s", "cross-encoder:mse"), "hinge, softmax, pointwise"),
        (
            (
                "train",
                "cross-encoder",
                "{set}",
                "--output",
                "c",
                "--loss",
                "softmax",
                "--set",
                "margin=0",
            ),
            "margin: it",
        ),
        (("train", "cross-encoder", "{set}", "--output", "c", "--loss", "mse"), "'mse'"),
        (
            ("train", "cross-encoder", "{set}", "--output", "c", "--set", "layer-decay=0"),
            "above 0 to 1",
        ),
        (("train", "reranker", "{set}", "--output", "{set}"), "--output"),
        (("train", "reranker", "{set}", "--output", "r", "--system", "bm25"), "--system"),
        (("train", "cross-encoder", "{set}", "--output", "{set}"), "--output"),
        (("train", "cross-encoder", "{set}", "--output", "{set}/no/c"), "folder that exists"),
        (("query", "x", "--rerank", "{set}"), "reranker.json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_refused_with_what_would_be_right(
    retriever, dataset, model, monkeypatch, tmp_path, arguments, said
):
    monkeypatch.chdir(tmp_path)
    filled = [argument.replace("{set}", str(dataset)) for argument in arguments]
    takes_encoder = arguments[0] == "eval" or arguments[1] == "reranker"
    done = retriever(*filled, *(model if takes_encoder else ()))
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert not done.out


def _hits(done):
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]
