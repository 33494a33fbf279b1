"""Which epoch is kept, and whose settings refuse what."""

from __future__ import annotations

import pytest

from retriever.errors import ConfigError
from retriever.rerankers.settings import CrossTrainingSettings, HeadTrainingSettings
from retriever.training.loop import Epoch, kept_epoch
from retriever.training.sampling import SamplingSettings


def curve(*scores, first=0):
    return [Epoch(number, 0.0, 0.0, dev) for number, dev in enumerate(scores, first)]


@pytest.mark.parametrize(
    ("scores", "tolerance", "kept"),
    [
        ((0.5,), 0.0, 0),
        ((0.5, 0.4, 0.3), 0.0, 0),
        ((0.5, 0.5), 0.0, 0),
        ((0.5, 0.6), 0.0, 1),
        ((0.5, 0.6, 0.6), 0.0, 2),
        ((0.5, 0.6, 0.59), 0.02, 2),
        ((0.5, 0.6, 0.57), 0.02, 1),
        ((0.5, 0.51, 0.5), 0.02, 1),
        ((0.5, 0.4, 0.7), 0.0, 2),
    ],
)
def test_only_a_better_epoch_takes_the_place_of_the_untrained_model(scores, tolerance, kept):
    found = kept_epoch(curve(*scores), tolerance, untrained=True)
    assert found is not None
    assert found.epoch == kept


def test_without_the_untrained_model_some_epoch_is_kept():
    for scores in (curve(0.0, -1.0, first=1), curve(0.5, 0.0, -1.0)):
        found = kept_epoch(scores, 0.0, untrained=False)
        assert found is not None
        assert found.epoch == 1
    assert kept_epoch(curve(0.5), 0.0, untrained=False) is None


@pytest.mark.parametrize("kind", [CrossTrainingSettings, HeadTrainingSettings])
def test_rerankers_need_negatives_of_the_question(kind):
    with pytest.raises(ConfigError, match="a pairwise loss"):
        kind(sampling=SamplingSettings("batch"))
