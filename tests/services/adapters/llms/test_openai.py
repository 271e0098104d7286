"""The adapter against a real HTTP server: what is sent, what is recorded of it, what refusals report."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage

from config.tables import LLMSettings
from core.errors import LLMRefusedError, LLMTruncatedError, LLMUnavailableError, StartRefusedError
from core.llm_wrapper import LLMStreamWrapper, StreamTimeouts
from core.prompt.exchange import Exchange, messages_key, rebuild_body, wire_messages
from core.prompt.messages import Message, Part, Role, ToolCall
from services.adapters.http import open_model_client
from services.adapters.llms.openai import OpenAILLM
from services.llm_service import answer_reserve, window_of
from tests.support.models.stub_llm import StubLLM, running_stub

KEY = "sk-never-recorded"
CALL = ToolCall("call_1", "find_fee", '{"市": "上海", "n": 1}')
TALK = [
    Message(Role.SYSTEM, '你是助手。\n"Quote" \\ / \u2028 \t', Part.SYSTEM),
    Message(Role.USER, "费用是多少? 🙂🏳️‍🌈", Part.RECENT, "t1"),
    Message(Role.ASSISTANT, "", Part.RECENT, "t1", tool_calls=(CALL,)),
    Message(Role.TOOL, '{"fee": 12.50}', Part.RECENT, "t1", tool_call_id="call_1"),
    Message(Role.ASSISTANT, "12.50 元", Part.RECENT, "t1", tool_calls=(CALL,)),
    Message(Role.TOOL, "", Part.RECENT, "t1", tool_call_id="call_1"),
    Message(Role.ASSISTANT, "完", Part.RECENT, "t1"),
    Message(Role.USER, "And its <fee>?", Part.QUESTION),
]
OPTIONS: dict[str, Any] = {
    "top_p": 0.95,
    "seed": 7,
    "stream_options": {"include_usage": True},
    "extra_body": {"chat_template_kwargs": {"enable_thinking": False}, "min_p": 1e-05},
}


@pytest.fixture
def stub() -> Iterator[StubLLM]:
    with running_stub(StubLLM()) as running:
        yield running


@asynccontextmanager
async def opened(stub: StubLLM, **entry: Any) -> AsyncIterator[LLMStreamWrapper]:
    settings = LLMSettings(**{"provider": "openai", "model": "qwen3", "base_url": stub.url, **entry})
    async with open_model_client(10) as client:
        yield LLMStreamWrapper(OpenAILLM(settings, KEY, client), StreamTimeouts())


async def ask(model: LLMStreamWrapper, messages: list[Message], exchange: Exchange) -> str:
    return "".join([delta.text async for delta in model.stream_chat(messages, exchange)])


def stored(exchange: Exchange) -> dict[str, Any]:
    """The parameters after a round trip through a JSON store."""
    remaining: dict[str, Any] = json.loads(json.dumps(exchange.params))
    return remaining


async def test_the_request_is_rebuilt_byte_for_byte_as_the_server_received_it(stub: StubLLM) -> None:
    """Discriminates: dropping the tool calls, ASCII escapes or blanks in the JSON, another order of keys."""
    exchange = Exchange()
    async with opened(stub, options=OPTIONS) as model:
        assert await ask(model, TALK, exchange) == "one two three"
    assert stub.raw_bodies == [exchange.body]
    assert exchange.sha256 == hashlib.sha256(stub.raw_bodies[0]).hexdigest()
    assert messages_key(exchange.params) == "messages"
    assert rebuild_body(stored(exchange), "messages", wire_messages(TALK)) == stub.raw_bodies[0]
    prompt = stub.bodies[0]["messages"]
    assert prompt[2] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "find_fee", "arguments": CALL.arguments},
            }
        ],
    }
    assert prompt[3] == {"role": "tool", "content": '{"fee": 12.50}', "tool_call_id": "call_1"}


async def test_the_parameters_hold_everything_but_the_messages_and_no_key(stub: StubLLM) -> None:
    exchange = Exchange()
    async with opened(stub, options=OPTIONS, max_tokens=300) as model:
        await ask(model, TALK, exchange)
    sent = {**stub.bodies[0], "messages": None}
    assert list(exchange.params.items()) == list(sent.items())
    assert exchange.params["max_tokens"] == 300
    assert exchange.params["chat_template_kwargs"] == {"enable_thinking": False}
    assert KEY not in repr(exchange)
    assert "费用" not in json.dumps(exchange.params, ensure_ascii=False)


async def test_a_secret_among_the_options_is_masked(stub: StubLLM) -> None:
    """Discriminates: masking by a name anywhere, which would take `max_tokens` or a tool's schema."""
    schema = {"type": "object", "properties": {"password": {"type": "string"}}}
    secret = {
        "provider_options": {"api_key": "sk-2", "access-token": "t"},
        "schema": schema,
        "ask_password": False,
    }
    exchange = Exchange()
    async with opened(stub, options={"extra_body": secret}) as model:
        await ask(model, TALK, exchange)
    assert stub.bodies[0]["provider_options"]["api_key"] == "sk-2"
    assert exchange.params["provider_options"] == {"api_key": "***", "access-token": "***"}
    assert exchange.params["schema"] == schema
    assert exchange.params["ask_password"] is False


@pytest.mark.parametrize("model_name", ["gpt-4o-mini", "gpt-5", "o3-mini"])
async def test_openais_own_models_are_rebuilt_too(stub: StubLLM, model_name: str) -> None:
    """Discriminates: LlamaIndex's renaming of the system role for some model names."""
    exchange = Exchange()
    async with opened(stub, model=model_name) as model:
        await ask(model, TALK, exchange)
    assert rebuild_body(stored(exchange), "messages", wire_messages(TALK)) == stub.raw_bodies[0]


async def test_a_flat_prompt_goes_to_the_completion_endpoint_and_is_rebuilt(stub: StubLLM) -> None:
    exchange, prompt = Exchange(), "系统\n\n用户: hi\n助手: "
    async with opened(stub, layout="flat") as model:
        deltas = [delta async for delta in model.stream(prompt, exchange)]
    assert "".join(delta.text for delta in deltas) == "one two three"
    assert deltas[-1].finish_reason == "stop"
    assert stub.paths == ["/v1/completions"]
    assert messages_key(exchange.params) == "prompt"
    wire = wire_messages([Message(Role.USER, prompt, Part.QUESTION)], "prompt")
    assert rebuild_body(stored(exchange), "prompt", wire) == stub.raw_bodies[0]


@pytest.mark.parametrize("layout", ["one_system", "flat"])
async def test_the_providers_figures_are_recorded_unchanged(stub: StubLLM, layout: str) -> None:
    stub.usage = {
        "prompt_tokens": 31,
        "completion_tokens": 3,
        "total_tokens": 34,
        "prompt_tokens_details": {"cached_tokens": 16},
        "prompt_cache_hit_tokens": 16,
    }
    exchange = Exchange()
    async with opened(stub, layout=layout) as model:
        stream = model.stream("hi", exchange) if layout == "flat" else model.stream_chat(TALK, exchange)
        deltas = [delta async for delta in stream]
    assert (deltas[-1].prompt_tokens, deltas[-1].completion_tokens) == (31, 3)
    assert exchange.response == {"id": "c", "model": "stub", "finish_reason": "stop", "usage": stub.usage}


@pytest.mark.parametrize(
    ("usage", "remaining"),
    [
        ({"prompt_tokens": None, "completion_tokens": "3", "x": [1]}, None),
        ({}, {}),
        ([1], {}),
        ("many", {}),
    ],
)
async def test_an_unknown_form_of_usage_does_not_spoil_the_answer(
    stub: StubLLM, usage: Any, remaining: dict[str, Any] | None
) -> None:
    stub.usage, exchange = usage, Exchange()
    async with opened(stub) as model:
        assert await ask(model, TALK, exchange) == "one two three"
    assert exchange.response.get("usage", {}) == (usage if remaining is None else remaining)


@pytest.mark.parametrize("status", [400, 401, 422, 503])
async def test_a_refusal_reports_its_status_and_records_the_request(stub: StubLLM, status: int) -> None:
    stub.status = status
    exchange = Exchange()
    async with opened(stub) as model:
        with pytest.raises(LLMRefusedError, match=f"HTTP {status}") as caught:
            await ask(model, TALK, exchange)
    assert (caught.value.status, caught.value.about_form) == (status, True)
    assert "secret" not in str(caught.value)
    assert exchange.body == stub.raw_bodies[-1]
    assert exchange.response == {"status": status}
    assert caught.value.transient is (status == 503)
    assert len(stub.bodies) == 1


@pytest.mark.parametrize("layout", ["one_system", "flat"])
async def test_an_incomplete_or_missing_answer_fails(stub: StubLLM, layout: str) -> None:
    async def whole(model: LLMStreamWrapper) -> None:
        stream = model.stream("hi") if layout == "flat" else model.stream_chat(TALK)
        assert [delta async for delta in stream]

    async with opened(stub, layout=layout) as model:
        stub.cut = True
        with pytest.raises(LLMTruncatedError):
            await whole(model)
        stub.raw = "data: [1, 2]\n\n"
        with pytest.raises(LLMUnavailableError, match="not an answer"):
            await whole(model)


async def test_the_recorded_bytes_are_those_of_the_last_attempt_even_if_unreachable() -> None:
    exchange = Exchange()
    async with opened(StubLLM(url="http://127.0.0.1:9/v1")) as model:
        with pytest.raises(LLMUnavailableError, match="could not be reached"):
            await ask(model, TALK, exchange)
    assert rebuild_body(exchange.params, "messages", wire_messages(TALK)) == exchange.body


async def test_a_truncated_answer_is_noticed_with_a_reused_exchange(stub: StubLLM) -> None:
    """Discriminates: taking the last call's finish reason for this one's."""
    exchange = Exchange(model="m")
    async with opened(stub) as model:
        await ask(model, TALK, exchange)
        stub.cut = True
        with pytest.raises(LLMTruncatedError):
            await ask(model, TALK, exchange)
    assert exchange.finish_reason is None


async def test_a_reused_exchange_starts_empty() -> None:
    exchange = Exchange(model="m", response_id="r", status=400)
    exchange.sent(b'{"messages":[]}')
    exchange.begin("n", exchange.layout)
    assert exchange == Exchange(model="n")
    assert (exchange.body, exchange.sha256, exchange.params, exchange.response) == (b"", "", {}, {})


async def test_max_tokens_is_no_more_than_the_room_reserved_for_the_answer(stub: StubLLM) -> None:
    """Discriminates: sending the configured max_tokens, which with a full prompt exceeds a small window."""
    entry = LLMSettings(provider="openai", model="m", base_url=stub.url, context_window=2_000)
    async with open_model_client(10) as client:
        llm = OpenAILLM(entry, KEY, client, answer_share=0.25)
        assert window_of(entry, llm) == 2_000
        await ask(LLMStreamWrapper(llm, StreamTimeouts()), TALK, Exchange())
    assert stub.bodies[0]["max_tokens"] == answer_reserve(entry.max_tokens, 2_000, 0.25) == 500


@pytest.mark.parametrize(
    ("model", "base_url", "own"),
    [
        ("o3-mini", None, True),
        ("gpt-5-mini", None, True),
        ("ft:o4-mini:us:x:1", "https://eu.api.openai.com/v1", True),
        ("gpt-4o", None, False),
        ("gpt-5-mini", "http://127.0.0.1:1/v1", False),
        ("openchat", None, False),
    ],
)
async def test_openais_reasoning_models_get_their_own_parameters(
    model: str, base_url: str | None, own: bool
) -> None:
    async with open_model_client(10) as client:
        llm = OpenAILLM(LLMSettings(provider="openai", model=model, base_url=base_url), KEY, client)
        exchange = Exchange()
        llm._request(TALK, exchange, flat=False)
    names = {"max_completion_tokens"} if own else {"max_tokens", "temperature"}
    assert set(exchange.params) == {"model", "messages", "stream"} | names


async def test_an_option_that_is_null_removes_its_parameter(stub: StubLLM) -> None:
    """Discriminates: options that replace the messages or switch the stream off."""
    options: dict[str, Any] = {
        "temperature": None,
        "max_tokens": None,
        "messages": [],
        "stream": False,
        "model": "other",
    }
    exchange = Exchange()
    async with opened(stub, options={**options, "seed": 1}) as model:
        assert await ask(model, TALK, exchange) == "one two three"
    assert list(stub.bodies[0]) == ["model", "messages", "stream", "seed"]
    assert (stub.bodies[0]["model"], stub.bodies[0]["stream"]) == ("qwen3", True)
    assert rebuild_body(stored(exchange), "messages", wire_messages(TALK)) == stub.raw_bodies[0]


@pytest.mark.parametrize("value", [float("nan"), datetime.date(2026, 1, 1), "\ud800"])
async def test_options_that_are_not_json_refuse_the_start(value: object) -> None:
    entry = LLMSettings(provider="openai", model="m", options={"x": value})
    async with open_model_client(10) as client:
        with pytest.raises(StartRefusedError, match="options of model 'm'"):
            OpenAILLM(entry, KEY, client)


async def test_llamaindexs_own_callers_are_supported_too(stub: StubLLM) -> None:
    entry = LLMSettings(provider="openai", model="m", base_url=stub.url)
    async with open_model_client(10) as client:
        llm = OpenAILLM(entry, f" {KEY}\n", client)
        parts = [part async for part in await llm.astream_chat([ChatMessage(content="hi")])]
        assert KEY not in repr(llm) + llm.model_dump_json()
    assert parts[-1].message.content == "one two three"
