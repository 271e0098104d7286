"""What a route is handed: the container's parts by Annotated aliases, and who is asking."""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated, cast

from fastapi import Depends, Request

from api.container import Container
from core.errors import UnauthorizedError

LOCAL_OWNER = "local"


def get_container(request: Request) -> Container:
    return cast(Container, request.app.state.container)


ContainerDep = Annotated[Container, Depends(get_container)]


def get_owner(request: Request, container: ContainerDep) -> str:
    """Who asks: one owner per API key; without keys everybody here is the local owner.

    Raises UnauthorizedError. Every key is compared, in constant time.
    """
    keys = container.settings.server.api_keys
    if not keys:
        return LOCAL_OWNER
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    given = token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
    matches = [key for key in keys if hmac.compare_digest(key.get_secret_value().encode(), given.encode())]
    if not matches:
        raise UnauthorizedError("API key missing or wrong: send Authorization: Bearer <key>.")
    return f"key-{hashlib.sha256(matches[0].get_secret_value().encode()).hexdigest()[:16]}"


Owner = Annotated[str, Depends(get_owner)]
