"""What a model's own files ask for, what a person asks for, and how both are written down."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModel, AutoTokenizer

from retriever.encoders.encoder import Encoder
from retriever.encoders.model_folders import find_model
from retriever.encoders.settings import EncoderSettings, parse_encoder
from retriever.encoders.spec import EncoderSpec
from retriever.encoders.transformer.resolution import resolve
from retriever.errors import ConfigError
from tests.retriever.encoders.architectures import CLOSE, TEXTS, WIDTH
from tests.retriever.encoders.sentence_models import (
    PARTS,
    dense,
    load,
    pooling,
    refused,
    same_encoder,
    theirs,
    weights,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def test_what_a_person_asks_for_goes_before_what_the_model_says(make, folders):
    folder = make(pooling("cls"), dense(8), prompts={"query": "w1: ", "document": "w3: "})
    overrides = "pooling=mean::head=no::query-prompt=::passage-prompt="
    encoder, plain = load(folder, overrides), load(folders("bert"))
    for query in (True, False):
        np.testing.assert_array_equal(
            encoder.encode(TEXTS, query=query), plain.encode(TEXTS, query=query)
        )
    text = same_encoder(encoder)
    for part in overrides.split("::"):
        assert f"::{part}" in f"{text}::".replace("::", "::::")


@pytest.mark.parametrize("override", ["pooling=mean", "head=no", "query-prompt=", "pooling=max"])
def test_an_override_survives_the_round_trip(override, make):
    folder = make(pooling("cls"), dense(8), prompts={"query": "w1: "})
    encoder = load(folder, override)
    assert override in same_encoder(encoder).split("::")
    assert encoder.spec.fingerprint != load(folder).spec.fingerprint


def test_a_setting_that_is_the_default_is_not_named(folders):
    bert = folders("bert")
    asked = (
        "layers=-1::fusion=mean::pooling=mean::special-tokens=keep::head=no::normalize=yes"
        "::query-prompt=::passage-prompt=::dtype=float32"
    )
    encoder = load(bert, asked)
    assert str(encoder.spec) == f"{bert}::max-length=64"
    assert encoder.spec == load(bert).spec


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("layers=3", []),
        ("layers=2,0", ["layers=0,2"]),
        ("layers=0..-1", ["layers=all"]),
        ("layers=-1,1::fusion=concat", ["layers=3,1", "fusion=concat"]),
        ("layers=3::fusion=concat", []),
        ("last4", ["layers=all"]),
        (
            "sbert-wk",
            [
                "fusion=sbert-wk",
                "wk-preset=paper",
                "window=2",
                "start-layer=1",
                "omega=0.5",
                "wk-variance=all",
            ],
        ),
        (
            "sbert-wk::wk-words=uniform",
            [
                *("fusion=sbert-wk", "wk-preset=paper", "window=2", "start-layer=1"),
                *("omega=0.5", "wk-words=uniform"),
            ],
        ),
        (
            "sbert-wk::wk-layers=last",
            [
                *("fusion=sbert-wk", "wk-preset=paper", "start-layer=1"),
                *("wk-variance=all", "wk-layers=last"),
            ],
        ),
        ("layers=2,0::fusion=max", ["layers=0,2", "fusion=max"]),
        ("layers=3::fusion=max", []),
        ("dtype=bfloat16::normalize=no", ["normalize=no", "dtype=bfloat16"]),
    ],
)
def test_layers_are_named_from_the_embeddings_and_defaults_of_sbert_wk_in_full(
    asked, named, folders
):
    encoder = load(folders("bert"), asked)
    model, *parts = str(encoder.spec).split("::")
    assert model == str(folders("bert"))
    assert sorted(part for part in parts if part != "max-length=64") == sorted(named)
    same_encoder(encoder)


def asked_settings():
    """Settings that a model of three layers with a pooler can meet."""

    def maybe(*values):
        return st.none() | st.sampled_from(values)

    common = {
        "head": maybe(True, False),
        "normalize": maybe(True, False),
        "query_prompt": maybe("", "w1 w2: ", ":% "),
        "passage_prompt": maybe("", "w3 "),
        "max_length": maybe(8, 33, 64),
        "dtype": maybe("float32", "bfloat16"),
        "special_tokens": maybe("keep"),
    }
    layers = maybe("last", "-1", "all", "0,2", "2,0", "-4..2", "1", "3,1", "last2")
    return st.one_of(
        st.builds(
            EncoderSettings,
            **common,
            layers=layers,
            fusion=maybe("mean", "max"),
            pooling=maybe("mean", "max", "cls", "sep"),
        ),
        st.builds(
            EncoderSettings,
            **common | {"head": maybe(False), "special_tokens": maybe("keep", "drop")},
            layers=layers,
            fusion=st.just("concat"),
            pooling=st.sampled_from(["mean", "max"]),
        ),
        st.builds(
            EncoderSettings,
            **common,
            fusion=st.just("sbert-wk"),
            wk_preset=maybe("paper"),
            window=maybe(1, 2, 7),
            start_layer=maybe(0, 1, 2),
            omega=maybe(0.0, 0.25, 1.0),
            wk_variance=maybe("all", "fused"),
            wk_words=maybe("variance"),
        ),
        st.builds(
            EncoderSettings,
            **common,
            fusion=st.just("sbert-wk"),
            start_layer=maybe(0, 2),
            wk_words=maybe("variance", "uniform"),
            wk_layers=st.sampled_from(["uniform", "last"]),
        ),
    )


@given(asked_settings(), st.sampled_from(["plain", "own"]))
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_resolved_settings_pasted_back_resolve_to_themselves(folder_of, asked, kind):
    folder = folder_of(kind)
    if kind == "own" and asked.fusion == "concat" and asked.head is None:
        asked = replace(asked, head=False)
    resolved = resolve(asked, folder)
    assert resolve(parse_encoder(str(resolved)), folder) == resolved
    spec = EncoderSpec(replace(resolved, max_length=64), folder.weights, WIDTH)
    for field in fields(EncoderSettings):
        wanted = getattr(asked, field.name)
        if field.name not in ("model", "max_length", "layers", "fusion") and wanted is not None:
            assert spec.meaning(field.name) == wanted


@given(asked_settings(), st.sampled_from(["plain", "own"]))
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_a_resolved_setting_cannot_be_left_out(folder_of, asked, kind):
    folder = folder_of(kind)
    if kind == "own" and asked.fusion == "concat" and asked.head is None:
        asked = replace(asked, head=False)
    resolved = resolve(asked, folder)
    if resolved.fusion == "sbert-wk":
        # Its settings are named in full, so that their defaults are free to change.
        return

    def fingerprint(settings_):
        return EncoderSpec(
            replace(resolve(settings_, folder), max_length=64), folder.weights, WIDTH
        ).fingerprint

    for name in ("layers", "normalize", "special_tokens"):
        if getattr(resolved, name) is not None:
            try:
                without = fingerprint(replace(resolved, **{name: None}))
            except ConfigError:
                continue
            assert without != fingerprint(resolved)


@pytest.fixture(scope="module")
def folder_of(folders, tmp_path_factory):
    """A model without sentence settings, and one with pooling, projection and prompt."""
    own = tmp_path_factory.mktemp("own") / "own"
    shutil.copytree(folders("bert"), own)
    listed = [{"idx": 0, "name": "0", "path": "", "type": f"{PARTS}Transformer"}]
    for number, (kind, config) in enumerate([pooling("cls"), dense(WIDTH)], 1):
        path = own / f"{number}_{kind}"
        path.mkdir()
        (path / "config.json").write_text(json.dumps(config))
        listed.append({"idx": number, "name": "", "path": path.name, "type": PARTS + kind})
    weights(own / "2_Dense", dense(WIDTH)[1], seed=1)
    (own / "modules.json").write_text(json.dumps(listed))
    (own / "config_sentence_transformers.json").write_text('{"prompts": {"query": "w1: "}}')
    found = {"plain": find_model(str(folders("bert"))), "own": find_model(str(own))}
    return found.__getitem__


@given(asked=asked_settings())
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_an_encoder_is_made_again_from_its_text(folder_of, asked):
    folder = str(folder_of("plain").path)
    same_encoder(Encoder.load(replace(asked, model=folder), device="cpu"))


def test_a_concatenation_on_a_model_with_a_projection_needs_head_to_be_left_out(make):
    folder = make(pooling(), dense(8))
    message = refused(folder, "top-bottom")
    assert message.startswith("head: ")
    assert "head=no" in message
    assert load(folder, "top-bottom::head=no").spec.dimensions == 2 * WIDTH


def test_special_tokens_cannot_be_dropped_where_the_model_pools_one(make):
    message = refused(make(pooling("cls")), "special-tokens=drop")
    assert message.startswith("pooling: ")


@pytest.mark.parametrize("place", ["cls", "sep"])
def test_a_special_token_that_the_tokenizer_does_not_put_is_refused(place, folders, tmp_path):
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing

    folder = shutil.copytree(folders("bert"), tmp_path / place)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    kept = {"cls": "[SEP]", "sep": "[CLS]"}[place]
    tokenizer.post_processor = TemplateProcessing(
        single=f"$A {kept}", special_tokens=[(kept, tokenizer.token_to_id(kept))]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    # The class of BERT would put its own special tokens back.
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    message = refused(folder, f"pooling={place}")
    assert f"[{place.upper()}]" in message
    assert "mean or max" in message
    load(folder, f"pooling={'sep' if place == 'cls' else 'cls'}")


@pytest.mark.parametrize(
    ("asked", "key", "range_"),
    [
        ("layers=4", "layers", "0 (embeddings) to 3"),
        ("lc:0,-5", "layers", "-4 to -1"),
        ("layers=last5", "layers", "4 hidden states"),
        ("layers=2..9", "layers", "0 (embeddings) to 3"),
        ("layers=3,-1", "layers", "3 twice"),
        ("sbert-wk::start-layer=3", "start-layer", "0 to 2"),
        ("sbert-wk::start-layer=99", "start-layer", "0 to 2"),
        ("sbert-wk::wk-preset=released::start-layer=2", "start-layer", "0 to 1"),
        ("sbert-wk::wk-preset=released::window=9", "window", "4"),
        ("max-length=65", "max-length", "at most 64"),
    ],
)
def test_what_the_model_cannot_do_is_refused_with_the_range(asked, key, range_, folders):
    message = refused(folders("bert"), asked)
    assert message.startswith(f"{key}: ")
    assert range_ in message


def test_an_impossible_request_is_refused_before_the_model_is_loaded(folders, monkeypatch):
    def loaded(*_, **__):
        raise AssertionError("loaded")

    monkeypatch.setattr(AutoModel, "from_pretrained", loaded)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", loaded)
    for asked in ("layers=4", "sbert-wk::start-layer=3"):
        refused(folders("bert"), asked)


def test_the_default_of_the_real_model_is_that_of_sentence_transformers(minilm):
    texts = ["How do I sort a list?", "", "Water boils at 100 °C at sea level. " * 3]
    expected = theirs(find_model("all-MiniLM-L6-v2").path, texts)
    np.testing.assert_allclose(minilm.encode(texts), expected, **CLOSE)


def test_the_mean_of_two_layers_of_the_real_model_is_that_of_transformers(minilm):
    folder = find_model("all-MiniLM-L6-v2").path
    model = AutoModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = ["How do I sort a list?", "", "Water boils at 100 °C at sea level. " * 3]
    rows = []
    for text in texts:
        with torch.inference_mode():
            states = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
        mean = (states.hidden_states[0] + states.hidden_states[6])[0].mean(0).numpy()
        rows.append(mean / np.linalg.norm(mean))
    found = Encoder.load("all-MiniLM-L6-v2::lc:0,6", device="cpu").encode(texts)
    np.testing.assert_allclose(found, np.stack(rows), **CLOSE)
