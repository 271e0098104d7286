"""What servers tell of their models: each form as its documentation shows it, and what is made of none."""

from __future__ import annotations

import json
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

from core.errors import LLMUnavailableError
from services.adapters.http import open_model_client
from services.adapters.llms.catalogue import Catalogue
from services.llm_service import NO_WINDOW, WindowReply, known_window
from tests.support.models.stub_llm import in_thread

REPLIES = Path(__file__).parents[3] / "data" / "catalogues"
KEY = "sk-never-told"


@dataclass
class Telling:
    """Replies by path; others are 404. `paths` and `keys` as they came."""

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
def telling(replies: dict[str, Any]) -> Iterator[Telling]:
    server = Telling(replies)
    app = Starlette(routes=[Route("/{path:path}", server.reply, methods=["GET", "POST"])])
    with in_thread(app) as url:
        server.url = url
        yield server


def documented(name: str) -> Any:
    return json.loads((REPLIES / f"{name}.json").read_text("utf-8"))


async def window(server: Telling, model: str, provider: str = "openai") -> WindowReply:
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
    """Discriminates: the first model's window for every model; one that its server does not serve whole."""
    with telling({"/v1/models": documented(form)}) as server:
        assert await window(server, model) == WindowReply(tokens)
    assert f"Bearer {KEY}" in server.keys


async def test_what_is_guessed_of_each_family_is_no_more_than_a_server_tells() -> None:
    """The lengths are those that hosts, or its own document, tell of a model. Discriminates: a guess that the
    server would refuse; a family that nothing is known of."""
    reply = documented("families")
    with telling({"/v1/models": reply}) as server:
        for model in reply["data"]:
            listed = await window(server, model["id"])
            assert listed == WindowReply(model["context_length"])
            assert 0 < known_window(model["id"]) <= listed.tokens, model


async def test_claude_is_asked_for_the_one_model() -> None:
    with telling({"/v1/models/claude-opus-4-6": documented("anthropic")}) as server:
        assert await window(server, "claude-opus-4-6", "anthropic") == WindowReply(1_000_000)
        assert await window(server, "claude-none", "anthropic") == NO_WINDOW
    assert server.keys == {KEY, ""}


async def test_ollama_tells_its_setting_else_what_is_loaded_else_what_the_model_was_made_for() -> None:
    """Discriminates: the model's own length where the server cuts at less."""
    shown, models = documented("ollama_show"), documented("ollama")
    replies = {"/v1/models": models, "/api/show": shown, "/api/ps": {"models": []}}
    with telling(replies) as server:
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
async def test_nonsense_tells_nothing(reply: Any) -> None:
    """Discriminates: a window of a billion tokens, or a task that dies of a reply."""
    with telling({"/v1/models": reply}) as server:
        try:
            assert await window(server, "m") == NO_WINDOW
        except LLMUnavailableError:
            assert isinstance(reply, bytes)


async def test_a_reply_without_an_end_is_left() -> None:
    with telling({"/v1/models": b" " * 8_000_001 + b"{}"}) as server, pytest.raises(LLMUnavailableError):
        await window(server, "m")
