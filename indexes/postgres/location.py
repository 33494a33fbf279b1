"""The URL of an index in a database: ``postgresql://user@host:port/database?index=name``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from psycopg import ProgrammingError, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from indexes.errors import ConfigError

_FORM = "postgresql://USER@HOST/DATABASE?index=NAME"
_LONGEST_NAME = 200
_CONNECT_SECONDS = "10"
# Hosts, each with or without a port.
_PORTS = re.compile(r"(\[[^\]]*\]|[^:,\[\]]*)(:\d*)?(,(\[[^\]]*\]|[^:,\[\]]*)(:\d*)?)*")


@dataclass(frozen=True, slots=True)
class Location:
    """Where an index is; its text has no password.

    Attributes:
        index: the name of the index in the database.
        conninfo: what libpq connects with, the password included if the URL has one.
    """

    index: str
    conninfo: str = field(repr=False)

    def __str__(self) -> str:
        parts = {name: str(value) for name, value in conninfo_to_dict(self.conninfo).items()}
        host, user = parts.get("host", ""), parts.get("user", "")
        socket = f"host={host}&" if host.startswith("/") else ""
        address = "" if socket else host
        if "port" in parts and not socket:
            address += f":{parts['port']}"
        account = f"{quote(user)}@" if user else ""
        database = quote(parts.get("dbname", ""))
        return f"postgresql://{account}{address}/{database}?{socket}index={quote(self.index)}"


def parse_location(url: str) -> Location:
    """The index that a URL names. Beside `index`, it may have every parameter of libpq.

    Raises:
        ConfigError: the URL is malformed; the message repeats nothing that may be a password.
    """
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise _malformed() from None
    ports = parts.netloc.rpartition("@")[2]
    # An unescaped sign in a password would make its rest a host, port or database.
    if parts.netloc.count("@") > 1 or "@" in parts.path or not _PORTS.fullmatch(ports):
        raise _malformed()
    names = [value for name, value in pairs if name == "index"]
    if len(names) != 1 or not names[0] or parts.fragment:
        raise ConfigError(
            f"postgresql://…: expected {_FORM}, found {len(names) or 'no'} index; write #, ?, / "
            "and @ in a name or password as %23, %3F, %2F and %40"
        )
    index = names[0]
    if len(index) > _LONGEST_NAME or not index.isprintable():
        raise ConfigError(
            f"postgresql://…: expected an index name of at most {_LONGEST_NAME} printable "
            f"characters, found {len(index)}: {index[:40]!r}"
        )
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    rest = [(name, value) for name, value in pairs if name != "index"]
    for name, _ in rest:
        if name not in known:
            found = repr(name[:40]) if name.isidentifier() else "another"
            raise ConfigError(
                "postgresql://…: expected index or a parameter of libpq such as sslmode, "
                f"found {found}"
            )
    query = urlencode(rest, quote_via=quote)
    try:
        given = conninfo_to_dict(f"postgresql://{parts.netloc}{parts.path}?{query}")
    except ProgrammingError:
        raise _malformed() from None
    defaults = {"connect_timeout": _CONNECT_SECONDS, "fallback_application_name": "retriever"}
    whole = {**defaults, **{name: str(value) for name, value in given.items()}}
    return Location(index, make_conninfo(**whole))


def _malformed() -> ConfigError:
    return ConfigError(
        f"postgresql://…: expected {_FORM}, found a malformed URL; check host and port, and write "
        "special characters of a password in percent form, such as %40 for @"
    )
