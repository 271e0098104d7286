"""An owner's memories: list, write, edit, forget, trace, switch off."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import UnknownMemoryError
from core.memory.gate import slot_named, statement_of
from core.memory.record import Memory, MemoryType
from core.memory.statements import Extent, everything, type_of
from core.relevance.sparse import question_terms, terms
from services.memory.records import MemoryRecords, MemorySwitch
from services.memory.turns import MemoryLearning
from services.memory.writing import MemoryWriter
from services.store.clock import utc_now_us

_POSSESSIVE = re.compile(r"^(?:我的?|my |the user's )", re.I)
MAX_HISTORY = 50
MIN_STEM_LETTERS = 6


@dataclass(frozen=True, slots=True)
class MemoriesHandler:
    """Another owner's memory counts as unknown."""

    records: MemoryRecords
    writer: MemoryWriter
    learning: MemoryLearning

    async def page(
        self,
        owner: str,
        limit: int,
        before_us: int | None = None,
        memory_type: MemoryType | None = None,
        text: str = "",
        *,
        current: bool = False,
    ) -> tuple[list[Memory], int | None]:
        """Return a page, newest first, and where the next begins; `current` omits what no longer holds."""
        now = utc_now_us() if current else None
        return await self.records.newest(owner, limit, before_us, memory_type, text, now)

    async def history(self, memory_id: str, owner: str) -> tuple[Memory, list[Memory], Memory | None]:
        """Return the memory, those it superseded (newest first), and the one that superseded it.

        Raises UnknownMemoryError.
        """
        memory = await self._get(memory_id, owner)
        before: list[Memory] = []
        ids = {memory_id}
        while ids and len(before) < MAX_HISTORY:
            earlier = await self.records.superseded_by(owner, ids)
            before += [each for each in earlier if each not in before]
            ids = {each.memory_id for each in earlier}
        after = await self.records.get_many([memory.superseded_by], owner) if memory.superseded_by else []
        before.sort(key=lambda each: -(each.valid_until or 0))
        return memory, before, after[0] if after else None

    async def edit(
        self, memory_id: str, owner: str, content: str | None, memory_type: MemoryType | None
    ) -> Memory:
        """Derive the type again if it came from the words. Raises UnknownMemoryError, and as `write` does."""
        memory = await self._get(memory_id, owner)
        text = memory.content if content is None else content
        by_words = type_of(text) if memory.type is type_of(memory.content) else memory.type
        return await self.writer.edit(memory, text, memory_type or by_words)

    async def set_switch(self, owner: str, on: bool) -> MemorySwitch:
        """When off, nothing is recalled or learned; existing memories stay until they are deleted."""
        switch = await self.records.switch_of(owner)
        if switch.on != on:
            switch = MemorySwitch(on, utc_now_us())
            await self.records.set_switch(owner, switch)
        return switch

    async def _get(self, memory_id: str, owner: str) -> Memory:
        memories = await self.records.get_many([memory_id], owner)
        if not memories:
            raise UnknownMemoryError("memory_id: there is no such memory.")
        return memories[0]

    async def forget(self, owner: str, words: str) -> list[Memory]:
        """Delete and return memories that contain all these words or state what they name (my address); all
        of them if that is what the words say."""
        forgotten = await self.records.of_owner(owner)
        if everything(words) is not Extent.MEMORIES:
            asked = {term.text for term in question_terms(words)}
            slot = slot_named(_POSSESSIVE.sub("", words).strip())
            forgotten = [
                memory
                for memory in forgotten
                if (asked and _has_all(terms(memory.content), asked)) or _states_slot(slot, memory)
            ]
        await self.records.delete([memory.memory_id for memory in forgotten])
        return forgotten


def _has_all(words: Sequence[str], asked: set[str]) -> bool:
    return all(any(word == term or _is_form_of(word, term) for word in words) for term in asked)


def _is_form_of(word: str, term: str) -> bool:
    """Match stems like "allergi" (allergy) and "allerg" (allergic), which the stemmer keeps apart."""
    short, long = sorted((word, term), key=len)
    return len(short) >= MIN_STEM_LETTERS and long.isalpha() and long[:-1] == short and long.isascii()


def _states_slot(slot: str, memory: Memory) -> bool:
    statement = statement_of(memory.content)
    return statement is not None and statement.slot == slot
