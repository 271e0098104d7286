"""Backups for operators: made while the server serves, below BACKUP_DIR, and listed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from routes.dependencies import Admin, ContainerDep
from routes.openapi import WireRoute, errors
from routes.wire.operations import Archive, ArchiveList, Backup

router = APIRouter(prefix="/admin", tags=["admin"], route_class=WireRoute)


@router.post("/backups", responses=errors(401, 403, 409, 422, 503, 507))
async def create_backup(
    container: ContainerDep,
    admin: Admin,
    keep: Annotated[
        int | None, Query(ge=1, le=1_000, description="afterwards delete all but this many archives")
    ] = None,
) -> Backup:
    """Write the whole store, as it is at one moment, into one archive. Answered when it is done."""
    return Backup.model_validate(await container.backups.create(keep))


@router.get("/backups", responses=errors(401, 403, 503))
async def list_backups(container: ContainerDep, admin: Admin) -> ArchiveList:
    """The archives, newest first. `problem` is empty when list of contents and manifest are sound."""
    archives = await container.backups.list_all()
    return ArchiveList(backups=[Archive.model_validate(each) for each in archives])
