"""Which settings there are for trainings, their ranges, and those that exclude each other."""

from __future__ import annotations

import pytest

from retriever.encoders.meta.settings import MetaSettings, UnsupSettings
from retriever.encoders.static.settings import FitSettings, LSASettings
from retriever.errors import ConfigError
from retriever.settings import declared_settings
from retriever.training.settings import (
    CrossTrainingSettings,
    EncoderTrainingSettings,
    HeadSettings,
    HeadTrainingSettings,
    SamplingSettings,
    trained_part,
)

FINE_TUNING = {
    "at least 0": "tolerance learning_rate head_learning_rate weight_decay seed",
    "at least 1": "epochs patience",
    "0 to 1": "warmup",
    "above 0": "clip",
    "0 to below 1": "averaging",
    "above 0 to 1": "layer_decay",
}
RANGES = {
    SamplingSettings: {"at least 1": "count positives batch"},
    CrossTrainingSettings: FINE_TUNING | {"at least 0": FINE_TUNING["at least 0"] + " margin"},
    EncoderTrainingSettings: FINE_TUNING
    | {"above 0": "clip scale margin", "at least 8": "max_length", "above 0 to 1": ""},
    HeadSettings: {"at least 2": "hidden", "0 to below 1": "dropout"},
    HeadTrainingSettings: {
        "at least 0": "learning_rate weight_decay margin seed",
        "at least 1": "epochs patience",
    },
    UnsupSettings: {
        "at least 0": "weight_decay seed lambda_ mu nu xi margin",
        "at least 1": "epochs patience dimensions",
        "above 0": "learning_rate",
    },
    MetaSettings: {"at least 0": "regularization seed", "at least 1": "dimensions sample"},
    LSASettings: {"at least 1": "dimensions min_df max_words sample", "above 0 to 1": "max_df"},
    FitSettings: {"at least 0": "components", "at least 1": "sample", "above 0": "a"},
}


@pytest.mark.parametrize("kind", RANGES)
def test_numbers_have_ranges_and_others_are_refused(kind):
    expected = {name: text for text, names in RANGES[kind].items() for name in names.split()}
    declared = declared_settings(kind).values()
    found = {one.name: one.expected for one in declared if one.low is not None}
    assert found == expected
    with pytest.raises(ConfigError, match=r": expected .* found -1"):
        kind(**{next(iter(expected)): -1})


@pytest.mark.parametrize(
    ("train", "found"),
    [("full", ("full", 0)), ("last:3", ("last", 3)), ("lora:16", ("lora", 16))]
    + [(text, None) for text in ("", "all", "last", "last:0", "lora:0", "lora:x", "full:2")],
)
def test_the_weights_to_train_are_all_last_layers_or_adapters(train, found):
    if found is not None:
        assert trained_part(train) == found
        return
    with pytest.raises(ConfigError, match=r"^train: expected full, last:N or lora:RANK"):
        CrossTrainingSettings(train=train)


BATCH = SamplingSettings("batch")


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (SamplingSettings, {"negatives": "random"}, "count: random negatives need a number"),
        (CrossTrainingSettings, {"sampling": BATCH}, "pool, random or hard, found 'batch'"),
        (HeadTrainingSettings, {"sampling": BATCH}, "pool, random or hard, found 'batch'"),
        (EncoderTrainingSettings, {"sampling": BATCH, "objective": "hinge"}, "a pairwise loss"),
        (CrossTrainingSettings, {"loss": "softmax", "margin": 0.5}, "the hinge loss, found loss s"),
        (MetaSettings, {"method": "conc", "dimensions": 3}, "conc has the sum of its sources'"),
        (MetaSettings, {"method": "avg", "dimensions": 3}, "avg has the greatest of its sources'"),
        (MetaSettings, {"regularization": 1.0}, "it belongs to gcca"),
        (MetaSettings, {"method": "sup", "sample": 3}, "sup reads no corpus"),
        (MetaSettings, {"method": "pca"}, "method: expected conc, avg, svd, gcca, sup or unsup"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(kind, settings, message):
    with pytest.raises(ConfigError, match=message):
        kind(**settings)


def test_settings_that_go_together_are_taken():
    assert SamplingSettings("random", count=1).count == 1
    assert EncoderTrainingSettings(sampling=BATCH, objective="mnr").transformer_rate == 5e-5
    assert CrossTrainingSettings(train="lora:2").transformer_rate == pytest.approx(1e-3)
    assert CrossTrainingSettings(loss="pointwise").pointwise
    assert MetaSettings("gcca", regularization=0.0, dimensions=1, sample=1).word_pooling == "mean"
    assert MetaSettings("sup").word_pooling == MetaSettings("unsup").word_pooling == "max"
    assert MetaSettings("unsup", pooling="mean").word_pooling == "mean"
