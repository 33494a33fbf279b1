"""The address of an encoder behind a URL, and whether the user asked for it."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from retriever.encoders.registry import is_url
from retriever.errors import ConfigError, ModelError

# URLs that may be used without being named, separated by white space.
TRUSTED = "RETRIEVER_URLS"
_KEY = "RETRIEVER_API_KEY"
# This key goes to its own host alone.
_OPENAI_KEY, _OPENAI = "OPENAI_API_KEY", "api.openai.com"


@dataclass(frozen=True, slots=True)
class Address:
    """Where an encoder is.

    Attributes:
        url: of the service, such as ``http://127.0.0.1:8765/v1``.
        name: of the model there.
    """

    url: str
    name: str

    @classmethod
    def parse(cls, model: str) -> Self:
        """Read ``URL#NAME``.

        Raises:
            ConfigError: it has no name, or holds a password or a query.
        """
        url, _, name = model.partition("#")
        try:
            parts = urlsplit(url)
            wrong = parts.hostname is None or parts.port == 0
        except ValueError:
            wrong = True
        if wrong or not name or not url.isascii() or re.search(r"[\x00-\x20\x7f]", url):
            raise ConfigError(
                f"model: expected a URL and the name of the model there, such as "
                f"http://127.0.0.1:8765/v1#all-MiniLM-L6-v2, found {model!r}"
            )
        if "@" in parts.netloc or "?" in url:
            raise ConfigError(
                "model: expected a URL without a password and without a query, since the index "
                f"would store them; put the key into {_KEY}"
            )
        return cls(url.rstrip("/"), name)

    def __str__(self) -> str:
        """``URL#NAME``."""
        return f"{self.url}#{self.name}"

    @property
    def identity(self) -> str:
        """What stands for a hash of weights, which are not at hand."""
        return f"url:{hashlib.sha256(str(self).encode()).hexdigest()}"

    def key(self) -> str | None:
        """The key from the environment, which is never stored."""
        own = os.environ.get(_OPENAI_KEY) if urlsplit(self.url).hostname == _OPENAI else None
        return os.environ.get(_KEY) or own


def require_asked(stored: str, asked: str | None) -> None:
    """See `retriever.encoders.registry.require_asked`; of a URL."""
    address = Address.parse(stored)
    if asked is not None and is_url(asked) and Address.parse(asked) == address:
        return
    trusted = (url.rstrip("/") for url in os.environ.get(TRUSTED, "").split())
    if address.url not in trusted:
        raise ModelError(
            f"the encoder is behind {address.url}, and texts are sent there only if you ask for "
            f"it: add --model '{address}', or {TRUSTED}={address.url} to the "
            "environment, or search with --mode bm25"
        )
