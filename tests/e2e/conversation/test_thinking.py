"""Turns of models whose answers begin with thinking, or seem to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from tests.support.models.stub_llm import Refusal, StubLLM, running_stub
from tests.support.models.tool_stub import Step, calling_tools
from tests.support.servers.app import App, make_settings, open_app, scripted

ECHO = ("The tag is\n", "</think>\n", "as you asked.")


def settings(tmp_path: Path, *script: str | float, name: str) -> Settings:
    models: dict[str, Any] = {"llms": {"default": scripted(*script, model=name)}, "max_answer_chars": 1_000}
    return make_settings(tmp_path, models=models)


async def test_thinking_that_hit_a_limit_is_neither_answer_nor_history(tmp_path: Path) -> None:
    """Discriminates: sending half a thinking again as the answer, completed, which later prompts repeat."""
    async with open_app(settings(tmp_path, *["Hm, let me see. "] * 100, name="deepseek-r1:8b")) as app:
        turn = await app.ask("Why?", thinking=True)
        stored = (await app.client.get(f"/turns/{turn.finished['turn_id']}")).json()
    assert (turn.answer, len(turn.text("THINK"))) == ("", 1_000)
    assert (stored["status"], stored["answer"]) == ("failed", "")
    assert stored["thinking"] == turn.text("THINK")


async def test_a_model_wrongly_taken_for_thinking_answers_and_the_guess_is_corrected(
    tmp_path: Path,
) -> None:
    """Discriminates: a turn that does not correct the guess; content that is lost."""
    async with open_app(settings(tmp_path, "It is ", "so.", name="deepseek-r1:8b")) as app:
        first = await app.ask("Why?", thinking=True)
        second = await app.ask("Why?", thinking=True)
    assert (first.answer, first.text("THINK")) == ("It is so.", "It is so.")
    assert (second.answer, second.text("THINK")) == ("It is so.", "")


async def test_the_next_answer_after_an_echoed_tag_is_read_normally(tmp_path: Path) -> None:
    """Discriminates: learning from one answer, or counting answers with a plain one between them."""
    async with open_app(settings(tmp_path, *ECHO, name="m")) as app:
        model = app.container.llms.get("default")
        first = await app.ask("Say the tag.", thinking=True)
        assert not model.starts_in_thinking
        second = await app.ask("Why?", thinking=True)
        assert model.starts_in_thinking
        third = await app.ask("Why?", thinking=True)
    assert first.answer == second.answer == "".join(ECHO)
    assert (third.text("THINK"), third.answer) == ("The tag is", "as you asked.")


@pytest.mark.full("opens the whole application, more than once or for seconds")
async def test_the_thinking_time_is_sent_and_stored(tmp_path: Path) -> None:
    """Discriminates: a time that is only in the stream; a time for an answer without thinking."""
    script = ("<think>Hm", 0.05, ", so.</think>", "Yes.")
    async with open_app(settings(tmp_path, *script, name="m")) as app:
        turn = await app.ask("Why?", thinking=True)
        stored = (await app.client.get(f"/turns/{turn.finished['turn_id']}")).json()
    timings = turn.finished["timings_ms"]
    assert 40 <= timings["thinking"] == stored["timings_ms"]["thinking"] <= timings["generate"]
    async with open_app(settings(tmp_path, "Yes.", name="m")) as app:
        plain = await app.ask("Why?", thinking=True)
    assert "thinking" not in plain.finished["timings_ms"]


TEMPLATE = "chat_template_kwargs"


USUAL = frozenset({"model", "messages", "stream", "temperature", "max_tokens"})
"""Of every request, whatever is said of thinking."""


async def check_switches(
    app: App, stub: StubLLM, model: str, switches: tuple[object, object], usual: frozenset[str] = USUAL
) -> None:
    """What else is sent to this model with thinking on, and with thinking off."""
    for thinking, expected in zip((True, False), switches, strict=True):
        await app.ask("Why?", model_id=model, thinking=thinking)
        others = {name: value for name, value in stub.bodies[-1].items() if name not in usual}
        assert others == expected, (model, thinking)


async def test_the_thinking_switch_reaches_the_model_in_its_own_form(tmp_path: Path) -> None:
    """Discriminates: a switch that only changes the prompt; a switch that every model is sent."""
    switches: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "Qwen/Qwen3-8B": ({TEMPLATE: {"enable_thinking": True}}, {TEMPLATE: {"enable_thinking": False}}),
        "deepseek-v3.2": ({TEMPLATE: {"thinking": True}}, {TEMPLATE: {"thinking": False}}),
        "qwen3:8b": (
            {"think": True, "reasoning_effort": "medium"},
            {"think": False, "reasoning_effort": "none"},
        ),
        "Qwen/Qwen3-4B-Instruct-2507": ({}, {}),
        "m": ({}, {}),
    }
    with running_stub(StubLLM()) as stub:
        table = {"provider": "openai", "base_url": stub.url, "context_window": 32_000}
        llms = {model: {**table, "model": model} for model in switches}
        async with open_app(make_settings(tmp_path, models={"llms": llms})) as app:
            for model, expected in switches.items():
                await check_switches(app, stub, model, expected)


EFFORT, TYPE, ROUTED = "reasoning_effort", "thinking", "reasoning"


async def test_a_providers_own_host_is_sent_its_own_switch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stub represents the hosts, like a proxy that records what it receives. Discriminates: the form of
    another host for the same model."""
    hosts = (
        ("qwen-plus", "dashscope.aliyuncs.com", {"enable_thinking": True}, {"enable_thinking": False}),
        ("deepseek-v4-flash", "api.deepseek.com", {TYPE: {"type": "enabled"}}, {TYPE: {"type": "disabled"}}),
        ("gpt-5.2", "api.openai.com", {EFFORT: "medium"}, {EFFORT: "none"}),
        ("qwen/qwen3-32b", "openrouter.ai", {ROUTED: {"enabled": True}}, {ROUTED: {"enabled": False}}),
        ("gemini-3-pro", "generativelanguage.googleapis.com", {EFFORT: "medium"}, {EFFORT: "low"}),
    )
    with running_stub(StubLLM()) as stub:
        monkeypatch.setenv("http_proxy", stub.url.removesuffix("/v1"))
        table = {"provider": "openai", "context_window": 32_000}
        llms = {
            model: {**table, "model": model, "base_url": f"http://{host}/v1"} for model, host, *_ in hosts
        }
        async with open_app(make_settings(tmp_path, models={"llms": llms})) as app:
            for model, _, on, off in hosts:
                await check_switches(app, stub, model, (on, off), USUAL | {"max_completion_tokens"})


async def test_the_table_can_set_the_switch_in_its_own_options(tmp_path: Path) -> None:
    """Discriminates: options of the table that override the switch; ours beside the table's."""
    own = {"options": {"effort": "auto", "top_p": 0.5}, "thinking_on": {"effort": "high"}}
    with running_stub(StubLLM()) as stub:
        table = {"provider": "openai", "model": "qwen3-8b", "base_url": stub.url, "context_window": 32_000}
        settings = make_settings(tmp_path, models={"llms": {"default": {**table, **own}}})
        async with open_app(settings) as app:
            for thinking, effort in ((True, "high"), (False, "auto")):
                await app.ask("Why?", thinking=thinking)
                sent = stub.bodies[-1]
                assert (sent["effort"], sent["top_p"], TEMPLATE in sent) == (effort, 0.5, False)


async def test_claude_thinks_only_when_asked_to(tmp_path: Path) -> None:
    """Discriminates: a budget that leaves no room for the answer; a temperature beside it."""
    with calling_tools(Step("So.")) as stub:
        table = {"provider": "anthropic", "base_url": stub.claude_url, "api_key": "k", "max_tokens": 1_000}
        llms = {
            "default": {**table, "model": "claude-sonnet-4-5"},
            "new": {**table, "model": "claude-opus-4-8"},
        }
        async with open_app(make_settings(tmp_path, models={"llms": llms})) as app:
            await app.ask("Why?", thinking=True)
            await app.ask("Why?", thinking=True, model_id="new")
            await app.ask("Why?")
    by_budget, by_itself, without = stub.bodies
    assert by_budget["thinking"] == {"type": "enabled", "budget_tokens": 2_048}
    assert (by_budget["max_tokens"], "temperature" in by_budget) == (3_048, False)
    assert (by_itself["thinking"]["type"], by_itself["max_tokens"]) == ("adaptive", 1_000)
    assert ("thinking" in without, without["temperature"]) == (False, 0.2)


async def test_a_server_that_refuses_the_switch_is_asked_without_it(tmp_path: Path) -> None:
    """Discriminates: a guess of ours that makes a model unusable; a refusal with every question."""

    def strict(body: dict[str, Any]) -> Refusal | None:
        return Refusal(f"unknown: {TEMPLATE}") if TEMPLATE in body else None

    with running_stub(StubLLM(refuse=strict)) as stub:
        table = {"provider": "openai", "model": "qwen3-8b", "base_url": stub.url, "context_window": 32_000}
        async with open_app(make_settings(tmp_path, models={"llms": {"default": table}})) as app:
            answers = [(await app.ask("Why?")).answer for _ in range(2)]
    assert answers == ["one two three"] * 2
    assert [TEMPLATE in body for body in stub.bodies] == [True, False, False]


@pytest.mark.parametrize("script", [("<think>Hm.", "</think>", "Yes."), ("Hm.", "</think>", "Yes.")])
async def test_without_thinking_none_is_shown_or_stored(tmp_path: Path, script: tuple[str, ...]) -> None:
    """Discriminates: the thinking of a model that cannot switch it off, shown to a reader who asked for
    none."""
    async with open_app(settings(tmp_path, *script, name="deepseek-r1:8b")) as app:
        turn = await app.ask("Why?", thinking=False)
        stored = (await app.client.get(f"/turns/{turn.finished['turn_id']}")).json()
        by_default = await app.ask("Why?")
        shown = await app.ask("Why?", thinking=True)
    assert (turn.answer, turn.text("THINK")) == (by_default.answer, by_default.text("THINK")) == ("Yes.", "")
    assert (stored["thinking"], stored["answer"]) == ("", "Yes.")
    assert (shown.answer, shown.text("THINK")) == ("Yes.", "Hm.")
