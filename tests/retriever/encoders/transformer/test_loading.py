"""Settings from a model's files and from the user, and their text form."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModel, AutoTokenizer

from retriever.encoders import Encoder, EncoderSettings, EncoderSpec, find_model, parse_encoder
from retriever.encoders.transformer.loading import resolve
from retriever.errors import ConfigError
from tests.retriever.encoders.architectures import TEXTS, WIDTH
from tests.retriever.encoders.sentence_models import (
    dense,
    load,
    model_with,
    pooling,
    refusal_of,
    same_encoder,
)
from tests.retriever.encoders.settings_samples import encoder_settings, sound

pytestmark = pytest.mark.usefixtures("one_thread")


def test_explicit_settings_override_those_of_model(make, folders):
    folder = make(pooling("cls"), dense(8), prompts={"query": "w1: ", "document": "w3: "})
    overrides = ["pooling=mean", "head=no", "query-prompt=", "passage-prompt="]
    encoder, plain = load(folder, "::".join(overrides)), load(folders("bert"))
    for query in (True, False):
        np.testing.assert_array_equal(
            encoder.encode(TEXTS, query=query), plain.encode(TEXTS, query=query)
        )
    assert same_encoder(encoder).split("::") == [str(folder), *overrides, "max-length=64"]
    found = {load(folder, one).spec.fingerprint for one in (*overrides, "pooling=max", "")}
    assert len(found) == 6


WEIGHTED = "fusion=sbert-wk::wk-preset=paper::window=2::start-layer=1::omega=0.5"


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (
            "layers=-1::fusion=mean::pooling=mean::special-tokens=keep::head=no::normalize=yes"
            "::query-prompt=::passage-prompt=::dtype=float32::backend=auto",
            # An index keeps what it was asked for, where its own default is auto.
            "dtype=float32",
        ),
        ("layers=2,0", "layers=0,2"),
        ("layers=0..-1", "layers=all"),
        ("layers=-1,1::fusion=concat", "layers=3,1::fusion=concat"),
        ("layers=3::fusion=concat", ""),
        ("layers=2,0::fusion=max", "layers=0,2::fusion=max"),
        ("layers=3::fusion=max", ""),
        ("sbert-wk", f"{WEIGHTED}::wk-variance=all"),
        ("sbert-wk::wk-words=uniform", f"{WEIGHTED}::wk-words=uniform"),
        (
            "sbert-wk::wk-layers=last",
            "fusion=sbert-wk::wk-preset=paper::start-layer=1::wk-variance=all::wk-layers=last",
        ),
        ("pooling=cls::special-tokens=keep", "pooling=cls"),
        ("dtype=bfloat16::normalize=no", "normalize=no::dtype=bfloat16"),
    ],
)
def test_layers_are_named_from_the_embeddings_and_defaults_of_sbert_wk_in_full(
    asked, named, folders
):
    encoder = load(folders("bert"), asked)
    found = set(same_encoder(encoder).split("::"))
    assert found == {str(folders("bert")), "max-length=64", *filter(None, named.split("::"))}


@pytest.fixture(scope="module")
def folder_of(folders, tmp_path_factory):
    """A model without sentence settings, and one with pooling, projection and prompt."""
    parts = [pooling("cls"), dense(WIDTH)]
    folder = tmp_path_factory.mktemp("own") / "own"
    own = model_with(folders("bert"), folder, *parts, prompts={"query": "w1: "})
    found = {"plain": find_model(str(folders("bert"))), "own": find_model(str(own))}
    return found.__getitem__


# Of any transformer.
ASKED = encoder_settings(static=st.none(), max_length=st.integers(8, 64))


@given(ASKED, st.sampled_from(["plain", "own"]))
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_resolved_settings_pasted_back_resolve_to_themselves_and_leave_nothing_out(
    folder_of, asked, kind
):
    folder = folder_of(kind)

    def both(**named):
        possible = EncoderSettings(**named)
        return possible, resolve(possible, folder).settings

    def spec(settings_):
        dimensions = settings_.dimensions or WIDTH
        return EncoderSpec(replace(settings_, max_length=64), folder.weights, dimensions)

    asked, resolved = sound(both, asked.named)
    assert resolve(parse_encoder(str(resolved)), folder).settings == resolved
    for field in fields(EncoderSettings):
        wanted = getattr(asked, field.name)
        if field.name not in ("model", "max_length", "layers", "fusion") and wanted is not None:
            assert spec(resolved).effective_value(field.name) == wanted
    # The settings of SBERT-WK are named in full, so that their defaults are free to change.
    for name in ("layers", "normalize", "special_tokens") if not resolved.wk_preset else ():
        if getattr(resolved, name) is not None:
            try:
                without = resolve(replace(resolved, **{name: None}), folder).settings
            except ConfigError:
                continue
            assert spec(without).fingerprint != spec(resolved).fingerprint


@given(asked=ASKED)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.filterwarnings("ignore:.* longer than the window")
def test_encoder_is_rebuilt_from_its_text_form(folder_of, asked):
    folder = str(folder_of("plain").path)

    def loaded(**named):
        computing = {"model": folder, "backend": None, "dtype": None}
        return Encoder.load(EncoderSettings(**named | computing), device="cpu")

    same_encoder(sound(loaded, asked.named))


@pytest.mark.parametrize(
    ("modules", "asked", "refusal"),
    [
        ([], "layers=4", r"layers: .* 0 \(embeddings\) to 3, or -4 to -1, found 4"),
        ([], "layers=last5", "layers: .* 4 hidden states"),
        ([], "sbert-wk::start-layer=3", "start-layer: expected 0 to 2"),
        ([], "sbert-wk::wk-preset=released::start-layer=2", "start-layer: expected 0 to 1"),
        ([], "sbert-wk::wk-preset=released::window=9", "window: .* this model has 4"),
        ([], "max-length=65", "max-length: .* at least 8 and at most 64 pieces, found 65"),
        ([pooling(), dense(8)], "top-bottom", "head: the head .*; add head=no"),
        ([pooling("cls")], "special-tokens=drop", "pooling: cls reads a special token: add"),
    ],
)
def test_impossible_settings_are_refused_before_model_is_loaded(
    modules, asked, refusal, make, monkeypatch
):
    folder = make(*modules)
    monkeypatch.setattr(AutoModel, "from_pretrained", None)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", None)
    with pytest.raises(ConfigError, match=f"^{refusal}"):
        load(folder, asked)


def test_a_concatenation_on_a_model_with_a_projection_leaves_it_out(make):
    folder = make(pooling(), dense(8))
    assert load(folder, "top-bottom::head=no").spec.dimensions == 2 * WIDTH


@pytest.fixture
def with_template(folders, tmp_path):
    """Function that copies a BERT whose tokenizer puts the tokens of a template around a text."""
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing

    def change(template):
        folder = shutil.copytree(folders("bert"), tmp_path / "model")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        special = {text: tokenizer.token_to_id(text) for text in template.split() if text != "$A"}
        tokenizer.post_processor = TemplateProcessing(
            single=template, special_tokens=list(special.items())
        )
        tokenizer.save(str(folder / "tokenizer.json"))
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        # The class of BERT would put its own special tokens back.
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        return folder

    return change


@pytest.mark.parametrize("place", ["cls", "sep"])
@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_pooling_of_a_token_that_is_not_put_is_refused(place, backend, with_template):
    token, other = {"cls": ("[SEP]", "sep"), "sep": ("[CLS]", "cls")}[place]
    folder = with_template(f"$A {token}")
    refusal = refusal_of(folder, f"pooling={place}::backend={backend}")
    assert f"puts no [{place.upper()}] around a text" in refusal
    load(folder, f"pooling={other}::backend={backend}")


TEMPLATES = [
    "[CLS] [MASK] $A [SEP]",
    "$A [SEP] [CLS]",
    "[SEP] $A [MASK] [CLS]",
    "[CLS] $A",
    "$A [CLS] [SEP]",
]


@pytest.mark.filterwarnings("ignore:.* longer than the window")
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize(
    "asked", ["pooling=cls", "special-tokens=drop", "max-length=8", "pooling=sep"]
)
def test_special_tokens_in_any_place_are_pooled_and_cut_as_in_torch(template, asked, with_template):
    if asked == "pooling=sep" and "[SEP]" not in template:
        return
    folder = with_template(template)
    in_torch, in_numpy = (
        load(folder, f"{asked}::backend={backend}").encode(TEXTS) for backend in ("torch", "numpy")
    )
    np.testing.assert_allclose(in_numpy, in_torch, rtol=0, atol=1e-5)
