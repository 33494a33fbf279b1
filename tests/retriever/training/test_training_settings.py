"""Settings of trainings: names, ranges and exclusions."""

from __future__ import annotations

import pytest

from retriever.errors import ConfigError
from retriever.training import (
    CrossTrainingSettings,
    EncoderTrainingSettings,
    HeadSettings,
    HeadTrainingSettings,
    SamplingSettings,
)
from retriever.training.settings import trained_layers
from tests.retriever.ranges import check_ranges

FINE_TUNING = {
    "at least 0": "tolerance learning_rate head_learning_rate weight_decay seed",
    "at least 1": "epochs patience",
    "0 to 1": "warmup",
    "above 0": "clip",
    "0 to below 1": "averaging",
}
RANGES = {
    SamplingSettings: {"at least 1": "count positives batch"},
    CrossTrainingSettings: FINE_TUNING | {"at least 0": FINE_TUNING["at least 0"] + " margin"},
    EncoderTrainingSettings: FINE_TUNING
    | {"above 0": "clip scale margin", "at least 8": "max_length"},
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
    [("full", None), ("last:3", 3)]
    + [(text, "refused") for text in ("", "all", "last", "last:0", "last:x", "full:2", "lora:8")],
)
def test_the_weights_to_train_are_all_or_those_of_last_layers(train, found):
    if found != "refused":
        assert trained_layers(train) == found
        return
    with pytest.raises(ConfigError, match=r"^train: expected full or last:N"):
        CrossTrainingSettings(train=train)


BATCH = SamplingSettings("batch")


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (SamplingSettings, {"negatives": "random"}, "count: random negatives need a number"),
        (CrossTrainingSettings, {"sampling": BATCH}, "pool, random or hard, found 'batch'"),
        (HeadTrainingSettings, {"sampling": BATCH}, "pool, random or hard, found 'batch'"),
        (EncoderTrainingSettings, {"sampling": BATCH, "objective": "hinge"}, "a pairwise loss"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(kind, settings, message):
    with pytest.raises(ConfigError, match=message):
        kind(**settings)


def test_compatible_training_settings_are_accepted():
    assert SamplingSettings("random", count=1).count == 1
    assert EncoderTrainingSettings(sampling=BATCH, objective="mnr").learning_rate == 5e-5
