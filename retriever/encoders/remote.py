"""Encoders behind a URL: services with the embeddings API of OpenAI."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.registry import (
    EncoderKind,
    EncoderModel,
    LoadContext,
    SizedText,
    Span,
    is_url,
    plain_settings,
    refuse_settings,
)
from retriever.encoders.settings import EncoderSettings
from retriever.encoders.spec import PROBES, EncoderSpec
from retriever.errors import ConfigError, ModelError

# Environment variable: URLs that may be used without being named, separated by white space.
TRUSTED = "RETRIEVER_URLS"
_KEY = "RETRIEVER_API_KEY"
# This key is sent only to its own host.
_OPENAI_KEY = "OPENAI_API_KEY"
_OPENAI = "api.openai.com"
# Seconds that a request may take.
_TIMEOUT = 60.0
_TRIES = 6
# Seconds before the second try; they double with each further try.
_FIRST_WAIT = 0.5
# Most seconds to wait for a server.
_LONGEST_WAIT = 120.0
# HTTP statuses after which another try may succeed.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
# Most bytes of an answer; 64 vectors of 4,096 numbers take 6 MB.
_LONGEST_ANSWER = 256 * 1024 * 1024
# Pieces of a passage by default: 256 of them are 300 to 400 word pieces of common tokenizers.
WINDOW = 256
# Concurrent requests, and the most texts and pieces of a request.
_IN_FLIGHT = 8
_TEXTS = 64
_PIECES = 4096
# Pieces, since the model's own tokenizer is unknown: up to 12 characters of a word, or one
# character of a script without spaces.
_PIECE = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|"
    r"[^\s\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,12}"
)
_ALLOWED_SETTINGS = ("model", "normalize", "query_prompt", "passage_prompt", "max_length")


@dataclass(frozen=True, slots=True)
class Address:
    """The URL of a service and the name of a model there."""

    url: str
    name: str

    @classmethod
    def parse(cls, model: str) -> Self:
        """Read ``URL#NAME``."""
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
        """Return ``URL#NAME``."""
        return f"{self.url}#{self.name}"

    @property
    def identity(self) -> str:
        """A hash of the address, in place of a hash of the weights."""
        return f"url:{hashlib.sha256(str(self).encode()).hexdigest()}"

    def key(self) -> str | None:
        """Return the key from the environment. It is never stored."""
        own = os.environ.get(_OPENAI_KEY) if urlsplit(self.url).hostname == _OPENAI else None
        return os.environ.get(_KEY) or own


def require_trusted(stored: str, requested: str | None) -> None:
    """Refuse a stored URL that the user neither names nor trusts."""
    address = Address.parse(stored)
    if requested is not None and is_url(requested) and Address.parse(requested) == address:
        return
    trusted = (url.rstrip("/") for url in os.environ.get(TRUSTED, "").split())
    if address.url not in trusted:
        raise ModelError(
            f"the encoder is behind {address.url}; texts go there only if you ask for it: add "
            f"--model '{address}', or {TRUSTED}={address.url} to the environment, or search with "
            "--mode bm25"
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that treats redirects as errors: texts and key go only to the named address."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _PassingError(Exception):
    """A failure after which another try may succeed; `wait` is the server's delay in seconds."""

    def __init__(self, text: str, wait: float | None = None) -> None:
        super().__init__(text)
        self.wait = wait


def _read_message(error: urllib.error.HTTPError) -> str:
    """Return the server's message for an error, on one line in parentheses."""
    try:
        text = error.read(10_000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return ""
    try:
        parsed = json.loads(text)
        inner = parsed.get("error", parsed)
        text = str(inner.get("message", inner) if isinstance(inner, dict) else inner)
    except (ValueError, AttributeError, RecursionError):
        pass
    text = " ".join(text.split())[:300]
    return f" ({text})" if text else ""


class RemoteModel(EncoderModel):
    """An embeddings service as a model. Threads may share it."""

    batch_pieces = _IN_FLIGHT * _PIECES
    not_a_source = "is behind a URL; expected encoders on this machine"

    def __init__(self, address: Address) -> None:
        self._address = address
        # The proxy of the environment is for other machines.
        local = urlsplit(address.url).hostname in ("127.0.0.1", "localhost", "::1")
        proxies = [urllib.request.ProxyHandler({})] if local else []
        self._open = urllib.request.build_opener(_NoRedirect, *proxies).open
        # Set when a request fails, to end the waiting of other threads.
        self._stopped = threading.Event()
        # 0 until the first answer.
        self.dimensions = 0
        self.probes = self._fetch_vectors(PROBES)
        self.dimensions = self.probes.shape[1]

    def tokenize(
        self, texts: Sequence[str], max_length: int | None = None, *, query: bool = False
    ) -> list[SizedText]:
        """Return each text with its number of pieces, cut to `max_length` pieces if it is set."""
        sized_texts = []
        for text in texts:
            offsets = self.piece_offsets(text)
            if max_length is not None and len(offsets) > max_length:
                sized_texts.append(SizedText(text[: offsets[max_length - 1][1]], max_length))
            else:
                sized_texts.append(SizedText(text, len(offsets)))
        return sized_texts

    def piece_offsets(self, text: str) -> list[Span]:
        """Return the (start, stop) character offsets of each piece."""
        return [match.span() for match in _PIECE.finditer(text)]

    def embed(self, pieces: Sequence[SizedText]) -> NDArray[np.float32]:
        """Return (texts, dimensions) float32, not normalized, with concurrent requests."""
        requests = list(_divide_requests(pieces))
        if len(requests) == 1:
            return self._fetch_vectors(requests[0])
        with ThreadPoolExecutor(min(_IN_FLIGHT, len(requests))) as pool:
            futures = [pool.submit(self._fetch_vectors, texts) for texts in requests]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self._stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return np.concatenate([future.result() for future in futures])

    def _fetch_vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Request (texts, dimensions) finite float32 vectors; repeat after passing failures."""
        self._stopped.clear()
        for attempt in range(1, _TRIES + 1):
            try:
                return self._parse_vectors(self._request(texts), len(texts))
            except _PassingError as error:
                wait = error.wait
                if wait is None:
                    wait = _FIRST_WAIT * 2 ** (attempt - 1) * random.uniform(0.75, 1.25)
                if attempt == _TRIES or wait > _LONGEST_WAIT:
                    raise ModelError(
                        f"{self._address.url}: {error} ({attempt} tries); run the same command "
                        "again when the server is well"
                    ) from error
            if self._stopped.wait(wait):
                raise ModelError(f"{self._address.url}: given up, since another request failed")
        raise AssertionError("unreachable")

    def _request(self, texts: Sequence[str]) -> Any:
        """Send one request and return the parsed answer."""
        url = f"{self._address.url}/embeddings"
        content = {"model": self._address.name, "input": list(texts), "encoding_format": "float"}
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        key = self._address.key()
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(url, json.dumps(content).encode(), headers)  # noqa: S310
        try:
            with self._open(request, timeout=_TIMEOUT) as response:
                body = response.read(_LONGEST_ANSWER + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise self._convert_error(url, error) from error
        except (OSError, http.client.HTTPException) as error:
            reason = " ".join(str(getattr(error, "reason", error) or type(error).__name__).split())
            if self.dimensions:
                raise _PassingError(f"cannot be reached ({reason})") from error
            raise ModelError(
                f"{url}: cannot be reached ({reason}); start the server or correct the URL"
            ) from error
        if len(body) > _LONGEST_ANSWER:
            raise ModelError(f"{url}: expected vectors, found more than {_LONGEST_ANSWER:,} bytes")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ModelError(
                f"{url}: expected JSON, found {body[:60]!r}; check that the URL names an "
                "embeddings service"
            ) from error

    def _convert_error(self, url: str, error: urllib.error.HTTPError) -> Exception:
        reason = _read_message(error)
        if error.code in _PASSING:
            retry_after = error.headers.get("Retry-After", "")
            wait = float(retry_after) if re.fullmatch("[0-9]{1,9}", retry_after) else None
            return _PassingError(f"answered {error.code}{reason}", wait)
        if 300 <= error.code < 400:
            target = error.headers.get("Location", "")
            return ModelError(
                f"{url}: redirects to {target[:200]!r}; name that URL if you trust it"
            )
        remedy = {
            401: "; put the key into RETRIEVER_API_KEY",
            403: "; put the key into RETRIEVER_API_KEY",
            404: "; check the URL and the name of the model",
            413: "; set a smaller ::max-length",
        }.get(error.code, "")
        return ModelError(f"{url}: answered {error.code}{reason}{remedy}")

    def _parse_vectors(self, answer: Any, texts: int) -> NDArray[np.float32]:
        """Read (texts, dimensions) float32 from the parsed answer."""
        problem = "another form than that of OpenAI's embeddings"
        try:
            indices = [item.get("index", position) for position, item in enumerate(answer["data"])]
            rows = dict(zip(indices, [item["embedding"] for item in answer["data"]], strict=True))
            # Without a dtype, which would convert text to numbers.
            vectors = np.array([rows[position] for position in range(len(indices))])
            count, width = vectors.shape if vectors.dtype.kind in "if" else (0, 0)
        except (AttributeError, KeyError, TypeError, ValueError):
            count = width = 0
        if width:
            problem = f"{count} vectors of {width}"
            if count == texts and width == (self.dimensions or width):
                with np.errstate(over="ignore"):
                    vectors = vectors.astype(np.float32)
                if np.isfinite(vectors).all():
                    return vectors
                problem = "NaN or infinity"
        raise ModelError(
            f"{self._address.url}: expected {texts} vectors of "
            f"{self.dimensions or 'equally many'} finite numbers from {self._address.name}, found "
            f"{problem}"
        )


def _divide_requests(pieces: Sequence[SizedText]) -> Iterator[list[str]]:
    """Divide texts into requests, in order."""
    texts: list[str] = []
    size = 0
    for text in pieces:
        if texts and (len(texts) == _TEXTS or size + len(text) > _PIECES):
            yield texts
            texts = []
            size = 0
        texts.append(text.text)
        size += len(text)
    yield texts


def _load(requested: EncoderSettings, _: LoadContext) -> tuple[EncoderSpec, RemoteModel]:
    reason = "is behind a URL, and only its vectors can be read; leave it out"
    refuse_settings(requested, _ALLOWED_SETTINGS, reason)
    address = Address.parse(requested.model or "")
    model = RemoteModel(address)
    settings = plain_settings(
        requested, model=str(address), max_length=requested.max_length or WINDOW
    )
    return EncoderSpec(settings, address.identity, model.dimensions), model


KIND = EncoderKind(
    _load, weights=lambda requested, download: Address.parse(requested.model or "").identity
)
