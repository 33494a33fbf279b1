"""The file tokenizer.json of a model, checked against the settings beside it.

`tokenizers` reads this file alone. transformers reads the settings too. For some classes it takes
only the vocabulary and the added tokens of the file, and builds the other parts by its own rules. A
file is accepted if transformers 5 makes the same tokenizer of it. Otherwise torch takes over.

Regular expressions are accepted only if they are known. The library that matches them backtracks,
so an unknown expression can run for hours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retriever.encoders.model_folders import ModelFolder, read_json
from retriever.encoders.settings import SHORTEST_WINDOW
from retriever.encoders.transformer.tensors import UnsupportedModelError
from retriever.errors import ModelError

_FILE = "tokenizer.json"
_SETTINGS_FILE = "tokenizer_config.json"
# Files of releases before 4.34, read unless the settings list the added tokens.
_ROLES_FILE = "special_tokens_map.json"
_ADDED_TOKENS_FILE = "added_tokens.json"
_ADDED_TOKENS = "added_tokens_decoder"
# Longest text without a limit.
_NO_LIMIT = 10**9
# Mark of the beginning of a word in SentencePiece.
_WORD_START = "▁"
# Texts that show the special tokens around a text, and around a pair of texts.
PROBE = "a"
_PAIR = ("a", "a")
# Classes whose file transformers reads as it is.
_GENERIC_CLASSES = ("PreTrainedTokenizer", "TokenizersBackend")
# Architectures whose file transformers reads as it is, whatever the class.
_GENERIC_ARCHITECTURES = ("modernbert",)
# Settings that name other files, or change tokens in ways that are not supported.
_FOREIGN_SETTINGS = ("auto_map", "fast_tokenizer_files", "init_inputs", "split_special_tokens")
# The end of the expressions below.
_SYMBOLS_AND_SPACES = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
# Expressions of GPT-2, Llama 3, Qwen 2, and of SentencePiece.
_KNOWN_EXPRESSIONS = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    _CONTRACTIONS + r"|\p{N}{1,3}" + _SYMBOLS_AND_SPACES,
    _CONTRACTIONS + r"|\p{N}" + _SYMBOLS_AND_SPACES,
    " {2,}",
)
Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    """A tokenizer of `tokenizers` without padding and truncation, and facts beside it."""

    tokenizer: Any
    max_length: int  # Maximum number of ids that the settings name.
    highest_id: int
    cls: int | None  # Ids of [CLS] and [SEP], whatever their text.
    sep: int | None
    has_types: bool  # Whether the model is given token types.


@dataclass(frozen=True, slots=True)
class _TokenizerClass:
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


def read_tokenizer(folder: ModelFolder) -> LoadedTokenizer:
    """Return the tokenizer of a folder.

    Raises:
        UnsupportedModelError: transformers would make another tokenizer, or the file is damaged.
        ModelError: the vocabulary has no piece for unknown words.
    """
    import tokenizers

    path = folder.path / _FILE
    if not path.is_file():
        raise UnsupportedModelError("no tokenizer.json")
    try:
        settings = _read_settings(folder.path)
        kind = _find_class(settings, folder.config)
        if kind is not None:
            settings = {**kind.defaults, **settings}
        file, highest_id = _read_outline(path)
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
        _check_direction(settings, tokenizer)
        roles = _read_roles(settings, kind, tokenizer)
        _check_added_tokens(folder.path, settings, file["added_tokens"], roles, tokenizer)
        _check_parts(tokenizer)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        _check_model(file["model"], tokenizer.model, kind, roles)
        if kind is not None:
            kind.build(tokenizer, settings, roles)
        return LoadedTokenizer(
            tokenizer,
            _max_length(settings),
            max(highest_id, _read_highest_special(tokenizer)),
            tokenizer.token_to_id(roles.get("cls_token", "")),
            tokenizer.token_to_id(roles.get("sep_token", "")),
            _has_types(settings, kind),
        )
    except (ModelError, UnsupportedModelError):
        raise
    except Exception as error:
        # The library raises the base class.
        reason = " ".join(str(error).split())
        raise UnsupportedModelError(f"{path}: {reason:.240}") from error


def _read_settings(folder: Path) -> dict[str, Any]:
    """Read the settings, with the roles of special tokens that older releases wrote apart."""
    settings: dict[str, Any] = read_json(folder / _SETTINGS_FILE, {})
    if _ADDED_TOKENS not in settings:
        settings |= read_json(folder / _ROLES_FILE, {})
    unsupported = [name for name in _FOREIGN_SETTINGS if settings.get(name)]
    if unsupported:
        raise UnsupportedModelError(f"{folder / _SETTINGS_FILE}: the setting {unsupported[0]}")
    return settings


def _find_class(settings: Settings, config: Settings) -> _TokenizerClass | None:
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


def _read_outline(path: Path) -> tuple[dict[str, Any], int]:
    """Read a file without its vocabulary, and the highest id of the vocabulary.

    The text of the piece for unknown words of a Unigram is put under ``unk_token``.
    """
    file: dict[str, Any] = read_json(path)
    model = file["model"]
    model.pop("merges", None)
    vocabulary = model.pop("vocab")
    if isinstance(vocabulary, list):
        unknown_id = model["unk_id"]
        if not 0 <= unknown_id < len(vocabulary):
            raise UnsupportedModelError(f"{path}: no piece {unknown_id} for unknown words")
        model["unk_token"] = vocabulary[unknown_id][0]
        return file, len(vocabulary) - 1
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in vocabulary:
        raise ModelError(
            f"{path}: expected the piece {unknown!r:.60} for unknown words in its vocabulary, "
            "found none"
        )
    return file, int(max(vocabulary.values()))


def _check_direction(settings: Settings, tokenizer: Any) -> None:
    """Refuse a tokenizer that cuts the beginning of a text."""
    of_file = (tokenizer.truncation or {}).get("direction", "right")
    if settings.get("truncation_side", of_file) != "right":
        raise UnsupportedModelError("a tokenizer that cuts the beginning of a text")


def _read_roles(settings: Settings, kind: _TokenizerClass | None, tokenizer: Any) -> dict[str, str]:
    """Return the text of each special token by its role, such as ``cls_token``."""
    tokens: dict[str, Any] = dict(kind.roles) if kind else {}
    if kind is None and tokenizer.padding:
        tokens["pad_token"] = tokenizer.padding["pad_token"]
    tokens |= {name: token for name, token in settings.items() if name.endswith("_token")}
    texts = {role: _text_of(token) for role, token in tokens.items()}
    return {role: text for role, text in texts.items() if text is not None}


def _text_of(token: Any) -> str | None:
    """Return the text of a token in the settings; None for another value."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _check_added_tokens(
    folder: Path,
    settings: Settings,
    stored: list[dict[str, Any]],
    roles: Mapping[str, str],
    tokenizer: Any,
) -> None:
    """Refuse a tokenizer whose added tokens differ between the file and the settings."""
    in_file = {token["id"]: _describe_token(token) for token in stored}
    in_use = {number: repr(token) for number, token in tokenizer.get_added_tokens_decoder().items()}
    in_settings = in_file
    older_tokens: dict[str, int] = {}
    if _ADDED_TOKENS in settings:
        tokens = settings[_ADDED_TOKENS].items()
        in_settings = {int(number): _describe_token(token) for number, token in tokens}
    else:
        older_tokens = read_json(folder / _ADDED_TOKENS_FILE, {})
    extra = settings.get("extra_special_tokens") or settings.get("additional_special_tokens") or ()
    extra_tokens = extra.values() if isinstance(extra, dict) else extra
    special_texts = {*roles.values(), *map(_text_of, extra_tokens)}
    ids = {token["content"]: token["id"] for token in stored}
    if not (
        in_file == in_use == in_settings
        and special_texts <= ids.keys()
        and older_tokens.items() <= ids.items()
    ):
        raise UnsupportedModelError(
            f"{folder / _FILE}: its added tokens differ from those in the settings beside it"
        )


def _describe_token(token: Mapping[str, Any]) -> str:
    """Return the text and the flags of an added token."""
    from tokenizers import AddedToken

    return repr(AddedToken(**{name: value for name, value in token.items() if name != "id"}))


def _check_parts(tokenizer: Any) -> None:
    """Refuse parts that can run for hours or lengthen a text, and a file without post-processor."""
    for part in filter(None, (tokenizer.normalizer, tokenizer.pre_tokenizer)):
        for node in _nodes(json.loads(part.__getstate__())):
            expression = node.get("Regex")
            if expression is not None and expression not in _KNOWN_EXPRESSIONS:
                raise UnsupportedModelError(
                    f"a tokenizer with a regular expression that is not known: {expression!r:.60}"
                )
            # Text of a replacement or of a beginning.
            inserted = node.get("content", node.get("prepend", ""))
            if len(inserted) > 1:
                raise UnsupportedModelError(f"a tokenizer that inserts {inserted!r:.60}")
    if tokenizer.post_processor is None:
        raise UnsupportedModelError("a tokenizer without special tokens around a text")


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every JSON object in a value."""
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value:
        if isinstance(child, dict | list):
            yield from _nodes(child)


def _check_model(
    outline: Settings, model: Any, kind: _TokenizerClass | None, roles: Mapping[str, str]
) -> None:
    """Refuse a random model, and one that differs from the model that its class builds."""
    name = type(model).__name__
    if getattr(model, "dropout", None) or outline.get("alpha") or outline.get("nbest_size"):
        raise UnsupportedModelError("a tokenizer that divides words at random")
    if kind is None:
        return
    _require("model", name, kind.model)
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
        expected = outline["unk_id"] if kind.unknown_id is None else kind.unknown_id
        _require("piece for unknown words", outline["unk_id"], expected)
        _require("piece for unknown words", outline["unk_token"], roles["unk_token"])
        _require("use of bytes", bool(outline.get("byte_fallback")), False)


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
    marks = pre_tokenizers.Metaspace(replacement=_WORD_START, prepend_scheme=scheme)
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
    replacements = (ends, {**spaces, "content": " "}, {**spaces, "content": _WORD_START})
    _require("normalizer", all(part in replacements for part in following), True)
    return base64.b64decode(first["precompiled_charsmap"])


def _set_post_processor(tokenizer: Any, processor: Any) -> None:
    """Set the special tokens as transformers does; the file must put the same ones."""
    before = [_probe(tokenizer, text) for text in (PROBE, _PAIR)]
    tokenizer.post_processor = processor
    _require("post-processor", before, [_probe(tokenizer, text) for text in (PROBE, _PAIR)])


def _probe(tokenizer: Any, text: Any) -> tuple[list[int], list[int]]:
    """Return ids and token types of a text, or of a pair of texts."""
    encoding = tokenizer.encode(*text) if isinstance(text, tuple) else tokenizer.encode(text)
    return encoding.ids, encoding.type_ids


def _read_highest_special(tokenizer: Any) -> int:
    """Return the highest id of added tokens and of special tokens, which may have any id."""
    text_ids = tokenizer.encode(PROBE, add_special_tokens=False).ids
    ids = {0, *tokenizer.get_added_tokens_decoder()}
    for probe, texts in ((PROBE, 1), (_PAIR, 2)):
        probe_ids, types = _probe(tokenizer, probe)
        if len(probe_ids) - texts * len(text_ids) >= SHORTEST_WINDOW or {*types} - {0, 1}:
            raise UnsupportedModelError("a tokenizer with many special tokens around a text")
        ids |= {*probe_ids}
    return int(max(ids))


def _max_length(settings: Settings) -> int:
    longest = settings.get("model_max_length", settings.get("max_len")) or _NO_LIMIT
    if not isinstance(longest, int | float) or not longest >= 1:
        raise UnsupportedModelError(f"{longest!r:.40} as model_max_length")
    return int(min(longest, _NO_LIMIT))


def _has_types(settings: Settings, kind: _TokenizerClass | None) -> bool:
    names = settings.get("model_input_names")
    if names is None:
        return kind is not None and kind.has_types
    return "token_type_ids" in names


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
_CLASSES: Mapping[str, _TokenizerClass] = {
    "BertTokenizer": _TokenizerClass("WordPiece", _build_bert, _BERT_ROLES, has_types=True),
    "DistilBertTokenizer": _TokenizerClass("WordPiece", _build_bert, _BERT_ROLES),
    "MPNetTokenizer": _TokenizerClass(
        "WordPiece", _build_mpnet, {**_ROBERTA_ROLES, "unk_token": "[UNK]"}
    ),
    "RobertaTokenizer": _TokenizerClass("BPE", _build_roberta, _ROBERTA_ROLES),
    "XLMRobertaTokenizer": _TokenizerClass(
        "Unigram", _build_xlm_roberta, _ROBERTA_ROLES, unknown_id=3
    ),
    "CamembertTokenizer": _TokenizerClass(
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
