"""`eval sts`, `eval transfer` and `eval probe` as a user runs them, on a small random model."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from eval.datasets.classification import read_classification, read_probing
from eval.datasets.pairs import read_sts
from eval.metrics.significance import randomization_test
from eval.sentences.sts import sts_correlations, sts_texts
from eval.sentences.supervised import score_relatedness
from eval.settings import LayerTransferSettings, RelatednessSettings, TransferProtocol
from eval.transfer.classifiers import Job, LogisticRegressions, MLPs
from eval.transfer.layer_search import search_transfer
from eval.transfer.protocols import (
    LayerData,
    classification_data,
    outer_divisions,
    score_classification,
    task_texts,
)
from eval.vectors import LISTS, TextVectors
from retriever.encoders.encoder import Encoder
from tests.cli.conftest import found
from tests.eval.sentences.sentence_samples import write_probe, write_sts, write_task
from tests.retriever.encoders.architectures import save

FEW = ("--set", "resamples=100")


@pytest.fixture
def model(tiny_models):
    return f"{tiny_models['bert']}::max-length=16"


@pytest.fixture
def sts(tmp_path):
    return write_sts(tmp_path / "pairs")


@pytest.fixture
def task(tmp_path):
    return write_task(tmp_path / "texts.tsv", {"train": 60, "test": 30}, classes=3)


@pytest.fixture
def evaluate(retriever):
    """Runs a command; its JSON."""
    return lambda *asked: found(retriever("eval", *asked, *FEW, "--json"))


def vectors_of(form, texts):
    return TextVectors(texts, Encoder.load(form, device="cpu").encode(texts))


def accuracy_of(form, task, classifier=None, **options):
    """The score of the engine for one encoder."""
    data = classification_data(task, vectors_of(form, task_texts(task)))
    return score_classification(data, classifier or LogisticRegressions("scaled"), **options)


def first(told, measure="accuracy"):
    """Encoder to value, on the first set."""
    scores = told["sets"][0]["scores"]
    return {score["encoder"]: score["values"][measure]["value"] for score in scores}


@pytest.mark.parametrize("aggregation", ["all", "wmean"])
def test_correlations_are_those_of_each_encoder_alone(evaluate, sts, model, aggregation):
    told = evaluate(
        "sts", sts, "-e", model, "-e", "::lc:0,1", "-e", "::static=average",
        "--model", model, "--aggregation", aggregation,
    )  # fmt: skip
    task = read_sts(sts)
    for setting in ("", "::lc:0,1", "::static=average"):
        expected = sts_correlations(task, vectors_of(model + setting, sts_texts(task)))
        for measure in ("spearman", "pearson"):
            value = expected.details[aggregation][measure]
            assert first(told, measure)[model + setting] == pytest.approx(value, abs=1e-5)
    assert told["settings"]["aggregation"].startswith(aggregation)
    assert [score["values"]["spearman"]["difference"] is None
            for score in told["sets"][0]["scores"]] == [True, False, False]  # fmt: skip


def test_the_supervised_protocol_is_that_of_the_engine(evaluate, sts, model):
    told = evaluate("sts", sts, "-e", model, "--supervised", "--set", "seeds=2")
    task = read_sts(sts)
    texts = sts_texts(task, supervised=True)
    expected = score_relatedness(task, vectors_of(model, texts), RelatednessSettings(seeds=2))
    assert first(told, "pearson")[model] == pytest.approx(expected.values["pearson"][0], abs=1e-3)
    spread = told["sets"][0]["scores"][0]["values"]["pearson"]["spread"]
    assert spread == pytest.approx(expected.values["pearson"][1], abs=1e-3)


@pytest.mark.parametrize(
    ("name", "classifier"),
    [
        ("lr", LogisticRegressions("scaled")),
        ("lr-senteval", LogisticRegressions("senteval")),
        ("mlp", MLPs()),
    ],
)
def test_accuracies_and_their_test_are_those_of_the_engine(
    evaluate, task, model, name, classifier, tmp_path
):
    forms, report = (model, f"{model}::layers=0"), tmp_path / "report"
    told = evaluate(
        "transfer", task, "-e", model, "-e", "::layers=0", "--model", model, "--classifier", name,
        "--seeds", "2", "--set", "folds=3", "--baseline", "::layers=0", "--output", report,
    )  # fmt: skip
    read, protocol = read_classification(task), TransferProtocol(folds=3)
    scores = [accuracy_of(form, read, classifier, protocol=protocol, seeds=2) for form in forms]
    values = [score.values["accuracy"][0] for score in scores]
    assert first(told) == pytest.approx(dict(zip(forms, values, strict=True)), abs=1e-9)
    differences = scores[0].predictions[0] - scores[1].predictions[0]
    difference = told["sets"][0]["scores"][0]["values"]["accuracy"]["difference"]
    assert difference["value"] == pytest.approx(differences.mean(), abs=1e-9)
    assert difference["p"] == pytest.approx(randomization_test(differences, 100, 0), abs=1e-9)
    # Each tested text is written with the share of seeds that classify it correctly.
    with (report / "examples.texts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    test = read.splits["test"]
    assert [(row["split"], row["label"], row["text"]) for row in rows] == [
        ("test", label, text) for label, text in zip(test.labels, test.left, strict=True)
    ]
    right = [float(row[model]) for row in rows]
    assert set(right) <= {0, 0.5, 1}
    assert np.mean(right) == pytest.approx(first(told)[model])


def score_transfer_halves(data):
    """BERT-LC's logistic regression learned on the first half of each training part."""
    accuracies = []
    for train, test in outer_divisions(data, 2, 0):
        job = Job(train[: round(len(train) / 2)], test, (10.0,))
        classifier = LogisticRegressions("bert-lc")
        (found,) = classifier.predict(data.features, data.labels, [job], 0)
        accuracies.append((found[0] == data.labels[test]).mean())
    return np.mean(accuracies)


def test_the_protocol_of_bert_lc_and_its_choice_of_layers(evaluate, task, model):
    chosen = evaluate(
        "transfer", task, "-e", model, "--layers-search", "--set", "outer=2", "--set", "inner=2",
        "--max-layers", "2", "--baseline", f"{model}::last4",
    )  # fmt: skip
    compared = {one["encoder"]: one["values"]["accuracy"] for one in chosen["sets"][0]["scores"]}
    assert [one["difference"] is None for one in compared.values()] == [False, True, False, False]
    read = read_classification(task)
    texts = task_texts(read)
    data = classification_data(read, vectors_of(f"{model}::normalize=no", texts))
    states = [
        vectors_of(f"{model}::layers={layer}::normalize=no", texts).of(texts) for layer in range(3)
    ]
    row = {text: number for number, text in enumerate(texts)}
    rows = [row[text] for part in read.splits.values() for text in part.left]
    expected = search_transfer(
        LayerData(data, np.stack(states, axis=1)[rows], None), LayerTransferSettings(2, 2, 2)
    )
    values = first(chosen)
    for name, one in zip(
        ("::last", "::last4", ", random layers", ", layers chosen"),
        expected.values(),
        strict=True,
    ):
        assert values[f"{model}{name}"] == pytest.approx(one.values["accuracy"][0], abs=1e-9)
    shown = chosen["sets"][0]["scores"][3]
    assert shown["details"] == json.loads(json.dumps(expected["chosen"].details))
    assert shown["extra"] == expected["chosen"].extra
    head = evaluate(
        "transfer", task, "-e", f"{model}::head=yes", "--layers-search", "--set", "outer=2",
        "--set", "inner=2", "--max-layers", "2", "--train-share", "0.5",
    )  # fmt: skip
    last = vectors_of(f"{model}::head=yes::normalize=no", texts)
    half = score_transfer_halves(classification_data(read, last))
    assert first(head)[f"{model}::head=yes::last"] == pytest.approx(half, abs=1e-9)
    plain = evaluate(
        "transfer", task, "-e", f"{model}::normalize=no", "--protocol", "bert-lc",
        "--set", "outer=2", "--seeds", "1",
    )  # fmt: skip
    assert first(plain)[f"{model}::normalize=no"] == values[f"{model}::last"]


def test_several_training_shares_are_drawn_as_a_curve(evaluate, task, model, tmp_path):
    report = tmp_path / "report"
    search = (
        "transfer", task, "-e", model, "--layers-search", "--set", "outer=2", "--set", "inner=2",
        "--max-layers", "2",
    )  # fmt: skip
    told = evaluate(*search, "--train-share", "1,1/2", "-o", report)
    # 85% of 90 examples are 77; a half of them is 38.
    assert [one["set"] for one in told["sets"]] == ["texts, 77 examples", "texts, 38 examples"]
    for one, share in zip(told["sets"], ("1", "0.5"), strict=True):
        alone = evaluate(*search, "--train-share", share)
        assert one["scores"] == alone["sets"][0]["scores"]
        assert one["facts"] == alone["sets"][0]["facts"]
    overview = (report / "report.md").read_text()
    assert "| encoder | texts, 77 examples | texts, 38 examples |" in overview
    curve = (report / "figures/sizes-accuracy.svg").read_text()
    assert "examples learned from" in curve
    assert "error reduction" in curve


def test_probing_is_scored_on_its_own_test_split_and_by_layer(evaluate, task, model, tmp_path):
    probe = write_probe(tmp_path / "word.txt")
    told, read = evaluate("probe", probe, "-e", model), read_probing(probe)
    expected = accuracy_of(model, read, seeds=1).values["accuracy"][0]
    assert first(told)[model] == pytest.approx(expected, abs=1e-9)
    assert told["sets"][0]["facts"]["splits"] == "train 60, dev 30, test 30"
    for kind, path, parts in (
        ("probe", probe, read),
        ("transfer", task, read_classification(task)),
    ):
        (grid,) = evaluate(
            kind, path, "-e", model, "--by-layer", "--set", "poolings=max", "--seeds", "1",
            "-o", tmp_path / kind,
        )["by_layer"]  # fmt: skip
        assert np.array(grid["values"]).shape == (3, 1)
        score = accuracy_of(f"{model}::layers=0::pooling=max::normalize=no", parts, seeds=1)
        assert grid["values"][0][0] == pytest.approx(score.values["accuracy"][0], abs=1e-9)
        assert (tmp_path / kind / "figures/layers-accuracy.svg").exists()


def test_each_layer_and_pooling_is_scored_as_an_encoder_of_its_own(evaluate, sts, model):
    told = evaluate("sts", sts, "-e", model, "--by-layer", "--set", "poolings=cls,mean")
    assert not told["sets"]
    task = read_sts(sts)
    for grid in told["by_layer"]:
        assert grid["poolings"] == ["cls", "mean"]
        for layer, row in enumerate(grid["values"]):
            for pooling, value in zip(grid["poolings"], row, strict=True):
                form = f"{model}::layers={layer}::pooling={pooling}"
                score = sts_correlations(task, vectors_of(form, sts_texts(task)))
                expected = score.values[grid["measure"]][0]
                assert value == pytest.approx(expected, abs=1e-5)
    assert [grid["measure"] for grid in told["by_layer"]] == ["spearman", "pearson"]


def test_the_list_of_the_paper_is_scored_over_a_model_of_ones_own(evaluate, sts, tmp_path):
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder = save("bert", tmp_path / "bert")
    logging.enable_progress_bar()
    values = first(evaluate("sts", sts, "--encoders", "paper", "--model", folder), "spearman")
    assert [form.removeprefix(f"{folder}::") for form in values] == list(LISTS["paper"])
    task = read_sts(sts)
    for setting in ("last", "top-bottom", "sbert-wk::wk-preset=released", "static=p-mean"):
        form = f"{folder}::{setting}"
        expected = sts_correlations(task, vectors_of(form, sts_texts(task))).values["spearman"][0]
        assert values[form] == pytest.approx(expected, abs=1e-5)


def test_what_is_fitted_does_not_depend_on_the_other_sets(evaluate, sts, tmp_path, tiny_models):
    other = write_sts(tmp_path / "other", parts=("x",), size=50)
    form = f"{tiny_models['bert']}::static=sif"
    alone, both = evaluate("sts", sts, "-e", form), evaluate("sts", other, sts, "-e", form)
    assert both["sets"][1] == alone["sets"][0]


@pytest.mark.filterwarnings("ignore:.* longer than the window")
def test_the_report_is_written_and_json_is_the_same(retriever, sts, tiny_models, tmp_path):
    report, model = tmp_path / "report", f"{tiny_models['bert']}::max-length=8"
    asked = ("eval", "sts", sts, "-e", model, "-e", "::lc:0,1", "--model", model, *FEW)
    told = found(retriever(*asked, "--json", "--output", report))
    assert told == json.loads((report / "report.json").read_text())
    task = read_sts(sts)
    texts = sts_texts(task)
    score = sts_correlations(task, vectors_of(model, texts))
    with (report / "examples.pairs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_allclose([float(row[model]) for row in rows], score.predictions[0], atol=1e-5)
    gold = [value for one in task.subsets for value in one.pairs.gold.tolist()]
    assert [float(row["gold"]) for row in rows] == gold
    for name in ("report.md", "report.tex"):
        assert f"{100 * score.values['spearman'][0]:.2f}" in (report / name).read_text()
    assert len(list((report / "figures").iterdir())) == 4
    done = retriever(*asked)
    cut = sum(len(text.split()) > 6 for text in texts)
    said = f"{model}: longer than its window, and cut: {cut} of {len(texts)} texts of pairs"
    assert said in done.out
    assert "aggregation: all" in done.out
    assert "  pairs: pairs 69; parts a 30, b 39\n" in done.out


def test_sbert_wk_and_the_last_layer_of_minilm_have_their_known_correlations_on_sts_b(
    retriever, stsb, monkeypatch
):
    monkeypatch.setenv("RETRIEVER_CACHE", str(stsb.cache))
    wk = "::sbert-wk::window=2::start-layer=4"
    forms = ("::last", wk, f"{wk}::wk-preset=released")
    asked = [part for form in forms for part in ("-e", form)]
    told = found(retriever("eval", "sts", stsb.path, *asked, *FEW, "--device", "cpu", "--json"))
    values = list(first(told, "spearman").values())
    assert values == pytest.approx([0.8203, 0.712, 0.659], abs=5.1e-4)
