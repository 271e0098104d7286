"""The edge of the server: request ids, Host and Origin checks, size limits; and the table that maps domain
errors to HTTP statuses, with the JSON body of every error."""

from __future__ import annotations

import ipaddress
import logging
import math
import re
import socket
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import structlog
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from config.logging import RateLimitedLog
from config.settings import ServerSettings
from config.sources import in_plain_words
from core import errors
from core.errors import BodyTooLargeError, ForbiddenError, ForbiddenHostError, WenmaiError

log = structlog.get_logger()

# Most specific class first; a subclass that is not listed is treated as its base.
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
    (errors.TooManyUploadsError, 429),
    (errors.ShuttingDownError, 503),
    (errors.DiskFullError, 507),
    (errors.UnavailableError, 503),
    (errors.WenmaiError, 500),
)


class EdgeCode(StrEnum):
    """Codes of requests refused before our own code sees them; no error class has these."""

    MISSING_FIELD = "missing_field"
    UNKNOWN_FIELD = "unknown_field"
    INVALID_FIELD = "invalid_field"
    METHOD_NOT_ALLOWED = "method_not_allowed"


_TYPE = re.compile(r"str|int|float|bool|none|.*\[.*\]")  # of a union, in the location of a fault
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
    if status != 500:  # logged as crashed
        level = logging.INFO if status < 500 else logging.WARNING
        request.app.state.log_refused(
            level, "request_refused", {"status": status, "code": code, **_route_fields(request)}
        )
    body: dict[str, Any] = {"code": code, "message": message, "retryable": retryable}
    body["request_id"] = request_id(request)
    path = path_of(request.scope)
    if path.startswith(PREFIX) or (status == 404 and is_misplaced(path)):
        status = status_in_openai(status)
        body = error_in_openai(status, body)
    extra = dict(headers or {})
    if status in RETRY_AFTER_S:
        extra.setdefault("Retry-After", RETRY_AFTER_S[status])
    if status == 401:
        extra["WWW-Authenticate"] = 'Bearer realm="wenmai"'
    if status == 413:
        extra["Connection"] = "close"  # the rest of the body is never read
    return JSONResponse({"error": body}, status_code=status, headers=extra)


def failed_turn_headers(retryable: bool, retry_after_s: int | None) -> dict[str, str] | None:
    """Return the headers of a 503 that answers with a failed turn as one object."""
    return {"Retry-After": str(retry_after_s or RETRY_AFTER_S[503])} if retryable else None


def path_of(scope: Scope) -> str:
    """Return the route's path, without a proxy's prefix."""
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


def _route_fields(request: Request) -> dict[str, str]:
    """Log the route's pattern, not the path, which can contain anything; "" if no route matched."""
    return {"method": request.method, "route": getattr(request.scope.get("route"), "path", "")}


def request_id(request: Request) -> str:
    return str(request.scope.get("state", {}).get("request_id", ""))


def describe(error: ValidationError) -> tuple[str, str]:
    """Return code and message for pydantic's first error; the message names the field."""
    return _described(error.errors(include_url=False, include_context=False))


def _described(faults: Sequence[Mapping[str, Any]], skip: int = 0) -> tuple[str, str]:
    """`skip` parts of the location are not the field's. A union has faults for each of its types: those of
    the one that fits furthest are described."""
    fields = [_field(each["loc"][skip:] or each["loc"]) for each in faults]
    field = max((each for each in fields if f"{each}.".startswith(f"{fields[0]}.")), key=len)
    same = [each for each, name in zip(faults, fields, strict=True) if name == field]
    first = same[0]
    if first["type"] == "missing":
        return EdgeCode.MISSING_FIELD, f"missing: {field}"
    if first["type"] == "extra_forbidden":
        return EdgeCode.UNKNOWN_FIELD, f"{field}: unknown field"
    if first["type"] == "uuid_parsing":
        return EdgeCode.INVALID_FIELD, f"{field}: this is not a valid id: a UUID is expected."
    if first["type"] in ("too_short", "string_too_short") and first["input"] == "":
        return EdgeCode.INVALID_FIELD, f"{field}: must not be empty."
    is_blank = field == "question" and first["type"] == "string_type" and first["input"] is None
    code = errors.EmptyQuestionError.code if is_blank else EdgeCode.INVALID_FIELD
    reasons = dict.fromkeys(in_plain_words(each["msg"]) for each in same)
    return code, f"{field}: {' or '.join(reasons).replace(' or must be ', ' or ')}"


def _field(place: Sequence[int | str]) -> str:
    """Name the field, without the types and tags of a union that pydantic adds."""
    named = [str(part) for part in place]
    return ".".join(part for part in named if part[:1] != "~" and not _TYPE.fullmatch(part)) or "body"


async def _domain_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.WenmaiError)
    status = status_of(error)
    if status == 500:
        log.error("request_crashed", **_route_fields(request), exc_info=error)
        return error_response(request, 500, "internal", CRASHED)
    headers = {"Retry-After": str(math.ceil(error.retry_after_s))} if error.retry_after_s else None
    return error_response(request, status, error.code, str(error), retryable=error.retryable, headers=headers)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    codes = {404: errors.NotFoundError.code, 405: EdgeCode.METHOD_NOT_ALLOWED}
    code = codes.get(error.status_code, errors.BadRequestError.code)
    headers = dict(error.headers or {})
    if error.status_code == 404 and is_misplaced(path_of(request.scope)):
        return error_response(request, 404, code, right_base(str(request.base_url).rstrip("/")))
    message = str(error.detail)
    if error.status_code == 405:  # Starlette lists only the first matching route's methods
        headers["Allow"] = ", ".join(sorted(_methods_of(request)))
        message = f"{request.method} is not possible here, only {headers['Allow']}."
    elif message == "Not Found":  # Starlette's: no route has this path
        offered = not_offered(path_of(request.scope))
        message = offered or f"There is nothing here. {request.base_url}docs describes every route."
    return error_response(request, error.status_code, code, message, headers=headers)


def _methods_of(request: Request) -> set[str]:
    """Return the methods of every route with this path; literal paths win over those with parameters."""
    fitting = [
        route for route in request.app.state.paths if route.matches(request.scope)[0] is not Match.NONE
    ]
    same = [route for route in fitting if route.path == path_of(request.scope)] or fitting
    methods = {method for route in same for method in route.methods or ()}
    return methods | {"HEAD"} if "GET" in methods else methods


async def _validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    faults = error.errors()
    code, message = _described(faults, 1)
    where, *_, name = faults[0]["loc"]
    if code == EdgeCode.MISSING_FIELD and where == "query":
        message += f", a parameter in the address (?{name}=…)"
    return error_response(request, 422, code, message)


async def _crash(request: Request, error: Exception) -> JSONResponse:
    log.error("request_crashed", **_route_fields(request), exc_info=error)
    # the server closes the connection after a crash: the client must not send the next request on it
    return error_response(request, 500, "internal", CRASHED, headers={"Connection": "close"})


def install_error_handlers(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """`routers` are the application's own, without a prefix."""
    app.state.log_refused = RateLimitedLog()
    app.state.paths = [route for router in routers for route in router.routes if isinstance(route, Route)]
    app.add_exception_handler(errors.WenmaiError, _domain_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(Exception, _crash)


LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<name>[\w.-]+))(?::[0-9]{0,5})?", re.ASCII)
UPLOADS = frozenset({"/documents", "/sessions/import", "/sessions/import/file", "/memories/import"})
AGENTS = "/mcp"  # the protocol requires an Origin check for every method
MAX_HISTORY_BYTES = 32_000_000  # below /v1: clients send the whole conversation, with its images
MAX_DISCARDED_BYTES = 64_000_000
QUESTIONS = "/knowledge_chat_conversation"
MAX_QUESTION_BYTES = 32_000_000  # with images; base64 adds a third
MAX_BODY_BYTES = 1_000_000  # the longest question that can be allowed takes 400,000 without images
_PAGE = re.compile(r"/+$|/web/")  # the page itself and its files
SECURITY_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
    "Access-Control-Allow-Headers": "*, Authorization",  # the asterisk covers every name but this one
    "Access-Control-Max-Age": "600",
}


class EdgeMiddleware:
    """Sets the request id and the headers of every response, checks Host, Origin and body size, and lets the
    pages of configured sites read responses (CORS)."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        self._hosts = LOCAL_HOSTS | {settings.host.lower(), *map(str.lower, settings.allowed_hosts)}
        self._origins = frozenset(settings.cors_origins)
        self._has_keys = bool(settings.api_keys or settings.admin_api_keys)
        if self._has_keys:  # other machines may ask too, using this machine's name
            name = socket.gethostname().lower()
            self._hosts |= {name, f"{name}.local"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        structlog.contextvars.bind_contextvars(request_id=request_id)
        headers = Headers(scope=scope)
        scope["root_path"] = root_path = self._settings.root_path
        if scope["path"] != root_path and not scope["path"].startswith(f"{root_path}/"):
            scope["path"] = root_path + scope["path"]  # from a proxy that strips the prefix
        path = path_of(scope)
        if path.endswith("/") and "text/html" not in headers.get("accept", "") and not _PAGE.match(path):
            # Redirected, programs lose body or key. Browsers are redirected: the pages' links are relative.
            path = path.rstrip("/")
            scope["path"] = root_path + path
        send = _with_headers(send, request_id, self._cors(headers))
        try:
            self._check_caller(headers, scope["method"], path)
            limit = self._limit(path)
            setting = " (MAX_UPLOAD_BYTES)" if path in UPLOADS else ""
            _check_length(headers, limit, setting)
        except WenmaiError as error:
            request = Request(scope)
            if isinstance(error, BodyTooLargeError) and (path == QUESTIONS or path.startswith(PREFIX)):
                await _discard(receive)
            response = error_response(request, status_of(error), error.code, str(error))
            await response(scope, receive, send)
            return
        if scope["method"] == "OPTIONS" and headers.get("origin") in self._origins:
            await Response(status_code=204, headers=PREFLIGHT_HEADERS)(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope, send = {**scope, "method": "GET", "extensions": {}}, _head_only(send)
        await self._app(scope, _limited(receive, limit), send)

    def _cors(self, headers: Headers) -> dict[str, str]:
        """Return headers that let pages of CORS_ORIGINS read the response; caches must not share it."""
        if not self._origins:
            return {}
        origin = headers.get("origin", "")
        allowed = {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": "*"}
        return {"Vary": "Origin", **(allowed if origin in self._origins else {})}

    def _check_caller(self, headers: Headers, method: str, path: str) -> None:
        """Refuse pages of other sites, whether they use DNS rebinding or a cross-site request."""
        hosts = headers.getlist("host")
        match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if match is None:
            raise ForbiddenHostError("Host: a request must name exactly one host.")
        name = (match["six"] or match["name"]).lower()
        if name not in self._hosts and not (self._has_keys and _is_address(name)):
            raise ForbiddenHostError("Host: not a name of this server. Set ALLOWED_HOSTS to add it.")
        origin = headers.get("origin")
        is_read = method in ("GET", "HEAD") and path != AGENTS
        if origin and not is_read and _netloc(origin) != hosts[0] and origin not in self._origins:
            raise ForbiddenError(
                "Origin: requests from other sites are refused. CORS_ORIGINS names exceptions."
            )

    def _limit(self, path: str) -> int:
        if path in UPLOADS:
            return self._settings.max_upload_bytes
        if path == QUESTIONS:
            return MAX_QUESTION_BYTES
        return MAX_HISTORY_BYTES if path.startswith(PREFIX) else MAX_BODY_BYTES


def _is_address(name: str) -> bool:
    """DNS rebinding cannot reach us by an address: it needs a name whose address changes."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _netloc(origin: str) -> str:
    """Return "" for an invalid URL."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _check_length(headers: Headers, limit: int, setting: str) -> None:
    length = headers.get("content-length", "0")
    if length.isdigit() and int(length) > limit:
        raise BodyTooLargeError(f"The body has {length} bytes; at most {limit} are accepted{setting}.")


async def _discard(receive: Receive) -> None:
    """Read up to MAX_DISCARDED_BYTES: a client still sending when the connection closes never sees the
    error."""
    left = MAX_DISCARDED_BYTES
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if not message.get("more_body"):
            return


def _limited(receive: Receive, limit: int) -> Receive:
    """Refuse a body without Content-Length as soon as it exceeds the limit."""
    total = 0

    async def counting() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > limit:
            raise BodyTooLargeError(f"The body is over {limit} bytes.")
        return message

    return counting


def _head_only(send: Send) -> Send:
    """Answer HEAD on every route with GET; a response that would stream sees its reader leave."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body"})

    return sending


def _with_headers(send: Send, request_id: str, cors: Mapping[str, str]) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = request_id
            for name, value in {**SECURITY_HEADERS, **cors}.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


# Errors of /v1: OpenAI's fields beside those of our own errors.

PREFIX = "/v1/"
# Paths that clients request when their base URL is wrong.
_MISPLACED = re.compile(r"/v1/v1/.*|(?:/v1|/chat/completions)*/(?:chat/completions|models|embeddings)")
_OWN = ("/v1/chat/completions", "/v1/models", "/v1/embeddings")
_ERROR_CODES = {
    errors.UnknownModelError.code: "model_not_found",
    errors.UnauthorizedError.code: "invalid_api_key",
    errors.QuestionTooLongError.code: "context_length_exceeded",
    errors.TooManyStreamsError.code: "rate_limit_exceeded",
}
# Our fields in the terms of OpenAI's clients; the parameter is the first word.
_TERMS = {"question": "messages (the last one)", "model_id": "model"}
_PARAMS = {errors.ImageRefusedError.code: "messages"}  # their message is a sentence for the reader
_REFUSED_PARAM = re.compile(r"(?:missing: )?([a-z_]+(?:\.\w+)*)(?::|$)")


def status_in_openai(status: int) -> int:
    """OpenAI's API answers 400 for an invalid field."""
    return 400 if status == 422 else status


def is_misplaced(path: str) -> bool:
    """Whether `path`, which has no route, is one that a client with a wrong base URL requests."""
    return path not in _OWN and _MISPLACED.fullmatch(path) is not None


def not_offered(path: str) -> str:
    """Say what exists instead of a path of OpenAI's API that is missing here (/v1/responses); else ""."""
    offered = f"There is nothing here: /v1 has {', '.join(_OWN[:-1])} and {_OWN[-1]}."
    return offered if path.startswith(PREFIX) else ""


def right_base(root: str) -> str:
    return (
        f"There is nothing here: the base address is {root}/v1, or {root} for a client that appends /v1 "
        "itself."
    )


def error_in_openai(status: int, error: dict[str, Any]) -> dict[str, Any]:
    """Return the error object; its message begins with the invalid parameter, if any."""
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = "server_error" if status >= 500 else kinds.get(status, "invalid_request_error")
    refused = _REFUSED_PARAM.match(error["message"]) if kind == "invalid_request_error" else None
    param = _PARAMS.get(error["code"])
    if refused:
        term = _TERMS.get(refused[1], refused[1])
        error = {**error, "message": error["message"].replace(refused[1], term, 1)}
        param = term.partition(" ")[0]
    return {**error, "code": _ERROR_CODES.get(error["code"], error["code"]), "type": kind, "param": param}
