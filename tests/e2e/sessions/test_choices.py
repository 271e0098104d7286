"""Which model answers a session's questions, and how, if they do not specify it; and how much it reads."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from core.tools import SEARCH_TOOL
from tests.support.models.stub_llm import StubLLM, running_stub
from tests.support.models.tool_stub import Step, calling_tools
from tests.support.servers.app import App, make_settings, open_app
from tests.support.waiting import until

CHOSEN: dict[str, Any] = {
    "model_id": "other", "temperature": 0.7, "max_tokens": 300, "thinking": True, "knowledge": "never",
}  # fmt: skip


@pytest.fixture
def stub() -> Iterator[StubLLM]:
    with running_stub(StubLLM()) as running:
        yield running


def with_models(tmp_path: Path, stub: StubLLM, *names: str, **sections: Any) -> Settings:
    table = {"provider": "openai", "base_url": stub.url, "context_window": 32_000, "max_tokens": 1_000}
    llms = {name: {**table, "model": f"m-{name}"} for name in ("default", *names)}
    return make_settings(tmp_path, models={"llms": llms}, **sections)


async def choose(app: App, session_id: str, **choices: Any) -> dict[str, Any]:
    response = await app.client.patch(f"/sessions/{session_id}", json=choices)
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


async def test_a_session_has_choices_and_a_request_overrides_them(tmp_path: Path, stub: StubLLM) -> None:
    """Discriminates: a default of the request that beats the session's choice; an override that is never
    undone."""
    async with open_app(with_models(tmp_path, stub, "other")) as app:
        first = await app.ask("什么是父子链？")
        assert (stub.bodies[-1]["model"], stub.bodies[-1]["temperature"]) == ("m-default", 0.2)
        session = await choose(app, first.session_id, **CHOSEN)
        assert {name: session[name] for name in CHOSEN} == CHOSEN
        second = await app.ask("然后呢？", session_id=first.session_id)
        sent = stub.bodies[-1]
        assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("m-other", 0.7, 300)
        turn = (await app.client.get(f"/turns/{second.finished['turn_id']}")).json()
        assert turn["model_id"] == "other"
        assert {name: turn["request"][name] for name in CHOSEN if name != "model_id"} == {
            name: value for name, value in CHOSEN.items() if name != "model_id"
        }
        own = {"model_id": "default", "temperature": 0, "max_tokens": 40}
        await app.ask("再说一次。", session_id=first.session_id, **own)
        sent = stub.bodies[-1]
        assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("m-default", 0.0, 40)
        await choose(app, first.session_id, **dict.fromkeys(CHOSEN))
        await app.ask("现在呢？", session_id=first.session_id)
        assert (stub.bodies[-1]["model"], stub.bodies[-1]["max_tokens"]) == ("m-default", 1_000)


async def test_thinking_tools_and_knowledge_of_a_session_reach_its_model(
    tmp_path: Path, stub: StubLLM
) -> None:
    """Discriminates: a choice that is shown with the turn but changes nothing that is sent."""
    table = {"provider": "openai", "base_url": stub.url, "model": "qwen3-8b", "context_window": 32_000}
    async with open_app(make_settings(tmp_path, models={"llms": {"default": table}})) as app:
        await app.add_text("fee.md", "# Fee\n\nThe lighthouse fee is nine ducats.\n")
        ask = partial(app.ask, "What is the lighthouse fee?")
        session_id = (await ask()).session_id
        await choose(app, session_id, thinking=True, knowledge="never")
        await ask(session_id=session_id)
        await choose(app, session_id, thinking=False, knowledge="auto", tools=[SEARCH_TOOL])
        await ask(session_id=session_id)
    sent = [
        (
            body["chat_template_kwargs"]["enable_thinking"],
            "nine ducats" in json.dumps(body["messages"]),
            [tool["function"]["name"] for tool in body.get("tools", ())],
        )
        for body in stub.bodies
    ]
    assert sent == [(False, True, []), (True, False, []), (False, False, [SEARCH_TOOL])]


async def last_choices(app: App) -> dict[str, Any]:
    return (await app.client.get("/sessions")).json()["choices"]  # type: ignore[no-any-return]


async def test_choices_are_kept_for_their_session_and_other_sessions_use_the_servers_defaults(
    tmp_path: Path, stub: StubLLM
) -> None:
    """Discriminates: choices of this process only; a new session of another client that begins with them, and
    so answers a program's plain question with another model, at a higher temperature, or with tools."""
    async with open_app(with_models(tmp_path, stub, "other")) as app:
        older, newer = [(await app.ask(each)).session_id for each in ("一？", "二？")]
        await choose(app, older, model_id="other", temperature=1.5)
        await choose(app, newer, title="标题")
    async with open_app(with_models(tmp_path, stub, "other")) as app:
        await app.ask("三？", session_id=older)
        assert (stub.bodies[-1]["model"], stub.bodies[-1]["temperature"]) == ("m-other", 1.5)
        begun = await app.ask("四？")
        assert (stub.bodies[-1]["model"], stub.bodies[-1]["temperature"]) == ("m-default", 0.2)
        stored = (await app.client.get(f"/sessions/{begun.session_id}")).json()
        made = (await app.client.post("/sessions", json={})).json()
        assert not {"model_id", "temperature"} & {*stored, *made}
        await app.ask("五？", session_id=newer)
        assert stub.bodies[-1]["model"] == "m-default"
        await app.client.post("/api/v1/chat", json={"message": "六？"})
        assert stub.bodies[-1]["model"] == "m-default"


async def test_the_list_names_what_its_owner_chose_last_in_any_session(tmp_path: Path, stub: StubLLM) -> None:
    """Discriminates: another owner's choices; only those of the session changed last; revoked ones."""
    keys = {"server": {"api_keys": ["mine", "others"]}}
    async with open_app(with_models(tmp_path, stub, "other", **keys)) as app:
        app.client.headers["authorization"] = "Bearer mine"
        one, two = [(await app.ask(each)).session_id for each in ("一？", "二？")]
        await choose(app, one, model_id="other", temperature=1.5, max_tokens=300)
        await choose(app, two, temperature=0.5, max_tokens=None)
        assert await last_choices(app) == {"model_id": "other", "temperature": 0.5}
        app.client.headers["authorization"] = "Bearer others"
        assert await last_choices(app) == {}
    async with open_app(with_models(tmp_path, stub, **keys)) as app:
        app.client.headers["authorization"] = "Bearer mine"
        assert await last_choices(app) == {"temperature": 0.5}, "the model is no longer configured"


async def test_a_choice_no_longer_configured_blocks_no_question(tmp_path: Path, stub: StubLLM) -> None:
    """Discriminates: a session that can never be asked in again."""
    async with open_app(with_models(tmp_path, stub, "other")) as app:
        session_id = (await app.ask("一？")).session_id
        await choose(app, session_id, model_id="other", temperature=1.0)
    async with open_app(with_models(tmp_path, stub)) as app:
        await app.ask("二？", session_id=session_id)
    assert (stub.bodies[-1]["model"], stub.bodies[-1]["temperature"]) == ("m-default", 1.0)


async def test_a_retry_is_the_same_request_whatever_the_session_chooses_meanwhile(
    tmp_path: Path, stub: StubLLM
) -> None:
    """Discriminates: a fingerprint of the resolved request, by which the retry is a conflict."""
    async with open_app(with_models(tmp_path, stub, "other")) as app:
        session_id = (await app.ask("一？")).session_id
        asked = {"session_id": session_id, "turn_id": str(uuid.uuid4())}
        await app.ask("二？", **asked)
        await choose(app, session_id, model_id="other")
        again = await app.ask("二？", **asked)
    assert (again.answer, len(stub.bodies)) == ("one two three", 2)


async def test_an_impossible_choice_is_refused(tmp_path: Path, stub: StubLLM) -> None:
    async with open_app(with_models(tmp_path, stub)) as app:
        session_id = (await app.client.post("/sessions", json={})).json()["session_id"]
        for field, value, status in (
            ("model_id", "none", 404),
            ("tools", ["none"], 404),
            ("temperature", 2.1, 422),
            ("temperature", "1", 422),
            ("max_tokens", 0, 422),
            ("thinking", "yes", 422),
            ("knowledge", "maybe", 422),
        ):
            response = await app.client.patch(f"/sessions/{session_id}", json={field: value})
            assert (response.status_code, field in response.text) == (status, True), (field, value)
            assert field not in (await app.client.get(f"/sessions/{session_id}")).json(), (field, value)


async def window_of(app: App, model_id: str) -> int:
    turn = await app.ask("Why?", model_id=model_id)
    prompt = await app.client.get(f"/turns/{turn.finished['turn_id']}/prompt")
    return int(prompt.json()["window"])


async def test_the_window_is_the_servers_and_the_answer_takes_its_share_of_it(tmp_path: Path) -> None:
    """Discriminates: 8,192 tokens sent to a model that reads 4,096; a configured window overruled."""
    with running_stub(StubLLM(models=[{"id": "qwen3-8b", "max_model_len": 4_096}])) as stub:
        table = {"provider": "openai", "model": "qwen3-8b", "base_url": stub.url, "max_tokens": 8_000}
        llms = {
            "default": table,
            "mine": {**table, "context_window": 20_000},
            "other": {**table, "model": "m"},
        }
        async with open_app(make_settings(tmp_path, models={"llms": llms})) as app:
            await until(lambda: app.container.llms.get("default").context_window == 4_096)
            assert [await window_of(app, each) for each in ("default", "mine", "other")] == [
                4_096,
                20_000,
                8_192,
            ]
    assert [body["max_tokens"] for body in stub.bodies] == [1_024, 5_000, 2_048]


CATALOGUES = Path(__file__).parents[2] / "data" / "catalogues"
NAMES = {"ollama": "qwen3:8b", "openrouter": "deepseek/deepseek-r1", "anthropic": "claude-opus-4-6"}


@pytest.mark.parametrize(
    ("form", "paths", "window"),
    [
        ("ollama", {"/v1/models": "ollama", "/api/show": "ollama_show", "/api/ps": "ollama_ps"}, 4_096),
        ("openrouter", {"/v1/models": "openrouter"}, 64_000),
        ("anthropic", {f"/v1/models/{NAMES['anthropic']}": "anthropic"}, 1_000_000),
    ],
)
async def test_each_kind_of_server_is_asked_for_its_window_and_sent_an_answers_share_of_it(
    tmp_path: Path, form: str, paths: dict[str, str], window: int
) -> None:
    """Discriminates: the table's guess about the model, although its server says otherwise."""
    replies = {
        path: json.loads((CATALOGUES / f"{name}.json").read_text("utf-8")) for path, name in paths.items()
    }
    with calling_tools(Step("So."), replies=replies) as stub:
        claude = form == "anthropic"
        table = {
            "provider": "anthropic" if claude else "openai",
            "base_url": stub.claude_url if claude else stub.url,
            "model": NAMES[form],
            "max_tokens": 500_000,
        }
        async with open_app(make_settings(tmp_path, models={"llms": {"default": table}})) as app:
            await until(lambda: app.container.llms.get("default").context_window == window)
            assert await window_of(app, "default") == window
    assert [body["max_tokens"] for body in stub.bodies] == [window // 4]


async def test_no_question_waits_for_a_server_that_is_slow_to_report_its_window(tmp_path: Path) -> None:
    with running_stub(StubLLM(models=[{"id": "m", "max_model_len": 4_096}], models_pause_s=5)) as stub:
        table = {"provider": "openai", "model": "m", "base_url": stub.url}
        async with open_app(make_settings(tmp_path, models={"llms": {"default": table}})) as app:
            assert await window_of(app, "default") == 8_192
