"""The guard before every route: who may call, how much they may send, and for how long.

- The `Host` header names localhost, an IP address or an allowed host. A web page that points its
  own name at this machine (DNS rebinding) is refused.
- The `Origin` header, if there is one, is the service's own or an allowed one. Other web pages may
  only link to the page. They may not even load an image: they could not read the answer, but they
  could time it.
- With a token, everything but the page and /health needs it.
- A change is refused before its body is read, unless the service is writable.
- Only programs of this machine can open a file, and no other web page.
- Behind a proxy the service has an address such as https://example.org/search/. The root path
  /search is removed, whether or not the proxy has removed it.
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

# Paths without a token; the page asks for it.
_PUBLIC = frozenset({"/", "/page.css", "/page.js", "/health"})
_DOCUMENTS = "/documents"
_CHANGES = ("POST", "PUT", "DELETE")
# Seconds in which a client may finish to send a refused request.
_DISCARD_SECONDS = 10.0
# A host name or IP address, and a port.
_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(:[0-9]*)?")
# Headers of every response.
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
# Headers that a proxy adds to the requests that it forwards.
_PROXY_HEADERS = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
)


class Guard:
    """Middleware that refuses forbidden requests, and counts all requests."""

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
        start = time.perf_counter()
        status = 0
        settings = self._settings
        path = _path_below(scope, settings.root_path)
        lacks_slash = not path
        path = path or "/"
        # FastAPI's routes and description expect the whole address.
        root = scope.get("root_path", "") or settings.root_path
        scope = {**scope, "path": f"{root}{path}", "root_path": root}
        is_file = path == FILE_PATH

        async def send_response(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _with_defaults(message["headers"])
            # Each part of a file must be received in time.
            async with asyncio.timeout(settings.timeout if is_file else None):
                await send(message)

        is_change = scope["method"] in _CHANGES and path.startswith(_DOCUMENTS)
        is_upload = scope["method"] == "POST" and path == _DOCUMENTS
        limit = settings.max_upload if is_upload else settings.max_body
        # Each part of a change must arrive in time.
        body = _Body(receive, limit, settings.timeout if is_change else None)
        try:
            refusal = self._refusal(scope, path, is_change=is_change, limit=limit)
            if refusal is not None:
                await _refuse(refusal, scope, receive, send_response)
                return
            if lacks_slash:
                await _folder_redirect(settings.root_path, scope)(scope, receive, send_response)
                return
            try:
                # A change that has begun is finished, however long it takes.
                async with asyncio.timeout(None if is_change or is_file else settings.timeout):
                    await self._app(scope, body.receive, send_response)
            except (TimeoutError, asyncio.CancelledError) as error:
                if status:
                    raise
                await _answer(self._interruption(error), scope, receive, send_response)
        finally:
            self._count(scope, status, time.perf_counter() - start)

    def _interruption(self, error: BaseException) -> ServiceError:
        """Return the answer to a request that was interrupted."""
        if isinstance(error, TimeoutError):
            reason = f"no answer within {self._settings.timeout:g} seconds"
            return ServiceError(504, f"{reason}; ask for fewer queries or hits")
        # uvicorn cancels requests that have not ended in time after SIGTERM.
        reason = "the service is stopping: send the request again; commits stay"
        return ServiceError(503, reason)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        # Only existing routes: a client can make up any number of paths.
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if route != "none" else "none"
        self._requests.labels(route, method, str(status or 499)).inc()
        self._seconds.labels(route).observe(seconds)

    def _refusal(
        self, scope: Scope, path: str, *, is_change: bool, limit: int
    ) -> ServiceError | None:
        """Return the answer to a forbidden request; None if it is allowed."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        host_match = _HOST.fullmatch(host)
        name = "" if host_match is None else host_match[1].strip("[]").lower()
        if not (name == "localhost" or is_address(name) or name in self._settings.hosts):
            return ServiceError(
                421,
                f"the service is not known as {host!r:.80}: call it by its IP address, or start it "
                "with --allow-host",
            )
        origin = headers.get("origin")
        # A browser omits the default port of the scheme in both headers.
        is_own = origin is not None and origin.partition("://")[2] == host
        is_allowed = origin in self._settings.origins and path != FILE_PATH
        if origin is not None and not is_own and not is_allowed:
            return ServiceError(
                403,
                f"pages of the origin {origin!r:.80} may not call the service: allow them with "
                "--cors",
            )
        if _is_cross_site(scope, path, headers) and not is_allowed:
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
        is_preflight = scope["method"] == "OPTIONS" and is_allowed
        if path not in _PUBLIC and not is_preflight and not self._has_token(headers):
            return ServiceError(401, "a token is needed: send the header Authorization: Bearer")
        if is_change and not self._settings.writable:
            return ServiceError(403, "the service is read-only: start it with --writable")
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > limit:
            return _too_large(limit)
        return None

    def _has_token(self, headers: Headers) -> bool:
        """Return whether a request has the token, or needs none."""
        if not self._token:
            return True
        scheme, _, token = headers.get("authorization", "").partition(" ")
        is_equal = hmac.compare_digest(token.encode(), self._token)
        return is_equal and scheme.lower() == "bearer"


class _Body:
    """The body of a request, with limits of its bytes and of the seconds for each part."""

    def __init__(self, receive: Receive, limit: int, seconds: float | None) -> None:
        self._receive = receive
        self._limit = limit
        self._seconds = seconds
        self._size = 0
        self._complete = False

    async def receive(self) -> Message:
        """Return the next part.

        Errors are HTTPExceptions, the only ones that FastAPI passes on while it reads.
        """
        try:
            # After the body, the next message is the disconnection of the client.
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
    """Return the path below the root path; empty for the root path without a final slash."""
    path = str(scope["path"])
    # The prefix that the server, or an application that mounts this one, has set.
    if (mounted := scope.get("root_path", "")) and path.startswith(f"{mounted}/"):
        path = path.removeprefix(mounted)
    if root_path and path == root_path:
        # With the root path /search, it may also be a search whose root path a proxy has removed.
        is_read = scope["method"] in ("GET", "HEAD")
        if is_read and not (path == SEARCH_PATH and scope["query_string"]):
            return ""
    elif root_path and path.startswith(f"{root_path}/"):
        path = path.removeprefix(root_path)
    # A final slash makes no difference, except in ids of documents.
    if path != "/" and not path.startswith(f"{_DOCUMENTS}/"):
        path = path.rstrip("/") or "/"
    return path


def _folder_redirect(root_path: str, scope: Scope) -> RedirectResponse:
    """Redirect to the page with a final slash, since its addresses are relative to a folder."""
    query = scope["query_string"].decode("latin-1")
    folder = root_path.rpartition("/")[2]
    return RedirectResponse(f"{folder}/?{query}" if query else f"{folder}/")


def may_open_files(scope: Scope) -> bool:
    """Return whether a client may open files: a program of this machine, without a proxy.

    A proxy is recognized by the headers that it adds, or by the host name that its clients use. A
    proxy that adds no headers and changes the host name cannot be recognized.
    """
    headers = Headers(scope=scope)
    host_match = _HOST.fullmatch(headers.get("host", ""))
    client = scope.get("client")
    return (
        not any(name in headers for name in _PROXY_HEADERS)
        and host_match is not None
        and is_loopback(host_match[1].lower())
        and client is not None
        and is_loopback(client[0])
    )


def _is_cross_site(scope: Scope, path: str, headers: Headers) -> bool:
    """Return whether another web page sends the request, other than a link to the page."""
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    fetch = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
    return not (scope["method"] == "GET" and path == "/" and fetch == ("navigate", "document"))


def _address_fault(scope: Scope, path: str) -> ServiceError | None:
    """Return the answer to an ambiguous address; None if the address is valid."""
    try:
        unquote_to_bytes(scope.get("raw_path", b"") + b"?" + scope["query_string"]).decode()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        return ServiceError(400, f"address: expected UTF-8, found the byte %{byte:02X}")
    # Starlette ignores a final line feed of a path.
    if path.endswith("\n"):
        return ServiceError(404, f"{path!r:.80}: no such address; use /documents?id=")
    return None


def _with_defaults(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response with the default headers that it lacks."""
    response_headers = list(headers)
    names = {name.lower() for name, _ in response_headers}
    return [*response_headers, *(header for header in _HEADERS if header[0] not in names)]


def _too_large(limit: int) -> ServiceError:
    return ServiceError(413, f"the request is too large: expected at most {limit:,} bytes")


async def _refuse(error: ServiceError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer, then discard the body, since a client that still sends would lose the answer."""

    async def keep_open(message: Message) -> None:
        if message["type"] == "http.response.body":
            message["more_body"] = True
        await send(message)

    await _answer(error, scope, receive, keep_open)
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
