"""Claude's Messages API, streamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec
from pydantic import PrivateAttr

from config.tables import LLMSettings
from core.prompt.exchange import MESSAGES, SYSTEM, Exchange, canonical_json, fielded, fielded_tools
from core.prompt.messages import Message, Role
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

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"

_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "model_context_window_exceeded": "length",
}
_PROMPT_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_FIXED = ("model", SYSTEM, MESSAGES, "max_tokens", "stream", "tools")


class _Block(msgspec.Struct, gc=False):
    text: Any = None
    thinking: Any = None
    stop_reason: Any = None
    type: Any = None
    id: Any = None
    name: Any = None
    input: Any = None
    partial_json: Any = None


class _Start(msgspec.Struct, gc=False):
    id: Any = None
    model: Any = None
    usage: Any = None


class _Event(WireEvent, gc=False):
    type: Any = None
    delta: _Block | None = None
    content_block: _Block | None = None
    index: Any = None
    message: _Start | None = None
    usage: Any = None


_decoded = make_decoder(_Event)


def base_of(base_url: str | None) -> str:
    """The base URL without the version."""
    return (base_url or BASE_URL).rstrip("/").removesuffix("/v1")


class AnthropicLLM(HttpLLM):
    _messages: Endpoint = PrivateAttr()

    def __init__(
        self,
        entry: LLMSettings,
        api_key: str,
        client: aiohttp.ClientSession,
        answer_share: float = ANSWER_SHARE,
    ) -> None:
        """The metadata's context window is 0 if neither the settings nor the model's name give it."""
        super().__init__(**configured(entry, answer_share))
        self._client = client
        headers = {"x-api-key": api_key.strip(), "anthropic-version": VERSION}
        self._messages = endpoint(base_of(entry.base_url), "v1/messages", headers)

    def _request(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool
    ) -> tuple[Endpoint, bytes]:
        """`flat` is ignored, as a flat prompt is already a single user message."""
        request = fielded(messages)
        # thinking before a tool call is signed and was not stored: after a call, thinking is off
        after_tools = bool(messages) and messages[-1].role is Role.TOOL
        options = self._options(exchange)
        options = {name: value for name, value in options.items() if name != "thinking" or not after_tools}
        thinking, limits = options.get("thinking"), self._limits(exchange)
        own: dict[str, Any] = {"model": self.model, "max_tokens": _room(limits["max_tokens"], thinking)}
        own |= {SYSTEM: request.system} if request.system else {}
        own |= {MESSAGES: request.messages, "stream": True}
        if not thinking:  # the API allows 0 to 1, and none beside thinking
            own["temperature"] = min(limits["temperature"], 1.0)
        own |= fielded_tools(exchange.offer, messages)
        body = canonical_json(without_none(own, options, _FIXED))
        exchange.sent(body, system_apart=True)
        return self._messages, body

    def _reader(self, exchange: Exchange) -> AnswerReader:
        return AnthropicReader(exchange)


def _room(max_tokens: int, thinking: object) -> int:
    """Thinking counts towards the answer's limit and must leave room for the answer."""
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    return max_tokens + budget if isinstance(budget, int) and budget >= max_tokens else max_tokens


class AnthropicReader(AnswerReader):
    """The end mark is `message_stop`. Signatures are left out."""

    def take(self, name: bytes, data: bytes) -> None:
        event = _decoded(data)
        self.has_events = True
        match event.type:
            case "content_block_delta":
                self._add_block(event.delta, event.index)
            case "content_block_start":
                self._add_block(event.content_block, event.index)
            case "message_delta":
                self._note_end(event)
            case "message_start" if event.message is not None:
                self._note_start(event.message)
            case "message_stop":
                self.complete = self.ended = True
            case "error":
                raise provider_error(event.error)

    def _add_block(self, block: _Block | None, index: Any) -> None:
        if block is None:
            return
        if block.type == "tool_use":  # its input is empty here and follows in pieces
            self.calls.add(index, block.id, block.name, block.input or None)
        elif block.partial_json:
            self.calls.add(index, None, None, block.partial_json)
        if isinstance(block.text, str) and block.text:
            self.text.append(block.text)
        if isinstance(block.thinking, str) and block.thinking:
            self.thinking.append(block.thinking)

    def _note_start(self, message: _Start) -> None:
        self.exchange.response_id = message.id if isinstance(message.id, str) else ""
        self.exchange.response_model = message.model if isinstance(message.model, str) else None
        self._note_usage(message.usage)

    def _note_end(self, event: _Event) -> None:
        self._note_usage(event.usage)
        reason = event.delta.stop_reason if event.delta is not None else None
        if isinstance(reason, str) and reason:
            self.finish(_REASONS.get(reason, reason))

    def _note_usage(self, usage: object) -> None:
        """The usage reported at the end overrides that at the beginning."""
        if not isinstance(usage, dict):
            return
        known = self.exchange.usage = {**self.exchange.usage, **usage}
        counts = [count for name in _PROMPT_COUNTS if isinstance(count := known.get(name), int)]
        self.count(sum(counts) if counts else None, known.get("output_tokens"))
