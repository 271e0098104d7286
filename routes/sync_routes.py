"""Followed folders: operators see and start the sync, everybody sees which sources there are."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from pydantic import BaseModel, ConfigDict, Field

from core.conversation.turns import rfc3339
from routes.dependencies import Admin, ContainerDep, Owner
from routes.document_routes import readable
from routes.json_body import body_schema, json_body
from routes.openapi import errors
from services.sync.reports import SyncFailure, SyncReport
from services.sync.state import SourceSummary, SyncState

router = APIRouter(tags=["documents"], responses=errors(401, 503))

SourceName = Annotated[str, Path(pattern="^[\\w-]{1,64}$", description="a name of the configuration")]


class SyncBody(BaseModel):
    """Which source (absent: all), and whether documents go also where most of the files are gone."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source: str | None = Field(None, min_length=1, max_length=64)
    allow_removals: bool = False


@router.get("/sources")
async def list_sources(container: ContainerDep, owner: Owner) -> dict[str, Any]:
    """The folders that are followed, whose documents you may read. A question can be limited to them."""
    found = await container.sync.summaries(readable(owner))
    return {"sources": [summary_object(summary) for summary in found]}


@router.get("/admin/sync", tags=["admin"], responses=errors(403))
async def sync_state(container: ContainerDep, admin: Admin) -> dict[str, Any]:
    """Every source with its last report, how far a running sync is, and what earlier sources left."""
    return state_object(await container.sync.state())


@router.post(
    "/admin/sync",
    status_code=202,
    tags=["admin"],
    openapi_extra=body_schema(SyncBody),
    responses=errors(400, 403, 409, 413, 415, 422),
)
async def start_sync(
    container: ContainerDep, admin: Admin, body: Annotated[SyncBody, Depends(json_body(SyncBody))]
) -> dict[str, Any]:
    """Follow the folders now, in the background; GET shows how far it is. One at a time."""
    return state_object(await container.sync.start(body.source, body.allow_removals))


@router.delete("/admin/sync/{source}", tags=["admin"], responses=errors(403, 409, 422))
async def forget_source(source: SourceName, container: ContainerDep, admin: Admin) -> dict[str, Any]:
    """Remove the documents of a source that is no longer configured."""
    return {"source": source, "removed": await container.sync.forget(source)}


def summary_object(summary: SourceSummary) -> dict[str, Any]:
    return {
        "source": summary.source,
        "documents": summary.documents,
        "synced_at": _moment(summary.synced_us),
    }


def state_object(state: SyncState) -> dict[str, Any]:
    """Its times as RFC 3339."""
    sources = [
        {
            "source": each.source,
            "folder": each.folder,
            "owner": each.owner,
            "tags": each.tags,
            "last": report_object(each.last) if each.last else None,
        }
        for each in state.sources
    ]
    return {
        "running": state.running,
        "began_at": _moment(state.began_us),
        "progress": asdict(state.progress) if state.progress else None,
        "sources": sources,
        "left": [{**asdict(left), "message": str(left)} for left in state.left],
    }


def report_object(report: SyncReport) -> dict[str, Any]:
    body = asdict(report)
    del body["began_us"], body["ended_us"]
    return {
        **body,
        "failures": [_failure_object(failure) for failure in report.failures],
        "began_at": rfc3339(report.began_us),
        "ended_at": rfc3339(report.ended_us),
    }


def _failure_object(failure: SyncFailure) -> dict[str, Any]:
    return {"path": failure.path, "reason": failure.reason, "since": rfc3339(failure.since_us)}


def _moment(moment_us: int) -> str | None:
    return rfc3339(moment_us) if moment_us else None
