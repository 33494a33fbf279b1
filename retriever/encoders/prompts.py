"""Families of encoders that were trained with prompts, according to their model cards.

Vectors without these prompts rank worse. Later releases of most families name the prompts in their
files, where they are read. A model's name alone never adds a prompt to a text.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Any, NamedTuple

from retriever.encoders.spec import EncoderSpec

_ASYMMETRIC = "Represent this sentence for searching relevant passages: "
_INSTRUCTION = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "
)
_SNAPSHOT = re.compile("[0-9a-f]{40}")


class PromptedFamily(NamedTuple):
    """Encoders that need prompts.

    Attributes:
        name: regular expression of the model's name in lower case, without its owner.
        query: prompt of queries.
        passage: prompt of passages; empty if they need none.
        card: model of the family, whose card on huggingface.co names the prompts.
    """

    name: str
    query: str
    passage: str
    card: str


# The first family that matches a name counts.
FAMILIES = (
    PromptedFamily(
        r"e5-(.*-)?instruct", _INSTRUCTION, "", "intfloat/multilingual-e5-large-instruct"
    ),
    PromptedFamily(r"e5-(small|base|large)", "query: ", "passage: ", "intfloat/e5-small-v2"),
    PromptedFamily(
        r"bge-(small|base|large)-zh",
        "为这个句子生成表示以用于检索相关文章：",
        "",
        "BAAI/bge-small-zh-v1.5",
    ),
    PromptedFamily(r"bge-(small|base|large)-en", _ASYMMETRIC, "", "BAAI/bge-small-en-v1.5"),
    PromptedFamily(
        r"arctic-embed-[a-z]+-v2", "query: ", "", "Snowflake/snowflake-arctic-embed-m-v2.0"
    ),
    PromptedFamily(r"arctic-embed", _ASYMMETRIC, "", "Snowflake/snowflake-arctic-embed-m"),
    PromptedFamily(
        r"(nomic-embed-text|modernbert-embed)",
        "search_query: ",
        "search_document: ",
        "nomic-ai/nomic-embed-text-v1.5",
    ),
    PromptedFamily(r"mxbai-embed", _ASYMMETRIC, "", "mixedbread-ai/mxbai-embed-large-v1"),
    PromptedFamily(r"uae-large", _ASYMMETRIC, "", "WhereIsAI/UAE-Large-V1"),
    PromptedFamily(r"gte-qwen", _INSTRUCTION, "", "Alibaba-NLP/gte-Qwen2-1.5B-instruct"),
    # Its prompt has no space after the colon.
    PromptedFamily(r"qwen3-embedding", _INSTRUCTION.rstrip(), "", "Qwen/Qwen3-Embedding-0.6B"),
    PromptedFamily(
        r"embeddinggemma",
        "task: search result | query: ",
        "title: none | text: ",
        "google/embeddinggemma-300m",
    ),
    PromptedFamily(
        r"instructor-(base|large|xl)",
        "Represent the question for retrieving supporting documents: ",
        "Represent the document for retrieval: ",
        "hkunlp/instructor-large",
    ),
)
_PATTERNS = [(re.compile(rf"(?:^|[^a-z0-9]){family.name}"), family) for family in FAMILIES]


def missing_prompts(spec: EncoderSpec) -> str | None:
    """Return advice on the prompts that an encoder of a known family lacks; None without one."""
    if spec.settings.static is not None:
        return None
    parts = re.split(r"[/\\#]", spec.model.lower().rstrip("/"))
    # The hub's cache stores a model as `models--OWNER--NAME/snapshots/COMMIT`.
    is_snapshot = len(parts) > 2 and _SNAPSHOT.fullmatch(parts[-1])
    name = parts[-3] if is_snapshot else parts[-1]
    family = next((family for pattern, family in _PATTERNS if pattern.search(name)), None)
    if family is None:
        return None
    settings = spec.settings
    missing: dict[str, Any] = {}
    if not settings.query_prompt:
        missing["query_prompt"] = family.query
    if family.passage and not settings.passage_prompt:
        missing["passage_prompt"] = family.passage
    if not missing:
        return None
    keys = " and ".join(name.replace("_", "-") for name in missing)
    prompted = shlex.quote(str(replace(settings, **missing)))
    return (
        f"{spec.model}: models of this name need {keys}, and its files name none: rankings are "
        f"worse than they could be; index again with --recreate --model {prompted} (prompts of "
        f"{family.card})"
    )
