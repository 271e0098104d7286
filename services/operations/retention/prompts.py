"""The record of what was sent to models has a retention of its own, shorter or longer than the turns'."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from core.operations.expiry import DAY_US
from services.conversation.turns import TurnStore
from services.store.dialect import Filter, UnknownPointError
from services.store.filters import in_range, is_empty
from services.store.pages import batches


async def forget_old_prompts(
    turns: TurnStore, now_us: int, days: int, held: Collection[str] = frozenset()
) -> int:
    """Take the prompt manifest from every turn older than `days` (UTC). Returns from how many.

    The turns themselves stay, and `held` sessions keep all. Raises StoreUnavailableError.
    """
    old = in_range("created_us", lt=now_us - days * DAY_US)
    without_prompt = is_empty("prompt")
    point_filter = Filter(must=[old], must_not=[without_prompt])
    ids = [
        str(record.id)
        async for record in turns.scroll(point_filter, with_payload=["session_id"])
        if (record.payload or {}).get("session_id") not in held
    ]
    for batch in batches(ids):
        with suppress(UnknownPointError):  # erased meanwhile, with its prompt; the others are written
            await turns.set_payload({"prompt": None}, batch)
    return len(ids)
