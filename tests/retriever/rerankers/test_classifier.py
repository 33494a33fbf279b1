"""CrossEncoders of sentence-transformers give the scores of its `predict`; others are refused."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from retriever import load_reranker
from retriever.errors import MissingExtraError, ModelError
from retriever.rerankers.cross import Classifier, LightCrossEncoder, load_classifier
from tests.retriever.encoders.architectures import CLOSE
from tests.retriever.rerankers.test_cross import PAIRS, QUESTIONS, SHALLOW, TEXTS

theirs = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.usefixtures("one_thread")
SMALL_WINDOW = {"tokenizer_config.json": {"model_max_length": 30}}
IDENTITY, TANH = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh"
SAVED = "config_sentence_transformers.json"
MODULES = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
CLASSIFICATION = {"transformer_task": "sequence-classification"}
PROMPT = {"prompts": {"ask": "Q: "}, "default_prompt_name": "ask"}
# Models that run without torch, and models with the files of a RoBERTa.
LIGHT = ("bert", "distilbert", "modernbert", "mpnet", "roberta")
RENAMED = {"camembert": "Camembert", "xlm-roberta": "XLMRoberta"}


@pytest.fixture
def save_classifier(folders, tmp_path):
    """Function that saves a classifier of a model, with changed keys of its JSON files."""

    def make(name="bert", labels=1, files=SMALL_WINDOW):
        from transformers import AutoModelForSequenceClassification

        torch.manual_seed(1)
        folder = shutil.copytree(folders(name), tmp_path / name)
        model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=labels)
        torch.nn.init.normal_(list(model.parameters())[-2])
        model.save_pretrained(folder)
        for file, keys in files.items():
            path = folder / file
            known = json.loads(path.read_text()) if path.exists() else {}
            path.write_text(json.dumps(known | keys))
            if file == SAVED:
                (folder / "modules.json").write_text(json.dumps(MODULES))
                (folder / "sentence_bert_config.json").write_text(json.dumps(CLASSIFICATION))
        return folder

    return make


def reference_scores(folder, **options):
    return theirs.CrossEncoder(str(folder), device="cpu", **options).predict(PAIRS)


@pytest.mark.parametrize("name", SHALLOW)
def test_classifier_scores_in_torch_equal_sentence_transformers(name, save_classifier):
    folder = save_classifier(name)
    model = load_classifier(str(folder), device="cpu", backend="torch")
    assert isinstance(model, Classifier)
    scores = model.score(QUESTIONS, TEXTS)
    assert np.ptp(scores) > 0.005
    np.testing.assert_allclose(scores, reference_scores(folder), **CLOSE)
    assert model.cut


@pytest.mark.parametrize("name", LIGHT)
@pytest.mark.parametrize("backend", ["numpy", "openvino"])
def test_classifier_scores_without_torch_equal_sentence_transformers(
    name, backend, save_classifier
):
    require_equal_without_torch(save_classifier(name), backend)


@pytest.mark.parametrize("name", RENAMED)
@pytest.mark.parametrize("backend", ["numpy", "openvino"])
def test_classifier_of_another_name_scores_like_sentence_transformers(
    name, backend, save_classifier
):
    architecture = f"{RENAMED[name]}ForSequenceClassification"
    names = {"model_type": name, "architectures": [architecture]}
    folder = save_classifier("roberta", files=SMALL_WINDOW | {"config.json": names})
    assert type(theirs.CrossEncoder(str(folder)).model).__name__ == architecture
    require_equal_without_torch(folder, backend)


def require_equal_without_torch(folder, backend):
    if find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    model = load_classifier(str(folder), device="cpu", backend=backend)
    assert isinstance(model, LightCrossEncoder)
    np.testing.assert_allclose(model.score(QUESTIONS, TEXTS), reference_scores(folder), **CLOSE)
    assert model.max_length == 30


@pytest.mark.parametrize(
    "files",
    [
        {"config.json": {"sbert_ce_default_activation_function": IDENTITY}},
        {"config.json": {"sentence_transformers": {"activation_fn": TANH}}},
    ],
    ids=["before 4", "4"],
)
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_the_activation_is_where_older_releases_write_it(files, backend, save_classifier):
    folder = save_classifier(files=files)
    scores = load_classifier(str(folder), device="cpu", backend=backend).score(QUESTIONS, TEXTS)
    np.testing.assert_allclose(scores, reference_scores(folder), **CLOSE)
    assert np.ptp(scores) > 0.01


def test_classifier_saved_by_installed_release_is_loaded(save_classifier, tmp_path):
    made_by_hand, saved = save_classifier(), tmp_path / "saved"
    model = theirs.CrossEncoder(
        str(made_by_hand), device="cpu", max_length=20, activation_fn=torch.nn.Identity()
    )
    model.save_pretrained(str(saved))
    reranker = load_reranker(saved, device="cpu")
    question, texts = "w1 w2 w3?", TEXTS[:4]
    with pytest.warns(UserWarning, match="window of 20 tokens"):
        scores = reranker.score(question, None, texts, None)
    expected = model.predict([(question, text) for text in texts])
    np.testing.assert_allclose(scores, expected, **CLOSE)


def test_a_classifier_that_needs_torch_says_why(save_classifier, monkeypatch):
    folder = save_classifier("xlnet")
    monkeypatch.setattr("retriever.errors.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"architecture xlnet.* needs torch, .*pip install"):
        load_classifier(str(folder), device="cpu")


def test_settings_that_sentence_transformers_ignores_are_ignored(save_classifier):
    # Without this model type it makes a CrossEncoder of other modules.
    folder = save_classifier(files={SAVED: PROMPT | {"activation_fn": TANH}})
    scores = load_classifier(str(folder), device="cpu").score(QUESTIONS, TEXTS)
    np.testing.assert_allclose(scores, reference_scores(folder), **CLOSE)


def test_a_hub_id_is_downloaded_if_asked(save_classifier, monkeypatch):
    import huggingface_hub

    folder, asked = save_classifier(), []

    def snapshot(name, local_files_only, allow_patterns):
        asked.append((name, local_files_only))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    load_reranker("someone/a-model", device="cpu", download=True)
    assert asked == [("someone/a-model", False)]


@pytest.mark.parametrize(
    ("labels", "files", "expected"),
    [
        (3, {}, "one label, whose score orders passages, found 3 labels; name another"),
        (1, {"config.json": {"architectures": ["BertModel"]}}, "found BertModel; name another"),
        (
            1,
            {"config.json": {"sbert_ce_default_activation_function": "mine.Squash"}},
            "needs the activation function mine.Squash, which is not supported",
        ),
        (
            1,
            {SAVED: PROMPT | {"model_type": "CrossEncoder"}},
            "needs a prompt before each text",
        ),
    ],
    ids=["labels", "encoder", "activation", "prompt"],
)
def test_unsupported_classifiers_are_refused_in_one_line(labels, files, expected, save_classifier):
    folder = save_classifier(labels=labels, files=files)
    with pytest.raises(ModelError, match=expected) as caught:
        load_reranker(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
