"""What a model receives of a conversation, and what its reader receives, in the bytes that were sent."""

from __future__ import annotations

import json
import re
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import structlog

from config.settings import Settings
from tests.support.models.stub_llm import Refusal, StubLLM, running_stub
from tests.support.servers.app import CHAT, make_settings, open_app

TITLE = "### Task:\nGenerate a concise, 3-5 word title.\n### Chat History:\n<chat_history>\n"
LAYOUTS = ("one_system", "many_system", "system_field", "flat")


def with_stub(folder: Path, stub: StubLLM, layout: str | None = None, **sections: Any) -> Settings:
    return make_settings(folder, models={"llms": {"default": _table(stub, layout)}}, **sections)


def _table(stub: StubLLM, layout: str | None) -> dict[str, Any]:
    return {"provider": "openai", "base_url": stub.url, "api_key": "k", "model": "stub", "layout": layout}


async def test_the_history_is_introduced_if_the_layout_has_room(tmp_path: Path) -> None:
    """Discriminates: a lead-in for history that does not exist; no lead-in in a layout that has room for
    it."""
    with running_stub(StubLLM()) as stub:
        llms = {layout: _table(stub, layout) for layout in LAYOUTS}
        async with open_app(make_settings(tmp_path, models={"llms": llms})) as app:
            for layout in LAYOUTS:
                how = {"model_id": layout, "knowledge": "never"}
                first = await app.ask("灯塔几点开门？", **how)
                await app.ask("那几点关门？", session_id=first.session_id, **how)
                sent = [json.dumps(body, ensure_ascii=False) for body in stub.bodies[-2:]]
                led_in = ["以下是最近的对话历史" in each for each in sent]
                assert led_in == [False, layout in ("many_system", "flat")], layout


async def test_recalled_turns_are_announced_if_everything_is_in_one_system_message(tmp_path: Path) -> None:
    """Discriminates: turns out of order that read as the last ones; the note although nothing is recalled."""
    conversation = {"max_recent_turns": 1, "relevant_turn_threshold": 0.0}
    with running_stub(StubLLM()) as stub:
        async with open_app(with_stub(tmp_path, stub, "one_system", conversation=conversation)) as app:
            turn = await app.ask("灯塔的钥匙在哪里？", knowledge="always")
            for question in ("港口在哪里？", "船几点开？"):
                turn = await app.ask(question, knowledge="always", session_id=turn.session_id)
            await app.container.conversations.index_missing()
            await app.ask("灯塔的钥匙在哪里呢？", knowledge="always", session_id=turn.session_id)
        system = [body["messages"][0]["content"] for body in stub.bodies]
        asked = [each["content"] for each in stub.bodies[-1]["messages"] if each["role"] == "user"]
    assert any("灯塔的钥匙在哪里？" in each for each in asked[:-1])
    announced = ["与当前问题相关的几轮" in each for each in system]
    assert (announced[:2], announced[-1]) == (
        [False, False],
        True,
    )  # of the third a turn may be recalled already


async def test_the_date_in_the_configured_zone_is_sent_unless_switched_off(tmp_path: Path) -> None:
    """Discriminates: the server's own zone; a date that only the page knows."""
    zone: dict[str, Any] = {"timezone": "Pacific/Kiritimati"}
    with running_stub(StubLLM()) as stub:
        today = datetime.now(ZoneInfo(zone["timezone"]))
        async with open_app(with_stub(tmp_path / "on", stub, conversation=zone)) as app:
            await app.ask("今天几号？")
            await app.ask("What is the date today?")
        zone["context_lines"] = False
        async with open_app(with_stub(tmp_path / "off", stub, conversation=zone)) as app:
            await app.ask("今天几号？")
    zh, en, off = (body["messages"][0]["content"] for body in stub.bodies)
    begun = f"{today:%Y-%m-%d}"
    assert f"今天是 {begun}，星期{'一二三四五六日'[today.weekday()]}。本次会话开始于 {begun} " in zh
    assert f"{today:%A}" in en
    assert begun in en
    assert begun not in off


async def test_the_history_of_a_session_with_the_clients_own_id_is_sent(tmp_path: Path) -> None:
    """Discriminates: a new session for each question under the same id."""
    own = {"session_id": str(uuid.uuid4()), "knowledge": "never"}
    with running_stub(StubLLM()) as stub:
        async with open_app(with_stub(tmp_path, stub)) as app:
            await app.ask("灯塔几点开门？", **own)
            await app.ask("那几点关门？", **own)
    dialogue = [[each["content"] for each in body["messages"][1:]] for body in stub.bodies]
    assert dialogue == [["灯塔几点开门？"], ["灯塔几点开门？", "one two three", "那几点关门？"]]


async def test_a_server_without_chat_gets_completions_and_that_is_remembered(tmp_path: Path) -> None:
    """Discriminates: a futile request before each question."""
    words = StubLLM()
    missing = Refusal("Not Found", 404)
    words.refuse = lambda body: missing if "messages" in body else None
    with running_stub(words) as stub:
        async with open_app(with_stub(tmp_path, stub)) as app:
            first = await app.ask("Why?", knowledge="never")
            second = await app.ask("And?", knowledge="never", session_id=first.session_id)
            assert first.answer == second.answer == "one two three"
    assert stub.paths == ["/v1/chat/completions", "/v1/completions", "/v1/completions"]


async def test_blocked_words_reach_neither_the_model_nor_the_reader(tmp_path: Path) -> None:
    """Discriminates: a word split across two deltas; fences that stay; a stored answer that contains more."""
    words = tmp_path / "words.txt"
    words.write_text("kraken\n", "utf-8")
    filters = {
        "blocked_words": words,
        "answer_filters": ("services.models.text_filters:CodeFences",),
    }
    pieces = ("```python\n", "print(1)\n", "``", "`\nThe kra", "ken sleeps.")
    with running_stub(StubLLM(words=pieces)) as stub:
        async with open_app(with_stub(tmp_path / "data", stub, conversation=filters)) as app:
            refused = await app.client.post(CHAT, json={"question": "Where is the Kraken?"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (422, "question_refused")
            assert stub.bodies == []
            turn = await app.ask("What sleeps?", knowledge="never")
            stored = (await app.client.get(f"/turns/{turn.finished['turn_id']}")).json()
    assert turn.answer == stored["answer"]
    assert "```" not in turn.answer
    assert "kraken" not in turn.answer.lower()
    assert "print(1)" in turn.answer
    assert turn.answer.endswith(" sleeps.")


@pytest.mark.parametrize(
    ("model", "question"),
    [("plain/default", "What sleeps?"), ("wenmai", f"{TITLE}USER: What sleeps?\n</chat_history>")],
)
async def test_blocked_words_hold_for_a_model_that_is_asked_without_documents(
    tmp_path: Path, model: str, question: str
) -> None:
    """Discriminates: a way around the list, by the model's name or by a client's own task; a history that
    contains what the question may not."""
    words = tmp_path / "words.txt"
    words.write_text("kraken\n", "utf-8")
    settings = {"blocked_words": words}
    with running_stub(StubLLM(words=("The kra", "ken sleeps."))) as stub:
        async with open_app(with_stub(tmp_path / "data", stub, conversation=settings)) as app:

            async def complete(*texts: str, **more: Any) -> Any:
                roles = ("user", "assistant", "user")[-len(texts) :]
                spoken = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
                body = {"model": model, "messages": spoken, **more}
                return await app.client.post("/v1/chat/completions", json=body)

            for refused in (
                await complete(f"{question} The Kraken?"),
                await complete("Where is the Kraken?", "There.", question, stream=True),
            ):
                assert (refused.status_code, refused.json()["error"]["code"]) == (400, "question_refused")
            assert stub.bodies == []
            whole = (await complete(question)).json()["choices"][0]["message"]["content"]
            assert whole == "The ****** sleeps."
            streamed = (await complete(question, stream=True)).text
            assert "".join(re.findall(r'"content": "([^"]*)"', streamed)) == whole


@pytest.mark.parametrize(("question", "chinese"), [("灯塔几点开门？", True), ("When does it open?", False)])
async def test_an_error_is_in_the_language_of_the_question(
    tmp_path: Path, question: str, chinese: bool
) -> None:
    with running_stub(StubLLM(status=401)) as stub:
        async with open_app(with_stub(tmp_path, stub)) as app:
            turn = await app.ask(question, knowledge="never")
    sentence = turn.text("ERROR")
    assert sentence
    assert any("\u4e00" <= char <= "\u9fff" for char in sentence) == chinese


async def test_a_log_line_counts_what_each_step_of_the_assembly_changed(tmp_path: Path) -> None:
    """Discriminates: a step that is not counted; a log line that contains a word of the question."""
    with running_stub(StubLLM()) as stub:
        async with open_app(with_stub(tmp_path, stub)) as app:
            with structlog.testing.capture_logs() as logged:
                await app.ask("Where is the lighthouse?", knowledge="never")
    (line,) = [each for each in logged if each["event"] == "messages_assembled"]
    assert line.keys() >= {"compress", "drop_invalid", "repair_tools", "insert_system", "validate"}
    assert line["sent"] == len(stub.bodies[0]["messages"])
    assert "lighthouse" not in json.dumps(line)
