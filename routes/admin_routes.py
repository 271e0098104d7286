"""Retention and repair for operators: counted before and after, dry by default."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query

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
) -> dict[str, Any]:
    """Remove turns older than `days` (CONVERSATION_EXPIRE_DAYS when absent)."""
    days = days or container.settings.conversation.conversation_expire_days
    return asdict(await container.conversations.delete_old_conversations(days, dry_run=dry_run))


@router.post("/backfill")
async def backfill(
    container: ContainerDep,
    admin: Admin,
    dry_run: DryRun = True,
    assume_timezone: Annotated[str, Query(max_length=64)] = "UTC",
    new_owner: Annotated[str, Query(alias="owner", min_length=1, max_length=200)] = "local",
    session_id: Annotated[str | None, Query(max_length=200)] = None,
) -> dict[str, Any]:
    """Repair what earlier versions left: missing turn ids, broken parents, times without a zone."""
    plan = await container.backfill.plan(assume_timezone, new_owner, session_id)
    return asdict(plan.report() if dry_run else await container.backfill.apply(plan))


@router.get("/schedule")
async def schedule(container: ContainerDep, admin: Admin) -> dict[str, Any]:
    """When the clean-up runs next, and how it went last."""
    return asdict(container.schedule.state())


@router.get("/stats")
async def stats(container: ContainerDep, admin: Admin) -> dict[str, Any]:
    """How much is stored, and what runs just now."""
    store = container.settings.store
    names = {
        "turns": store.conversation_collection,
        "sessions": store.session_collection,
        "documents": store.document_collection,
        "chunks": store.knowledge_collection,
        "memories": store.memory_collection,
    }
    counts = {name: (await container.store.count(collection)).count for name, collection in names.items()}
    return {"stored": counts, "running_turns": len(container.running), "tasks": len(asyncio.all_tasks())}
