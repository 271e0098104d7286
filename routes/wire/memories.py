"""What is remembered about a person: replies and bodies of /memories."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from core.memory.record import MAX_CONTENT_CHARS, MemoryType
from routes.wire.erasure import PROOF, RECEIPT_ID, Proof
from routes.wire.fields import AtMost, MaybeMoment, Moment, PlainText, Reply, WireModel, example
from routes.wire.turns import SESSION_ID, TURN_ID

MAX_IMPORTED = 10_000
MEMORY_ID = "7c0a3a52-6a51-4f0e-9a44-1f7f2f1a9c11"
Content = Annotated[PlainText, AtMost(MAX_CONTENT_CHARS)]
_MEMORY = {
    "memory_id": MEMORY_ID,
    "content": "用户的名字是李四",
    "type": "fact",
    "turn_ids": [TURN_ID],
    "session_id": SESSION_ID,
    "created_at": "2026-03-03T09:30:00.000000Z",
    "valid_from": "2026-03-03T09:29:58.000000Z",
    "valid_until": None,
    "superseded_by": None,
    "last_used_at": None,
    "uses": 0,
}


class Memory(Reply):
    """One thing that is remembered."""

    model_config = example(_MEMORY)

    memory_id: str = Field(description="The memory's id.")
    content: str = Field(description="What is remembered.")
    type: MemoryType = Field(description="The kind of memory; an instruction applies to every question.")
    turn_ids: list[str] = Field(description="The turns that it comes from; empty if written by hand.")
    session_id: str = Field(description='The session in which it was said; "" for none.')
    created_at: Moment = Field(description="When the memory was stored.")
    valid_from: Moment = Field(description="Since when it holds: when it was said.")
    valid_until: MaybeMoment = Field(description="Until when it held; null: it still holds.")
    superseded_by: str | None = Field(description="The memory that superseded it.")
    last_used_at: MaybeMoment = Field(description="When it was last recalled or restated.")
    uses: int = Field(description="How many prompts contained the memory.")


class MemoryPage(Reply):
    """A page of memories."""

    model_config = example({"memories": [_MEMORY], "next": None, "on": True})

    memories: list[Memory] = Field(description="The memories, newest first.")
    next: int | None = Field(description="`before` of the next page; null: this is the last one.")
    on: bool = Field(description="Whether memory is switched on.")


class MemoryList(Reply):
    """Memories in order."""

    model_config = example({"memories": [_MEMORY]})

    memories: list[Memory] = Field(description="The memories, in order.")


class MemoryWithHistory(Memory):
    """A memory with those it superseded, newest first, and the one that superseded it."""

    model_config = example({**_MEMORY, "before": [], "after": None})

    before: list[Memory] = Field(description="The memories it superseded, newest first.")
    after: Memory | None = Field(description="The memory that superseded it.")


class WrittenMemory(Reply):
    """A memory that was written by hand."""

    model_config = example({"memory": _MEMORY, "is_new": True, "ended": []})

    memory: Memory = Field(description="The memory.")
    is_new: bool = Field(description="false: it was already remembered.")
    ended: list[Memory] = Field(description="Memories that no longer hold because this one contradicts them.")


class MemoryBody(WireModel):
    """The request body of POST /memories."""

    model_config = example({"content": "The user's desk is 302", "type": "fact"})

    content: Content = Field(description="What to remember; 1 to 500 characters.")
    type: MemoryType | None = Field(None, strict=False, description="Kind; absent: derived from the content.")


class MemoryChanges(WireModel):
    """The request body of PATCH /memories/{id}; absent fields stay as they are."""

    model_config = example({"content": "The user's desk is 303"})

    content: Content | None = Field(None, description="The new content.")
    type: MemoryType | None = Field(None, strict=False, description="The new kind.")


class SwitchBody(WireModel):
    """The request body of PUT /memories/switch."""

    model_config = example({"on": False})

    on: bool = Field(description="false: nothing is recalled or learned. Existing memories stay.")


class Switch(Reply):
    """Whether memory is switched on."""

    model_config = example({"on": True})

    on: bool = Field(description="Whether memory is switched on.")


class ErasedMemories(Reply):
    """What was erased."""

    model_config = example({"erased": 1, "left": 0, "proof": None, "receipt_id": ""})

    erased: int = Field(description="How many memories were erased.")
    left: int = Field(description="In how many places traces of them are left; normally 0.")
    proof: Proof | None = PROOF
    receipt_id: str = RECEIPT_ID


class MemoryImportBody(WireModel):
    """The request body of POST /memories/import: the output of GET /memories/export, or a part of it."""

    model_config = example({"memories": [{"content": "The user's desk is 302"}]})

    memories: list[Any] = Field(
        max_length=MAX_IMPORTED,
        description="Objects with content and, optionally, type, valid_from, valid_until, memory_id and "
        "superseded_by. Invalid ones are counted and left out.",
    )


class ImportedMemories(Reply):
    """The result of an import."""

    model_config = example({"imported": 9, "known": 1, "broken": 0, "refused": {"secret": 1}})

    imported: int = Field(description="How many memories were added.")
    known: int = Field(description="How many were already remembered or occurred twice.")
    broken: int = Field(description="How many were invalid.")
    refused: dict[str, int] = Field(description="How many were refused, by reason.")


class ImportedMemory(WireModel):
    """One memory of an import; other fields are ignored."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [{"content": "I keep bees"}]})

    content: Content = Field(description="What to remember.")
    type: MemoryType | None = Field(None, strict=False, description="Kind; absent: derived from the content.")
    valid_from: str | None = Field(None, description="Since when it holds; absent: from now on.")
    valid_until: str | None = Field(None, description="Until when it held; absent: it still holds.")
    memory_id: str | None = Field(None, description="Its id in the export; it gets another one.")
    superseded_by: str | None = Field(None, description="The id in the export of what superseded it.")
