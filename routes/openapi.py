"""What OpenAPI says about errors and streams."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

Responses = dict[int | str, dict[str, Any]]


class ErrorBody(BaseModel):
    code: str
    message: str
    retryable: bool
    request_id: str


class ErrorResponse(BaseModel):
    """The body of every error; `message` names the field."""

    error: ErrorBody


EVENT_STREAM: dict[str, Any] = {
    "description": (
        "Server-Sent Events; each data text begins with SESSION:, STATUS:, THINK:, CONTENT:, SOURCE:, "
        "ERROR: or DONE:. With `stream: false` one JSON object with the same parts."
    ),
    "content": {
        "text/event-stream": {"schema": {"type": "string"}},
        "application/json": {"schema": {"type": "object"}},
    },
}


def errors(*statuses: int) -> Responses:
    """The error responses of a route."""
    return {status: {"model": ErrorResponse} for status in statuses}
