"""Folders of static encoders: saved, loaded, checked, and refused."""

import json
import re

import numpy as np
import pytest

from retriever.encoders import is_folder_with
from retriever.encoders.registry import STATIC_FILE
from retriever.encoders.static import FitSettings, StaticModel, fit_static
from retriever.errors import ConfigError, ModelError
from tests.retriever.encoders.static.static_samples import TEXTS, write_vectors


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_vectors(tmp_path_factory.mktemp("vectors"))


@pytest.mark.parametrize("method", ["average", "sif", "usif", "p-mean"])
@pytest.mark.parametrize("source", ["file", "model"])
def test_a_saved_encoder_is_loaded_as_it_was(file, tiny_models, tmp_path, method, source):
    texts = ["w1 w2 w3", "w2 w2 w9", "w4 nothing"] if source == "model" else TEXTS
    model = fit_static(tiny_models["bert"] if source == "model" else file, method, texts)
    folder = tmp_path / "encoder"
    model.save(folder)
    assert is_folder_with(STATIC_FILE, folder)
    loaded = StaticModel.load(folder)
    assert (loaded.weights, loaded.method) == (model.weights, model.method)
    assert loaded.tokenize(texts) == model.tokenize(texts)
    assert [loaded.piece_offsets(text) for text in texts] == [
        model.piece_offsets(text) for text in texts
    ]
    np.testing.assert_array_equal(
        loaded.embed(loaded.tokenize(texts)), model.embed(model.tokenize(texts))
    )
    assert loaded.provenance == model.provenance
    # Saved again, over itself, it is the same.
    loaded.save(folder)
    assert StaticModel.load(folder).weights == model.weights
    assert [path.name for path in tmp_path.iterdir()] == ["encoder"]


def test_the_same_words_vectors_and_method_have_the_same_weights_and_others_do_not(file, tmp_path):
    zipped = tmp_path / "other-name.txt"
    zipped.write_bytes(file.read_bytes().partition(b"\n")[2])
    model = fit_static(file, "average", ())
    assert fit_static(zipped, "average", ()).weights == model.weights
    others = [
        fit_static(file, "p-mean", ()),
        fit_static(file, "sif", TEXTS),
        fit_static(file, "sif", TEXTS, settings=FitSettings(a=0.5)),
        fit_static(file, "sif", TEXTS, settings=FitSettings(components=0)),
        fit_static(file, "sif", TEXTS[:2]),
    ]
    assert len({model.weights, *(other.weights for other in others)}) == 6
    assert re.fullmatch("[0-9a-f]{64}", model.weights)


def test_words_with_odd_line_ends_survive_a_folder(tmp_path):
    words = ["a\x85b", "c\u2028d", "e\rf", "g h"]
    path = tmp_path / "words.vec"
    path.write_bytes(b"4 2\n" + b"".join(word.encode() + b" 1 2\n" for word in words))
    fit_static(path, "average", ()).save(tmp_path / "encoder")
    assert StaticModel.load(tmp_path / "encoder").lexicon.tokenizer.words == words


@pytest.fixture
def folder(file, tmp_path):
    fit_static(file, "sif", TEXTS).save(tmp_path / "encoder")
    return tmp_path / "encoder"


@pytest.mark.parametrize("name", ["static.json", "vectors.safetensors", "vocabulary.txt"])
def test_an_altered_truncated_or_missing_file_is_named(folder, name):
    content = (folder / name).read_bytes()
    altered = bytearray(content)
    altered[-1 if name.startswith("vectors") else 0] ^= 1
    for damaged in (altered, content[: len(content) // 2], None):
        (folder / name).unlink()
        if damaged is not None:
            (folder / name).write_bytes(damaged)
        with pytest.raises(ModelError, match=name):
            StaticModel.load(folder)
        (folder / name).touch()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"surprise": 1}, "unknown key 'surprise'"),
        ({"weights": None}, "no key 'weights'"),
        ({"method": "median"}, "'median' as method"),
        ({"method": "usif"}, "SHA-256"),
        ({"method": "average"}, "SHA-256"),
        ({"kind": "word-pieces"}, "tokenizer.json"),
        ({"parameters": {"a": 1}}, "SHA-256"),
        ({"parameters": 3}, "3 as parameters"),
        ({"format": 2}, "expected format 1 or older, found 2"),
        ({"vocabulary": "0"}, "SHA-256"),
    ],
)
def test_a_changed_static_json_is_refused_in_one_line(folder, change, said):
    path = folder / "static.json"
    settings = json.loads(path.read_text())
    kept = {name: one for name, one in (settings | change).items() if one is not None}
    path.write_text(json.dumps(kept | {"tokenizer": None, "unknown": None}))
    with pytest.raises(ModelError, match=re.escape(said)) as caught:
        StaticModel.load(folder)
    assert "\n" not in str(caught.value)


def test_an_altered_tokenizer_is_found(tiny_models, tmp_path):
    fit_static(tiny_models["bert"], "average", ()).save(tmp_path / "encoder")
    path = tmp_path / "encoder/tokenizer.json"
    path.write_text(path.read_text().replace("w17", "x17"))
    with pytest.raises(ModelError, match=r"tokenizer\.json: expected what .* SHA-256"):
        StaticModel.load(tmp_path / "encoder")


def test_nothing_but_a_static_encoder_is_replaced(file, folder, tmp_path):
    model = fit_static(file, "average", ())
    (tmp_path / "empty").mkdir()
    for target in (folder, tmp_path / "empty"):
        model.save(target)
        assert StaticModel.load(target).method == "average"
    (folder / "notes.txt").write_text("mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/vectors.safetensors").write_text("mine")
    (tmp_path / "plain").write_text("mine")
    for name in ("encoder", "other", "plain", "absent/encoder"):
        with pytest.raises(ConfigError, match="change --output"):
            model.save(tmp_path / name)
    for name in ("encoder/notes.txt", "other/vectors.safetensors", "plain"):
        assert (tmp_path / name).read_text() == "mine"
