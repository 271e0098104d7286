"""Probabilities fitted to the store's own documents: what is in force, a new one, and the way back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from api.admin.calibration import KnownQuestion
from routes.dependencies import Admin, ContainerDep, body_schema, json_body
from routes.openapi import WireRoute, errors
from routes.wire.search import Calibration, CalibrationBody, CalibrationReport

router = APIRouter(
    prefix="/admin/calibration", tags=["admin"], responses=errors(401, 403, 503), route_class=WireRoute
)


@router.get("")
async def calibration(container: ContainerDep, admin: Admin) -> Calibration:
    """The calibration in force."""
    return Calibration.of(container.calibration.current)


@router.post("", openapi_extra=body_schema(CalibrationBody), responses=errors(400, 413, 415, 422))
async def calibrate(
    container: ContainerDep,
    admin: Admin,
    body: Annotated[CalibrationBody, Depends(json_body(CalibrationBody))],
    dry_run: Annotated[bool, Query(description="true: only count, change nothing")] = True,
) -> CalibrationReport:
    """Fit probabilities to questions whose answer is known, or to rated answers: at least 20, five of them
    with a best passage that does not answer. Each question is searched for among the caller's documents and
    those of all."""
    if body.ratings:
        made = await container.calibration.from_ratings(dry_run=dry_run)
    else:
        known = [KnownQuestion(each.question, tuple(each.passage)) for each in body.questions]
        made = await container.calibration.from_questions(known, admin, dry_run=dry_run)
    return CalibrationReport(
        calibration=Calibration.of(made.calibration),
        dry_run=made.dry_run,
        answered=made.answered,
        unanswered=made.unanswered,
    )


@router.delete("", responses=errors(409))
async def undo_calibration(container: ContainerDep, admin: Admin) -> Calibration:
    """Take the calibration in force back: the one before is in force again."""
    return Calibration.of(await container.calibration.undo())
