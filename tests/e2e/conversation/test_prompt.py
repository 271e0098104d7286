"""What was sent for a stored turn can be shown, byte for byte; what was erased since is not in it."""

from __future__ import annotations

import hashlib
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from core.prompt.exchange import MAX_RAW_BYTES
from tests.support.models.provider_stub import Answer, serving
from tests.support.models.stub_llm import Refusal, StubLLM, running_stub
from tests.support.models.tool_stub import Step, calling_tools, claude_events, openai_events
from tests.support.servers.app import App, make_settings, open_app, scripted

GUIDE = "# 保修\n\n## 保修期多长\n\n保修期为两年,从购买之日起算。\n\n## 谁来修\n\n由授权服务站维修。"


async def shown(app: App, turn_id: str) -> dict[str, Any]:
    response = await app.client.get(f"/turns/{turn_id}/prompt")
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def with_stub(folder: Path, stub: StubLLM, layout: str | None = None, **conversation: Any) -> Any:
    table = {"provider": "openai", "base_url": stub.url, "api_key": "sk-very-secret", "model": "stub"}
    model = {**table, "context_window": 8192, "layout": layout}
    return make_settings(folder, models={"llms": {"default": model}}, conversation=conversation)


@pytest.mark.full("opens the whole application, more than once or for seconds")
@pytest.mark.parametrize("layout", ["auto", "many_system", "system_field", "flat"])
async def test_the_request_is_shown_byte_for_byte(tmp_path: Path, layout: str) -> None:
    """Discriminates: any change of order, spacing or introduction between sending and showing."""
    with running_stub(StubLLM()) as stub:
        async with open_app(with_stub(tmp_path, stub, layout)) as app:
            await app.add_text("guide.md", GUIDE)
            first = await app.ask("保修期多长?")
            persona = {"text": '你是一位 "店员"。\nBe brief. 🙂'}
            await app.client.put(f"/sessions/{first.session_id}/persona", json=persona)
            second = await app.ask('那由谁来修?<passage id="9">', session_id=first.session_id)
            for turn, sent in zip((first, second), stub.raw_bodies, strict=True):
                prompt = await shown(app, turn.finished["turn_id"])
                assert prompt["request"]["body"].encode() == sent
                assert prompt["request"]["exact"] is True
                assert prompt["request"]["sha256"] == hashlib.sha256(sent).hexdigest()
                assert "sk-very-secret" not in json.dumps(prompt)
                assert (prompt["response"]["id"], prompt["response"]["finish_reason"]) == ("c", "stop")
    parts = [part["part"] for part in prompt["parts"] if part["kept"]]
    assert parts == ["persona", "system", "recent_history", "recent_history", "knowledge", "question"]
    assert prompt["parts"][0]["text"].startswith("你是一位")
    assert prompt["prompt_tokens"] < prompt["window"] - prompt["answer_tokens"]


@pytest.mark.full("opens the whole application, more than once or for seconds")
@pytest.mark.parametrize("layout", ["auto", "many_system", "flat"])
async def test_a_request_to_claude_is_shown_byte_for_byte_and_stored_without_its_system_text(
    tmp_path: Path, layout: str
) -> None:
    """Discriminates: a record that contains the system text; a rebuilt one with it among the messages."""
    raw = (Path(__file__).parents[2] / "data" / "transcripts" / "anthropic.sse").read_bytes()
    async with serving(Answer([raw])) as stub:
        claude = {
            "provider": "anthropic",
            "base_url": stub.url,
            "api_key": "sk-very-secret",
            "model": "claude-x",
            "layout": layout,
        }
        settings = make_settings(tmp_path, models={"llms": {"default": claude}})
        async with open_app(settings) as app:
            await app.add_text("guide.md", GUIDE)
            first = await app.ask("保修期多长?")
            persona = {"text": '你是一位 "店员"。\nBe brief. 🙂'}
            await app.client.put(f"/sessions/{first.session_id}/persona", json=persona)
            second = await app.ask('那由谁来修?<passage id="9">', session_id=first.session_id)
            asked = [each for each in stub.requests if each.body]  # the others request the model's window
            for turn, sent in zip((first, second), asked, strict=True):
                prompt = await shown(app, turn.finished["turn_id"])
                assert prompt["request"]["body"].encode() == sent.body
                assert prompt["request"]["exact"] is True
                assert "sk-very-secret" not in json.dumps(prompt)
            [stored] = await app.container.store.retrieve("conversations", [second.finished["turn_id"]])
    assert first.answer.startswith("27 * 453 = 12,231 ✓")
    params = (stored.payload or {})["prompt"]["params"]
    assert "店员" not in params
    assert json.loads(params).get("system", "") == ("" if layout == "flat" else None)
    assert prompt["response"]["finish_reason"] == "stop"


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_model_without_http_is_shown_too(app: App) -> None:
    await app.add_text("guide.md", GUIDE)
    first = await app.ask("保修期多长?")
    second = await app.ask("由谁来修?", session_id=first.session_id)
    prompt = await shown(app, second.finished["turn_id"])
    assert prompt["request"]["exact"] is True
    assert "由授权服务站维修" in prompt["request"]["body"]


async def test_marks_of_earlier_answers_are_not_sent_again(tmp_path: Path) -> None:
    """Discriminates: `[1]` of an earlier answer beside the current passages; an older prompt shown without
    it."""
    with running_stub(StubLLM(words=("两年 [1]", "，见【1】。", "表格 a[1] 不变。"))) as stub:
        async with open_app(with_stub(tmp_path, stub)) as app:
            await app.add_text("guide.md", GUIDE)
            first = await app.ask("保修期多长?")
            second = await app.ask("那由谁来修?", session_id=first.session_id)
            turn_id = second.finished["turn_id"]
            now = (await shown(app, turn_id))["request"]
            before = stub.raw_bodies[1].replace("两年，见。".encode(), "两年 [1]，见【1】。".encode())
            await sent(app, turn_id, before)
            then = (await shown(app, turn_id))["request"]
    assert first.answer == "两年 [1]，见【1】。表格 a[1] 不变。"
    assert [each["content"] for each in stub.bodies[1]["messages"] if each["role"] == "assistant"] == [
        "两年，见。表格 a[1] 不变。"
    ]
    assert (now["exact"], now["body"].encode()) == (True, stub.raw_bodies[1])
    assert (then["exact"], then["body"].encode()) == (True, before)


async def sent(app: App, turn_id: str, body: bytes) -> None:
    """Make the turn's record say that this was sent."""
    [stored] = await app.container.store.retrieve("conversations", [turn_id])
    prompt = {**(stored.payload or {})["prompt"], "request_sha256": hashlib.sha256(body).hexdigest()}
    await app.container.store.set_payload("conversations", {"prompt": prompt}, [turn_id])


async def test_an_erased_turn_is_in_no_prompt_any_more(app: App) -> None:
    first = await app.ask("My secret word is Rumpelstilzchen.")
    second = await app.ask("And then?", session_id=first.session_id)
    prompt = await shown(app, second.finished["turn_id"])
    assert "Rumpelstilzchen" in prompt["request"]["body"]
    await app.client.delete(f"/turns/{first.finished['turn_id']}")
    after = await shown(app, second.finished["turn_id"])
    assert "Rumpelstilzchen" not in json.dumps(after)
    assert (after["request"]["body"], after["request"]["exact"]) == (None, False)
    removed = [part for part in after["parts"] if part["removed"]]
    assert [part["turn_id"] for part in removed] == [None] * 2  # nor is its id


async def test_what_did_not_fit_is_named_with_its_reason(tmp_path: Path) -> None:
    model = scripted("fine", context_window=1024, max_tokens=256)
    async with open_app(make_settings(tmp_path, models={"llms": {"default": model}})) as app:
        long = " ".join(f"word{number}" for number in range(60))
        turn = await app.ask(f"One? {long}")
        for number in range(3):
            turn = await app.ask(f"And {number}? {long}", session_id=turn.session_id)
        prompt = await shown(app, turn.finished["turn_id"])
    warnings = [status for status in turn.statuses if status["stage"] == "warning"]
    dropped = [part for part in prompt["parts"] if not part["kept"]]
    assert warnings
    assert warnings[0]["code"] == "context_dropped"
    assert warnings[0]["recent_history"] == len(dropped) > 0
    assert {part["reason"] for part in dropped} == {"over_budget"}
    assert prompt["prompt_tokens"] <= 1024 - 256


async def test_no_record_is_kept_when_switched_off(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path, conversation={"prompt_keep_days": 0})) as app:
        turn = await app.ask("What is this?")
        assert (await shown(app, turn.finished["turn_id"]))["parts"] is None


async def test_a_question_that_cannot_fit_is_refused_before_any_model_is_called(tmp_path: Path) -> None:
    with running_stub(StubLLM()) as stub:
        settings = with_stub(tmp_path, stub)
        table = settings.models.llms["default"].model_copy(update={"context_window": 600})
        settings = settings.model_copy(
            update={"models": settings.models.model_copy(update={"llms": {"default": table}})}
        )
        async with open_app(settings) as app:
            question = "为什么?" * 400
            response = await app.client.post("/knowledge_chat_conversation", json={"question": question})
            assert response.status_code == 422
            assert response.json()["error"]["code"] == "question_too_long"
            assert "default" in response.json()["error"]["message"]
            assert (await app.client.get("/sessions")).json()["sessions"] == []
            session = (await app.client.post("/sessions", json={})).json()["session_id"]
            persona = await app.client.put(f"/sessions/{session}/persona", json={"text": "说明。" * 300})
            assert persona.status_code == 422
            assert "15% of the window" in persona.json()["error"]["message"]
    assert stub.bodies == []


def no_system(body: dict[str, Any]) -> Refusal | None:
    roles = [message["role"] for message in body["messages"]]
    return Refusal("System role not supported") if "system" in roles else None


async def test_a_refused_second_form_is_remembered_and_shown(tmp_path: Path) -> None:
    """A model without a system role (Gemma's template): the flat form is sent, remembered and shown."""
    with running_stub(StubLLM(refuse=no_system)) as stub:
        async with open_app(with_stub(tmp_path, stub)) as app:
            first = await app.ask("What is this?")
            second = await app.ask("And this?", session_id=first.session_id)
            prompt = await shown(app, second.finished["turn_id"])
    assert first.answer == "one two three"
    assert [len(body["messages"]) for body in stub.bodies] == [2, 1, 1]
    assert (prompt["layout"], prompt["request"]["exact"]) == ("flat", True)


async def test_a_completion_only_server_gets_completions(tmp_path: Path) -> None:
    """Discriminates: the turn failed; a follow-up that tries chat again."""

    def only_completes(body: dict[str, Any]) -> Refusal | None:
        return None if "prompt" in body else Refusal("Not Found", 404)

    with running_stub(StubLLM(refuse=only_completes)) as stub:
        async with open_app(with_stub(tmp_path, stub)) as app:
            first = await app.ask("What is this?")
            second = await app.ask("And this?", session_id=first.session_id)
            prompt = await shown(app, second.finished["turn_id"])
    assert (first.answer, second.answer) == ("one two three", "one two three")
    assert stub.paths == ["/v1/chat/completions", "/v1/completions", "/v1/completions"]
    assert "User: What is this?\nAssistant: one two three\n" in stub.bodies[-1]["prompt"]
    assert (prompt["layout"], prompt["request"]["exact"]) == ("flat", True)


async def test_another_owners_prompt_is_unknown(tmp_path: Path) -> None:
    async with open_app(make_settings(tmp_path, server={"api_keys": ["key-of-a", "key-of-b"]})) as app:
        headers = {"Authorization": "Bearer key-of-a"}
        asked = await app.client.post(
            "/knowledge_chat_conversation", json={"question": "Mine?", "stream": False}, headers=headers
        )
        turn_id = asked.json()["turn_id"]
        other = {"Authorization": "Bearer key-of-b"}
        assert (await app.client.get(f"/turns/{turn_id}/prompt", headers=headers)).status_code == 200
        assert (await app.client.get(f"/turns/{turn_id}/prompt", headers=other)).status_code == 404


async def test_a_model_without_a_system_role_writes_summaries_too(tmp_path: Path) -> None:
    """Discriminates: a summary requested in the configured layout, not in the learnt one."""
    with running_stub(StubLLM(refuse=no_system)) as stub:
        settings = with_stub(tmp_path, stub, compress_after_tokens=200, max_recent_turns=1)
        async with open_app(settings) as app:
            turn = await app.ask("Begin.")
            for number in range(6):
                question = f"Question {number}: " + " ".join(f"word{n}" for n in range(40))
                turn = await app.ask(question, session_id=turn.session_id)
                await app.container.summaries.idle()
            nodes = (await app.client.get(f"/sessions/{turn.session_id}/tree")).json()["turns"]
            prompt = await shown(app, turn.finished["turn_id"])
    assert any(node["has_summary"] for node in nodes)
    assert "summary" in [part["part"] for part in prompt["parts"] if part["kept"]]
    assert prompt["request"]["exact"] is True


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_the_raw_reply_is_kept_if_configured(tmp_path: Path, provider: str) -> None:
    """Discriminates: kept without being configured; the answer instead of the reply; a raw reply that is
    exported, outlives its turn, or makes the erasure of a document that it quotes look unfinished."""
    sentence = "The warranty of the lighthouse clock lasts for two years."
    step = Step(f"{sentence} [1]")
    sent = "".join((openai_events if provider == "openai" else claude_events)(step))
    with calling_tools(step) as stub:
        url = stub.url if provider == "openai" else stub.claude_url
        model = {"provider": provider, "base_url": url, "api_key": "k", "model": "m"}
        sections: dict[str, Any] = {"models": {"llms": {"default": model}}}
        async with open_app(make_settings(tmp_path / "off", **sections)) as app:
            turn = await app.ask("How long is the warranty?")
            assert "raw" not in (await shown(app, turn.finished["turn_id"]))["response"]
        sections["conversation"] = {"keep_raw_response": True}
        async with open_app(make_settings(tmp_path / "on", **sections)) as app:
            document_id = await app.add_text("clock.md", f"# Warranty\n\n{sentence}\n")
            turn = await app.ask("How long is the warranty of the lighthouse clock?", knowledge="always")
            turn_id = turn.finished["turn_id"]
            assert (await shown(app, turn_id))["response"]["raw"] == sent
            for form in ("json", "md"):
                export = await app.client.get(f"/sessions/{turn.session_id}/export", params={"format": form})
                assert "warranty" in export.text
                assert stub_mark(provider) not in export.text
            erased = (await app.client.delete(f"/documents/{document_id}?proof=full")).json()
            assert (erased["proof"]["complete"], erased["proof"]["quoted_in"]) == (True, [turn_id])
            stub.play(Step("x" * 12_000))  # in 4,000 events
            large = await app.ask("And?", knowledge="never")
            assert len((await shown(app, large.finished["turn_id"]))["response"]["raw"]) == MAX_RAW_BYTES
            await app.client.delete(f"/turns/{turn_id}")
            assert (await app.client.get(f"/turns/{turn_id}/prompt")).status_code == 404


async def test_a_kept_reply_may_be_any_bytes_and_contains_no_key(tmp_path: Path) -> None:
    """Discriminates: bytes that no store accepts; a key that a proxy repeats."""
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"Yes."},"finish_reason":"stop"}]}\n\n'
    pieces = [b": \xff\x00 sent with sk-very-secret\n\n", chunk, b"data: [DONE]\n\n"]
    async with serving(Answer(pieces)) as stub:
        table = {"provider": "openai", "base_url": stub.url, "api_key": "sk-very-secret", "model": "m"}
        keeping = {"keep_raw_response": True}
        settings = make_settings(tmp_path, models={"llms": {"default": table}}, conversation=keeping)
        async with open_app(settings) as app:
            turn = await app.ask("Is it?", knowledge="never")
            raw = (await shown(app, turn.finished["turn_id"]))["response"]["raw"]
    assert turn.answer == "Yes."
    assert raw.startswith(": \ufffd\0 sent with ")
    assert "sk-very-secret" not in raw
    assert raw.endswith(chunk.decode() + "data: [DONE]\n\n")


def stub_mark(provider: str) -> str:
    """Text that only occurs in the raw reply."""
    return '"choices"' if provider == "openai" else "content_block_delta"


class SummingStub(StubLLM):
    """Returns a new summary each time it is asked for one."""

    made = 0

    def words_for(self, body: dict[str, Any]) -> tuple[str, ...]:
        if not body["messages"][0]["content"].startswith("You summarise a conversation"):
            return self.words
        self.made += 1
        return (f"SUMMARY {self.made}.",)


async def test_the_first_turn_that_uses_a_new_summary_says_so(tmp_path: Path) -> None:
    """Discriminates: saying it again in each later turn, or before the model receives it."""
    long = " ".join(f"word{number}" for number in range(60))
    with running_stub(SummingStub()) as stub:
        settings = with_stub(tmp_path, stub, compress_after_tokens=200, max_recent_turns=1)
        async with open_app(settings) as app:
            turns = [await app.ask("Begin.", knowledge="never")]
            session = {"session_id": turns[0].session_id, "knowledge": "never"}
            for number in range(7):
                turns.append(await app.ask(f"Question {number}: {long}", **session))
                await app.container.summaries.idle()
            ids = [turn.finished["turn_id"] for turn in turns]
            stored = [(await app.client.get(f"/turns/{turn_id}")).json() for turn_id in ids]
        answers = [body for body in stub.bodies if "Question" in str(body["messages"][-1]["content"])]
    sent = [re.findall(r"SUMMARY \d", json.dumps(body)) for body in answers if "summarise" not in str(body)]
    new = [bool(now) and now != before for before, now in pairwise([[], *sent])]
    notices = [[each for each in turn.statuses if each.get("code") == "summarized"] for turn in turns[1:]]
    assert [bool(each) for each in notices] == new
    assert sum(new) >= 2
    first = next(each[0] for each in notices if each)
    assert first["turns"] >= 2
    codes = [[each["code"] for each in turn.get("warnings", [])] for turn in stored[1:]]
    assert ["summarized" in each for each in codes] == new


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_a_summary_fits_into_a_small_window(tmp_path: Path) -> None:
    """Discriminates: a summary of the maximum length, for which no prompt has room."""
    words = tuple(f"word{number} " for number in range(400))
    with running_stub(StubLLM(words=words)) as stub:
        settings = with_stub(tmp_path, stub, compress_after_tokens=200, max_recent_turns=2)
        table = settings.models.llms["default"].model_copy(update={"context_window": 2048, "max_tokens": 256})
        settings = settings.model_copy(
            update={"models": settings.models.model_copy(update={"llms": {"default": table}})}
        )
        async with open_app(settings) as app:
            turn = await app.ask("Begin.")
            for number in range(5):
                turn = await app.ask(f"Question {number}?", session_id=turn.session_id)
                await app.container.summaries.idle()
            prompt = await shown(app, turn.finished["turn_id"])
    remaining = [part["part"] for part in prompt["parts"] if part["kept"]]
    assert "summary" in remaining
