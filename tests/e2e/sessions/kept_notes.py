"""A conversation whose follow-up gets warnings and is rewritten, for tests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api.turn.run import TurnRun
from config.settings import Settings
from tests.e2e.conversation.test_rewriting import FEES, REWRITTEN
from tests.support.servers.app import App, make_settings
from tests.support.wire.sse import Frame, Streamed, frames

WARNED = {
    "code": "reranker_unavailable",
    "message": "The reranker cannot be reached; the built-in one was used instead.",
}
FIRST = "What does the team plan cost?"
FOLLOW_UP = "Hmm, wieviel?"


def settings(folder: Path, *script: str | float, rewrite: str = REWRITTEN) -> Settings:
    """No passage is ever good enough to be shown, and the reranker is unreachable."""
    options = {"script": list(script or ("Fine.",)), "rewrite": [rewrite]}
    table = {"provider": "llama_index:tests.e2e.conversation.test_rewriting:RewritingLLM", "options": options}
    return make_settings(
        folder / "data",
        models={
            "llms": {"default": table},
            "reranker": "llama_index:tests.e2e.knowledge.test_rerankers:BrokenReranker",
        },
        retrieval={"rewrite_timeout_s": 5, "rerank_score_threshold": 1.0},
        conversation={"qa_log": folder / "log"},
    )


@dataclass(frozen=True)
class Talk:
    """A first question, and the follow-up that was rewritten with its words."""

    session_id: str
    first: str
    second: str
    live: Streamed


async def talk(app: App, first: str = FIRST, **follow_up: Any) -> Talk:
    await app.add_text("fees.md", FEES)
    asked = await app.ask(first)
    live = await app.ask(FOLLOW_UP, session_id=asked.session_id, **follow_up)
    return Talk(asked.session_id, asked.finished["turn_id"], live.finished["turn_id"], live)


async def read(app: App, turn_id: str) -> dict[str, Any]:
    turn: dict[str, Any] = (await app.client.get(f"/turns/{turn_id}")).json()
    return turn


async def replayed(app: App, turn_id: str, after: int = 0) -> Streamed:
    response = await app.client.get(f"/turns/{turn_id}/stream", params={"after": after})
    return Streamed(frames(response.text))


def notes(stream: Streamed, after: int = 0) -> list[tuple[int, dict[str, Any]]]:
    """The notes beside the answer, each with its number, from after this number."""
    statuses = [frame for frame in stream.frames if frame.kind == "STATUS"]
    numbered = zip([number(frame) for frame in statuses], stream.statuses, strict=True)
    return [
        (n, status)
        for n, status in numbered
        if n > after and (status["stage"] == "warning" or "question" in status)
    ]


def number(frame: Frame) -> int:
    return int(frame.event_id.rpartition(":")[2])


async def wait_until_speaking(app: App, turn_id: str) -> TurnRun:
    """Return the turn once its answer has begun."""
    for _ in range(500):
        run = app.container.running.get(turn_id)
        if run is not None and any(run.stream.layout):
            return run
        await asyncio.sleep(0.01)  # between two polls
    pytest.fail("the answer never began")
