"""Vectors under one or many encoders: those of each alone, out of one forward pass a text, cached.

Encoders by name, fitted on each set, and layer by layer, against encoders loaded alone.
"""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from transformers.utils import logging

from eval import vectors as embedding
from eval.settings import Loading
from eval.vectors import (
    LISTS,
    LayerEncoders,
    SentenceEncoders,
    embed,
    embed_all,
    layer_form,
    named_encoders,
)
from retriever.encoders import Encoder, parse_encoder
from retriever.encoders.meta import fit_meta
from retriever.encoders.meta.fitting import MetaSettings
from retriever.encoders.static import fit_static
from retriever.errors import ConfigError, StorageError
from tests.conftest import FakeEncoder
from tests.eval.sentences.sentence_samples import sentence
from tests.retriever.encoders.architectures import TEXTS, save

CPU = Loading(device="cpu")
WORDS = ["one two", "three", "one two", "four five six"]
SETTINGS = (
    "last",
    "pooling=cls",
    "pooling=max",
    "last4",
    "layers=all",
    "top-bottom",
    "lc:0,2",
    "sbert-wk::start-layer=1",
    "sbert-wk::wk-preset=released::start-layer=1",
    "pooling=sep::special-tokens=keep::normalize=no",
)
LONG = "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12"


def test_what_was_encoded_before_an_interruption_is_kept(tmp_path):
    encoder = FakeEncoder()
    texts = [f"text {number}" for number in range(3000)]

    def interrupt(texts):
        if encoder.encoded == 3000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(encoder, texts, tmp_path, done=interrupt)
    embed(encoder, texts, tmp_path)
    assert 3000 < encoder.encoded < 4500


@pytest.mark.parametrize("damage", ["no database, but long enough " * 50, "vector"])
def test_a_cache_that_cannot_be_used_is_named_in_one_line(tmp_path, damage):
    encoder = FakeEncoder()
    path = tmp_path / f"{encoder.spec.fingerprint}.sqlite"
    if damage == "vector":
        embed(encoder, WORDS, tmp_path)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE vectors SET vector = ?", (b"short",))
    else:
        path.write_text(damage)
    with pytest.raises(StorageError) as caught:
        embed(encoder, WORDS, tmp_path)
    assert str(path) in str(caught.value)
    assert "remove the file" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_vectors_of_another_model_behind_the_same_name_are_forgotten(tmp_path):
    encoder = FakeEncoder()
    probes = np.eye(3, 16, dtype=np.float32)
    for encoder.probes, encoded in (
        (probes, 3),
        (probes + 1e-4, 3),
        (np.flip(probes, axis=1), 6),
        (np.flip(probes, axis=1), 6),
    ):
        embed(encoder, WORDS, tmp_path)
        assert encoder.encoded == encoded


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    logging.disable_progress_bar()
    yield save("bert", tmp_path_factory.mktemp("models") / "bert")
    logging.enable_progress_bar()


def forms(model, *settings):
    return [f"{model}::{one}" for one in settings or SETTINGS]


def test_every_encoder_gives_the_vectors_it_gives_alone_for_one_pass_a_text(
    model, tmp_path, passes
):
    encoders = CPU.load_together(forms(model))
    texts = [*TEXTS, TEXTS[0], LONG]
    alone = [Encoder.load(form, device="cpu").encode(texts) for form in forms(model)]
    passes.clear()
    for folder in (None, tmp_path, tmp_path):
        found = list(embed_all(encoders, texts, folder))
        for form, one, expected in zip(SETTINGS, found, alone, strict=True):
            np.testing.assert_allclose(one.vectors, expected, atol=2e-6, err_msg=form)
            assert one.cut == 0
        assert len(passes) == len(set(texts))
        assert set(passes.values()) == {1}


def test_only_what_is_missing_is_run_and_a_stored_vector_is_read(model, tmp_path, passes):
    first, second = CPU.load_together(forms(model, "last", "pooling=cls"))
    embed(first, TEXTS[:3], tmp_path)
    passes.clear()
    done = []
    list(embed_all([first, second], TEXTS, tmp_path, done=done.append))
    assert set(passes.values()) == {1}
    assert len(passes) == len(TEXTS)
    assert sum(done) == 2 * len(TEXTS)
    passes.clear()
    list(embed_all([first, second], TEXTS, tmp_path))
    embed(second, TEXTS, tmp_path)
    assert not passes
    embed(second, TEXTS, tmp_path, query=True)
    assert len(passes) == len(TEXTS)
    assert len(list(tmp_path.glob("*.sqlite"))) == 2


def test_texts_that_lose_their_end_are_counted_and_run_as_each_encoder_cuts_them(
    model, tmp_path, passes
):
    settings = (
        "max-length=8",
        "pooling=max::max-length=8",
        "sbert-wk::wk-preset=released::start-layer=0::max-length=8",
    )
    encoders = CPU.load_together(forms(model, *settings))
    for _ in range(2):
        found = list(embed_all(encoders, [LONG, LONG, "w1"], tmp_path))
        assert [one.cut for one in found] == [2, 2, 2]
    # The released code cuts off [SEP]: another sequence, and the only one that is run again.
    assert sorted(passes.values()) == [1, 1, 1]
    alone = Encoder.load(forms(model, settings[2])[0], device="cpu")
    with pytest.warns(UserWarning, match="were cut"):
        np.testing.assert_allclose(found[2].vectors[0], alone.encode([LONG])[0], atol=2e-6)


def test_prompts_and_static_encoders_go_along(model, tmp_path, passes):
    settings = ("last", "passage-prompt=w3 %20", "static=average", "static=p-mean")
    encoders = CPU.load_together(forms(model, *settings))
    texts = [text for text in TEXTS if text]
    found = list(embed_all(encoders, texts, tmp_path))
    for form, one in zip(forms(model, *settings), found, strict=True):
        alone = Encoder.load(form, device="cpu").encode(texts)
        np.testing.assert_allclose(one.vectors, alone, atol=2e-6, err_msg=form)


@pytest.mark.parametrize("level", ["word", "sentence"])
def test_meta_embeddings_of_the_same_sources_cost_one_forward_pass(
    model, tmp_path, passes, monkeypatch, level
):
    # Several batches, of which a backbone keeps the last.
    monkeypatch.setitem(embedding.BATCH_PIECES, "float32", 20)
    sources = [f"{model}::last", f"{model}::layers=0,1"]
    texts = list(dict.fromkeys(TEXTS))
    kinds = {
        "conc": MetaSettings("conc", level=level),
        "avg": MetaSettings("avg", level=level),
        "svd": MetaSettings("svd", level=level, dimensions=5),
    }
    for name, settings in kinds.items():
        fit_meta(texts, sources, tmp_path / name, settings, device="cpu")
    paths = [str(tmp_path / name) for name in kinds]
    alone = [Encoder.load(path, device="cpu").encode(texts) for path in paths]
    passes.clear()
    found = list(embed_all(CPU.load_together(paths), texts, tmp_path / "cache"))
    assert set(passes.values()) == {1}
    for one, vectors in zip(found, alone, strict=True):
        np.testing.assert_allclose(one.vectors, vectors, atol=2e-6)


@pytest.fixture(scope="module")
def texts():
    random = np.random.default_rng(0)
    return list(dict.fromkeys(sentence(random) for _ in range(60)))


def test_a_form_without_a_model_is_of_the_model_that_is_named():
    forms = named_encoders((), ["paper"], "a-model")
    assert len({parse_encoder(form) for form in forms}) == len(forms) == len(LISTS["paper"])
    assert all(form.startswith("a-model::") for form in forms)
    assert named_encoders(["::lc:0,1", "other"], (), "a-model") == ("a-model::lc:0,1", "other")
    # A static encoder gets no number format.
    form = "a-model::dtype=bfloat16::max-length=32"
    forms = named_encoders(["::last", "::static=sif"], (), form)
    assert forms == (f"{form}::last", "a-model::max-length=32::static=sif")
    assert len(named_encoders((), ["paper"], form)) == len(LISTS["paper"])


@pytest.mark.parametrize(
    ("call", "arguments", "said"),
    [
        (named_encoders, ([], []), "at least one"),
        (named_encoders, (["a::lc:0,1", "a::layers=0,1::fusion=mean"], []), "again"),
        (named_encoders, (["::last"], ["paper"]), "again"),
        (named_encoders, (["a::nonsense=1"], []), "unknown setting 'nonsense'"),
        (named_encoders, ([], ["nonsense"]), "expected paper"),
        (layer_form, ("m::lc:0,1", "mean"), "layers=0,1, but every layer of a transformer"),
        (layer_form, ("m::dimensions=8", "mean"), "leave dimensions out"),
        (layer_form, ("m::pooling=cls", "mean"), "leave pooling out"),
        (layer_form, ("m::static=average", "mean"), "static=average, but .* leave static out"),
        (layer_form, ("m::head=yes", "mean"), "leave head out"),
    ],
)
def test_what_cannot_be_told_apart_or_understood_is_refused(call, arguments, said):
    with pytest.raises(ConfigError, match=said):
        call(*arguments)


@pytest.mark.parametrize("method", ["sif", "usif"])
def test_what_is_fitted_is_fitted_on_each_set(tiny_models, texts, tmp_path, method):
    name = str(tiny_models["bert"])
    encoders = SentenceEncoders([f"{name}::static={method}"], CPU)
    for number, part in enumerate((texts[:30], texts[20:])):
        (one,) = encoders.vectors(part, part[::2])
        folder = tmp_path / str(number)
        fit_static(name, method, part[::2]).save(folder)
        expected = Encoder.load(str(folder)).encode(part)
        np.testing.assert_allclose(one.of(part), expected, atol=1e-6)
        # A folder that was fitted before is taken as it is.
        (again,) = SentenceEncoders([str(folder)], CPU).vectors(part, part[:5])
        np.testing.assert_allclose(again.of(part), expected, atol=1e-6)


def test_layers_of_every_pooling_come_out_of_one_pass(tiny_models, texts, passes):
    tiny = f"{tiny_models['bert']}::max-length=32"
    layers = LayerEncoders([tiny], ("mean", "cls", "max"), CPU)
    assert layers.depth(tiny) == 2
    found = list(layers.vectors(texts))
    assert set(passes.values()) == {1}
    for pooling, one in zip(layers.poolings, found, strict=True):
        form = f"{tiny}::layers=1::pooling={pooling}::normalize=no"
        expected = Encoder.load(form, device="cpu").encode(texts)
        np.testing.assert_allclose(one.of(texts)[:, 1], expected, atol=1e-5)
