"""Retention and repair for operators: counted before and after, dry by default."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from core.conversation.turns import rfc3339
from core.operations.receipts import Receipt, ReceiptKind
from routes.dependencies import Admin, ContainerDep
from routes.openapi import errors

router = APIRouter(prefix="/admin", tags=["admin"], responses=errors(401, 403, 422, 503))

DryRun = Annotated[bool, Query(description="true: only count, change nothing")]


@router.post("/cleanup")
async def cleanup(
    container: ContainerDep,
    admin: Admin,
    dry_run: DryRun = True,
    days: Annotated[int | None, Query(ge=1, le=36_500)] = None,
    reason: Annotated[
        Literal["request", "command"], Query(description="who asks, for the receipt")
    ] = "request",
) -> dict[str, Any]:
    """Remove turns older than `days` (CONVERSATION_EXPIRE_DAYS when absent); a session's own limit counts for
    its turns. `refusal` says why the nightly run would not do it."""
    days = days or container.settings.conversation.conversation_expire_days
    report = await container.conversations.delete_old_conversations(days, dry_run=dry_run, reason=reason)
    return asdict(report)


@router.get("/receipts")
async def receipts(
    container: ContainerDep,
    admin: Admin,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
    kind: Annotated[ReceiptKind | None, Query()] = None,
    before: Annotated[int | None, Query(ge=0, le=2**62, description="`next` of the page before")] = None,
) -> dict[str, Any]:
    """What was done to everybody's data, newest first: when, why, how much. Never a text or an id."""
    found = await container.receipts.newest(limit, kind, before_us=before)
    last = found[-1].began_us if len(found) == limit else None
    return {"receipts": [receipt_object(receipt) for receipt in found], "next": last}


@router.get("/schedule")
async def schedule(container: ContainerDep, admin: Admin) -> dict[str, Any]:
    """When the clean-up runs next, and how it went last."""
    return asdict(await container.schedule.current())


@router.get("/stats")
async def stats(container: ContainerDep, admin: Admin) -> dict[str, Any]:
    """How much is stored, and what runs just now. `bytes_on_disk` is null where the engine does not say."""
    store = container.settings.store
    names = {
        "turns": store.conversation_collection,
        "sessions": store.session_collection,
        "documents": store.document_collection,
        "chunks": store.knowledge_collection,
        "memories": store.memory_collection,
    }
    counts = {name: (await container.store.count(collection)).count for name, collection in names.items()}
    size = await container.space.size_bytes() if container.space else None
    return {
        "stored": counts,
        "chunks_made_for": None if store.qdrant_url else container.knowledge.size.most_chunks,
        "bytes_on_disk": size,
        "running_turns": len(container.running),
        "tasks": len(asyncio.all_tasks()),
    }


def receipt_object(receipt: Receipt) -> dict[str, Any]:
    """Its times as RFC 3339."""
    body = asdict(receipt)
    del body["began_us"], body["ended_us"]
    return {**body, "began_at": rfc3339(receipt.began_us), "ended_at": rfc3339(receipt.ended_us)}
