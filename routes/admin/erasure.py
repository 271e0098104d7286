"""Erasure for operators, with its proof."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from core.errors import BadRequestError
from core.operations.erasure import ErasedKind
from routes.dependencies import Admin, ContainerDep
from routes.erasing import Backups, Thorough, WithAnswers, asked, proof_of
from routes.openapi import WireRoute, errors
from routes.wire.erasure import ErasedOwner, Erasure
from services.operations.erasure.erase import as_dry_run

router = APIRouter(
    prefix="/admin", tags=["admin"], responses=errors(401, 403, 422, 503), route_class=WireRoute
)

Name = Annotated[str, Query(min_length=1, max_length=200, description="The id; the owner's name.")]
Confirm = Annotated[str, Query(max_length=200, description="The owner's name once more.")]


@router.delete("/owners/{owner}")
async def erase_owner(
    owner: str,
    container: ContainerDep,
    admin: Admin,
    confirm: Confirm = "",
    proof: Thorough = None,
    backups: Backups = "keep",
) -> ErasedOwner:
    """Erase all sessions, turns, documents, memories and log lines of one owner."""
    options = asked(ErasedKind.OWNER, proof, backups=backups)
    erased = await container.sessions.erasure.anything(ErasedKind.OWNER, owner, confirm, options)
    return ErasedOwner(
        owner=owner, erased=erased.counts, proof=proof_of(erased), receipt_id=erased.receipt_id
    )


@router.post("/erase")
async def erase(
    container: ContainerDep,
    admin: Admin,
    kind: Annotated[ErasedKind, Query(description="What it is.")],
    name: Name,
    dry_run: Annotated[bool, Query(description="true: only count, change nothing")] = True,
    confirm: Confirm = "",
    proof: Thorough = "full",
    with_answers: WithAnswers = False,
    backups: Backups = "keep",
) -> Erasure:
    """Erase a turn, a session, a document or an owner, or what is left of one that is gone already."""
    options = asked(kind, proof, with_answers=with_answers, backups=backups)
    options = as_dry_run(options) if dry_run else options
    name = name if kind is ErasedKind.OWNER else _id(name)
    return Erasure.model_validate(await container.sessions.erasure.anything(kind, name, confirm, options))


def _id(name: str) -> str:
    try:
        return str(UUID(name))
    except ValueError as error:
        raise BadRequestError("name: must be a UUID.") from error
