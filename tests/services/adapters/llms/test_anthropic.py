"""Claude's Messages API against a real HTTP server: what is sent, and what is recorded of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from api.wiring.parts import api_key_for
from config.settings import ModelSettings
from config.tables import LLMSettings
from core.errors import LLMRefusedError, LLMTruncatedError, LLMUnavailableError, StartRefusedError
from core.llm_wrapper import LLMDelta, LLMStreamWrapper, StreamTimeouts
from core.prompt.exchange import Exchange, fielded, is_fielded, rebuild_fielded
from core.prompt.messages import Message, Part, Role, ToolCall
from services.adapters.http import open_model_client
from services.adapters.llms.anthropic import AnthropicLLM
from tests.support.models.provider_stub import Answer, ProviderStub, serving

KEY = "sk-ant-never-recorded"
TRANSCRIPTS = Path(__file__).parents[3] / "data" / "transcripts"
FINE = Answer([(TRANSCRIPTS / "anthropic.sse").read_bytes()])
CALLS = (ToolCall("call_1", "find_fee", '{"市": "上海", "n": 1.50}'), ToolCall("call_2", "find", "no json"))
TALK = [
    Message(Role.SYSTEM, '你是助手。\n"Quote" \\ / \u2028 \t', Part.PERSONA),
    Message(Role.SYSTEM, "Be brief.", Part.SYSTEM),
    Message(Role.USER, "费用是多少? 🙂🏳️‍🌈", Part.RECENT, "t1"),
    Message(Role.ASSISTANT, "", Part.RECENT, "t1", tool_calls=CALLS),
    Message(Role.TOOL, '{"fee": 12.50}', Part.RECENT, "t1", tool_call_id="call_1"),
    Message(Role.TOOL, "", Part.RECENT, "t1", tool_call_id="call_2"),
    Message(Role.ASSISTANT, "12.50 元", Part.RECENT, "t1"),
    Message(Role.USER, "And its <fee>?", Part.QUESTION),
]


@asynccontextmanager
async def opened(answer: Answer, **entry: Any) -> AsyncIterator[tuple[ProviderStub, AnthropicLLM]]:
    async with serving(answer) as stub, open_model_client(10) as client:
        table = {"provider": "anthropic", "model": "claude-sonnet-4-5", "base_url": stub.url, **entry}
        yield stub, AnthropicLLM(LLMSettings(**table), KEY, client)


async def deltas_of(llm: AnthropicLLM, exchange: Exchange | None = None) -> list[LLMDelta]:
    wrapper = LLMStreamWrapper(llm, StreamTimeouts())
    return [delta async for delta in wrapper.stream_chat(TALK, exchange)]


async def test_the_request_follows_claudes_api_and_is_rebuilt_byte_for_byte() -> None:
    """Discriminates: the system text among the messages or in the record; tools in OpenAI's form."""
    exchange = Exchange()
    async with opened(FINE, temperature=1.5, max_tokens=300, options={"top_k": 5}) as (stub, llm):
        deltas = await deltas_of(llm, exchange)
    assert "".join(delta.text for delta in deltas).startswith("27 * 453 = 12,231")
    assert "".join(delta.thinking for delta in deltas) == "先看 27 × 453…"
    sent = stub.requests[0]
    assert sent.path == "/v1/messages"
    assert (sent.headers["x-api-key"], sent.headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "authorization" not in sent.headers
    body = json.loads(sent.body)
    keys = ["model", "max_tokens", "system", "messages", "stream", "temperature", "tools", "tool_choice"]
    assert list(body) == [*keys, "top_k"]
    assert [tool["name"] for tool in body["tools"]] == ["find_fee", "find"]  # else calls are refused
    assert body["tool_choice"] == {"type": "none"}
    assert (body["max_tokens"], body["temperature"]) == (300, 1.0)
    assert body["system"] == '你是助手。\n"Quote" \\ / \u2028 \t\n\nBe brief.'
    assert [message["role"] for message in body["messages"]] == [
        "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    remaining = json.loads(json.dumps(exchange.params))
    assert (remaining["system"], remaining["messages"]) == (None, None)
    assert "助手" not in json.dumps(remaining, ensure_ascii=False)
    assert KEY not in repr(exchange) + repr(llm)
    assert is_fielded(remaining)
    assert rebuild_fielded(remaining, TALK) == sent.body == exchange.body


async def test_tool_messages_are_content_blocks() -> None:
    assistant, results = fielded(TALK).messages[1:3]
    assert assistant["content"] == [
        {"type": "tool_use", "id": "call_1", "name": "find_fee", "input": {"市": "上海", "n": 1.5}},
        {"type": "tool_use", "id": "call_2", "name": "find", "input": {"arguments": "no json"}},
    ]
    assert results["content"] == [
        {"type": "tool_result", "tool_use_id": "call_1", "content": '{"fee": 12.50}'},
        {"type": "tool_result", "tool_use_id": "call_2", "content": ""},
    ]


@pytest.mark.parametrize("arguments", ["[1]", "7", '{"a": NaN}', '{"a": "\\ud800"}', '{"a":' * 100_000, ""])
def test_arguments_that_are_not_a_json_object_are_kept_as_text(arguments: str) -> None:
    call = Message(Role.ASSISTANT, "x", Part.RECENT, tool_calls=(ToolCall("c", "f", arguments),))
    text, use = fielded([call]).messages[0]["content"]
    assert text == {"type": "text", "text": "x"}
    assert use["input"] == {"arguments": arguments}


async def test_a_flat_prompt_is_one_user_message() -> None:
    exchange = Exchange()
    async with opened(FINE) as (stub, llm):
        assert [delta async for delta in LLMStreamWrapper(llm, StreamTimeouts()).stream("系统 hi", exchange)]
    assert json.loads(stub.requests[0].body)["messages"] == [{"role": "user", "content": "系统 hi"}]
    assert "system" not in exchange.params


async def test_the_providers_figures_are_recorded() -> None:
    exchange = Exchange()
    async with opened(FINE) as (_, llm):
        deltas = await deltas_of(llm, exchange)
    assert (deltas[-1].finish_reason, deltas[-1].prompt_tokens, deltas[-1].completion_tokens) == (
        "stop",
        31,
        89,
    )
    assert exchange.response == {
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
        "model": "claude-sonnet-4-5-20250929",
        "finish_reason": "stop",
        "usage": {
            "input_tokens": 25,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 6,
            "output_tokens": 89,
        },
    }


@pytest.mark.parametrize(
    ("stop_reason", "reason"), [("max_tokens", "length"), ("stop_sequence", "stop"), ("refusal", "refusal")]
)
async def test_stop_reasons_are_normalised(stop_reason: str, reason: str) -> None:
    raw = (TRANSCRIPTS / "anthropic.sse").read_bytes().replace(b"end_turn", stop_reason.encode())
    async with opened(Answer([raw])) as (_, llm):
        assert (await deltas_of(llm))[-1].finish_reason == reason


async def test_an_answer_without_message_stop_is_incomplete() -> None:
    """Discriminates: taking the stop reason for the end."""
    raw = (TRANSCRIPTS / "anthropic.sse").read_bytes().partition(b"event: message_stop")[0]
    async with opened(Answer([raw])) as (_, llm):
        with pytest.raises(LLMTruncatedError):
            await deltas_of(llm)


@pytest.mark.parametrize(("kind", "passing"), [("overloaded_error", True), ("invalid_request_error", False)])
async def test_an_error_event_is_an_error_without_its_message(kind: str, passing: bool) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "secret upstream text"}}
    async with opened(Answer([b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n"])) as (_, llm):
        with pytest.raises(LLMUnavailableError, match="reported an error") as caught:
            await deltas_of(llm)
    assert caught.value.transient is passing
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("message", "about_form"),
    [("prompt is too long: 208310 tokens > 200000 maximum", False), ("messages: roles must alternate", True)],
)
async def test_a_refusal_is_reported_like_any_other(message: str, about_form: bool) -> None:
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    exchange = Exchange()
    async with opened(Answer([json.dumps(body).encode()], "400 Bad Request")) as (_, llm):
        with pytest.raises(LLMRefusedError) as caught:
            await deltas_of(llm, exchange)
    assert (caught.value.about_form, exchange.response) == (about_form, {"status": 400})


async def test_null_removes_a_parameter_and_thinking_removes_the_temperature() -> None:
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "system": "mine", "stream": False}
    for options in ({"temperature": None, "max_tokens": None}, thinking):
        async with opened(FINE, options=options) as (stub, llm):
            await deltas_of(llm)
        body = json.loads(stub.requests[0].body)
        assert "temperature" not in body
        assert (body["max_tokens"], body["stream"]) == (2048, True)
        assert body["system"] != "mine"


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_the_base_address_is_accepted_with_and_without_its_version(path: str) -> None:
    async with serving(FINE) as stub, open_model_client(10) as client:
        entry = LLMSettings(provider="anthropic", model="c", base_url=stub.url + path)
        await deltas_of(AnthropicLLM(entry, KEY, client))
    assert stub.requests[0].path == "/v1/messages"


def test_no_key_goes_to_a_provider_it_was_not_set_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Discriminates: using OPENAI_API_KEY for every provider; sending Claude's own key to another address."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    models = ModelSettings(openai_api_key="sk-openai", openai_base_url="http://gate/v1")
    own = LLMSettings(provider="anthropic", model="c")
    elsewhere = own.model_copy(update={"base_url": "http://gate/v1"})
    with pytest.raises(StartRefusedError, match="ANTHROPIC_API_KEY"):
        api_key_for("claude", own, models)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant")
    assert api_key_for("claude", own, models) == "sk-ant"
    assert api_key_for("claude", elsewhere, models) == "none"
    named = elsewhere.model_copy(update={"api_key_env": "ANTHROPIC_API_KEY"})
    assert api_key_for("claude", named, models) == "sk-ant"
    assert api_key_for("gpt", LLMSettings(provider="openai", model="g"), models) == "sk-openai"
    own_server = LLMSettings(provider="openai", model="g", base_url="http://elsewhere/v1")
    assert api_key_for("gpt", own_server, models) == "none"
