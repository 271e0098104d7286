"""Prompts sent to models are deleted on their own schedule; the turns stay."""

from __future__ import annotations

from pathlib import Path

from core.conversation.turns import ManifestPart, PromptManifest
from core.operations.expiry import DAY_US
from services.operations.retention.cleanup import Retention, forget_old_prompts
from services.operations.retention.expiry import SessionRecords
from tests.services.conversation.stores import SESSIONS, open_edge, turn_store, uid, write_session, write_turn

NOW = 1_750_000_000_000_000
SENT = PromptManifest("default", "one_system", (ManifestPart("question", "user", 3),))


async def test_only_old_prompts_are_deleted_and_their_turns_stay(tmp_path: Path) -> None:
    """Discriminates: a cutoff on the wrong side, deleting the point instead of the field."""
    async with open_edge(tmp_path) as store:
        turns = turn_store(store)
        await write_turn(store, 1, NOW - 8 * DAY_US, prompt=SENT)
        await write_turn(store, 2, NOW - 6 * DAY_US, prompt=SENT)
        await write_turn(store, 3, NOW - 9 * DAY_US)
        assert await forget_old_prompts(turns, NOW, 7) == 1
        old, new, bare = await turns.get_many([uid(1), uid(2), uid(3)])
        assert (old.prompt, new.prompt, bare.prompt) == (None, SENT, None)
        assert old.question == "question 1"
        assert await forget_old_prompts(turns, NOW, 7) == 0


async def test_a_session_on_hold_keeps_its_prompts(tmp_path: Path) -> None:
    async with open_edge(tmp_path) as store:
        for number in (1, 2):
            await write_turn(store, number, NOW - 8 * DAY_US, session=number, prompt=SENT)
            await write_session(store, number, NOW, hold=number == 1)
        turns = turn_store(store)
        retention = Retention(turns, SessionRecords(store, SESSIONS), clock=lambda: NOW)
        assert await retention.forget_prompts(7) == 1
        assert [turn.prompt for turn in await turns.get_many([uid(1), uid(2)])] == [SENT, None]
