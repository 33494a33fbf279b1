"""A model's own sentence settings: pooling, projections and prompts, and the pooler as a head."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer

from retriever.errors import ModelError
from tests.retriever.encoders.architectures import CLOSE, TEXTS, WIDTH
from tests.retriever.encoders.sentence_models import (
    dense,
    load,
    pooling,
    refused,
    same_encoder,
    sentence_transformer,
    theirs,
    weights,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("mode", ["mean", "max", "cls"])
def test_pooling_is_that_of_modules_json(mode, make):
    folder = make(pooling(mode))
    encoder = load(folder)
    np.testing.assert_allclose(encoder.encode(TEXTS), theirs(folder), **CLOSE)
    assert encoder.spec.settings.pooling == (None if mode == "mean" else mode)
    same_encoder(encoder)


@pytest.mark.parametrize("mode", ["cls_token", "mean_tokens", "max_tokens"])
def test_pooling_in_the_older_form_is_read_too(mode, make):
    modes = ("cls_token", "mean_tokens", "max_tokens")
    config = {f"pooling_mode_{key}": key == mode for key in modes}
    folder = make(("Pooling", {"word_embedding_dimension": WIDTH, **config}))
    np.testing.assert_allclose(load(folder).encode(TEXTS), theirs(folder), **CLOSE)


@pytest.mark.parametrize(
    "modules",
    [
        [pooling(), ("Normalize", None)],
        [pooling(), dense(8)],
        [pooling("cls"), dense(24, bias=False), ("Normalize", None)],
        [pooling("max"), dense(24), dense(5, into=24)],
        [pooling(), dense(8, activation_function="torch.nn.modules.linear.Identity")],
        [pooling(), dense(8, activation_function="torch.nn.modules.activation.ReLU")],
        [pooling(), dense(8, activation_function="torch.nn.modules.activation.GELU")],
        [pooling(), dense(8, activation_function="torch.nn.modules.activation.Sigmoid")],
    ],
)
def test_projections_are_those_of_modules_json(modules, make):
    folder = make(*modules)
    encoder = load(folder)
    expected = theirs(folder)
    assert encoder.spec.dimensions == expected.shape[1]
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, **CLOSE)
    assert encoder.spec.settings.head is (True if len(modules) > 1 and modules[1][1] else None)
    same_encoder(encoder)


def test_a_normalization_before_a_projection_is_not_left_out(make):
    folder = make(pooling(), ("Normalize", None), dense(8))
    try:
        encoder = load(folder)
    except ModelError:
        return
    np.testing.assert_allclose(encoder.encode(TEXTS), theirs(folder), **CLOSE)


def test_a_projection_before_pooling_is_not_moved_behind_it(make):
    folder = make(
        ("Dense", {**dense(8)[1], "module_input_name": "token_embeddings"}), pooling("max")
    )
    assert "dense layer on the sentence embedding" in refused(folder, error=ModelError)


def test_projections_are_part_of_the_identity(make):
    folder = make(pooling(), dense(8))
    before = load(folder).spec
    weights(folder / "2_Dense", dense(8)[1], seed=99)
    after = load(folder).spec
    assert before.weights != after.weights
    assert before.fingerprint != after.fingerprint


def test_an_activation_is_part_of_the_identity(make):
    folder = make(pooling(), dense(8))
    before = load(folder)
    path = folder / "2_Dense" / "config.json"
    changed = json.loads(path.read_text()) | {
        "activation_function": "torch.nn.modules.activation.ReLU"
    }
    path.write_text(json.dumps(changed))
    after = load(folder)
    assert np.abs(before.encode(TEXTS) - after.encode(TEXTS)).max() > 0.1
    assert before.spec.fingerprint != after.spec.fingerprint


@pytest.mark.parametrize(
    "config",
    [
        {"use_residual": True},
        {"activation_function": "torch.nn.modules.activation.Softmax"},
        {"module_input_name": "token_embeddings"},
        {"module_output_name": "other"},
    ],
)
def test_a_projection_that_is_not_supported_is_refused(config, make):
    message = refused(make(pooling(), dense(8, **config)), error=ModelError)
    assert "2_Dense" in message
    assert "not supported" in message


def test_a_projection_that_is_pickled_is_refused(make):
    folder = make(pooling(), dense(8))
    file = folder / "2_Dense" / "model.safetensors"
    torch.save({"linear.weight": torch.ones(8, WIDTH)}, file.with_name("pytorch_model.bin"))
    file.unlink()
    message = refused(folder, error=ModelError)
    assert "2_Dense" in message
    assert "model.safetensors" in message


@pytest.mark.parametrize("content", [b"", b"\x80\x04 a pickle, perhaps" * 10])
def test_a_projection_whose_weights_are_damaged_is_refused(content, make):
    folder = make(pooling(), dense(8))
    (folder / "2_Dense" / "model.safetensors").write_bytes(content)
    assert "2_Dense" in refused(folder, error=ModelError)


def test_a_projection_of_another_width_is_refused_with_both(make):
    message = refused(make(pooling(), dense(8, into=24)), error=ModelError)
    assert "(any, 16)" in message
    assert "(8, 24)" in message


def test_a_model_that_leaves_its_prompt_out_of_pooling_is_refused(make):
    message = refused(make(pooling(include_prompt=False)), error=ModelError)
    assert "include_prompt" in message


@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        ({"query": "w1 w2: ", "document": "w3: "}, None),
        ({"query": "w1 w2: "}, None),
        ({"document": "w3: "}, None),
        ({"query": "w1: ", "document": ""}, None),
        ({"query": "", "document": ""}, None),
        ({"classification": "w4: "}, None),
        ({"query": "w1: ", "document": "w3: ", "other": "w4: "}, "other"),
        ({"query": "w1: ", "document": "w3: "}, "query"),
        ({"other": "w4: "}, "other"),
        ({"query": "", "document": ""}, "query"),
        ({"query": "", "document": "w3: "}, "document"),
        ({}, None),
    ],
)
def test_prompts_are_those_of_sentence_transformers(prompts, default, make):
    folder = make(pooling(), prompts=prompts, default=default)
    encoder, model = load(folder), sentence_transformer(folder)
    for query, encode in ((True, model.encode_query), (False, model.encode_document)):
        expected = encode(list(TEXTS), normalize_embeddings=True, show_progress_bar=False)
        np.testing.assert_allclose(encoder.encode(TEXTS, query=query), expected, **CLOSE)
    same_encoder(encoder)


def test_a_prompt_counts_as_text_before_the_text(folders):
    plain = load(folders("bert"))
    encoder = load(folders("bert"), "query-prompt=w5 w6 ::passage-prompt=w9%20")
    np.testing.assert_array_equal(
        encoder.encode(TEXTS, query=True), plain.encode([f"w5 w6 {text}" for text in TEXTS])
    )
    np.testing.assert_array_equal(
        encoder.encode(TEXTS), plain.encode([f"w9 {text}" for text in TEXTS])
    )


def test_the_places_of_pieces_do_not_count_the_prompt(folders):
    text = "w1 w2"
    (one,) = load(folders("bert"), "passage-prompt=w9%20").hidden_states([text])
    spans = dict(zip(one.pieces, one.spans, strict=True))
    assert {piece: text[slice(*spans[piece])] for piece in ("w1", "w2")} == {"w1": "w1", "w2": "w2"}


@pytest.mark.parametrize("name", ["bert", "roberta", "mpnet", "albert"])
@pytest.mark.parametrize("how", ["pooling=cls", "pooling=mean", "lc:0,2", "pooling=max::layers=1"])
def test_the_head_is_the_pooler_of_transformers_on_the_pooled_vector(name, how, folders):
    folder = folders(name)
    model = AutoModel.from_pretrained(folder).eval()
    pooled = torch.from_numpy(load(folder, f"{how}::normalize=no").encode(TEXTS))
    with torch.inference_mode():
        if name == "albert":
            expected = torch.tanh(model.pooler(pooled))
        else:
            # transformers' poolers read the first piece of (texts, pieces, width).
            expected = model.pooler(torch.stack([pooled, pooled * 0 + 9], dim=1))
    found = load(folder, f"{how}::head=yes::normalize=no").encode(TEXTS)
    np.testing.assert_allclose(found, expected.numpy(), **CLOSE)


@pytest.mark.parametrize("name", ["bert", "roberta", "mpnet", "albert"])
def test_cls_pooling_with_the_head_is_the_pooler_output_of_transformers(name, folders):
    folder = folders(name)
    model = AutoModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        expected = [
            model(**tokenizer(text, return_tensors="pt")).pooler_output[0].numpy() for text in TEXTS
        ]
    encoder = load(folder, "pooling=cls::head=yes::normalize=no")
    np.testing.assert_allclose(encoder.encode(TEXTS), np.stack(expected), **CLOSE)
    assert "head=yes" in same_encoder(encoder)


@pytest.mark.parametrize("name", ["distilbert", "electra", "deberta-v2"])
def test_the_head_of_a_model_without_one_is_refused(name, folders):
    message = refused(folders(name), "head=yes")
    assert message.startswith("head: ")
    assert "pooler" in message


def test_a_pooler_without_weights_is_no_head(folders, tmp_path):
    from safetensors.torch import load_file

    folder = shutil.copytree(folders("bert"), tmp_path / "bare")
    tensors = load_file(folder / "model.safetensors")
    kept = {name: one for name, one in tensors.items() if not name.startswith("pooler.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    assert refused(folder, "head=yes").startswith("head: ")
