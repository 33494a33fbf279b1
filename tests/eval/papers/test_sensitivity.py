"""SBERT-WK's window and start layer, against encoders with each setting and one text at a time."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import scipy.spatial
import scipy.stats

from eval.datasets.pairs import ScoredPairs, read_pairs
from eval.papers.sensitivity import (
    SensitivityInspection,
    inspect_sensitivity,
    pair_cosines,
    settings_grid,
)
from retriever.encoders.encoder import Encoder
from retriever.encoders.fusion.sbert_wk import SBERTWKSettings
from retriever.errors import ConfigError
from tests.eval.inspect.fake_states import FakeStates
from tests.eval.sentences.sentence_samples import write_pairs
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


@pytest.mark.parametrize(("preset", "variance"), PRESETS)
def test_every_setting_has_the_cosines_of_one_text_at_a_time(preset, variance):
    encoder, pairs = FakeStates(drop_last=preset == "released"), some_pairs(12)
    grid = settings_grid(SBERTWKSettings(preset, variance=variance), encoder.depth)
    found = pair_cosines(encoder, pairs, list(grid.values()))

    def vector(text, window, start):
        (one,) = encoder.hidden_states([text])
        settings = {"preset": preset, "variance": variance, "window": window, "start": start}
        return reference(one.states, one.kept, **settings).vector

    for cosines, cell in zip(found, grid, strict=False):
        expected = [
            1 - scipy.spatial.distance.cosine(vector(left, *cell), vector(right, *cell))
            for left, right in zip(pairs.left, pairs.right, strict=True)
        ]
        np.testing.assert_allclose(cosines, expected, atol=1e-5)


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


def test_texts_go_through_the_model_once_and_a_batch_of_hidden_states_is_alive():
    encoder, pairs, done, made, most = FakeStates(), some_pairs(200), [], [], 0
    given = encoder.hidden_states

    def hidden_states(texts):
        nonlocal most
        for one in given(texts):
            made.append(weakref.ref(one.states))
            most = max(most, sum(states() is not None for states in made))
            yield one
            del one

    encoder.hidden_states = hidden_states
    grid = settings_grid(SBERTWKSettings(), encoder.depth)
    assert len(grid) == 16
    pair_cosines(encoder, pairs, list(grid.values())[:2], done.append)
    (asked,) = encoder.asked
    assert sorted(asked) == sorted([*pairs.left, *pairs.right])
    assert sum(done) == 200
    assert most <= 2 * 16


def test_only_what_the_preset_can_have_is_in_the_grid():
    paper = settings_grid(SBERTWKSettings("paper"), 6)
    assert set(paper) == {(window, start) for window in (1, 2, 3, 4) for start in range(6)}
    released = settings_grid(SBERTWKSettings("released"), 3)
    assert list(released) == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 0)]
    assert all(
        (one.window, one.start_layer, one.variance) == (*cell, "fused")
        for cell, one in released.items()
    )


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_each_setting_scores_as_its_encoder_does(tiny_models, tmp_path, preset):
    path = write_pairs(tmp_path / "pairs.tsv", 25, 0)
    pairs, said = read_pairs([path]), []
    form = f"{tiny_models['bert']}::wk-preset={preset}"
    found = inspect_sensitivity(path, form, notify=said.append, command="made")
    windows = (1, 2, 3, 4) if preset == "paper" else (1, 2)
    assert (found.windows, found.start_layers) == (windows, (0, 1))
    assert found.values[1][1] is None or preset == "paper"

    def score(settings):
        encoder = Encoder.load(f"{tiny_models['bert']}::{settings}", device="cpu")
        cosines = (encoder.encode(pairs.left) * encoder.encode(pairs.right)).sum(axis=1)
        return scipy.stats.pearsonr(cosines, pairs.gold)[0]

    for window, row in zip(windows, found.values, strict=True):
        for start, value in enumerate(row):
            if value is not None:
                settings = f"window={window}::start-layer={start}::wk-preset={preset}"
                assert value == pytest.approx(score(f"sbert-wk::{settings}"), abs=1e-6)
    assert found.baseline == pytest.approx(score("last"), abs=1e-6)
    lines = found.text().splitlines()
    assert f"SBERT-WK ({preset}) of" in lines[0]
    assert f"pearson over 25 pairs of {path}" in lines[0]
    assert lines[2].split() == ["window", "start", "0", "start", "1"]
    assert [line.split()[0] for line in lines[3 : 3 + len(windows)]] == list(map(str, windows))
    assert ("too few layers for window 3, 4" in lines) == (preset == "released")
    assert lines[-1] == f"last layer, mean over all pieces: {found.baseline:.4f}"
    assert found.to_json()["values"] == found.values
    assert said == []


def test_texts_that_are_cut_are_counted(tiny_models, tmp_path):
    path, said = write_pairs(tmp_path / "pairs.tsv", 20, 0), []
    inspect_sensitivity(path, f"{tiny_models['bert']}::max-length=8", notify=said.append)
    assert "texts exceeded the window of 8 word pieces" in said[0]


@pytest.mark.parametrize("settings", ["window=2", "start-layer=0", "head=yes"])
def test_what_is_compared_cannot_be_set(tmp_path, settings):
    with pytest.raises(ConfigError, match="without a window, start layer and head, found m::"):
        inspect_sensitivity(tmp_path / "pairs.tsv", f"m::fusion=sbert-wk::{settings}")


@pytest.mark.parametrize("starts", [3, 24])
def test_the_figure_has_a_curve_for_each_start_layer_and_each_window(starts):
    pytest.importorskip("matplotlib")
    row = tuple(0.1 * start for start in range(starts))
    values = (row, (*row[:-1], None))
    found = SensitivityInspection("m", "paper", "p", 9, (1, 2), tuple(range(starts)), values, 0.8)
    left, right = found.figure().axes
    assert [line.get_label() for line in left.lines[:-1]] == [
        f"start layer {i}" for i in range(starts)
    ]
    assert len({str(line.get_color()) for line in left.lines[:-1]}) == starts
    np.testing.assert_allclose(left.lines[1].get_data(), [(1, 2), (0.1, 0.1)])
    np.testing.assert_allclose(right.lines[0].get_ydata(), row)
    assert right.lines[-1].get_ydata()[0] == left.lines[-1].get_ydata()[0] == 0.8
