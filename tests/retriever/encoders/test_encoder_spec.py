"""The specification of an encoder: read back as written, and its identity."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from retriever.encoders import EncoderSettings, EncoderSpec, parse_encoder
from retriever.errors import ConfigError

SETTINGS = EncoderSettings(model="some/model", max_length=256)
SPEC = EncoderSpec(SETTINGS, weights="ab" * 32, dimensions=384)


def asking(**settings):
    return replace(SPEC, settings=replace(SETTINGS, **settings))


def test_json_and_back_gives_the_same_specification():
    stored = SPEC.to_json()
    assert stored == {
        "encoder": "some/model::max-length=256",
        "weights": "ab" * 32,
        "dimensions": 384,
    }
    assert EncoderSpec.from_json(json.loads(json.dumps(stored))) == SPEC
    # An index made before layers could be chosen.
    first = {"model": "some/model", "max_length": 256, "layers": "last", "normalize": True}
    assert EncoderSpec.from_json({**first, "weights": "ab" * 32, "dimensions": 384}) == SPEC


@pytest.mark.parametrize(
    ("stored", "refusal"),
    [
        *(
            (
                {key: value for key, value in SPEC.to_json().items() if key != name},
                f"missing setting '{name}'",
            )
            for name in SPEC.to_json()
        ),
        (SPEC.to_json() | {"encoder": "some/model"}, "missing setting 'max-length'"),
        (SPEC.to_json() | {"encoder": "::max-length=256"}, "missing setting 'model'"),
    ],
)
def test_malformed_stored_spec_is_refused_by_name(stored, refusal):
    with pytest.raises(ConfigError, match=refusal):
        EncoderSpec.from_json(stored)


def test_the_fingerprint_ignores_the_label_and_how_it_is_computed_and_nothing_else():
    named = {"layers": "last", "fusion": "mean", "pooling": "mean", "normalize": True}
    for same in (
        {"model": "/a/copy"},
        {"dtype": "bfloat16"},
        {"backend": "openvino", "dtype": "int8"},
        named | {"head": False, "special_tokens": "keep", "query_prompt": ""},
    ):
        assert asking(**same).fingerprint == SPEC.fingerprint
    others = [
        replace(SPEC, weights="cd" * 32),
        replace(SPEC, dimensions=383),
        asking(max_length=255),
        asking(normalize=False),
        asking(layers="0"),
        asking(pooling="max"),
        asking(query_prompt="query: "),
        asking(static="average"),
        asking(fusion="sbert-wk"),
        asking(fusion="sbert-wk", wk_words="uniform"),
        asking(fusion="sbert-wk", wk_layers="uniform"),
        asking(fusion="sbert-wk", wk_layers="last"),
    ]
    assert len({SPEC.fingerprint, *(other.fingerprint for other in others)}) == 13
    plain = asking(fusion="sbert-wk", wk_words="variance", wk_layers="weighted")
    assert plain.fingerprint == asking(fusion="sbert-wk").fingerprint


@pytest.mark.parametrize(
    ("form", "fingerprint"),
    [
        ("m::max-length=128", "9c80794d48c292ba"),
        ("m::layers=0,6::query-prompt=q:%20::max-length=128", "4da36fdca33bf172"),
        (
            "m::fusion=sbert-wk::max-length=128::wk-preset=paper::window=2::start-layer=4"
            "::omega=0.5::wk-variance=all",
            "afabd8136a8d11d9",
        ),
        ("m::static=sif::max-length=128", "11fbfe15e0dd293e"),
    ],
)
def test_fingerprints_are_those_of_earlier_releases(form, fingerprint):
    settings = parse_encoder(form)
    assert EncoderSpec(settings, "0" * 64, 768).fingerprint == fingerprint
