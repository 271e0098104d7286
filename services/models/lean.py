"""Base class of our own providers: implements LlamaIndex's LLM interface by means of `stream_deltas`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    CompletionResponse,
    CompletionResponseGen,
    MessageRole,
)
from llama_index.core.llms.custom import CustomLLM

from core.llm_wrapper import LLMDelta
from core.prompt.exchange import Exchange
from core.prompt.messages import Message, Part, Role


class LeanLLM(CustomLLM):
    """A provider of ours. A subclass implements `metadata`, and `stream_deltas` as specified by
    core.llm_wrapper.StreamsDeltas."""

    @abstractmethod
    def stream_deltas(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool = False
    ) -> AsyncGenerator[LLMDelta, None]: ...

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """Serve LlamaIndex's own callers; turns do not use it. Options come from the configuration only."""
        return self._responses([_message(message) for message in messages])

    async def _responses(self, messages: Sequence[Message]) -> ChatResponseAsyncGen:
        text = ""
        async with aclosing(self.stream_deltas(messages, Exchange())) as deltas:
            async for delta in deltas:
                text += delta.text
                message = ChatMessage(role=MessageRole.ASSISTANT, content=text)
                yield ChatResponse(message=message, delta=delta.text)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=asyncio_run(self._whole(prompt)))

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        whole = self.complete(prompt, formatted)
        whole.delta = whole.text
        yield whole

    async def _whole(self, prompt: str) -> str:
        messages = [Message(Role.USER, prompt, Part.QUESTION)]
        async with aclosing(self.stream_deltas(messages, Exchange())) as deltas:
            return "".join([delta.text async for delta in deltas])


def _message(message: ChatMessage) -> Message:
    known = {role.value: role for role in Role}  # "developer" and the like are never ours
    return Message(known.get(message.role.value, Role.USER), message.content or "", Part.RECENT)
