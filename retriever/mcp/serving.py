"""A server on standard input and output, or over HTTP."""

from __future__ import annotations

import hmac
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server

from retriever.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Bytes; a query is far smaller.
_LONGEST_BODY = 1024 * 1024


def serve_stdio(server: Server[Any]) -> None:
    """Serve one client on standard input and output, until its input ends.

    Meanwhile whatever else writes to standard output goes to standard error.
    """

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)


def serve_http(
    server: Server[Any],
    host: str,
    port: int,
    token: str | None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve any number of clients at ``http://HOST:PORT/mcp``, without sessions.

    Args:
        server: what answers.
        host: the address to listen on.
        port: the port there.
        token: that clients have to send; None for none.
        ready: called when clients can connect.

    Raises:
        ConfigError: the host is not this machine alone, and there is no token.
        StorageError: the address cannot be used.
    """
    import uvicorn

    app = http_app(server, host, token)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise StorageError(
            f"{host}, port {port}: the server cannot listen there ({error.strerror}); choose "
            "another --http or --host"
        ) from error
    with listening:
        ready()
        config = uvicorn.Config(app, log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listening])


def http_app(server: Server[Any], host: str, token: str | None) -> ASGIApp:
    """The ASGI application that `serve_http` runs.

    On a loopback address it answers only if the headers Host and, where a browser sends it, Origin
    name this machine, so that no web page can reach it through DNS rebinding. On another one, the
    token is what a web page does not have.

    Raises:
        ConfigError: the host is not this machine alone, and there is no token.
    """
    if host not in LOOPBACK and not token:
        raise ConfigError(
            f"--host {host}: other machines can reach this address: set a token with --token or "
            "RETRIEVER_TOKEN"
        )
    app = server.streamable_http_app(
        stateless_http=True, json_response=True, max_request_body_size=_LONGEST_BODY, host=host
    )
    return _WithToken(app, token) if token else app


class _WithToken:
    """Refuses requests without the header ``Authorization: Bearer TOKEN``."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] != "lifespan" and not hmac.compare_digest(given, self._expected):
            from starlette.responses import JSONResponse

            refusal = JSONResponse(
                {"error": "expected the header Authorization: Bearer TOKEN"},
                status_code=401,
                headers={"WWW-Authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)
