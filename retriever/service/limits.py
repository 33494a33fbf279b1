"""The settings and indexes of a service, and the answers to errors."""

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
# HTTP status by error; the first class that matches counts.
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
# Paths of letters that have the same meaning in an address with and without encoding.
_ROOT_PATH = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)*")
# Headers by HTTP status; in seconds.
_RETRY = {503: {"Retry-After": "1"}, 429: {"Retry-After": "1"}}


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Permissions and limits of a service.

    Attributes:
        token: bearer token that a client must send; empty requires none.
        writable: whether documents can be added, replaced and deleted.
        hosts: host names of the service, besides localhost and IP addresses.
        origins: origins of other web pages that may call the service, such as
            ``https://example.org``.
        root_path: beginning of addresses behind a proxy that serves them below a folder, such as
            ``/search``, whether or not the proxy removes it.
        open_files: whether programs of this machine can open the files of documents.
        search: default settings of a search; None takes the defaults of Python.
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
        # A final slash makes no difference.
        root_path = self.root_path.removesuffix("/")
        if not _ROOT_PATH.fullmatch(root_path):
            raise ConfigError(
                f"root_path: expected a path such as /search, found {self.root_path!r}"
            )
        object.__setattr__(self, "root_path", root_path)
        for origin in self.origins:
            scheme, separator, host = origin.partition("://")
            if scheme not in ("http", "https") or not separator or not host or "/" in host:
                raise ConfigError(
                    f"origin: expected an origin such as https://example.org, found {origin!r}"
                )


def is_address(host: str) -> bool:
    """Return whether a host is an IP address, which no name server can redirect."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine can reach a host."""
    if host == "localhost":
        return True
    return is_address(host) and ipaddress.ip_address(host.strip("[]")).is_loopback


class ServiceError(RetrieverError):
    """A refused request, with its HTTP status and further fields of the answer."""

    def __init__(self, status: int, message: str, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.details = details


@dataclass(frozen=True, slots=True)
class Catalog:
    """The indexes of a service by name, the default first; its settings and reranker."""

    indexes: Mapping[str, Index]
    settings: ServiceSettings
    reranker: Reranker | None = None

    @property
    def default(self) -> str:
        """The name of the index for requests without a name."""
        return next(iter(self.indexes))

    def index(self, name: str | None) -> Index:
        """Return an index by name; None means the first."""
        index = self.indexes.get(self.default if name is None else name)
        if index is None:
            raise ServiceError(
                404, f"there is no index {name!r:.80} (indexes: {', '.join(self.indexes)})"
            )
        return index

    def of_model(self, name: str) -> Index:
        """Return the index with a name, or the first index whose encoder has it.

        An empty name means the first index. With `any_model`, an unknown name does, too.
        """
        if not name or name in self.indexes:
            return self.index(name or None)
        for index in self.indexes.values():
            if name in (str(index.encoder_spec), index.encoder_spec.model):
                return index
        if self.settings.any_model:
            return self.index(None)
        specs = [str(index.encoder_spec) for index in self.indexes.values()]
        names = ", ".join([*self.indexes, *specs])
        raise ServiceError(404, f"there is no model {name!r:.80} (models: {names})")

    def check_text(self, what: str, text: str) -> None:
        """Raise ServiceError if a text is too long."""
        most = self.settings.max_text
        if len(text) > most:
            raise ServiceError(
                413, f"{what}: expected at most {most:,} characters, found {len(text):,}"
            )


def check_number(what: str, number: int, most: int) -> None:
    """Raise ServiceError if a number is too large."""
    if number > most:
        raise ServiceError(400, f"{what}: expected at most {most:,}, found {number:,}")


def error_body(kind: str, message: str, **details: Any) -> dict[str, Any]:
    """Return the JSON object of an error: in OpenAI's form, and with Cohere's `message`."""
    return {"error": {"type": kind, "message": message, **details}, "message": message}


def error_response(error: Exception) -> JSONResponse:
    """Return the response to an error, with the message that the command line prints."""
    details = {}
    if isinstance(error, ServiceError):
        status = error.status
        name = "ServiceError"
        details = error.details
    elif isinstance(error, RetrieverError):
        status = next(status for kind, status in _STATUS if isinstance(error, kind))
        name = type(error).__name__
    else:
        status = 500
        name = "InternalError"
        _LOG.error("a request failed", exc_info=error)
        error = RuntimeError("an internal error, which the log of the service describes")
    if isinstance(error, FilterError) and error.position is not None:
        details["position"] = error.position
    return JSONResponse(error_body(name, str(error), **details), status, _RETRY.get(status))


def answer_errors(app: FastAPI) -> None:
    """Make an application answer each error with one JSON object."""

    @app.exception_handler(RetrieverError)
    @app.exception_handler(Exception)
    async def answer_error(request: Request, error: Exception) -> JSONResponse:
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def answer_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        message = "; ".join(map(_describe_fault, error.errors()[:5]))
        return JSONResponse(error_body("InvalidRequest", message), 422)

    @app.exception_handler(HTTPException)
    async def answer_http(request: Request, error: HTTPException) -> JSONResponse:
        message = str(error.detail)
        if error.status_code == 404:
            message = f"{request.url.path}: there is no such address; /openapi.json lists them"
        headers = dict(error.headers or {})
        return JSONResponse(error_body("HTTPError", message), error.status_code, headers)


def _describe_fault(error: Mapping[str, Any]) -> str:
    """Describe a fault that pydantic found: its place, the expected and the actual value."""
    value = error.get("input")
    if error["type"] == "json_invalid":
        return f"body: not JSON: {error['ctx']['error']} at character {error['loc'][1] + 1}"
    if isinstance(value, bytes):
        return "body: expected a JSON object; send it with Content-Type: application/json"
    # The first part is "body", "query" or "header".
    place = ".".join(map(str, error["loc"][1:])) or "body"
    if error["type"] == "extra_forbidden":
        return f"{place}: unknown field; /openapi.json lists the fields"
    text = str(error["msg"]).removeprefix("Value error, ")
    actual = "" if isinstance(value, dict | list) else f", found {value!r:.60}"
    return f"{place}: {text[:1].lower()}{text[1:]}{actual}"
