"""Errors as OpenAI's clients read them; what our own clients know of an error stands beside it."""

from __future__ import annotations

import re
from typing import Any

from core import errors

PREFIX = "/v1/"
_CODES = {
    errors.UnknownModelError.code: "model_not_found",
    errors.UnauthorizedError.code: "invalid_api_key",
    errors.QuestionTooLongError.code: "context_length_exceeded",
    errors.TooManyStreamsError.code: "rate_limit_exceeded",
}
_PARAM = re.compile(r"(?:missing: )?([a-z_]+(?:\.\w+)*)(?::|$)")


def status_in_openai(status: int) -> int:
    """A refused field is 400 there."""
    return 400 if status == 422 else status


def error_in_openai(status: int, error: dict[str, Any]) -> dict[str, Any]:
    """The object of an error; its message begins with the parameter, where one was refused."""
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = "server_error" if status >= 500 else kinds.get(status, "invalid_request_error")
    refused = _PARAM.match(error["message"]) if kind == "invalid_request_error" else None
    param = refused[1].replace("model_id", "model") if refused else None
    return {**error, "code": _CODES.get(error["code"], error["code"]), "type": kind, "param": param}
