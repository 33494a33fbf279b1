"""Tokenizers without transformers: the ids, types and offsets that transformers gives."""

from __future__ import annotations

import json
import shutil
from functools import cache
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from retriever.encoders import find_model
from retriever.encoders.transformer.backbone import read_special_tokens
from retriever.encoders.transformer.tensors import UnsupportedModelError
from retriever.encoders.transformer.tokenizer import Tokenizer
from retriever.errors import ModelError
from tests.retriever.encoders.transformer.test_unigram import ODD as ODD_WORDS
from tests.retriever.encoders.transformer.test_unigram import SCRIPTS
from tests.retriever.encoders.transformer.tokenizers_made import KINDS, save_tokenizer

ODD = [
    "",
    " \t\n ",
    "Hello, World! A BANANA  and  two  spaces",
    "[CLS] literal [SEP] [PAD] [MASK] [UNK] <s> </s> <pad> <mask> <unk> |||IP||| <s>NOTUSED",
    "x[MASK]y  [MASK]  z river rivers a<right>  b c  ünder Ünder [cls] <MASK>",
    "Ünïcödé naïve ﬁ ß İstanbul",
    "汉字 かな 한국어 العربية עברית हिन्दी",
    "zero\u200bwidth soft\u00adhyphen \ufffd \x00\x07 \u2028line",
    "e\u0301 combining \U0001f600\u200d\U0001f468 emoji",
    "a" * 300,
    "don't can't 3.14159 1,000,000 $5.00 50% x=y_z #tag @user http://a.b/c?d=e",
    "The river froze twice that winter, and the ferry did not run.",
    "word " * 150,
    *ODD_WORDS,
    *SCRIPTS.values(),
]
SPECIAL = ["[MASK]", "<mask>", "[SEP]", "</s>", "river", "Ünder", "<right>", "  "]
texts = st.lists(st.one_of(st.text(), st.sampled_from(SPECIAL))).map("".join)
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Our tokenizer and transformers' by kind; "" is the bundled one."""

    @cache
    def get(kind):
        folder = find_model("all-MiniLM-L6-v2") if not kind else None
        folder = folder or save_tokenizer(kind, tmp_path_factory.mktemp(kind))
        return Tokenizer(folder), AutoTokenizer.from_pretrained(folder.path)

    return get


@pytest.fixture
def copy(both, tmp_path):
    """Function that copies the files of a kind, with changes of a JSON file."""

    def change(kind, file=None, change=None):
        _, theirs = both(kind)
        folder = shutil.copytree(theirs.name_or_path, tmp_path / "model")
        if file:
            path = folder / file
            content = json.loads(path.read_text()) if path.exists() else {}
            path.write_text(json.dumps(change(content) if callable(change) else content | change))
        config = json.loads((folder / "config.json").read_text())
        return SimpleNamespace(path=folder, config=config)

    return change


def pairs_of(tokenizer, left, right, **cut):
    encoded = tokenizer(left, right, **cut, return_token_type_ids=True, verbose=False)
    ids, types = encoded["input_ids"], encoded["token_type_ids"]
    has_types = "token_type_ids" in tokenizer.model_input_names
    return ids, types if has_types else [[0] * len(row) for row in ids]


def assert_equal(ours, theirs, some_texts, max_length=None):
    cut = {"truncation": max_length is not None, "max_length": max_length}
    rows = theirs(some_texts, **cut, verbose=False)["input_ids"]
    assert ours.tokenize(some_texts, max_length) == rows
    pairs = ours.tokenize_pairs(some_texts, some_texts[::-1], max_length or 10**9)
    assert (pairs.ids, pairs.types) == pairs_of(theirs, some_texts, some_texts[::-1], **cut)
    whole = theirs(some_texts, return_offsets_mapping=True, verbose=False)
    assert ours.tokenize_with_offsets(some_texts) == (whole["input_ids"], whole["offset_mapping"])
    for text in some_texts:
        bare = theirs(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        assert ours.piece_offsets(text) == bare["offset_mapping"]


@pytest.mark.parametrize("kind", ["", *KINDS])
@pytest.mark.parametrize("max_length", [None, 16, 64])
def test_ids_types_and_offsets_are_those_of_transformers(kind, max_length, both):
    if not kind:
        pytest.importorskip("layer_retriever_minilm")
    assert_equal(*both(kind), ODD, max_length)


@kinds
@given(some_texts=st.lists(texts, min_size=1, max_size=4))
def test_any_text_is_divided_as_by_transformers(kind, both, some_texts):
    assert_equal(*both(kind), some_texts, 9)


@kinds
def test_special_tokens_and_limits_are_those_of_transformers(kind, both):
    ours, theirs = both(kind)
    assert ours.special == read_special_tokens(theirs)
    assert ours.highest_id == max(theirs.get_vocab().values())
    assert ours.max_length == min(theirs.model_max_length, 10**9)


@kinds
def test_lone_surrogate_is_refused_as_by_transformers(kind, both):
    for tokenizer in both(kind):
        with pytest.raises((TypeError, UnicodeEncodeError)):
            getattr(tokenizer, "piece_offsets", tokenizer)("a \ud800 b")


def with_listed_tokens(settings):
    """Settings of a release before 5, which list the added tokens of BERT."""
    flags = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    special = enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    listed = {str(number): {"content": text, "special": True, **flags} for number, text in special}
    return {**settings, "added_tokens_decoder": listed}


def with_replaced_spaces(file):
    """XLM-RoBERTa as releases before 5 convert it: spaces are replaced, words begin with marks."""
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    parts = [file["normalizer"], spaces]
    marks = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
    return {
        **file,
        "normalizer": {"type": "Sequence", "normalizers": parts},
        "pre_tokenizer": marks,
    }


def with_added_token(file):
    token = {**file["added_tokens"][0], "id": 700, "content": "river", "special": False}
    token["id"] = file["model"]["vocab"][token["content"]]
    return {**file, "added_tokens": [*file["added_tokens"], token]}


def without_model_type(file):
    return {**file, "model": dict(item for item in file["model"].items() if item[0] != "type")}


TRUNCATION = {"max_length": 3, "strategy": "LongestFirst", "stride": 0}


def with_template(*tokens):
    """A file whose template puts tokens after a text, each an id and a token type."""

    def change(file):
        special = {str(id_): {"id": str(id_), "ids": [id_], "tokens": ["x"]} for id_, _ in tokens}
        text = {"Sequence": {"id": "A", "type_id": 0}}
        parts = [{"SpecialToken": {"id": str(id_), "type_id": type_}} for id_, type_ in tokens]
        second = {"Sequence": {"id": "B", "type_id": 1}}
        template = {"single": [text, *parts], "pair": [text, second, *parts]}
        processor = {"type": "TemplateProcessing", "special_tokens": special, **template}
        return {**file, "post_processor": processor}

    return change


BERT_PROCESSING = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
TWO_CLS = BERT_PROCESSING | {"sep": ["[CLS]", 2]}
# A kind of tokenizer, a file of it, and its changed form.
ACCEPTED = [
    ("bert", "tokenizer_config.json", with_listed_tokens),
    ("bert", "tokenizer_config.json", lambda settings: {}),
    ("bert", "tokenizer_config.json", {"tokenizer_class": None}),
    ("bert", "tokenizer_config.json", {"tokenizer_class": "BertTokenizerFast"}),
    ("bert", "tokenizer_config.json", {"truncation_side": "right", "padding_side": "left"}),
    ("bert", "special_tokens_map.json", {"cls_token": "[CLS]", "sep_token": {"content": "[SEP]"}}),
    (
        "bert",
        "tokenizer.json",
        {"truncation": TRUNCATION},
    ),
    ("bert", "tokenizer.json", with_added_token),
    ("bert", "tokenizer.json", without_model_type),
    ("bert", "config.json", {"model_type": "modernbert"}),
    ("roberta", "tokenizer_config.json", {"tokenizer_class": None}),
    ("xlm-roberta", "tokenizer_config.json", {"tokenizer_class": None}),
    ("xlm-roberta", "tokenizer.json", with_replaced_spaces),
    ("xlm-roberta", "tokenizer.json", {"normalizer": None}),
    ("distilbert", "tokenizer_config.json", {"tokenizer_class": None}),
    ("mpnet", "tokenizer_config.json", {"tokenizer_class": None}),
    ("camembert", "tokenizer_config.json", {"tokenizer_class": None}),
    ("modernbert", "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"}),
    ("modernbert", "tokenizer.json", with_template((3, 0), (2, 0), (10**9, 0))),
    ("generic", "tokenizer_config.json", {"model_input_names": ["input_ids", "attention_mask"]}),
]


@pytest.mark.parametrize(("kind", "file", "change"), ACCEPTED)
def test_older_forms_of_files_are_read_as_by_transformers(kind, file, change, copy):
    folder = copy(kind, file, change)
    theirs = AutoTokenizer.from_pretrained(folder.path)
    ours = Tokenizer(folder)
    assert_equal(ours, theirs, ODD, 64)
    assert ours.special == read_special_tokens(theirs)
    assert ours.highest_id >= max(ours.tokenize([""])[0])


def with_model(**values):
    return lambda file: {**file, "model": {**file["model"], **values}}


def with_split(expression):
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated"}
    return {"pre_tokenizer": {**split, "invert": False}}


def with_wide_replacement(file):
    replacement = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
    return {**file, "normalizer": replacement}


REFUSED = [
    ("bert", "tokenizer_config.json", {"do_lower_case": False}, "normalizer differs"),
    ("bert", "tokenizer_config.json", {"strip_accents": True}, "normalizer differs"),
    ("bert", "tokenizer_config.json", {"tokenize_chinese_chars": False}, "normalizer differs"),
    ("bert", "tokenizer_config.json", {"tokenizer_class": "LayoutLMTokenizer"}, "class LayoutLM"),
    ("bert", "tokenizer_config.json", {"unk_token": "[PAD]"}, "unknown words differs"),
    ("bert", "tokenizer_config.json", {"cls_token": "river"}, "added tokens differ"),
    ("bert", "tokenizer_config.json", {"extra_special_tokens": ["river"]}, "added tokens differ"),
    ("bert", "tokenizer_config.json", {"added_tokens_decoder": {}}, "added tokens differ"),
    ("bert", "tokenizer_config.json", {"truncation_side": "left"}, "cuts the beginning"),
    ("bert", "tokenizer_config.json", {"split_special_tokens": True}, "split_special_tokens"),
    ("bert", "tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["a.B", None]}}, "auto_map"),
    ("bert", "tokenizer_config.json", {"model_max_length": -1}, "as model_max_length, found -1"),
    ("bert", "added_tokens.json", {"river": 5}, "added tokens differ"),
    ("bert", "tokenizer.json", {"pre_tokenizer": {"type": "Whitespace"}}, "into words differs"),
    ("bert", "tokenizer.json", {"pre_tokenizer": {"type": "Unheard"}}, "tokenizer.json: "),
    ("bert", "tokenizer.json", {"post_processor": None}, "without special tokens"),
    (
        "bert",
        "tokenizer.json",
        {"post_processor": BERT_PROCESSING | {"sep": ["[CLS]", 2]}},
        "post-",
    ),
    ("bert", "tokenizer.json", {"model": None}, "tokenizer.json: "),
    ("bert", "tokenizer.json", with_model(max_input_chars_per_word=9), "longest word differs"),
    ("bert", "tokenizer.json", with_split("(a+)+$"), "regular expression that is not known"),
    ("modernbert", "tokenizer.json", with_split("(a+)+$"), "regular expression that is not known"),
    ("modernbert", "tokenizer.json", with_wide_replacement, "inserts 'aaa"),
    ("modernbert", "tokenizer.json", with_model(dropout=0.5), "at random"),
    ("modernbert", "tokenizer.json", with_template(*[(2, 0)] * 8), "many special tokens"),
    ("modernbert", "tokenizer.json", with_template((2, 10**6)), "many special tokens"),
    ("bert", "tokenizer.json", with_template((2, 0), (3, 0)), "post-processor differs"),
    ("roberta", "tokenizer_config.json", {"add_prefix_space": True}, "into words differs"),
    ("roberta", "tokenizer.json", with_model(unk_token="<unk>"), "unknown words differs"),
    ("xlm-roberta", "tokenizer_config.json", {"add_prefix_space": False}, "into words differs"),
    ("xlm-roberta", "tokenizer.json", with_model(unk_id=1), "unknown words differs"),
    ("xlm-roberta", "tokenizer.json", with_model(unk_id=10**9), "tokenizer.json: "),
    ("xlm-roberta", "tokenizer.json", {"normalizer": {"type": "Lowercase"}}, "tokenizer.json: "),
]


@pytest.mark.parametrize(("kind", "file", "change", "reason"), REFUSED)
def test_ambiguous_or_hostile_files_are_left_to_transformers(kind, file, change, reason, copy):
    with pytest.raises((UnsupportedModelError, ModelError), match=reason) as caught:
        Tokenizer(copy(kind, file, change))
    assert "\n" not in str(caught.value)


def test_post_processor_of_bert_is_accepted_for_its_template(copy):
    # Its token types are those of BertTokenizer.
    folder = copy("bert", "tokenizer.json", {"post_processor": BERT_PROCESSING})
    assert_equal(Tokenizer(folder), AutoTokenizer.from_pretrained(folder.path), ODD)


def test_another_piece_for_unknown_words_than_the_class_takes_is_refused(copy):
    # transformers takes the fourth piece for XLM-RoBERTa, whatever the file says.
    folder = copy("xlm-roberta", "tokenizer_config.json", {"unk_token": "</s>"})
    file = json.loads((folder.path / "tokenizer.json").read_text())
    file["model"]["unk_id"] = 2
    (folder.path / "tokenizer.json").write_text(json.dumps(file))
    with pytest.raises(UnsupportedModelError, match="unknown words differs"):
        Tokenizer(folder)
