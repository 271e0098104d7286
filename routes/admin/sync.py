"""Followed folders: operators see how far the sync is, and start it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Path

from core.conversation.turns import rfc3339
from routes.dependencies import Admin, ContainerDep
from routes.json_body import body_schema, json_body
from routes.openapi import WireRoute, errors
from routes.wire import sync as wire
from services.sync.reports import SyncReport
from services.sync.state import SyncState

router = APIRouter(
    prefix="/admin/sync", tags=["admin"], responses=errors(401, 403, 503), route_class=WireRoute
)

SourceName = Annotated[str, Path(pattern="^[\\w-]{1,64}$", description="a name of the configuration")]


@router.get("")
async def sync_state(container: ContainerDep, admin: Admin) -> wire.SyncState:
    """Every source with its last report, how far a running sync is, and what earlier sources left."""
    return _state(await container.sync.state())


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
    return _state(await container.sync.start(body.source, body.allow_removals))


@router.delete("/{source}", responses=errors(409, 422))
async def forget_source(source: SourceName, container: ContainerDep, admin: Admin) -> wire.RemovedSource:
    """Remove the documents of a source that is no longer configured."""
    return wire.RemovedSource(source=source, removed=await container.sync.forget(source))


def _state(state: SyncState) -> wire.SyncState:
    """Its times as RFC 3339."""
    sources = [
        wire.SourceState(
            source=each.source,
            folder=each.folder,
            owner=each.owner,
            tags=list(each.tags),
            last=_report(each.last) if each.last else None,
        )
        for each in state.sources
    ]
    return wire.SyncState(
        running=state.running,
        began_at=rfc3339(state.began_us) if state.began_us else None,
        progress=wire.SyncProgress(**asdict(state.progress)) if state.progress else None,
        sources=sources,
        left=[wire.UnconfiguredSource(**asdict(left), message=str(left)) for left in state.left],
    )


def _report(report: SyncReport) -> wire.SyncReport:
    body = asdict(report)
    del body["began_us"], body["ended_us"]
    body["failures"] = [
        wire.SyncFailure(path=each.path, reason=each.reason, since=rfc3339(each.since_us))
        for each in report.failures
    ]
    return wire.SyncReport(**body, began_at=rfc3339(report.began_us), ended_at=rfc3339(report.ended_us))
