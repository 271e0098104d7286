"""Tools end to end: real servers, and a model that calls them."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from config.settings import Settings
from core.tools import SEARCH_TOOL
from tests.e2e.tools.asking import (
    FORMS,
    WEATHER,
    Asking,
    both_forms,
    calls_made,
    decide,
    is_waiting,
    lighthouses,
)
from tests.support.models.tool_stub import Step, ToolStub, calling_tools
from tests.support.servers.app import CHAT, make_settings, open_app
from tests.support.waiting import until

PROGRAM = (sys.executable, "-m", "tests.support.servers.tool_program")


@pytest.fixture(scope="module")
async def asking(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Asking]:
    folder = tmp_path_factory.mktemp("tools")
    with calling_tools() as stub:
        settings = tool_settings(folder, stub, max_tool_steps=3, tool_confirm_timeout_s=8)
        async with open_app(settings) as app:
            yield Asking(app, stub, folder)


def tool_settings(folder: Path, stub: ToolStub, **tools: Any) -> Settings:
    llms = {**both_forms(stub), "quotes": {"provider": "extractive"}}
    program = {"command": (*PROGRAM, str(folder)), "timeout_s": 20}
    tables = {
        "t": {**program, "confirm": "never"},
        "asks": {**program, "confirm": "write"},
        "a__b": {**program, "allow": ["echo"]},
        "down": {"command": ["no-such-program"]},
    }
    return make_settings(folder / "data", models={"llms": llms}, tools={"tools": tables, **tools})


@pytest.mark.parametrize("form", FORMS)
async def test_calls_are_made_in_parallel_and_stored_in_pairs(form: str, asking: Asking) -> None:
    """Discriminates: deltas of two calls mixed up, results without a call, usage of the last step only."""
    calls = [("c1", "t__echo", {"text": "晴"}), ("c2", "t__note", {"text": "x"}), ("c1", "t__none", {})]
    steps = (Step("我查一下。", calls), Step("今天是晴天。"), Step("不客气。"))
    app, stub = asking.app, asking.stub
    streamed = await asking.ask(form, *steps)
    assert streamed.answer == "我查一下。\n\n今天是晴天。"
    assert "t__echo" in stub.offered(0)
    assert stub.calls(1) == ["c1", "c2", "c1_2"]
    results = stub.results(1)
    assert "晴" in results["c1"]
    assert "noted: x" in results["c2"]
    assert "There is no such tool." in results["c1_2"]
    assert "<tool_result-" in results["c1"]
    turn = await asking.turn(streamed)
    assert [(use["id"], use["function"]["name"], use["state"]) for use in turn["tool_calls"]] == [
        ("c1", "t__echo", "done"), ("c2", "t__note", "done"), ("c1_2", "t__none", "failed"),
    ]  # fmt: skip
    assert turn["usage"] == {"prompt_tokens": 200, "completion_tokens": 20, "estimated": False}
    prompt = (await app.client.get(f"/turns/{turn['turn_id']}/prompt")).json()
    assert prompt["request"]["exact"]
    assert prompt["request"]["body"].encode() == stub.raw_bodies[1]
    later = await app.ask("谢谢", knowledge="never", model_id=form, session_id=streamed.session_id)
    assert stub.calls(2) == list(stub.results(2)) == ["c1", "c2", "c1_2"]
    prompt = (await app.client.get(f"/turns/{later.finished['turn_id']}/prompt")).json()
    assert prompt["request"]["exact"]


def passages(result: str) -> list[dict[str, Any]]:
    """The result of the search, without its fence."""
    return json.loads(result[result.index("{") : result.rindex("}") + 1])["passages"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("form", FORMS)
async def test_a_model_that_searches_cites_what_it_received(form: str, asking: Asking) -> None:
    """Discriminates: a search before it was requested; passages that are not sources, or have separate
    numbers; a number of an earlier turn that reads like one of the current turn."""
    app, stub = asking.app, asking.stub
    warranty = await app.add_text(
        f"保修-{form}.md", f"# 保修 {form}\n\n{form} 的保修期为两年,从购买之日起算。"
    )
    await app.add_text(f"退款-{form}.md", f"# 退款 {form}\n\n{form} 的退款在五天之内到账。")
    searches = [
        ("c1", SEARCH_TOOL, {"query": f"{form} 保修期"}),
        ("c2", SEARCH_TOOL, {"query": f"{form} 退款"}),
    ]
    again = [("c3", SEARCH_TOOL, {"query": f"{form} 保修期"})]
    steps = (
        Step("", searches[:1]),
        Step("", searches[1:]),
        Step("", again),
        Step("保修两年 [1],退款五天 [2]。"),
    )
    streamed = await asking.ask(form, *steps, tools=[SEARCH_TOOL], knowledge="auto")
    assert (stub.offered(0), "<passage" in str(stub.bodies[0]["messages"])) == ([SEARCH_TOOL], False)
    results = stub.results(3)
    assert "<tool_result-" in results["c1"]
    numbered = {
        call: {each["file"]: each["number"] for each in passages(text)} for call, text in results.items()
    }
    assert numbered["c1"][f"保修-{form}.md"] == numbered["c3"][f"保修-{form}.md"]
    sources = {source["file_name"]: source["index"] for source in streamed.sources}
    assert {**numbered["c1"], **numbered["c2"]} == sources
    assert all(source["key_passage"] for source in streamed.sources)
    assert [source["index"] for source in streamed.sources if source["cited"]] == [1, 2]
    turn = await asking.turn(streamed)
    assert turn["sources"] == streamed.sources
    prompt = (await app.client.get(f"/turns/{turn['turn_id']}/prompt")).json()
    assert (prompt["request"]["exact"], prompt["request"]["body"].encode()) == (True, stub.raw_bodies[3])
    await app.ask("谢谢", knowledge="never", model_id=form, session_id=streamed.session_id)
    assert '"file"' in stub.results(4)["c1"]
    assert '"number"' not in stub.results(4)["c1"]
    assert (await app.client.delete(f"/documents/{warranty}")).status_code == 200
    assert "保修期为两年" not in json.dumps(await asking.turn(streamed), ensure_ascii=False)


async def test_a_question_whose_search_the_model_decides_on_is_not_embedded_before(tmp_path: Path) -> None:
    """Discriminates: an embedding that nothing waits for, once per question."""
    with calling_tools(Step("好。")) as stub:
        async with open_app(make_settings(tmp_path, models={"llms": both_forms(stub)})) as app:
            await app.container.embedding.close()
            events = []
            for tools in ([SEARCH_TOOL], []):
                with structlog.testing.capture_logs() as logged:
                    await app.ask(WEATHER, model_id="openai", tools=tools)
                events.append("question_not_read_early" in [line["event"] for line in logged])
    assert events == [False, True]


async def test_a_search_without_hits_leaves_no_source(asking: Asking) -> None:
    steps = (Step("", [("c1", SEARCH_TOOL, {"query": "zzqx"})]), Step("资料中没有。"))
    streamed = await asking.ask("openai", *steps, tools=[SEARCH_TOOL], filters={"tags": ["nowhere"]})
    assert passages(asking.stub.results(1)["c1"]) == streamed.sources == []
    bad = await asking.ask(
        "openai", Step("", [("c1", SEARCH_TOOL, {"q": 1})]), Step("好。"), tools=[SEARCH_TOOL]
    )
    assert (bad.answer, "do not fit the schema" in asking.stub.results(1)["c1"]) == ("好。", True)


async def test_passages_beside_the_search_continue_its_numbering(asking: Asking) -> None:
    """Discriminates: a record of the request that takes the tool's sources for the prompt's."""
    app, stub = asking.app, asking.stub
    for name in ("甲", "乙"):
        await app.add_text(f"{name}.md", f"# 押金{name}\n\n押金{name}的数额是一百元。")
    steps = (Step("", [("c1", SEARCH_TOOL, {"query": "押金乙的数额"})]), Step("一百元 [1]。"))
    asked = {"tools": [SEARCH_TOOL], "knowledge": "always", "rerank_top_n": 1}
    stub.play(*steps)
    streamed = await app.ask("押金甲的数额是多少？", model_id="openai", **asked)
    assert [source["index"] for source in streamed.sources] == list(range(1, len(streamed.sources) + 1))
    assert "<passage" in str(stub.bodies[0]["messages"])
    prompt = (await app.client.get(f"/turns/{streamed.finished['turn_id']}/prompt")).json()
    assert prompt["request"]["exact"]


async def test_without_tools_in_the_request_none_is_offered(asking: Asking) -> None:
    await asking.ask("openai", Step("好。"), tools=[])
    assert "tools" not in asking.stub.bodies[0]
    for name in ("t__echo", "a__b__echo"):
        await asking.ask("openai", Step("好。"), tools=[name])
        assert asking.stub.offered(0) == [name]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("t__echo", {"text": 1}, "1 is not of type 'string'"),
        ("t__echo", "{", "The arguments are not JSON."),
        ("t__echo", '{"text": "\\ud800"}', "The arguments are not JSON."),
        ("t__injected", {"a": json.loads("[" * 300 + "]" * 300)}, "more than 64 levels deep"),
        ("t__bomb", {"text": "x"}, "they take too long to check"),
        ("t__no\nname", {}, "There is no such tool."),
        ("t__large", {}, "more characters were left out]"),
        ("t__picture", {}, "[image, image/png, 402 bytes: not shown]"),
        ("t__die", {}, "The tool's server ended the connection."),
    ],
)
async def test_whatever_a_call_returns_the_model_reads_it_and_continues(
    form: str, name: str, arguments: Any, words: str, asking: Asking
) -> None:
    streamed = await asking.ask(form, Step("", [("c1", name, arguments)]), Step("完了。"))
    assert (streamed.answer, streamed.text("ERROR")) == ("完了。", "")
    assert words in asking.stub.results(1)["c1"]
    assert len(asking.stub.raw_bodies[1]) < 200_000


@pytest.mark.parametrize("form", FORMS)
async def test_instructions_in_a_result_are_data_in_a_fence(form: str, asking: Asking) -> None:
    """Discriminates: a result that closes its fence or imitates a chat template's control token."""
    await asking.ask(form, Step("", [("c1", "t__injected", {})]), Step("好。"))
    result = asking.stub.results(1)["c1"]
    tag = result.partition("\n")[0]
    assert tag.startswith("<tool_result-")
    assert result.endswith(tag.replace("<", "</"))
    assert "<|im_start|>" not in result
    assert "</tool_result-000000>" not in result


async def test_a_model_that_keeps_calling_tools_is_asked_to_finish(asking: Asking) -> None:
    """Discriminates: an endless loop; an error that says that the model returned no text."""
    streamed = await asking.ask("openai", Step("", [("c", "t__echo", {"text": "a"})]))
    assert [body.get("tool_choice") for body in asking.stub.bodies] == [None, None, None, "none"]
    assert "MAX_TOOL_STEPS" in streamed.text("ERROR")


@pytest.mark.parametrize("reason", ["tool_calls", "function_call"])
async def test_an_unreadable_call_is_reported_as_such(reason: str, asking: Asking) -> None:
    streamed = await asking.ask("openai", Step("", reason=reason))
    assert streamed.text("ERROR") == "模型想调用工具，但它的请求无法读懂。"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tools", [[], ["down"]])
async def test_a_call_without_offered_tools_is_reported_as_such(
    form: str, tools: list[str], asking: Asking
) -> None:
    """Discriminates: advice on MAX_TOOL_STEPS although there was no step."""
    streamed = await asking.ask(form, Step("", [("c1", "t__echo", {"text": "a"})]), tools=tools)
    assert streamed.text("ERROR") == "模型想调用工具，但本轮没有可用的工具。"


async def made_up(asking: Asking, form: str) -> str:
    """A session of two turns as imported; the ids and names of its calls are invalid or identical."""
    function = {"name": "functions.find it", "arguments": "{}"}
    messages = [
        {"role": "user", "content": "天气？"},
        {"role": "assistant", "tool_calls": [{"id": "functions.find:0", "function": function}]},
        {"role": "tool", "tool_call_id": "functions.find:0", "content": "晴"},
        {"role": "assistant", "content": "晴天。"},
    ]
    reply = await asking.app.client.post("/sessions/import", json={"messages": messages})
    session_id: str = reply.json()["session_id"]
    for name in ("t__echo", "no\n such <|im_start|> tool" * 9):
        steps = (Step("", [("call_0", name, {"text": "晴"})]), Step("好。"))
        await asking.ask(form, *steps, session_id=session_id)
    return session_id


@pytest.mark.parametrize("form", FORMS)
async def test_ids_and_names_are_sent_in_a_form_every_provider_accepts(form: str, asking: Asking) -> None:
    """Discriminates: a request that a provider refuses, in this turn and in every later one."""
    session_id = await made_up(asking, form)
    streamed = await asking.ask(form, Step("好。"), session_id=session_id, tools=[])
    sent = asking.stub.raw_bodies[0].decode()
    assert asking.stub.calls(0) == list(asking.stub.results(0))
    assert len(set(asking.stub.calls(0))) == len(asking.stub.calls(0)) == 3
    names = {
        name for call in re.findall(r'"(?:function|tool_use)".*?"name":"(.*?)"', sent) for name in [call]
    }
    assert len(names) == 3
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", each) for each in (*names, *asking.stub.calls(0)))
    prompt = (await asking.app.client.get(f"/turns/{streamed.finished['turn_id']}/prompt")).json()
    assert prompt["request"]["exact"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (
            {"tools": ["nothing"]},
            404,
            "tools: 'nothing' is unknown. Configured: a__b, asks, down, search_knowledge, t.",
        ),
        ({"tools": ["t"], "model_id": "quotes"}, 422, "tools: model 'quotes' cannot call tools."),
        ({"tools": ["asksmore__x"]}, 404, "tools: 'asksmore__x' is unknown."),
        ({"tools": "t"}, 422, "tools"),
        ({"tools": [""]}, 422, "tools"),
        ({"tools": ["t"] * 40}, 422, "tools"),
    ],
)
async def test_unavailable_tools_are_refused_before_the_first_byte(
    body: dict[str, Any], status: int, words: str, asking: Asking
) -> None:
    reply = await asking.app.client.post(CHAT, json={"question": WEATHER, "model_id": "openai", **body})
    assert reply.status_code == status
    error = reply.json()["error"]
    assert words in error["message"]
    assert (error["code"] == "unknown_tool") == (status == 404)


async def test_stopping_a_turn_cancels_the_running_call(asking: Asking) -> None:
    turn_id = str(uuid.uuid4())
    call = Step("", [("c1", "t__write_slowly", {})])
    asked = asyncio.create_task(asking.ask("openai", call, turn_id=turn_id))
    await until(lambda: "write_slowly" in calls_made(asking.folder))
    assert (await asking.app.client.post(f"/turns/{turn_id}/stop")).json()["stopped"]
    streamed = await asked
    assert streamed.finished["status"] == "cancelled"
    assert [use["state"] for use in (await asking.turn(streamed))["tool_calls"]] == ["interrupted"]


async def test_a_server_that_is_down_is_a_warning_and_the_question_is_answered(asking: Asking) -> None:
    streamed = await asking.ask("openai", Step("好。"), tools=["down", "t__echo"])
    assert streamed.answer == "好。"
    assert asking.stub.offered(0) == ["t__echo"]
    turn = await asking.turn(streamed)
    assert [each["code"] for each in turn["warnings"]] == ["tools_unavailable"]


async def test_a_mistyped_tool_is_a_warning(asking: Asking) -> None:
    """Discriminates: answering without it as if it had not been asked for."""
    streamed = await asking.ask("openai", Step("好。"), tools=["t__ehco", "t__echo", "down__any"])
    assert asking.stub.offered(0) == ["t__echo"]
    warnings = {each["code"]: each for each in (await asking.turn(streamed))["warnings"]}
    assert set(warnings) == {"tools_missing", "tools_unavailable"}
    assert warnings["tools_missing"]["tools"] == 1


async def test_a_conversation_with_tools_is_exported_and_imported(asking: Asking) -> None:
    steps = (Step("看看。", [("c1", "t__echo", {"text": "晴"})]), Step("晴。"))
    streamed = await asking.ask("openai", *steps)
    client = asking.app.client
    export = (await client.get(f"/sessions/{streamed.session_id}/export?format=json")).json()
    stored = export["turns"][0]["tool_calls"]
    assert [(use["id"], use["result"]) for use in stored] == [("c1", "晴")]
    markdown = (await client.get(f"/sessions/{streamed.session_id}/export?format=md")).text
    assert "t\\_\\_echo" in markdown
    assert (await client.delete(f"/sessions/{streamed.session_id}")).status_code == 200
    imported = await client.post("/sessions/import", json=export)
    assert imported.status_code == 201, imported.text
    again = (await client.get(f"/sessions/{streamed.session_id}/export?format=json")).json()
    assert again["turns"][0]["tool_calls"] == stored


async def test_imported_messages_with_tools_reach_the_model_without_an_orphan(asking: Asking) -> None:
    """Discriminates: a result without a call, or a call without a result, in the sent bytes."""
    call = {"type": "function", "function": {"name": "find", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "天气？"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", **call}, {"id": "b", **call}]},
        {"role": "tool", "tool_call_id": "a", "content": "晴"},
        {"role": "tool", "tool_call_id": "zzz", "content": "orphan"},
        {"role": "assistant", "content": "晴天。"},
    ]
    reply = await asking.app.client.post("/sessions/import", json={"messages": messages})
    assert reply.status_code == 201, reply.text
    for form in FORMS:
        await asking.ask(form, Step("好。"), tools=[], session_id=reply.json()["session_id"])
        assert asking.stub.calls(0) == list(asking.stub.results(0)) == ["a"]
        assert b"orphan" not in asking.stub.raw_bodies[0]


@pytest.mark.parametrize("form", FORMS)
async def test_neither_the_budget_nor_a_summary_splits_a_pair(form: str, tmp_path: Path) -> None:
    """Discriminates: a call without its result where the window ends, or where a summary begins."""
    messages = lighthouses(12, words=12)
    with calling_tools(Step("Nothing.")) as stub:
        llms = {name: {**table, "context_window": 3_000} for name, table in both_forms(stub).items()}
        conversation = {"max_recent_turns": 8, "compress_after_tokens": 200}
        settings = make_settings(tmp_path, models={"llms": llms}, conversation=conversation)
        async with open_app(settings) as app:
            reply = await app.client.post("/sessions/import", json={"messages": messages})
            session = {"session_id": reply.json()["session_id"], "model_id": form, "knowledge": "never"}
            for question in ("And now?", "And again?"):
                await app.ask(question, **session)
                await app.container.summaries.idle()
        sent = [at for at, body in enumerate(stub.bodies) if "And " in str(body["messages"][-1]["content"])]
        pairs = [(stub.calls(at), list(stub.results(at))) for at in sent]
    assert len(pairs) == 2
    for calls_sent, results_sent in pairs:
        assert calls_sent == results_sent
        assert 0 < len(calls_sent) < 16
        assert len(calls_sent) % 2 == 0


async def test_a_server_that_is_down_is_reported_and_nothing_waits_for_it(asking: Asking) -> None:
    reply = await asking.app.client.get("/health/ready")
    assert (reply.status_code, reply.json()["status"]) == (200, "degraded")
    assert reply.json()["warnings"] == {"tools.down": "Its program is not installed."}


async def test_a_call_that_writes_waits_for_a_person_who_approves_one_and_refuses_another(
    asking: Asking,
) -> None:
    """Discriminates: a call that is made before the decision, or despite a refusal."""
    turn_id = str(uuid.uuid4())
    calls = [
        ("c1", "asks__note", {"text": "一"}),
        ("c2", "asks__note", {"text": "二"}),
        ("c3", "asks__echo", {"text": "三"}),
    ]
    before = calls_made(asking.folder).count("note")
    steps = (Step("", calls), Step("好。"))
    asked = asyncio.create_task(asking.ask("openai", *steps, tools=["asks"], turn_id=turn_id))
    await until(lambda: is_waiting(asking, turn_id, "c1") and is_waiting(asking, turn_id, "c2"))
    assert calls_made(asking.folder).count("note") == before
    assert await decide(asking, turn_id, "c9", approve=True) == "unknown_tool_call"
    assert await decide(asking, str(uuid.uuid4()), "c1", approve=True) == "unknown_turn"
    assert await decide(asking, turn_id, "c1", approve=True) == ""
    assert await decide(asking, turn_id, "c2", approve=False) == ""
    streamed = await asked
    assert calls_made(asking.folder).count("note") == before + 1
    results = asking.stub.results(1)
    assert "noted: 一" in results["c1"]
    assert "The user refused this call, so it was not made." in results["c2"]
    assert "三" in results["c3"]
    states = [(each["call_id"], each["state"]) for each in streamed.statuses if each["stage"] == "tool"]
    for call_id, last in (("c1", "done"), ("c2", "refused")):
        assert next(state for each, state in states if each == call_id) == "waiting"
        assert [state for each, state in states if each == call_id][-1] == last
    assert await decide(asking, turn_id, "c1", approve=False) == "unknown_turn"
    turn = await asking.turn(streamed)
    assert [use["state"] for use in turn["tool_calls"]] == ["done", "refused", "done"]


async def test_a_call_that_nobody_approves_is_refused_in_the_end(tmp_path: Path) -> None:
    """Discriminates: an answer as one object, or that of a repeated turn, that does not say so."""
    call = Step("", [("c1", "asks__note", {"text": "x"})])
    turn_id = str(uuid.uuid4())
    with calling_tools() as stub:
        async with open_app(tool_settings(tmp_path, stub, tool_confirm_timeout_s=1)) as app:
            asking = Asking(app, stub, tmp_path)
            streamed = await asking.ask("anthropic", call, Step("好。"), tools=["asks"], turn_id=turn_id)
            body = {"question": WEATHER, "model_id": "anthropic", "tools": ["asks"], "knowledge": "never"}
            again = {**body, "turn_id": turn_id, "stream": False}
            whole = await app.client.post(CHAT, json=again)
    assert streamed.answer == "好。"
    assert "This call was not approved in time" in stub.results(1)["c1"]
    assert calls_made(tmp_path) == []
    assert [(each["code"], each["calls"]) for each in whole.json()["warnings"]] == [("tools_unapproved", 1)]
