"""What of a conversation is told to the model again: the branch, and nothing beside it."""

from __future__ import annotations

import random
from pathlib import Path

from tests.support.app import App, make_settings, open_app, scripted
from tests.support.scripted_llm import RECORDED


def history(record: str) -> list[str]:
    """The questions of earlier turns that the last call was told, in order."""
    told = RECORDED[record][-1]
    return [content for role, content in told[1:-1] if role == "user"]


async def grow(app: App, session_id: str, parent: str, *questions: str) -> str:
    """Ask one after the other below `parent`; give the last turn's id."""
    for question in questions:
        turn = await app.ask(question, session_id=session_id, parent_turn_id=parent)
        parent = turn.finished["turn_id"]
    return parent


async def test_a_sibling_branch_is_never_told(tmp_path: Path) -> None:
    settings = make_settings(
        tmp_path,
        models={"llms": {"default": scripted("noted", record_as="siblings")}},
        conversation={"max_recent_turns": 2, "max_relevant_turns": 3, "relevant_turn_threshold": 0.0},
    )
    async with open_app(settings) as app:
        root = await app.ask("The parrot is called Otto.")
        trunk = root.finished["turn_id"]
        left = await grow(app, root.session_id, trunk, "Left one parrot.", "Left two.", "Left three.")
        await grow(app, root.session_id, trunk, "Right one parrot.", "Right two.", "Right three.")
        await app.ask("What about the parrot?", session_id=root.session_id, parent_turn_id=left)
        told = history("siblings")
    assert told == ["The parrot is called Otto.", "Left one parrot.", "Left two.", "Left three."]


async def test_null_begins_anew_and_tells_nothing(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, models={"llms": {"default": scripted("ok", record_as="root")}})
    async with open_app(settings) as app:
        first = await app.ask("First?")
        fresh = await app.ask("Fresh?", session_id=first.session_id, parent_turn_id=None)
        tree = (await app.client.get(f"/sessions/{first.session_id}/tree")).json()["turns"]
    assert fresh.finished["parent_turn_id"] is None
    assert history("root") == []
    assert [turn["parent_turn_id"] for turn in tree] == [None, None]


async def test_a_cancelled_or_failed_turn_is_no_default_parent(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path, models={"llms": {"default": scripted("fine")}})) as app:
        first = await app.ask("First?")
    async with open_app(make_settings(tmp_path, models={"llms": {"default": scripted("half", "!")}})) as app:
        await app.ask("Second?", session_id=first.session_id)
    async with open_app(make_settings(tmp_path, models={"llms": {"default": scripted("fine")}})) as app:
        third = await app.ask("Third?", session_id=first.session_id)
    assert third.finished["parent_turn_id"] == first.finished["turn_id"]


async def test_random_trees_never_mix_their_branches(tmp_path: Path) -> None:
    """Discriminates: searching the session instead of the branch's own turns."""
    generator = random.Random(7)
    settings = make_settings(
        tmp_path,
        models={"llms": {"default": scripted("yes", record_as="trees")}},
        conversation={"max_recent_turns": 1, "max_relevant_turns": 3, "relevant_turn_threshold": 0.0},
    )
    async with open_app(settings) as app:
        root = await app.ask("Word 0 apple?")
        ancestors = {root.finished["turn_id"]: ["Word 0 apple?"]}
        for number in range(1, 25):
            parent = generator.choice(list(ancestors))
            question = f"Word {number} apple?"
            turn = await app.ask(question, session_id=root.session_id, parent_turn_id=parent)
            told = history("trees")
            assert set(told) <= set(ancestors[parent])
            assert len(told) == len(set(told))
            assert told[-1] == ancestors[parent][-1]
            ancestors[turn.finished["turn_id"]] = [*ancestors[parent], question]
