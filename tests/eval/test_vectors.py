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


def test_interrupted_embedding_keeps_the_encoded_vectors(tmp_path):
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
def test_damaged_vector_cache_is_an_error_that_names_the_file(tmp_path, damage):
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


def test_cached_vectors_are_dropped_when_the_model_of_the_name_changes(tmp_path):
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
    return [f"{model}::{setting}" for setting in settings or SETTINGS]


def test_encoders_of_one_model_share_a_pass_and_equal_separate_encoders(model, tmp_path, passes):
    encoders = CPU.load_together(forms(model))
    texts = [*TEXTS, TEXTS[0], LONG]
    alone = [Encoder.load(form, device="cpu").encode(texts) for form in forms(model)]
    passes.clear()
    for folder in (None, tmp_path, tmp_path):
        embeddings = list(embed_all(encoders, texts, folder))
        for form, text_vectors, expected in zip(SETTINGS, embeddings, alone, strict=True):
            np.testing.assert_allclose(text_vectors.vectors, expected, atol=2e-6, err_msg=form)
            assert text_vectors.cut == 0
        assert len(passes) == len(set(texts))
        assert set(passes.values()) == {1}


def test_embedding_runs_missing_texts_only_and_reads_stored_vectors(model, tmp_path, passes):
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


def test_truncated_texts_are_counted_and_truncated_as_by_each_encoder(model, tmp_path, passes):
    settings = (
        "max-length=8",
        "pooling=max::max-length=8",
        "sbert-wk::wk-preset=released::start-layer=0::max-length=8",
    )
    encoders = CPU.load_together(forms(model, *settings))
    for _ in range(2):
        embeddings = list(embed_all(encoders, [LONG, LONG, "w1"], tmp_path))
        assert [text_vectors.cut for text_vectors in embeddings] == [2, 2, 2]
    # The released code cuts off [SEP]: another sequence, and the only one that is run again.
    assert sorted(passes.values()) == [1, 1, 1]
    alone = Encoder.load(forms(model, settings[2])[0], device="cpu")
    with pytest.warns(UserWarning, match="were cut"):
        np.testing.assert_allclose(embeddings[2].vectors[0], alone.encode([LONG])[0], atol=2e-6)


def test_encoders_with_prompt_and_static_encoders_equal_separate_encoders(model, tmp_path, passes):
    settings = ("last", "passage-prompt=w3 %20", "static=average", "static=p-mean")
    encoders = CPU.load_together(forms(model, *settings))
    texts = [text for text in TEXTS if text]
    embeddings = list(embed_all(encoders, texts, tmp_path))
    for form, text_vectors in zip(forms(model, *settings), embeddings, strict=True):
        alone = Encoder.load(form, device="cpu").encode(texts)
        np.testing.assert_allclose(text_vectors.vectors, alone, atol=2e-6, err_msg=form)


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
    embeddings = list(embed_all(CPU.load_together(paths), texts, tmp_path / "cache"))
    assert set(passes.values()) == {1}
    for text_vectors, vectors in zip(embeddings, alone, strict=True):
        np.testing.assert_allclose(text_vectors.vectors, vectors, atol=2e-6)


@pytest.fixture(scope="module")
def texts():
    random = np.random.default_rng(0)
    return list(dict.fromkeys(sentence(random) for _ in range(60)))


def test_encoder_form_without_model_gets_the_given_model():
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
    ("call", "arguments", "message"),
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
def test_duplicate_or_invalid_encoder_forms_are_refused(call, arguments, message):
    with pytest.raises(ConfigError, match=message):
        call(*arguments)


@pytest.mark.parametrize("method", ["sif", "usif"])
def test_sif_weights_are_fitted_on_each_set_unless_saved(tiny_models, texts, tmp_path, method):
    name = str(tiny_models["bert"])
    encoders = SentenceEncoders([f"{name}::static={method}"], CPU)
    for number, part in enumerate((texts[:30], texts[20:])):
        (text_vectors,) = encoders.vectors(part, part[::2])
        folder = tmp_path / str(number)
        fit_static(name, method, part[::2]).save(folder)
        expected = Encoder.load(str(folder)).encode(part)
        np.testing.assert_allclose(text_vectors.of(part), expected, atol=1e-6)
        # A folder that was fitted before is taken as it is.
        (again,) = SentenceEncoders([str(folder)], CPU).vectors(part, part[:5])
        np.testing.assert_allclose(again.of(part), expected, atol=1e-6)


def test_layer_encoders_get_every_pooling_from_one_pass(tiny_models, texts, passes):
    tiny = f"{tiny_models['bert']}::max-length=32"
    layers = LayerEncoders([tiny], ("mean", "cls", "max"), CPU)
    assert layers.depth(tiny) == 2
    layer_vectors = list(layers.vectors(texts))
    assert set(passes.values()) == {1}
    for pooling, text_vectors in zip(layers.poolings, layer_vectors, strict=True):
        form = f"{tiny}::layers=1::pooling={pooling}::normalize=no"
        expected = Encoder.load(form, device="cpu").encode(texts)
        np.testing.assert_allclose(text_vectors.of(texts)[:, 1], expected, atol=1e-5)
