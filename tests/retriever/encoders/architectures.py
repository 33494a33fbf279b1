"""Small models with random weights and their tokenizers, saved as transformers saves them."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

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
    "modernbert": 4,
}
WIDTH = 16
# Depth matters to SBERT-WK alone: models with 3 layers stand for deeper ones elsewhere.
architectures = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.soak] * (DEPTHS[name] > 4)) for name in DEPTHS],
)
# No layer of these is read but the last.
OTHERS = ("deberta-v2",)
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
_XLM_ROBERTA_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_CAMEMBERT_SPECIAL = ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<s>", "</s>", "<mask>")
_ALBERT_SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
_DEBERTA_SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
_XLNET_SPECIAL = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")


def save(name: str, folder: Path) -> Path:
    """Make the model of that name, whose first part is a key of `_MAKERS`, in a folder."""
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
        "pad_token_id": tokenizer.pad_token_id,
    }


def _made(kind: str, tokenizer: Any, size: dict[str, Any], **more: Any) -> tuple[Any, Any]:
    import transformers

    config = getattr(transformers, f"{kind}Config")(initializer_range=0.3, **size, **more)
    return tokenizer, getattr(transformers, f"{kind}Model")(config)


def _of_bert(kind: str, name: str, **more: Any) -> tuple[Any, Any]:
    """A model with the tokenizer of BERT."""
    from transformers import BertTokenizer

    tokenizer = BertTokenizer(vocab=_word_pieces(_BERT_SPECIAL))
    return _made(kind, tokenizer, _size(tokenizer, name), max_position_embeddings=64, **more)


def _roberta(name: str) -> tuple[Any, Any]:
    from transformers import RobertaTokenizer

    vocabulary, merges = _byte_pairs(_ROBERTA_SPECIAL)
    tokenizer = RobertaTokenizer(vocab=vocabulary, merges=merges)
    more = {"max_position_embeddings": 66, "type_vocab_size": 1, "bos_token_id": 0}
    return _made("Roberta", tokenizer, _size(tokenizer, name), **more)


def _xlm_roberta(name: str) -> tuple[Any, Any]:
    from transformers import XLMRobertaTokenizer

    tokenizer = XLMRobertaTokenizer(vocab=_unigrams(_XLM_ROBERTA_SPECIAL))
    more = {"max_position_embeddings": 66, "type_vocab_size": 1, "bos_token_id": 0}
    return _made("XLMRoberta", tokenizer, _size(tokenizer, name), **more)


def _camembert(name: str) -> tuple[Any, Any]:
    from transformers import CamembertTokenizer

    tokenizer = CamembertTokenizer(vocab=_unigrams(_CAMEMBERT_SPECIAL), unk_id=3)
    more = {"max_position_embeddings": 66, "type_vocab_size": 1, "bos_token_id": 0}
    return _made("Camembert", tokenizer, _size(tokenizer, name), **more)


def _xlnet(name: str) -> tuple[Any, Any]:
    """Special tokens after the text, the last of type 2; transformers 5 alone sends no types."""
    from transformers import XLNetTokenizer

    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer = XLNetTokenizer(
        vocab=_unigrams(_XLNET_SPECIAL),
        model_input_names=[one for one in inputs if "untyped" not in name or "type" not in one],
    )
    size = {"d_model": WIDTH, "n_layer": DEPTHS[name], "n_head": 2, "d_inner": 32}
    size |= {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    return _made("XLNet", tokenizer, size)


def _distilbert(name: str) -> tuple[Any, Any]:
    from transformers import DistilBertTokenizer

    tokenizer = DistilBertTokenizer(vocab=_word_pieces(_BERT_SPECIAL))
    size = {"dim": WIDTH, "n_layers": DEPTHS[name], "n_heads": 2, "hidden_dim": 32}
    size |= {"vocab_size": len(tokenizer), "max_position_embeddings": 64}
    return _made("DistilBert", tokenizer, size)


def _mpnet(name: str) -> tuple[Any, Any]:
    from transformers import MPNetTokenizer

    vocabulary = _word_pieces(("<s>", "<pad>", "</s>", "[UNK]", "<unk>", "<mask>"))
    tokenizer = MPNetTokenizer(vocab=vocabulary)
    return _made("MPNet", tokenizer, _size(tokenizer, name), max_position_embeddings=66)


def _albert(name: str) -> tuple[Any, Any]:
    from transformers import AlbertTokenizer

    tokenizer = AlbertTokenizer(vocab=_unigrams(_ALBERT_SPECIAL))
    groups = 2 if "groups" in name else 1
    more = {"embedding_size": 8, "num_hidden_groups": groups, "max_position_embeddings": 64}
    return _made("Albert", tokenizer, _size(tokenizer, name), **more)


def _deberta(name: str) -> tuple[Any, Any]:
    from transformers import DebertaV2Tokenizer

    tokenizer = DebertaV2Tokenizer(vocab=_unigrams(_DEBERTA_SPECIAL), unk_id=3)
    more = {"max_position_embeddings": 64, "relative_attention": True}
    return _made("DebertaV2", tokenizer, _size(tokenizer, name), **more)


_MAKERS: Mapping[str, Callable[[str], tuple[Any, Any]]] = {
    "bert": lambda name: _of_bert("Bert", name),
    "roberta": _roberta,
    "xlm": _xlm_roberta,
    "camembert": _camembert,
    "xlnet": _xlnet,
    "distilbert": _distilbert,
    "electra": lambda name: _of_bert(
        "Electra", name, embedding_size=8 if "narrow" in name else WIDTH
    ),
    "mpnet": _mpnet,
    "albert": _albert,
    "deberta": _deberta,
    # Two layers of four are local, and reach two pieces.
    "modernbert": lambda name: _of_bert(
        "ModernBert",
        name,
        local_attention=4,
        initializer_cutoff_factor=3.0,
        **dict.fromkeys(("bos_token_id", "cls_token_id"), 2),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), 3),
    ),
}
