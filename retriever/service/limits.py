"""What a service offers and allows, and how it refuses the rest."""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from retriever.errors import (
    BadInputError,
    ClosedIndexError,
    ConfigError,
    EncoderMismatchError,
    FilterError,
    IndexLockedError,
    MissingExtraError,
    ModelError,
    RetrieverError,
    StorageError,
)
from retriever.index.index import Index
from retriever.search.reranking import Reranker
from retriever.search.settings import SearchSettings
from retriever.settings import check_settings, setting

_LOG = logging.getLogger("retriever.service")
_MEBIBYTE = 2**20
# The first one that fits.
_STATUS: tuple[tuple[type[RetrieverError], int], ...] = (
    (IndexLockedError, 503),
    (ClosedIndexError, 503),
    (StorageError, 507),
    (MissingExtraError, 501),
    (EncoderMismatchError, 409),
    (ModelError, 500),
    (BadInputError, 400),
    (RetrieverError, 500),
)
SEARCH_PATH = "/search"
FILE_PATH = "/file"
# Letters that mean the same in an address whether or not they are encoded.
_ROOT_PATH = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)*")
_RETRY = {503: {"Retry-After": "1"}, 429: {"Retry-After": "1"}}


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What a service allows, and its limits.

    Attributes:
        token: what a client must send as a bearer token; empty asks for none.
        writable: whether documents can be added, replaced and deleted.
        hosts: host names under which the service is reached, besides localhost and IP addresses.
        origins: origins of other web pages that may call the service, such as
            ``https://example.org``.
        root_path: what addresses begin with where a proxy serves them below a folder, such as
            ``/search``, whether or not the proxy takes it off.
        open_files: whether programs of this machine can open the files of documents.
        search: what a search that leaves settings out has; None for the defaults of Python.
        any_model: whether an unknown name of a model means the first index.

    Raises:
        ConfigError: a limit is out of range, or a host, origin or root path is malformed.
    """

    token: str = ""
    writable: bool = False
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    root_path: str = ""
    open_files: bool = False
    search: SearchSettings | None = None
    any_model: bool = False
    max_k: int = setting(1_000, "Maximum number of hits of a query, and of `depth`.", low=1)
    max_queries: int = setting(256, "Maximum number of queries in one call.", low=1)
    max_text: int = setting(10_000, "Maximum number of characters of a query or filter.", low=1)
    max_texts: int = setting(1_024, "Maximum number of texts to embed or rerank in a call.", low=1)
    max_body: int = setting(4 * _MEBIBYTE, "Maximum size of another request in bytes.", low=1)
    max_upload: int = setting(256 * _MEBIBYTE, "Maximum size of a change in bytes.", low=1)
    timeout: float = setting(
        30.0, "Seconds after which a request that reads is given up.", low=0, low_open=True
    )
    queue: int = setting(1_024, "Maximum number of queries and texts that wait.", low=1)
    batch: int = setting(64, "Maximum number of queries or texts that run together.", low=1)
    batch_wait: float = setting(
        0.003, "Seconds that the first one of a batch waits for others.", low=0, high=1
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.token and not (self.token.isascii() and self.token.isprintable()):
            raise ConfigError("token: expected printable ASCII characters")
        # The slash at the end of a folder says no more.
        root_path = self.root_path.removesuffix("/")
        if not _ROOT_PATH.fullmatch(root_path):
            raise ConfigError(f"root_path: expected one such as /search, found {self.root_path!r}")
        object.__setattr__(self, "root_path", root_path)
        for origin in self.origins:
            scheme, separator, host = origin.partition("://")
            if scheme not in ("http", "https") or not separator or not host or "/" in host:
                raise ConfigError(
                    f"origin: expected one such as https://example.org, found {origin!r}"
                )


def is_address(host: str) -> bool:
    """Whether it is an IP address, which no name server can point elsewhere."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can reach an address."""
    if host == "localhost":
        return True
    return is_address(host) and ipaddress.ip_address(host.strip("[]")).is_loopback


class ServiceError(RetrieverError):
    """A request that is refused, with its HTTP status and more fields of the answer."""

    def __init__(self, status: int, message: str, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.details = details


@dataclass(frozen=True, slots=True)
class Catalog:
    """The indexes of a service by name, the first being the default; its settings and reranker."""

    indexes: Mapping[str, Index]
    settings: ServiceSettings
    reranker: Reranker | None = None

    @property
    def default(self) -> str:
        """The name of the index of requests that name none."""
        return next(iter(self.indexes))

    def index(self, name: str | None) -> Index:
        """An index by name; None for the first."""
        index = self.indexes.get(self.default if name is None else name)
        if index is None:
            raise ServiceError(
                404, f"there is no index {name!r:.80} (indexes: {', '.join(self.indexes)})"
            )
        return index

    def of_model(self, name: str) -> Index:
        """Return the index of a name, or the first one with an encoder of that name.

        An empty name means the first index. So does an unknown one if the settings say so.
        """
        if not name or name in self.indexes:
            return self.index(name or None)
        for index in self.indexes.values():
            if name in (str(index.encoder_spec), index.encoder_spec.model):
                return index
        if self.settings.any_model:
            return self.index(None)
        known = [*self.indexes, *(str(one.encoder_spec) for one in self.indexes.values())]
        raise ServiceError(404, f"there is no model {name!r:.80} (models: {', '.join(known)})")

    def check_text(self, what: str, text: str) -> None:
        """Refuse a text that is too long."""
        most = self.settings.max_text
        if len(text) > most:
            raise ServiceError(
                413, f"{what}: expected at most {most:,} characters, found {len(text):,}"
            )


def check_number(what: str, number: int, most: int) -> None:
    """Refuse a number that is too large."""
    if number > most:
        raise ServiceError(400, f"{what}: expected at most {most:,}, found {number:,}")


def error_body(kind: str, message: str, **details: Any) -> dict[str, Any]:
    """The JSON object of an error: in OpenAI's form, and with Cohere's `message`."""
    return {"error": {"type": kind, "message": message, **details}, "message": message}


def error_response(error: Exception) -> JSONResponse:
    """The response to an error, with the text that the command line prints."""
    details = {}
    if isinstance(error, ServiceError):
        status = error.status
        kind = "ServiceError"
        details = error.details
    elif isinstance(error, RetrieverError):
        status = next(status for one, status in _STATUS if isinstance(error, one))
        kind = type(error).__name__
    else:
        status = 500
        kind = "InternalError"
        _LOG.error("a request failed", exc_info=error)
        error = RuntimeError("an internal error, which the log of the service describes")
    if isinstance(error, FilterError) and error.position is not None:
        details["position"] = error.position
    return JSONResponse(error_body(kind, str(error), **details), status, _RETRY.get(status))


def answer_errors(app: FastAPI) -> None:
    """Let an application answer each error as one JSON object."""

    @app.exception_handler(RetrieverError)
    @app.exception_handler(Exception)
    async def known(request: Request, error: Exception) -> JSONResponse:
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        message = "; ".join(map(_described, error.errors()[:5]))
        return JSONResponse(error_body("InvalidRequest", message), 422)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        message = str(error.detail)
        if error.status_code == 404:
            message = f"{request.url.path}: there is no such address; /openapi.json lists them"
        headers = dict(error.headers or {})
        return JSONResponse(error_body("HTTPError", message), error.status_code, headers)


def _described(error: Mapping[str, Any]) -> str:
    """A fault that pydantic found: where, what was expected and what was found."""
    found = error.get("input")
    if error["type"] == "json_invalid":
        return f"body: not JSON: {error['ctx']['error']} at character {error['loc'][1] + 1}"
    if isinstance(found, bytes):
        return "body: expected a JSON object; send it with Content-Type: application/json"
    # The first part says whether it is the body, the address or a header.
    place = ".".join(map(str, error["loc"][1:])) or "body"
    text = str(error["msg"]).removeprefix("Value error, ")
    shown = "" if isinstance(found, dict | list) else f", found {found!r:.60}"
    return f"{place}: {text[:1].lower()}{text[1:]}{shown}"
