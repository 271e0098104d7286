"""A memory: one fact about a person, kept across sessions, with the turns it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from core.dates import rfc3339

MAX_CONTENT_CHARS = 500


class MemoryType(StrEnum):
    FACT = "fact"
    PREFERENCE = "preference"
    INSTRUCTION = "instruction"
    EPISODE = "episode"


@dataclass(frozen=True, slots=True)
class Memory:
    """`turn_ids` are the turns it comes from, none of them erased; empty for what a person wrote by hand.

    `session_id` is the conversation it comes from, "" if it is independent of any. Times are UTC
    microseconds; it is true from `valid_from` until `valid_until` (None: still), when `superseded_by`
    replaced it. `uses` counts the prompts that included it.
    """

    memory_id: str
    owner: str
    content: str
    type: MemoryType = MemoryType.FACT
    turn_ids: tuple[str, ...] = ()
    session_id: str = ""
    created_us: int = 0
    valid_from: int = 0
    valid_until: int | None = None
    superseded_by: str | None = None
    last_used_us: int = 0
    uses: int = 0

    def holds_at(self, now_us: int) -> bool:
        return self.valid_from <= now_us and (self.valid_until is None or now_us < self.valid_until)

    @property
    def created_at(self) -> str:
        return rfc3339(self.created_us)


@dataclass(frozen=True, slots=True)
class MemoryDraft:
    """What to remember, before the gate has checked it; `said_us` is when it was said."""

    content: str
    type: MemoryType = MemoryType.FACT
    turn_ids: tuple[str, ...] = ()
    session_id: str = ""
    said_us: int = 0


@dataclass(frozen=True, slots=True)
class MemoryCopy:
    """A memory to import: `until_us` is when it ended; both ids are those of the export."""

    draft: MemoryDraft
    until_us: int | None = None
    memory_id: str = ""
    superseded_by: str = ""
