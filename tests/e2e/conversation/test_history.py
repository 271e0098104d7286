"""What a model receives again of a conversation: the branch, and nothing beside it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from core.conversation.turns import Turn, TurnStatus
from services.conversation.turns import TurnVectors
from tests.support.models.scripted_llm import RECORDED
from tests.support.servers.app import App, make_settings, open_app, scripted
from tests.support.stores.long_transcript import TRANSCRIPT


def history(record: str) -> list[str]:
    """The questions of earlier turns that the last call received, in order."""
    prompt = RECORDED[record][-1]
    return [content for role, content in prompt[1:-1] if role == "user"]


async def grow(app: App, session_id: str, parent: str, *questions: str) -> str:
    """Ask one after the other below `parent`; return the last turn's id."""
    for question in questions:
        turn = await app.ask(question, session_id=session_id, parent_turn_id=parent)
        parent = turn.finished["turn_id"]
    return parent


async def test_a_sibling_branch_is_never_sent(tmp_path: Path) -> None:
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
        prompt = history("siblings")
    assert prompt == ["The parrot is called Otto.", "Left one parrot.", "Left two.", "Left three."]


async def test_a_null_parent_starts_over_without_history(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, models={"llms": {"default": scripted("ok", record_as="root")}})
    async with open_app(settings) as app:
        first = await app.ask("First?")
        fresh = await app.ask("Fresh?", session_id=first.session_id, parent_turn_id=None)
        tree = (await app.client.get(f"/sessions/{first.session_id}/tree")).json()["turns"]
    assert fresh.finished["parent_turn_id"] is None
    assert history("root") == []
    assert [turn["parent_turn_id"] for turn in tree] == [None, None]


async def test_a_cancelled_or_failed_turn_is_not_a_default_parent(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path, models={"llms": {"default": scripted("fine")}})) as app:
        first = await app.ask("First?")
    async with open_app(make_settings(tmp_path, models={"llms": {"default": scripted("half", "!")}})) as app:
        await app.ask("Second?", session_id=first.session_id)
    async with open_app(make_settings(tmp_path, models={"llms": {"default": scripted("fine")}})) as app:
        third = await app.ask("Third?", session_id=first.session_id)
    assert third.finished["parent_turn_id"] == first.finished["turn_id"]


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_random_trees_never_mix_their_branches(tmp_path: Path) -> None:
    """Discriminates: searching the session instead of only the branch's turns."""
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
            prompt = history("trees")
            assert set(prompt) <= set(ancestors[parent])
            assert len(prompt) == len(set(prompt))
            assert prompt[-1] == ancestors[parent][-1]
            ancestors[turn.finished["turn_id"]] = [*ancestors[parent], question]


def past(session_id: str, number: int, parent: str | None, place: int) -> Turn:
    """The turn at index `place` of the transcript."""
    question, answer = TRANSCRIPT[place]
    return Turn(
        turn_id=f"00000000-0000-4000-8000-{number:012d}",
        session_id=session_id,
        owner="local",
        question=question,
        created_us=1_000_000 * number,
        status=TurnStatus.COMPLETED,
        parent_turn_id=parent,
        answer=answer,
        seq=number,
    )


@pytest.mark.slow("sixty turns, each answered and embedded")
async def test_turn_3_is_recalled_in_turn_60_on_its_branch_and_not_on_the_other(tmp_path: Path) -> None:
    """With the real embedder. Discriminates: recall over the session; a threshold that lets everything
    pass."""
    settings = make_settings(
        tmp_path, models={"embedding": "bundled", "llms": {"default": scripted("ok", record_as="sixty")}}
    )
    async with open_app(settings) as app:
        session_id = (await app.client.post("/sessions", json={})).json()["session_id"]
        line, other = list[Turn](), list[Turn]()
        for place in range(59):
            line.append(past(session_id, place, line[-1].turn_id if line else None, place))
        for place in range(3, 30):  # continues from turn 2, so turn 3 is not on it
            parent = (other[-1] if other else line[1]).turn_id
            other.append(past(session_id, 100 + place, parent, place))
        conversations = app.container.conversations
        await conversations.turns.put_many([(turn, TurnVectors()) for turn in [*line, *other]])
        assert 0 < await conversations.index_missing() <= 86  # the start may have indexed some
        assert await conversations.index_missing() == 0

        async def recalled(question: str, leaf: Turn) -> list[str]:
            await app.ask(question, session_id=session_id, parent_turn_id=leaf.turn_id)
            return history("sixty")

        fact = TRANSCRIPT[2][0]
        assert fact in await recalled("What must the cat Momo not eat?", line[-1])
        assert fact in await recalled("Momo 对什么过敏？", line[-1])
        assert fact not in await recalled("What must the cat Momo not eat?", other[-1])
        assert fact not in await recalled("ok", line[-1])
        assert fact not in await recalled("When does the market open?", line[-1])
