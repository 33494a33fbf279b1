"""The file tokenizer.json of a model, checked against the settings beside it.

`tokenizers` reads this file alone. transformers reads the settings too, and for some classes only a
part of the file; see `tokenizer_classes`. A file is accepted if transformers 5 makes the same
tokenizer of it. Otherwise torch takes over.

Regular expressions are accepted only if they are known. The library that matches them backtracks,
so an unknown expression can run for hours. Parts that lengthen a text are accepted once: in a row,
each would multiply its length.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retriever.encoders.model_folders import MALFORMED, ModelFolder, read_json
from retriever.encoders.settings import SHORTEST_WINDOW
from retriever.encoders.transformer.tensors import UnsupportedModelError
from retriever.encoders.transformer.tokenizer_classes import (
    NO_LIMIT,
    PAIR_PROBE,
    PROBE,
    Settings,
    TokenizerClass,
    check_model,
    find_class,
    probe_tokens,
)
from retriever.errors import ModelError

_FILE = "tokenizer.json"
_SETTINGS_FILE = "tokenizer_config.json"
# Files of releases before 4.34, read unless the settings list the added tokens.
_ROLES_FILE = "special_tokens_map.json"
_ADDED_TOKENS_FILE = "added_tokens.json"
_ADDED_TOKENS = "added_tokens_decoder"
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
# Most parts of a normalizer and a pre-tokenizer, and those that lengthen a text.
_MOST_PARTS = 50
_LENGTHENING_PARTS = ("ByteLevel", "Precompiled")
# Most parts of a post-processor, which repeats a text for each, and most added tokens.
_MOST_PROCESSOR_PARTS = 200
_MOST_ADDED_TOKENS = 20_000


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    """A tokenizer of `tokenizers` without padding and truncation, and facts beside it."""

    tokenizer: Any
    max_length: int  # Maximum number of ids that the settings name.
    highest_id: int
    cls: int | None  # Ids of [CLS] and [SEP], whatever their text.
    sep: int | None
    has_types: bool  # Whether the model is given token types.


def read_tokenizer(folder: ModelFolder) -> LoadedTokenizer:
    """Return the tokenizer of a folder.

    Raises:
        UnsupportedModelError: transformers would make another tokenizer.
        ModelError: the file is damaged, or has no piece for unknown words.
    """
    path = folder.path / _FILE
    if not path.is_file():
        raise UnsupportedModelError("no tokenizer.json")
    try:
        settings = _read_settings(folder.path)
        tokenizer_class = find_class(settings, folder.config)
        if tokenizer_class is not None:
            settings = {**tokenizer_class.defaults, **settings}
        file = read_json(path)
        # Before the library reads the file, since it normalizes added tokens.
        _check_file(path, file)
        tokenizer = _read_file(path)
        highest_id = _take_vocabulary(path, file)
        _check_direction(settings, tokenizer)
        roles = _read_roles(settings, tokenizer_class, tokenizer)
        _check_added_tokens(folder.path, settings, file["added_tokens"], roles, tokenizer)
        _check_parts(tokenizer)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        check_model(file["model"], tokenizer.model, tokenizer_class, roles)
        if tokenizer_class is not None:
            tokenizer_class.build(tokenizer, settings, roles)
        return LoadedTokenizer(
            tokenizer,
            _max_length(settings),
            max(highest_id, _read_highest_special(tokenizer)),
            tokenizer.token_to_id(roles.get("cls_token", "")),
            tokenizer.token_to_id(roles.get("sep_token", "")),
            _has_types(settings, tokenizer_class),
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


def _take_vocabulary(path: Path, file: dict[str, Any]) -> int:
    """Remove the vocabulary from a file, and return its highest id.

    The text of the piece for unknown words of a Unigram is put under ``unk_token``.
    """
    model = file["model"]
    model.pop("merges", None)
    vocabulary = model.pop("vocab")
    if isinstance(vocabulary, list):
        unknown_id = model["unk_id"]
        if not 0 <= unknown_id < len(vocabulary):
            raise UnsupportedModelError(f"{path}: no piece {unknown_id} for unknown words")
        model["unk_token"] = vocabulary[unknown_id][0]
        return len(vocabulary) - 1
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in vocabulary:
        raise ModelError(
            f"{path}: expected the piece {unknown!r:.60} for unknown words in its vocabulary, "
            "found none"
        )
    return int(max(vocabulary.values()))


def check_tokenizer_file(folder: Path) -> None:
    """Raise ModelError for a tokenizer.json that would end the process or fill the memory.

    No library checks this. A folder without the file is accepted.
    """
    path = folder / _FILE
    _check_file(path, read_json(path, {}))


def _check_file(path: Path, file: Any) -> None:
    try:
        _check_costs(file)
    except MALFORMED as error:
        raise ModelError(
            f"{path}: the tokenizer cannot be used ({error}); copy, download or save the model "
            "again"
        ) from error


def _read_file(path: Path) -> Any:
    """Return the tokenizer of a file, not yet checked against the settings beside it."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        # The library raises the base class.
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{path}: the tokenizer cannot be read ({reason:.240}); copy, download or save the "
            "model again"
        ) from error


def _check_costs(file: Settings) -> None:
    """Raise ValueError for parts that take memory or time out of proportion to a text."""
    kinds: Counter[str] = Counter()
    for part in (file.get("normalizer"), file.get("pre_tokenizer")):
        for node in _json_objects(part or {}):
            kinds[str(node.get("type"))] += 1
            characters = node.get("precompiled_charsmap")
            if characters is not None:
                from retriever.encoders.transformer.character_map import check_character_map

                check_character_map(_decode_characters(characters))
    if kinds.total() > _MOST_PARTS:
        raise ValueError(f"{kinds.total():,} parts, expected at most {_MOST_PARTS}")
    if any(kinds[kind] > 1 for kind in _LENGTHENING_PARTS):
        raise ValueError("parts in a row that lengthen a text")
    if sum(1 for _ in _json_objects(file.get("post_processor"))) > _MOST_PROCESSOR_PARTS:
        raise ValueError(f"more than {_MOST_PROCESSOR_PARTS} parts of its post-processor")
    added_tokens = len(file.get("added_tokens") or ())
    if added_tokens > _MOST_ADDED_TOKENS:
        raise ValueError(f"{added_tokens:,} added tokens, expected at most {_MOST_ADDED_TOKENS:,}")


def _decode_characters(stored: str | list[int]) -> bytes:
    """Return the bytes of a table of characters, in base64 or as numbers."""
    return base64.b64decode(stored) if isinstance(stored, str) else bytes(stored)


def _check_direction(settings: Settings, tokenizer: Any) -> None:
    """Refuse a tokenizer that cuts the beginning of a text."""
    file_side = (tokenizer.truncation or {}).get("direction", "right")
    if settings.get("truncation_side", file_side) != "right":
        raise UnsupportedModelError("a tokenizer that cuts the beginning of a text")


def _read_roles(
    settings: Settings, tokenizer_class: TokenizerClass | None, tokenizer: Any
) -> dict[str, str]:
    """Return the text of each special token by its role, such as ``cls_token``."""
    tokens: dict[str, Any] = dict(tokenizer_class.roles) if tokenizer_class else {}
    if tokenizer_class is None and tokenizer.padding:
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
        for node in _json_objects(json.loads(part.__getstate__())):
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


def _json_objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every JSON object in a value."""
    if isinstance(value, dict):
        yield value
    children = value.values() if isinstance(value, dict) else value
    for child in children if isinstance(value, dict | list) else ():
        if isinstance(child, dict | list):
            yield from _json_objects(child)


def _read_highest_special(tokenizer: Any) -> int:
    """Return the highest id of added tokens and of special tokens, which may have any id."""
    text_ids = tokenizer.encode(PROBE, add_special_tokens=False).ids
    ids = {0, *tokenizer.get_added_tokens_decoder()}
    for probe, texts in ((PROBE, 1), (PAIR_PROBE, 2)):
        probe_ids, types = probe_tokens(tokenizer, probe)
        if len(probe_ids) - texts * len(text_ids) >= SHORTEST_WINDOW or {*types} - {0, 1}:
            raise UnsupportedModelError("a tokenizer with many special tokens around a text")
        ids |= {*probe_ids}
    return int(max(ids))


def _max_length(settings: Settings) -> int:
    return check_limit(settings.get("model_max_length", settings.get("max_len")) or NO_LIMIT)


def check_limit(longest: Any) -> int:
    """Return the number of ids that the settings of a tokenizer allow for a text."""
    if not isinstance(longest, int | float) or not longest >= 1:
        raise ModelError(
            f"{_SETTINGS_FILE}: expected a number of 1 or more as model_max_length, found "
            f"{longest!r:.40}; copy, download or save the model again"
        )
    return int(min(longest, NO_LIMIT))


def _has_types(settings: Settings, tokenizer_class: TokenizerClass | None) -> bool:
    names = settings.get("model_input_names")
    if names is None:
        return tokenizer_class is not None and tokenizer_class.has_types
    return "token_type_ids" in names
