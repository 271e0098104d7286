"""What a model's stream is made of, and streaming from any LlamaIndex LLM as such deltas, with time-outs.

The one place in core that names LlamaIndex.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import structlog
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, MessageRole
from llama_index.core.llms.llm import LLM

from core.errors import Cause, LLMRefusedError, LLMUnavailableError, ModelFailure, WenmaiError, where
from core.prompt.exchange import MESSAGES, PROMPT, Exchange, wire_extras
from core.prompt.messages import Message, Part, Role, ToolCall


@dataclass(frozen=True, slots=True)
class LLMDelta:
    """What one read from the model adds: the text of any number of tokens, joined.

    `finish_reason` and token counts come when the provider sends them; "length" means that the answer met
    a limit, whatever the provider's own word for it is. `tool_calls` come whole, with the end of the answer.
    """

    text: str = ""
    thinking: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    tool_calls: tuple[ToolCall, ...] = ()


@runtime_checkable
class StreamsDeltas(Protocol):
    """A LlamaIndex LLM that streams deltas by itself and records what it really sent."""

    def stream_deltas(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool = False
    ) -> AsyncGenerator[LLMDelta, None]:
        """Send messages that are already laid out; `flat`: one text, for the completion side.

        Every yielded delta says something: text, thinking, or how the answer ended. Closing the generator
        closes the model's connection. Raises LLMUnavailableError (LLMRefusedError with the status) and,
        when the stream ended without the provider's end marker, LLMTruncatedError.
        """
        ...


@runtime_checkable
class TakesTurns(Protocol):
    """A model of ours that answers only so many questions at once."""

    def turn_to_ask(self) -> AbstractAsyncContextManager[StreamsDeltas]:
        """Wait until the model is loaded and has a place; gives what to ask while the place is held.

        The waiting is ours and no part of the model's time to its first token. Raises LLMUnavailableError
        when the model cannot be had.
        """
        ...


log = structlog.get_logger()

_ROLES = {
    Role.SYSTEM: MessageRole.SYSTEM,
    Role.USER: MessageRole.USER,
    Role.ASSISTANT: MessageRole.ASSISTANT,
    Role.TOOL: MessageRole.TOOL,
}


@dataclass(frozen=True, slots=True)
class StreamTimeouts:
    """Seconds until a token, the first or the next, and for the whole answer with its waiting for a turn."""

    token_s: float = 60
    answer_s: float = 600


class LLMStreamWrapper:
    """One model of the configuration. Closing the returned generator closes the model's connection."""

    def __init__(self, llm: LLM, timeouts: StreamTimeouts) -> None:
        self._llm = llm
        self._timeouts = timeouts

    def stream_chat(
        self, messages: Sequence[Message], exchange: Exchange | None = None
    ) -> AsyncGenerator[LLMDelta, None]:
        """Stream the answer to `messages`, noting request and response in `exchange`.

        Raises LLMUnavailableError on a refusal, a failure or a time-out (`busy` where the time went by in
        waiting for other answers of ours), LLMTruncatedError on an answer that broke off.
        """
        return self._timed(messages, exchange or Exchange(), flat=False)

    def stream(self, prompt: str, exchange: Exchange | None = None) -> AsyncGenerator[LLMDelta, None]:
        """The same for one flat prompt, through the model's completion side."""
        messages = [Message(Role.USER, prompt, Part.QUESTION)]
        return self._timed(messages, exchange or Exchange(), flat=True)

    async def _timed(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool
    ) -> AsyncGenerator[LLMDelta, None]:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeouts.answer_s
        async with self._turn(end) as llm, aclosing(_deltas(llm, messages, exchange, flat=flat)) as deltas:
            left = end - loop.time()
            try:
                while True:
                    async with asyncio.timeout_at(min(loop.time() + self._timeouts.token_s, end)):
                        delta = await anext(deltas, None)
                    if delta is None:
                        return
                    yield delta
            except TimeoutError as error:
                busy = isinstance(self._llm, TakesTurns) and left < self._timeouts.token_s
                failure = ModelFailure(Cause.BUSY if busy else Cause.TIMEOUT)
                raise LLMUnavailableError("The model did not answer in time.", failure, busy=busy) from error

    @asynccontextmanager
    async def _turn(self, end: float) -> AsyncIterator[LLM | StreamsDeltas]:
        """What to ask: the model itself, or for one that takes turns its place, waited for until `end`."""
        async with AsyncExitStack() as place:
            llm: LLM | StreamsDeltas = self._llm
            if isinstance(self._llm, TakesTurns):
                try:
                    async with asyncio.timeout_at(end):
                        llm = await place.enter_async_context(self._llm.turn_to_ask())
                except TimeoutError as error:
                    raise LLMUnavailableError(
                        "The model was busy or loading for too long.", ModelFailure(Cause.BUSY), busy=True
                    ) from error
            yield llm


def _deltas(
    llm: LLM | StreamsDeltas, messages: Sequence[Message], exchange: Exchange, *, flat: bool
) -> AsyncGenerator[LLMDelta, None]:
    if isinstance(llm, StreamsDeltas):
        return llm.stream_deltas(messages, exchange, flat=flat)
    exchange.note_messages(messages, PROMPT if flat else MESSAGES)
    return _plugin_deltas(llm, messages, exchange, flat=flat)


async def _plugin_deltas(
    llm: LLM, messages: Sequence[Message], exchange: Exchange, *, flat: bool
) -> AsyncGenerator[LLMDelta, None]:
    """Of a class named by its path: its own errors become ours, whatever they are."""
    try:
        async with aclosing(_plugin_responses(llm, messages, flat=flat)) as responses:
            async for response in responses:
                yield _delta(response, exchange)
    except WenmaiError:
        raise
    except Exception as error:  # the plug-in's edge: no list of what other people's classes raise is complete
        log.warning(
            "llm_class_failed", llm=type(llm).__name__, error=type(error).__name__, where=where(error)
        )
        raise _plugin_error(error) from error


async def _plugin_responses(
    llm: LLM, messages: Sequence[Message], *, flat: bool
) -> AsyncGenerator[ChatResponse | CompletionResponse, None]:
    """Its stream; where it can only complete, the whole answer as a stream of one.

    That it cannot stream may show at the first item only: CustomLLM's `astream_chat` and `astream_complete`
    give a generator at once, which calls the class's own `stream_complete` when it is first read.
    """
    begun = False
    try:
        async with aclosing(await _open_plugin(llm, messages, flat=flat)) as responses:
            async for response in responses:
                begun = True
                yield response
    except NotImplementedError:
        if begun:
            raise
    else:
        return
    yield await _whole(llm, messages, flat=flat)


async def _open_plugin(llm: LLM, messages: Sequence[Message], *, flat: bool) -> Any:
    if flat:
        return await llm.astream_complete(messages[0].content, formatted=True)
    return await llm.astream_chat([_chat_message(message) for message in messages])


async def _whole(llm: LLM, messages: Sequence[Message], *, flat: bool) -> ChatResponse | CompletionResponse:
    if flat:
        completion = await llm.acomplete(messages[0].content, formatted=True)
        completion.delta = completion.text
        return completion
    chat = await llm.achat([_chat_message(message) for message in messages])
    chat.delta = chat.message.content or ""
    return chat


def _plugin_error(error: Exception) -> LLMUnavailableError:
    """With the HTTP status where the class implies one, as the SDKs of the field do."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        message = f"The model's server refused the request (HTTP {status})."
        return LLMRefusedError(message, status, reason=str(error))
    failed = ModelFailure(Cause.CLASS_FAILED)
    return LLMUnavailableError("The model's class failed; the server's log says how.", failed)


def _chat_message(message: Message) -> ChatMessage:
    return ChatMessage(
        role=_ROLES[message.role], content=message.content, additional_kwargs=wire_extras(message)
    )


def _delta(response: ChatResponse | CompletionResponse, exchange: Exchange) -> LLMDelta:
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
    _note(exchange, delta)
    return delta


def _note(exchange: Exchange, delta: LLMDelta) -> None:
    """For models that record nothing themselves: what of the answer's end went by."""
    exchange.finish_reason = delta.finish_reason or exchange.finish_reason
    if delta.completion_tokens is not None:
        exchange.usage = {"prompt_tokens": delta.prompt_tokens, "completion_tokens": delta.completion_tokens}
