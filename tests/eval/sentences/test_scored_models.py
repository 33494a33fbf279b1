"""Encoders and layers of a small random model, scored together, against each scored alone."""

import numpy as np
import pytest

from eval import (
    LayerTransferSettings,
    Loading,
    RelatednessSettings,
    Resampling,
    STSSettings,
    TransferProtocol,
    TransferSettings,
    read_classification,
    read_probing,
    read_sts,
    score_probing,
    score_sts,
    score_transfer,
)
from eval.metrics.significance import randomization_test
from eval.sentences.sts import sts_correlations, sts_texts
from eval.sentences.supervised import score_relatedness
from eval.transfer.classifiers import Job, LogisticRegressions, MLPs
from eval.transfer.layer_search import search_transfer
from eval.transfer.protocols import (
    LayerData,
    classification_data,
    outer_divisions,
    score_classification,
    task_texts,
)
from eval.vectors import TextVectors
from retriever.encoders import Encoder
from tests.eval.sentences.sentence_samples import write_probe, write_sts, write_task

SHARED = {"resampling": Resampling(100), "loading": Loading("cpu")}
SEARCH = {"layer_search": LayerTransferSettings(2, 2, 2), **SHARED}


@pytest.fixture
def model(tiny_models):
    return f"{tiny_models['bert']}::max-length=16"


@pytest.fixture
def sts(tmp_path):
    return read_sts(write_sts(tmp_path / "pairs"))


@pytest.fixture
def task(tmp_path):
    path = write_task(tmp_path / "texts.tsv", {"train": 60, "test": 30}, classes=3)
    return read_classification(path)


def vectors_of(form, texts):
    return TextVectors(texts, Encoder.load(form, device="cpu").encode(texts))


def accuracy_of(form, task, classifier=None, **options):
    data = classification_data(task, vectors_of(form, task_texts(task)))
    return score_classification(data, classifier or LogisticRegressions("scaled"), **options)


def values(scores, measure="accuracy"):
    return {score.encoder: score.values[measure].value for score in scores.scores}


def test_supervised_sts_score_equals_score_relatedness(sts, model):
    settings = STSSettings(supervised=RelatednessSettings(seeds=2), **SHARED)
    ((score,),) = (scored_set.scores for scored_set in score_sts([sts], [model], settings).sets)
    vectors = vectors_of(model, sts_texts(sts, supervised=True))
    value, spread = score_relatedness(sts, vectors, settings.supervised).values["pearson"]
    pearson = score.values["pearson"]
    assert (pearson.value, pearson.spread) == pytest.approx((value, spread), abs=1e-3)


@pytest.mark.parametrize(
    ("name", "classifier"),
    [
        ("lr", LogisticRegressions("scaled")),
        ("lr-senteval", LogisticRegressions("senteval")),
        ("mlp", MLPs()),
    ],
)
def test_transfer_accuracies_equal_those_of_each_encoder_alone(task, model, name, classifier):
    forms, protocol = (model, f"{model}::layers=0"), TransferProtocol(folds=2)
    settings = TransferSettings(name, protocol, 2, baseline=forms[1], **SHARED)
    (scored_set,) = score_transfer([task], forms, settings).sets
    alone = [accuracy_of(form, task, classifier, protocol=protocol, seeds=2) for form in forms]
    expected = [score.values["accuracy"][0] for score in alone]
    assert values(scored_set) == pytest.approx(dict(zip(forms, expected, strict=True)), abs=1e-9)
    differences = alone[0].predictions.mean(axis=0) - alone[1].predictions.mean(axis=0)
    difference = scored_set.scores[0].values["accuracy"].difference
    assert difference.value == pytest.approx(differences.mean(), abs=1e-9)
    assert difference.p == pytest.approx(randomization_test(differences, 100, 0), abs=1e-9)
    # Each tested text has the share of seeds that classify it correctly.
    test = task.splits["test"]
    assert list(zip(*scored_set.examples.values(), strict=True)) == [
        ("test", label, text) for label, text in zip(test.labels, test.left, strict=True)
    ]
    assert set(scored_set.scores[0].examples) <= {0, 0.5, 1}
    assert np.mean(scored_set.scores[0].examples) == pytest.approx(expected[0])


def test_transfer_layer_choice_equals_search_over_hidden_states(task, model):
    settings = TransferSettings(baseline=f"{model}::last4", **SEARCH)
    (scored_set,) = score_transfer([task], [model], settings).sets
    compared = [score.values["accuracy"].difference is None for score in scored_set.scores]
    assert compared == [False, True, False, False]
    texts = task_texts(task)
    states = [
        vectors_of(f"{model}::layers={layer}::normalize=no", texts).vectors for layer in range(3)
    ]
    data = classification_data(task, vectors_of(f"{model}::normalize=no", texts))
    rows = [texts.index(text) for part in task.splits.values() for text in part.left]
    layers = LayerData(data, np.stack(states, axis=1)[rows], None)
    alone = search_transfer(layers, settings.layer_search)
    names = ("::last", "::last4", ", random layers", ", layers chosen")
    for name, expected in zip(names, alone.values(), strict=True):
        value = expected.values["accuracy"][0]
        assert values(scored_set)[f"{model}{name}"] == pytest.approx(value, abs=1e-9)
    assert scored_set.scores[3].details == alone["chosen"].details
    plain = TransferSettings(protocol=TransferProtocol("bert-lc", outer=2), seeds=1, **SHARED)
    (plain_set,) = score_transfer([task], [f"{model}::normalize=no"], plain).sets
    assert list(values(plain_set).values()) == [values(scored_set)[f"{model}::last"]]


def test_each_training_share_is_scored_as_its_own_set(task, model):
    form = f"{model}::head=yes"
    both = score_transfer([task], [form], TransferSettings(train_shares=(1, 0.5), **SEARCH)).sets
    # 85% of 90 examples are 77; a half of them is 38.
    assert [scored_set.name for scored_set in both] == ["texts, 77 examples", "texts, 38 examples"]
    (half,) = score_transfer([task], [form], TransferSettings(train_shares=(0.5,), **SEARCH)).sets
    assert (values(both[1]), both[1].facts) == (values(half), half.facts)
    data = classification_data(task, vectors_of(f"{form}::normalize=no", task_texts(task)))
    accuracies = []
    for train, test in outer_divisions(data, 2, 0):
        job = Job(train[: round(len(train) / 2)], test, (10.0,))
        (predicted,) = LogisticRegressions("bert-lc").predict(data.features, data.labels, [job], 0)
        accuracies.append((predicted[0] == data.labels[test]).mean())
    assert values(half)[f"{form}::last"] == pytest.approx(np.mean(accuracies), abs=1e-9)


def test_probing_is_scored_on_its_own_test_split(model, tmp_path):
    task = read_probing(write_probe(tmp_path / "word.txt"))
    (scored_set,) = score_probing([task], [model], TransferSettings(**SHARED)).sets
    expected = accuracy_of(model, task, seeds=1).values["accuracy"][0]
    assert values(scored_set)[model] == pytest.approx(expected, abs=1e-9)
    assert scored_set.facts["splits"] == "train 60, dev 30, test 30"


def test_each_layer_and_pooling_is_scored_as_an_encoder_of_its_own(sts, task, model):
    shared = {"poolings": ("cls", "mean"), **SHARED}
    similar = score_sts([sts], [model], STSSettings(**shared))
    protocol = TransferProtocol(folds=2)
    transferred = score_transfer([task], [model], TransferSettings("lr", protocol, 1, **shared))
    assert not similar.sets
    grids = [*similar.grids, *transferred.grids]
    assert [grid.measure for grid in grids] == ["spearman", "pearson", "accuracy"]
    for layer in range(3):
        for column, pooling in enumerate(shared["poolings"]):
            form = f"{model}::layers={layer}::pooling={pooling}::normalize=no"
            alone = {
                **sts_correlations(sts, vectors_of(form, sts_texts(sts))).values,
                **accuracy_of(form, task, protocol=protocol, seeds=1).values,
            }
            for grid in grids:
                value, expected = grid.values[layer, column], alone[grid.measure][0]
                assert value == pytest.approx(expected, abs=1e-5)
