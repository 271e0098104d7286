"""What a model's server reports about its models: their names and context windows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import aiohttp
from yarl import URL

from core.errors import LLMRefusedError
from core.prompt.exchange import canonical_json
from services.adapters.http import Endpoint, endpoint, fetch_json
from services.adapters.llms import anthropic, openai
from services.llm_service import NO_WINDOW, ListedModel, WindowReply

OLLAMA_PORT = 11434
MIN_WINDOW, MAX_WINDOW = 512, 10_000_000  # bounds of a plausible window, in tokens
# vLLM and SGLang; OpenRouter, Moonshot and Together; Groq; Mistral; Anthropic
_WINDOWS = ("max_model_len", "context_length", "context_window", "max_context_length", "max_input_tokens")
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.M)


class Catalogue:
    """The models of one server, in its API's format. Raises LLMUnavailableError when it does not answer."""

    def __init__(
        self, client: aiohttp.ClientSession, provider: str, base_url: str | None, api_key: str
    ) -> None:
        self._client = client
        self._is_claude = provider == "anthropic"
        if self._is_claude:
            self._base = anthropic.base_of(base_url)
            self._headers = {"x-api-key": api_key.strip(), "anthropic-version": anthropic.VERSION}
        else:
            self._base = base_url or openai.BASE_URL
            self._headers = {"Authorization": f"Bearer {api_key.strip()}"}

    async def models(self) -> list[ListedModel]:
        """The models in the server's order. Also raises LLMRefusedError."""
        reply = await self._fetch("v1/models?limit=1000" if self._is_claude else "models")
        return list(_listed(reply))

    async def window(self, model: str) -> WindowReply:
        """The context window with which the server runs this model."""
        if self._is_claude:
            return WindowReply(_window(await self._fetch_or_none(f"v1/models/{model}")))
        listed = list(_listed(await self._fetch_or_none("models")))
        match = next((each for each in listed if each.name == model), ListedModel(model))
        if match.window:
            return WindowReply(match.window)
        is_ollama = match.owner == "library" or ":" in model or URL(self._base).port == OLLAMA_PORT
        return await self._ollama(model) if is_ollama else NO_WINDOW

    async def _ollama(self, model: str) -> WindowReply:
        """The server's own setting takes precedence over the model's design; which one applies is known only
        once the model is loaded."""
        shown = await self._fetch_or_none("api/show", canonical_json({"model": model}))
        if not isinstance(shown, dict):
            return NO_WINDOW
        if setting := _NUM_CTX.search(str(shown.get("parameters") or "")):
            return WindowReply(_checked(int(setting[1])))
        loaded = await self._fetch_or_none("api/ps")
        for each in _objects(loaded, "models"):
            if model in (each.get("name"), str(each.get("name")).removesuffix(":latest")):
                return WindowReply(_checked(each.get("context_length")))
        about = shown.get("model_info")
        made_for = about.items() if isinstance(about, dict) else ()
        tokens = next((value for name, value in made_for if name.endswith(".context_length")), 0)
        return WindowReply(_checked(tokens), final=False)

    async def _fetch_or_none(self, path: str, body: bytes | None = None) -> Any:
        """None if the server refuses the request."""
        try:
            return await self._fetch(path, body)
        except LLMRefusedError:
            return None

    async def _fetch(self, path: str, body: bytes | None = None) -> Any:
        return await fetch_json(self._client, self._endpoint(path), body)

    def _endpoint(self, path: str) -> Endpoint:
        path, _, query = path.partition("?")
        base = self._base.rstrip("/").removesuffix("/v1") if path.startswith("api/") else self._base
        to = endpoint(base, path, self._headers)
        return Endpoint(to.url.update_query(query), to.headers, to.proxy, to.proxy_headers) if query else to


def _objects(reply: Any, name: str) -> Iterator[dict[str, Any]]:
    items = reply.get(name) if isinstance(reply, dict) else None
    return (each for each in items if isinstance(each, dict)) if isinstance(items, list) else iter(())


def _listed(reply: Any) -> Iterator[ListedModel]:
    for each in _objects(reply, "data"):
        if isinstance(name := each.get("id"), str):
            yield ListedModel(name, _window(each), str(each.get("owned_by") or ""))


def _window(model: Any) -> int:
    """The first window that is present; of OpenRouter's two, the smaller one."""
    if not isinstance(model, dict):
        return 0
    serving = model.get("top_provider")
    windows = [_checked(model.get(name)) for name in _WINDOWS]
    served = _checked(serving.get("context_length")) if isinstance(serving, dict) else 0
    window = next(filter(None, windows), 0)
    return min(window, served) if window and served else window


def _checked(tokens: object) -> int:
    return tokens if type(tokens) is int and MIN_WINDOW <= tokens <= MAX_WINDOW else 0
