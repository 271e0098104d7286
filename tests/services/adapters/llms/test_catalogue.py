"""What servers report about their models: each form as documented, and the handling of missing ones."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import config
from core.errors import LLMUnavailableError
from services.adapters.http import open_model_client
from services.adapters.llms.catalogue import Catalogue
from services.llm_service import NO_WINDOW, WindowReply, known_window
from tests.support.models.stub_llm import in_thread

REPLIES = Path(__file__).parents[3] / "data" / "catalogues"
WINDOWS = Path(config.__file__).parent / "model_windows.toml"
KEY = "sk-never-told"


@dataclass
class Replying:
    """Replies by path; others are 404. `paths` and `keys` as received."""

    replies: dict[str, Any]
    paths: list[str] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    url: str = ""

    async def reply(self, request: Request) -> Response:
        self.paths.append(f"{request.method} {request.url.path}")
        self.keys |= {request.headers.get("authorization", ""), request.headers.get("x-api-key", "")}
        reply = self.replies.get(request.url.path)
        if isinstance(reply, bytes):
            return Response(reply, media_type="application/json")
        return JSONResponse({"error": "no"}, 404) if reply is None else JSONResponse(reply)


@contextmanager
def replying(replies: dict[str, Any]) -> Iterator[Replying]:
    server = Replying(replies)
    app = Starlette(routes=[Route("/{path:path}", server.reply, methods=["GET", "POST"])])
    with in_thread(app) as url:
        server.url = url
        yield server


def documented(name: str) -> Any:
    return json.loads((REPLIES / f"{name}.json").read_text("utf-8"))


async def window(server: Replying, model: str, provider: str = "openai") -> WindowReply:
    base = server.url if provider == "anthropic" else f"{server.url}/v1"
    async with open_model_client(5) as client:
        return await Catalogue(client, provider, base, KEY).window(model)


@pytest.mark.parametrize(
    ("form", "model", "tokens"),
    [
        ("vllm", "Qwen/Qwen3-8B", 16_384),
        ("openrouter", "deepseek/deepseek-r1", 64_000),
        ("moonshot", "kimi-k2.5", 262_144),
        ("groq", "llama-3.3-70b-versatile", 131_072),
        ("mistral", "mistral-small-latest", 131_072),
        ("openai", "gpt-4o", 0),
        ("vllm", "another", 0),
    ],
)
async def test_a_list_of_models_in_each_form(form: str, model: str, tokens: int) -> None:
    """Discriminates: using the first model's window for every model; a window that its server does not serve
    whole."""
    with replying({"/v1/models": documented(form)}) as server:
        assert await window(server, model) == WindowReply(tokens)
    assert f"Bearer {KEY}" in server.keys


async def test_the_guess_for_each_family_is_no_more_than_a_server_reports() -> None:
    """The lengths are those that hosts, or the model's own documentation, report. Discriminates: a guess that
    the server would refuse; a family without a guess."""
    reply = documented("families")
    with replying({"/v1/models": reply}) as server:
        for model in reply["data"]:
            listed = await window(server, model["id"])
            assert listed == WindowReply(model["context_length"])
            assert 0 < known_window(model["id"]) <= listed.tokens, model


async def test_claude_is_queried_for_the_configured_model_only() -> None:
    with replying({"/v1/models/claude-opus-4-6": documented("anthropic")}) as server:
        assert await window(server, "claude-opus-4-6", "anthropic") == WindowReply(1_000_000)
        assert await window(server, "claude-none", "anthropic") == NO_WINDOW
    assert server.keys == {KEY, ""}


async def test_ollama_reports_its_setting_else_the_loaded_length_else_the_models_own() -> None:
    """Discriminates: the model's own length although the server truncates at less."""
    shown, models = documented("ollama_show"), documented("ollama")
    replies = {"/v1/models": models, "/api/show": shown, "/api/ps": {"models": []}}
    with replying(replies) as server:
        assert await window(server, "qwen3:8b") == WindowReply(40_960, final=False)
        server.replies["/api/ps"] = documented("ollama_ps")
        assert await window(server, "qwen3:8b") == WindowReply(4_096)
        server.replies["/api/show"] = {**shown, "parameters": "temperature 0.6\nnum_ctx                 8192"}
        assert await window(server, "qwen3:8b") == WindowReply(8_192)
        assert "POST /api/show" in server.paths


@pytest.mark.parametrize(
    "reply",
    [[], {"data": 3}, {"data": [1, {"id": 5}, {"id": "m", "max_model_len": "9"}]}, b"no json", b"[" * 100_000,
     {"data": [{"id": "m", "max_model_len": -1}]}, {"data": [{"id": "m", "max_model_len": 10**12}]}],
)  # fmt: skip
async def test_nonsense_is_ignored(reply: Any) -> None:
    """Discriminates: a window of a billion tokens, or a task that crashes on a reply."""
    with replying({"/v1/models": reply}) as server:
        try:
            assert await window(server, "m") == NO_WINDOW
        except LLMUnavailableError:
            assert isinstance(reply, bytes)


async def test_an_endless_reply_is_abandoned() -> None:
    with replying({"/v1/models": b" " * 8_000_001 + b"{}"}) as server, pytest.raises(LLMUnavailableError):
        await window(server, "m")


RECORDED = ("openrouter", "later", "vllm", "mistral", "groq")
FAMILIES = {
    "openai": "openai", "anthropic": "anthropic", "deepseek": "deepseek", "qwen": "qwen",
    "mistralai": "mistral", "google": "gemini", "meta-llama": "llama", "z-ai": "glm", "moonshotai": "kimi",
    "bytedance-seed": "doubao", "tencent": "hunyuan", "baidu": "ernie", "minimax": "minimax",
}  # fmt: skip
"""Whoever made a model, as OpenRouter says it, and the table that has it."""
LESS = {
    ("openrouter", "qwen/qwen3-8b"): "without YaRN, as it is served by default, it reads 32,768",
    ("groq", "qwen/qwen3-32b"): "the same",
    ("openrouter", "qwen/qwen-plus"): "its dated versions read 131,072",
    ("openrouter", "google/gemma-3-4b-it"): "the smallest of the family reads 32,768",
    ("openrouter", "meta-llama/llama-4-maverick"): "others serve 131,072 (groq.json)",
    ("openrouter", "meta-llama/llama-4-scout"): "the same",
}
MORE = {
    "qwen/qwen3-235b-a22b-thinking-2507": "one host serves half of what the weights read, and tells it",
    "deepseek/deepseek-r1-distill-llama-70b": "the same, a quarter of what others serve",
    "meta-llama/Meta-Llama-3.1-8B-Instruct": "vLLM was started with so few, and tells it",
}
"""Where the table says less than half of what a recorded reply tells, or more, and why."""


async def windows_of(name: str) -> list[tuple[str, int]]:
    """Each model of a recorded list, and the window parsed from it."""
    reply = documented(f"recorded/{name}")
    with replying({"/v1/models": reply}) as server:
        return [(each["id"], (await window(server, each["id"])).tokens) for each in reply["data"]]


@pytest.mark.parametrize("name", RECORDED)
async def test_the_table_agrees_with_recorded_replies(name: str) -> None:
    """Discriminates: a guess that a server would refuse, a model without a guess, a guess far too low, a
    reason recorded for a model that needs none."""
    for model, tokens in await windows_of(name):
        guess = known_window(model)
        assert guess > 0, model
        assert (guess > tokens) == (model in MORE), (model, guess, tokens)
        assert (2 * guess < tokens) == ((name, model) in LESS), (model, guess, tokens)


def test_every_family_of_the_table_has_a_recorded_reply() -> None:
    vendors = {each["id"].partition("/")[0] for each in documented("recorded/openrouter")["data"]}
    assert {FAMILIES[vendor] for vendor in vendors} == set(tomllib.loads(WINDOWS.read_text("utf-8")))


@pytest.mark.parametrize(
    ("name", "model", "tokens"),
    [
        ("openrouter", "minimax/minimax-m3", 524_288),
        ("openrouter", "anthropic/claude-sonnet-4", 200_000),
        ("openrouter", "z-ai/glm-5.2", 1_024_000),
        ("openrouter", "baidu/ernie-4.5-vl-424b-a47b", 123_000),
        ("later", "google/gemini-3-pro-image", 65_536),
        ("vllm", "meta-llama/Meta-Llama-3.1-8B-Instruct", 8_096),
        ("mistral", "open-mixtral-8x7b", 32_768),
        ("groq", "moonshotai/kimi-k2-instruct-0905", 262_144),
    ],
)
async def test_a_recorded_list_is_parsed_correctly(name: str, model: str, tokens: int) -> None:
    """Discriminates: what a model could read rather than what its host serves."""
    assert dict(await windows_of(name))[model] == tokens


@pytest.mark.parametrize(
    ("name", "model", "reply"),
    [
        ("ollama_gemma3", "gemma3:4b", WindowReply(2_048)),
        ("ollama_gpt_oss", "gpt-oss:120b", WindowReply(131_072, final=False)),
    ],
)
async def test_a_recorded_reply_of_ollama(name: str, model: str, reply: WindowReply) -> None:
    shown = documented(f"recorded/{name}")["show"]
    with replying({"/v1/models": {"data": []}, "/api/show": shown, "/api/ps": {"models": []}}) as server:
        assert await window(server, model) == reply
    length = next(value for key, value in shown["model_info"].items() if key.endswith(".context_length"))
    assert 0 < known_window(model) <= length
