"""For operators: the followed folders, and the calibration of probabilities to the store's own documents."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from api.admin.calibration import KnownQuestion
from routes.dependencies import Admin, ContainerDep, json_body
from routes.openapi import WireRoute, errors
from routes.wire.operations import RemovedSource, SyncBody, SyncState
from routes.wire.search import Calibration, CalibrationBody, CalibrationReport

router = APIRouter(prefix="/admin", tags=["admin"], responses=errors(401, 403, 503), route_class=WireRoute)

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
