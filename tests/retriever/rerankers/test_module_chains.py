"""Chains of modules, such as Ettin's rerankers, give the scores of sentence-transformers."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from retriever import load_reranker
from retriever.errors import ModelError
from retriever.rerankers.cross import LightCrossEncoder, ModularCrossEncoder, load_classifier
from tests.retriever.encoders.architectures import CLOSE, WIDTH
from tests.retriever.rerankers.test_classifier import LIGHT
from tests.retriever.rerankers.test_cross import CUT, PAIRS, QUESTIONS, SHALLOW, TEXTS, WINDOW

theirs = pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.usefixtures("one_thread")
BACKENDS = [
    pytest.param(
        backend,
        marks=pytest.mark.skipif(not find_spec(backend), reason=f"{backend} is not installed"),
    )
    for backend in ("numpy", "openvino")
]
MODULES = "modules.json"
DENSE = "2_Dense/config.json"
NORM = "3_LayerNorm/model.safetensors"
LAST = "4_Dense/config.json"
# Standard deviation of weights, with which few scores are near 0 or 1.
SPREAD = 0.3
SETTINGS = "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"


def make_chain(source, folder, pooling="cls", bias=False, activation=None, inner="GELU"):
    """Save the transformer of a folder with the modules of an Ettin reranker, random weights."""
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling

    torch.manual_seed(2)
    function = getattr(torch.nn, inner)()
    score = {"activation_function": torch.nn.Identity(), "module_output_name": "scores"}
    modules = [
        Transformer(str(source), max_seq_length=WINDOW),
        Pooling(WIDTH, pooling),
        Dense(WIDTH, 2 * WIDTH, bias=bias, activation_function=function),
        LayerNorm(2 * WIDTH),
        Dense(2 * WIDTH, 1, **score),
    ]
    for module in modules[2:]:
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, float(module is modules[3]), SPREAD)
    model = theirs.CrossEncoder(modules=modules, activation_fn=activation, device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


@pytest.fixture
def save_chain(folders, tmp_path):
    """Function that saves a chain with the transformer of a name."""

    def save(name="modernbert", *arguments, **settings):
        return make_chain(folders(name), tmp_path / "chain", *arguments, **settings)

    return save


def reference_scores(folder):
    return theirs.CrossEncoder(str(folder), device="cpu").predict(PAIRS)


def change(file, **values):
    """Change keys of a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def require_equal(model, folder):
    scores = model.score(QUESTIONS, TEXTS)
    expected = reference_scores(folder)
    assert scores.dtype == np.float32
    assert np.ptp(expected) > 0.005
    np.testing.assert_allclose(scores, expected, **CLOSE)
    assert model.cut == CUT
    assert model.max_length == WINDOW


@pytest.mark.parametrize("name", LIGHT)
@pytest.mark.parametrize("backend", BACKENDS)
def test_chain_without_torch_scores_like_sentence_transformers(name, backend, save_chain):
    folder = save_chain(name)
    model = load_classifier(str(folder), device="cpu", backend=backend)
    assert isinstance(model, LightCrossEncoder)
    require_equal(model, folder)


@pytest.mark.parametrize("name", [name for name in SHALLOW if name != "deberta-v2"])
def test_chain_in_torch_scores_like_sentence_transformers(name, save_chain):
    folder = save_chain(name)
    model = load_classifier(str(folder), device="cpu", backend="torch")
    assert isinstance(model, ModularCrossEncoder)
    require_equal(model, folder)


@pytest.mark.parametrize(
    ("pooling", "bias", "activation", "inner"),
    [
        ("mean", True, torch.nn.Identity(), "Tanh"),
        ("max", False, torch.nn.Sigmoid(), "ReLU"),
        ("cls", True, torch.nn.Tanh(), "Identity"),
        ("mean", False, None, "Sigmoid"),
    ],
)
@pytest.mark.parametrize("backend", [*BACKENDS, "torch"])
def test_pooling_bias_and_activations_are_those_of_the_files(
    pooling, bias, activation, inner, backend, save_chain
):
    folder = save_chain("bert", pooling, bias, activation, inner)
    require_equal(load_classifier(str(folder), device="cpu", backend=backend), folder)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backend", BACKENDS)
def test_half_precision_weights_score_like_the_same_weights_in_float32(dtype, backend, save_chain):
    folder = save_chain()
    for file in folder.rglob("*.safetensors"):
        tensors = load_file(file)
        save_file({name: tensor.to(dtype) for name, tensor in tensors.items()}, file)
    scores = load_classifier(str(folder), device="cpu", backend=backend).score(QUESTIONS, TEXTS)
    for file in folder.rglob("*.safetensors"):
        save_file({name: tensor.float() for name, tensor in load_file(file).items()}, file)
    np.testing.assert_allclose(scores, reference_scores(folder), **CLOSE)


def test_chain_in_bfloat16_and_int8_is_close_to_float32(save_chain):
    if not find_spec("openvino"):
        pytest.skip("OpenVINO is not installed")
    folder = save_chain(activation=torch.nn.Identity())
    expected = reference_scores(folder)
    for backend, dtype in (("openvino", "bfloat16"), ("openvino", "int8"), ("torch", "bfloat16")):
        model = load_classifier(str(folder), device="cpu", backend=backend, dtype=dtype)
        scores = model.score(QUESTIONS, TEXTS)
        assert np.corrcoef(scores, expected)[0, 1] > 0.97


def test_reranker_of_a_chain_orders_passages(save_chain):
    folder = save_chain()
    reranker = load_reranker(folder, device="cpu")
    scores = reranker.score("w1 w2", None, TEXTS[:2], None)
    expected = theirs.CrossEncoder(str(folder), device="cpu").predict(
        [("w1 w2", text) for text in TEXTS[:2]]
    )
    np.testing.assert_allclose(scores, expected, **CLOSE)


def replace_modules(*types):
    def replace(folder):
        modules = json.loads((folder / MODULES).read_text())
        entries = []
        for place, name in enumerate(types):
            entry = next((e for e in modules if e["type"].endswith(f".{name}")), modules[-1])
            full_name = name if "." in name else f"sentence_transformers.models.{name}"
            entries.append(entry | {"idx": place, "type": full_name})
        (folder / MODULES).write_text(json.dumps(entries))

    return replace


def change_file(name, **values):
    return lambda folder: change(folder / name, **values)


def remove_tensor(folder):
    tensors = load_file(folder / NORM)
    save_file({"norm.weight": tensors["norm.weight"]}, folder / NORM)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (replace_modules("Transformer", "LogitScore"), "found LogitScore as module 2"),
        (replace_modules("Transformer", "Pooling", "Normalize", "Dense"), "found Normalize as mod"),
        (replace_modules("Transformer", "Pooling", "mine.Dense"), "found mine.Dense as module 3"),
        (replace_modules("Transformer", "Pooling", "LayerNorm"), "expected a Dense module at the"),
        (replace_modules("Transformer"), "expected a Dense module at the end"),
        (change_file(LAST, out_features=2), "of one label, whose score orders passages, found 2"),
        (change_file(LAST, module_output_name="logits"), "to 'logits'"),
        (change_file(DENSE, module_input_name="token_embeddings"), "from 'token_embeddings'"),
        (change_file(DENSE, use_residual=True), "with residual"),
        (change_file(DENSE, out_features=10**9), "expected shape (1000000000, 16), found"),
        (change_file(DENSE, out_features=None), "linear: expected shape (None, 16), found"),
        (change_file(DENSE, bias=True), "linear: expected a bias, found none"),
        (change_file(DENSE, activation_function="torch.nn.SiLU"), "function torch.nn.SiLU, which"),
        (change_file(DENSE, activation_function="mine.GELU"), "function mine.GELU, which is not"),
        (change_file(SETTINGS, activation_fn="torch.nn.Softmax"), "function torch.nn.Softmax"),
        (change_file(SETTINGS, prompts={"a": "Q: "}, default_prompt_name="a"), "needs a prompt"),
        (change_file(SETTINGS, prompts=[1]), "not of the form that sentence-transformers writes"),
        (change_file("1_Pooling/config.json", pooling_mode="lasttoken"), "lasttoken pooling"),
        (change_file("1_Pooling/config.json", pooling_mode=["cls", "mean"]), "not of the form"),
        (change_file(TRANSFORMER, transformer_task="fill-mask"), "another transformer_task"),
        (change_file(TRANSFORMER, do_lower_case=True), "another do_lower_case"),
        (change_file(TRANSFORMER, processing_kwargs={"text": {}}), "another processing_kwargs"),
        (change_file(TRANSFORMER, modality_config={"text": {}}), "another modality_config"),
        (change_file(TRANSFORMER, modality_config=[1]), "not of the form"),
        (lambda folder: (folder / NORM).unlink(), "no model.safetensors"),
        (lambda folder: (folder / NORM).write_bytes(b"short"), "3_LayerNorm"),
        (lambda folder: (folder / DENSE).unlink(), "out_features"),
        (lambda folder: (folder / MODULES).write_text('{"a": 1}'), "not of the form"),
        (lambda folder: (folder / MODULES).write_text('[{"type": 1}]'), "not of the form"),
        (lambda folder: (folder / SETTINGS).write_text("[]"), "not of the form"),
        (remove_tensor, "norm: expected a bias, found none"),
    ],
)
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_unsupported_and_damaged_chains_are_refused_in_one_line(
    damage, message, backend, save_chain
):
    folder = save_chain()
    damage(folder)
    with pytest.raises(ModelError) as caught:
        load_reranker(folder, device="cpu", backend=backend)
    error = str(caught.value)
    assert message in error
    assert str(folder) in error
    assert "\n" not in error


def test_an_encoder_is_not_made_of_a_chain(save_chain):
    from retriever import Encoder

    with pytest.raises(ModelError, match="LayerNorm module, which is not supported"):
        Encoder.load(str(save_chain()))


def test_float16_runs_in_torch_alone(save_chain):
    folder = save_chain()
    model = load_classifier(str(folder), device="cpu", dtype="float16")
    assert isinstance(model, ModularCrossEncoder)
    np.testing.assert_allclose(
        model.score(QUESTIONS, TEXTS), reference_scores(folder), rtol=0, atol=0.01
    )
