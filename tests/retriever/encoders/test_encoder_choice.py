"""Asking for an encoder where an index has one: the same in other words is accepted, others not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from retriever.encoders.encoder import Encoder, ModelChoice
from retriever.encoders.model_folders import find_model
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError, EncoderMismatchError, ModelError

INDEX = Path("the-index")


@pytest.fixture
def bert(tiny_models):
    return str(tiny_models["bert"])


def made_with(asked):
    return Encoder.load(asked, device="cpu").spec


def check(asked, spec):
    ModelChoice(asked, device="cpu").check(spec, INDEX)


def refused(asked, spec, error=EncoderMismatchError):
    with pytest.raises(error) as caught:
        check(asked, spec)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


# Settings of an index, and other ways of asking for the same encoder.
SAME = [
    ("", ["::layers=-1", "::layers=last", "::last", "::layers=2", "::layers=last1", "::lc:2"]),
    ("", ["::fusion=mean", "::pooling=mean::special-tokens=keep::head=no", "::normalize=yes"]),
    (
        "",
        ["::query-prompt=::passage-prompt=", "::max-length=40", "::dtype=bfloat16::backend=torch"],
    ),
    ("::lc:0,2", ["::layers=2,0", "::lc:-1,0", "::layers=0,last", "::layers=-3,-1::fusion=mean"]),
    ("::layers=all", ["::layers=0..2", "::lc:last3", "::layers=2,1,0", "::pooling=mean"]),
    ("::top-bottom", ["::layers=2,1::fusion=concat", "::layers=last,-2", "::fusion=concat"]),
    ("::last::fusion=concat", []),
    ("::sbert-wk", ["::fusion=sbert-wk", "::sbert-wk::omega=0.5", "::sbert-wk::start-layer=1"]),
    ("::sbert-wk", ["::sbert-wk::wk-words=variance", "::sbert-wk::wk-layers=weighted"]),
    ("::sbert-wk::wk-words=uniform", ["::sbert-wk", "::sbert-wk::wk-words=uniform"]),
    ("::layers=0,2::fusion=max", ["::layers=2,0::fusion=max", "::fusion=max"]),
    (
        "::sbert-wk::wk-preset=released::window=1",
        ["::sbert-wk", "::sbert-wk::wk-preset=released::wk-variance=fused", "::sbert-wk::window=1"],
    ),
    ("::pooling=cls::head=yes", ["::head=yes", "::pooling=cls", "::layers=-1::head=yes"]),
    ("::query-prompt=q: %20::max-length=16", ["::query-prompt=q:%20%20", "::max-length=16"]),
    ("::dtype=bfloat16::normalize=no", ["::normalize=no", "::dtype=bfloat16::last"]),
]


@pytest.mark.parametrize(("made", "asked"), [case for case in SAME if case[1]])
def test_the_same_encoder_in_other_words_is_accepted(made, asked, bert):
    spec = made_with(bert + made)
    for text in asked:
        check(text, spec)
        check(bert + text, spec)


@pytest.mark.parametrize("made", [made for made, _ in SAME if "last::" not in made])
def test_what_it_was_made_with_and_its_full_text_are_accepted(made, bert):
    spec = made_with(bert + made)
    for asked in ("", bert, bert + made, made, str(spec), "::" + str(spec).partition("::")[2]):
        check(asked, spec)


@pytest.mark.parametrize("fusion", ["concat", "max"])
def test_one_layer_alone_is_the_same_in_every_fusion(fusion, bert):
    asked = f"{bert}::layers=last::fusion={fusion}"
    spec = made_with(asked)
    assert spec == made_with(bert)
    check(asked, spec)


OTHERS = [
    ("", "::layers=0", "layers=0"),
    ("", "::lc:0,2", "layers=0,2"),
    ("", "::layers=0..2", "layers=0..2"),
    ("", "::sbert-wk", "fusion=sbert-wk"),
    ("::sbert-wk", "::sbert-wk::wk-words=uniform", "wk-words=uniform"),
    ("::layers=0,2::fusion=max", "::layers=0,2::fusion=mean", "fusion=mean"),
    ("", "::pooling=max", "pooling=max"),
    ("", "::special-tokens=drop", "special-tokens=drop"),
    ("", "::head=yes", "head="),
    ("", "::normalize=no", "normalize="),
    ("", "::query-prompt=q", "query-prompt=q"),
    ("", "::max-length=39", "max-length=39"),
    ("::lc:0,2", "::last", "layers=last"),
    ("::lc:0,2", "::lc:0..2", "layers=0..2"),
    ("::top-bottom", "::layers=1,2", "layers=1,2"),
    ("::top-bottom", "::layers=-1,1::fusion=mean", "fusion=mean"),
    ("::sbert-wk", "::sbert-wk::omega=0.25", "omega=0.25"),
    ("::sbert-wk", "::sbert-wk::wk-preset=released", "wk-preset=released"),
    ("::sbert-wk", "::sbert-wk::start-layer=0", "start-layer=0"),
    ("::sbert-wk", "::layers=last", "layers=last"),
    ("::sbert-wk", "::pooling=mean", "pooling=mean"),
    ("::pooling=cls::head=yes", "::head=no", "head="),
    ("::query-prompt=q", "::query-prompt=", "query-prompt="),
    ("", "::static=average", "static=average"),
]


@pytest.mark.parametrize(("made", "asked", "named"), OTHERS)
def test_another_encoder_is_refused_naming_both(made, asked, named, bert):
    spec = made_with(bert + made)
    message = refused(asked, spec)
    for part in (str(INDEX), str(spec), named, "--recreate", spec.weights[:12]):
        assert part in message


def test_a_setting_is_named_as_it_would_be_written(bert):
    assert "head=yes" in refused("::head=yes", made_with(bert))
    assert "normalize=no" in refused("::normalize=no", made_with(bert))


def test_another_model_is_refused_and_a_copy_is_not(bert, tiny_models, tmp_path):
    spec = made_with(bert)
    other = str(tiny_models["roberta"])
    message = refused(other, spec)
    assert other in message
    assert find_model(other).weights[:12] in message
    check(str(shutil.copytree(bert, tmp_path / "copy")), spec)


def test_all_that_differs_is_named(bert):
    message = refused("::pooling=max::normalize=no::max-length=20", made_with(bert))
    for part in ("pooling=max", "normalize=", "max-length=20"):
        assert part in message


def test_a_layer_that_the_model_does_not_have_is_refused_with_the_range(bert):
    assert "0 (embeddings) to 2" in refused("::layers=7", made_with(bert), ConfigError)


def test_a_model_that_is_not_there_is_refused(bert):
    assert "no model" in refused("./nowhere::last", made_with(bert), ModelError)


@pytest.mark.parametrize("text", ["m::nonsense", "m::layers=x", "m::pooling=max::pooling=max"])
def test_a_text_form_that_is_none_is_refused_at_once(text):
    with pytest.raises(ConfigError):
        ModelChoice(text)


def test_nothing_is_loaded_to_compare_settings(bert, monkeypatch):
    from transformers import AutoModel

    spec = made_with(bert)
    monkeypatch.setattr(AutoModel, "from_pretrained", None)
    check(f"{bert}::layers=-1", spec)


def test_a_choice_loads_what_it_asks_for(bert):
    encoder = ModelChoice(f"{bert}::lc:0,1::max-length=20", device="cpu").load()
    assert str(encoder.spec) == f"{bert}::layers=0,1::max-length=20"
    assert ModelChoice(bert).weights() == encoder.spec.weights == find_model(bert).weights


@pytest.mark.parametrize("window", [40, 16])
def test_an_encoder_stored_before_layers_could_be_chosen_is_the_same_as_now(window, bert):
    now = made_with(f"{bert}::max-length={window}")
    old = EncoderSpec.from_json(
        {
            "model": bert,
            "weights": find_model(bert).weights,
            "dimensions": 16,
            "max_length": window,
            "layers": "last",
            "pooling": "mean",
            "normalize": True,
        }
    )
    assert old == now
    assert old.fingerprint == now.fingerprint
    for asked in ("", bert, str(now), "::layers=-1::pooling=mean"):
        check(asked, old)
    assert "pooling=max" in refused("::pooling=max", old)
    encoder = Encoder.from_spec(old, device="cpu")
    assert encoder.spec == now


def test_a_stored_fingerprint_does_not_change_between_versions():
    """Indexes rely on it: a change here needs a new format of the index."""
    plain = EncoderSpec(EncoderSettings(model="m", max_length=256), "ab" * 32, 384)
    fused = EncoderSpec(
        EncoderSettings(model="m", max_length=256, layers="0,6", query_prompt="q: "), "ab" * 32, 384
    )
    assert (plain.fingerprint, fused.fingerprint) == ("65c611cda5f608a7", "8ff8462c31f33c27")


def test_equal_fingerprints_mean_equal_vectors(bert):
    texts = ["w1 w2 w3", "w4"]
    one = Encoder.load(f"{bert}::layers=2,0::fusion=mean", device="cpu")
    other = Encoder.load(f"{bert}::lc:0,-1", device="cpu")
    assert one.spec.fingerprint == other.spec.fingerprint
    assert torch.equal(*(torch.from_numpy(each.encode(texts)) for each in (one, other)))
