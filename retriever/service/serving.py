"""The server that runs the application, with time limits for request heads and shutdown."""

from __future__ import annotations

import asyncio
import socket
from asyncio import TimerHandle
from threading import Event
from typing import ClassVar

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from indexes.platforms import open_file_limit
from retriever.errors import ConfigError

# Maximum bytes of a request line with its headers.
_HEAD_BYTES = 64 * 1024


def open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one."""
    is_v6 = ":" in host
    family = socket.AF_INET6 if is_v6 else socket.AF_INET
    try:
        return socket.create_server(
            (host.strip("[]"), port), family=family, backlog=1_024, dualstack_ipv6=is_v6
        )
    except OSError as error:
        raise ConfigError(
            f"{host}:{port}: the service cannot listen there ({error.strerror}); choose another "
            "--port or --host"
        ) from error


def create_server(
    app: FastAPI,
    *,
    head_seconds: float = 10.0,
    connections: int = 512,
    drain: int = 30,
    cut: float = 20.0,
) -> uvicorn.Server:
    """Return a server for an application; it ends after SIGINT or SIGTERM.

    Args:
        app: an application of `create_app`.
        head_seconds: seconds in which a request line with its headers must arrive.
        connections: maximum number of connections.
        drain: seconds in which requests may end after the signal.
        cut: seconds after the signal until changes of documents are interrupted.
    """

    class TimedConnection(_Connection):
        seconds = head_seconds

    config = uvicorn.Config(
        app,
        # The parser of httptools does not limit the size of a head.
        http=TimedConnection,
        h11_max_incomplete_event_size=_HEAD_BYTES,
        ws="none",
        limit_concurrency=_limit_connections(connections),
        timeout_graceful_shutdown=drain,
        log_level="warning",
        server_header=False,
    )
    return _Server(config, app.state.stopping, cut)


def _limit_connections(most: int) -> int:
    files = open_file_limit()
    return most if files is None else min(most, files // 2)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, stopping: Event, cut: float) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._cut = cut

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        cut = asyncio.get_running_loop().call_later(self._cut, self._stopping.set)
        await super().shutdown(sockets)
        cut.cancel()
        # A change may still run after a second Ctrl-C.
        self._stopping.set()


class _Connection(H11Protocol):
    """A connection that is closed if no complete request head arrives in time."""

    seconds: ClassVar[float]
    _deadline: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            # A part of a response was sent already.
            self.transport.close()
        if self.cycle is not None:
            # End the request with the faulty body, which has its answer.
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _watch(self) -> None:
        """Set or cancel the deadline of the next head."""
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self._deadline is None:
            self._deadline = self.loop.call_later(self.seconds, self.transport.abort)
        elif not is_idle and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
