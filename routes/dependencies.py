"""What a route is handed: the container's parts by Annotated aliases, and who is asking.

They are coroutines because FastAPI hands plain functions to a thread, three times for each request.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Annotated, cast

from fastapi import Depends, Request
from pydantic import SecretStr

from api.container import Container
from core.errors import ForbiddenError, UnauthorizedError
from core.knowledge import SHARED_OWNER

LOCAL_OWNER = "local"


async def get_container(request: Request) -> Container:
    return cast(Container, request.app.state.container)


ContainerDep = Annotated[Container, Depends(get_container)]


async def get_owner(request: Request, container: ContainerDep) -> str:
    """Who asks: one owner per API key; without keys everybody here is the local owner.

    Raises UnauthorizedError.
    """
    server = container.settings.server
    if not server.api_keys and not server.admin_api_keys:
        return LOCAL_OWNER
    key = _matching(_sent_key(request), [*server.api_keys, *server.admin_api_keys])
    if key is None:
        raise UnauthorizedError("API key missing or wrong: send Authorization: Bearer <key>.")
    return f"key-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


Owner = Annotated[str, Depends(get_owner)]


async def get_admin(request: Request, container: ContainerDep, owner: Owner) -> str:
    """Whoever may act on everybody's data: the local owner, or the holder of an ADMIN_API_KEYS key.

    Raises UnauthorizedError or ForbiddenError.
    """
    keys = container.settings.server.admin_api_keys
    if owner != LOCAL_OWNER and _matching(_sent_key(request), keys) is None:
        raise ForbiddenError("This needs a key of ADMIN_API_KEYS.")
    return owner


Admin = Annotated[str, Depends(get_admin)]


def readable(owner: str) -> tuple[str, ...]:
    return (owner, SHARED_OWNER)


def erasable(owner: str) -> tuple[str, ...]:
    """Shared documents belong to the operator; without API keys that is whoever sits here."""
    return readable(owner) if owner == LOCAL_OWNER else (owner,)


def _sent_key(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")


def _matching(sent: str, keys: Sequence[SecretStr]) -> str | None:
    """Every key is compared, each in constant time."""
    secrets = [key.get_secret_value() for key in keys]
    matches = [secret for secret in secrets if hmac.compare_digest(secret.encode(), sent.encode())]
    return matches[0] if matches else None
