"""The first thing a request meets: its id, who it claims to talk to, how much it may send."""

from __future__ import annotations

import uuid
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from config.settings import ServerSettings
from core.errors import BodyTooLargeError, ForbiddenError, ForbiddenHostError, WenmaiError
from routes.errors import error_response, status_of

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
UPLOADS = frozenset({"/documents", "/sessions/import"})
MAX_BODY_BYTES = 1_000_000  # a question of the most characters that can be allowed takes 400,000
SECURITY_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


class EdgeMiddleware:
    """Request id, Host and Origin checks, body limit and the headers every response carries."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        self._hosts = LOCAL_HOSTS | {settings.host} | set(settings.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        structlog.contextvars.bind_contextvars(request_id=request_id)
        send = _with_headers(send, request_id)
        try:
            headers = Headers(scope=scope)
            self._check_caller(headers, scope["method"])
            limit = self._limit(scope["path"])
            _check_length(headers, limit)
        except WenmaiError as error:
            request = Request(scope)
            response = error_response(request, status_of(error), error.code, str(error))
            await response(scope, receive, send)
            return
        await self._app(scope, _counted(receive, limit), send)

    def _check_caller(self, headers: Headers, method: str) -> None:
        """A page of another site must reach neither by rebinding a name nor by a cross-site request."""
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname or ""
        keys = self._settings.api_keys or self._settings.admin_api_keys
        guarded = not keys or self._settings.allowed_hosts
        if guarded and name not in self._hosts:
            raise ForbiddenHostError("Host: not a name of this server. Set ALLOWED_HOSTS to add it.")
        origin = headers.get("origin")
        if origin and method not in ("GET", "HEAD") and urlsplit(origin).netloc != host:
            raise ForbiddenError("Origin: requests from other sites are refused.")

    def _limit(self, path: str) -> int:
        return self._settings.max_upload_bytes if path in UPLOADS else MAX_BODY_BYTES


def _check_length(headers: Headers, limit: int) -> None:
    length = headers.get("content-length", "0")
    if length.isdigit() and int(length) > limit:
        raise BodyTooLargeError(f"The body has {length} bytes; at most {limit} are accepted.")


def _counted(receive: Receive, limit: int) -> Receive:
    """Refuse a body without Content-Length as soon as it is over the limit."""
    total = 0

    async def counting() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > limit:
            raise BodyTooLargeError(f"The body is over {limit} bytes.")
        return message

    return counting


def _with_headers(send: Send, request_id: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = request_id
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
