"""Small tokenizers of several kinds, trained on a few lines and saved by transformers."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from retriever.encoders.transformer import openvino_engine

LINES = (
    Path(openvino_engine.__file__)
    .with_name("calibration.txt")
    .read_text(encoding="utf-8")
    .split("\n")
)
ROBERTA_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# The expression of Llama 3.
LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Table of SentencePiece that maps "A" to "a": 512 units of a double array, then the texts.
_UNITS = [0] * 512
_UNITS[0x41] = (0x100 << 10) | (1 << 8) | 0x41
CHARACTER_MAP = struct.pack("<I512I", 4 * 512, *_UNITS) + b"a\0"


def word_pieces(special: list[str], *, lowercase: bool = True) -> dict[str, int]:
    """Return a vocabulary of WordPiece."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=1200, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer.get_vocab()


def byte_pairs(special: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the vocabulary and the merges of byte-level BPE."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def unigrams(first: list[str]) -> list[tuple[str, float]]:
    """Return the pieces of a Unigram after those of `first`, with their scores."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=800, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"][1:]
    return [*((piece, 0.0) for piece in first), *((text, score) for text, score in pieces)]


def _bert(name: str = "BertTokenizer", **options: Any) -> Any:
    import transformers

    vocabulary = word_pieces(BERT_SPECIAL, lowercase=options.get("do_lower_case", True))
    return getattr(transformers, name)(vocab=vocabulary, **options)


def _mpnet() -> Any:
    from transformers import MPNetTokenizer

    special = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"]
    return MPNetTokenizer(vocab=word_pieces(special))


def _roberta(**options: Any) -> Any:
    from transformers import RobertaTokenizer

    vocabulary, merges = byte_pairs([*ROBERTA_SPECIAL, "<mask>"])
    mask = AddedToken("<mask>", lstrip=True, special=True)
    return RobertaTokenizer(vocab=vocabulary, merges=merges, mask_token=mask, **options)


def _xlm_roberta(**options: Any) -> Any:
    from transformers import XLMRobertaTokenizer

    return XLMRobertaTokenizer(
        vocab=[*unigrams(ROBERTA_SPECIAL), ("<mask>", 0.0)],
        _spm_precompiled_charsmap=CHARACTER_MAP,
        **options,
    )


def _camembert() -> Any:
    from transformers import CamembertTokenizer

    first = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
    return CamembertTokenizer(
        vocab=[*unigrams(first), ("<mask>", 0.0)], _spm_precompiled_charsmap=CHARACTER_MAP
    )


def _modernbert(expression: str | None = None) -> Any:
    """Byte-level BPE with [CLS] and [SEP], and many added tokens, like ModernBERT's."""
    from transformers import PreTrainedTokenizerFast

    vocabulary, merges = byte_pairs([*BERT_SPECIAL, "|||IP|||"])
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if expression:
        split = pre_tokenizers.Split(Regex(expression), "isolated")
        ends = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, ends])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    tokenizer.add_tokens([AddedToken("|||IP|||"), AddedToken("river", single_word=True)])
    tokenizer.add_tokens([AddedToken("<right>", rstrip=True), AddedToken("Ünder", lstrip=True)])
    special = [AddedToken(text, special=True) for text in BERT_SPECIAL[:-1]]
    tokenizer.add_special_tokens([*special, AddedToken("[MASK]", lstrip=True, special=True)])
    tokenizer.post_processor = _template(tokenizer, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        **{f"{text[1:-1].lower()}_token": text for text in BERT_SPECIAL},
    )


def _template(tokenizer: Tokenizer, single: str, pair: str) -> Any:
    parts = f"{single} {pair}".split()
    special = {part.split(":")[0] for part in parts if not part.startswith("$")}
    return processors.TemplateProcessing(
        single=single,
        pair=pair,
        special_tokens=[(text, tokenizer.token_to_id(text)) for text in sorted(special)],
    )


def _generic(single: str, pair: str, **options: Any) -> Any:
    """WordPiece with the special tokens of two templates, read as its file is."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordPiece(word_pieces(BERT_SPECIAL), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(BERT_SPECIAL)
    tokenizer.post_processor = _template(tokenizer, single, pair)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", **options
    )


# By kind: the architecture, and a function that makes the tokenizer.
KINDS: Mapping[str, tuple[str, Callable[[], Any]]] = {
    "bert": ("bert", _bert),
    "bert-cased": ("bert", lambda: _bert(do_lower_case=False, strip_accents=True)),
    "distilbert": ("distilbert", lambda: _bert("DistilBertTokenizer")),
    "mpnet": ("mpnet", _mpnet),
    "roberta": ("roberta", _roberta),
    "roberta-space": ("roberta", lambda: _roberta(add_prefix_space=True)),
    "roberta-untrimmed": ("roberta", lambda: _roberta(trim_offsets=False)),
    "xlm-roberta": ("xlm-roberta", _xlm_roberta),
    "xlm-roberta-bert": ("bert", _xlm_roberta),
    "camembert": ("camembert", _camembert),
    "modernbert": ("modernbert", _modernbert),
    "llama-bert": ("bert", lambda: _modernbert(LLAMA)),
    "generic": (
        "bert",
        lambda: _generic(
            "[CLS] [MASK] $A [SEP]",
            "[CLS] [MASK] $A [SEP] $B:1 [SEP]:1",
            cls_token="[CLS]",
            sep_token="[SEP]",
            model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        ),
    ),
    "suffix": ("bert", lambda: _generic("$A [SEP] [MASK]", "$A $B:1 [SEP]", sep_token="[SEP]")),
}


def save_tokenizer(kind: str, folder: Path) -> Any:
    """Save the tokenizer of a kind with a configuration; return what stands for its folder."""
    architecture, make = KINDS[kind]
    make().save_pretrained(folder)
    config = {"model_type": architecture}
    (folder / "config.json").write_text(json.dumps(config))
    return SimpleNamespace(path=folder, config=config)
