"""Erasure for operators, with its proof; and how a proof goes over the wire."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query

from core.errors import BadRequestError
from core.operations.erasure import Erased, ErasedKind, ErasureOptions
from routes.dependencies import Admin, ContainerDep
from routes.openapi import errors
from services.operations.erasure.erase import as_dry_run, options_of

router = APIRouter(prefix="/admin", tags=["admin"], responses=errors(401, 403, 422, 503))

Thorough = Annotated[
    Literal["references", "full"] | None,
    Query(
        alias="proof", description="full: everything stored is read; references: each field that can name it"
    ),
]
Backups = Annotated[Literal["keep", "delete"], Query(description="delete: archives that hold it go, too")]
WithAnswers = Annotated[bool, Query(description="true: answers that quote an erased document go, too")]
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
) -> dict[str, Any]:
    """Erase all sessions, turns, documents, memories and log lines of one owner."""
    options = asked(ErasedKind.OWNER, proof, backups=backups)
    erased = await container.sessions.erasure.anything(ErasedKind.OWNER, owner, confirm, options)
    return {"owner": owner, "erased": erased.counts, **proof_object(erased)}


@router.post("/erase")
async def erase(
    container: ContainerDep,
    admin: Admin,
    kind: ErasedKind,
    name: Name,
    dry_run: Annotated[bool, Query(description="true: only count, change nothing")] = True,
    confirm: Confirm = "",
    proof: Thorough = "full",
    with_answers: WithAnswers = False,
    backups: Backups = "keep",
) -> dict[str, Any]:
    """Erase a turn, a session, a document or an owner, or what is left of one that is gone already."""
    options = asked(kind, proof, with_answers=with_answers, backups=backups)
    options = as_dry_run(options) if dry_run else options
    name = name if kind is ErasedKind.OWNER else _id(name)
    return asdict(await container.sessions.erasure.anything(kind, name, confirm, options))


def asked(
    kind: ErasedKind, proof: str | None = None, *, with_answers: bool = False, backups: str = "keep"
) -> ErasureOptions:
    full = None if proof is None else proof == "full"
    return options_of(kind, full=full, with_answers=with_answers, delete_backups=backups == "delete")


def proof_object(erased: Erased) -> dict[str, Any]:
    """`proof` and `receipt_id` of an answer; `left` and `backups` are there only when there are any."""
    if erased.proof is None:
        return {"proof": None, "receipt_id": erased.receipt_id}
    proof = asdict(erased.proof)
    for name in ("left", "backups"):
        if not proof[name]:
            del proof[name]
    if erased.kind is ErasedKind.DOCUMENT:
        proof["quoted_in"] = list(erased.quoted_in.turn_ids)
        proof["summed_up_in"] = list(erased.quoted_in.summary_turn_ids)
    return {"proof": proof, "receipt_id": erased.receipt_id}


def _id(name: str) -> str:
    try:
        return str(UUID(name))
    except ValueError as error:
        raise BadRequestError("name: must be a UUID.") from error
