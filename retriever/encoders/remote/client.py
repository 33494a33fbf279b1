"""One request for vectors: sent, repeated where that can help, and checked."""

from __future__ import annotations

import email.utils
import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.remote.address import Address
from retriever.errors import ModelError

# Seconds that a request may take; tries of a request; seconds before the second try, which double.
_TIMEOUT = 60.0
_TRIES = 6
_FIRST_WAIT = 0.5
# A server that asks for a longer wait than this is given up.
_LONGEST_WAIT = 120.0
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
# Bytes of an answer; 64 vectors of 4,096 numbers take 6 MB.
_LONGEST_ANSWER = 256 * 1024 * 1024


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Leaves redirects as errors: a text and a key go to the address that was asked for."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Client:
    """Asks one address for vectors; threads may share it.

    Args:
        address: where the encoder is.
        first_wait: seconds before the second try of a request.
        timeout: seconds that a request may take.
    """

    def __init__(
        self, address: Address, *, first_wait: float = _FIRST_WAIT, timeout: float = _TIMEOUT
    ) -> None:
        self.address = address
        self._first_wait = first_wait
        self._timeout = timeout
        # A proxy of the environment is for other machines.
        local = urlsplit(address.url).hostname in ("127.0.0.1", "localhost", "::1")
        proxies = [urllib.request.ProxyHandler({})] if local else []
        self._open = urllib.request.build_opener(_NoRedirect, *proxies).open
        # When a rate limit ends, for all threads.
        self._resume_at = 0.0
        # A server that never answered is not asked again.
        self._answered = False
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Let other threads give up what they wait for; the next request starts again."""
        self._stopped.set()

    def vectors(self, texts: Sequence[str], dimensions: int | None = None) -> NDArray[np.float32]:
        """The vectors of some texts, in one request.

        Args:
            texts: at least one.
            dimensions: that a vector must have; None takes those of the answer.

        Returns:
            (texts, dimensions) float32, finite.

        Raises:
            ModelError: the server cannot be reached, refuses, or does not answer with one finite
                vector for each text.
        """
        self._stopped.clear()
        for attempt in range(_TRIES):
            self._pause(self._resume_at - time.monotonic())
            try:
                answer = self._ask(texts)
            except _PassingError as error:
                wait = error.wait
                if wait is None:
                    wait = self._first_wait * 2**attempt * random.uniform(0.75, 1.25)
                if attempt + 1 == _TRIES or wait > _LONGEST_WAIT:
                    raise ModelError(
                        f"{self.address.url}: {error} ({attempt + 1} tries); run the same command "
                        "again when the server is well"
                    ) from error
                if error.limited:
                    self._resume_at = max(self._resume_at, time.monotonic() + wait)
                else:
                    self._pause(wait)
            else:
                self._answered = True
                return self._checked(answer, len(texts), dimensions)
        raise AssertionError("unreachable")

    def _pause(self, seconds: float) -> None:
        if seconds > 0 and self._stopped.wait(seconds):
            raise ModelError(f"{self.address.url}: given up, since another request failed")

    def _ask(self, texts: Sequence[str]) -> Any:
        """The parsed answer to one request.

        Raises:
            _PassingError: another try may succeed.
            ModelError: it cannot.
        """
        url = f"{self.address.url}/embeddings"
        content = {"model": self.address.name, "input": list(texts), "encoding_format": "float"}
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        key = self.address.key()
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(url, json.dumps(content).encode(), headers)  # noqa: S310
        try:
            with self._open(request, timeout=self._timeout) as response:
                body = response.read(_LONGEST_ANSWER + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(url, error) from error
        except (OSError, http.client.HTTPException) as error:
            reason = " ".join(str(getattr(error, "reason", error) or type(error).__name__).split())
            if self._answered:
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
                f"{url}: expected JSON, found {body[:60]!r}; check that the URL is that of an "
                "embeddings service"
            ) from error

    def _refusal(self, url: str, error: urllib.error.HTTPError) -> Exception:
        said = _message(error)
        if error.code in _PASSING:
            wait = _retry_after(error.headers.get("Retry-After"))
            return _PassingError(f"answered {error.code}{said}", wait, limited=error.code == 429)
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
        return ModelError(f"{url}: answered {error.code}{said}{remedy}")

    def _checked(self, answer: Any, texts: int, dimensions: int | None) -> NDArray[np.float32]:
        """(texts, dimensions) float32 from the parsed answer."""

        def refused(found: str) -> ModelError:
            return ModelError(
                f"{self.address.url}: expected {texts} vectors of {dimensions or 'equally many'} "
                f"finite numbers from {self.address.name}, found {found}"
            )

        data = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
            raise refused("no list of objects in the field data")
        if len(data) != texts:
            raise refused(f"{len(data)}")
        places = [one.get("index", place) for place, one in enumerate(data)]
        if sorted(places, key=str) != sorted(range(texts), key=str):
            raise refused("other values of index than 0 and up, once each")
        rows: list[Any] = [None] * texts
        for place, one in zip(places, data, strict=True):
            rows[place] = one.get("embedding")
        widths = {len(row) if isinstance(row, list) else -1 for row in rows}
        if len(widths) > 1 or widths & {-1, 0}:
            raise refused("vectors of different lengths, or none")
        if dimensions is not None and widths != {dimensions}:
            raise refused(f"vectors of {min(widths)}: the model behind the name is another one")
        if not all(type(number) in (int, float) for row in rows for number in row):
            raise refused("other values than numbers")
        with np.errstate(over="ignore"):
            vectors = np.array(rows, np.float64).astype(np.float32)
        if not np.isfinite(vectors).all():
            raise refused("NaN or infinity")
        return vectors


class _PassingError(Exception):
    """A failure after which another try may succeed.

    Attributes:
        wait: seconds that the server asks to wait; None if it does not say.
        limited: whether a limit of rate was reached, which concerns all requests.
    """

    def __init__(self, text: str, wait: float | None = None, *, limited: bool = False) -> None:
        super().__init__(text)
        self.wait = wait
        self.limited = limited


def _message(error: urllib.error.HTTPError) -> str:
    """What the server says of an error, on one line."""
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


def _retry_after(value: str | None) -> float | None:
    """Seconds of the header, which has a number or a date."""
    if not value:
        return None
    try:
        return max(0.0, float(int(value)))
    except ValueError:
        pass
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time())
