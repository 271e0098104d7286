"""The clean-up of old turns, its schedule, and the receipts of what was done to everybody's data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from core.conversation.turns import rfc3339
from core.operations.receipts import Receipt, ReceiptKind
from routes.dependencies import Admin, ContainerDep
from routes.openapi import WireRoute, errors
from routes.wire import operations as wire

router = APIRouter(
    prefix="/admin", tags=["admin"], responses=errors(401, 403, 422, 503), route_class=WireRoute
)

DryRun = Annotated[bool, Query(description="true: only count, change nothing")]


@router.post("/cleanup")
async def cleanup(
    container: ContainerDep,
    admin: Admin,
    dry_run: DryRun = True,
    days: Annotated[int | None, Query(ge=1, le=36_500, description="the age limit")] = None,
    reason: Annotated[
        Literal["request", "command"], Query(description="who asks, for the receipt")
    ] = "request",
) -> wire.Cleanup:
    """Remove turns older than `days` (CONVERSATION_EXPIRE_DAYS when absent); a session's own limit counts for
    its turns. `refusal` says why the nightly run would not do it."""
    days = days or container.settings.conversation.conversation_expire_days
    report = await container.conversations.delete_old_conversations(days, dry_run=dry_run, reason=reason)
    return wire.Cleanup.model_validate(report)


@router.get("/receipts")
async def receipts(
    container: ContainerDep,
    admin: Admin,
    limit: Annotated[int, Query(ge=1, le=1_000, description="how many at most")] = 50,
    kind: Annotated[ReceiptKind | None, Query(description="those of this kind")] = None,
    before: Annotated[int | None, Query(ge=0, le=2**62, description="`next` of the page before")] = None,
) -> wire.ReceiptPage:
    """What was done to everybody's data, newest first: when, why, how much. Never a text or an id."""
    newest = await container.receipts.newest(limit, kind, before_us=before)
    last = newest[-1].began_us if len(newest) == limit else None
    return wire.ReceiptPage(receipts=[_receipt(receipt) for receipt in newest], next=last)


@router.get("/schedule")
async def schedule(container: ContainerDep, admin: Admin) -> wire.CleanupSchedule:
    """When the clean-up runs next, and how it went last."""
    return wire.CleanupSchedule.model_validate(await container.schedule.current())


def _receipt(receipt: Receipt) -> wire.Receipt:
    """Its times as RFC 3339."""
    body = asdict(receipt)
    del body["began_us"], body["ended_us"]
    return wire.Receipt(**body, began_at=rfc3339(receipt.began_us), ended_at=rfc3339(receipt.ended_us))
