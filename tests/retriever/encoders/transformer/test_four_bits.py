"""Weights in 4 bits, and the vectors of multilingual-e5-small beside those of torch."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import BertConfig, BertModel

from retriever.encoders import Encoder, find_model
from retriever.encoders.transformer.tensors import (
    FourBitTensor,
    map_tensors,
)
from retriever.encoders.transformer.unigram import Unigram
from retriever.errors import ModelError

TEXTS = [
    "query: what is the capital of France?",
    "passage: Париж — столица и крупнейший город Франции.",
    "passage: 巴黎是法国的首都和最大城市。",
    "query: เมืองหลวงของฝรั่งเศสคืออะไร",
    "query: फ़्रांस की राजधानी क्या है?",
    "passage: باريس هي عاصمة فرنسا.",
    "a",
    "passage: " + "Fransa'nın başkenti Paris'tir. " * 40,
]


def expand(nibbles, scales):
    """Return a matrix by the definition of the format, one weight after the other."""
    matrix = np.empty((len(nibbles), nibbles.shape[1] * 2), np.float32)
    for column in range(matrix.shape[1]):
        block, place = divmod(column, 32)
        bits = nibbles[:, block * 16 + place % 16]
        bits = bits & 15 if place < 16 else bits >> 4
        matrix[:, column] = (bits.astype(np.float32) - 8) * scales[:, block].astype(np.float32)
    return matrix


@pytest.fixture
def stored():
    rng = np.random.default_rng(0)
    nibbles = rng.integers(0, 256, (7, 48), np.uint8)
    return nibbles, rng.normal(size=(7, 3)).astype(np.float16)


def test_rows_of_a_matrix_in_four_bits_follow_the_definition(stored, tmp_path):
    file = tmp_path / "model.safetensors"
    save_file({"a.nibbles": stored[0], "a.scales": stored[1], "b.scales": stored[1]}, file)
    tensors = map_tensors(file)
    assert sorted(tensors) == ["a", "b.scales"]
    matrix = tensors["a"]
    expected = expand(*stored)
    assert isinstance(matrix, FourBitTensor)
    assert matrix.shape == expected.shape
    assert len(matrix) == 7
    assert matrix.values.dtype == np.float32
    for rows in (slice(None), slice(2, 5), 3, [6, 0, 6], np.array([[1, 2], [3, 3]]), []):
        np.testing.assert_array_equal(matrix[rows], expected[rows])
    np.testing.assert_array_equal(matrix.part(1, 4)[:], expected[1:4])


@pytest.mark.parametrize(
    "change",
    [
        lambda nibbles, scales: {"a.nibbles": nibbles},
        lambda nibbles, scales: {"a.nibbles": nibbles[:6], "a.scales": scales},
        lambda nibbles, scales: {"a.nibbles": nibbles[:, :40], "a.scales": scales},
        lambda nibbles, scales: {"a.nibbles": nibbles, "a.scales": scales.astype(np.float32)},
        lambda nibbles, scales: {"a.nibbles": nibbles.astype(np.float16), "a.scales": scales},
        lambda nibbles, scales: {"a.nibbles": nibbles[:, 0], "a.scales": scales},
        lambda nibbles, scales: {"a.nibbles": np.uint8(3), "a.scales": scales},
    ],
)
def test_a_matrix_of_another_form_is_refused(change, stored, tmp_path):
    file = tmp_path / "model.safetensors"
    tensors = {name: np.array(array, order="C") for name, array in change(*stored).items()}
    save_file(tensors, file)
    with pytest.raises(ModelError, match="a whole file of safetensors"):
        map_tensors(file)


@pytest.fixture(scope="module")
def folder():
    pytest.importorskip("layer_retriever_e5", reason="the extra `multilingual` is not installed")
    return find_model("multilingual-e5-small")


@pytest.fixture(scope="module")
def reference(folder):
    """The mean of the last hidden state by transformers, from weights that are expanded here."""
    tensors = load_file(folder.path / "model.safetensors")
    arrays = {
        name.removesuffix(".nibbles"): expand(array, tensors[name.replace(".nibbles", ".scales")])
        for name, array in tensors.items()
        if name.endswith(".nibbles") and "word_embeddings" not in name
    }
    arrays |= {name: array for name, array in tensors.items() if array.dtype == np.float32}
    config = json.loads((folder.path / "config.json").read_text())
    # Word vectors are passed in, since the whole table takes 384 MB.
    model = BertModel(BertConfig(**config | {"vocab_size": 2}), add_pooling_layer=False).eval()
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    problems = model.load_state_dict(state, strict=False)
    assert problems.missing_keys == ["embeddings.word_embeddings.weight"]
    assert problems.unexpected_keys == ["unigram.scores"]
    words = "embeddings.word_embeddings.weight"
    nibbles, scales = (tensors[f"{words}.{part}"] for part in ("nibbles", "scales"))

    def encode(ids):
        rows = torch.from_numpy(expand(nibbles[ids], scales[ids]))
        with torch.no_grad():
            states = model(inputs_embeds=rows[None]).last_hidden_state
        return states[0].mean(dim=0).numpy()

    tokenizer = Unigram(folder)
    return np.array([encode(ids) for ids in tokenizer.tokenize(TEXTS, 512)])


def cosines(first, second):
    products = np.sum(first * second, axis=1)
    return products / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)


@pytest.mark.parametrize(
    ("settings", "least"),
    [
        ("backend=numpy", 0.99999),
        ("backend=openvino::dtype=float32", 0.99999),
        ("backend=openvino::dtype=bfloat16", 0.999),
        ("backend=torch", 0.99999),
    ],
)
def test_vectors_are_those_of_torch_with_expanded_weights(settings, least, folder, reference):
    if "openvino" in settings and not find_spec("openvino"):
        pytest.skip("OpenVINO is not installed")
    encoder = Encoder.load(f"multilingual-e5-small::query-prompt=::passage-prompt=::{settings}")
    vectors = encoder.encode(TEXTS)
    assert encoder.spec.dimensions == 384
    assert cosines(vectors, reference).min() > least


def test_prompts_and_window_come_from_the_package(folder):
    encoder = Encoder.load("multilingual-e5-small")
    settings = encoder.spec.settings
    assert (settings.query_prompt, settings.passage_prompt) == ("query: ", "passage: ")
    assert settings.max_length == 512
    assert settings.pooling in (None, "mean")
