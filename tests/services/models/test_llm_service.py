from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import structlog
from llama_index.core.base.llms.types import CompletionResponse, CompletionResponseGen, LLMMetadata
from llama_index.core.llms.custom import CustomLLM

from config.tables import LLMSettings
from core.errors import LLMRefusedError, LLMUnavailableError
from core.llm_wrapper import LLMStreamWrapper, StreamTimeouts
from core.prompt.exchange import Exchange, canonical_json, messages_key, rebuild_body, wire_messages
from core.prompt.layouts import lay_out
from core.prompt.messages import Layout, Message, Part, PromptTexts, Role
from services.adapters.http import open_model_client
from services.adapters.llms.openai import OpenAILLM
from services.llm_service import UNKNOWN_WINDOW, LayOut, ModelEntry, answer_reserve, known_window, window_of
from services.models.extractive import ExtractiveLLM
from tests.support.models.scripted_llm import RECORDED, ScriptedLLM
from tests.support.models.stub_llm import Refusal, StubLLM, running_stub
from tests.support.waiting import until

TEXTS = PromptTexts(system="Be brief.", relevant_intro="Earlier:", knowledge_intro="Passages:")
TALK = [
    Message(Role.SYSTEM, "Be brief.", Part.SYSTEM),
    Message(Role.USER, "Old?", Part.RELEVANT, "t1"),
    Message(Role.ASSISTANT, "Old.", Part.RELEVANT, "t1"),
    Message(Role.USER, "New?", Part.QUESTION),
]
TOO_LONG = Refusal("This model's maximum context length is 10 tokens.", code="context_length_exceeded")


def lay(layout: Layout) -> Sequence[Message]:
    return lay_out(TALK, layout, TEXTS)


def roles(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def no_system(body: dict[str, Any]) -> Refusal | None:
    return Refusal("System role not supported") if "system" in roles(body) else None


@pytest.fixture
def stub() -> Iterator[StubLLM]:
    with running_stub(StubLLM()) as running:
        yield running


@asynccontextmanager
async def opened(stub: StubLLM, layout: Layout = Layout.AUTO, **more: Any) -> AsyncIterator[ModelEntry]:
    settings = LLMSettings(provider="openai", model="m", base_url=stub.url)
    async with open_model_client(10) as client:
        llm = OpenAILLM(settings, "sk-secret", client)
        wrapper = LLMStreamWrapper(llm, StreamTimeouts(2, 5))
        yield entry(wrapper, layout, **more)


def entry(wrapper: LLMStreamWrapper, layout: Layout = Layout.AUTO, provider: str = "openai") -> ModelEntry:
    return ModelEntry("small", provider, "m", wrapper, layout, context_window=8_192, max_tokens=1_000)


async def reply_of(model: ModelEntry, exchange: Exchange, how: LayOut = lay) -> str:
    return "".join([delta.text async for delta in model.stream_laid(how, exchange)])


def test_auto_starts_with_the_safest_form() -> None:
    wrapper = LLMStreamWrapper(ExtractiveLLM(), StreamTimeouts())
    assert entry(wrapper).layout_now is Layout.ONE_SYSTEM
    assert entry(wrapper, provider="anthropic").layout_now is Layout.SYSTEM_FIELD
    assert entry(wrapper, Layout.MANY_SYSTEM).layout_now is Layout.MANY_SYSTEM


async def test_after_a_refusal_the_form_that_works_is_learned(stub: StubLLM) -> None:
    """Discriminates: not remembering it, which causes a refusal per turn; logging it at each token."""
    stub.refuse = no_system
    first, second = Exchange(), Exchange()
    async with opened(stub) as model:
        with structlog.testing.capture_logs() as logged:
            assert await reply_of(model, first) == "one two three"
            assert await reply_of(model, second) == "one two three"
    assert [roles(body)[0] for body in stub.bodies] == ["system", "user", "user"]
    assert stub.paths == ["/v1/chat/completions"] * 3
    assert first.layout is second.layout is model.layout_now is Layout.FLAT
    assert first.body == stub.raw_bodies[1]
    assert (
        rebuild_body(first.params, messages_key(first.params), wire_messages(lay(first.layout))) == first.body
    )
    assert first.response["finish_reason"] == "stop"
    assert "status" not in first.response
    (line,) = logged
    assert (line["event"], line["model_id"], line["layout"]) == ("model_layout_learned", "small", "flat")
    assert "next start" in line["note"]


async def test_from_an_accepted_form_nothing_is_learned(stub: StubLLM) -> None:
    exchange = Exchange()
    async with opened(stub) as model:
        assert await reply_of(model, exchange) == "one two three"
    assert (exchange.layout, model.learned.layout) == (Layout.ONE_SYSTEM, None)
    assert (exchange.model, len(stub.bodies)) == ("m", 1)


async def test_if_both_forms_are_refused_the_first_refusal_is_raised(stub: StubLLM) -> None:
    """Discriminates: raising the second; recording the second's request; learning before a token arrived."""
    stub.refuse = lambda body: Refusal("no", 400 if "system" in roles(body) else 422)
    exchange = Exchange()
    async with opened(stub) as model:
        with pytest.raises(LLMRefusedError) as caught:
            await reply_of(model, exchange)
    assert caught.value.status == 400
    assert len(stub.bodies) == 2
    assert (exchange.layout, exchange.body) == (Layout.ONE_SYSTEM, stub.raw_bodies[0])
    assert exchange.response == {"status": 400}
    assert (model.learned.layout, model.layout_now) == (None, Layout.ONE_SYSTEM)


@pytest.mark.parametrize("status", [404, 405])
async def test_a_server_without_chat_is_called_with_completions_from_then_on(
    stub: StubLLM, status: int
) -> None:
    """Discriminates: a flat user message to the chat endpoint; trying the chat endpoint again with each
    question."""
    stub.refuse = lambda body: None if "prompt" in body else Refusal("Not Found", status)
    exchange = Exchange()
    async with opened(stub) as model:
        assert await reply_of(model, exchange) == "one two three"
        assert (exchange.layout, exchange.body) == (Layout.FLAT, stub.raw_bodies[1])
        assert await reply_of(model, Exchange()) == "one two three"
    assert stub.paths == ["/v1/chat/completions", "/v1/completions", "/v1/completions"]
    assert stub.bodies[1]["prompt"].endswith("User: New?\nAssistant: ")


async def test_a_model_unknown_to_both_endpoints_is_reported_by_the_first(stub: StubLLM) -> None:
    stub.refuse = lambda body: Refusal("completion" if "prompt" in body else "no such model", 404)
    async with opened(stub) as model:
        with pytest.raises(LLMRefusedError) as caught:
            await reply_of(model, Exchange())
    assert caught.value.failure is not None
    assert (caught.value.failure.reason, model.learned.only_completes) == ("no such model", False)


@pytest.mark.parametrize("refusal", [TOO_LONG, Refusal("no", 401), Refusal("no", 403)])
async def test_another_cause_is_raised_at_once_and_nothing_is_learned(
    stub: StubLLM, refusal: Refusal
) -> None:
    """Discriminates: one overlong prompt leaving the model flat for ever."""
    stub.refuse = lambda body: refusal if "system" in roles(body) else None
    async with opened(stub) as model:
        with pytest.raises(LLMRefusedError):
            await reply_of(model, Exchange())
    assert (len(stub.bodies), model.learned.layout) == (1, None)


async def test_a_configured_form_is_never_changed(stub: StubLLM) -> None:
    stub.refuse = no_system
    async with opened(stub, Layout.ONE_SYSTEM) as model:
        with pytest.raises(LLMRefusedError):
            await reply_of(model, Exchange())
    assert len(stub.bodies) == 1


async def test_many_system_is_kept_even_if_a_second_system_message_is_refused(stub: StubLLM) -> None:
    """`auto` never sends one; `many_system` is what its operator asked for."""
    stub.refuse = lambda body: Refusal("one system message only") if roles(body).count("system") > 1 else None
    async with opened(stub) as model:
        assert await reply_of(model, Exchange()) == "one two three"
    async with opened(stub, Layout.MANY_SYSTEM) as model:
        with pytest.raises(LLMRefusedError):
            await reply_of(model, Exchange())


async def test_a_configured_flat_layout_is_a_completion(stub: StubLLM) -> None:
    exchange = Exchange()
    async with opened(stub, Layout.FLAT) as model:
        assert await reply_of(model, exchange) == "one two three"
    assert stub.paths == ["/v1/completions"]
    assert (exchange.layout, messages_key(exchange.params)) == (Layout.FLAT, "prompt")


async def test_a_judgement_reaches_a_model_without_system_messages(stub: StubLLM) -> None:
    stub.refuse = no_system
    async with opened(stub) as model:
        judged = [Message(Role.SYSTEM, "Judge.", Part.SYSTEM), Message(Role.USER, '{"a": 1}', Part.QUESTION)]
        assert await model.reply(judged) == "one two three"
    (message,) = stub.bodies[-1]["messages"]
    assert "Judge." in message["content"]
    assert '{"a": 1}' in message["content"]


@pytest.mark.slow("a call that falls silent is given up after two seconds")
@pytest.mark.full("works through many cases, for seconds")
async def test_a_second_form_that_falls_silent_is_not_learned(stub: StubLLM) -> None:
    def refuse(body: dict[str, Any]) -> Refusal | None:
        stub.pause_s = 4
        return no_system(body)

    stub.refuse = refuse
    async with opened(stub) as model:
        with pytest.raises(LLMUnavailableError, match="in time"):
            await reply_of(model, Exchange())
    assert model.learned.layout is None


@pytest.mark.parametrize("refuse", [lambda body: None, no_system])
async def test_a_cancelled_call_closes_the_models_connection(
    stub: StubLLM, refuse: Callable[[dict[str, Any]], Refusal | None]
) -> None:
    stub.refuse, stub.words, stub.pause_s = refuse, ("w ",) * 1_000, 0.01
    async with opened(stub) as model:
        async with aclosing(model.stream_laid(lay)) as deltas:
            async for _ in deltas:
                break
        await until(lambda: stub.left)
    assert stub.left == 1
    gc.collect()  # a generator left open would warn here


async def test_a_model_without_http_is_recorded_as_canonical_json() -> None:
    exchange = Exchange()
    model = entry(LLMStreamWrapper(ExtractiveLLM(), StreamTimeouts()))
    assert await reply_of(model, exchange)
    laid = lay(Layout.ONE_SYSTEM)
    assert exchange.body == canonical_json({"model": "m", "messages": wire_messages(laid)})
    assert exchange.params == {"model": "m", "messages": None}
    assert rebuild_body(exchange.params, messages_key(exchange.params), wire_messages(laid)) == exchange.body
    assert exchange.response == {"finish_reason": "stop"}


async def test_a_completion_without_http_is_recorded_as_its_prompt() -> None:
    exchange = Exchange()
    llm = ScriptedLLM(record_as="llm-service-flat")
    model = entry(LLMStreamWrapper(llm, StreamTimeouts()), Layout.FLAT)
    assert await reply_of(model, exchange) == "Hello"
    ((_, prompt),) = RECORDED["llm-service-flat"][0]
    assert exchange.body == canonical_json({"model": "m", "prompt": prompt})
    assert messages_key(exchange.params) == "prompt"


class Windowed(CustomLLM):
    """Reports the configured window; a negative one raises, as LlamaIndex's OpenAI does for a new model."""

    window: int

    @property
    def metadata(self) -> LLMMetadata:
        if self.window < 0:
            raise ValueError("Unknown model")
        return LLMMetadata(context_window=self.window)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        raise NotImplementedError

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("own_window", "window", "lines"), [(20_000, 20_000, 0), (3_900, 3_900, 1), (0, 8_192, 1), (-1, 8_192, 1)]
)
def test_a_window_is_the_classs_own_or_assumed_with_a_log_line(
    own_window: int, window: int, lines: int
) -> None:
    settings = LLMSettings(provider="llama_index:tests.x:Y", model="new")
    with structlog.testing.capture_logs() as logged:
        assert window_of(settings, Windowed(window=own_window), "mine") == window
    assert [line["event"] for line in logged] == ["model_window_unknown"] * lines
    assert all(line["model"] == "new" and "[llms.mine]" in line["set"] for line in logged)


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("gpt-4o-mini", 128_000),
        ("openai/gpt-4o", 128_000),
        ("gpt-4o-2031-01-01", 128_000),
        ("gpt-4-0613", 8_192),
        ("ft:gpt-4o-mini:us:x:1", 128_000),
        ("gpt-4-turbo-2024-04-09", 128_000),
        ("gpt-4.1-nano", 1_047_576),
        ("gpt-5-chat-latest", 128_000),
        ("claude-sonnet-4-5-20250929", 200_000),
        ("claude-2", 100_000),
        ("anthropic/claude-3.5-sonnet", 200_000),
        ("deepseek/deepseek-r1:free", 64_000),
        ("Qwen/Qwen2.5-7B-Instruct", 32_768),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", 131_072),
        ("moonshot-v1-8k", 8_192),
        ("glm-4.5-air", 128_000),
        ("qwen3:8b", 32_768),
        ("llama3.1:70b-instruct-q4_K_M", 131_072),
        ("Qwen/Qwen3.5-35B-A3B", 262_144),
        ("qwen3-4b-instruct-2507", 262_144),
        ("deepseek-v4-flash", 1_000_000),
        ("glm-4.7", 200_000),
        ("kimi-k2.5", 262_144),
        ("doubao-seed-1-6-251015", 256_000),
        ("doubao-1-5-pro-32k-250115", 32_768),
        ("doubao-1-5-pro-256k-250115", 256_000),
        ("doubao-1-5-thinking-pro-250415", 131_072),
        ("doubao-lite-4k-character-240828", 4_096),
        ("hunyuan-turbos-latest", 44_000),
        ("hunyuan-turbos-20250313", 32_000),
        ("hunyuan-t1-latest", 92_000),
        ("hunyuan-t1-vision-20250916", 40_000),
        ("hunyuan-standard-256K", 256_000),
        ("hunyuan-lite-vision", 36_000),
        ("ernie-4.5-turbo-128k", 131_072),
        ("ernie-4.5-turbo-32k", 32_768),
        ("ernie-4.5-8k-preview", 8_192),
        ("ernie-4.5-turbo-vl-32k-preview", 32_768),
        ("ernie-5.0-thinking-preview", 131_072),
        ("ernie-x1.1-preview", 65_536),
        ("ernie-x1-turbo-32k", 32_768),
        ("MiniMax-M2", 204_800),
        ("MiniMax-M1", 1_000_000),
        ("glm-4.5v", 65_536),
        ("glm-4-airx", 8_192),
        ("glm-4v-flash", 4_096),
        ("zai-org/GLM-5.2", 1_000_000),
        ("kimi-k2-0905-preview", 262_144),
        ("kimi-k2-0711-preview", 131_072),
        ("deepseek-vl2-small", 4_096),
        ("gpt-5.5-2026-04-23", 1_050_000),
        ("gemini-3-pro-preview", 1_048_576),
        ("claude-opus-4-8", 1_000_000),
        ("claude-sonnet-5-5", 1_000_000),
        ("anthropic/claude-sonnet-4.6", 1_000_000),
        ("claude-haiku-4-5-20251001", 200_000),
        ("gpt-5.4-mini", 400_000),
        ("mistral:7b", 32_768),
        ("codellama:7b", 0),
        ("gpt-4x", 0),
        ("gpt-4.9", 0),
        ("code-davinci-002", 0),
        ("somebody-7b", 0),
        ("", 0),
    ],
)
def test_the_windows_of_models_are_known_by_name(model: str, tokens: int) -> None:
    assert known_window(model) == tokens


def test_a_configured_window_is_used() -> None:
    with structlog.testing.capture_logs() as logged:
        settings = LLMSettings(provider="openai", model="m", context_window=600)
        assert window_of(settings, Windowed(window=20_000)) == 600
        assert window_of(LLMSettings(provider="extractive"), ExtractiveLLM()) == 32_768
    assert logged == []


def test_the_answer_gets_its_share_of_a_small_window_and_no_more_than_it_needs() -> None:
    assert answer_reserve(2_048, UNKNOWN_WINDOW, 0.25) == 2_048
    assert answer_reserve(2_048, 4_096, 0.25) == 1_024
    assert answer_reserve(300, 128_000, 0.25) == 300
