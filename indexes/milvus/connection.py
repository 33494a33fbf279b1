"""The URL of an index in Milvus, and requests to the server, with errors of one line.

::

    milvus://[user:password@|token@]host[:port]/index[?tls=true&database=…&timeout=…]
    milvus+lite:///folder/file.db[?index=…]

The token can be in the variable MILVUS_TOKEN instead. No message repeats a password or token.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from indexes.errors import ConfigError, StorageError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_PORT = 19530
# Seconds until a server must answer for the first time.
_CONNECT_TIMEOUT = 10.0
_CONNECT_ADVICE = (
    "; check the user, token or MILVUS_TOKEN, and that the server runs; of a file, that its folder "
    "exists and that no other process has it open"
)
# pymilvus sends a ping every ten seconds, which makes Milvus Lite close the connection.
_NO_PINGS = {"grpc.keepalive_time_ms": 2**31 - 1}


@dataclass(frozen=True, slots=True)
class MilvusLocation:
    """The place of an index."""

    uri: str  # an address, or a file of Milvus Lite; without a secret
    index: str  # its name, an alias of its collection
    database: str = ""  # empty for the server's default
    timeout: float = 60.0  # of a request, in seconds
    credentials: str = field(default="", repr=False)  # user:password, or a token

    @property
    def is_file(self) -> bool:
        """Whether it is a file of Milvus Lite."""
        return "://" not in self.uri

    def __str__(self) -> str:
        if self.is_file:
            return f"milvus+lite://{self.uri}?index={self.index}"
        user, colon, _ = self.credentials.partition(":")
        return f"milvus://{f'{user}@' if colon else ''}{self.uri.partition('://')[2]}/{self.index}"


def parse_location(url: str) -> MilvusLocation:
    """Parse the URL of an index; ConfigError, without the URL, if it is malformed."""
    # Errors of these calls may repeat a secret.
    with suppress(ValueError, KeyError):
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        path = unquote(parts.path)
        if parts.scheme.lower() == "milvus+lite":
            is_complete = path.endswith(".db") and not parts.netloc
            location = MilvusLocation(str(Path(path).resolve()), options.pop("index", "index"))
        else:
            is_complete = bool(parts.hostname)
            # A name without a password is a token.
            names = [unquote(name) for name in (parts.username, parts.password) if name]
            scheme = {"true": "https", "false": "http"}[options.pop("tls", "false").lower()]
            host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
            location = MilvusLocation(
                f"{scheme}://{host}:{parts.port or _PORT}",
                path.strip("/"),
                options.pop("database", ""),
                float(options.pop("timeout", 60)),
                ":".join(names) or os.environ.get("MILVUS_TOKEN", ""),
            )
        is_valid = is_complete and not options and 0 < location.timeout < 1e6
        if is_valid and _NAME.fullmatch(location.index):
            return location
    raise ConfigError(
        "Milvus URL: expected milvus://HOST:PORT/INDEX, or "
        "milvus+lite:///FOLDER/FILE.db?index=INDEX, found another URL; options are tls (true or "
        "false), database and timeout (seconds); INDEX has letters, digits and underscores, at "
        "most 100"
    )


def call(location: MilvusLocation, method: str, *arguments: Any, **options: Any) -> Any:
    """Call a method of pymilvus's client."""
    request = getattr(run(location, _connect, location, os.getpid()), method)
    return run(location, request, *arguments, timeout=location.timeout, **options)


def run(
    location: MilvusLocation, request: Callable[..., Any], *arguments: Any, **options: Any
) -> Any:
    """Call a function of pymilvus, whose errors become this project's."""
    from grpc import RpcError
    from pymilvus.exceptions import MilvusException

    try:
        return request(*arguments, **options)
    except (MilvusException, RpcError) as error:
        reason = " ".join(str(getattr(error, "message", error)).split())
        # The password, or the token.
        if secret := location.credentials.partition(":")[2] or location.credentials:
            reason = reason.replace(secret, "…")
        kind = ConfigError if re.search("auth|permission", reason.lower()) else StorageError
        advice = _CONNECT_ADVICE if request is _connect else ""
        raise kind(f"{location}: Milvus failed: {reason:.200}{advice}") from None


@cache
def _connect(location: MilvusLocation, process: int) -> Any:
    """Return the client of a process; a forked child needs another."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from pymilvus import MilvusClient

    # They print a stack of calls for each error that is raised here anyway.
    for name in ("pymilvus", "milvus_lite", "grpc._server"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    client = MilvusClient(
        location.uri,
        db_name=location.database,
        token=location.credentials,
        timeout=min(_CONNECT_TIMEOUT, location.timeout),
        grpc_options=_NO_PINGS if location.is_file else {},
    )
    # A server loads collections by itself, Milvus Lite does not.
    for name in client.list_collections() if location.is_file else ():
        client.load_collection(name)
    return client
