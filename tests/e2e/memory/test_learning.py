"""Learning in the background with a scripted model: it never delays an answer, and each turn is read once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import uuid
from asyncio import gather, sleep, to_thread
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.store.clock import PAUSE_S
from tests.e2e.memory.test_commands import contents, idle
from tests.e2e.memory.test_recall import lines_of, system_of
from tests.support.models.scripted_llm import RECORDED
from tests.support.models.stub_llm import Refusal, StubLLM, accept, running_stub
from tests.support.servers.app import CHAT, HASHING, make_settings, open_app, scripted
from tests.support.servers.server import RunningServer, running_server, start_server, stop_server
from tests.support.stores.qdrant_facade import open_facade
from tests.support.waiting import until

AGAIN = ("我真的喜欢红茶", '[{"content": "用户喜欢红茶", "type": "preference", "turn_ids": [1]}]')
PROPOSAL = '[{"content": "用户喜欢红茶", "type": "preference", "turn_ids": [1]}]'


def two_models(tmp_path: Path, name: str, *script: str | float, **conversation: Any) -> Any:
    """One model that answers, and one that learns."""
    models = {
        "default": scripted("好的", record_as=name),
        "reader": scripted(*script, record_as=f"{name}_reader"),
    }
    settings = {"summary_model_id": "reader", "memory_min_messages": 4, **conversation}
    return make_settings(tmp_path, models={"llms": models}, conversation=settings)


async def test_after_one_turn_nothing_is_read_and_after_two_each_turn_is(tmp_path: Path) -> None:
    """(b)"""
    async with open_app(two_models(tmp_path, "after", PROPOSAL)) as app:
        first = await app.ask("我喜欢红茶", knowledge="always")
        await idle(app)
        assert "after_reader" not in RECORDED
        await app.ask("怎么泡", session_id=first.session_id)
        await idle(app)
        (_, (_, task)), *rest = RECORDED["after_reader"]
        assert rest == []
        assert [turn["said"] for turn in json.loads(task)["turns"]] == ["我喜欢红茶", "怎么泡"]
        assert await contents(app) == ["用户喜欢红茶"]
        await app.ask("我喜欢喝红茶还是绿茶")
        assert lines_of("after") == ["- 用户喜欢红茶"]
        memory = (await app.client.get("/memories")).json()["memories"][0]
        assert (memory["turn_ids"], memory["session_id"]) == ([first.finished["turn_id"]], first.session_id)


async def test_a_reader_that_is_down_slow_or_babbling_does_not_affect_answers(tmp_path: Path) -> None:
    """(h) Discriminates: an answer that waits for the reader, or fails with it."""
    for name, script in (("down", ("!",)), ("slow", (30.0, "[]")), ("babbling", ("I think, therefore",))):
        async with open_app(two_models(tmp_path / name, name, *script)) as app:
            first = await app.ask("我喜欢红茶", knowledge="always")
            second = await app.ask("怎么泡", session_id=first.session_id)
            third = await app.ask("多久", session_id=first.session_id)
            assert [turn.answer for turn in (first, second, third)] == ["好的"] * 3
            if name != "slow":
                await idle(app)
            assert await contents(app) == []


async def test_after_a_reader_that_was_down_and_babbled_a_fact_is_stored_once(tmp_path: Path) -> None:
    """(h) Discriminates: a failed attempt that stores something; a memory for each time that the fact was
    stated."""
    with running_stub(Reader(words=("好的",))) as stub:
        model = {"provider": "openai", "base_url": stub.url, "model": "m", "layout": "one_system"}
        async with open_app(
            make_settings(
                tmp_path, models={"llms": {"default": model}}, conversation={"memory_min_messages": 4}
            )
        ) as app:
            stub.refuse = lambda body: Refusal() if _turns(body) else None
            session = (await app.ask("我喜欢红茶", knowledge="always")).session_id
            for question, proposal in (("怎么泡", ""), ("多久", "I think, therefore"), *[AGAIN] * 2):
                stub.proposes = (proposal,)
                turn = await app.ask(question, session_id=session, knowledge="always")
                assert turn.answer == "好的"
                await idle(app)
                stub.refuse = accept
            memories = (await app.client.get("/memories")).json()["memories"]
        assert [(each["content"], len(each["turn_ids"])) for each in memories] == [("用户喜欢红茶", 2)]


async def test_a_recalled_memory_is_never_a_source(tmp_path: Path) -> None:
    """Discriminates: a memory that feeds itself: it is recalled, repeated in the answer, and stored again."""
    script = '[{"content": "用户养了十只鹦鹉", "type": "fact", "turn_ids": [1]}]'
    async with open_app(two_models(tmp_path, "fed", script)) as app:
        await app.client.post("/memories", json={"content": "用户养了九只鹦鹉"})
        first = await app.ask("我养了几只鹦鹉")
        assert "九只鹦鹉" in system_of("fed")
        await app.ask("谢谢，再见", session_id=first.session_id)
        await idle(app)
        assert RECORDED["fed_reader"]
        assert "九只" not in str(RECORDED["fed_reader"])
        assert await contents(app) == ["用户养了九只鹦鹉"]


class Reader(StubLLM):
    """`proposes` are its replies to memory prompts, one after the other, and then nothing worth remembering.
    While `hangs`, such prompts get no reply; `waiting` counts them."""

    proposes: tuple[str, ...] = ()
    hangs = False
    waiting = 0

    def words_for(self, body: dict[str, Any]) -> tuple[str, ...]:
        if not _turns(body):
            return self.words
        reply, self.proposes = (*self.proposes, "[]")[0], self.proposes[1:]
        return () if self.hangs else (reply,)

    async def _stream(self, flat: bool, words: tuple[str, ...]) -> AsyncIterator[str]:
        if not words:
            self.waiting += 1
            await asyncio.Event().wait()
        async for chunk in super()._stream(flat, words):
            yield chunk

    @property
    def read(self) -> list[str]:
        """What the person said, in every memory prompt."""
        return [turn["said"] for body in list(self.bodies) for turn in _turns(body)]


def _turns(body: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        task = json.loads(str(body["messages"][-1]["content"]))
    except ValueError:
        return []
    return list(task["turns"]) if isinstance(task, dict) else []


def environment(stub: StubLLM, **more: str) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": stub.url, "OPENAI_API_KEY": "k", "LLM_MODEL": "m", "EMBEDDING": HASHING,
        "LOAD_SAMPLE": "false", "MEMORY_MIN_MESSAGES": "4", **more,
    }  # fmt: skip


def asked(number: int) -> str:
    return f"第 {number} 问"


async def ask(url: str, numbers: range, session: str | None) -> str:
    """Retry an answer that was cut off."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        for number in numbers:
            body = {
                "question": asked(number), "turn_id": str(uuid.uuid5(uuid.NAMESPACE_OID, asked(number))),
                "knowledge": "always", "stream": False,
            }  # fmt: skip
            reply = await client.post(CHAT, json={**body, **({"session_id": session} if session else {})})
            session = str(reply.json()["session_id"])
    assert session is not None
    return session


def kill(server: RunningServer) -> None:
    os.kill(server.pid, signal.SIGKILL)
    ended(server)


def ended(server: RunningServer) -> None:
    assert server.process.wait(timeout=60) == -signal.SIGKILL
    assert server.process.stdout is not None
    server.process.stdout.close()


@pytest.mark.full("three starts of a server and forty answers")
async def test_a_server_that_is_killed_twice_shows_each_of_forty_turns_to_the_model_once(
    tmp_path: Path,
) -> None:
    """(c) Discriminates: a restart that reads from the beginning, or from the previous position; turns that
    the killed server had claimed without sending them to the model, which are lost with it."""
    with running_stub(Reader(words=("[]",))) as stub:
        claimed = environment(stub, WENMAI_FAILPOINT="memory.claimed:3")
        server = start_server(tmp_path, **claimed)
        session, at = await ask(server.url, range(1, 3), None), 3
        while server.process.poll() is None:  # until a claim of a few more turns has killed it
            with suppress(httpx.HTTPError):
                await ask(server.url, range(at, at + 1), session)
                at += 1
                await sleep(3 * PAUSE_S)  # like a person; turns are read while nothing is asked
        ended(server)
        server = start_server(tmp_path, **environment(stub))
        await ask(server.url, range(at, 26), session)
        stub.hangs = True
        await ask(server.url, range(26, 28), session)
        await until(lambda: stub.waiting)
        kill(server)
        stub.hangs = False
        with running_server(tmp_path, **environment(stub)) as again:
            await ask(again.url, range(28, 41), session)
            await until(lambda: asked(40) in stub.read)
    assert sorted(stub.read) == sorted(map(asked, range(1, 41)))


@pytest.mark.full("three starts of a server and forty answers")
async def test_two_workers_one_of_which_is_killed_show_each_of_forty_turns_to_the_model_once(
    tmp_path: Path,
) -> None:
    """(c) Discriminates: two workers that both read the turns that both see; a claim that only holds in one
    process."""
    async with open_facade() as store:
        with running_stub(Reader(words=("[]",))) as stub:
            settings = environment(stub, QDRANT_URL=store.url)
            one, two = await gather(*[to_thread(start_server, tmp_path / f"{n}", **settings) for n in "ab"])
            session = None
            for number in range(1, 26):
                session = await ask((one, two)[number % 2].url, range(number, number + 1), session)
            await until(lambda: asked(25) in stub.read)  # the worker that read them waits for no reply
            stub.hangs = True
            await ask(two.url, range(26, 27), session)
            await until(lambda: stub.waiting)
            kill(two)
            stub.hangs = False
            three = await to_thread(start_server, tmp_path / "c", **settings)
            for number in range(27, 41):
                await ask((one, three)[number % 2].url, range(number, number + 1), session)
            await until(lambda: asked(40) in stub.read)
            for server in (one, three):
                await to_thread(stop_server, server)
    assert sorted(stub.read) == sorted(map(asked, range(1, 41)))
