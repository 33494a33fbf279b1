"""Word pieces without transformers: the ids that transformers gives."""

from __future__ import annotations

import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from retriever.encoders import find_model
from retriever.encoders.transformer.tensors import UnsupportedModelError
from retriever.encoders.transformer.tokenizer import Tokenizer

ODD = [
    "",
    " \t\n ",
    "Hello, World!",
    "[CLS] literal [SEP] [PAD] [MASK] [UNK] <s> </s> <pad> <mask> <unk>",
    "Ünïcödé naïve ﬁ ß İstanbul",
    "汉字 かな 한국어 العربية עברית हिन्दी",
    "zero\u200bwidth soft\u00adhyphen \ufffd \x00\x07 \u2028line",
    "e\u0301 combining \U0001f600\u200d\U0001f468 emoji",
    "a" * 300,
    "don't can't 3.14159 1,000,000 $5.00 50% x=y_z #tag @user http://a.b/c?d=e",
    "word " * 700,
]
KINDS = ["bert", "mpnet"]


@pytest.fixture(scope="module")
def both(folders):
    """Our tokenizer and transformers' by the name of a model; "" is the bundled one."""
    made = {}

    def get(name):
        if name not in made:
            folder = find_model(str(folders(name)) if name else "all-MiniLM-L6-v2")
            made[name] = Tokenizer(folder), AutoTokenizer.from_pretrained(folder.path)
        return made[name]

    return get


@pytest.mark.parametrize("name", ["", *KINDS])
@pytest.mark.parametrize("max_length", [None, 8, 64])
def test_ids_are_those_of_transformers(name, max_length, both):
    if not name:
        pytest.importorskip("layer_retriever_minilm")
    ours, theirs = both(name)
    cut = {"truncation": max_length is not None, "max_length": max_length}
    expected = theirs(ODD, **cut, verbose=False)["input_ids"]
    assert ours.tokenize(ODD, max_length) == expected
    pairs = theirs(ODD, ODD[::-1], **cut, return_token_type_ids=True, verbose=False)
    found = ours.tokenize_pairs(ODD, ODD[::-1], max_length or 10**9)
    assert (found.ids, found.types) == (pairs["input_ids"], pairs["token_type_ids"])


@pytest.mark.parametrize("name", KINDS)
@given(text=st.text())
def test_ids_and_offsets_of_any_text_are_those_of_transformers(name, both, text):
    ours, theirs = both(name)
    assert ours.tokenize([text]) == [theirs(text, verbose=False)["input_ids"]]
    bare = theirs(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    assert ours.piece_offsets(text) == bare["offset_mapping"]


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("tokenizer_config.json", {"do_lower_case": False}),
        ("tokenizer_config.json", {"strip_accents": True}),
        ("tokenizer_config.json", {"tokenize_chinese_chars": False}),
        ("tokenizer_config.json", {"tokenizer_class": "LayoutLMTokenizer"}),
        ("tokenizer.json", {"pre_tokenizer": {"type": "Whitespace"}}),
        ("tokenizer.json", {"post_processor": None}),
        ("tokenizer.json", {"model": None}),
        ("tokenizer.json", {"added_tokens": [{"id": 5, "content": "w0"}]}),
    ],
)
def test_ambiguous_tokenizer_files_are_left_to_transformers(file, change, folders, tmp_path):
    folder = shutil.copytree(folders("bert"), tmp_path / "model")
    content = json.loads((folder / file).read_text())
    if "added_tokens" in change:
        (token,) = change["added_tokens"]
        change = {"added_tokens": [*content["added_tokens"], content["added_tokens"][0] | token]}
    (folder / file).write_text(json.dumps(content | change))
    with pytest.raises(UnsupportedModelError):
        Tokenizer(find_model(str(folder)))
