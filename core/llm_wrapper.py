"""Streaming from any LlamaIndex LLM as plain deltas, with time-outs.

The one place in core that names LlamaIndex.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    MessageRole,
)
from llama_index.core.llms.llm import LLM

from core.errors import LLMUnavailableError
from core.exchange import PROMPT, Exchange, RecordsExchange, wire_extras
from core.messages import Message, Part, Role

_ROLES = {
    Role.SYSTEM: MessageRole.SYSTEM,
    Role.USER: MessageRole.USER,
    Role.ASSISTANT: MessageRole.ASSISTANT,
    Role.TOOL: MessageRole.TOOL,
}


@dataclass(frozen=True, slots=True)
class LLMDelta:
    """What one chunk adds. `finish_reason` and token counts come when the provider tells them."""

    text: str = ""
    thinking: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class StreamTimeouts:
    """Seconds until the first token, between tokens, and for the whole answer."""

    first_token_s: float = 60
    token_s: float = 60
    answer_s: float = 600


class LLMStreamWrapper:
    """One model of the configuration. Closing the returned generator closes the model's connection."""

    def __init__(self, llm: LLM, timeouts: StreamTimeouts) -> None:
        self._llm = llm
        self._timeouts = timeouts
        self._llm_records = isinstance(llm, RecordsExchange)

    async def stream_chat(
        self, messages: Sequence[Message], exchange: Exchange | None = None, **options: Any
    ) -> AsyncGenerator[LLMDelta, None]:
        """Stream the answer to `messages`, noting request and response in `exchange`.

        Raises LLMUnavailableError on a refusal or a time-out.
        """
        options |= self._recording(exchange, messages)
        noted = None if self._llm_records else exchange
        chat = [_chat_message(message) for message in messages]
        async with aclosing(self._timed(self._llm.astream_chat(chat, **options))) as responses:
            async for response in responses:
                yield _delta(cast(ChatResponse, response), noted)

    async def stream(
        self, prompt: str, exchange: Exchange | None = None, **options: Any
    ) -> AsyncGenerator[LLMDelta, None]:
        """The same for one flat prompt, through the model's completion side."""
        options |= self._recording(exchange, [Message(Role.USER, prompt, Part.QUESTION)], PROMPT)
        noted = None if self._llm_records else exchange
        opening = self._llm.astream_complete(prompt, formatted=True, **options)
        async with aclosing(self._timed(opening)) as responses:
            async for response in responses:
                yield _delta(cast(CompletionResponse, response), noted)

    def _recording(self, exchange: Exchange | None, messages: Sequence[Message], *key: str) -> dict[str, Any]:
        """The option that has the model record; of any other the messages are noted here."""
        if exchange is None:
            return {}
        if self._llm_records:
            return {"exchange": exchange}
        exchange.given(messages, *key)
        return {}

    async def chat(self, messages: Sequence[Message], **options: Any) -> str:
        """The whole answer at once, for short judgements. Raises LLMUnavailableError."""
        async with aclosing(self.stream_chat(messages, **options)) as deltas:
            return "".join([delta.text async for delta in deltas])

    async def _timed(self, opening: Any) -> AsyncGenerator[Any, None]:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeouts.answer_s
        limit = self._timeouts.first_token_s
        try:
            async with asyncio.timeout(limit):
                responses = await opening
            async with aclosing(responses):
                while True:
                    async with asyncio.timeout_at(min(loop.time() + limit, end)):
                        response = await anext(responses, None)
                    if response is None:
                        return
                    limit = self._timeouts.token_s
                    yield response
        except TimeoutError as error:
            raise LLMUnavailableError("The model did not answer in time.") from error


def _chat_message(message: Message) -> ChatMessage:
    return ChatMessage(
        role=_ROLES[message.role], content=message.content, additional_kwargs=wire_extras(message)
    )


def _delta(response: ChatResponse | CompletionResponse, exchange: Exchange | None) -> LLMDelta:
    extra = response.additional_kwargs
    if not extra:
        return LLMDelta(response.delta or "")
    delta = LLMDelta(
        text=response.delta or "",
        thinking=extra.get("thinking_delta") or "",
        finish_reason=extra.get("finish_reason"),
        prompt_tokens=extra.get("prompt_tokens"),
        completion_tokens=extra.get("completion_tokens"),
    )
    if exchange is not None:
        _note(exchange, delta)
    return delta


def _note(exchange: Exchange, delta: LLMDelta) -> None:
    """For models that record nothing themselves: what of the answer's end went by."""
    exchange.finish_reason = delta.finish_reason or exchange.finish_reason
    if delta.completion_tokens is not None:
        exchange.usage = {
            "prompt_tokens": delta.prompt_tokens,
            "completion_tokens": delta.completion_tokens,
        }
