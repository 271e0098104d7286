"""Any OpenAI-compatible endpoint: chat and completions, streamed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec
from pydantic import PrivateAttr
from yarl import URL

from config.tables import LLMSettings
from core.prompt.exchange import MESSAGES, PROMPT, Exchange, rebuild_body, wire_messages, wire_tools
from core.prompt.messages import Message
from services.adapters.http import Endpoint, endpoint
from services.adapters.llms.provider import (
    ANSWER_SHARE,
    AnswerReader,
    HttpLLM,
    WireEvent,
    configured,
    make_decoder,
    provider_error,
    without_none,
)

BASE_URL = "https://api.openai.com/v1"

_OWN_REASONING = re.compile(r"(ft:)?(o\d|gpt-([5-9]|\d\d))")
_LIMITS = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_NO_REASONS = frozenset({"", "null"})
_FIXED = ("model", MESSAGES, PROMPT, "stream", "tools")


class _Delta(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    text: Any = None
    finish_reason: Any = None


class _Chunk(WireEvent, gc=False):
    choices: list[_Choice] | None = None
    id: Any = None
    model: Any = None
    usage: Any = None


_decoded = make_decoder(_Chunk)


class OpenAILLM(HttpLLM):
    _chat: Endpoint = PrivateAttr()
    _completions: Endpoint = PrivateAttr()
    _own_reasoning: bool = PrivateAttr(default=False)

    def __init__(
        self,
        entry: LLMSettings,
        api_key: str,
        client: aiohttp.ClientSession,
        answer_share: float = ANSWER_SHARE,
    ) -> None:
        """The metadata's context window is 0 if neither the settings nor the model's name give it."""
        super().__init__(**configured(entry, answer_share))
        headers = {"Authorization": f"Bearer {api_key.strip()}"}
        self._client = client
        base_url = entry.base_url or BASE_URL
        self._chat = endpoint(base_url, "chat/completions", headers)
        self._completions = endpoint(base_url, "completions", headers)
        host = URL(base_url).host or ""
        self._own_reasoning = host.endswith("api.openai.com") and bool(_OWN_REASONING.match(self.model))

    def _request(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool
    ) -> tuple[Endpoint, bytes]:
        key = PROMPT if flat else MESSAGES
        own: dict[str, Any] = {"model": self.model, key: None, "stream": True, **self._limits(exchange)}
        own |= {} if flat else wire_tools(exchange.offer)
        params = without_none(own, self._options(exchange), _FIXED)
        body = rebuild_body(params, key, wire_messages(messages, key))
        exchange.sent(body)
        return (self._completions if flat else self._chat), body

    def _limits(self, exchange: Exchange) -> dict[str, Any]:
        """OpenAI's own reasoning models refuse `max_tokens` and any temperature but their default."""
        limits = super()._limits(exchange)
        return {"max_completion_tokens": limits["max_tokens"]} if self._own_reasoning else limits

    def _reader(self, exchange: Exchange) -> AnswerReader:
        return OpenAIReader(exchange)


class OpenAIReader(AnswerReader):
    """The end mark is a finish reason, or `[DONE]`, after which nothing is read."""

    def take(self, name: bytes, data: bytes) -> None:
        if not data.startswith(b"{"):
            bare = data.strip()
            if bare == b"[DONE]":
                self.complete = self.ended = True
            if bare in (b"", b"[DONE]"):
                return
        chunk = _decoded(data)
        if name == b"error":
            raise provider_error(chunk)
        self.has_events = True
        if chunk.choices:
            self._add_choice(chunk.choices[0])
        if chunk.usage is not None or not self.exchange.response_id:
            self._note(chunk)

    def _add_choice(self, choice: _Choice) -> None:
        delta = choice.delta
        if delta is None:  # from the completions endpoint, whose choices are text
            self._add(choice.text)
        else:
            if thinking := delta.reasoning_content or delta.reasoning:
                self.thinking.append(_plain(thinking))
            self._add(delta.content)
            if delta.tool_calls or delta.function_call:
                self._call(delta)
        reason = choice.finish_reason
        if isinstance(reason, str) and reason not in _NO_REASONS:
            self.complete = True
            self.finish("length" if reason.lower() in _LIMITS else reason)

    def _call(self, delta: _Delta) -> None:
        """`function_call` is the older format, which allows a single call."""
        pieces = (
            delta.tool_calls if isinstance(delta.tool_calls, list) else [{"function": delta.function_call}]
        )
        for piece in pieces:
            function = piece.get("function") if isinstance(piece, dict) else None
            if isinstance(function, dict):
                self.calls.add(
                    piece.get("index"), piece.get("id"), function.get("name"), function.get("arguments")
                )

    def _add(self, content: Any) -> None:
        if content.__class__ is str:
            if content:
                self.text.append(content)
        elif isinstance(content, list):
            for part in content:
                self._add_part(part)

    def _add_part(self, part: Any) -> None:
        if not isinstance(part, dict):
            return
        if part.get("type") in ("thinking", "reasoning"):
            self.thinking.append(_plain(part.get("thinking") or part.get("text")))
        else:
            self.text.append(_plain(part.get("text")))

    def _note(self, chunk: _Chunk) -> None:
        """Some first chunks have neither the response's id nor its model; the next ones do."""
        exchange = self.exchange
        if not exchange.response_id:
            exchange.response_id = chunk.id if isinstance(chunk.id, str) else ""
            exchange.response_model = chunk.model if isinstance(chunk.model, str) else None
        if isinstance(chunk.usage, dict):
            exchange.usage = chunk.usage
            self.count(chunk.usage.get("prompt_tokens"), chunk.usage.get("completion_tokens"))


def _plain(content: Any) -> str:
    """The text of a string, or of a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_plain(part.get("text")) for part in content if isinstance(part, dict))
    return ""
