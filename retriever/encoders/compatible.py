"""Keywords and attributes of an encoder that programs for sentence-transformers use."""

from __future__ import annotations

from collections.abc import Mapping

from retriever.errors import ConfigError, unexpected_keyword
from retriever.guesses import ENCODE_KEYWORDS

_PROMPT_NAMES = {None: False, "document": False, "passage": False, "query": True}
_OWN_KEYWORDS = (
    "query",
    "batch_size",
    "normalize_embeddings",
    "prompt_name",
    "convert_to_tensor",
)


class ModelCardData:
    """The place for results that evaluators of sentence-transformers write to; keeps none."""

    def set_evaluation_metrics(self, *_: object) -> None:
        """Do nothing: an encoder has no model card."""


def is_query_prompt(prompt_name: str | None) -> bool:
    """Return whether texts with a prompt of this name are queries; ConfigError if it is unknown."""
    if not isinstance(prompt_name, str | None) or prompt_name not in _PROMPT_NAMES:
        raise ConfigError(
            f"prompt_name: expected query, document, passage or None, found {prompt_name!r:.60}; "
            "set another prompt as Encoder.load('MODEL::query-prompt=TEXT') or passage-prompt"
        )
    return _PROMPT_NAMES[prompt_name]


def check_encode_keywords(keywords: Mapping[str, object]) -> None:
    """Refuse keywords of `encode` that are unknown or would change its result.

    Raises:
        TypeError: no library that we know has the keyword.
        ConfigError: its value is set elsewhere; the message says where.
    """
    for name, value in keywords.items():
        if name not in ENCODE_KEYWORDS:
            raise unexpected_keyword(name, (*_OWN_KEYWORDS, *ENCODE_KEYWORDS))
        accepted, remedy = ENCODE_KEYWORDS[name]
        # Compared by identity, since an array equals nothing.
        if not any(
            value is option or (isinstance(value, str) and value == option) for option in accepted
        ):
            raise ConfigError(f"{name}: expected {accepted[-1]!r}, found {value!r:.60}; {remedy}")
