from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from retriever.encoders.fusion.sbert_wk import (
    SBERTWKSettings,
    first_state,
    sbert_wk,
    sbert_wk_weights,
)
from retriever.errors import ConfigError
from tests.retriever.encoders.fusion.sbert_wk_cases import (
    VARIANTS,
    assert_same_vector,
    embed,
    expect,
    settings_of,
    variants,
    weigh,
)


def layers_of(
    seed: int, pieces: int = 5, depth: int = 6, width: int = 16, change: float = 0.5
) -> NDArray[np.float32]:
    """Layers that drift from one to the next, as those of a transformer do."""
    chance = np.random.default_rng(seed)
    states = [chance.standard_normal((pieces, width))]
    for _ in range(depth):
        states.append(states[-1] + change * chance.standard_normal((pieces, width)))
    return np.array(states, dtype=np.float32)


@pytest.mark.parametrize("depth", [2, 6, 12])
@pytest.mark.parametrize("change", [0.5, 0.02])
def test_equals_the_slow_reference_on_random_layers(depth: int, change: float) -> None:
    hidden = layers_of(depth, pieces=4, depth=depth, width=24, change=change)
    chosen = variants(depth)
    assert {(s.preset, s.window) for s in chosen} >= {("paper", 1), ("paper", 4), ("released", 1)}
    for settings in chosen:
        assert_same_vector(embed(hidden, settings), expect(hidden, settings).vector)


@pytest.mark.parametrize(("preset", "variance"), VARIANTS)
@pytest.mark.parametrize("window", [1, 2, 3, 4])
def test_every_weight_equals_that_of_the_reference(preset: Any, variance: Any, window: int) -> None:
    hidden = layers_of(3, pieces=6, depth=8, width=32)
    settings = settings_of(8, preset=preset, variance=variance, window=window, start_layer=2)
    expected = expect(hidden, settings)

    found = weigh(hidden, settings)

    for name in ("layers", "words", "beta", "nu"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize(("preset", "variance"), VARIANTS)
@pytest.mark.parametrize(
    ("words", "layers"),
    [
        ("uniform", "weighted"),
        ("variance", "uniform"),
        ("variance", "last"),
        ("uniform", "uniform"),
    ],
)
def test_the_weights_of_words_and_of_layers_can_each_be_left_out(
    preset: Any, variance: Any, words: Any, layers: Any
) -> None:
    hidden = layers_of(11, pieces=6, depth=8)
    settings = settings_of(8, preset=preset, variance=variance, words=words, layers=layers)
    expected = expect(hidden, settings)
    assert_same_vector(embed(hidden, settings), expected.vector)
    found = weigh(hidden, settings)
    np.testing.assert_allclose(found.layers, expected.layers, rtol=1e-9)
    np.testing.assert_allclose(found.words, expected.words, rtol=1e-9)


def test_a_case_worked_out_by_hand() -> None:
    # Cosines of 1, 2 and 3 are all sqrt(1/2) with their neighbors; the second is in their span.
    hidden = np.array([[[1.0, 0.0]], [[1.0, 1.0]], [[0.0, 1.0]]])
    for omega, weights in ((1.0, [1 / 3] * 3), (0.0, [1 / 2, 0, 1 / 2])):
        settings = settings_of(2, start_layer=0, window=1, omega=omega)
        np.testing.assert_allclose(embed(hidden, settings), weights @ hidden[:, 0], rtol=1e-6)


# Layers that meet in every way: parallel, opposite, orthogonal, dependent, zero, of any length.
_DEGENERATE = st.tuples(
    st.integers(2, 6), st.integers(1, 3), st.integers(1, 4), st.sampled_from([1e-20, 1.0, 1e15])
).flatmap(
    lambda shape: arrays.arrays(np.float32, shape[:3], elements=st.integers(-2, 2)).map(
        lambda hidden: hidden * np.float32(shape[3])
    )
)


@hypothesis.settings(deadline=None)
@given(
    hidden=_DEGENERATE,
    variant=st.sampled_from(VARIANTS),
    window=st.integers(1, 4),
    omega=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_dependent_and_zero_layers_give_what_the_reference_defines(
    hidden: NDArray[np.float32], variant: tuple[Any, Any], window: int, omega: float
) -> None:
    depth = len(hidden) - 1
    preset, variance = variant
    if preset == "released":
        window = min(window, depth)
    settings = settings_of(
        depth, preset=preset, variance=variance, window=window, omega=omega, start_layer=0
    )
    expected = expect(hidden, settings)
    weights = weigh(hidden, settings)

    np.testing.assert_allclose(weights.layers, expected.layers, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(weights.words, expected.words, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(weights.layers.sum(axis=1), 1)
    np.testing.assert_allclose(weights.words.sum(), 1)
    assert (weights.layers >= 0).all()
    scale = np.abs(hidden).max()
    np.testing.assert_allclose(
        embed(hidden, settings), expected.vector, rtol=1e-5, atol=1e-5 * scale
    )


@pytest.mark.parametrize(("preset", "variance"), VARIANTS)
def test_layers_a_thousandth_apart_are_told_apart(preset: Any, variance: Any) -> None:
    hidden = layers_of(0, pieces=8, width=64, change=1e-3)
    for window in (1, 2, 3):
        settings = settings_of(6, preset=preset, variance=variance, window=window, start_layer=1)
        expected = expect(hidden, settings)
        found = weigh(hidden, settings)
        np.testing.assert_allclose(found.words, expected.words, rtol=1e-5)
        np.testing.assert_allclose(found.layers, expected.layers, rtol=1e-5)


def test_layers_equal_but_for_rounding_count_as_equal() -> None:
    one = layers_of(1, pieces=3, depth=0, width=32)[0]
    hidden = np.array(
        [one, one * np.float32(1 + 2**-20), one * np.float32(3), np.nextafter(one, 9)]
    )
    for preset, variance in VARIANTS:
        settings = settings_of(3, preset=preset, variance=variance, start_layer=0, omega=0)
        np.testing.assert_allclose(
            embed(hidden, settings), hidden.mean(axis=(0, 1)), rtol=1e-5, atol=1e-6
        )


def test_a_text_without_kept_pieces_is_the_zero_vector() -> None:
    hidden = layers_of(5)
    settings = settings_of(6)
    states = [torch.tensor(np.stack([state, state])) for state in hidden]
    kept = torch.tensor([[False] * 5, [True] * 5])

    found = sbert_wk(states, kept, settings)

    assert not found[0].any()
    assert_same_vector(found[1].double().numpy(), expect(hidden, settings).vector)
    assert not sbert_wk(states, torch.zeros_like(kept), settings).any()
    weights = sbert_wk_weights(states, torch.zeros_like(kept), settings)
    assert weights.layers.shape == (5, 0)
    assert weights.words.shape == (0,)


@pytest.mark.parametrize(("preset", "variance"), VARIANTS)
def test_neither_the_batch_nor_its_padding_changes_a_vector(preset: Any, variance: Any) -> None:
    settings = settings_of(6, preset=preset, variance=variance)
    texts = [layers_of(seed, pieces=pieces) for seed, pieces in enumerate((7, 1, 4, 7, 3))]
    for side in ("right", "left"):
        # What is not kept is not even read.
        states = np.full((7, len(texts), 9, 16), np.nan, np.float32)
        kept = np.zeros((len(texts), 9), bool)
        for row, text in enumerate(texts):
            count = text.shape[1]
            places = slice(0, count) if side == "right" else slice(9 - count, 9)
            states[:, row, places] = text
            kept[row, places] = True
        batch = list(torch.tensor(states[first_state(settings) :]))

        found = sbert_wk(batch, torch.tensor(kept), settings).numpy()

        for vector, text in zip(found, texts, strict=True):
            np.testing.assert_allclose(vector, embed(text, settings), rtol=1e-5, atol=1e-6)


def test_pieces_in_the_middle_can_be_left_out() -> None:
    hidden, settings = layers_of(6), settings_of(6)
    kept = [False, True, False, True, True]
    expected = expect(hidden, settings, kept)
    assert_same_vector(embed(hidden, settings, kept), expected.vector)
    assert_same_vector(embed(hidden[:, kept], settings), expected.vector)


@pytest.mark.parametrize("limit", [1, 7, 22])
def test_steps_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    hidden = layers_of(7, pieces=23)
    settings = settings_of(6, preset="released")
    kept = [True] * 22 + [False]
    whole = embed(hidden, settings), embed(hidden, settings, kept)
    monkeypatch.setattr("retriever.encoders.fusion.sbert_wk._PIECES", limit)
    parts = embed(hidden, settings), embed(hidden, settings, kept)
    np.testing.assert_allclose(parts, whole, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_floating_types_are_read_exactly(dtype: torch.dtype) -> None:
    states = [state.to(dtype) for state in torch.tensor(layers_of(8)).unsqueeze(1)]
    hidden = torch.stack(states)[:, 0].double().numpy()
    settings = settings_of(6)

    found = sbert_wk(states, torch.ones(1, 5, dtype=torch.bool), settings)

    assert found.dtype == torch.float32
    assert_same_vector(found[0].double().numpy(), expect(hidden, settings).vector)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gives_the_same() -> None:
    hidden, settings = layers_of(10, pieces=40), settings_of(6)
    states = list(torch.tensor(hidden).unsqueeze(1).cuda())
    kept = torch.arange(40, device="cuda")[None] < 33
    found = sbert_wk(states, kept, settings).cpu()[0].double().numpy()
    assert_same_vector(found, expect(hidden, settings, [place < 33 for place in range(40)]).vector)


@pytest.mark.parametrize(("depth", "start"), [(1, 0), (2, 1), (6, 2), (12, 4), (24, 8)])
def test_the_start_layer_is_a_third_of_the_depth(depth: int, start: int) -> None:
    settings = settings_of(depth)
    assert settings.start_layer == start
    assert settings.variance == "all"
    assert first_state(settings) == 0
    assert settings.resolved(depth) == settings


def test_only_the_layers_that_are_read_are_needed() -> None:
    assert first_state(settings_of(12, variance="fused")) == 4
    assert first_state(settings_of(12, preset="released")) == 4
    assert first_state(settings_of(12, words="uniform")) == 4
    with pytest.raises(ValueError, match="not resolved"):
        first_state(SBERTWKSettings())


@pytest.mark.parametrize(
    ("depth", "chosen", "message"),
    [
        (6, {"start_layer": 6}, r"expected 0 to 5.*found 6"),
        (6, {"start_layer": 5, "preset": "released"}, r"expected 0 to 4.*found 5"),
        (6, {"window": 5, "preset": "released"}, r"expected 0 to 1.*found 2"),
        (6, {"window": 7, "preset": "released"}, r"at least 8 hidden states, .* has 7"),
        (0, {}, r"at least 2 hidden states, .* has 1"),
    ],
)
def test_a_start_layer_that_leaves_too_few_is_refused_with_the_range(
    depth: int, chosen: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_of(depth, **chosen)
    # So are too few states.
    with pytest.raises(ConfigError, match="start-layer: expected 0 to 2"):
        embed(layers_of(0)[:4], settings_of(6, start_layer=4))
