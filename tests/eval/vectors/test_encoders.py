"""Encoders by name, fitted on each set, and layer by layer, against encoders loaded alone."""

from __future__ import annotations

import numpy as np
import pytest

from eval.vectors.encoders import (
    LISTS,
    LayerEncoders,
    Loading,
    SentenceEncoders,
    named_encoders,
)
from retriever.encoders.encoder import Encoder
from retriever.encoders.settings import parse_encoder
from retriever.encoders.static.model import fit_static
from retriever.errors import ConfigError
from tests.eval.sentences.sentence_samples import sentence

CPU = Loading(device="cpu")


@pytest.fixture(scope="module")
def model(tiny_models):
    return f"{tiny_models['bert']}::max-length=32"


@pytest.fixture(scope="module")
def texts():
    random = np.random.default_rng(0)
    return list(dict.fromkeys(sentence(random) for _ in range(60)))


def test_the_list_of_the_paper_is_the_models_and_each_has_a_meaning_of_its_own():
    forms = named_encoders((), ["paper"], "a-model")
    assert len({parse_encoder(form) for form in forms}) == len(forms) == len(LISTS["paper"])
    assert all(form.startswith("a-model::") for form in forms)


def test_a_form_without_a_model_is_of_the_model_that_is_named():
    assert named_encoders(["::lc:0,1", "other"], (), "a-model") == ("a-model::lc:0,1", "other")


def test_a_static_encoder_gets_no_number_format_of_the_model():
    model = "a-model::dtype=bfloat16::max-length=32"
    forms = named_encoders(["::last", "::static=sif"], (), model)
    assert forms == (f"{model}::last", "a-model::max-length=32::static=sif")
    assert len(named_encoders((), ["paper"], model)) == len(LISTS["paper"])


@pytest.mark.parametrize(
    ("forms", "lists", "said"),
    [
        ([], [], "at least one"),
        (["a::lc:0,1", "a::layers=0,1::fusion=mean"], [], "again"),
        (["::last"], ["paper"], "again"),
        (["a::nonsense=1"], [], "unknown setting 'nonsense'"),
        ([], ["nonsense"], "expected paper"),
    ],
)
def test_what_cannot_be_told_apart_or_understood_is_refused(forms, lists, said):
    with pytest.raises(ConfigError, match=said):
        named_encoders(forms, lists)


def test_vectors_are_those_of_each_encoder_alone(model, texts):
    forms = named_encoders(["::last", "::lc:0,1", "::static=average"], (), model)
    for one in SentenceEncoders(forms, CPU).vectors(texts, texts):
        expected = Encoder.load(one.name, device="cpu").encode(texts[::-1])
        np.testing.assert_allclose(one.vectors.of(texts[::-1]), expected, atol=1e-5)
        assert one.cut == 0


@pytest.mark.parametrize("method", ["sif", "usif"])
def test_what_is_fitted_is_fitted_on_each_set(tiny_models, texts, tmp_path, method):
    name = str(tiny_models["bert"])
    encoders = SentenceEncoders([f"{name}::static={method}"], CPU)
    for number, part in enumerate((texts[:30], texts[20:])):
        (one,) = encoders.vectors(part, part[::2])
        folder = tmp_path / str(number)
        fit_static(name, method, part[::2]).save(folder)
        expected = Encoder.load(str(folder)).encode(part)
        np.testing.assert_allclose(one.vectors.of(part), expected, atol=1e-6)
        assert one.name == f"{name}::static={method}"


def test_a_folder_that_was_fitted_before_is_taken_as_it_is(tiny_models, texts, tmp_path):
    folder = tmp_path / "sif"
    fit_static(str(tiny_models["bert"]), "sif", texts).save(folder)
    (one,) = SentenceEncoders([str(folder)], CPU).vectors(texts, texts[:5])
    np.testing.assert_allclose(
        one.vectors.of(texts), Encoder.load(str(folder)).encode(texts), atol=1e-6
    )


def test_layers_are_those_of_an_encoder_for_each_layer(model, texts):
    layers = LayerEncoders([model], ("mean", "cls", "max"), CPU)
    assert layers.depth(model) == 2
    for pooling, one in layers.vectors(texts):
        states = one.vectors.of(texts)
        for layer in range(3):
            form = f"{model}::layers={layer}::pooling={pooling}::normalize=no"
            expected = Encoder.load(form, device="cpu").encode(texts)
            np.testing.assert_allclose(states[:, layer], expected, atol=1e-5)


def test_a_cut_text_is_counted(tiny_models):
    form = f"{tiny_models['bert']}::max-length=8"
    texts = ["w1 w2", "w1 w2 w3 w4 w5 w6 w7 w8 w9"]
    (one,) = SentenceEncoders([form], CPU).vectors(texts, texts)
    assert one.cut == 1
