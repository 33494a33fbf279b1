"""Families of encoders with the settings on their model cards, and a note on what files lack.

Files of first releases often name no prompt, and files saved by transformers name no pooling.
Vectors without these settings rank worse. A model's name alone never changes a setting.

To add a family, read its model card and add an entry to `FAMILIES`, the narrower name first.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from retriever.encoders.model_folders import DEFAULT_WINDOW, find_path, read_json
from retriever.encoders.registry import META_FILE, is_folder_with, is_url
from retriever.encoders.settings import Pooling
from retriever.encoders.spec import EncoderSpec
from retriever.errors import RetrieverError

_HUB = "https://huggingface.co/"
_MTEB = "https://github.com/embeddings-benchmark/mteb/blob/main/mteb/models/model_implementations/"
_SEARCH_PROMPT = "Represent this sentence for searching relevant passages: "
_SNAPSHOT = re.compile("[0-9a-f]{40}")
# The base model in the front matter of a card, alone or first in a list.
_CARD_NAME = re.compile(
    r"^(?:base_model|model_name):[ \t]*(?:\n[ \t]*-[ \t]*)?[\"']?([\w./-]+)", re.MULTILINE
)
# Characters read from a card. Tables of results can make its front matter long.
_CARD_CHARACTERS = 1_000_000


class ModelFamily(NamedTuple):
    """Encoders with the same settings.

    Attributes:
        pattern: regular expression of the model's name in lower case, without its owner.
        card: model of the family, by its id on huggingface.co.
        source: page that names the settings.
        query: prompt of queries; empty if they need none.
        passage: prompt of passages; empty if they need none.
        pooling: pooling that the model was trained with; None if the page does not say.
        window: most word pieces of a text, special tokens and prompt included.
    """

    pattern: str
    card: str
    source: str
    query: str = ""
    passage: str = ""
    pooling: Pooling | None = None
    window: int = DEFAULT_WINDOW


# The first family that matches a name counts.
FAMILIES = (
    ModelFamily(
        "multilingual-e5-large-instruct",
        "intfloat/multilingual-e5-large-instruct",
        f"{_HUB}intfloat/multilingual-e5-large-instruct",
        query="Instruct: Given a web search query, retrieve relevant passages that answer the query"
        "\nQuery: ",
        pooling="mean",
    ),
    ModelFamily(
        "e5-(small|base|large)(?!-unsupervised)",
        "intfloat/e5-small-v2",
        f"{_HUB}intfloat/e5-small-v2",
        query="query: ",
        passage="passage: ",
        pooling="mean",
    ),
    ModelFamily(
        "bge-(small|base|large)-zh",
        "BAAI/bge-base-zh",
        f"{_HUB}BAAI/bge-base-en-v1.5",
        query="为这个句子生成表示以用于检索相关文章：",
        pooling="cls",
    ),
    ModelFamily(
        "bge-(small|base|large)-en",
        "BAAI/bge-base-en-v1.5",
        f"{_HUB}BAAI/bge-base-en-v1.5",
        query=_SEARCH_PROMPT,
        pooling="cls",
    ),
    ModelFamily(
        "bge-m3(?!-(unsupervised|retromae))",
        "BAAI/bge-m3",
        f"{_HUB}BAAI/bge-m3",
        pooling="cls",
        window=8192,
    ),
    ModelFamily(
        "gte-(small|base|large)(?!-(zh|en))",
        "thenlper/gte-base",
        f"{_HUB}thenlper/gte-base",
        pooling="mean",
    ),
    ModelFamily(
        "arctic-embed-(xs|s|m|l)(?!-(v2|long))",
        "Snowflake/snowflake-arctic-embed-m",
        f"{_HUB}Snowflake/snowflake-arctic-embed-m",
        query=_SEARCH_PROMPT,
        pooling="cls",
    ),
    ModelFamily(
        r"nomic-embed-text-v1(\.5)?",
        "nomic-ai/nomic-embed-text-v1.5",
        f"{_HUB}nomic-ai/nomic-embed-text-v1.5",
        query="search_query: ",
        passage="search_document: ",
        pooling="mean",
        window=8192,
    ),
    ModelFamily(
        "mxbai-embed-large",
        "mixedbread-ai/mxbai-embed-large-v1",
        f"{_HUB}mixedbread-ai/mxbai-embed-large-v1",
        query=_SEARCH_PROMPT,
        pooling="cls",
    ),
    ModelFamily(
        "mdbr-leaf-(ir|mt)",
        "MongoDB/mdbr-leaf-ir",
        f"{_MTEB}mdbr_models.py",
        query=_SEARCH_PROMPT,
    ),
    ModelFamily(
        "uae-large",
        "WhereIsAI/UAE-Large-V1",
        "https://github.com/SeanLee97/AnglE",
        query=_SEARCH_PROMPT,
        pooling="cls",
    ),
    ModelFamily(
        "denseon(?!-unsupervised)",
        "lightonai/DenseOn",
        f"{_HUB}lightonai/DenseOn",
        query="query: ",
        passage="document: ",
        pooling="cls",
    ),
    ModelFamily(
        "embeddinggemma-300m",
        "google/embeddinggemma-300m",
        f"{_HUB}google/embeddinggemma-300m",
        query="task: search result | query: ",
        passage="title: none | text: ",
        window=2048,
    ),
)
_PATTERNS = [
    (re.compile(rf"(?<![a-z0-9])(?:{family.pattern})(?![a-z0-9])"), family) for family in FAMILIES
]


def missing_settings(spec: EncoderSpec) -> str | None:
    """Return advice on the settings that a model of a known family lacks; None without one."""
    model = spec.model
    is_transformer = spec.settings.static is None and not model.endswith(".npy")
    if spec.is_given or not is_transformer or is_folder_with(META_FILE, model):
        return None
    family = _match_family(model)
    base = None
    if family is None and os.path.isdir(model):
        base = next(filter(_match_family, _base_models(Path(model))), None)
        family = None if base is None else _match_family(base)
    if family is None:
        return None
    missing = _missing_prompts(spec, family) | _missing_file_settings(spec, family)
    if not missing:
        return None
    *first_keys, last_key = (name.replace("_", "-") for name in missing)
    keys = f"{', '.join(first_keys)} and {last_key}" if first_keys else last_key
    origin = "models of this name" if base is None else f"models made from {base}"
    settings = shlex.quote(str(replace(spec.settings, **missing)))
    return (
        f"{model}: {origin} need {keys}, and its files name none: rankings can be worse without; "
        f"index again with --recreate --model {settings} (settings of {family.card}: "
        f"{family.source})"
    )


def _match_family(model: str) -> ModelFamily | None:
    parts = re.split(r"[/\\#]", model.lower().rstrip("/\\"))
    # The hub's cache stores a model as `models--OWNER--NAME/snapshots/COMMIT`.
    is_snapshot = len(parts) > 2 and _SNAPSHOT.fullmatch(parts[-1])
    name = parts[-3] if is_snapshot else parts[-1]
    return next((family for pattern, family in _PATTERNS if pattern.search(name)), None)


def _base_models(folder: Path) -> Iterator[str]:
    """Yield the models that the files in a folder were made from, according to these files."""
    with suppress(RetrieverError, AttributeError):
        yield str(read_json(folder / "config.json", {}).get("_name_or_path", ""))
    with suppress(OSError), (folder / "README.md").open(encoding="utf-8", errors="replace") as card:
        text = card.read(_CARD_CHARACTERS)
        front_matter = text[3:].partition("\n---")[0] if text.startswith("---") else ""
        yield from _CARD_NAME.findall(front_matter)


def _missing_prompts(spec: EncoderSpec, family: ModelFamily) -> dict[str, Any]:
    prompts = {"query_prompt": family.query, "passage_prompt": family.passage}
    return {
        name: prompt
        for name, prompt in prompts.items()
        if prompt and not getattr(spec.settings, name)
    }


def _missing_file_settings(spec: EncoderSpec, family: ModelFamily) -> dict[str, Any]:
    """Return pooling and window if they differ from the card and no file names them."""
    expected: dict[str, Any] = {}
    uses_last_layer = spec.settings.layers is None and spec.settings.fusion is None
    pooling = spec.effective_value("pooling")
    if uses_last_layer and family.pooling not in (None, pooling):
        expected["pooling"] = family.pooling
    # Another window than the default one is the user's choice.
    if spec.max_length == DEFAULT_WINDOW and family.window != DEFAULT_WINDOW:
        expected["max_length"] = family.window
    folder = _find_folder(spec.model) if expected else None
    if folder is None:
        return {}
    if (folder / "modules.json").is_file():
        expected.pop("pooling", None)
    with suppress(RetrieverError, AttributeError):
        if read_json(folder / "sentence_bert_config.json", {}).get("max_seq_length"):
            expected.pop("max_length", None)
    return expected


def _find_folder(model: str) -> Path | None:
    """Return the folder of a model on this disk; None for a URL or a model elsewhere."""
    if not is_url(model):
        with suppress(RetrieverError, ImportError, OSError):
            return find_path(model)
    return None
