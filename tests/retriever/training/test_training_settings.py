"""Which settings there are for trainings, their ranges, and those that exclude each other."""

from __future__ import annotations

import pytest

from retriever.errors import ConfigError
from retriever.training.settings import (
    CrossTrainingSettings,
    EncoderTrainingSettings,
    HeadSettings,
    HeadTrainingSettings,
    SamplingSettings,
    trained_part,
)
from tests.retriever.ranges import check_ranges

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
}


@pytest.mark.parametrize("kind", RANGES)
def test_numbers_have_ranges_and_others_are_refused(kind):
    check_ranges(kind, RANGES[kind])


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
