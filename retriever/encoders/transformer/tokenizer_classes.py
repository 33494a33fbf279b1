"""The classes of transformers that build a tokenizer from a vocabulary.

A class takes the vocabulary of a file. It builds the other parts by its own rules, from the
settings beside the file. A file is accepted if its parts are those that the class builds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from retriever.encoders.transformer.tensors import UnsupportedModelError

# Classes whose file transformers reads as it is.
_GENERIC_CLASSES = ("PreTrainedTokenizer", "TokenizersBackend")
# Architectures whose file transformers reads as it is, whatever the class.
_GENERIC_ARCHITECTURES = ("modernbert",)
# Mark of the beginning of a word in SentencePiece.
WORD_START = "▁"
# Longest text in word pieces, of a tokenizer or a model without a limit.
NO_LIMIT = 10**9
# Texts that show the special tokens around a text, and around a pair of texts.
PROBE = "a"
PAIR_PROBE = ("a", "a")
Settings = Mapping[str, Any]
# Most characters of a word that WordPiece divides, which takes the square of their number.
_LONGEST_WORD = 1000


@dataclass(frozen=True, slots=True)
class TokenizerClass:
    """A class of transformers that builds a tokenizer from a vocabulary.

    Attributes:
        model: the class of its model in `tokenizers`.
        build: sets the parts of the tokenizer that the class builds, after a check.
        roles: the special tokens by their role, unless the settings name others.
        has_types: whether its models are given token types.
        defaults: other settings that apply unless they are named.
        unknown_id: the id for unknown words of a Unigram, if the class fixes it.
    """

    model: str
    build: Callable[[Any, Settings, Mapping[str, str]], None]
    roles: Mapping[str, str]
    has_types: bool = False
    defaults: Settings = field(default_factory=dict)
    unknown_id: int | None = None


def find_class(settings: Settings, config: Settings) -> TokenizerClass | None:
    """Return the class that transformers takes; None if it reads the file as it is."""
    architecture = config.get("model_type")
    default = _CLASS_OF_ARCHITECTURE.get(str(architecture))
    name = str(settings.get("tokenizer_class") or config.get("tokenizer_class") or default)
    name = name.removesuffix("Fast")
    if architecture in _GENERIC_ARCHITECTURES or name in _GENERIC_CLASSES:
        return None
    if name not in _CLASSES:
        raise UnsupportedModelError(f"a tokenizer of the class {name:.60}")
    return _CLASSES[name]


def check_model(
    stored_model: Settings,
    model: Any,
    tokenizer_class: TokenizerClass | None,
    roles: Mapping[str, str],
) -> None:
    """Refuse a random model, and one that differs from the model that its class builds."""
    name = type(model).__name__
    longest_word = stored_model.get("max_input_chars_per_word", 0)
    if longest_word > _LONGEST_WORD:
        raise UnsupportedModelError(f"a tokenizer of words of {longest_word:,} characters")
    if (
        getattr(model, "dropout", None)
        or stored_model.get("alpha")
        or stored_model.get("nbest_size")
    ):
        raise UnsupportedModelError("a tokenizer that divides words at random")
    if tokenizer_class is None:
        return
    _require("model", name, tokenizer_class.model)
    if name == "WordPiece":
        _require("piece for unknown words", model.unk_token, roles["unk_token"])
        _require("mark of parts", model.continuing_subword_prefix, "##")
        _require("longest word", model.max_input_chars_per_word, 100)
    elif name == "BPE":
        _require("piece for unknown words", model.unk_token, None)
        _require("mark of parts", model.continuing_subword_prefix or "", "")
        _require("mark of ends", model.end_of_word_suffix or "", "")
        flags = (model.fuse_unk, model.byte_fallback, model.ignore_merges)
        _require("kind of byte pairs", flags, (False, False, False))
    else:
        expected = (
            stored_model["unk_id"]
            if tokenizer_class.unknown_id is None
            else tokenizer_class.unknown_id
        )
        _require("piece for unknown words", stored_model["unk_id"], expected)
        _require("piece for unknown words", stored_model["unk_token"], roles["unk_token"])
        _require("use of bytes", bool(stored_model.get("byte_fallback")), False)


def _require(part: str, stored: Any, expected: Any) -> None:
    """Refuse a file with another part than transformers builds."""
    if stored != expected:
        raise UnsupportedModelError(
            f"a tokenizer.json whose {part} differs from the settings beside it"
        )


def _require_part(part: str, stored: Any, *accepted: Any) -> None:
    """Refuse a component of the file that equals none of the accepted ones."""
    states = [None if component is None else component.__getstate__() for component in accepted]
    state = None if stored is None else stored.__getstate__()
    _require(part, state in states, True)


def _build_bert(tokenizer: Any, settings: Settings, roles: Mapping[str, str]) -> None:
    from tokenizers import processors

    _check_bert_words(tokenizer, settings)
    cls = roles["cls_token"]
    sep = roles["sep_token"]
    processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (cls, sep)],
    )
    _set_post_processor(tokenizer, processor)


def _build_mpnet(tokenizer: Any, settings: Settings, roles: Mapping[str, str]) -> None:
    _check_bert_words(tokenizer, settings)
    _set_roberta_processor(tokenizer, roles, trim_offsets=True, add_prefix_space=False)


def _check_bert_words(tokenizer: Any, settings: Settings) -> None:
    """Require the normalizer of the settings, and BERT's division into words."""
    from tokenizers import normalizers, pre_tokenizers

    normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    _require_part("normalizer", tokenizer.normalizer, normalizer)
    _require_part("division into words", tokenizer.pre_tokenizer, pre_tokenizers.BertPreTokenizer())


def _build_roberta(tokenizer: Any, settings: Settings, roles: Mapping[str, str]) -> None:
    from tokenizers import pre_tokenizers

    add_prefix_space = settings.get("add_prefix_space", False)
    words = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    _require_part("normalizer", tokenizer.normalizer, None)
    _require_part("division into words", tokenizer.pre_tokenizer, words)
    _set_roberta_processor(
        tokenizer,
        roles,
        trim_offsets=settings.get("trim_offsets", True),
        add_prefix_space=add_prefix_space,
    )


def _set_roberta_processor(tokenizer: Any, roles: Mapping[str, str], **flags: bool) -> None:
    from tokenizers import processors

    sep = roles["sep_token"]
    cls = roles["cls_token"]
    processor = processors.RobertaProcessing(
        (sep, tokenizer.token_to_id(sep)), (cls, tokenizer.token_to_id(cls)), **flags
    )
    _set_post_processor(tokenizer, processor)


def _build_xlm_roberta(tokenizer: Any, settings: Settings, roles: Mapping[str, str]) -> None:
    """Set the parts of XLM-RoBERTa and CamemBERT.

    Files of releases before 5 may replace runs of spaces in the normalizer, or divide at spaces
    alone. Release 5 divides at all white space in both cases.
    """
    from tokenizers import normalizers, pre_tokenizers, processors

    scheme = "always" if settings.get("add_prefix_space", True) else "never"
    marks = pre_tokenizers.Metaspace(replacement=WORD_START, prepend_scheme=scheme)
    words = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), marks])
    _require_part("division into words", tokenizer.pre_tokenizer, words, marks)
    tokenizer.pre_tokenizer = words
    if tokenizer.normalizer is not None:
        tokenizer.normalizer = normalizers.Precompiled(_read_character_map(tokenizer.normalizer))
    bos = roles["bos_token"]
    eos = roles["eos_token"]
    processor = processors.TemplateProcessing(
        single=[bos, "$A", eos],
        pair=[bos, "$A", eos, eos, "$B", eos],
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (bos, eos)],
    )
    _set_post_processor(tokenizer, processor)


def _read_character_map(normalizer: Any) -> bytes:
    """Return the table of a normalizer of SentencePiece, which may replace runs of spaces too."""
    import base64

    state = json.loads(normalizer.__getstate__())
    first, *following = state.get("normalizers", [state])
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}}
    ends = {"type": "Strip", "strip_left": False, "strip_right": True}
    replacements = (ends, {**spaces, "content": " "}, {**spaces, "content": WORD_START})
    _require("normalizer", all(part in replacements for part in following), True)
    return base64.b64decode(first["precompiled_charsmap"])


def _set_post_processor(tokenizer: Any, processor: Any) -> None:
    """Set the special tokens as transformers does; the file must put the same ones."""
    probes = (PROBE, PAIR_PROBE)
    before = [probe_tokens(tokenizer, probe) for probe in probes]
    tokenizer.post_processor = processor
    after = [probe_tokens(tokenizer, probe) for probe in probes]
    _require("post-processor", before, after)


def probe_tokens(tokenizer: Any, text: Any) -> tuple[list[int], list[int]]:
    """Return ids and token types of a text, or of a pair of texts."""
    encoding = tokenizer.encode(*text) if isinstance(text, tuple) else tokenizer.encode(text)
    return encoding.ids, encoding.type_ids


_BERT_ROLES = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
_ROBERTA_ROLES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
# By their name in transformers without "Fast".
_CLASSES: Mapping[str, TokenizerClass] = {
    "BertTokenizer": TokenizerClass("WordPiece", _build_bert, _BERT_ROLES, has_types=True),
    "DistilBertTokenizer": TokenizerClass("WordPiece", _build_bert, _BERT_ROLES),
    "MPNetTokenizer": TokenizerClass(
        "WordPiece", _build_mpnet, {**_ROBERTA_ROLES, "unk_token": "[UNK]"}
    ),
    "RobertaTokenizer": TokenizerClass("BPE", _build_roberta, _ROBERTA_ROLES),
    "XLMRobertaTokenizer": TokenizerClass(
        "Unigram", _build_xlm_roberta, _ROBERTA_ROLES, unknown_id=3
    ),
    "CamembertTokenizer": TokenizerClass(
        "Unigram",
        _build_xlm_roberta,
        _ROBERTA_ROLES,
        defaults={
            "additional_special_tokens": ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"],
        },
    ),
}
# The class of an architecture where the files name none.
_CLASS_OF_ARCHITECTURE = {
    "bert": "BertTokenizer",
    "camembert": "CamembertTokenizer",
    "distilbert": "BertTokenizer",
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
}
