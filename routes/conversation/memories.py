"""Memories: list, read with their history, write, edit, forget, copy, and the owner's switch."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response
from pydantic import ValidationError

from core.dates import parse_time
from core.memory.record import Memory, MemoryCopy, MemoryDraft, MemoryType
from core.memory.statements import type_of
from core.operations.erasure import Erased, ErasedKind
from routes.conversation.replies import in_batches, streamed
from routes.dependencies import ContainerDep, Owner, Thorough, erasure_options, json_body, proof_of
from routes.openapi import WireRoute, errors
from routes.wire import memories as wire
from routes.wire.fields import AtMost, PlainText

router = APIRouter(tags=["memories"], responses=errors(401, 422, 503), route_class=WireRoute)

Words = Annotated[
    PlainText, AtMost(200), Query(description="Words that it contains; case and width are ignored.")
]


@router.get("/memories")
async def list_memories(
    container: ContainerDep,
    owner: Owner,
    limit: Annotated[int, Query(ge=1, le=200, description="How many at most.")] = 50,
    before: Annotated[int | None, Query(ge=0, le=2**62, description="`next` of the previous page.")] = None,
    q: Words = "",
    type: Annotated[MemoryType | None, Query(description="Only memories of this kind.")] = None,
    current: Annotated[bool, Query(description="true: leave out what no longer holds.")] = False,
) -> wire.MemoryPage:
    """List memories, newest first, paged; those that no longer hold are included, with their end."""
    memories, following = await container.memories.page(
        owner, limit, before, type, q.strip(), current=current
    )
    switch = await container.memories.records.switch_of(owner)
    return wire.MemoryPage(memories=list(map(memory_reply, memories)), next=following, on=switch.on)


@router.get("/memories/export", response_model=wire.MemoryList)
async def export_memories(container: ContainerDep, owner: Owner) -> Response:
    """All memories, oldest first, in the form that POST /memories/import takes."""
    memories = await container.memories.records.of_owner(owner)
    return await streamed("memories", in_batches(memories, memory_reply))


@router.put("/memories/switch", responses=errors(400, 413, 415))
async def switch_memory(
    container: ContainerDep,
    owner: Owner,
    body: Annotated[wire.SwitchBody, Depends(json_body(wire.SwitchBody))],
) -> wire.Switch:
    """Off: nothing is recalled or learned, and what was said meanwhile is not learned later either."""
    return wire.Switch(on=(await container.memories.set_switch(owner, body.on)).on)


@router.post("/memories/import", responses=errors(400, 413, 415))
async def import_memories(
    container: ContainerDep,
    owner: Owner,
    body: Annotated[wire.MemoryImportBody, Depends(json_body(wire.MemoryImportBody))],
) -> wire.ImportedMemories:
    """Import memories. Valid ones are stored when this answers; the others are counted."""
    read = [_imported(item) for item in body.memories]
    good = [each for each in read if each is not None]
    counts = await container.memories.writer.import_many(owner, good)
    return wire.ImportedMemories(broken=len(read) - len(good), **asdict(counts))


@router.get("/memories/{memory_id}", responses=errors(404))
async def get_memory(memory_id: UUID, container: ContainerDep, owner: Owner) -> wire.MemoryWithHistory:
    """One memory with those it superseded and the one that superseded it."""
    memory, before, after = await container.memories.history(str(memory_id), owner)
    return wire.MemoryWithHistory(
        **memory_reply(memory).model_dump(),
        before=list(map(memory_reply, before)),
        after=memory_reply(after) if after else None,
    )


@router.post(
    "/memories",
    status_code=201,
    responses={
        200: {"model": wire.WrittenMemory, "description": "It was already remembered."},
        **errors(400, 413, 415),
    },
)
async def write_memory(
    container: ContainerDep,
    owner: Owner,
    response: Response,
    body: Annotated[wire.MemoryBody, Depends(json_body(wire.MemoryBody))],
) -> wire.WrittenMemory:
    """Store a memory, ending any it contradicts. 200: the same is already stored, nothing was written."""
    draft = MemoryDraft(body.content, body.type or type_of(body.content))
    written = await container.memories.writer.write(owner, draft)
    if not written.is_new:
        response.status_code = 200
    return wire.WrittenMemory(
        memory=memory_reply(written.memory),
        is_new=written.is_new,
        ended=list(map(memory_reply, written.ended)),
    )


@router.patch("/memories/{memory_id}", responses=errors(400, 404, 413, 415))
async def change_memory(
    memory_id: UUID,
    container: ContainerDep,
    owner: Owner,
    body: Annotated[wire.MemoryChanges, Depends(json_body(wire.MemoryChanges))],
) -> wire.Memory:
    """Change a memory's words, its kind, or both."""
    return memory_reply(await container.memories.edit(str(memory_id), owner, body.content, body.type))


@router.delete("/memories/{memory_id}", responses=errors(404))
async def delete_memory(
    memory_id: UUID, container: ContainerDep, owner: Owner, proof: Thorough = None
) -> wire.ErasedMemories:
    """Erase one memory, and prove it; records of prompts that contained it no longer name it."""
    options = erasure_options(ErasedKind.MEMORY, proof)
    return _erased(await container.sessions.erasure.memory(str(memory_id), owner, options), 1)


@router.delete("/memories")
async def delete_all_memories(
    container: ContainerDep,
    owner: Owner,
    confirm: Annotated[str, Query(pattern="^all$", description="Must be all, as a safeguard.")],
    proof: Thorough = None,
) -> wire.ErasedMemories:
    """Erase everything remembered about the caller, and prove it; the switch stays as it is."""
    erased = await container.sessions.erasure.memories(owner, erasure_options(ErasedKind.MEMORY, proof))
    return _erased(erased, erased.counts.get("memories", 0))


def _erased(erased: Erased, number: int) -> wire.ErasedMemories:
    shown = proof_of(erased)
    left = shown.hits if shown else 0
    return wire.ErasedMemories(erased=number, left=left, proof=shown, receipt_id=erased.receipt_id)


@router.get("/turns/{turn_id}/memories", responses=errors(404))
async def memories_of_turn(turn_id: UUID, container: ContainerDep, owner: Owner) -> wire.MemoryList:
    """The memories, including turns of other conversations, that the turn's prompt contained and that still
    exist; available as long as the prompt is stored."""
    return wire.MemoryList(
        memories=list(map(memory_reply, await container.sessions.recalled(str(turn_id), owner)))
    )


def memory_reply(memory: Memory) -> wire.Memory:
    return wire.Memory.model_validate(replace(memory, valid_from=memory.valid_from or memory.created_us))


def _imported(item: object) -> MemoryCopy | None:
    """Return the memory to import; None if it cannot be read."""
    try:
        read = wire.ImportedMemory.model_validate(item)
    except ValidationError:
        return None
    said_us, until_us = (parse_time(text, UTC) if text else 0 for text in (read.valid_from, read.valid_until))
    if said_us is None or until_us is None:
        return None
    draft = MemoryDraft(read.content, read.type or type_of(read.content), said_us=said_us)
    return MemoryCopy(draft, until_us or None, read.memory_id or "", read.superseded_by or "")
