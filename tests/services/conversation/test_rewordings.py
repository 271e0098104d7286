"""Notes stored with an answer: read back unchanged, and deleted with the turns they mention."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from core.conversation.turns import MAX_WARNINGS, RewrittenQuestion, Turn, TurnWarning
from core.operations.expiry import DAY_US
from services.conversation.sessions import SessionStore
from services.conversation.summaries import Rewordings, SummaryRecords
from services.operations.retention.traces import TurnTraces
from services.store.dialect import VectorStore
from tests.services.conversation.stores import (
    SESSIONS,
    TURNS,
    open_edge,
    open_memory,
    payloads,
    turn_store,
    uid,
    write_point,
    write_turn,
)
from tests.services.operations.retention.parts import expire_turns

NOW = 1_750_000_000_000_000
WARNINGS = (
    TurnWarning("context_dropped", "放不下", {"recent": 2, "knowledge": 1}, 5),
    TurnWarning("reranker_unavailable", "away", {}, 7),
)


@pytest.fixture(params=["edge", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    opening = open_edge(tmp_path) if request.param == "edge" else open_memory()
    async with opening as opened:
        yield opened


def rewritten(*numbers: int, text: str = "What does the team plan cost?") -> RewrittenQuestion:
    return RewrittenQuestion(text, tuple(map(uid, numbers)), 6)


async def written(store: VectorStore, number: int, **more: Any) -> Turn:
    await write_turn(store, number, NOW, **more)
    stored = await turn_store(store).get(uid(number))
    assert stored is not None
    return stored


async def left(store: VectorStore) -> set[int]:
    """The turns that still have a rewritten question."""
    stored = await payloads(store)
    return {
        int(turn_id.replace("-", ""), 16)
        for turn_id, each in stored.items()
        if each.get("rewritten_question")
    }


async def test_notes_are_read_back_unchanged(store: VectorStore) -> None:
    turn = await written(store, 2, warnings=WARNINGS, rewritten=rewritten(1))
    assert (turn.warnings, turn.rewritten) == (WARNINGS, rewritten(1))
    bare = await written(store, 3)
    assert (bare.warnings, bare.rewritten) == ((), None)


async def test_a_turn_of_an_earlier_version_has_no_notes(store: VectorStore) -> None:
    await write_point(store, uid(4), session_id=uid(1), turn_id=uid(4))
    stored = await turn_store(store).get(uid(4))
    assert stored is not None
    assert (stored.warnings, stored.rewritten) == ((), None)


async def test_damaged_notes_are_omitted_and_reading_is_limited_like_storing(store: VectorStore) -> None:
    await written(store, 1)
    many = [{"code": "a"}, {"message": "no code"}, 7, *({"code": "b"} for _ in range(MAX_WARNINGS))]
    damaged = {"text": "How?", "turn_ids": "none"}
    await store.set_payload(TURNS, {"warnings": many, "rewritten_question": damaged}, points=[uid(1)])
    stored = await turn_store(store).get(uid(1))
    assert stored is not None
    assert [each.code for each in stored.warnings] == ["a", *["b"] * (MAX_WARNINGS - 3)]
    assert stored.rewritten is None


async def test_a_rewritten_question_is_deleted_with_any_turn_it_is_based_on_and_no_other(
    store: VectorStore,
) -> None:
    """Discriminates: checking only the first of them; another session's; every one of the session."""
    for number, made_of in ((3, (1, 2)), (4, (2,)), (5, (1,)), (6, (4,))):
        await written(store, number, rewritten=rewritten(*made_of), warnings=WARNINGS)
    await written(store, 7, session=9, rewritten=rewritten(2))
    rewordings = Rewordings(turn_store(store))
    assert await rewordings.forget(uid(1), [uid(2), uid(8)]) == 2
    assert await left(store) == {5, 6, 7}
    assert await rewordings.forget(uid(1), [uid(2)]) == 0
    stored = await turn_store(store).get(uid(3))
    assert stored is not None
    assert (stored.rewritten, stored.warnings, stored.question) == (None, WARNINGS, "question 3")


async def test_a_rewritten_question_without_sources_is_deleted_with_any_turn(store: VectorStore) -> None:
    for number, damaged in enumerate(("How?", {"text": "How?"}, {"text": "How?", "turn_ids": []}), 1):
        await written(store, number)
        await store.set_payload(TURNS, {"rewritten_question": damaged}, points=[uid(number)])
    assert await Rewordings(turn_store(store)).forget(uid(1), [uid(8)]) == 3
    assert await left(store) == set()


async def test_an_expired_turn_removes_the_rewritten_questions_with_its_words(store: VectorStore) -> None:
    """Discriminates: an expiry that leaves them on the remaining turns."""
    turns = turn_store(store)
    traces = TurnTraces(
        SummaryRecords(turns).forget,
        SessionStore(store, SESSIONS),
        None,
        forget_rewordings=Rewordings(turns).forget,
    )
    await write_turn(store, 1, NOW - 40 * DAY_US)
    await write_turn(store, 2, NOW - 20 * DAY_US, rewritten=rewritten(1))
    await write_turn(store, 3, NOW - 10 * DAY_US, rewritten=rewritten(2))
    report = await expire_turns(turns, NOW, 30, dry_run=False, traces=traces)
    assert report.deleted == 1
    assert await left(store) == {3}
