"""Heads of classifiers in NumPy, against transformers' classes with random weights."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from retriever.encoders.transformer.architectures.registry import ARCHITECTURES, read_network
from retriever.encoders.transformer.numpy_engine import NumPyEngine
from retriever.encoders.transformer.tensors import UnsupportedModelError
from retriever.errors import ModelError
from retriever.rerankers.classifier_heads import read_classifier
from tests.retriever.encoders.transformer.test_networks import MODELS, draw_ids, open_folder

pytestmark = pytest.mark.usefixtures("one_thread")
MODERNBERT = {
    "modernbert, mean": {"classifier_pooling": "mean"},
    "modernbert, relu": {"classifier_activation": "relu"},
    "modernbert, classifier biases": {"classifier_bias": True, "norm_bias": True},
}
NAMES = [*MODELS, *MODERNBERT]


def save_classifier(name, folder, dtype=torch.float32, **saving):
    """Save a classifier with random weights, biases and norms; return it in float32."""
    torch.manual_seed(4)
    kind, settings = MODELS[name if name in MODELS else "modernbert"]
    settings = settings | MODERNBERT.get(name, {})
    config = getattr(transformers, f"{kind}Config")(num_labels=1, **settings)
    model = getattr(transformers, f"{kind}ForSequenceClassification")(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                is_scale = parameter_name.endswith("weight")
                parameter.copy_(0.2 * torch.randn_like(parameter) + float(is_scale))
    model.to(dtype).save_pretrained(folder, **saving)
    # Loaded again, since the rotations of a converted ModernBERT are rounded.
    return type(model).from_pretrained(folder, dtype=torch.float32).eval()


def score(folder):
    """Return the scores of the ids of `draw_ids` in NumPy."""
    network = read_network(folder)
    head = read_classifier(folder, network.width)
    engine = NumPyEngine(network, [network.depth])
    batches = engine.run(draw_ids())
    return np.concatenate([head.score(batch.states[0], batch.lengths) for batch in batches])


def reference_scores(model):
    with torch.inference_mode():
        logits = [model(input_ids=torch.tensor([ids])).logits[0, 0] for ids in draw_ids()]
    return torch.stack(logits).numpy()


def test_every_architecture_without_torch_has_its_classifier():
    assert {name.partition(",")[0] for name in NAMES} == set(ARCHITECTURES)


@pytest.mark.parametrize("name", NAMES)
def test_scores_of_a_classifier_equal_transformers(name, tmp_path):
    expected = reference_scores(save_classifier(name, tmp_path))
    scores = score(open_folder(tmp_path))
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["bert", "distilbert", "modernbert, mean"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_in_several_files_equal_transformers(name, dtype, tmp_path):
    expected = reference_scores(save_classifier(name, tmp_path, dtype, max_shard_size="20KB"))
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    scores = score(open_folder(tmp_path))
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("name", "layer", "replacement", "message"),
    [
        ("bert", "classifier.weight", None, "classifier: expected shape (1, 32)"),
        ("bert", "bert.pooler.dense.bias", None, "bert.pooler.dense: expected a bias"),
        ("roberta", "classifier.out_proj.weight", (3, 32), "expected shape (1, 32)"),
        ("distilbert", "pre_classifier.weight", (32, 16), "expected shape (32, 32)"),
        ("modernbert", "head.norm.weight", (5,), "head.norm: expected shape (32,)"),
    ],
)
def test_classifiers_whose_weights_do_not_fit_are_refused(
    name, layer, replacement, message, tmp_path
):
    save_classifier(name, tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors[layer]
    if replacement is not None:
        tensors[layer] = torch.zeros(replacement)
    save_file(tensors, file)
    with pytest.raises(ModelError) as caught:
        score(open_folder(tmp_path))
    error = str(caught.value)
    assert message in error
    assert str(tmp_path) in error
    assert error.endswith("save the model again")
    assert "\n" not in error


def test_an_activation_that_only_torch_has_is_unsupported(tmp_path):
    save_classifier("modernbert", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"classifier_activation": "silu"}))
    with pytest.raises(UnsupportedModelError, match="activation"):
        score(open_folder(tmp_path))
