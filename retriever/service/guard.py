"""What stands before every route: who may call, how much they may send, and for how long.

- The `Host` header names localhost, an IP address or a host that was allowed. A web page that
  points its own name at this machine (DNS rebinding) is refused.
- The `Origin` header, if there is one, is the service's own or one that was allowed. Other web
  pages may link to the page, and nothing else: a request without an `Origin`, such as one for an
  image, could not read the answer, but it could time it.
- With a token, everything but the page and /health needs it.
- A change is refused before its body is read, unless the service is writable.
- A file is opened for programs of this machine alone, and for no other web page.
- Behind a proxy the service has an address such as https://example.org/search/. What stands before
  its own addresses there, the root path, is taken off, whether or not the proxy has done so.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import unquote_to_bytes

from fastapi import HTTPException
from fastapi.responses import RedirectResponse
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retriever.service.limits import (
    FILE_PATH,
    SEARCH_PATH,
    ServiceError,
    ServiceSettings,
    error_response,
    is_address,
    is_loopback,
)

# What can be read without a token: the page asks for it.
_PUBLIC = frozenset({"/", "/page.css", "/page.js", "/health"})
_DOCUMENTS = "/documents"
_CHANGES = ("POST", "PUT", "DELETE")
# Seconds in which a client may finish sending what is refused.
_DISCARD_SECONDS = 10.0
# A name or an address, and a port.
_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(:[0-9]*)?")
# Of every response.
_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        b"img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


class Guard:
    """Middleware that refuses requests that may not pass, and counts all of them."""

    def __init__(
        self, app: ASGIApp, settings: ServiceSettings, registry: CollectorRegistry
    ) -> None:
        self._app = app
        self._settings = settings
        self._token = settings.token.encode()
        self._requests = Counter(
            "retriever_requests",
            "Requests by route, method and HTTP status.",
            ["route", "method", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "retriever_request_seconds",
            "Time from the arrival of a request to the end of its response.",
            ["route"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        status = 0
        settings = self._settings
        path = _path_below(scope, settings.root_path)
        lacks_slash = not path
        path = path or "/"
        # FastAPI's routes and description expect the whole address.
        root = scope.get("root_path", "") or settings.root_path
        scope = {**scope, "path": f"{root}{path}", "root_path": root}
        is_file = path == FILE_PATH

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _with_defaults(message["headers"])
            async with asyncio.timeout(settings.timeout if is_file else None):
                await send(message)

        change = scope["method"] in _CHANGES and path.startswith(_DOCUMENTS)
        upload = scope["method"] == "POST" and path == _DOCUMENTS
        limit = settings.max_upload if upload else settings.max_body
        # A change has no limit of time but that each part arrives, and a file that each is taken.
        body = _Body(receive, limit, settings.timeout if change else None)
        try:
            refusal = self._refusal(scope, path, change=change, limit=limit)
            if refusal is not None:
                await _refuse(refusal, scope, receive, noted)
                return
            if lacks_slash:
                await _folder_redirect(settings.root_path, scope)(scope, receive, noted)
                return
            try:
                # A change that has begun is finished, however long it takes.
                async with asyncio.timeout(None if change or is_file else settings.timeout):
                    await self._app(scope, body.receive, noted)
            except (TimeoutError, asyncio.CancelledError) as error:
                if status:
                    raise
                if isinstance(error, TimeoutError):
                    late = f"no answer within {settings.timeout:g} seconds"
                    refusal = ServiceError(504, f"{late}; ask for fewer queries or hits")
                else:
                    # uvicorn cancels what has not ended in time after SIGTERM.
                    ended = "the service is stopping: send the request again; commits stay"
                    refusal = ServiceError(503, ended)
                await _answer(refusal, scope, receive, noted)
        finally:
            # Only routes that exist: anybody can make up paths.
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if route != "none" else "none"
            self._requests.labels(route, method, str(status or 499)).inc()
            self._seconds.labels(route).observe(time.perf_counter() - begun)

    def _refusal(self, scope: Scope, path: str, *, change: bool, limit: int) -> ServiceError | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        matched = _HOST.fullmatch(host)
        name = "" if matched is None else matched[1].strip("[]").lower()
        if not (name == "localhost" or is_address(name) or name in self._settings.hosts):
            return ServiceError(
                421,
                f"the service is not known as {host!r:.80}: call it by its IP address, or start it "
                "with --allow-host",
            )
        origin = headers.get("origin")
        # A browser leaves out the port that the scheme implies, in both headers alike.
        own = origin is not None and origin.partition("://")[2] == host
        allowed = origin in self._settings.origins and path != FILE_PATH
        if origin is not None and not own and not allowed:
            return ServiceError(
                403,
                f"pages of the origin {origin!r:.80} may not call the service: allow them with "
                "--cors",
            )
        if _from_elsewhere(scope, path, headers) and not allowed:
            return ServiceError(
                403,
                "other web pages may not call the service: open its page at /, or allow their "
                "origin with --cors",
            )
        if path == FILE_PATH and not may_open_files(scope):
            return ServiceError(403, "files are opened on this machine alone, at http://127.0.0.1")
        fault = _address_fault(scope, path)
        if fault is not None:
            return fault
        asks = scope["method"] == "OPTIONS" and allowed
        if self._token and path not in _PUBLIC and not asks:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            known = hmac.compare_digest(given.encode(), self._token)
            if not known or scheme.lower() != "bearer":
                return ServiceError(401, "a token is needed: send the header Authorization: Bearer")
        if change and not self._settings.writable:
            return ServiceError(403, "the service is read-only: start it with --writable")
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > limit:
            return _too_large(limit)
        return None


class _Body:
    """The body of a request, up to a number of bytes, and with so many seconds for each part."""

    def __init__(self, receive: Receive, limit: int, seconds: float | None) -> None:
        self._receive = receive
        self._limit = limit
        self._seconds = seconds
        self._size = 0
        self._complete = False

    async def receive(self) -> Message:
        """The next part; FastAPI passes on no other error than HTTPException while it reads."""
        try:
            # After the body it waits for the client to leave.
            async with asyncio.timeout(None if self._complete else self._seconds):
                message = await self._receive()
        except TimeoutError:
            late = f"no more of the request arrived within {self._seconds:g} seconds; send it again"
            raise HTTPException(408, late) from None
        if message["type"] == "http.disconnect" and not self._complete:
            raise HTTPException(499, "the client has gone")
        self._complete = not message.get("more_body", False)
        self._size += len(message.get("body", b""))
        if self._size > self._limit:
            error = _too_large(self._limit)
            raise HTTPException(error.status, str(error))
        return message


def _path_below(scope: Scope, root_path: str) -> str:
    """The address below the root path; nothing for the root path without a slash at its end."""
    path = str(scope["path"])
    # What another application that mounts this one, or the server, says that the path begins with.
    if (mounted := scope.get("root_path", "")) and path.startswith(f"{mounted}/"):
        path = path.removeprefix(mounted)
    if root_path and path == root_path:
        # It can also be a search of which a proxy has taken off the same root path.
        reads = scope["method"] in ("GET", "HEAD")
        if reads and not (path == SEARCH_PATH and scope["query_string"]):
            return ""
    elif root_path and path.startswith(f"{root_path}/"):
        path = path.removeprefix(root_path)
    # An address with a slash at its end is the one without it; only ids of documents can end so.
    if path != "/" and not path.startswith(f"{_DOCUMENTS}/"):
        path = path.rstrip("/") or "/"
    return path


def _folder_redirect(root_path: str, scope: Scope) -> RedirectResponse:
    """To the page with a slash at its end, since addresses on it are relative to a folder."""
    query = scope["query_string"].decode("latin-1")
    folder = root_path.rpartition("/")[2]
    return RedirectResponse(f"{folder}/?{query}" if query else f"{folder}/")


# Headers that a proxy adds to what it passes on.
_PROXY_HEADERS = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
)


def may_open_files(scope: Scope) -> bool:
    """Return whether a program of this machine asks, by a name of this machine, without a proxy.

    A proxy is known by the headers that it adds, or by the name that its clients use. One that adds
    none and changes the name cannot be told from a browser of this machine.
    """
    headers = Headers(scope=scope)
    matched = _HOST.fullmatch(headers.get("host", ""))
    client = scope.get("client")
    return (
        not any(name in headers for name in _PROXY_HEADERS)
        and matched is not None
        and is_loopback(matched[1].lower())
        and client is not None
        and is_loopback(client[0])
    )


def _from_elsewhere(scope: Scope, path: str, headers: Headers) -> bool:
    """Whether another web page sends it, and it is no link to the page that a user followed."""
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    followed = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
    return not (scope["method"] == "GET" and path == "/" and followed == ("navigate", "document"))


def _address_fault(scope: Scope, path: str) -> ServiceError | None:
    """Return the refusal of an address that could stand for another one; None if it is sound."""
    try:
        unquote_to_bytes(scope.get("raw_path", b"") + b"?" + scope["query_string"]).decode()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        return ServiceError(400, f"address: expected UTF-8, found the byte %{byte:02X}")
    # Starlette's paths end before a line feed at their end.
    if path.endswith("\n"):
        return ServiceError(404, f"{path!r:.80}: no such address; use /documents?id=")
    return None


def _with_defaults(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a response, and those of every response that it does not have."""
    own = list(headers)
    names = {name.lower() for name, _ in own}
    return [*own, *(header for header in _HEADERS if header[0] not in names)]


def _too_large(limit: int) -> ServiceError:
    return ServiceError(413, f"the request is too large: expected at most {limit:,} bytes")


async def _refuse(error: ServiceError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer, and throw away the body: a client that still sends would lose the answer."""

    async def held(message: Message) -> None:
        if message["type"] == "http.response.body":
            message["more_body"] = True
        await send(message)

    await _answer(error, scope, receive, held)
    with suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            while (await receive()).get("more_body", False):
                pass
    await send({"type": "http.response.body", "body": b""})


async def _answer(error: ServiceError, scope: Scope, receive: Receive, send: Send) -> None:
    response = error_response(error)
    if error.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    await response(scope, receive, send)
