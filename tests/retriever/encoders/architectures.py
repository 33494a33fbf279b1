"""Small models with random weights and their tokenizers, saved as transformers saves them."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

WORDS = [f"w{number}" for number in range(40)]
CHARACTERS = string.ascii_lowercase + string.digits + ".,:?!'-"
DEPTHS = {
    "bert": 3,
    "bert12": 12,
    "roberta": 3,
    "roberta24": 24,
    "xlnet": 3,
    "xlnet-untyped": 3,
    "distilbert": 3,
    "electra": 3,
    "electra-narrow": 3,
    "mpnet": 3,
    "albert": 3,
    "albert-groups": 3,
}
WIDTH = 16
# No layer of these is read but the last.
OTHERS = ("deberta-v2", "modernbert")
# Of many lengths, so that batches are padded.
TEXTS = (
    "w1 w2 w3",
    "",
    "w7",
    "Hello, there! w3 w3 zoo w12",
    "w5 w9 w30 w2 w11 w0 w39 w4 w21 w8",
    "a",
    "w2 w1 w3?",
)
# How far two ways to compute the same in float32 may differ.
CLOSE = {"rtol": 0, "atol": 1e-5}

_BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_ROBERTA_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_ALBERT_SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
_DEBERTA_SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
_XLNET_SPECIAL = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")


def save(name: str, folder: Path) -> Path:
    """Make the model of that name, a key of `DEPTHS` or one of `OTHERS`, in a folder."""
    import torch

    torch.manual_seed(len(name))
    tokenizer, model = _MAKERS[name.partition("-")[0].rstrip("0123456789")](name)
    for part in (tokenizer, model.eval()):
        part.save_pretrained(folder)
    return folder


def _word_pieces(special: Sequence[str]) -> dict[str, int]:
    listed = [*special, *WORDS, *CHARACTERS, *(f"##{character}" for character in CHARACTERS)]
    return {piece: number for number, piece in enumerate(listed)}


def _byte_pairs(special: Sequence[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    from tokenizers.pre_tokenizers import ByteLevel

    merges = [("w", "1"), ("Ġ", "w"), ("Ġw", "2"), ("e", "r")]
    listed = [*special, *sorted(ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    return {piece: number for number, piece in enumerate(listed)}, merges


def _unigrams(special: Sequence[str]) -> list[tuple[str, float]]:
    likely = [f"▁{word}" for word in WORDS]
    rare = ["▁", *(f"▁{character}" for character in CHARACTERS), *CHARACTERS]
    return [
        *((piece, 0.0) for piece in special),
        *((piece, -2.0) for piece in likely),
        *((piece, -6.0) for piece in rare),
    ]


def _size(tokenizer: Any, name: str) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": WIDTH,
        "num_hidden_layers": DEPTHS.get(name, 3),
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "initializer_range": 0.3,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _bert(name: str) -> tuple[Any, Any]:
    from transformers import BertConfig, BertModel, BertTokenizer

    tokenizer = BertTokenizer(vocab=_word_pieces(_BERT_SPECIAL))
    return tokenizer, BertModel(BertConfig(**_size(tokenizer, name), max_position_embeddings=64))


def _roberta(name: str) -> tuple[Any, Any]:
    from transformers import RobertaConfig, RobertaModel, RobertaTokenizer

    vocabulary, merges = _byte_pairs(_ROBERTA_SPECIAL)
    tokenizer = RobertaTokenizer(vocab=vocabulary, merges=merges)
    config = RobertaConfig(
        **_size(tokenizer, name), max_position_embeddings=66, type_vocab_size=1, bos_token_id=0
    )
    return tokenizer, RobertaModel(config)


def _xlnet(name: str) -> tuple[Any, Any]:
    """Special tokens after the text, the last of type 2; transformers 5 alone sends no types."""
    from transformers import XLNetConfig, XLNetModel, XLNetTokenizer

    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer = XLNetTokenizer(
        vocab=_unigrams(_XLNET_SPECIAL),
        model_input_names=[one for one in inputs if "untyped" not in name or "type" not in one],
    )
    config = XLNetConfig(
        vocab_size=len(tokenizer),
        d_model=WIDTH,
        n_layer=DEPTHS[name],
        n_head=2,
        d_inner=32,
        initializer_range=0.3,
        pad_token_id=tokenizer.pad_token_id,
    )
    return tokenizer, XLNetModel(config)


def _distilbert(name: str) -> tuple[Any, Any]:
    from transformers import DistilBertConfig, DistilBertModel, DistilBertTokenizer

    tokenizer = DistilBertTokenizer(vocab=_word_pieces(_BERT_SPECIAL))
    config = DistilBertConfig(
        vocab_size=len(tokenizer),
        dim=WIDTH,
        n_layers=DEPTHS[name],
        n_heads=2,
        hidden_dim=32,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    return tokenizer, DistilBertModel(config)


def _electra(name: str) -> tuple[Any, Any]:
    from transformers import BertTokenizer, ElectraConfig, ElectraModel

    tokenizer = BertTokenizer(vocab=_word_pieces(_BERT_SPECIAL))
    width = 8 if "narrow" in name else WIDTH
    config = ElectraConfig(
        **_size(tokenizer, name), embedding_size=width, max_position_embeddings=64
    )
    return tokenizer, ElectraModel(config)


def _mpnet(name: str) -> tuple[Any, Any]:
    from transformers import MPNetConfig, MPNetModel, MPNetTokenizer

    vocabulary = _word_pieces(("<s>", "<pad>", "</s>", "[UNK]", "<unk>", "<mask>"))
    tokenizer = MPNetTokenizer(vocab=vocabulary)
    config = MPNetConfig(**_size(tokenizer, name), max_position_embeddings=66)
    return tokenizer, MPNetModel(config)


def _albert(name: str) -> tuple[Any, Any]:
    from transformers import AlbertConfig, AlbertModel, AlbertTokenizer

    tokenizer = AlbertTokenizer(vocab=_unigrams(_ALBERT_SPECIAL))
    config = AlbertConfig(
        **_size(tokenizer, name),
        embedding_size=8,
        num_hidden_groups=2 if "groups" in name else 1,
        max_position_embeddings=64,
    )
    return tokenizer, AlbertModel(config)


def _deberta(name: str) -> tuple[Any, Any]:
    from transformers import DebertaV2Config, DebertaV2Model, DebertaV2Tokenizer

    tokenizer = DebertaV2Tokenizer(vocab=_unigrams(_DEBERTA_SPECIAL), unk_id=3)
    config = DebertaV2Config(
        **_size(tokenizer, name), max_position_embeddings=64, relative_attention=True
    )
    return tokenizer, DebertaV2Model(config)


def _modernbert(name: str) -> tuple[Any, Any]:
    from transformers import BertTokenizer, ModernBertConfig, ModernBertModel

    tokenizer = BertTokenizer(vocab=_word_pieces(_BERT_SPECIAL))
    config = ModernBertConfig(
        **_size(tokenizer, name),
        max_position_embeddings=64,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
    )
    return tokenizer, ModernBertModel(config)


_MAKERS: Mapping[str, Callable[[str], tuple[Any, Any]]] = {
    "bert": _bert,
    "roberta": _roberta,
    "xlnet": _xlnet,
    "distilbert": _distilbert,
    "electra": _electra,
    "mpnet": _mpnet,
    "albert": _albert,
    "deberta": _deberta,
    "modernbert": _modernbert,
}
