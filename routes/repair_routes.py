"""Repair for operators: planned first, dry by default, undone from a file that only the server names."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from api.container import Container
from routes.dependencies import Admin, ContainerDep
from routes.openapi import errors
from services.operations.repair.plan import BackfillOptions
from services.operations.repair.undo_file import UNDO_NAME, UndoFile, new_undo_file
from services.store.clock import utc_now_us

router = APIRouter(prefix="/admin/backfill", tags=["admin"], responses=errors(400, 401, 403, 422, 503, 507))

DryRun = Annotated[bool, Query(description="true: only count, change nothing")]
Zone = Annotated[str, Query(max_length=64, description="of stored times that name none")]
NewOwner = Annotated[str, Query(alias="owner", min_length=1, max_length=200, description="of turns without")]
SessionId = Annotated[str | None, Query(max_length=200, description="only this session")]
Drop = Annotated[bool, Query(description="of turns that were stored twice delete all but one")]
Reason = Annotated[Literal["request", "command"], Query(description="who asks, for the receipt")]
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
    details: Annotated[bool, Query(description="answer with every finding and change, too")] = False,
    reason: Reason = "request",
) -> dict[str, Any]:
    """Repair what earlier versions left: ids, parents, times, duplicates, vectors, session records.

    `undo_file` in the answer is what `/admin/backfill/undo` takes.
    """
    plan = await container.backfill.plan(
        assume_timezone, new_owner, session_id, drop_duplicates=drop_duplicates
    )
    if dry_run:
        report = plan.report()
    else:
        undo = _undo_file(container)
        report = await container.backfill.apply(plan, undo=undo, embed=embed, reason=reason)
    return asdict(replace(report, plan=plan if details else None))


@router.post("/undo")
async def undo(
    container: ContainerDep,
    admin: Admin,
    file: Annotated[str, Query(pattern=f"^{UNDO_NAME.pattern}$", description="the answer's `undo_file`")],
    dry_run: DryRun = True,
    reason: Reason = "request",
) -> dict[str, Any]:
    """Put back what a repair or an import changed; turns that changed since stay as they are."""
    path = container.settings.store.data_dir / file
    return asdict(await container.backfill.undo(path, dry_run=dry_run, reason=reason))


@router.post("/import", responses=errors(404, 409))
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
    reason: Reason = "request",
) -> dict[str, Any]:
    """Copy the turns of an old collection of the same store into the conversations, repaired."""
    options = BackfillOptions(assume_timezone, new_owner, session_id, drop_duplicates)
    plan = await container.backfill.plan_import(collection, options)
    if dry_run:
        return asdict(plan.report())
    undo_file = _undo_file(container)
    report = await container.backfill.apply_import(plan, undo=undo_file, embed=embed, reason=reason)
    return asdict(report)


def _undo_file(container: Container) -> UndoFile:
    return new_undo_file(container.settings.store.data_dir, container.backfill.collection, utc_now_us())
