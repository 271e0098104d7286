"""Repair for operators: planned first, dry by default, with a backup before anything is written."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from routes.dependencies import Admin, ContainerDep
from routes.openapi import WireRoute, errors
from routes.wire.operations import CollectionImport, Repair
from services.operations.repair.plan import BackfillOptions

router = APIRouter(
    prefix="/admin/backfill",
    tags=["admin"],
    responses=errors(400, 401, 403, 409, 422, 503, 507),
    route_class=WireRoute,
)

DryRun = Annotated[bool, Query(description="true: only count, change nothing")]
Zone = Annotated[str, Query(max_length=64, description="of stored times that name none")]
NewOwner = Annotated[str, Query(alias="owner", min_length=1, max_length=200, description="of turns without")]
SessionId = Annotated[str | None, Query(max_length=200, description="only this session")]
Drop = Annotated[bool, Query(description="of turns that were stored twice delete all but one")]
Reason = Annotated[Literal["request", "command"], Query(description="who asks, for the receipt")]
Backup = Annotated[bool, Query(description="back the store up before anything is written")]
Embed = Annotated[bool, Query(description="make the vectors that are missing")]


@router.post("")
async def backfill(
    container: ContainerDep,
    admin: Admin,
    dry_run: DryRun = True,
    assume_timezone: Zone = "UTC",
    new_owner: NewOwner = "local",
    session_id: SessionId = None,
    drop_duplicates: Drop = False,
    embed: Embed = True,
    backup: Backup = True,
    details: Annotated[bool, Query(description="answer with every finding and change, too")] = False,
    reason: Reason = "request",
) -> Repair:
    """Repair what earlier versions left: ids, parents, times, duplicates, vectors, session records.

    `backup` in the answer names the archive that was written first, with the store as it was.
    """
    plan = await container.backfill.plan(
        assume_timezone, new_owner, session_id, drop_duplicates=drop_duplicates
    )
    if dry_run:
        report = plan.report()
    else:
        report = await container.backfill.apply(plan, backup=backup, embed=embed, reason=reason)
    return Repair(**asdict(replace(report, plan=plan if details else None)))


@router.post("/import", responses=errors(404))
async def import_collection(
    container: ContainerDep,
    admin: Admin,
    collection: Annotated[str, Query(pattern="^[A-Za-z0-9_-]{1,64}$", description="it is only read")],
    dry_run: DryRun = True,
    assume_timezone: Zone = "UTC",
    new_owner: NewOwner = "local",
    session_id: SessionId = None,
    drop_duplicates: Drop = False,
    embed: Embed = True,
    backup: Backup = True,
    reason: Reason = "request",
) -> CollectionImport:
    """Copy the turns of an old collection of the same store into the conversations, repaired."""
    options = BackfillOptions(assume_timezone, new_owner, session_id, drop_duplicates)
    plan = await container.backfill.plan_import(collection, options)
    if dry_run:
        return CollectionImport.model_validate(plan.report())
    report = await container.backfill.apply_import(plan, backup=backup, embed=embed, reason=reason)
    return CollectionImport.model_validate(report)
