"""Where an index is in Milvus, as a URL says it.

::

    milvus://[user:password@|token@]host[:port]/index[?tls=true&database=…&tenant=…&timeout=…]
    milvus+lite:///folder/file.db[?index=…&tenant=…]

The token can be in the variable MILVUS_TOKEN instead. Neither is ever part of a message.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from indexes.errors import ConfigError

PORT = 19530
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_TENANT = re.compile(r"[A-Za-z0-9_.-]{0,100}")
_TIMEOUT = 60.0
_FORM = "expected milvus://host:port/index or milvus+lite:///folder/file.db"


@dataclass(frozen=True, slots=True)
class Location:
    """Where an index is.

    Attributes:
        uri: what the client connects to, without a secret: an address, or a file of Milvus Lite.
        index: its name; the names of its collections begin with it.
        tenant: whose index it is; empty where the collections hold one index.
        database: of the server; empty for the default.
        timeout: of a request, in seconds.
        user: of the server; empty where there is none.
        token: the password of the user, or a token.
    """

    uri: str
    index: str
    tenant: str = ""
    database: str = ""
    timeout: float = _TIMEOUT
    user: str = ""
    token: str = field(default="", repr=False)

    @property
    def file(self) -> Path | None:
        """The file of Milvus Lite; None for a server."""
        return None if "://" in self.uri else Path(self.uri)

    @property
    def credentials(self) -> str:
        """What the client sends to the server."""
        return f"{self.user}:{self.token}" if self.user else self.token

    def __str__(self) -> str:
        tenant = f"tenant={self.tenant}" * bool(self.tenant)
        if self.file is not None:
            options = "&".join(filter(None, [f"index={self.index}", tenant]))
            return f"milvus+lite://{self.file}?{options}"
        address = self.uri.partition("://")[2]
        user = f"{self.user}@" * bool(self.user)
        return f"milvus://{user}{address}/{self.index}{'?' * bool(tenant)}{tenant}"


def parse_location(url: str) -> Location:
    """The location that a URL names.

    Raises:
        ConfigError: it is malformed; the message holds no part of it that can be a secret.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        raise ConfigError(f"Milvus URL: {_FORM}, found one with a faulty port or option") from None
    lite = parts.scheme.lower() == "milvus+lite"
    known = ("index", "tenant") if lite else ("tls", "database", "tenant", "timeout")
    for name in options:
        if name not in known:
            raise ConfigError(
                f"Milvus URL: expected the options {', '.join(known)}, found {name!r}"
            )
    index = options.get("index", "index") if lite else unquote(parts.path).strip("/")
    if not _NAME.fullmatch(index):
        raise ConfigError(
            "Milvus URL: expected the name of an index, of letters, digits and underscores and at "
            f"most 100, found {index!r}; {_FORM}"
        )
    tenant = options.get("tenant", "")
    if not _TENANT.fullmatch(tenant):
        raise ConfigError(
            "Milvus URL: option tenant: expected letters, digits, dots, dashes and underscores, at "
            f"most 100, found {tenant!r:.120}"
        )
    if lite:
        if parts.netloc or not parts.path.endswith(".db"):
            raise ConfigError(f"Milvus URL: {_FORM}, found no path of a file that ends in .db")
        return Location(str(Path(unquote(parts.path)).resolve()), index, tenant)
    if not parts.hostname:
        raise ConfigError(f"Milvus URL: {_FORM}, found no host")
    tls = options.get("tls", "false").lower()
    if tls not in ("true", "false"):
        raise ConfigError(f"Milvus URL: option tls: expected true or false, found {tls!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    user, secret = unquote(parts.username or ""), unquote(parts.password or "")
    if not secret:
        # A name alone is a token.
        user, secret = "", user or os.environ.get("MILVUS_TOKEN", "")
    return Location(
        f"{'https' if tls == 'true' else 'http'}://{host}:{port or PORT}",
        index,
        tenant,
        options.get("database", ""),
        _timeout(options.get("timeout")),
        user,
        secret,
    )


def _timeout(given: str | None) -> float:
    if given is None:
        return _TIMEOUT
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise ConfigError(f"Milvus URL: option timeout: expected seconds above 0, found {given!r}")
    return seconds
