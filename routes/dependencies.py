"""Dependencies of routes: the container's parts by Annotated aliases, the caller's identity, and strict JSON
bodies, which refuse what a lenient parser would pass on to a model. Also shared by the routes that erase: the
options, and the proof in the answer.

Dependencies are coroutines because FastAPI runs plain functions in a thread, three times per request.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, cast

from fastapi import Depends, Query, Request
from pydantic import BaseModel, SecretStr, ValidationError

from api.container import Container
from core.errors import (
    BadRequestError,
    ForbiddenError,
    MalformedRequestError,
    UnauthorizedError,
    UnsupportedMediaError,
)
from core.knowledge import SHARED_OWNER
from core.operations.erasure import Erased, ErasedKind, ErasureOptions, Thoroughness
from core.owners import LOCAL_OWNER, VISITOR_PREFIX, owner_of, visitor_of
from core.text import Language
from routes.errors import EdgeCode, describe
from routes.wire.erasure import Proof


async def get_container(request: Request) -> Container:
    return cast(Container, request.app.state.container)


ContainerDep = Annotated[Container, Depends(get_container)]


async def get_owner(request: Request, container: ContainerDep) -> str:
    """Identify the caller: one owner per API key; without keys every caller is the local owner.

    Raises UnauthorizedError, or BadRequestError for an unknown query parameter.
    """
    server, owner = container.settings.server, LOCAL_OWNER
    if server.api_keys or server.admin_api_keys:
        key = _matching(sent_key(request), [*server.api_keys, *server.admin_api_keys])
        if key is None:
            raise UnauthorizedError("API key missing or wrong: send Authorization: Bearer <key>.")
        owner = owner_of(key)
    _check_parameters(request)
    return owner


def _check_parameters(request: Request) -> None:
    """If it were ignored, `cursor` instead of `before` would return the first page again and again."""
    known = getattr(request.scope["route"], "parameters", [])
    unknown = next((name for name in request.query_params if name not in known), None)
    if known and unknown is not None:
        possible = ", ".join(known)
        raise RefusedFieldError(
            EdgeCode.UNKNOWN_FIELD, f"{unknown}: unknown parameter. Possible: {possible}."
        )


Owner = Annotated[str, Depends(get_owner)]


def site_key(key: str) -> str:
    """Return a key that may appear in a public page: derived from `key`, revoked with it, and good only for
    asking."""
    return VISITOR_PREFIX + hmac.new(key.encode(), b"wenmai widget", hashlib.sha256).hexdigest()[:40]


async def get_asker(request: Request, container: ContainerDep) -> str:
    """As `get_owner`; or a visitor of a site with the widget: an owner beginning with VISITOR_PREFIX, a
    different one for each visitor, so that none reads another's questions. Raises UnauthorizedError."""
    sent, server = sent_key(request), container.settings.server
    if _matching(sent, [SecretStr(site_key(key)) for key in server.keys]) is None:
        return await get_owner(request, container)
    return visitor_of(sent, request.headers.get("x-visitor-id", ""))


Asker = Annotated[str, Depends(get_asker)]


async def get_admin(request: Request, container: ContainerDep, owner: Owner) -> str:
    """Identify who may act on everybody's data: the local owner, or the holder of an ADMIN_API_KEYS key.

    Raises UnauthorizedError or ForbiddenError.
    """
    keys = container.settings.server.admin_api_keys
    if owner != LOCAL_OWNER and _matching(sent_key(request), keys) is None:
        raise ForbiddenError("This needs a key of ADMIN_API_KEYS.")
    return owner


Admin = Annotated[str, Depends(get_admin)]


def readable(owner: str) -> tuple[str, ...]:
    return (owner, SHARED_OWNER)


def erasable(owner: str) -> tuple[str, ...]:
    """Shared documents belong to the operator; without API keys, that is the local owner."""
    return readable(owner) if owner == LOCAL_OWNER else (owner,)


def sent_key(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")


def accepted_language(accepted: str) -> Language | None:
    """Return the first of ours in a list like "zh-CN,zh;q=0.9,en": browsers put the preferred one first."""
    for tag in accepted.lower().split(","):
        match tag.strip().partition(";")[0].partition("-")[0]:
            case "zh":
                return "zh"
            case "en":
                return "en"
    return None


def _matching(sent: str, keys: Sequence[SecretStr]) -> str | None:
    """Compare every key, each in constant time."""
    secrets = [key.get_secret_value() for key in keys]
    matches = [secret for secret in secrets if hmac.compare_digest(secret.encode(), sent.encode())]
    return matches[0] if matches else None


Thorough = Annotated[
    Literal["references", "full"] | None,
    Query(
        alias="proof", description="full: read everything stored; references: every field that can name it"
    ),
]
Backups = Annotated[Literal["keep", "delete"], Query(description="delete: also archives that contain it")]
WithAnswers = Annotated[bool, Query(description="true: also erase answers that quote the document")]


def erasure_options(
    kind: ErasedKind,
    proof: str | None = None,
    *,
    with_answers: bool = False,
    backups: str = "keep",
    dry_run: bool = False,
) -> ErasureOptions:
    """`proof` None: full for an owner, by reference for everything else."""
    proof = proof or ("full" if kind is ErasedKind.OWNER else "references")
    return ErasureOptions(Thoroughness(proof), with_answers, backups == "delete", dry_run)


def proof_of(erased: Erased) -> Proof | None:
    """`left` and `backups` are set only if there are any, `quoted_in` and `summed_up_in` for documents."""
    if erased.proof is None:
        return None
    body = asdict(erased.proof)
    for name in ("left", "backups"):
        if not body[name]:
            del body[name]
    if erased.kind is ErasedKind.DOCUMENT:
        body["quoted_in"] = list(erased.quoted_in.turn_ids)
        body["summed_up_in"] = list(erased.quoted_in.summary_turn_ids)
    return Proof(**body)


M = TypeVar("M", bound=BaseModel)
LARGE_BYTES = 500_000
_MAX_INTEGER_DIGITS = 18  # longer numbers are never valid here, and take quadratic time to parse


class RefusedFieldError(BadRequestError):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def json_body(model: type[M]) -> Callable[[Request], Awaitable[M]]:
    """A dependency that reads the body as strict JSON for `model`; WireRoute describes the body from it.

    Raises UnsupportedMediaError (415), MalformedRequestError (400) or a 422 that names the field.
    """
    return partial(_read_body, model)


async def _read_body(model: type[M], request: Request) -> M:
    check_headers(request)
    body = await request.body()
    if len(body) > LARGE_BYTES:  # images: parse in a thread, so that other requests continue
        return await asyncio.to_thread(read_model, model, body)
    return read_model(model, body)


MAX_NAMED = 8


async def refuse_body(request: Request) -> None:
    """For routes that take everything from the address: `days` in an ignored body would have no effect."""
    body = (await request.body()).strip()
    if body not in (b"", b"{}"):
        try:
            fields = list(json.loads(body))
        except (ValueError, TypeError):  # neither an object nor a list
            fields = ["name"]
        address = "&".join(f"{field}=…" for field in fields[:MAX_NAMED])
        raise RefusedFieldError(
            EdgeCode.UNKNOWN_FIELD,
            f"body: this route takes its parameters from the address (?{address}), and no body.",
        )


NoBody = Depends(refuse_body)


def read_model(model: type[M], body: bytes) -> M:
    """Validate the body as `model`. Raises MalformedRequestError (400) or a 422 that names the field."""
    value = parse_strict(body)
    if not isinstance(value, dict):
        raise MalformedRequestError("The body must be one JSON object.")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise RefusedFieldError(*describe(error)) from error


def parse_strict(body: bytes) -> Any:
    """Parse RFC 8259 JSON: UTF-8, one value, unique keys, no NaN. A byte order mark, which Windows editors
    write, is ignored. Raises MalformedRequestError."""
    try:
        return json.loads(
            body.decode("utf-8-sig"),
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_int=_integer,
        )
    except UnicodeDecodeError as error:
        raise MalformedRequestError("The body is not UTF-8.") from error
    except RecursionError as error:
        raise MalformedRequestError("The body is nested too deeply.") from error
    except ValueError as error:
        raise MalformedRequestError(f"The body is not valid JSON: {error}.") from error


async def file_body(request: Request) -> bytes:
    """Return the body, which is a file. Raises UnsupportedMediaError for a form that contains one."""
    if request.headers.get("content-type", "").lower().startswith("multipart/"):
        raise UnsupportedMediaError("Send the file itself, not a form (curl --data-binary @FILE).")
    return await request.body()


def check_headers(request: Request) -> None:
    """Raises UnsupportedMediaError unless the headers declare plain JSON."""
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
    return int(digits) if len(digits) <= _MAX_INTEGER_DIGITS else float("inf")
