"""A LlamaIndex LLM that plays a script and records its calls.

Named in a test's settings as `llama_index:tests.support.models.scripted_llm:ScriptedLLM`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    CompletionResponse,
    CompletionResponseGen,
    LLMMetadata,
)
from llama_index.core.llms.custom import CustomLLM

from core.errors import LLMUnavailableError
from core.llm_wrapper import LLMStreamWrapper
from core.prompt.messages import Message

Step = str | float
"""A piece of text to send; a number is a pause in seconds; "!" fails like an unreachable model."""

RECORDED: dict[str, list[list[tuple[str, str]]]] = {}
"""The (role, content) messages of every call, by the LLM's `record_as`."""


class ScriptedLLM(CustomLLM):
    script: tuple[str | float, ...] = ("Hel", "lo")
    record_as: str = ""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="scripted", is_chat_model=True)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        self._record([("prompt", prompt)])
        return CompletionResponse(text="".join(step for step in self.script if isinstance(step, str)))

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        self._record([("prompt", prompt)])
        return (CompletionResponse(text="", delta=step) for step in self.script if isinstance(step, str))

    def script_for(self, messages: Sequence[ChatMessage]) -> Sequence[Step]:
        """Return the script for these messages; override it for a model that reacts to them."""
        return self.script

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        self._record([(message.role.value, message.content or "") for message in messages])
        return _play(self.script_for(messages))

    def _record(self, call: list[tuple[str, str]]) -> None:
        RECORDED.setdefault(self.record_as, []).append(call)


async def _play(script: Sequence[Step]) -> AsyncGenerator[ChatResponse, None]:
    for step in script:
        if isinstance(step, float | int):
            await asyncio.sleep(step)
        elif step == "!":
            raise LLMUnavailableError("The model's server could not be reached.")
        else:
            yield ChatResponse(message=ChatMessage(content=""), delta=step)


async def whole_answer(wrapper: LLMStreamWrapper, messages: Sequence[Message]) -> str:
    async with aclosing(wrapper.stream_chat(messages)) as deltas:
        return "".join([delta.text async for delta in deltas])
