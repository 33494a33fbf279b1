"""Errors as one JSON object, with the text that the command line prints."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from retriever.errors import (
    BadInputError,
    ClosedIndexError,
    EncoderMismatchError,
    FilterError,
    IndexLockedError,
    MissingExtraError,
    ModelError,
    RetrieverError,
    StorageError,
)

_LOG = logging.getLogger("retriever.service")
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
_RETRY = {503: {"Retry-After": "1"}, 429: {"Retry-After": "1"}}


class ServiceError(RetrieverError):
    """A request that is refused.

    Attributes:
        status: HTTP status.
        details: more fields of the answer.
    """

    def __init__(self, status: int, message: str, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.details = details


def error_body(kind: str, message: str, **details: Any) -> dict[str, Any]:
    """The JSON object of an error: in OpenAI's form, and with Cohere's `message`."""
    return {"error": {"type": kind, "message": message, **details}, "message": message}


def fault_response(error: Exception) -> JSONResponse:
    """The response to an error."""
    details = {}
    if isinstance(error, ServiceError):
        status, kind, details = error.status, "ServiceError", error.details
    elif isinstance(error, RetrieverError):
        status = next(status for one, status in _STATUS if isinstance(error, one))
        kind = type(error).__name__
    else:
        status, kind = 500, "InternalError"
        _LOG.error("a request failed", exc_info=error)
        error = RuntimeError("an internal error, which the log of the service describes")
    if isinstance(error, FilterError) and error.position is not None:
        details["position"] = error.position
    return JSONResponse(error_body(kind, str(error), **details), status, _RETRY.get(status))


def install(app: FastAPI) -> None:
    """Let an application answer errors in this form."""

    async def known(request: Request, error: Exception) -> JSONResponse:
        return fault_response(error)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return JSONResponse(error_body("InvalidRequest", _listed(error.errors())), 422)

    async def http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        message = str(error.detail)
        if error.status_code == 404:
            message = f"{request.url.path}: there is no such address; /docs lists them"
        return JSONResponse(
            error_body("HTTPError", message), error.status_code, dict(error.headers or {})
        )

    app.add_exception_handler(RetrieverError, known)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, known)


def _listed(errors: Sequence[Any]) -> str:
    """All faults on one line: where, what was expected and what was found."""
    parts = []
    for one in errors[:5]:
        # The first part says whether it is the body, the address or a header.
        place = list(map(str, one["loc"][1:]))
        text = str(one["msg"]).removeprefix("Value error, ")
        found = one.get("input")
        shown = "" if isinstance(found, dict | list | bytes) else f", found {found!r:.60}"
        parts.append(f"{'.'.join(place) or 'body'}: {text[:1].lower()}{text[1:]}{shown}")
    return "; ".join(parts)
