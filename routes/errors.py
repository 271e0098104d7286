"""The one table from domain errors to HTTP, and the JSON body every error has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from core import errors

log = structlog.get_logger()

# The most particular class first; a subclass that is not named answers as its base.
STATUS: tuple[tuple[type[errors.WenmaiError], int], ...] = (
    (errors.MalformedRequestError, 400),
    (errors.ForbiddenHostError, 400),
    (errors.UnauthorizedError, 401),
    (errors.ForbiddenError, 403),
    (errors.BodyTooLargeError, 413),
    (errors.UnsupportedMediaError, 415),
    (errors.BadRequestError, 422),
    (errors.NotFoundError, 404),
    (errors.ConflictError, 409),
    (errors.TooManyStreamsError, 429),
    (errors.ShuttingDownError, 503),
    (errors.DiskFullError, 507),
    (errors.UnavailableError, 503),
    (errors.WenmaiError, 500),
)
CRASHED = "Something went wrong here. Give the request id to the operator."
RETRY_AFTER_S = {429: "2", 503: "5"}


def status_of(error: errors.WenmaiError) -> int:
    return next(status for kind, status in STATUS if isinstance(error, kind))


def error_response(
    request: Request,
    status: int,
    code: str,
    message: str,
    *,
    retryable: bool = False,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    count_refused: Callable[[str], None] | None = getattr(request.app.state, "count_refused", None)
    if count_refused is not None:
        count_refused(code)
    body = {"code": code, "message": message, "retryable": retryable, "request_id": request_id(request)}
    extra = dict(headers or {})
    if status in RETRY_AFTER_S:
        extra["Retry-After"] = RETRY_AFTER_S[status]
    if status == 413:
        extra["Connection"] = "close"  # the rest of the body is never read
    return JSONResponse({"error": body}, status_code=status, headers=extra)


def request_id(request: Request) -> str:
    return str(request.scope.get("state", {}).get("request_id", ""))


def describe(error: ValidationError) -> tuple[str, str]:
    """Code and message for the first thing pydantic refused; the message names the field."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "body"
    if first["type"] == "missing":
        return "missing_field", f"missing: {field}"
    if first["type"] == "extra_forbidden":
        return "unknown_field", f"{field}: unknown field"
    code = "empty_question" if field == "question" and first["type"] == "string_type" else "invalid_field"
    return code, f"{field}: {first['msg']}"


async def _domain_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.WenmaiError)
    status = status_of(error)
    if status >= 500:
        log.warning("request_failed", code=error.code, path=request.url.path)
    if status == 500:
        log.error("request_crashed", path=request.url.path, exc_info=error)
        return error_response(request, 500, "internal", CRASHED)
    return error_response(request, status, error.code, str(error), retryable=error.retryable)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    codes = {404: "not_found", 405: "method_not_allowed"}
    code = codes.get(error.status_code, "invalid_request")
    return error_response(request, error.status_code, code, str(error.detail), headers=error.headers)


async def _validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first: dict[str, Any] = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    if first["type"] == "missing":
        return error_response(request, 422, "missing_field", f"missing: {field}")
    return error_response(request, 422, "invalid_field", f"{field}: {first['msg']}")


async def _crash(request: Request, error: Exception) -> JSONResponse:
    log.error("request_crashed", path=request.url.path, exc_info=error)
    # the server closes the connection after a crash: the client must not send the next request on it
    return error_response(request, 500, "internal", CRASHED, headers={"Connection": "close"})


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(errors.WenmaiError, _domain_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(Exception, _crash)
