"""Learning in the background with a scripted model: never in the way of an answer, each turn read once."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.memory.test_commands import contents, settled
from tests.e2e.memory.test_recall import lines_of, system_of
from tests.support.models.scripted_llm import RECORDED
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.servers.app import CHAT, HASHING, make_settings, open_app, scripted
from tests.support.servers.server import running_server, start_server
from tests.support.waiting import until

PROPOSAL = '[{"content": "用户喜欢红茶", "type": "preference", "turn_ids": [1]}]'


def two_models(tmp_path: Path, name: str, *script: str | float, **conversation: Any) -> Any:
    """One that answers, and one that learns."""
    models = {
        "default": scripted("好的", record_as=name),
        "reader": scripted(*script, record_as=f"{name}_reader"),
    }
    settings = {"memory_model_id": "reader", "memory_min_messages": 4, **conversation}
    return make_settings(tmp_path, models={"llms": models}, conversation=settings)


async def test_after_one_turn_nothing_is_asked_and_after_two_each_turn_is_read(tmp_path: Path) -> None:
    """(b)"""
    async with open_app(two_models(tmp_path, "after", PROPOSAL)) as app:
        first = await app.ask("我喜欢红茶", knowledge="always")
        await settled(app)
        assert "after_reader" not in RECORDED
        await app.ask("怎么泡", session_id=first.session_id)
        await settled(app)
        (_, (_, task)), *rest = RECORDED["after_reader"]
        assert rest == []
        assert [turn["said"] for turn in json.loads(task)["turns"]] == ["我喜欢红茶", "怎么泡"]
        assert await contents(app) == ["用户喜欢红茶"]
        await app.ask("我喜欢喝红茶还是绿茶")
        assert lines_of("after") == ["- 用户喜欢红茶"]
        memory = (await app.client.get("/memories")).json()["memories"][0]
        assert (memory["turn_ids"], memory["session_id"]) == ([first.finished["turn_id"]], first.session_id)


async def test_a_reader_that_is_down_slow_or_babbling_leaves_the_answers_alone(tmp_path: Path) -> None:
    """(h) Discriminates: an answer that waits for the reader, or fails with it."""
    for name, script in (("down", ("!",)), ("slow", (30.0, "[]")), ("babbling", ("I think, therefore",))):
        async with open_app(two_models(tmp_path / name, name, *script)) as app:
            first = await app.ask("我喜欢红茶", knowledge="always")
            second = await app.ask("怎么泡", session_id=first.session_id)
            third = await app.ask("多久", session_id=first.session_id)
            assert [turn.answer for turn in (first, second, third)] == ["好的"] * 3
            if name != "slow":
                await settled(app)
            assert await contents(app) == []


async def test_what_was_recalled_is_never_a_source(tmp_path: Path) -> None:
    """Discriminates: one memory that feeds itself: it is told, answered, and stored again."""
    script = '[{"content": "用户养了十只鹦鹉", "type": "fact", "turn_ids": [1]}]'
    async with open_app(two_models(tmp_path, "fed", script)) as app:
        await app.client.post("/memories", json={"content": "用户养了九只鹦鹉"})
        first = await app.ask("我养了几只鹦鹉")
        assert "九只鹦鹉" in system_of("fed")
        await app.ask("谢谢，再见", session_id=first.session_id)
        await settled(app)
        assert RECORDED["fed_reader"]
        assert "九只" not in str(RECORDED["fed_reader"])
        assert await contents(app) == ["用户养了九只鹦鹉"]


async def test_a_server_that_is_killed_reads_each_turn_once_in_all(tmp_path: Path) -> None:
    """(c) Discriminates: a restart that reads from the beginning, or from where it was told last."""

    def tasks(stub: StubLLM) -> list[str]:
        """What the person said, of every prompt of the reader."""
        return [turn["said"] for body in stub.bodies for turn in _turns(str(body["messages"][-1]["content"]))]

    with running_stub(StubLLM(words=("[]",))) as stub:
        environment = {
            "OPENAI_BASE_URL": stub.url, "OPENAI_API_KEY": "k", "LLM_MODEL": "m", "EMBEDDING": HASHING,
            "LOAD_SAMPLE": "false", "MEMORY_MIN_MESSAGES": "4",
        }  # fmt: skip
        server = start_server(tmp_path, **environment)
        session = await _ask_many(server.url, range(1, 8), None)
        os.kill(server.pid, signal.SIGKILL)
        server.process.wait()
        assert server.process.stdout is not None
        server.process.stdout.close()
        with running_server(tmp_path, **environment) as again:
            await _ask_many(again.url, range(8, 13), session)
            await until(lambda: "第 12 问" in tasks(stub))
    read = tasks(stub)
    assert len(read) == len(set(read))
    # what the killed server had claimed is read by nobody else; all others are
    assert {f"第 {number} 问" for number in (1, 2, *range(8, 13))} <= set(read)


def _turns(content: str) -> list[dict[str, Any]]:
    try:
        task = json.loads(content)
    except ValueError:
        return []
    return list(task["turns"]) if isinstance(task, dict) else []


async def _ask_many(url: str, numbers: range, session: str | None) -> str:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        for number in numbers:
            body = {"question": f"第 {number} 问", "knowledge": "always", "stream": False}
            reply = await client.post(CHAT, json={**body, **({"session_id": session} if session else {})})
            session = str(reply.json()["session_id"])
    assert session is not None
    return session
