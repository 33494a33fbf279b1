"""The URL of an index in Milvus, and requests to the server, with errors of one line.

::

    milvus://[user:password@|token@]host[:port]/index[?tls=true&database=…&timeout=…]
    milvus+lite:///folder/file.db[?index=…]

The token can be in the variable MILVUS_TOKEN instead. Neither is ever part of a message.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from indexes.errors import ClosedIndexError, ConfigError, RetrieverError, StorageError

T = TypeVar("T")
Row = dict[str, Any]

PORT = 19530
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_TIMEOUT = 60.0
_CONNECTING = 10.0
# pymilvus sends a ping every ten seconds, and Milvus Lite closes connections for that.
_QUIET = {"grpc_options": {"grpc.keepalive_time_ms": 2**31 - 1}}


@dataclass(frozen=True, slots=True)
class Location:
    """Where an index is."""

    uri: str  # an address, or a file of Milvus Lite; without a secret
    index: str  # its name, an alias of its collection
    database: str = ""  # empty for the server's default
    timeout: float = _TIMEOUT  # of a request, in seconds
    user: str = ""  # empty where there is none
    credentials: str = field(default="", repr=False)  # user:password, or a token

    @property
    def file(self) -> Path | None:
        """The file of Milvus Lite; None for a server."""
        return None if "://" in self.uri else Path(self.uri)

    def __str__(self) -> str:
        if self.file is not None:
            return f"milvus+lite://{self.file}?index={self.index}"
        user = f"{self.user}@" * bool(self.user)
        return f"milvus://{user}{self.uri.partition('://')[2]}/{self.index}"


def parse_location(url: str) -> Location:
    """The location that a URL names."""
    location = None
    options = {}
    # Errors of these calls may repeat a secret.
    with suppress(ValueError):
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        is_file = parts.scheme.lower() == "milvus+lite"
        location = _in_file(parts, options) if is_file else _on_server(parts, options)
    if location is None or options or not _NAME.fullmatch(location.index):
        raise ConfigError(
            "Milvus URL: expected milvus://HOST:PORT/INDEX, with the options tls (true or false), "
            "database and timeout (seconds), or milvus+lite:///FOLDER/FILE.db?index=INDEX, found "
            "another URL; the name of an index has letters, digits and underscores, at most 100"
        )
    return location


def _in_file(parts: SplitResult, options: dict[str, str]) -> Location:
    if parts.netloc or not parts.path.endswith(".db"):
        raise ValueError
    return Location(str(Path(unquote(parts.path)).resolve()), options.pop("index", "index"))


def _on_server(parts: SplitResult, options: dict[str, str]) -> Location:
    host = parts.hostname
    tls = options.pop("tls", "false").lower()
    timeout = float(options.pop("timeout", _TIMEOUT))
    if not host or tls not in ("true", "false") or not 0 < timeout < 1e6:
        raise ValueError
    user = unquote(parts.username or "")
    password = unquote(parts.password or "")
    credentials = f"{user}:{password}"
    if not password:
        # A name alone is a token.
        user, credentials = "", user or os.environ.get("MILVUS_TOKEN", "")
    address = f"[{host}]" if ":" in host else host
    uri = f"{'https' if tls == 'true' else 'http'}://{address}:{parts.port or PORT}"
    index = unquote(parts.path).strip("/")
    return Location(uri, index, options.pop("database", ""), timeout, user, credentials)


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in order, at most `size` at a time."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


# How many clients of this process have a file of Milvus Lite open.
_OPEN: Counter[str] = Counter()
_OPENING = threading.Lock()


class Connection:
    """One client, made at the first request; threads share it."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._client: Any = None
        self._process = 0
        self._closed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Release the client; later requests raise ClosedIndexError."""
        with self._lock:
            client = self._client
            self._client = None
            self._closed = True
        if client is not None and self._process == os.getpid():
            with suppress(Exception):
                client.close()
            self._release()

    @property
    def client(self) -> Any:
        """The client; a forked child gets another."""
        with self._lock:
            if self._closed:
                raise ClosedIndexError(f"{self.location}: the index was closed; open it again")
            if self._client is None or self._process != os.getpid():
                self._client = self._connected()
                self._process = os.getpid()
            return self._client

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """What a method of pymilvus's client returns."""
        client = self.client
        try:
            return getattr(client, method)(*arguments, timeout=self.location.timeout, **options)
        except Exception as error:
            raise self._translated(error) from None

    def _connected(self) -> Any:
        location = self.location
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from pymilvus import MilvusClient

        # They print a stack of calls for each error that is raised here anyway.
        for name in ("pymilvus", "milvus_lite", "grpc._server"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        options: dict[str, Any] = {"token": location.credentials, "db_name": location.database}
        if location.file is not None:
            if not location.file.parent.is_dir():
                raise StorageError(f"{location}: the folder {location.file.parent} does not exist")
            with _OPENING:
                _OPEN[location.uri] += 1
            options |= _QUIET
        try:
            timeout = min(_CONNECTING, location.timeout)
            client = MilvusClient(location.uri, timeout=timeout, **options)
            if location.file is not None:
                # A server loads them by itself, Milvus Lite does not.
                for name in client.list_collections():
                    client.load_collection(name)
            return client
        except Exception as error:
            self._release()
            raise self._translated(error) from None

    def _release(self) -> None:
        """Close the file of Milvus Lite after its last client, so that others can open it."""
        if self.location.file is not None:
            from milvus_lite.server_manager import server_manager_instance

            with _OPENING:
                _OPEN[self.location.uri] -= 1
                if not _OPEN[self.location.uri]:
                    server_manager_instance.release_server(self.location.uri)

    def _translated(self, error: Exception) -> RetrieverError:
        if isinstance(error, RetrieverError):
            return error
        from grpc import RpcError
        from pymilvus.exceptions import MilvusException

        if isinstance(error, MilvusException):
            reason = " ".join(str(error.message).split())
        elif isinstance(error, RpcError):
            # pymilvus lets some pass, such as that of a request that takes too long.
            reason = str(error.code()) if hasattr(error, "code") else type(error).__name__
        else:
            raise error
        whole = self.location.credentials
        for secret in filter(None, (whole, whole.removeprefix(f"{self.location.user}:"))):
            reason = reason.replace(secret, "…")
        reason = reason if len(reason) <= 200 else f"{reason[:199]}…"
        lower = reason.lower()
        if "auth" in lower or "unauthenticated" in lower or "permission" in lower:
            refused = f"Milvus refuses the user or token ({reason}); correct the URL or"
            return ConfigError(f"{self.location}: {refused} MILVUS_TOKEN")
        what = f"Milvus failed: {reason or type(error).__name__}"
        if "fail connecting" in lower:
            # pymilvus says the same in both cases.
            what = "cannot connect to Milvus: no server answers at that address, or it refuses the "
            what += "user or token; correct the URL or MILVUS_TOKEN, or start the server"
        elif "local milvus failed" in lower:
            what = "Milvus Lite cannot open the file; another process may have it open"
        return StorageError(f"{self.location}: {what}")
