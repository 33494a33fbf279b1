"""What a service allows, and its limits."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from retriever.errors import ConfigError

_MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What a service allows, and its limits.

    Attributes:
        token: what a client must send as a bearer token; empty asks for none.
        writable: whether documents can be added, replaced and deleted.
        hosts: host names under which the service is reached, besides localhost and IP addresses.
        origins: origins of other web pages that may call the service, such as
            ``https://example.org``.
        max_k: maximum number of hits of a query, and of `depth`.
        max_queries: maximum number of queries in one call.
        max_text: maximum number of characters of a query or filter.
        max_texts: maximum number of texts that one call embeds or reranks.
        max_body: maximum size of another request in bytes.
        max_upload: maximum size of a change of documents in bytes.
        timeout: seconds after which a request is given up, changes of documents excepted.
        queue: maximum number of queries and texts that wait.
        batch: maximum number of queries or texts that run together.
        batch_wait: seconds that the first one of a batch waits for others.

    Raises:
        ConfigError: a limit is out of range, or a host or origin is malformed.
    """

    token: str = ""
    writable: bool = False
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    max_k: int = 1_000
    max_queries: int = 256
    max_text: int = 10_000
    max_texts: int = 1_024
    max_body: int = 4 * _MEBIBYTE
    max_upload: int = 256 * _MEBIBYTE
    timeout: float = 30.0
    queue: int = 1_024
    batch: int = 64
    batch_wait: float = 0.003

    def __post_init__(self) -> None:
        for name in ("max_k", "max_queries", "max_text", "max_texts", "max_body", "max_upload"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected 1 or more, found {getattr(self, name)}")
        for name in ("queue", "batch", "timeout"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}: expected more than 0, found {getattr(self, name)}")
        if not 0 <= self.batch_wait <= 1:
            raise ConfigError(f"batch_wait: expected 0 to 1 seconds, found {self.batch_wait:g}")
        if self.token and not (self.token.isascii() and self.token.isprintable()):
            raise ConfigError("token: expected printable ASCII characters")
        for origin in self.origins:
            scheme, separator, host = origin.partition("://")
            if scheme not in ("http", "https") or not separator or not host or "/" in host:
                raise ConfigError(
                    f"origin: expected one such as https://example.org, found {origin!r}"
                )


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_address(host: str) -> bool:
    """Whether it is an IP address, which no name server can point elsewhere."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
