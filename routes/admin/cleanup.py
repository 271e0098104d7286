"""Clean-up of old turns and its schedule, receipts of operations on everybody's data, and erasure by
operators: the owners with stored data, and the proof."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query

from core.errors import BadRequestError
from core.operations.erasure import ErasedKind
from core.operations.reports import ReceiptKind
from routes.dependencies import (
    Admin,
    Backups,
    ContainerDep,
    NoBody,
    Thorough,
    WithAnswers,
    erasure_options,
    proof_of,
)
from routes.openapi import WireRoute, errors
from routes.wire import operations as wire
from routes.wire.erasure import ErasedOwner, Erasure, OwnerPage

router = APIRouter(
    prefix="/admin",
    tags=["admin"],
    responses=errors(401, 403, 422, 503),
    route_class=WireRoute,
    dependencies=[NoBody],
)

DryRun = Annotated[bool, Query(description="true: only count, change nothing")]


@router.post("/cleanup")
async def cleanup(
    container: ContainerDep,
    admin: Admin,
    dry_run: DryRun = True,
    days: Annotated[int | None, Query(ge=1, le=36_500, description="The age limit.")] = None,
    reason: Annotated[
        Literal["request", "command"], Query(description="Who asks, for the receipt.")
    ] = "request",
) -> wire.Cleanup:
    """Remove turns older than `days` (CONVERSATION_EXPIRE_DAYS when absent); a session's own limit applies to
    its turns. `refusal` says why the nightly run would not do it."""
    days = days or container.settings.conversation.conversation_expire_days
    report = await container.conversations.delete_old_conversations(days, dry_run=dry_run, reason=reason)
    return wire.Cleanup.model_validate(report)


@router.get("/receipts")
async def receipts(
    container: ContainerDep,
    admin: Admin,
    limit: Annotated[int, Query(ge=1, le=1_000, description="How many at most.")] = 50,
    kind: Annotated[ReceiptKind | None, Query(description="Only receipts of this kind.")] = None,
    before: Annotated[int | None, Query(ge=0, le=2**62, description="`next` of the page before")] = None,
) -> wire.ReceiptPage:
    """List operations on everybody's data, newest first: when, why, how much. Never contains texts or ids."""
    newest = await container.receipts.newest(limit, kind, before_us=before)
    last = newest[-1].began_us if len(newest) == limit else None
    return wire.ReceiptPage(receipts=newest, next=last)


@router.get("/schedule")
async def schedule(container: ContainerDep, admin: Admin) -> wire.CleanupSchedule:
    """When the clean-up runs next, and how the last run went."""
    return wire.CleanupSchedule.model_validate(await container.schedule.current())


Name = Annotated[str, Query(min_length=1, max_length=200, description="The id; the owner's name.")]
Confirm = Annotated[str, Query(max_length=200, description="The owner's name again, to confirm.")]


@router.get("/owners")
async def owners(
    container: ContainerDep,
    admin: Admin,
    limit: Annotated[int, Query(ge=1, le=1_000, description="How many at most.")] = 100,
    cursor: Annotated[str | None, Query(max_length=300, description="`next` of the page before")] = None,
) -> OwnerPage:
    """List every owner with stored data and how much, most recent question first. Includes visitors of sites,
    but not shared documents. Takes four requests to the store and one per owner, however much is stored."""
    page = await container.sessions.erasure.owners(limit, cursor)
    return OwnerPage.model_validate(page)


@router.delete("/owners/{owner}", responses=errors(404))
async def erase_owner(
    owner: str,
    container: ContainerDep,
    admin: Admin,
    confirm: Confirm = "",
    proof: Thorough = None,
    backups: Backups = "keep",
) -> ErasedOwner:
    """Erase all sessions, turns, documents, memories and log lines of one owner. 404 if nothing is stored
    under this name and nothing was erased before."""
    options = erasure_options(ErasedKind.OWNER, proof, backups=backups)
    erased = await container.sessions.erasure.anything(ErasedKind.OWNER, owner, confirm, options)
    return ErasedOwner(
        owner=owner, erased=erased.counts, proof=proof_of(erased), receipt_id=erased.receipt_id
    )


@router.post("/erase", responses=errors(404))
async def erase(
    container: ContainerDep,
    admin: Admin,
    kind: Annotated[ErasedKind, Query(description="The kind of thing to erase.")],
    name: Name,
    dry_run: Annotated[bool, Query(description="true: only count, change nothing")] = True,
    confirm: Confirm = "",
    proof: Thorough = "full",
    with_answers: WithAnswers = False,
    backups: Backups = "keep",
) -> Erasure:
    """Erase a turn, a session, a document, a memory or an owner, or the leftovers of one already deleted. 404
    for an owner with nothing stored and nothing erased before."""
    options = erasure_options(kind, proof, with_answers=with_answers, backups=backups, dry_run=dry_run)
    name = name if kind is ErasedKind.OWNER else _id(name)
    return Erasure.model_validate(await container.sessions.erasure.anything(kind, name, confirm, options))


def _id(name: str) -> str:
    try:
        return str(UUID(name))
    except ValueError as error:
        raise BadRequestError("name: must be a UUID.") from error
