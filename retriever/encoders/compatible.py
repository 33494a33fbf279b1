"""Keywords and attributes of an encoder for programs written for sentence-transformers."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retriever.encoders.computing import cosine_matrix
from retriever.errors import ConfigError, unexpected_keyword

_PROMPT_NAMES = {None: False, "document": False, "passage": False, "query": True}
_OWN_KEYWORDS = (
    "query",
    "batch_size",
    "normalize_embeddings",
    "prompt_name",
    "convert_to_tensor",
)


class ModelCardData:
    """A model card that discards the results of sentence-transformers' evaluators."""

    def set_evaluation_metrics(self, *_: object) -> None:
        """Do nothing."""


class SentenceTransformersMethods(ABC):
    """Methods and attributes of an encoder under the names that sentence-transformers uses."""

    # Attributes that evaluators read.
    similarity_fn_name = "cosine"
    model_card_data = ModelCardData()

    @abstractmethod
    def encode(
        self, texts: str | Sequence[str], *, query: bool = False, **keywords: Any
    ) -> NDArray[np.float32]:
        """Encode texts; see `Encoder.encode`."""

    def encode_query(self, texts: str | Sequence[str], **keywords: Any) -> NDArray[np.float32]:
        """Encode queries: `encode` with ``query=True``."""
        return self.encode(texts, query=True, **keywords)

    def encode_document(self, texts: str | Sequence[str], **keywords: Any) -> NDArray[np.float32]:
        """Encode passages: `encode` under the name that sentence-transformers uses."""
        return self.encode(texts, **keywords)

    def similarity(self, first: ArrayLike, second: ArrayLike) -> Any:
        """Return the (n, m) float32 cosines of (n, dimensions) with (m, dimensions) vectors.

        The cosine of a zero vector is 0. The result is a torch tensor if `first` is one, else a
        NumPy array.
        """
        cosines = cosine_matrix(np.asarray(first), np.asarray(second))
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(first, torch.Tensor):
            return torch.from_numpy(cosines)
        return cosines


def is_query_prompt(prompt_name: str | None) -> bool:
    """Return whether texts with a prompt of this name are queries.

    Raises:
        ConfigError: the name is unknown.
    """
    if not isinstance(prompt_name, str | None) or prompt_name not in _PROMPT_NAMES:
        raise ConfigError(
            f"prompt_name: expected query, document, passage or None, found {prompt_name!r:.60}; "
            "set another prompt as Encoder.load('MODEL::query-prompt=TEXT') or passage-prompt"
        )
    return _PROMPT_NAMES[prompt_name]


def check_encode_keywords(keywords: Mapping[str, object]) -> None:
    """Refuse keywords of `encode` that are unknown or would change its result.

    Raises:
        TypeError: the keyword is unknown.
        ConfigError: the value is set elsewhere; the message says where.
    """
    if not keywords:
        return
    from retriever.guesses import ENCODE_KEYWORDS

    for name, value in keywords.items():
        if name not in ENCODE_KEYWORDS:
            raise unexpected_keyword(name, (*_OWN_KEYWORDS, *ENCODE_KEYWORDS))
        accepted, remedy = ENCODE_KEYWORDS[name]
        # Compare by identity, since comparing an array gives an array.
        if not any(
            value is option or (isinstance(value, str) and value == option) for option in accepted
        ):
            raise ConfigError(f"{name}: expected {accepted[-1]!r}, found {value!r:.60}; {remedy}")
