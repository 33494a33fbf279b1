from __future__ import annotations

import weakref

import numpy as np
import pytest
import scipy.spatial
import scipy.stats

from eval.datasets.pairs import ScoredPairs
from eval.inspect.sensitivity import pair_cosines, sensitivity, settings_grid
from eval.metrics.correlation import Correlation
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings
from retriever.errors import ConfigError
from tests.eval.inspect.fake_states import FakeStates
from tests.retriever.encoders.fusion.sbert_wk_reference import reference

PRESETS = [("paper", "all"), ("paper", "fused"), ("released", "fused")]


def some_pairs(count=40, seed=0):
    random = np.random.default_rng(seed)

    def text():
        letters = random.choice(list("abcdef"), (random.integers(1, 9), 3))
        return " ".join("".join(word) for word in letters)

    left = [text() for _ in range(count)]
    right = [text() for _ in range(count)]
    right[3] = left[3]
    return ScoredPairs(random.integers(0, 6, count).astype(np.float64), left, right)


def slow_cosines(encoder, pairs, preset, variance, window, start):
    def vector(text):
        (one,) = encoder.hidden_states([text])
        settings = {"preset": preset, "variance": variance, "window": window, "start": start}
        return reference(one.states, one.kept, **settings).vector

    return [
        1 - scipy.spatial.distance.cosine(vector(left), vector(right))
        for left, right in zip(pairs.left, pairs.right, strict=True)
    ]


@pytest.mark.parametrize(("preset", "variance"), PRESETS)
def test_every_setting_correlates_as_one_text_at_a_time_does(preset, variance):
    encoder = FakeStates(drop_last=preset == "released")
    pairs = some_pairs(12)
    base = SBERTWKSettings(preset, variance=variance)
    grid = settings_grid(base, encoder.depth, (1, 2, 3), None)
    for name, correlate in (("spearman", scipy.stats.spearmanr), ("pearson", scipy.stats.pearsonr)):
        found = sensitivity(encoder, pairs, Correlation(pairs.gold, name), grid)
        assert found.windows == (1, 2, 3)
        assert found.start_layers == (0, 1, 2, 3)
        for window, row in zip(found.windows, found.values, strict=True):
            for start, value in zip(found.start_layers, row, strict=True):
                if preset == "released" and start > encoder.depth - window:
                    assert value is None
                    continue
                cosines = slow_cosines(encoder, pairs, preset, variance, window, start)
                expected = correlate(np.round(cosines, 6), pairs.gold)[0]
                assert value == pytest.approx(expected, abs=1e-5)


def test_the_baseline_is_the_mean_of_the_last_hidden_state():
    encoder, pairs = FakeStates(drop_last=True), some_pairs()
    cosines = pair_cosines(encoder, pairs, [])
    assert cosines.shape == (1, 40)
    for pair in range(40):
        left, right = (
            next(encoder.hidden_states([texts[pair]])).states[-1].mean(axis=0)
            for texts in (pairs.left, pairs.right)
        )
        expected = 1 - scipy.spatial.distance.cosine(left, right)
        assert cosines[0, pair] == pytest.approx(expected, abs=1e-6)


def test_equal_texts_are_alike_to_the_last_bit():
    pairs = some_pairs()
    both = ScoredPairs(pairs.gold, pairs.left, pairs.left)
    cosines = pair_cosines(FakeStates(), both, [SBERTWKSettings().resolved(4)])
    np.testing.assert_allclose(cosines, 1, atol=1e-15)


def test_the_texts_go_through_the_model_once_for_all_settings():
    encoder, pairs, done = FakeStates(), some_pairs(), []
    grid = settings_grid(SBERTWKSettings(), encoder.depth, (1, 2, 3, 4), None)
    assert len(grid) == 16
    pair_cosines(encoder, pairs, list(grid.values()), done.append)
    (asked,) = encoder.asked
    assert sorted(asked) == sorted([*pairs.left, *pairs.right])
    assert sum(done) == 40


def test_no_more_than_a_batch_of_hidden_states_is_alive():
    encoder, made, most = FakeStates(), [], 0
    given = encoder.hidden_states

    def hidden_states(texts):
        nonlocal most
        for one in given(texts):
            made.append(weakref.ref(one.states))
            most = max(most, sum(states() is not None for states in made))
            yield one
            del one

    encoder.hidden_states = hidden_states
    pair_cosines(encoder, some_pairs(200), [SBERTWKSettings().resolved(4)])
    assert len(made) == 400
    assert most <= 2 * 16


def test_only_what_the_preset_can_have_is_in_the_grid():
    paper = settings_grid(SBERTWKSettings("paper"), 6, (1, 4), None)
    assert set(paper) == {(window, start) for window in (1, 4) for start in range(6)}
    released = settings_grid(SBERTWKSettings("released"), 6, (1, 4, 7), None)
    assert set(released) == {(1, start) for start in range(6)} | {(4, 0), (4, 1), (4, 2)}
    some = settings_grid(SBERTWKSettings("released"), 6, (4, 1), (5, 0))
    assert list(some) == [(1, 0), (1, 5), (4, 0)]
    assert all(
        (one.window, one.start_layer, one.variance) == (*cell, "fused")
        for cell, one in some.items()
    )


def test_what_no_window_allows_is_refused_with_the_range():
    with pytest.raises(ConfigError, match="start-layer: expected 0 to 5"):
        settings_grid(SBERTWKSettings(), 6, (1, 2), (0, 6))
    with pytest.raises(ConfigError, match="start-layer: expected 0 to 4"):
        settings_grid(SBERTWKSettings("released"), 6, (2, 3), (5,))
    with pytest.raises(ConfigError, match="window: SBERT-WK with wk-preset=released and window=7"):
        settings_grid(SBERTWKSettings("released"), 6, (7, 8), None)
