"""Questions about earlier conversations, over HTTP: which of them the model receives, cites and links, and
for whom."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.e2e.memory.test_recall import lines_of, settings_of
from tests.support.servers.app import App, open_app
from tests.support.wire.sse import Streamed

DAY_US = 86_400_000_000


async def ask_days_ago(app: App, question: str, days_ago: int = 0, **body: Any) -> Streamed:
    turn = await app.ask(question, knowledge="always", **body)
    if days_ago:
        moment = {"created_us": time.time_ns() // 1_000 - days_ago * DAY_US}
        await app.container.store.set_payload("conversations", moment, points=[turn.finished["turn_id"]])
    return turn


async def test_an_earlier_conversation_is_recalled_with_a_link_to_it(tmp_path: Path) -> None:
    """Discriminates: its text in the stored turn; a recalled turn that is not shown; a dead link."""
    async with open_app(settings_of(tmp_path, "episode")) as app:
        earlier = await ask_days_ago(app, "供应商的报价是三万元，含税吗？", 7)
        await ask_days_ago(app, "年假怎么申请", 7)
        turn = await app.ask("上周我们谈过的供应商报价")
        (line,) = lines_of("episode")
        assert "供应商的报价是三万元，含税吗？" in line
        assert "好的" in line
        (status,) = [each for each in turn.statuses if each["stage"] == "remembering"]
        (recalled,) = status["memories"]
        assert (recalled["type"], recalled["session_id"], recalled["turn_id"]) == (
            "episode", earlier.session_id, earlier.finished["turn_id"],
        )  # fmt: skip
        turn_id = turn.finished["turn_id"]
        assert "三万" not in (await app.client.get(f"/turns/{turn_id}")).text
        (read,) = (await app.client.get(f"/turns/{turn_id}/memories")).json()["memories"]
        assert (read["content"], read["session_id"]) == (recalled["content"], earlier.session_id)
        prompt = (await app.client.get(f"/turns/{turn_id}/prompt")).json()
        (part,) = [part for part in prompt["parts"] if part["part"] == "memory"]
        assert (part["text"], part["kept"]) == (line, True)
        assert (await app.client.get("/memories")).json()["memories"] == []  # its text is not stored


async def test_an_erased_turn_is_no_longer_recalled_and_its_proof_finds_nothing(tmp_path: Path) -> None:
    """Discriminates: the record of the later prompt, which still names it."""
    async with open_app(settings_of(tmp_path, "erased_episode")) as app:
        earlier = await ask_days_ago(app, "供应商的报价是三万元，含税吗？")
        later = await app.ask("我们上次谈过的供应商报价")
        assert len(lines_of("erased_episode")) == 1
        path = f"/turns/{earlier.finished['turn_id']}"
        proof = (await app.client.delete(path, params={"proof": "full"})).json()["proof"]
        assert (proof["hits"], proof["complete"]) == (0, True)
        turn_id = later.finished["turn_id"]
        assert (await app.client.get(f"/turns/{turn_id}/memories")).json()["memories"] == []
        prompt = (await app.client.get(f"/turns/{turn_id}/prompt")).json()
        assert [part["removed"] for part in prompt["parts"] if part["part"] == "memory"] == [True]


async def test_time_words_choose_between_two_matching_turns(tmp_path: Path) -> None:
    async with open_app(settings_of(tmp_path, "days")) as app:
        await ask_days_ago(app, "供应商的报价是三万元吗？", 1)
        await ask_days_ago(app, "供应商的报价是五万元吗？", 40)
        await app.ask("昨天我们谈过的供应商报价")
        assert ["三万" in line for line in lines_of("days")] == [True]
        await app.ask("我们昨天聊了什么？")
        assert ["三万" in line for line in lines_of("days")] == [True]
        await app.ask("What did we talk about last year?")
        assert lines_of("days") == []


async def test_nobody_receives_anothers_turns_this_sessions_or_any_when_switched_off(
    tmp_path: Path,
) -> None:
    """(d), (e) Discriminates: a search by the question alone; one that the switch does not stop."""
    settings = settings_of(tmp_path, "whose", server={"api_keys": ("alice", "bob")})
    question = "我们上次谈过的供应商报价"
    async with open_app(settings) as app:
        app.client.headers["Authorization"] = "Bearer alice"
        first = await ask_days_ago(app, "供应商的报价是三万元，含税吗？")
        await ask_days_ago(app, "供应商的报价是四万元，含税吗？", memory=False)
        await app.ask(question, session_id=first.session_id)
        assert lines_of("whose") == []
        await app.ask(question, memory=False)
        assert lines_of("whose") == []
        app.client.headers["Authorization"] = "Bearer bob"
        await app.ask(question)
        assert lines_of("whose") == []
        app.client.headers["Authorization"] = "Bearer alice"
        await app.ask("那供应商的报价呢")
        assert lines_of("whose") == []
        await app.ask(question)
        assert "三万" in lines_of("whose")[0]
        assert not any("四万" in line or question in line for line in lines_of("whose"))
        await app.client.put("/memories/switch", json={"on": False})
        await app.ask(question)
        assert lines_of("whose") == []
