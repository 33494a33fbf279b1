"""SBERT-WK, by torch and by NumPy, against the reference and against stored vectors."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from itertools import product

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from retriever.encoders import EncoderSettings
from retriever.encoders.fusion import SBERTWKSettings
from retriever.encoders.fusion.sbert_wk import sbert_wk, sbert_wk_weights
from retriever.errors import ConfigError
from tests.retriever.encoders.fusion.sbert_wk_reference import Reference, reference

OMEGAS = {"combined": 0.5, "alignment": 1.0, "novelty": 0.0}
VARIANTS = [("paper", "all"), ("paper", "fused"), ("released", "fused")]
each_variant = pytest.mark.parametrize("variant", VARIANTS)


def settings_of(depth, variant=(None, None), **chosen):
    preset, variance = variant
    chosen |= {"wk_preset": preset, "wk_variance": variance}
    return SBERTWKSettings.of(EncoderSettings(fusion="sbert-wk", **chosen), depth)


def variants(depth):
    """Every preset, variance, window of 1 to 4, weight and some start layers that exist."""
    starts = (0, 1, depth // 2, depth - 1)
    for variant, window, start, omega in product(VARIANTS, (1, 2, 3, 4), starts, OMEGAS.values()):
        with suppress(ConfigError):
            yield settings_of(depth, variant, window=window, start_layer=start, omega=omega)


def fused(hidden, settings, kept=None):
    """Return vector and weights of one text after checking that torch and NumPy agree."""
    places = np.ones((1, hidden.shape[1]), bool) if kept is None else np.array([kept])
    found = []
    for made in (np.asarray, torch.tensor):
        states = [made(one) for one in hidden[settings.first_state :, None]]
        vector = sbert_wk(states, made(places), settings)[0]
        one = sbert_wk_weights(states, made(places), settings)
        found.append(Reference(*map(np.asarray, (vector, one.layers.T, one.words))))
        assert [part.dtype for part in found[-1]] == [np.float32, np.float64, np.float64]
    scale = np.abs(hidden).max()
    np.testing.assert_allclose(found[0].vector, found[1].vector, rtol=1e-5, atol=1e-6 * scale)
    for one, other in zip(found[0][1:], found[1][1:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    return found[0]


def expect(hidden, settings, kept=None):
    return reference(
        hidden,
        np.ones(hidden.shape[1], bool) if kept is None else np.array(kept),
        preset=settings.preset,
        start=settings.start_layer,
        window=settings.window,
        omega=settings.omega,
        variance=settings.variance,
        word_weights=settings.words,
        layer_weights=settings.layers,
    )


def assert_same(found, expected, relative=1e-5):
    assert np.linalg.norm(found - expected) < relative * np.linalg.norm(expected)


def check(hidden, settings, kept=None, rtol=1e-7):
    """Vector and weights are those of the reference."""
    found, expected = fused(hidden, settings, kept), expect(hidden, settings, kept)
    assert_same(found.vector, expected.vector)
    for name in ("layers", "words"):
        one, other = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-9, err_msg=name)


def layers_of(seed, pieces=5, depth=6, width=16, change=0.5):
    """Layers that drift from one to the next, as those of a transformer do."""
    chance = np.random.default_rng(seed)
    states = [chance.standard_normal((pieces, width))]
    for _ in range(depth):
        states.append(states[-1] + change * chance.standard_normal((pieces, width)))
    return np.array(states, dtype=np.float32)


@pytest.mark.parametrize("depth", [2, 6, 12])
@pytest.mark.parametrize("change", [0.5, 0.02])
def test_sbert_wk_equals_plain_reference_on_random_layers(depth, change):
    hidden = layers_of(depth, pieces=4, depth=depth, width=24, change=change)
    chosen = list(variants(depth))
    assert {(s.preset, s.window) for s in chosen} >= {("paper", 1), ("paper", 4), ("released", 1)}
    for settings in chosen:
        check(hidden, settings)


@each_variant
@pytest.mark.parametrize(
    ("words", "layers"),
    [(None, "uniform"), (None, "last"), ("uniform", None), ("uniform", "uniform")],
)
def test_sbert_wk_with_uniform_word_or_layer_weights_equals_reference(variant, words, layers):
    if words:
        variant = variant[0], None
    check(layers_of(11, depth=8), settings_of(8, variant, wk_words=words, wk_layers=layers))


def test_sbert_wk_on_three_layers_equals_hand_computed_weights():
    # Cosines of 1, 2 and 3 are all sqrt(1/2) with their neighbors; the second is in their span.
    hidden = np.array([[[1.0, 0.0]], [[1.0, 1.0]], [[0.0, 1.0]]])
    for omega, weights in ((1.0, [1 / 3] * 3), (0.0, [1 / 2, 0, 1 / 2])):
        settings = settings_of(2, start_layer=0, window=1, omega=omega)
        np.testing.assert_allclose(
            fused(hidden, settings).vector, weights @ hidden[:, 0], rtol=1e-6
        )


# Layers that meet in every way: parallel, opposite, orthogonal, dependent, zero, of any length.
_DEGENERATE = st.tuples(
    st.integers(2, 6), st.integers(1, 3), st.integers(1, 4), st.sampled_from([1e-20, 1.0, 1e15])
).flatmap(
    lambda shape: arrays.arrays(np.float32, shape[:3], elements=st.integers(-2, 2)).map(
        lambda hidden: hidden * np.float32(shape[3])
    )
)


@hypothesis.settings(deadline=None)
@given(_DEGENERATE, st.sampled_from(VARIANTS), st.integers(1, 4), st.sampled_from([0.0, 0.3, 1.0]))
def test_sbert_wk_on_dependent_or_zero_layers_equals_reference(hidden, variant, window, omega):
    depth = len(hidden) - 1
    if variant[0] == "released":
        window = min(window, depth)
    settings = settings_of(depth, variant, window=window, omega=omega, start_layer=0)
    found, expected = fused(hidden, settings), expect(hidden, settings)
    np.testing.assert_allclose(found.layers, expected.layers, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.words, expected.words, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose([*found.layers.sum(axis=1), found.words.sum()], 1)
    assert (found.layers >= 0).all()
    scale = np.abs(hidden).max()
    np.testing.assert_allclose(found.vector, expected.vector, rtol=1e-5, atol=1e-5 * scale)


@each_variant
@pytest.mark.parametrize("window", [1, 2, 3])
def test_layers_a_thousandth_apart_are_told_apart(variant, window):
    hidden = layers_of(0, pieces=8, width=64, change=1e-3)
    check(hidden, settings_of(6, variant, window=window, start_layer=1), rtol=1e-5)


@each_variant
def test_layers_equal_but_for_rounding_count_as_equal(variant):
    one = layers_of(1, pieces=3, depth=0, width=32)[0]
    factors = [one, one * np.float32(1 + 2**-20), one * np.float32(3), np.nextafter(one, 9)]
    hidden = np.array(factors)
    found = fused(hidden, settings_of(3, variant, start_layer=0, omega=0))
    np.testing.assert_allclose(found.vector, hidden.mean(axis=(0, 1)), rtol=1e-5, atol=1e-6)


def test_a_text_without_kept_pieces_is_the_zero_vector():
    hidden, settings = layers_of(5), settings_of(6)
    states = [torch.tensor(np.stack([state, state])) for state in hidden]
    kept = torch.tensor([[False] * 5, [True] * 5])
    found = sbert_wk(states, kept, settings)
    assert not found[0].any()
    assert_same(found[1].numpy(), expect(hidden, settings).vector)
    nothing = fused(hidden, settings, [False] * 5)
    assert not nothing.vector.any()
    assert (nothing.layers.shape, nothing.words.shape) == ((0, 5), (0,))


@each_variant
@pytest.mark.parametrize("side", ["right", "left"])
def test_neither_the_batch_nor_its_padding_changes_a_vector(variant, side):
    settings = settings_of(6, variant)
    texts = [layers_of(seed, pieces=pieces) for seed, pieces in enumerate((7, 1, 4, 7, 3))]
    # What is not kept is not even read.
    states = np.full((7, len(texts), 9, 16), np.nan, np.float32)
    kept = np.zeros((len(texts), 9), bool)
    for row, text in enumerate(texts):
        count = text.shape[1]
        places = slice(0, count) if side == "right" else slice(9 - count, 9)
        states[:, row, places] = text
        kept[row, places] = True
    found = sbert_wk(
        list(torch.tensor(states[settings.first_state :])), torch.tensor(kept), settings
    )
    expected = [fused(text, settings).vector for text in texts]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_sbert_wk_skips_masked_tokens_in_middle():
    hidden, settings = layers_of(6), settings_of(6)
    kept = [False, True, False, True, True]
    check(hidden, settings, kept)
    assert_same(fused(hidden[:, kept], settings).vector, expect(hidden, settings, kept).vector)


@pytest.mark.parametrize("limit", [1, 7, 22])
def test_sbert_wk_is_independent_of_step_size(monkeypatch, limit):
    monkeypatch.setattr("retriever.encoders.fusion.sbert_wk._PIECES", limit)
    hidden, settings = layers_of(7, pieces=23), settings_of(6, ("released", None))
    for kept in (None, [True] * 22 + [False]):
        check(hidden, settings, kept)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_sbert_wk_reads_other_float_types_exactly(dtype):
    states = [state.to(dtype) for state in torch.tensor(layers_of(8)).unsqueeze(1)]
    hidden, settings = torch.stack(states)[:, 0].double().numpy(), settings_of(6)
    found = sbert_wk(states, torch.ones(1, 5, dtype=torch.bool), settings)
    assert found.dtype == torch.float32
    assert_same(found[0].numpy(), expect(hidden, settings).vector)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_sbert_wk_on_gpu_equals_reference():
    hidden, settings = layers_of(10, pieces=40), settings_of(6)
    states = list(torch.tensor(hidden).unsqueeze(1).cuda())
    kept = torch.arange(40, device="cuda")[None] < 33
    found = sbert_wk(states, kept, settings).cpu()[0].numpy()
    assert_same(found, expect(hidden, settings, kept[0].tolist()).vector)


@pytest.mark.parametrize(
    ("depth", "chosen", "start", "first"),
    [
        *((depth, {}, start, 0) for depth, start in ((1, 0), (2, 1), (6, 2), (12, 4), (24, 8))),
        (12, {"variant": (None, "fused")}, 4, 4),
        (12, {"variant": ("released", None)}, 4, 4),
        (12, {"wk_words": "uniform"}, 4, 4),
    ],
)
def test_the_start_layer_is_a_third_of_the_depth_and_no_other_state_is_read(
    depth, chosen, start, first
):
    settings = settings_of(depth, **chosen)
    assert (settings.start_layer, settings.first_state) == (start, first)


@pytest.mark.parametrize(
    ("depth", "preset", "chosen", "message"),
    [
        (6, "paper", {"start_layer": 6}, r"expected 0 to 5.*found 6"),
        (6, "released", {"start_layer": 5}, r"expected 0 to 4.*found 5"),
        (6, "released", {"window": 5}, r"expected 0 to 1.*found 2"),
        (6, "released", {"window": 7}, r"at least 8 hidden states, .* has 7"),
        (0, "paper", {}, r"at least 2 hidden states, .* has 1"),
    ],
)
def test_a_start_layer_that_leaves_too_few_is_refused_with_the_range(
    depth, preset, chosen, message
):
    with pytest.raises(ConfigError, match=message):
        settings_of(depth, (preset, None), **chosen)


# Stored vectors, and the hidden states of a real model.


@pytest.fixture(scope="module")
def goldens(published):
    folder = published.parent / "goldens"
    if not folder.is_dir():
        pytest.skip("RETRIEVER_DATA names no folder with goldens beside it")
    return folder


@pytest.mark.parametrize("preset", ["paper", "released"])
@pytest.mark.parametrize("start", [0, 4])
def test_sbert_wk_reproduces_golden_vectors_and_weights(goldens, preset, start):
    golden = np.load(goldens / "synthetic_13x12x768.npz")
    kept = [True] * 11 + [preset == "paper"]
    name = f"{preset}_ls{start}"
    for weight, omega in OMEGAS.items():
        hidden = golden["hidden"].astype(np.float32)
        settings = settings_of(12, (preset, None), start_layer=start, omega=omega)
        expected = golden[f"{name}_m2_{weight}"]
        assert_same(fused(hidden, settings, kept).vector, expected, 1e-6)
        # The reference is measured by the same rule.
        assert_same(expect(hidden, settings, kept).vector, expected, 1e-12)
    settings = settings_of(12, (preset, None), start_layer=start)
    found = fused(golden["hidden"], settings)
    np.testing.assert_allclose(found.layers, golden[f"{name}_m2_layer_weights"], rtol=1e-12)
    if start == 4:
        words = fused(golden["hidden"], settings, kept).words
        np.testing.assert_allclose(words, golden[f"{name}_token_weights"], rtol=1e-12)


@pytest.fixture(scope="module")
def hidden_states():
    """Hidden states (7, pieces, 384) of one text through all-MiniLM-L6-v2, without padding."""
    pytest.importorskip("layer_retriever_minilm")
    from transformers import AutoModel, AutoTokenizer

    from retriever.encoders import find_model

    folder = find_model("all-MiniLM-L6-v2").path
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()

    @cache
    def run(text, cut_ids):
        if cut_ids:
            ids = tokenizer(text, truncation=False, verbose=False)["input_ids"][:128]
        else:
            ids = tokenizer(text, truncation=True, max_length=128)["input_ids"]
        with torch.inference_mode():
            out = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
            return torch.cat(out.hidden_states).numpy()

    return run


@pytest.mark.parametrize(
    ("name", "preset", "chosen"),
    [
        ("released_ls2_m2", "released", {"start_layer": 2}),
        ("released_ls0_m2", "released", {"start_layer": 0}),
        ("released_ls0_m1", "released", {"start_layer": 0, "window": 1}),
        ("paper_ls2_m2_combined_all_tokens", "paper", {"start_layer": 2}),
        ("paper_ls2_m2_combined_no_special", "paper", {"start_layer": 2}),
        ("paper_ls0_m2_combined_all_tokens", "paper", {"start_layer": 0}),
    ],
)
def test_sbert_wk_reproduces_sixteen_golden_sentences(goldens, hidden_states, name, preset, chosen):
    texts = json.loads((goldens / "sentences.json").read_text(encoding="utf-8"))
    expected = np.load(goldens / "minilm_16_sentences.npz")[name].astype(np.float64)
    assert len(texts) == len(expected) == 16
    for text, vector in zip(texts, expected, strict=True):
        hidden = hidden_states(text, preset == "released")
        kept = [True] * hidden.shape[1]
        kept[-1] = preset == "paper"
        if name.endswith("no_special"):
            kept[0] = kept[-1] = False
        assert_same(fused(hidden, settings_of(6, (preset, None), **chosen), kept).vector, vector)
