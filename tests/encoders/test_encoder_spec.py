"""The specification of an encoder: read back as written, and its identity."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from retriever.encoders.spec import EncoderSpec
from retriever.errors import ConfigError

SPEC = EncoderSpec(model="some/model", weights="ab" * 32, dimensions=384, max_length=256)


def test_json_and_back_gives_the_same_specification():
    assert EncoderSpec.from_json(json.loads(json.dumps(SPEC.to_json()))) == SPEC


def test_an_unknown_setting_is_refused_by_name():
    with pytest.raises(ConfigError, match="unknown setting 'whitening'"):
        EncoderSpec.from_json(SPEC.to_json() | {"whitening": True})


def test_a_missing_setting_is_refused_by_name():
    stored = SPEC.to_json()
    del stored["pooling"]
    with pytest.raises(ConfigError, match="missing setting 'pooling'"):
        EncoderSpec.from_json(stored)


def test_the_fingerprint_ignores_the_label_and_nothing_else():
    assert replace(SPEC, model="/a/copy").fingerprint == SPEC.fingerprint
    others = [
        replace(SPEC, weights="cd" * 32),
        replace(SPEC, dimensions=383),
        replace(SPEC, max_length=255),
        replace(SPEC, normalize=False),
    ]
    assert len({SPEC.fingerprint, *(other.fingerprint for other in others)}) == 5


def test_the_fingerprint_is_sixteen_hexadecimal_digits():
    assert len(SPEC.fingerprint) == 16
    assert int(SPEC.fingerprint, 16) >= 0


@pytest.mark.parametrize("impossible", [{"layers": "first"}, {"pooling": "max"}, {"max_length": 7}])
def test_impossible_values_are_refused(impossible):
    with pytest.raises(ConfigError, match=next(iter(impossible))):
        replace(SPEC, **impossible)
