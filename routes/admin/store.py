"""The store as a whole, for operators. Backups are made while the server runs, below BACKUP_DIR, and listed.
A copy of the embedded store for another embedding is made while the server answers, and used from the next
start. A repair is planned first, dry by default, and backs the store up before writing. The followed folders
are synced; probabilities are calibrated to the store's own documents."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query

from api.admin.calibration import KnownQuestion
from core.operations.backfill_turns import BackfillOptions
from routes.dependencies import Admin, ContainerDep, NoBody, json_body
from routes.openapi import WireRoute, errors
from routes.wire.operations import (
    ArchiveList,
    Backup,
    CollectionImport,
    ReembedBody,
    ReembedPlan,
    ReembedState,
    RemovedSource,
    Repair,
    SyncBody,
    SyncState,
)
from routes.wire.search import Calibration, CalibrationBody, CalibrationReport

router = APIRouter(prefix="/admin", tags=["admin"], responses=errors(401, 403, 503), route_class=WireRoute)


@router.post("/backups", responses=errors(409, 422, 507), dependencies=[NoBody])
async def create_backup(
    container: ContainerDep,
    admin: Admin,
    keep: Annotated[
        int | None, Query(ge=1, le=1_000, description="Afterwards, delete all but this many archives.")
    ] = None,
) -> Backup:
    """Write the whole store, as of one moment, into one archive. Answers when it is done."""
    return Backup.model_validate(await container.backups.create(keep))


@router.get("/backups")
async def list_backups(container: ContainerDep, admin: Admin) -> ArchiveList:
    """The archives, newest first. `problem` is empty if the table of contents and the manifest are sound."""
    return ArchiveList(backups=await container.backups.list_all())


@router.post("/reembed", status_code=202, responses=errors(400, 409, 413, 415, 422, 507))
async def start_reembedding(
    container: ContainerDep,
    admin: Admin,
    body: Annotated[ReembedBody, Depends(json_body(ReembedBody))],
    dry_run: Annotated[bool, Query(description="true: only count and estimate, change nothing.")] = True,
) -> ReembedPlan | ReembedState:
    """Build a copy with this embedding beside the store, or bring it up to date; the next start configured
    with this embedding uses it. Returns the plan with `dry_run`, otherwise the progress."""
    if not dry_run:
        return ReembedState.model_validate(container.reembedding.start(body.embedding))
    plan = await container.reembedding.plan(body.embedding)
    return ReembedPlan(**asdict(plan), needed=plan.needed, points=plan.points)


@router.get("/reembed")
async def reembedding_state(container: ContainerDep, admin: Admin) -> ReembedState:
    """The progress: `status` is idle, running, prepared, failed, cancelled or interrupted."""
    return ReembedState.model_validate(container.reembedding.state())


@router.delete("/reembed")
async def cancel_reembedding(container: ContainerDep, admin: Admin) -> ReembedState:
    """Stop it; its work is kept, and the next POST resumes it."""
    return ReembedState.model_validate(await container.reembedding.cancel())


REPAIR_ERRORS = errors(400, 409, 422, 507)

DryRun = Annotated[bool, Query(description="true: only count, change nothing.")]
Reason = Annotated[Literal["request", "command"], Query(description="Who asks, for the receipt.")]
BackUp = Annotated[bool, Query(description="Back the store up before anything is written.")]
Embed = Annotated[bool, Query(description="Compute missing vectors.")]


async def _options(
    assume_timezone: Annotated[
        str, Query(max_length=64, description="Assumed for stored times without one.")
    ] = "UTC",
    owner: Annotated[
        str, Query(min_length=1, max_length=200, description="For turns without one.")
    ] = "local",
    session_id: Annotated[str | None, Query(max_length=200, description="Only this session.")] = None,
    drop_duplicates: Annotated[bool, Query(description="Delete all but one of turns stored twice.")] = False,
) -> BackfillOptions:
    return BackfillOptions(assume_timezone, owner, session_id, drop_duplicates)


Options = Annotated[BackfillOptions, Depends(_options)]


@router.post("/backfill", responses=REPAIR_ERRORS, dependencies=[NoBody])
async def backfill(
    container: ContainerDep,
    admin: Admin,
    options: Options,
    dry_run: DryRun = True,
    embed: Embed = True,
    backup: BackUp = True,
    details: Annotated[bool, Query(description="Also return every finding and change.")] = False,
    reason: Reason = "request",
) -> Repair:
    """Repair what earlier versions left: ids, parents, times, duplicates, vectors, session records.

    `backup` in the answer names the archive of the store as it was, written first.
    """
    plan = await container.backfill.plan(options)
    if dry_run:
        report = await asyncio.to_thread(plan.report)  # sums over every session
    else:
        report = await container.backfill.apply(plan, backup=backup, embed=embed, reason=reason)
    return Repair(**asdict(replace(report, plan=plan if details else None)))


@router.post("/backfill/import", responses={**REPAIR_ERRORS, **errors(404)}, dependencies=[NoBody])
async def import_collection(
    container: ContainerDep,
    admin: Admin,
    collection: Annotated[str, Query(pattern="^[A-Za-z0-9_-]{1,64}$", description="It is only read.")],
    options: Options,
    dry_run: DryRun = True,
    embed: Embed = True,
    backup: BackUp = True,
    reason: Reason = "request",
) -> CollectionImport:
    """Copy the turns of an old collection in the same store into the conversations, repaired."""
    plan = await container.backfill.plan_import(collection, options)
    if dry_run:
        return CollectionImport.model_validate(plan.report())
    report = await container.backfill.apply_import(plan, backup=backup, embed=embed, reason=reason)
    return CollectionImport.model_validate(report)


SourceName = Annotated[str, Path(pattern="^[\\w-]{1,64}$", description="Its name in the configuration.")]


@router.get("/sync")
async def sync_state(container: ContainerDep, admin: Admin) -> SyncState:
    """Every source with its last report, a running sync's progress, and what removed sources left behind."""
    return SyncState.model_validate(await container.sync.state())


@router.post("/sync", status_code=202, responses=errors(400, 409, 413, 415, 422))
async def start_sync(
    container: ContainerDep, admin: Admin, body: Annotated[SyncBody, Depends(json_body(SyncBody))]
) -> SyncState:
    """Sync the folders now, in the background; GET shows the progress. One sync at a time."""
    return SyncState.model_validate(await container.sync.start(body.source, body.allow_removals))


@router.delete("/sync/{source}", responses=errors(409, 422))
async def forget_source(source: SourceName, container: ContainerDep, admin: Admin) -> RemovedSource:
    """Remove the documents of a source that is no longer configured."""
    return RemovedSource(source=source, removed=await container.sync.forget(source))


@router.get("/calibration")
async def calibration(container: ContainerDep, admin: Admin) -> Calibration:
    """The calibration in force."""
    return Calibration.model_validate(container.calibration.current)


@router.post("/calibration", responses=errors(400, 413, 415, 422))
async def calibrate(
    container: ContainerDep,
    admin: Admin,
    body: Annotated[CalibrationBody, Depends(json_body(CalibrationBody))],
    dry_run: Annotated[bool, Query(description="true: only count, change nothing.")] = True,
) -> CalibrationReport:
    """Fit probabilities to questions with known answers, or to rated answers: at least 20, five of them with
    a best passage that does not answer. Searches the caller's documents and the shared ones for each
    question."""
    if body.ratings:
        made = await container.calibration.from_ratings(dry_run=dry_run)
    else:
        known = [KnownQuestion(each.question, tuple(each.passage)) for each in body.questions]
        made = await container.calibration.from_questions(known, admin, dry_run=dry_run)
    return CalibrationReport.model_validate(made)


@router.delete("/calibration", responses=errors(409))
async def undo_calibration(container: ContainerDep, admin: Admin) -> Calibration:
    """Undo the calibration in force: the previous one applies again."""
    return Calibration.model_validate(await container.calibration.undo())
