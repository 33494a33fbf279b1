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
from eval.sentences.supervised import RelatednessSettings, score_relatedness
from eval.transfer.classifiers import Job, LogisticRegressions, MLPs
from eval.transfer.layer_search import LayerTransferSettings, search_transfer
from eval.transfer.protocols import (
    LayerData,
    TransferProtocol,
    classification_data,
    outer_divisions,
    score_classification,
    task_texts,
)
from eval.vectors import LISTS, TextVectors
from retriever.encoders.encoder import Encoder
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
def probe(tmp_path):
    return write_probe(tmp_path / "word.txt")


@pytest.fixture
def evaluate(retriever):
    """Runs a command; its JSON."""

    def call(*arguments):
        done = retriever("eval", *arguments, *FEW, "--json")
        assert done.code == 0, done.err
        return json.loads(done.out)

    return call


def vectors_of(form, texts):
    return TextVectors(texts, Encoder.load(form, device="cpu").encode(texts))


def first(found, measure):
    """Encoder to value, on the first set."""
    return {
        score["encoder"]: score["values"][measure]["value"] for score in found["sets"][0]["scores"]
    }


@pytest.mark.parametrize("aggregation", ["all", "wmean"])
def test_correlations_are_those_of_each_encoder_alone(evaluate, sts, model, aggregation):
    found = evaluate(
        "sts", sts, "-e", model, "-e", "::lc:0,1", "-e", "::static=average",
        "--model", model, "--aggregation", aggregation,
    )  # fmt: skip
    task = read_sts(sts)
    for setting in ("", "::lc:0,1", "::static=average"):
        expected = sts_correlations(task, vectors_of(model + setting, sts_texts(task)))
        for measure in ("spearman", "pearson"):
            value = expected.details[aggregation][measure]
            assert first(found, measure)[model + setting] == pytest.approx(value, abs=1e-5)
    assert found["settings"]["aggregation"].startswith(aggregation)
    assert [score["values"]["spearman"]["difference"] is None
            for score in found["sets"][0]["scores"]] == [True, False, False]  # fmt: skip


def test_the_supervised_protocol_is_that_of_the_engine(evaluate, sts, model):
    found = evaluate("sts", sts, "-e", model, "--supervised", "--set", "seeds=2")
    task = read_sts(sts)
    texts = sts_texts(task, supervised=True)
    expected = score_relatedness(task, vectors_of(model, texts), RelatednessSettings(seeds=2))
    assert first(found, "pearson")[model] == pytest.approx(expected.values["pearson"][0], abs=1e-3)
    spread = found["sets"][0]["scores"][0]["values"]["pearson"]["spread"]
    assert spread == pytest.approx(expected.values["pearson"][1], abs=1e-3)


@pytest.mark.parametrize("classifier", ["lr", "lr-senteval", "mlp"])
def test_accuracies_and_their_test_are_those_of_the_engine(evaluate, task, model, classifier):
    found = evaluate(
        "transfer", task, "-e", model, "-e", "::layers=0", "--model", model, "--classifier",
        classifier, "--seeds", "2", "--set", "folds=3", "--baseline", "::layers=0",
    )  # fmt: skip
    made = {
        "lr": lambda: LogisticRegressions("scaled"),
        "lr-senteval": lambda: LogisticRegressions("senteval"),
        "mlp": MLPs,
    }[classifier]
    read = read_classification(task)
    scores = {
        form: score_classification(
            classification_data(read, vectors_of(form, task_texts(read))),
            made(),
            TransferProtocol(folds=3),
            2,
        )
        for form in (model, f"{model}::layers=0")
    }
    for form, score in scores.items():
        assert first(found, "accuracy")[form] == pytest.approx(
            score.values["accuracy"][0], abs=1e-9
        )
    one, other = scores.values()
    differences = one.predictions[0] - other.predictions[0]
    value, p = differences.mean(), randomization_test(differences, 100, 0)
    difference = found["sets"][0]["scores"][0]["values"]["accuracy"]["difference"]
    assert difference["value"] == pytest.approx(value, abs=1e-9)
    assert difference["p"] == pytest.approx(p, abs=1e-9)


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
    values = first(chosen, "accuracy")
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
    assert first(head, "accuracy")[f"{model}::head=yes::last"] == pytest.approx(half, abs=1e-9)
    plain = evaluate(
        "transfer", task, "-e", f"{model}::normalize=no", "--protocol", "bert-lc",
        "--set", "outer=2", "--seeds", "1",
    )  # fmt: skip
    assert first(plain, "accuracy")[f"{model}::normalize=no"] == values[f"{model}::last"]


def test_several_training_shares_are_drawn_as_a_curve(evaluate, task, model, tmp_path):
    report = tmp_path / "report"
    search = (
        "transfer", task, "-e", model, "--layers-search", "--set", "outer=2", "--set", "inner=2",
        "--max-layers", "2",
    )  # fmt: skip
    found = evaluate(*search, "--train-share", "1,1/2", "-o", report)
    # 85% of 90 examples are 77; a half of them is 38.
    assert [one["set"] for one in found["sets"]] == ["texts, 77 examples", "texts, 38 examples"]
    for one, share in zip(found["sets"], ("1", "0.5"), strict=True):
        alone = evaluate(*search, "--train-share", share)
        assert one["scores"] == alone["sets"][0]["scores"]
        assert one["facts"] == alone["sets"][0]["facts"]
    overview = (report / "report.md").read_text()
    assert "| encoder | texts, 77 examples | texts, 38 examples |" in overview
    curve = (report / "figures/sizes-accuracy.svg").read_text()
    assert "examples learned from" in curve
    assert "error reduction" in curve


def test_probing_is_scored_on_its_own_test_split(evaluate, probe, model):
    found = evaluate("probe", probe, "-e", model)
    read = read_probing(probe)
    data = classification_data(read, vectors_of(model, task_texts(read)))
    expected = score_classification(data, LogisticRegressions("scaled"), seeds=1)
    assert first(found, "accuracy")[model] == pytest.approx(
        expected.values["accuracy"][0], abs=1e-9
    )
    assert found["sets"][0]["facts"]["splits"] == "train 60, dev 30, test 30"


def test_each_layer_and_pooling_is_scored_as_an_encoder_of_its_own(evaluate, sts, model):
    found = evaluate("sts", sts, "-e", model, "--by-layer", "--set", "poolings=cls,mean")
    assert not found["sets"]
    task = read_sts(sts)
    for grid in found["by_layer"]:
        assert grid["poolings"] == ["cls", "mean"]
        for layer, row in enumerate(grid["values"]):
            for pooling, value in zip(grid["poolings"], row, strict=True):
                form = f"{model}::layers={layer}::pooling={pooling}"
                score = sts_correlations(task, vectors_of(form, sts_texts(task)))
                expected = score.values[grid["measure"]][0]
                assert value == pytest.approx(expected, abs=1e-5)
    assert [grid["measure"] for grid in found["by_layer"]] == ["spearman", "pearson"]


@pytest.mark.parametrize("kind", ["transfer", "probe"])
def test_layers_are_scored_on_tasks_too(evaluate, task, probe, model, kind, tmp_path):
    found = evaluate(
        kind, task if kind == "transfer" else probe, "-e", model, "--by-layer", "--set",
        "poolings=max", "--seeds", "1", "-o", tmp_path / "report",
    )  # fmt: skip
    (grid,) = found["by_layer"]
    assert np.array(grid["values"]).shape == (3, 1)
    read = read_classification(task) if kind == "transfer" else read_probing(probe)
    form = f"{model}::layers=0::pooling=max::normalize=no"
    data = classification_data(read, vectors_of(form, task_texts(read)))
    expected = score_classification(data, LogisticRegressions("scaled"), seeds=1)
    assert grid["values"][0][0] == pytest.approx(expected.values["accuracy"][0], abs=1e-9)
    assert (tmp_path / "report/figures/layers-accuracy.svg").exists()


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


def test_the_report_is_written_and_json_is_the_same(retriever, sts, model, tmp_path):
    report = tmp_path / "report"
    done = retriever(
        "eval", "sts", sts, "-e", model, "-e", "::lc:0,1", "--model", model, *FEW, "--json",
        "--output", report,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert json.loads(done.out) == json.loads((report / "report.json").read_text())
    task = read_sts(sts)
    score = sts_correlations(task, vectors_of(model, sts_texts(task)))
    with (report / "examples.pairs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_allclose([float(row[model]) for row in rows], score.predictions[0], atol=1e-5)
    assert [float(row["gold"]) for row in rows] == task.subsets[0].pairs.gold.tolist() + (
        task.subsets[1].pairs.gold.tolist()
    )
    shown = f"{100 * score.values['spearman'][0]:.2f}"
    for name in ("report.md", "report.tex"):
        assert shown in (report / name).read_text()
    assert len(list((report / "figures").iterdir())) == 4


def test_each_tested_text_is_written_with_the_share_of_seeds_that_classify_it_correctly(
    evaluate, task, model, tmp_path
):
    report = tmp_path / "report"
    found = evaluate("transfer", task, "-e", model, "--seeds", "2", "--set", "folds=3",
                     "--output", report)  # fmt: skip
    with (report / "examples.texts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    test = read_classification(task).splits["test"]
    assert {row["split"] for row in rows} == {"test"}
    assert [(row["label"], row["text"]) for row in rows] == list(
        zip(test.labels, test.left, strict=True)
    )
    right = [float(row[model]) for row in rows]
    assert set(right) <= {0, 0.5, 1}
    assert np.mean(right) == pytest.approx(first(found, "accuracy")[model])


def test_the_table_names_aggregation_encoders_and_cut_texts(retriever, sts, tiny_models):
    form = f"{tiny_models['bert']}::max-length=8"
    done = retriever("eval", "sts", sts, "-e", form, *FEW)
    assert (done.code, done.err) == (0, "")
    texts = sts_texts(read_sts(sts))
    cut = sum(len(text.split()) > 6 for text in texts)
    assert cut > 0
    assert (
        f"{form}: longer than its window, and cut: {cut} of {len(texts)} texts of pairs" in done.out
    )
    assert "aggregation: all" in done.out
    assert "  pairs: pairs 69; parts a 30, b 39\n" in done.out


def test_sbert_wk_and_the_last_layer_of_minilm_have_their_known_correlations_on_sts_b(
    retriever, stsb, monkeypatch
):
    monkeypatch.setenv("RETRIEVER_CACHE", str(stsb.cache))
    wk = "::sbert-wk::window=2::start-layer=4"
    forms = ("::last", wk, f"{wk}::wk-preset=released")
    asked = [part for form in forms for part in ("-e", form)]
    done = retriever("eval", "sts", stsb.path, *asked, *FEW, "--device", "cpu", "--json")
    assert done.code == 0, done.err
    values = list(first(json.loads(done.out), "spearman").values())
    assert values == pytest.approx([0.8203, 0.712, 0.659], abs=5.1e-4)
