"""Strict JSON in: what a lenient parser would let through is refused here, before any model sees it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from core.errors import BadRequestError, MalformedRequestError, UnsupportedMediaError
from routes.errors import describe

M = TypeVar("M", bound=BaseModel)
_LONGEST_INTEGER = 18  # digits; longer ones are no number of ours, and cost quadratic time to parse


class RefusedFieldError(BadRequestError):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def json_body(model: type[M]) -> Callable[[Request], Awaitable[M]]:
    """A dependency that reads the body as strict JSON for `model`.

    Raises UnsupportedMediaError (415), MalformedRequestError (400) or a 422 that names the field.
    """

    async def read(request: Request) -> M:
        check_headers(request)
        return read_model(model, await request.body())

    return read


def read_model(model: type[M], body: bytes) -> M:
    """The body as `model`. Raises MalformedRequestError (400) or a 422 that names the field."""
    value = parse_strict(body)
    if not isinstance(value, dict):
        raise MalformedRequestError("The body must be one JSON object.")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise RefusedFieldError(*describe(error)) from error


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The requestBody for OpenAPI, since the dependency reads the raw body; its schema: `routes.openapi`."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def parse_strict(body: bytes) -> Any:
    """JSON as RFC 8259 has it: UTF-8, one value, unique keys, no NaN. Raises MalformedRequestError."""
    try:
        return json.loads(
            body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_integer
        )
    except UnicodeDecodeError as error:
        raise MalformedRequestError("The body is not UTF-8.") from error
    except RecursionError as error:
        raise MalformedRequestError("The body is nested too deeply.") from error
    except ValueError as error:
        raise MalformedRequestError(f"The body is not valid JSON: {error}.") from error


def check_headers(request: Request) -> None:
    """Raises UnsupportedMediaError unless the body is said to be plain JSON."""
    content_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if content_type != "application/json":
        raise UnsupportedMediaError("Content-Type must be application/json.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaError("A compressed body (Content-Encoding) is not accepted.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise ValueError("a key occurs twice")
    return keys


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float("inf")
