"""Every architecture against plain transformers: layers, poolings, fusions, batches."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from retriever.encoders import Encoder
from retriever.encoders.transformer.backbone import pack_linear
from retriever.errors import ConfigError
from tests.retriever.encoders.architectures import (
    CLOSE,
    DEPTHS,
    OTHERS,
    TEXTS,
    WIDTH,
    architectures,
)
from tests.retriever.encoders.plain import unit

POOLINGS = [
    "pooling=mean",
    "pooling=max",
    "pooling=cls",
    "pooling=sep",
    "pooling=mean::special-tokens=drop",
    "pooling=max::special-tokens=drop",
]
MEANS = {
    "": [-1],
    "lc:0,2": [0, 2],
    "layers=-1,1::special-tokens=drop": [1, -1],
    "layers=all": slice(None),
}
CONCATENATIONS = {"top-bottom": [-1, 1], "layers=1..2::fusion=concat": [1, 2]}

pytestmark = pytest.mark.usefixtures("one_thread")


@architectures
def test_hidden_states_with_their_pieces_and_places_are_those_of_transformers(name, load, plain):
    expected, encoder = plain(name), load(name)
    assert encoder.depth == DEPTHS[name]
    padded, dropping = expected.padded(), load(name, "special-tokens=drop").hidden_states(TEXTS)
    released = load(name, "sbert-wk::wk-preset=released").hidden_states(TEXTS)
    found = zip(encoder.hidden_states(TEXTS), dropping, released, strict=True)
    for row, (one, dropped, cut) in enumerate(found):
        text = expected.tokenizer(TEXTS[row], return_offsets_mapping=True)
        assert one.pieces == expected.tokenizer.convert_ids_to_tokens(text["input_ids"])
        assert one.spans == [tuple(span) for span in text["offset_mapping"]]
        assert one.states.dtype == np.float32
        assert one.states.shape == (DEPTHS[name] + 1, len(one.pieces), WIDTH)
        np.testing.assert_allclose(one.states, expected.states[row], **CLOSE)
        np.testing.assert_allclose(one.states, padded[row], **CLOSE)
        assert one.is_pooled.all()
        np.testing.assert_array_equal(dropped.is_pooled, ~expected.special[row])
        np.testing.assert_array_equal(cut.is_pooled, [True] * (len(one.pieces) - 1) + [False])


@architectures
def test_every_pooling_of_every_layer_is_that_of_transformers(name, load, plain):
    for pooling in POOLINGS:
        expected = plain(name).pooled(pooling)
        encoder = load(name, f"layers=all::fusion=concat::normalize=no::{pooling}")
        found = encoder.encode(TEXTS).reshape(expected.shape)
        np.testing.assert_allclose(found, expected, **CLOSE, err_msg=pooling)


@architectures
def test_layer_means_and_concatenations_are_those_of_transformers(name, load, plain):
    for asked, layers in MEANS.items():
        kind = "pooling=mean::special-tokens=drop" if "drop" in asked else "pooling=mean"
        expected = unit(plain(name).pooled(kind)[:, layers].mean(axis=1))
        np.testing.assert_allclose(load(name, asked).encode(TEXTS), expected, **CLOSE)
    read = plain(name).pooled("pooling=max")[:, [0, -1]]
    vectors = load(name, "layers=0,-1::fusion=max::pooling=max::normalize=no").encode(TEXTS)
    np.testing.assert_allclose(vectors, read.max(axis=1), **CLOSE)
    for asked, layers in CONCATENATIONS.items():
        read = plain(name).pooled("pooling=mean")[:, layers]
        vectors = load(name, asked).encode(TEXTS)
        assert vectors.dtype == np.float32
        assert vectors.flags.c_contiguous
        np.testing.assert_allclose(vectors, unit(read.reshape(len(TEXTS), -1)), **CLOSE)


@pytest.mark.parametrize("name", DEPTHS)
def test_sbert_wk_with_equal_weights_is_the_mean_of_the_layers_it_fuses(name, load):
    uniform = "sbert-wk::start-layer=1::wk-words=uniform::wk-layers=uniform"
    for special in ("", "::special-tokens=drop"):
        vectors = load(name, uniform + special).encode(TEXTS)
        expected = load(name, "layers=1..-1::pooling=mean" + special).encode(TEXTS)
        np.testing.assert_allclose(vectors, expected, **CLOSE)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_sbert_wk_as_released_cuts_the_end_with_its_separator(name, load, plain):
    text = "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10"
    expected = plain(name).tokenizer(text, return_offsets_mapping=True)
    ids = expected["input_ids"]
    released = load(name, "sbert-wk::wk-preset=released::max-length=9")
    assert released.truncate([text]) == [ids[:9]]
    assert load(name, "sbert-wk::max-length=9").truncate([text]) == [[*ids[:8], ids[-1]]]
    with pytest.warns(UserWarning, match="window of 9"):
        (one,) = released.hidden_states([text])
    assert one.pieces == plain(name).tokenizer.convert_ids_to_tokens(ids[:9])
    assert one.spans == [tuple(span) for span in expected["offset_mapping"][:9]]
    np.testing.assert_array_equal(one.is_pooled, [True] * 8 + [False])


@architectures
def test_a_text_gets_the_same_vector_of_length_one_in_any_batch(name, load):
    chance = random.Random(name)
    texts = [*TEXTS, *(" ".join(chance.choices(TEXTS, k=3)) for _ in range(2))]
    for settings in ("lc:0,2", "top-bottom", "sbert-wk", "sbert-wk::special-tokens=drop"):
        encoder = load(name, settings)
        alone = np.concatenate([encoder.encode([text]) for text in texts])
        # Of the empty text nothing is left where special tokens are dropped.
        lengths = [not ("drop" in settings and not text) for text in texts]
        np.testing.assert_allclose(np.linalg.norm(alone, axis=1), lengths, **CLOSE)
        rows = chance.choices(range(len(texts)), k=chance.randint(2, 20))
        vectors = encoder.encode([texts[row] for row in rows])
        np.testing.assert_allclose(vectors, alone[rows], **CLOSE, err_msg=settings)


@pytest.mark.parametrize("name", OTHERS)
def test_unknown_architecture_gives_last_layer(name, load, plain):
    for pooling in POOLINGS:
        expected = plain(name).pooled(pooling)[:, -1]
        vectors = load(name, f"{pooling}::normalize=no").encode(TEXTS)
        np.testing.assert_allclose(vectors, expected, **CLOSE, err_msg=pooling)
    for last in ("layers=last", "layers=-1", "last"):
        assert load(name, last).spec.fingerprint == load(name).spec.fingerprint


@pytest.mark.parametrize("name", OTHERS)
def test_unknown_architecture_refuses_layers_in_one_line(name, load):
    for settings in ("layers=0,2", "sbert-wk", "top-bottom", "last4", "lc:1"):
        with pytest.raises(ConfigError, match=f"^layers: the layers of a {name} model cannot .*$"):
            load(name, settings)
    with pytest.raises(ConfigError, match=name):
        load(name).hidden_states(["w1 w2"])


def test_a_model_whose_depth_is_not_named_as_in_bert_gives_its_last_layer(tmp_path, plain, folders):
    from transformers import XLMConfig, XLMModel

    AutoTokenizer.from_pretrained(folders("bert")).save_pretrained(tmp_path)
    size = {"emb_dim": WIDTH, "n_layers": 3, "n_heads": 2, "max_position_embeddings": 64}
    config = XLMConfig(vocab_size=200, pad_index=0, n_langs=1, use_lang_emb=False, **size)
    XLMModel(config).eval().save_pretrained(tmp_path)
    vectors = Encoder.load(f"{tmp_path}::normalize=no", device="cpu").encode(TEXTS)
    model = AutoModel.from_pretrained(tmp_path).eval()
    for text, vector in zip(plain("bert").texts, vectors, strict=True):
        with torch.inference_mode():
            states = model(input_ids=torch.tensor([text["input_ids"]])).last_hidden_state[0]
        np.testing.assert_allclose(vector, states.mean(0).numpy(), **CLOSE)


@architectures
def test_fewer_bits_are_close_to_float32(name, load):
    full = load(name).encode(TEXTS)
    for dtype in ("bfloat16", "float16") if name in ("bert", "xlnet") else ("bfloat16",):
        half = load(name, f"dtype={dtype}").encode(TEXTS)
        assert half.dtype == np.float32
        assert (half != full).any()
        assert (half * full).sum(axis=1).min() > 0.99


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_packed_layers_give_what_plain_ones_do(dtype, bias):
    class Model(torch.nn.Sequential):
        device = torch.device("cpu")

    torch.manual_seed(0)
    model = Model(torch.nn.Linear(24, 40, bias=bias), torch.nn.Linear(40, 8, bias=bias))
    model = model.to(dtype).eval()
    model.dtype = dtype
    with torch.inference_mode():
        inputs = [torch.randn(*shape, 24).to(dtype) for shape in ((1,), (5,), (3, 7))]
        expected = [model(one) for one in inputs]
        pack_linear(model)
        for one, plain in zip(inputs, expected, strict=True):
            tolerance = 1e-5 if dtype == torch.float32 else 2e-2
            torch.testing.assert_close(model(one), plain, atol=tolerance, rtol=tolerance)
