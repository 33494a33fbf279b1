"""Parts of sentence-transformers models, and what encoders and that library make of a folder."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from retriever.encoders import Encoder, EncoderSpec
from retriever.errors import ConfigError
from tests.retriever.encoders.architectures import TEXTS, WIDTH

PARTS = "sentence_transformers.models."
DENSE = {"activation_function": "torch.nn.modules.activation.Tanh", "bias": True}


def model_with(source, folder, *modules, prompts=None, default=None):
    """Copy a model, and add kinds of modules, with a config for each that has one."""
    shutil.copytree(source, folder)
    listed = [{"idx": 0, "name": "0", "path": "", "type": f"{PARTS}Transformer"}]
    for number, (kind, config) in enumerate(modules, 1):
        path = folder / f"{number}_{kind}"
        path.mkdir()
        listed.append({"idx": number, "name": str(number), "path": path.name, "type": PARTS + kind})
        if config is not None:
            (path / "config.json").write_text(json.dumps(config))
        if kind == "Dense":
            weights(path, config, seed=number)
    (folder / "modules.json").write_text(json.dumps(listed))
    if prompts is not None:
        (folder / "config_sentence_transformers.json").write_text(
            json.dumps({"prompts": prompts, "default_prompt_name": default})
        )
    return folder


def weights(folder, config, seed):
    chance = torch.Generator().manual_seed(seed)
    shape = config["out_features"], config["in_features"]
    tensors = {"linear.weight": torch.randn(shape, generator=chance)}
    if config["bias"]:
        tensors["linear.bias"] = torch.randn(shape[0], generator=chance)
    save_file(tensors, folder / "model.safetensors")


def pooling(mode="mean", **more):
    return "Pooling", {"word_embedding_dimension": WIDTH, "pooling_mode": mode, **more}


def dense(out, into=WIDTH, **more):
    return "Dense", {"in_features": into, "out_features": out, **DENSE, **more}


def load(folder, asked=""):
    return Encoder.load("::".join(filter(None, [str(folder), asked])), device="cpu")


def sentence_transformer(folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def sentence_transformers_vectors(folder, texts=TEXTS):
    """Return the vectors of sentence-transformers for the same folder."""
    return sentence_transformer(folder).encode(
        list(texts), normalize_embeddings=True, show_progress_bar=False
    )


def refusal_of(folder, asked="", error=ConfigError):
    """Return the one-line message with which a model is refused."""
    with pytest.raises(error) as caught:
        load(folder, asked)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 600
    return message


def same_encoder(encoder):
    """Its text form makes the same encoder, and so does its stored form; returns the text form."""
    text = str(encoder.spec)
    for again in (
        Encoder.load(text, device="cpu"),
        Encoder.from_spec(EncoderSpec.from_json(encoder.spec.to_json()), device="cpu"),
    ):
        assert again.spec == encoder.spec
        assert again.spec.fingerprint == encoder.spec.fingerprint
        assert str(again.spec) == text
        np.testing.assert_array_equal(again.encode(TEXTS[:3]), encoder.encode(TEXTS[:3]))
    return text
