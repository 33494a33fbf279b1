"""The specification of an encoder: read back as written, and its identity."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from retriever.encoders.settings import EncoderSettings, parse_encoder
from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError

SETTINGS = EncoderSettings(model="some/model", max_length=256)
SPEC = EncoderSpec(SETTINGS, weights="ab" * 32, dimensions=384)
FIRST_FORM = {
    "model": "some/model",
    "weights": "ab" * 32,
    "dimensions": 384,
    "max_length": 256,
    "layers": "last",
    "pooling": "mean",
    "normalize": True,
}


def asking(**settings):
    return replace(SPEC, settings=replace(SETTINGS, **settings))


def test_json_and_back_gives_the_same_specification():
    assert EncoderSpec.from_json(json.loads(json.dumps(SPEC.to_json()))) == SPEC


def test_the_text_form_is_what_is_stored():
    assert SPEC.to_json()["encoder"] == str(SPEC) == "some/model::max-length=256"


def test_an_index_made_before_layers_could_be_chosen_has_the_same_encoder():
    old = EncoderSpec.from_json(FIRST_FORM)
    assert old == SPEC
    assert old.fingerprint == SPEC.fingerprint


@pytest.mark.parametrize("changed", [{"layers": "first"}, {"pooling": "max"}, {"normalize": False}])
def test_an_old_specification_with_what_it_never_had_is_refused(changed):
    with pytest.raises(ConfigError, match=next(iter(changed))):
        EncoderSpec.from_json(FIRST_FORM | changed)


def test_an_old_specification_that_lacks_a_setting_is_refused_by_name():
    for name in FIRST_FORM:
        stored = {key: value for key, value in FIRST_FORM.items() if key != name}
        with pytest.raises(ConfigError, match="missing setting"):
            EncoderSpec.from_json(stored)


@pytest.mark.parametrize("stored", [SPEC.to_json(), FIRST_FORM])
def test_an_unknown_setting_is_refused_by_name(stored):
    with pytest.raises(ConfigError, match="unknown setting 'whitening'"):
        EncoderSpec.from_json(stored | {"whitening": True})


@pytest.mark.parametrize("name", ["encoder", "weights", "dimensions"])
def test_a_missing_setting_is_refused_by_name(name):
    stored = SPEC.to_json()
    del stored[name]
    with pytest.raises(ConfigError, match=f"missing setting '{name}'"):
        EncoderSpec.from_json(stored)


def test_a_specification_without_model_or_window_is_refused():
    for name in ("model", "max_length"):
        with pytest.raises(ConfigError, match=name.replace("_", "-")):
            asking(**{name: None})


def test_the_fingerprint_ignores_the_label_and_how_it_is_computed_and_nothing_else():
    assert asking(model="/a/copy").fingerprint == SPEC.fingerprint
    assert asking(dtype="bfloat16").fingerprint == SPEC.fingerprint
    assert asking(backend="openvino", dtype="int8").fingerprint == SPEC.fingerprint
    others = [
        replace(SPEC, weights="cd" * 32),
        replace(SPEC, dimensions=383),
        asking(max_length=255),
        asking(normalize=False),
        asking(layers="0"),
        asking(pooling="max"),
        asking(fusion="sbert-wk"),
        asking(query_prompt="query: "),
    ]
    assert len({SPEC.fingerprint, *(other.fingerprint for other in others)}) == 9


@pytest.mark.parametrize(
    ("form", "fingerprint"),
    [
        ("m::max-length=128", "9c80794d48c292ba"),
        (
            "m::fusion=sbert-wk::max-length=128::wk-preset=paper::window=2::start-layer=4"
            "::omega=0.5::wk-variance=all",
            "afabd8136a8d11d9",
        ),
    ],
)
def test_new_settings_leave_the_fingerprints_of_older_indexes(form, fingerprint):
    settings = parse_encoder(form)
    assert EncoderSpec(settings, "0" * 64, 768).fingerprint == fingerprint


def test_uniform_weights_are_another_encoder_and_named_plain_ones_the_same():
    form = "m::sbert-wk::max-length=128"
    found = [
        EncoderSpec(parse_encoder(form + more), "0" * 64, 768).fingerprint
        for more in (
            *("", "::wk-words=variance", "::wk-layers=weighted"),
            *("::wk-words=uniform", "::wk-layers=uniform", "::wk-layers=last"),
        )
    ]
    assert found[0] == found[1] == found[2]
    assert len(set(found)) == 4


def test_a_setting_that_is_named_though_it_is_the_default_is_the_same_encoder():
    named = asking(layers="last", fusion="mean", pooling="mean", normalize=True, head=False)
    assert named.fingerprint == SPEC.fingerprint


def test_the_fingerprint_is_sixteen_hexadecimal_digits():
    assert len(SPEC.fingerprint) == 16
    assert int(SPEC.fingerprint, 16) >= 0
