"""Many encoders over one model: the vectors of each alone, out of one forward pass a text."""

from __future__ import annotations

import numpy as np
import pytest
from transformers.utils import logging

from eval.vectors import embedding
from eval.vectors.cache import embed
from eval.vectors.embedding import TextVectors, embed_all
from eval.vectors.layers import layer_form, split_layers
from eval.vectors.shared_backbone import load_encoders
from retriever.encoders.encoder import Encoder
from retriever.encoders.meta.fitting import MetaSettings, fit_meta
from retriever.errors import ConfigError, StorageError
from tests.retriever.encoders.architectures import TEXTS, save

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


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    logging.disable_progress_bar()
    yield save("bert", tmp_path_factory.mktemp("models") / "bert")
    logging.enable_progress_bar()


def forms(model, *settings):
    return [f"{model}::{one}" for one in settings or SETTINGS]


def test_every_encoder_gives_the_vectors_it_gives_alone(model, tmp_path):
    encoders = load_encoders(forms(model), device="cpu")
    texts = [*TEXTS, TEXTS[0], LONG]
    for folder in (None, tmp_path / "new", tmp_path / "new"):
        found = list(embed_all(encoders, texts, folder))
        for form, one in zip(forms(model), found, strict=True):
            alone = Encoder.load(form, device="cpu").encode(texts)
            np.testing.assert_allclose(one.vectors, alone, atol=2e-6, err_msg=form)
            assert one.cut == 0


def test_ten_fusions_cost_one_forward_pass_a_text(model, tmp_path, passes):
    encoders = load_encoders(forms(model), device="cpu")
    list(embed_all(encoders, [*TEXTS, *TEXTS], tmp_path))
    assert len(passes) == len(set(TEXTS))
    assert set(passes.values()) == {1}


def test_only_what_is_missing_is_run_and_a_stored_vector_is_read(model, tmp_path, passes):
    first, second = load_encoders(forms(model, "last", "pooling=cls"), device="cpu")
    embed(first, TEXTS[:3], tmp_path)
    passes.clear()
    done = []
    list(embed_all([first, second], TEXTS, tmp_path, done.append))
    assert set(passes.values()) == {1}
    assert len(passes) == len(TEXTS)
    assert sum(done) == 2 * len(TEXTS)
    passes.clear()
    list(embed_all([first, second], TEXTS, tmp_path))
    embed(second, TEXTS, tmp_path)
    assert not passes


def test_texts_that_lose_their_end_are_counted_and_run_as_each_encoder_cuts_them(
    model, tmp_path, passes
):
    settings = (
        "max-length=8",
        "pooling=max::max-length=8",
        "sbert-wk::wk-preset=released::start-layer=0::max-length=8",
    )
    encoders = load_encoders(forms(model, *settings), device="cpu")
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
    encoders = load_encoders(forms(model, *settings), device="cpu")
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
    found = list(embed_all(load_encoders(paths, device="cpu"), texts, tmp_path / "cache"))
    assert set(passes.values()) == {1}
    for one, vectors in zip(found, alone, strict=True):
        np.testing.assert_allclose(one.vectors, vectors, atol=2e-6)


def test_layers_of_every_pooling_come_out_of_the_same_pass(model, tmp_path, passes):
    poolings = ("mean", "max", "cls")
    listed = [*(layer_form(str(model), one) for one in poolings), f"{model}::top-bottom"]
    encoders = load_encoders(listed, device="cpu")
    found = list(embed_all(encoders, TEXTS, tmp_path))
    assert set(passes.values()) == {1}
    for pooling, one, encoder in zip(poolings, found, encoders, strict=False):
        layers = split_layers(one.vectors, encoder.depth)
        alone = Encoder.load(f"{model}::pooling={pooling}", device="cpu").layer_vectors(TEXTS)
        np.testing.assert_allclose(layers, alone, atol=2e-5, err_msg=pooling)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("m::lc:0,1", "layers=0,1, but every layer is scored as it is"),
        ("m::pooling=cls", "leave pooling out"),
        ("m::static=average", "a static encoder has no layers"),
        ("m::head=yes", "leave head out"),
    ],
)
def test_a_sweep_over_layers_refuses_what_it_decides_itself(form, message):
    with pytest.raises(ConfigError, match=message) as caught:
        layer_form(form, "mean")
    assert "\n" not in str(caught.value)


def test_a_damaged_file_is_named(model, tmp_path):
    (encoder,) = load_encoders(forms(model, "last"), device="cpu")
    path = tmp_path / f"{encoder.spec.fingerprint}.sqlite"
    path.write_text("no database, but long enough " * 50)
    with pytest.raises(StorageError, match="remove the file"):
        list(embed_all([encoder], TEXTS, tmp_path))


def test_vectors_are_found_by_text():
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    found = TextVectors(["a", "b", "a"], vectors[[0, 1, 0]]).of(["b", "a", "b"])
    np.testing.assert_array_equal(found, vectors[[1, 0, 1]])
