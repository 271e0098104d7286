"""Followed folders: operators see how far the sync is, and start it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from routes.dependencies import Admin, ContainerDep, body_schema, json_body
from routes.openapi import WireRoute, errors
from routes.wire import operations as wire

router = APIRouter(
    prefix="/admin/sync", tags=["admin"], responses=errors(401, 403, 503), route_class=WireRoute
)

SourceName = Annotated[str, Path(pattern="^[\\w-]{1,64}$", description="a name of the configuration")]


@router.get("")
async def sync_state(container: ContainerDep, admin: Admin) -> wire.SyncState:
    """Every source with its last report, how far a running sync is, and what earlier sources left."""
    return wire.SyncState.of(await container.sync.state())


@router.post(
    "",
    status_code=202,
    openapi_extra=body_schema(wire.SyncBody),
    responses=errors(400, 409, 413, 415, 422),
)
async def start_sync(
    container: ContainerDep, admin: Admin, body: Annotated[wire.SyncBody, Depends(json_body(wire.SyncBody))]
) -> wire.SyncState:
    """Follow the folders now, in the background; GET shows how far it is. One at a time."""
    return wire.SyncState.of(await container.sync.start(body.source, body.allow_removals))


@router.delete("/{source}", responses=errors(409, 422))
async def forget_source(source: SourceName, container: ContainerDep, admin: Admin) -> wire.RemovedSource:
    """Remove the documents of a source that is no longer configured."""
    return wire.RemovedSource(source=source, removed=await container.sync.forget(source))
