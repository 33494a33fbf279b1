"""Numbers in the files of a model that nobody meant: one line, and no memory is taken for them."""

from __future__ import annotations

import base64
import json
import os
import resource
import shutil
import warnings

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from retriever import Encoder
from retriever.errors import RetrieverError

HUGE = 10**9
WEIGHTS = "model.safetensors"


def changed(folders, tmp_path, name, file, **values):
    folder = tmp_path / "model"
    shutil.copytree(folders(name), folder)
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(content | values))
    return folder


def refusal_of(folder, settings=""):
    """Load and use a model with at most 1 GiB more memory; return the one-line message."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RetrieverError) as caught:
        Encoder.load(f"{folder}{settings}", device="cpu").encode(["w1 w2 w3"])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("settings", ["", "::backend=torch"])
@pytest.mark.parametrize("value", [0, HUGE, 10**6, 1.5, "12", [1]])
@pytest.mark.parametrize(
    "name", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"]
)
def test_absurd_model_sizes_are_refused(name, value, settings, folders, tmp_path):
    folder = changed(folders, tmp_path, "bert", "config.json", **{name: value})
    refusal_of(folder, settings)


@pytest.mark.parametrize("name", ["vocab_size", "max_position_embeddings", "type_vocab_size"])
def test_more_embeddings_than_are_stored_are_refused(name, folders, tmp_path):
    folder = changed(folders, tmp_path, "bert", "config.json", **{name: 10**7})
    refusal_of(folder, "::backend=torch")


@pytest.mark.parametrize("kind", ["albert", "distilbert", "xlnet", "mpnet", "roberta"])
def test_a_million_layers_of_every_architecture_are_refused(kind, folders, tmp_path):
    names = ("num_hidden_layers", "n_layers", "n_layer")
    config = json.loads((folders(kind) / "config.json").read_text())
    values = {name: 10**6 for name in names if name in config}
    refusal_of(changed(folders, tmp_path, kind, "config.json", **values))


def test_a_vocabulary_without_the_piece_for_unknown_words_is_refused(folders, tmp_path):
    tokenizer = json.loads((folders("bert") / "tokenizer.json").read_text())
    model = {**tokenizer["model"], "unk_token": "[NONE]"}
    folder = changed(folders, tmp_path, "bert", "tokenizer.json", model=model)
    assert "expected the piece '[NONE]' for unknown words" in refusal_of(folder)


def test_word_piece_without_a_vector_is_refused(folders, tmp_path):
    folder = changed(folders, tmp_path, "bert", "tokenizer.json")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["w2"] = HUGE
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert "1,000,000,000" in refusal_of(folder)


@pytest.mark.parametrize("name", ["bert", "mpnet", "roberta", "distilbert", "modernbert"])
@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "Unheard"}},
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}},
        {"post_processor": {"type": "TemplateProcessing", "single": [], "pair": []}},
        {"model": {"type": "WordPiece", "vocab": HUGE}},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}},
    ],
)
def test_damaged_tokenizer_is_refused(name, change, folders, tmp_path):
    refusal_of(changed(folders, tmp_path, name, "tokenizer.json", **change))


def test_special_token_without_a_vector_is_refused(folders, tmp_path):
    template = [
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "x", "type_id": 0}},
    ]
    special = {"x": {"id": "x", "ids": [HUGE], "tokens": ["x"]}}
    processor = {"type": "TemplateProcessing", "single": template, "pair": template}
    processor["special_tokens"] = special
    folder = changed(folders, tmp_path, "modernbert", "tokenizer.json", post_processor=processor)
    assert "1,000,000,000" in refusal_of(folder)


def test_expression_that_backtracks_for_long_is_refused(folders, tmp_path):
    split = {"type": "Split", "pattern": {"Regex": "(w+)+$"}, "behavior": "Isolated"}
    split["invert"] = False
    folder = changed(folders, tmp_path, "modernbert", "tokenizer.json", pre_tokenizer=split)
    with pytest.raises(RetrieverError) as caught:
        Encoder.load(str(folder), device="cpu").encode(["w" * 40 + "v"])
    assert "retry-limit" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "file", ["config.json", "modules.json", "tokenizer_config.json", "sentence_bert_config.json"]
)
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "1" * 10_000, "\ud800", "7"])
def test_malformed_json_of_model_is_refused(file, text, folders, tmp_path):
    folder = changed(folders, tmp_path, "bert", "config.json")
    (folder / file).write_text(text, errors="surrogatepass")
    refusal_of(folder)


@pytest.mark.parametrize("number", ["1e400", "NaN", "-1"])
@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("config.json", "hidden_size"),
        ("config.json", "num_attention_heads"),
        ("sentence_bert_config.json", "max_seq_length"),
    ],
)
def test_numbers_that_are_no_sizes_are_refused(file, key, number, folders, tmp_path):
    folder = changed(folders, tmp_path, "bert", "config.json")
    content = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
    text = json.dumps(content | {key: "HERE"}).replace('"HERE"', number)
    (folder / file).write_text(text)
    refusal_of(folder)


@pytest.mark.parametrize(
    ("kind", "key", "value", "reason"),
    [
        ("modernbert", "max_position_embeddings", 10**12, "found 1,000,000,000,000"),
        ("modernbert", "num_hidden_layers", 10**8 - 1, "99,999,999 layers"),
        ("modernbert", "num_attention_heads", 16, "an odd width"),
        ("modernbert", "num_attention_heads", 3, "do not divide"),
        ("modernbert", "local_attention", float("nan"), "local_attention"),
        ("modernbert", "local_attention", 10**18, "local_attention"),
        ("modernbert", "local_attention", 1.5, "a whole number"),
        ("modernbert", "norm_eps", float("inf"), "norm_eps"),
        ("modernbert", "norm_eps", -1, "norm_eps"),
        ("modernbert", "layer_types", [["full_attention"]] * 4, "layer_types"),
        ("modernbert", "layer_types", "full_attention", "a list of 4"),
        ("modernbert", "rope_parameters", {"full_attention": {"rope_theta": 0}}, "rope_theta"),
        ("bert", "layer_norm_eps", float("nan"), "layer_norm_eps"),
        ("bert", "layer_norm_eps", "small", "layer_norm_eps"),
        ("roberta", "pad_token_id", float("nan"), "pad_token_id"),
        ("roberta", "pad_token_id", 0.5, "a whole number"),
        ("roberta", "pad_token_id", 10**7, "expected an id below"),
    ],
)
def test_absurd_numbers_of_the_forward_pass_are_refused(
    kind, key, value, reason, folders, tmp_path
):
    values = {key: value}
    if key == "num_hidden_layers":
        values["layer_types"] = None
    folder = changed(folders, tmp_path, kind, "config.json", **values)
    assert reason in refusal_of(folder, "::backend=numpy")


def test_a_period_of_local_layers_of_zero_is_refused(folders, tmp_path):
    values = {"layer_types": None, "global_attn_every_n_layers": 0}
    folder = changed(folders, tmp_path, "modernbert", "config.json", **values)
    assert "global_attn_every_n_layers" in refusal_of(folder)


def rewrite_header(folder, change):
    """Change the header of the weights, and leave the tensors as they are."""
    file = folder / "model.safetensors"
    content = file.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    change(header)
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + content[end:])


@pytest.mark.parametrize(
    "entry",
    [
        {"data_offsets": [0, 10**12]},
        {"data_offsets": [-4096, -3072]},
        {"data_offsets": [0.0, 1024.0]},
        {"data_offsets": [0]},
        {"shape": [16, -1]},
        {"shape": [10**9, 10**9]},
        {"shape": None},
        {"dtype": "F16"},
        {"dtype": ["F32"]},
    ],
)
def test_damaged_entries_of_weights_are_refused(entry, folders, tmp_path):
    folder = changed(folders, tmp_path, "bert", "config.json")
    name = "encoder.layer.0.attention.self.query.weight"
    rewrite_header(folder, lambda header: header[name].update(entry))
    assert "expected a whole file of safetensors" in refusal_of(folder)


@pytest.mark.parametrize("length", [2**31, 2**63, 2**64 - 1])
def test_header_longer_than_the_limit_is_refused_before_it_is_read(length, folders, tmp_path):
    folder = changed(folders, tmp_path, "bert", "config.json")
    with (folder / "model.safetensors").open("wb") as file:
        file.write(length.to_bytes(8, "little"))
        # A sparse file.
        file.truncate(2**31 + 4096)
    assert f"a header of {length:,} bytes" in refusal_of(folder)


def test_the_same_tensor_in_two_files_is_refused(folders, tmp_path):
    folder = changed(folders, tmp_path, "bert", "config.json")
    for number in (1, 2):
        shutil.copy(folder / "model.safetensors", folder / f"model-{number}.safetensors")
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "each tensor in one file" in refusal_of(folder)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "..", "weights.bin", 3])
def test_index_that_names_other_files_is_refused(name, folders, tmp_path):
    folder = changed(folders, tmp_path, "bert", "config.json")
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    index = {"weight_map": {"a": name, "b": "other.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "model.safetensors.index.json: expected" in refusal_of(folder)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_pipes_and_devices_are_not_read(file, folders, tmp_path):
    folder = changed(folders, tmp_path, "bert", "config.json")
    for replace in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        (folder / file).unlink()
        replace(folder / file)
        assert "expected a" in refusal_of(folder)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "modules.json"])
def test_file_of_gigabytes_is_refused_unread(file, folders, tmp_path):
    folder = changed(folders, tmp_path, "bert", "config.json")
    with (folder / file).open("wb") as sparse:
        sparse.truncate(6 * 2**30)
    assert "found 6,442,450,944" in refusal_of(folder)


def write_tokenizer(folder, **parts):
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | parts))


def sequence(count):
    return {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * count}


def precompiled(table):
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


TRIE = (1024).to_bytes(4, "little")
WITHOUT_TRIE = b"\xff" * 4
WITH_ROOT_OUTSIDE = TRIE + b"\xff" * 1024
WITH_TEXT_OUTSIDE = TRIE + b"\x41\x01\0\0" * 256
WITH_LONG_TEXT = TRIE + bytes(1024) + b"a" * 10**6


@pytest.mark.parametrize("settings", ["", "::backend=torch"])
@pytest.mark.parametrize(
    "parts",
    [
        # Each doubles the bytes of a character.
        {"normalizer": sequence(40)},
        {"normalizer": sequence(10**5)},
        {"normalizer": precompiled(WITHOUT_TRIE)},
        {"normalizer": precompiled(WITH_ROOT_OUTSIDE)},
        {"normalizer": precompiled(WITH_TEXT_OUTSIDE)},
        {"normalizer": precompiled(WITH_LONG_TEXT)},
        {"post_processor": {"single": [{"Sequence": {"id": "A", "type_id": 0}}] * 10**5}},
        {"added_tokens": [{"id": 1, "content": "a"}] * 50_000},
    ],
)
@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_tokenizers_that_end_the_process_are_refused(kind, parts, settings, folders, tmp_path):
    folder = changed(folders, tmp_path, kind, "config.json")
    write_tokenizer(folder, **parts)
    assert "tokenizer.json: the tokenizer cannot be used" in refusal_of(folder, settings)


def template(pieces, id_):
    token = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [*[token] * pieces, text],
        "pair": [token, text, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [id_], "tokens": ["[CLS]"]}},
    }


@pytest.mark.parametrize(("pieces", "id_"), [(1, 999_999), (70, 2)])
def test_template_of_absent_or_many_tokens_is_refused(pieces, id_, folders, tmp_path):
    folder = changed(folders, tmp_path, "modernbert", "config.json")
    write_tokenizer(folder, post_processor=template(pieces, id_))
    assert refusal_of(folder, "::backend=numpy")


@pytest.mark.parametrize("identifier", [-1, 2**32, 1.5, None])
def test_damaged_vocabulary_is_a_damaged_file(identifier, folders, tmp_path):
    folder = changed(folders, tmp_path, "bert", "tokenizer.json")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["w3"] = identifier
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert "tokenizer.json: the tokenizer cannot be read" in refusal_of(folder)


@pytest.mark.parametrize("path", ["../bert", "..", "/tmp", "1_Pooling/../../bert"])
def test_modules_outside_the_folder_are_refused(path, folders, tmp_path):
    folder = changed(folders, tmp_path, "bert", "config.json")
    modules = [{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": path}]
    (folder / "modules.json").write_text(json.dumps(modules))
    assert "expected modules inside the model's folder" in refusal_of(folder)


@pytest.mark.parametrize("prompt", [5, ["query: "], {"text": "query: "}, True, "\ud800"])
def test_prompts_that_are_no_texts_are_refused(prompt, folders, tmp_path):
    folder = changed(folders, tmp_path, "bert", "config.json")
    (folder / "modules.json").write_text('[{"type": "Transformer", "path": ""}]')
    settings = {"prompts": {"query": prompt}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    assert "expected a text as prompt 'query'" in refusal_of(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_weights_that_are_no_numbers_are_named_at_the_first_text(kind, value, folders, tmp_path):
    folder = changed(folders, tmp_path, kind, "config.json")
    tensors = {name: array.copy() for name, array in load_file(folder / WEIGHTS).items()}
    next(array for array in tensors.values() if array.ndim == 2)[:] = value
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "expected a vector of finite numbers" in refusal_of(folder, "::backend=numpy")


@pytest.mark.parametrize("length", ["x", -1, 0.5])
@pytest.mark.parametrize("settings", ["", "::backend=torch"])
def test_longest_text_that_is_no_number_is_refused(length, settings, folders, tmp_path):
    file = "tokenizer_config.json"
    folder = changed(folders, tmp_path, "bert", file, model_max_length=length)
    assert "as model_max_length" in refusal_of(folder, settings)
