"""What stands before every route: who may call, how much they may send, and for how long.

- The `Host` header names localhost, an IP address or a host that was allowed. A web page that
  points its own name at this machine (DNS rebinding) is refused.
- The `Origin` header, if there is one, is the service's own or one that was allowed.
- With a token, everything but the page and /health needs it.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from urllib.parse import urlsplit

from fastapi import HTTPException
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retriever.service.faults import ServiceError, fault_response
from retriever.service.settings import ServiceSettings, is_address

# What can be read without a token: the page asks for it.
PUBLIC = frozenset({"/", "/page.css", "/page.js", "/health"})
_DOCUMENTS = "/documents"
_CHANGES = ("POST", "PUT", "DELETE")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    """Refuses requests that may not pass, and counts all of them.

    Args:
        app: what is guarded.
        settings: what is allowed.
        registry: gets the counts.
    """

    def __init__(
        self, app: ASGIApp, settings: ServiceSettings, registry: CollectorRegistry
    ) -> None:
        self._app = app
        self._settings = settings
        self._token = f"Bearer {settings.token}".encode() if settings.token else None
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
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        # A change that has begun is finished, however long it takes.
        upload = scope["method"] in _CHANGES and scope["path"].startswith(_DOCUMENTS)
        try:
            refusal = self._refusal(scope, upload=upload)
            if refusal is not None:
                await _answer(refusal, scope, receive, noted)
                return
            limited = self._limited(receive, upload=upload)
            try:
                async with asyncio.timeout(None if upload else self._settings.timeout):
                    await self._app(scope, limited, noted)
            except TimeoutError:
                if status:
                    raise
                seconds = f"{self._settings.timeout:g}"
                late = f"no answer within {seconds} seconds; ask for fewer queries or hits"
                await _answer(ServiceError(504, late), scope, receive, noted)
        finally:
            # Only routes that exist: anybody can make up paths.
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if route != "none" else "none"
            self._requests.labels(route, method, str(status or 499)).inc()
            self._seconds.labels(route).observe(time.perf_counter() - begun)

    def _refusal(self, scope: Scope, *, upload: bool) -> ServiceError | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname or ""
        if not (name == "localhost" or is_address(name) or name in self._settings.hosts):
            return ServiceError(
                421,
                f"the service is not known as {name!r:.80}: call it by its IP address, or start it "
                "with --allow-host",
            )
        origin = headers.get("origin")
        # A browser leaves out the port that the scheme implies, in both headers alike.
        if (
            origin is not None
            and urlsplit(origin).netloc != host
            and origin not in self._settings.origins
        ):
            return ServiceError(
                403,
                f"pages of the origin {origin!r:.80} may not call the service: allow them with "
                "--cors",
            )
        asks = scope["method"] == "OPTIONS" and origin in self._settings.origins
        if self._token is not None and scope["path"] not in PUBLIC and not asks:
            given = headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, self._token):
                return ServiceError(401, "a token is needed: send the header Authorization: Bearer")
        length = headers.get("content-length", "0")
        limit = self._limit(upload=upload)
        if length.isdecimal() and int(length) > limit:
            return _too_large(limit)
        return None

    def _limit(self, *, upload: bool) -> int:
        return self._settings.max_upload if upload else self._settings.max_body

    def _limited(self, receive: Receive, *, upload: bool) -> Receive:
        """`receive` up to the limit of a body, each part of an upload within the time limit."""
        read, limit = 0, self._limit(upload=upload)
        more = True

        async def limited() -> Message:
            nonlocal read, more
            # After the body it waits for the client to leave.
            async with asyncio.timeout(self._settings.timeout if upload and more else None):
                message = await receive()
            more = more and message.get("more_body", False)
            read += len(message.get("body", b""))
            if read > limit:
                error = _too_large(limit)
                # FastAPI passes on no other error while it reads a body.
                raise HTTPException(error.status, str(error))
            return message

        return limited


def _too_large(limit: int) -> ServiceError:
    return ServiceError(413, f"the request is too large: expected at most {limit:,} bytes")


async def _answer(error: ServiceError, scope: Scope, receive: Receive, send: Send) -> None:
    response = fault_response(error)
    if error.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    await response(scope, receive, send)
