"""Every architecture against plain transformers: layers, poolings, fusions, batches."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from retriever.encoders.encoder import Encoder
from retriever.errors import ConfigError
from tests.retriever.encoders.architectures import CLOSE, DEPTHS, OTHERS, TEXTS, WIDTH

POOLINGS = [
    "pooling=mean",
    "pooling=max",
    "pooling=cls",
    "pooling=sep",
    "pooling=mean::special-tokens=drop",
    "pooling=max::special-tokens=drop",
]
MEANS = {"lc:0,2": [0, 2], "layers=-1,1::special-tokens=drop": [1, -1], "layers=all": slice(None)}
CONCATENATIONS = {"top-bottom": [-1, 1], "layers=1..2::fusion=concat": [1, 2]}

pytestmark = pytest.mark.usefixtures("one_thread")

# Depth matters to SBERT-WK alone: RoBERTa with 3 layers stands for the one with 24 elsewhere.
architectures = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.soak] * (name == "roberta24")) for name in DEPTHS],
)


def unit(vectors):
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


@architectures
def test_every_hidden_state_is_that_of_transformers(name, load, plain):
    encoder, expected = load(name), plain(name)
    assert encoder.depth == DEPTHS[name]
    found = list(encoder.hidden_states(TEXTS))
    assert len(found) == len(TEXTS)
    for text, one, states, padded in zip(
        expected.texts, found, expected.states, expected.padded(), strict=True
    ):
        assert one.pieces == expected.tokenizer.convert_ids_to_tokens(text["input_ids"])
        assert one.states.dtype == np.float32
        assert one.states.shape == (DEPTHS[name] + 1, len(one.pieces), WIDTH)
        np.testing.assert_allclose(one.states, states, **CLOSE)
        np.testing.assert_allclose(one.states, padded, **CLOSE)
        assert one.kept.all()


@architectures
def test_the_spans_of_pieces_are_those_of_the_tokenizer(name, load, plain):
    tokenizer = plain(name).tokenizer
    for text, one in zip(TEXTS, load(name).hidden_states(TEXTS), strict=True):
        offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
        assert one.spans == [tuple(span) for span in offsets]


@architectures
def test_dropping_special_tokens_keeps_all_the_others(name, load, plain):
    encoder = load(name, "special-tokens=drop")
    for one, special in zip(encoder.hidden_states(TEXTS), plain(name).special, strict=True):
        np.testing.assert_array_equal(one.kept, ~special)


@architectures
def test_every_pooling_of_every_layer_is_that_of_transformers(name, load, plain):
    for pooling in POOLINGS:
        found = load(name, pooling).layer_vectors(TEXTS)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, plain(name).pooled(pooling), **CLOSE, err_msg=pooling)


@architectures
def test_layer_means_and_concatenations_are_those_of_transformers(name, load, plain):
    for asked, layers in MEANS.items():
        kind = "pooling=mean::special-tokens=drop" if "drop" in asked else "pooling=mean"
        read = plain(name).pooled(kind)[:, layers]
        found = load(name, f"{asked}::normalize=no").encode(TEXTS)
        np.testing.assert_allclose(found, read.mean(axis=1), **CLOSE, err_msg=asked)
    read = plain(name).pooled("pooling=max")[:, [0, -1]]
    found = load(name, "layers=0,-1::fusion=max::pooling=max::normalize=no").encode(TEXTS)
    np.testing.assert_allclose(found, read.max(axis=1), **CLOSE)
    for asked, layers in CONCATENATIONS.items():
        read = plain(name).pooled("pooling=mean")[:, layers]
        found = load(name, asked).encode(TEXTS)
        assert found.dtype == np.float32
        assert found.flags.c_contiguous
        expected = unit(read.reshape(len(TEXTS), -1))
        np.testing.assert_allclose(found, expected, **CLOSE, err_msg=asked)


@architectures
def test_the_default_is_the_normalized_mean_of_the_last_layer(name, load, plain):
    expected = unit(plain(name).pooled("pooling=mean")[:, -1])
    encoder = load(name)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, **CLOSE)
    assert encoder.spec.settings.layers is None
    assert encoder.spec.dimensions == WIDTH


@pytest.mark.parametrize("name", DEPTHS)
def test_sbert_wk_with_equal_weights_is_the_mean_of_the_layers_it_fuses(name, load):
    uniform = "sbert-wk::start-layer=1::wk-words=uniform::wk-layers=uniform"
    for special in ("", "::special-tokens=drop"):
        found = load(name, uniform + special).encode(TEXTS)
        expected = load(name, "layers=1..-1::pooling=mean" + special).encode(TEXTS)
        np.testing.assert_allclose(found, expected, **CLOSE)


@pytest.mark.parametrize("name", DEPTHS)
def test_sbert_wk_gives_finite_vectors_of_length_one(name, load):
    for settings in ("sbert-wk", "sbert-wk::special-tokens=drop", "sbert-wk::wk-preset=released"):
        vectors = load(name, settings).encode(TEXTS)
        assert vectors.shape == (len(TEXTS), WIDTH)
        assert np.isfinite(vectors).all()
        lengths = np.linalg.norm(vectors, axis=1)
        # Of the empty text nothing is left where special tokens are dropped.
        nothing = "drop" in settings
        np.testing.assert_allclose(lengths, [not (nothing and not text) for text in TEXTS], **CLOSE)


@architectures
def test_sbert_wk_as_released_drops_the_last_piece_only(name, load):
    for one in load(name, "sbert-wk::wk-preset=released").hidden_states(TEXTS):
        np.testing.assert_array_equal(one.kept, [True] * (len(one.pieces) - 1) + [False])


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_sbert_wk_as_released_cuts_the_end_with_its_separator(name, load, plain):
    text = "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10"
    ids = plain(name).tokenizer(text)["input_ids"]
    released = load(name, "sbert-wk::wk-preset=released::max-length=9")
    assert released.truncate([text]) == [ids[:9]]
    assert load(name, "sbert-wk::max-length=9").truncate([text]) == [[*ids[:8], ids[-1]]]
    with pytest.warns(UserWarning, match="window of 9"):
        (one,) = released.hidden_states([text])
    assert one.pieces == plain(name).tokenizer.convert_ids_to_tokens(ids[:9])
    np.testing.assert_array_equal(one.kept, [True] * 8 + [False])


def test_the_pieces_of_a_text_cut_as_released_have_their_places_in_it(load, plain):
    text = "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10"
    offsets = plain("bert").tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    encoder = load("bert", "sbert-wk::wk-preset=released::max-length=9")
    with pytest.warns(UserWarning, match="window of 9"):
        (one,) = encoder.hidden_states([text])
    assert one.spans == offsets[:9]


@architectures
def test_a_text_gets_the_same_vector_in_any_batch(name, load):
    chance = random.Random(name)
    texts = [*TEXTS, *(" ".join(chance.choices(TEXTS, k=3)) for _ in range(2))]
    for settings in ("lc:0,2", "top-bottom", "sbert-wk"):
        encoder = load(name, settings)
        alone = np.concatenate([encoder.encode([text]) for text in texts])
        for _ in range(2):
            rows = chance.choices(range(len(texts)), k=chance.randint(2, 20))
            found = encoder.encode([texts[row] for row in rows])
            np.testing.assert_allclose(found, alone[rows], **CLOSE, err_msg=settings)


@pytest.mark.parametrize("name", OTHERS)
def test_an_architecture_that_is_not_known_gives_its_last_layer(name, load, plain):
    for pooling in POOLINGS:
        expected = plain(name).pooled(pooling)[:, -1]
        found = load(name, f"{pooling}::normalize=no").encode(TEXTS)
        if name == "modernbert":
            # It normalizes its last layer again.
            assert np.isfinite(found).all()
        np.testing.assert_allclose(found, expected, **CLOSE, err_msg=pooling)
    for last in ("layers=last", "layers=-1", "last"):
        assert load(name, last).spec.fingerprint == load(name).spec.fingerprint


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("settings", ["layers=0,2", "sbert-wk", "top-bottom", "last4", "lc:1"])
def test_an_architecture_that_is_not_known_refuses_layers_in_one_line(name, settings, load):
    with pytest.raises(ConfigError, match=name) as caught:
        load(name, settings)
    assert str(caught.value).startswith("layers: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("look", ["layer_vectors", "hidden_states"])
def test_an_architecture_that_is_not_known_refuses_to_be_looked_into(look, load):
    encoder = load("deberta-v2")
    with pytest.raises(ConfigError, match="deberta-v2"):
        list(getattr(encoder, look)(["w1 w2"]))


def test_a_model_whose_depth_is_not_named_as_in_bert_gives_its_last_layer(tmp_path, plain, folders):
    from transformers import XLMConfig, XLMModel

    AutoTokenizer.from_pretrained(folders("bert")).save_pretrained(tmp_path)
    size = {"emb_dim": WIDTH, "n_layers": 3, "n_heads": 2, "max_position_embeddings": 64}
    config = XLMConfig(vocab_size=200, pad_index=0, n_langs=1, use_lang_emb=False, **size)
    XLMModel(config).eval().save_pretrained(tmp_path)
    found = Encoder.load(f"{tmp_path}::normalize=no", device="cpu").encode(TEXTS)
    model = AutoModel.from_pretrained(tmp_path).eval()
    for text, vector in zip(plain("bert").texts, found, strict=True):
        with torch.inference_mode():
            states = model(input_ids=torch.tensor([text["input_ids"]])).last_hidden_state[0]
        np.testing.assert_allclose(vector, states.mean(0).numpy(), **CLOSE)


@pytest.mark.parametrize("name", [name for name in DEPTHS if "xlnet" not in name])
def test_bfloat16_is_close_to_float32(name, load):
    half, full = load(name, "dtype=bfloat16").encode(TEXTS), load(name).encode(TEXTS)
    assert half.dtype == np.float32
    assert (half != full).any()
    assert (half * full).sum(axis=1).min() > 0.99


@pytest.mark.parametrize("name", ["bert", "xlnet"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_dtype_that_cannot_be_computed_in_is_refused_in_one_line(name, dtype, load):
    try:
        half = load(name, f"dtype={dtype}").encode(TEXTS)
    except ConfigError as error:
        message = str(error)
    else:
        assert (half * load(name).encode(TEXTS)).sum(axis=1).min() > 0.99
        return
    assert message.startswith("dtype: ")
    assert len(message.splitlines()) == 1
