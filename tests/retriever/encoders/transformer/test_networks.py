"""Every architecture without torch against transformers' own class: all hidden states."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from retriever.encoders.model_folders import ModelFolder, ModelSettings
from retriever.encoders.transformer.architectures.registry import ARCHITECTURES, read_network
from retriever.encoders.transformer.numpy_engine import NumPyEngine
from retriever.encoders.transformer.openvino_engine import OpenVINOEngine
from retriever.encoders.transformer.tensors import UnsupportedModelError
from retriever.errors import ModelError

VOCABULARY = 50
PADDING = 1
WINDOW = 40
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "initializer_range": 0.3,
    "pad_token_id": PADDING,
}
DISTILBERT_SIZES = {
    "vocab_size": VOCABULARY,
    "dim": 32,
    "n_layers": 4,
    "n_heads": 4,
    "hidden_dim": 48,
    "initializer_range": 0.3,
}
# Of four layers of a ModernBERT, the second and third are local.
MODERNBERT_SIZES = SIZES | {
    "max_position_embeddings": WINDOW,
    "bos_token_id": 2,
    "cls_token_id": 2,
    "eos_token_id": 3,
    "sep_token_id": 3,
    "initializer_cutoff_factor": 3.0,
}
# The class and the settings of each model.
MODELS = {
    "bert": ("Bert", SIZES | {"max_position_embeddings": WINDOW}),
    "roberta": ("Roberta", SIZES | {"max_position_embeddings": WINDOW + PADDING + 1}),
    "roberta, another padding": (
        "Roberta",
        SIZES | {"max_position_embeddings": WINDOW + 6, "pad_token_id": 5, "layer_norm_eps": 1e-5},
    ),
    "xlm-roberta": ("XLMRoberta", SIZES | {"max_position_embeddings": WINDOW + PADDING + 1}),
    "camembert": ("Camembert", SIZES | {"max_position_embeddings": WINDOW + PADDING + 1}),
    "distilbert": ("DistilBert", DISTILBERT_SIZES | {"max_position_embeddings": WINDOW}),
    "mpnet": ("MPNet", SIZES | {"max_position_embeddings": WINDOW + PADDING + 1}),
    "modernbert": ("ModernBert", MODERNBERT_SIZES | {"local_attention": 8}),
    "modernbert, wide band": ("ModernBert", MODERNBERT_SIZES | {"local_attention": 200}),
    "modernbert, biases": (
        "ModernBert",
        MODERNBERT_SIZES
        | {
            "attention_bias": True,
            "mlp_bias": True,
            "norm_bias": True,
            "local_attention": 6,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 500.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 80.0},
            },
        },
    ),
}
LENGTHS = (9, 1, WINDOW, 17, 2, 5, 33)
needs_openvino = pytest.mark.skipif(not find_spec("openvino"), reason="OpenVINO is not installed")
# Relative to the largest component of a piece.
CLOSE = 1e-5

pytestmark = pytest.mark.usefixtures("one_thread")


def save_model(name, folder):
    """Save a model with random weights, biases and norms; return it and its folder."""
    torch.manual_seed(3)
    kind, settings = MODELS[name]
    config = getattr(transformers, f"{kind}Config")(**settings)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                is_scale = parameter_name.endswith("weight")
                parameter.copy_(0.2 * torch.randn_like(parameter) + float(is_scale))
    model.save_pretrained(folder)
    return model, open_folder(folder)


def open_folder(path):
    config = json.loads((path / "config.json").read_text())
    return ModelFolder("model", path, "", ModelSettings(), config, None)


def draw_ids(lengths=LENGTHS):
    draw = np.random.default_rng(5)
    return [draw.integers(6, VOCABULARY, length).tolist() for length in lengths]


def states_of(model, ids):
    """Return the hidden states of one text by transformers, (layers, pieces, width)."""
    with torch.inference_mode():
        output = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        return torch.cat(output.hidden_states).float().numpy()


def compare(engine, model, ids, check):
    """Call `check` with the found and the expected states of each text; all texts are there."""
    rows = []
    for batch in engine.run(ids):
        for place, row in enumerate(batch.rows.tolist()):
            found = np.stack([state[place, : len(ids[row])] for state in batch.states])
            check(found, states_of(model, ids[row]))
            rows.append(row)
    assert sorted(rows) == list(range(len(ids)))


def require_close(found, expected):
    assert found.shape == expected.shape
    scale = np.abs(expected).max(axis=-1, keepdims=True)
    assert (np.abs(found - expected) / scale).max() < CLOSE


@pytest.mark.parametrize("name", MODELS)
def test_hidden_states_in_numpy_equal_transformers(name, tmp_path):
    model, folder = save_model(name, tmp_path)
    network = read_network(folder)
    assert (network.width, network.depth, network.max_pieces) == (32, 4, WINDOW)
    compare(NumPyEngine(network, range(5)), model, draw_ids(), require_close)


@needs_openvino
@pytest.mark.parametrize("name", MODELS)
def test_hidden_states_in_openvino_equal_transformers(name, tmp_path):
    model, folder = save_model(name, tmp_path)
    engine = OpenVINOEngine(read_network(folder), range(5), "float32")
    # A batch is padded.
    compare(engine, model, draw_ids(), require_close)
    for ids in draw_ids((1, WINDOW)):
        compare(engine, model, [ids], require_close)


@needs_openvino
@pytest.mark.parametrize("name", MODELS)
def test_pooled_states_in_bfloat16_are_close_to_float32(name, tmp_path):
    model, folder = save_model(name, tmp_path)

    def require_cosine(found, expected):
        first, second = (states[-1].mean(axis=0) for states in (found, expected))
        cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
        assert cosine > 0.999

    engine = OpenVINOEngine(read_network(folder), range(5), "bfloat16")
    compare(engine, model, draw_ids(), require_cosine)


@needs_openvino
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_weights_in_sixteen_bits_are_computed_in_float32(name, dtype, tmp_path):
    model, folder = save_model(name, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    halves = {key: tensor.to(dtype) for key, tensor in tensors.items()}
    save_file(halves, tmp_path / "model.safetensors", {"format": "pt"})
    model.load_state_dict({key: tensor.float() for key, tensor in halves.items()})
    network = read_network(folder)
    compare(NumPyEngine(network, range(5)), model, draw_ids(), require_close)
    compare(OpenVINOEngine(network, range(5), "float32"), model, draw_ids(), require_close)


def test_weights_in_several_files_are_one_model(tmp_path):
    model, folder = save_model("bert", tmp_path)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    (tmp_path / "model.safetensors").unlink()
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    compare(NumPyEngine(read_network(folder), range(5)), model, draw_ids(), require_close)


@pytest.mark.parametrize(
    "index",
    [
        "{}",
        "[]",
        "{",
        '{"weight_map": {"a": "../model.safetensors"}}',
        '{"weight_map": {"a": 3}}',
        '{"weight_map": {"a": "absent.safetensors"}}',
    ],
)
def test_damaged_index_of_weight_files_is_refused(index, tmp_path):
    _, folder = save_model("bert", tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path.parent / "model.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ModelError):
        read_network(folder)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("bert", "hidden_act", "relu"),
        ("bert", "is_decoder", True),
        ("bert", "num_hidden_layers", 5),
        ("bert", "num_attention_heads", 5),
        ("bert", "hidden_size", "wide"),
        ("bert", "intermediate_size", 47),
        ("bert", "model_type", "llama"),
        ("roberta", "pad_token_id", -7),
        ("roberta", "pad_token_id", WINDOW + 9),
        ("distilbert", "activation", "relu"),
        ("modernbert", "hidden_activation", "silu"),
        ("modernbert", "layer_types", ["full_attention"]),
        ("modernbert", "layer_types", ["elsewhere"] * 4),
        ("modernbert", "rope_scaling", {"rope_type": "yarn"}),
        ("modernbert", "rope_parameters", {"full_attention": {"rope_theta": "high"}}),
        ("modernbert", "rope_parameters", {"full_attention": {"rope_type": "yarn"}}),
    ],
)
def test_other_configurations_are_refused(name, key, value, tmp_path):
    _, folder = save_model(name, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {key: value}))
    with pytest.raises((UnsupportedModelError, ModelError)):
        read_network(open_folder(tmp_path))
    assert read_network(folder).depth == 4


def test_every_architecture_is_tested():
    assert set(ARCHITECTURES) <= set(MODELS)
