"""Numbers in the files of a model that nobody meant: one line, and no memory is taken for them."""

from __future__ import annotations

import json
import resource
import shutil

import pytest

from retriever import Encoder
from retriever.errors import RetrieverError

HUGE = 10**9


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
