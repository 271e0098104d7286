"""What was sent to models is forgotten on its own schedule; the turns stay."""

from __future__ import annotations

from pathlib import Path

from core.manifest import ManifestPart, PromptManifest
from services.prompt_expiry import forget_old_prompts
from services.retention import DAY_US
from tests.services.conversation_stores import open_edge, turn_store, uid, write_turn

NOW = 1_750_000_000_000_000
SENT = PromptManifest("default", "one_system", (ManifestPart("question", "user", 3),))


async def test_only_old_prompts_go_and_their_turns_stay(tmp_path: Path) -> None:
    """Discriminates: a cutoff on the wrong side, the point deleted instead of the field."""
    async with open_edge(tmp_path) as store:
        turns = turn_store(store)
        await write_turn(store, 1, NOW - 8 * DAY_US, prompt=SENT)
        await write_turn(store, 2, NOW - 6 * DAY_US, prompt=SENT)
        await write_turn(store, 3, NOW - 9 * DAY_US)
        assert await forget_old_prompts(turns, NOW, 7) == 1
        old, new, bare = await turns.get_many([uid(1), uid(2), uid(3)])
        assert (old.prompt, new.prompt, bare.prompt) == (None, SENT, None)
        assert old.user_query == "question 1"
        assert await forget_old_prompts(turns, NOW, 7) == 0
