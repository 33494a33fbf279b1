"""A cross-encoder's scores, against other libraries', with and without torch; its folder."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from retriever.errors import ConfigError, ModelError
from retriever.rerankers import CrossEncoder, load_cross_encoder, write_cross_encoder
from retriever.rerankers.cross import LightCrossEncoder, load_classifier, read_training
from tests.retriever.encoders.architectures import CLOSE, DEPTHS, OTHERS
from tests.retriever.training.training_samples import SETTINGS, cross_encoder, train

pytestmark = pytest.mark.usefixtures("one_thread")
SHALLOW = [name for name in (*DEPTHS, *OTHERS) if name not in ("bert12", "roberta24")]
LONG = " ".join(f"w{number}" for number in range(40))
# Both cut and whole at a window of 30, of many lengths, so that batches are padded.
PAIRS = [
    ("w1 w2 w3?", "w7 w3, w8"),
    ("w4", "w1"),
    ("Hello", LONG),
    (LONG, "w9 w2"),
    (LONG, LONG + " w1"),
    ("w5 w9 w30", "w2 w11 w0 w39 w4 w21 w8"),
    ("", "w3"),
    ("w3", ""),
    ("w3", "w1"),
]
QUESTIONS, TEXTS = [left for left, _ in PAIRS], [right for _, right in PAIRS]
WINDOW = 30
CUT = 3


def reference_scores(folder, model):
    """Return the scores of pairs run one at a time in transformers, with the head in NumPy."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    transformer = AutoModel.from_pretrained(folder).eval()
    head = {name: one.double().numpy() for name, one in model.head.state_dict().items()}
    scores = []
    for left, right in PAIRS:
        inputs = tokenizer(
            # Outside a batch an empty passage would be taken for a missing one.
            [left],
            [right],
            truncation=True,
            max_length=model.max_length,
            return_tensors="pt",
        )
        with torch.inference_mode():
            states = transformer(**inputs).last_hidden_state[0].double().numpy()
        ids = inputs["input_ids"][0].tolist()
        first = tokenizer.cls_token_id
        cls = states[ids.index(first) if first in ids else 0]
        hidden = np.tanh(head["dense.weight"] @ cls + head["dense.bias"])
        scores.append((head["out.weight"] @ hidden + head["out.bias"])[0])
    return np.array(scores)


@pytest.mark.parametrize("name", SHALLOW)
def test_cross_encoder_scores_equal_transformers_with_separate_head(name, folders):
    model = cross_encoder(folders(name), max_length=WINDOW)
    scores = model.score(QUESTIONS, TEXTS)
    assert scores.dtype == np.float32
    assert np.ptp(scores) > 0.01
    np.testing.assert_allclose(scores, reference_scores(folders(name), model), **CLOSE)


@pytest.mark.parametrize("name", ["bert", "xlnet", "roberta"])
def test_cross_encoder_in_training_mode_scores_like_loaded_one(name, folders):
    quick = cross_encoder(folders(name), max_length=WINDOW)
    model = cross_encoder(folders(name), max_length=WINDOW, training=True)
    scores = model.score(QUESTIONS, TEXTS)
    np.testing.assert_allclose(scores, quick.score(QUESTIONS, TEXTS), **CLOSE)
    # Dropout is off while it scores, and on afterwards.
    np.testing.assert_array_equal(model.score(QUESTIONS, TEXTS), scores)
    assert model.head.training
    assert model.backbone.model.training
    assert not quick.head.training
    assert not quick.backbone.model.training


def test_pairs_are_counted_that_are_scored_and_that_are_cut(folders):
    model, done = cross_encoder(folders("bert"), max_length=WINDOW), []
    scores = model.score(QUESTIONS * 20, TEXTS * 20, done.append)
    np.testing.assert_allclose(scores, np.tile(model.score(QUESTIONS, TEXTS), 20), **CLOSE)
    model.cut -= CUT
    assert (model.cut, sum(done)) == (20 * CUT, 20 * len(PAIRS))
    assert len(done) > 1
    assert model.score([], []).shape == (0,)
    # [CLS], [SEP] and [SEP] leave room for 27 words.
    for words, cut in ((26, 0), (27, 1)):
        model.cut = 0
        model.score(["w1"], [" ".join(["w2"] * words)])
        assert model.cut == cut


@pytest.mark.parametrize("way", ["dtype", "autocast"])
def test_bfloat16_is_close_to_float32(way, folders):
    expected = cross_encoder(folders("bert"), max_length=WINDOW).score(QUESTIONS, TEXTS)
    if way == "dtype":
        model = cross_encoder(folders("bert"), max_length=WINDOW, dtype="bfloat16")
    else:
        model = cross_encoder(folders("bert"), max_length=WINDOW, training=True)
        model.autocast = True
    scores = model.score(QUESTIONS, TEXTS)
    assert scores.dtype == np.float32
    assert (scores != expected).any()
    np.testing.assert_allclose(scores, expected, rtol=0, atol=0.1)
    assert np.corrcoef(scores, expected)[0, 1] > 0.98


TRAINING = {"curve": [{"epoch": 1, "dev": 0.5}], "identity": {"data": "ab12"}}


@pytest.fixture(scope="module")
def model(folders, one_thread):
    return cross_encoder(folders("bert"), training=True, max_length=33)


@pytest.fixture(scope="module")
def saved_cross_encoder(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "cross"
    write_cross_encoder(folder, model, TRAINING)
    return folder


@pytest.fixture
def folder(saved_cross_encoder, tmp_path):
    """A copy that may be damaged."""
    return shutil.copytree(saved_cross_encoder, tmp_path / "cross")


def refusal_of(folder):
    with pytest.raises(ModelError) as caught:
        load_cross_encoder(folder, device="cpu", backend="torch")
    message = str(caught.value)
    assert str(folder) in message
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet", "albert", "distilbert", "modernbert"])
def test_saved_cross_encoder_scores_equal_after_loading(name, folders, tmp_path):
    saved = cross_encoder(folders(name), training=True, max_length=33)
    with torch.no_grad():
        for weight in saved.backbone.model.parameters():
            # The weights in the folder are not those that were loaded.
            weight.mul_(1.1)
    write_cross_encoder(tmp_path / "cross", saved, {})
    found = load_cross_encoder(tmp_path / "cross", device="cpu", backend="torch")
    assert found.max_length == 33
    assert not found.head.training
    assert not found.backbone.model.training
    scores = saved.score(QUESTIONS, TEXTS)
    np.testing.assert_allclose(found.score(QUESTIONS, TEXTS), scores, **CLOSE)
    assert found.cut == saved.cut == CUT
    half = load_cross_encoder(tmp_path / "cross", device="cpu", backend="torch", dtype="bfloat16")
    np.testing.assert_allclose(half.score(QUESTIONS, TEXTS), scores, atol=0.15)


def test_reranker_folder_is_replaced_but_no_other_folder(model, folder, tmp_path):
    assert read_training(folder) == TRAINING
    write_cross_encoder(folder, model, {"again": True})
    assert read_training(folder) == {"again": True}
    (tmp_path / "letter.txt").write_text("Dear")
    with pytest.raises(ConfigError, match=r"expected .* found \w+ in it"):
        write_cross_encoder(tmp_path, model, {})
    assert {path.name for path in tmp_path.iterdir()} == {"cross", "letter.txt"}


def test_a_folder_without_a_reranker_says_what_would_make_one(folders, tmp_path):
    for other in (tmp_path, folders("bert")):
        assert "train one with `retriever train" in refusal_of(other)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "head"}, "of the kind cross-encoder, found 'head'"),
        ({"max_length": "64"}, "found '64' as max_length"),
        ({"weights": "00"}, "weights of another SHA-256"),
    ],
)
def test_an_altered_manifest_is_refused(folder, changed, message):
    path = folder / "reranker.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    assert message in refusal_of(folder)


@pytest.mark.parametrize(
    "name", ["head.safetensors", "model.safetensors", "tokenizer.json", "reranker.json"]
)
def test_a_damaged_file_is_refused(folder, name):
    path = folder / name
    content = path.read_bytes()
    for damaged in (content[:-5], b"", None):
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        refusal_of(folder)
        path.touch()


def test_the_transformer_keeps_the_dropout_that_training_left_out(saved_cross_encoder, folders):
    before, after = (
        json.loads((one / "config.json").read_text())
        for one in (folders("bert"), saved_cross_encoder)
    )
    name = "attention_probs_dropout_prob"
    assert after[name] == before[name] > 0


MANY = (
    ["w1 w2", "w3", "w4 " * 30, "", "w5 w6 w7"] * 40,
    ["w2", "w9 w8 zoo", "w1 " * 40, "w3 w3", "Hello, w1!"] * 40,
)
needs_openvino = pytest.mark.skipif(
    find_spec("openvino") is None, reason="OpenVINO is not installed"
)


@pytest.fixture
def saved_as(folders, tmp_path):
    def make(name):
        write_cross_encoder(
            tmp_path / name, cross_encoder(folders(name), training=True, max_length=33), {}
        )
        return tmp_path / name

    return make


@pytest.mark.parametrize("backend", ["numpy", pytest.param("openvino", marks=needs_openvino)])
@pytest.mark.parametrize("name", ["bert", "distilbert", "modernbert", "mpnet", "roberta"])
def test_light_cross_encoder_scores_equal_torch(name, backend, saved_as, folders):
    saved = saved_as(name)
    reference = load_cross_encoder(saved, device="cpu", backend="torch")
    found = load_cross_encoder(saved, device="cpu", backend=backend)
    assert isinstance(found, LightCrossEncoder)
    counted = []
    scores = found.score(*MANY, counted.append)
    np.testing.assert_allclose(scores, reference.score(*MANY), **CLOSE)
    assert sum(counted) == len(MANY[0])
    assert found.cut == reference.cut > 0
    assert found.max_length == 33


@pytest.mark.parametrize("name", ["distilbert", "modernbert"])
def test_trained_cross_encoder_scores_equal_without_torch(name, folders, tmp_path):
    trained, _ = train(folders(name), replace(SETTINGS, epochs=1))
    write_cross_encoder(tmp_path / "cross", trained, {})
    loaded = load_cross_encoder(tmp_path / "cross", device="cpu", backend="numpy")
    assert isinstance(loaded, LightCrossEncoder)
    scores = loaded.score(QUESTIONS, TEXTS)
    assert np.ptp(scores) > 0.01
    np.testing.assert_allclose(scores, trained.score(QUESTIONS, TEXTS), **CLOSE)


@needs_openvino
def test_auto_takes_openvino_for_models_that_it_runs(saved_as):
    saved = saved_as("bert")
    assert isinstance(load_cross_encoder(saved, device="cpu"), LightCrossEncoder)
    found = load_cross_encoder(saved, device="cpu", backend="torch")
    assert isinstance(found, CrossEncoder)
    saved = saved_as("xlnet")
    assert isinstance(load_cross_encoder(saved, device="cpu"), CrossEncoder)
    with pytest.raises(ConfigError, match="cannot run with openvino"):
        load_cross_encoder(saved, device="cpu", backend="openvino")


@pytest.mark.parametrize(
    "name", ["bert", "albert", "deberta-v2", "mpnet", "roberta", "xlnet", "xlnet-untyped"]
)
def test_sentence_transformers_and_transformers_give_the_same_scores(name, saved_as):
    theirs = pytest.importorskip("sentence_transformers")
    folder = saved_as(name)
    scores = load_cross_encoder(folder, device="cpu", backend="torch").score(QUESTIONS, TEXTS)
    model = theirs.CrossEncoder(str(folder), device="cpu")
    assert type(model.model).__name__.endswith("ForSequenceClassification")
    assert model.max_seq_length == 33
    np.testing.assert_allclose(model.predict(PAIRS), scores, **CLOSE)
    # Without its manifest it is one of theirs here too.
    (folder / "reranker.json").unlink()
    again = load_classifier(str(folder), device="cpu").score(QUESTIONS, TEXTS)
    np.testing.assert_allclose(again, scores, **CLOSE)
