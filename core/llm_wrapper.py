"""The deltas of a model's stream, and streaming them from any LlamaIndex LLM, with timeouts.

The only place in core that names LlamaIndex.
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

    `finish_reason` and token counts are set when the provider sends them; "length" means that the answer hit
    a limit, whatever the provider calls it. `tool_calls` come complete, at the end of the answer.
    """

    text: str = ""
    thinking: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    tool_calls: tuple[ToolCall, ...] = ()


@runtime_checkable
class StreamsDeltas(Protocol):
    """A LlamaIndex LLM that streams deltas itself and records what it really sent."""

    def stream_deltas(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool = False
    ) -> AsyncGenerator[LLMDelta, None]:
        """Send messages that are already laid out; `flat`: as one text, to the completion endpoint.

        Every delta carries something: text, thinking, or how the answer ended. Closing the generator closes
        the model's connection. Raises LLMUnavailableError (LLMRefusedError with the status) and, if the
        stream ends without the provider's end marker, LLMTruncatedError.
        """
        ...


@runtime_checkable
class TakesTurns(Protocol):
    """A model of ours that answers only a limited number of questions at once."""

    def turn_to_ask(self) -> AbstractAsyncContextManager[StreamsDeltas]:
        """Wait until the model is loaded and has a free slot; yield what to ask while the slot is held.

        The wait does not count as the model's time to its first token. Raises LLMUnavailableError if the
        model cannot be had.
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
    """Seconds until a token, the first or the next, and for the whole answer, queueing included."""

    token_s: float = 60
    answer_s: float = 600


class LLMStreamWrapper:
    """One configured model. Closing the returned generator closes the model's connection."""

    def __init__(self, llm: LLM, timeouts: StreamTimeouts) -> None:
        self._llm = llm
        self._timeouts = timeouts

    def stream_chat(
        self, messages: Sequence[Message], exchange: Exchange | None = None
    ) -> AsyncGenerator[LLMDelta, None]:
        """Stream the answer to `messages`, recording request and response in `exchange`.

        Raises LLMUnavailableError on a refusal, a failure or a timeout (`busy` if the time went into waiting
        for our other answers), LLMTruncatedError if the answer broke off.
        """
        return self._timed(messages, exchange or Exchange(), flat=False)

    def stream(self, prompt: str, exchange: Exchange | None = None) -> AsyncGenerator[LLMDelta, None]:
        """Stream the answer to one flat prompt, through the model's completion endpoint."""
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
        """Yield what to ask: the model itself, or the slot of one that takes turns, awaited until `end`."""
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
    """Stream from a class named by its path; whatever it raises is translated into our errors."""
    try:
        async with aclosing(_plugin_responses(llm, messages, flat=flat)) as responses:
            async for response in responses:
                yield _delta(response, exchange)
    except WenmaiError:
        raise
    except Exception as error:  # plug-in boundary: no list of what third-party classes raise is complete
        log.warning(
            "llm_class_failed", llm=type(llm).__name__, error=type(error).__name__, where=where(error)
        )
        raise _plugin_error(error) from error


async def _plugin_responses(
    llm: LLM, messages: Sequence[Message], *, flat: bool
) -> AsyncGenerator[ChatResponse | CompletionResponse, None]:
    """Yield its stream; if it can only complete, the whole answer as a stream of one.

    That it cannot stream may show only at the first item: CustomLLM's `astream_chat` and `astream_complete`
    return a generator at once, which calls the class's own `stream_complete` when first read.
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
    """Take the HTTP status from the error if it has one, as the usual SDKs' errors do."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        message = f"The model's server refused the request (HTTP {status})."
        return LLMRefusedError(message, status, reason=str(error))
    failed = ModelFailure(Cause.CLASS_FAILED)
    return LLMUnavailableError("The model's class raised an error; the server's log has the details.", failed)


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
    """Record how the answer ended, for models that record nothing themselves."""
    exchange.finish_reason = delta.finish_reason or exchange.finish_reason
    if delta.completion_tokens is not None:
        exchange.usage = {"prompt_tokens": delta.prompt_tokens, "completion_tokens": delta.completion_tokens}
