"""What our HTTP providers share: one POST, its answer as deltas, and how its parameters are assembled."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import aiohttp
import msgspec
import structlog
from llama_index.core.base.llms.types import LLMMetadata
from pydantic import Field, PrivateAttr

from config.tables import LLMSettings
from core.errors import (
    TRANSIENT_STATUSES,
    Cause,
    LLMRefusedError,
    LLMTruncatedError,
    LLMUnavailableError,
    ModelFailure,
    StartRefusedError,
)
from core.llm_wrapper import LLMDelta
from core.prompt.exchange import Exchange, canonical_json
from core.prompt.messages import Message, ToolCall
from core.text import scrub
from core.tools import MAX_ARGUMENT_CHARS, MAX_CALLS, MAX_NAME_CHARS
from services.adapters.http import MAX_REFUSAL_BYTES, Endpoint, EventReader, NotAnAnswerError, post_stream
from services.adapters.llms.switches import NOTHING, TEMPLATE, Options, ThinkingSwitch, switch_of
from services.llm_service import UNKNOWN_WINDOW, answer_reserve, known_window
from services.models.lean import LeanLLM

_PASSING_KINDS = frozenset(
    {"overloaded_error", "rate_limit_error", "rate_limit_exceeded", "server_error", "api_error"}
)


class WireEvent(msgspec.Struct, gc=False):
    """A provider's event. Fields whose type varies are Any: an odd one must not spoil an answer."""

    error: Any = None


E = TypeVar("E", bound=WireEvent)


_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # accepted by every provider


class CallReader:
    """Assembles tool calls, whose arguments arrive in pieces. Of those beyond the limit one is kept, so that
    the model is told about the limit."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._at: dict[object, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, index: object, call_id: object, name: object, arguments: object) -> None:
        """Add a piece. Some servers number no call, or all of them 0: a new id then means a new call."""
        call = self._at.get(index if isinstance(index, int) else None)
        if call is None or (isinstance(call_id, str) and call_id and call.call_id not in ("", call_id)):
            if len(self._calls) > MAX_CALLS:
                return
            call = _Call()
            self._calls.append(call)
            self._at[index if isinstance(index, int) else None] = call
        if isinstance(call_id, str) and call_id:
            call.call_id = call_id
        if isinstance(name, str) and name:
            call.name = call.name or name[: 2 * MAX_NAME_CHARS]
        call.add(arguments)

    def take(self) -> tuple[ToolCall, ...]:
        """Return all calls, complete, and forget them."""
        calls = tuple(call.whole() for call in self._calls)
        self._calls, self._at = [], {}
        return calls


class _Call:
    def __init__(self) -> None:
        self.call_id = self.name = ""
        self._arguments: list[str] = []
        self._length = 0

    def add(self, arguments: object) -> None:
        """Arguments that are too long are cut, and refused later as invalid JSON."""
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if isinstance(arguments, str) and self._length <= MAX_ARGUMENT_CHARS:
            self._arguments.append(arguments[: MAX_ARGUMENT_CHARS + 1])
            self._length += len(arguments)

    def whole(self) -> ToolCall:
        call_id = self.call_id if _CALL_ID.fullmatch(self.call_id) else f"call_{secrets.token_hex(8)}"
        return ToolCall(call_id, scrub(self.name), scrub("".join(self._arguments)) or "{}")


class AnswerReader(ABC):
    """Reads the events of one answer and records its metadata in `exchange`.

    `complete`: the provider's end mark was read; `ended`: nothing follows it.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self._events = EventReader()
        self.complete = self.ended = self.has_events = False
        self.failure: LLMUnavailableError | None = None
        self._no_event = bytearray()  # what arrived before the first event
        self.text: list[str] = []
        self.thinking: list[str] = []
        self.calls = CallReader()
        self.finish_reason: str | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.counted = False

    @abstractmethod
    def take(self, name: bytes, data: bytes) -> None:
        """Add the content of one event. Raises LLMUnavailableError."""

    def read(self, piece: bytes) -> LLMDelta | None:
        """The combined content of the piece's events, or None. A failure among them is raised by `check`.

        After the end mark nothing counts as a failure.
        """
        try:
            for name, data in self._events.feed(piece):
                self.take(name, data)
                if self.ended:
                    break
        except NotAnAnswerError as error:
            self._fail(NotAnAnswerError(Cause.GARBLED) if self.has_events else error)
        except LLMUnavailableError as error:
            self._fail(error)
        if not self.has_events:
            self._no_event += piece[: MAX_REFUSAL_BYTES - len(self._no_event)]
        if (
            self.text
            or self.thinking
            or self.finish_reason
            or (self.complete and (self.counted or self.calls))
        ):
            return self._delta()
        return None

    def _fail(self, error: LLMUnavailableError) -> None:
        self.ended = self.complete
        self.failure = None if self.complete else error

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def check_end(self) -> None:
        """Raises LLMTruncatedError if the answer has no end; if there was no answer, NotAnAnswerError or the
        error that came in its place."""
        if not self.has_events:
            raise _in_place_of_answer(bytes(self._no_event))
        if not self.complete:
            broke_off = ModelFailure(Cause.BROKE_OFF)
            raise LLMTruncatedError("The model's answer broke off before its end.", broke_off)

    def finish(self, reason: str) -> None:
        self.finish_reason = self.exchange.finish_reason = reason

    def count(self, prompt_tokens: object, completion_tokens: object) -> None:
        """Record the counts, unless they are not numbers."""
        if isinstance(prompt_tokens, int):
            self.prompt_tokens, self.counted = prompt_tokens, True
        if isinstance(completion_tokens, int):
            self.completion_tokens, self.counted = completion_tokens, True

    def _delta(self) -> LLMDelta:
        delta = LLMDelta(
            "".join(self.text),
            "".join(self.thinking),
            self.finish_reason,
            self.prompt_tokens,
            self.completion_tokens,
            self.calls.take() if self.complete and self.calls else (),
        )
        self.text.clear()
        self.thinking.clear()
        self.finish_reason, self.counted = None, False
        return delta


def make_decoder(kind: type[E]) -> Callable[[bytes], E]:
    """A decoder for JSON events of one kind. It raises NotAnAnswerError for anything but a JSON object, and
    LLMUnavailableError for an error that the provider reports."""
    decode = msgspec.json.Decoder(kind).decode

    def decoded(data: bytes) -> E:
        try:
            event = decode(data)
        except (ValueError, RecursionError):
            event = _leniently(data, kind)
        if event.error:
            raise provider_error(event.error)
        return event

    return decoded


def provider_error(error: object) -> LLMUnavailableError:
    """The domain error for an error reported in the middle of a stream."""
    code, kind = (error.get("code"), error.get("type")) if isinstance(error, dict) else (None, None)
    words = str(error.get("message") or "") if isinstance(error, dict) else str(error)
    failure = ModelFailure(Cause.REFUSED, status=code if isinstance(code, int) else 0, reason=words)
    passing = code in _PASSING_KINDS or kind in _PASSING_KINDS or str(code) in map(str, TRANSIENT_STATUSES)
    return LLMUnavailableError("The model's server reported an error.", failure, transient=passing)


def _in_place_of_answer(body: bytes) -> LLMUnavailableError:
    """Some services send their errors with status 200 and not as an event."""
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        return NotAnAnswerError()
    error = reply.get("error") if isinstance(reply, dict) else None
    return provider_error(error) if error else NotAnAnswerError()


def _leniently(data: bytes, kind: type[E]) -> E:
    """Decode despite bad UTF-8, lone surrogates, NaN, and fields of unexpected types."""
    try:
        value = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise NotAnAnswerError from None
    if not isinstance(value, dict):
        raise NotAnAnswerError
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return kind(error=value.get("error"))


log = structlog.get_logger()

UNKNOWN_OPTION = (400, 422)  # the statuses with which servers refuse an unknown option
ANSWER_SHARE = 0.25  # of the window, at most, unless the caller names another
END_PATIENCE_S = 2.0  # for token counts and the rest, once the answer is complete


class HttpLLM(LeanLLM):
    """`options` override the request's own parameters; null removes one."""

    model: str
    context_window: int = 0
    max_tokens: int = 2_048
    temperature: float = 0.2
    options: dict[str, Any] = Field(default_factory=dict)
    switch: ThinkingSwitch = NOTHING
    _client: aiohttp.ClientSession = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        try:
            canonical_json([self.options, self.switch.on, self.switch.off])
        except (TypeError, ValueError) as error:
            raise StartRefusedError(f"options of model {self.model!r} cannot be sent as JSON.") from error

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(
            context_window=self.context_window,
            num_output=self.max_tokens,
            is_chat_model=True,
            model_name=self.model,
        )

    async def stream_deltas(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool = False
    ) -> AsyncGenerator[LLMDelta, None]:
        options = exchange.options
        while True:
            exchange.begin(exchange.model, exchange.layout)
            to, body = self._request(messages, exchange, flat=flat)
            reader, deadline = self._reader(exchange), 0.0
            try:
                async with post_stream(self._client, to, body) as stream:
                    while not reader.ended:
                        piece = await (stream.read_until(deadline) if deadline else stream.read())
                        if not piece:
                            break
                        exchange.note_reply(piece)
                        delta = reader.read(piece)
                        if delta is not None:
                            yield delta
                        reader.check()
                        if reader.complete and not deadline:
                            deadline = asyncio.get_running_loop().time() + END_PATIENCE_S
                    reader.check_end()
                    await stream.drain()
            except LLMRefusedError as error:
                exchange.status = error.status
                if not self._drops_switch(exchange, error):
                    raise
            else:
                if exchange.options is not options:
                    self._learn_no_switch()
                return

    def _drops_switch(self, exchange: Exchange, refusal: LLMRefusedError) -> bool:
        """Whether the refusal may be due to guessed options; if so, the request is repeated without them."""
        thinking, switch = exchange.options.thinking, self.switch
        sent = switch.on if thinking else switch.off
        if thinking is None or not (sent and switch.guessed and refusal.status in UNKNOWN_OPTION):
            return False
        exchange.options = replace(exchange.options, thinking=None)
        return True

    def _learn_no_switch(self) -> None:
        log.warning("thinking_switch_refused", model=self.model, options=sorted(self.switch.on))
        self.switch = NOTHING

    def _options(self, exchange: Exchange) -> dict[str, Any]:
        """The table's options merged with those of the thinking switch: guessed ones yield to the table's,
        unless thinking is to be off."""
        thinking, switch = exchange.options.thinking, self.switch
        if thinking is None:
            return self.options
        if thinking and switch.guessed:
            return _merged(switch.on, self.options)
        return _merged(self.options, switch.on if thinking else switch.off)

    def _limits(self, exchange: Exchange) -> dict[str, Any]:
        """Temperature and length as requested, else from the model's table."""
        asked = exchange.options
        temperature = self.temperature if asked.temperature is None else asked.temperature
        return {"temperature": temperature, "max_tokens": asked.max_tokens or self.max_tokens}

    @abstractmethod
    def _request(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool
    ) -> tuple[Endpoint, bytes]:
        """The endpoint and the body, which is also recorded in `exchange`."""

    @abstractmethod
    def _reader(self, exchange: Exchange) -> AnswerReader: ...


def without_none(own: dict[str, Any], options: dict[str, Any], fixed: Sequence[str]) -> dict[str, Any]:
    """`own` parameters overridden by `options`, in the order of their first mention.

    An option that is None removes its parameter; those in `fixed` are never changed.
    """
    laid = own | {name: value for name, value in options.items() if name not in fixed}
    return {name: value for name, value in laid.items() if value is not None or name in fixed}


def _merged(options: Options, above: Options) -> dict[str, Any]:
    """Merge options, including the template arguments, a single object that both may contain."""
    merged = {**options, **above}
    both = [each[TEMPLATE] for each in (options, above) if isinstance(each.get(TEMPLATE), dict)]
    return {**merged, TEMPLATE: {**both[0], **both[1]}} if len(both) > 1 else merged


def configured(entry: LLMSettings, answer_share: float) -> dict[str, Any]:
    """The fields of an HttpLLM from the model's table; the window is 0 if it is unknown."""
    window = entry.context_window or known_window(entry.model)
    return {
        "model": entry.model,
        "context_window": window,
        "max_tokens": answer_reserve(entry.max_tokens, window or UNKNOWN_WINDOW, answer_share),
        "temperature": entry.temperature,
        "options": merged_options(entry),
        "switch": switch_of(entry),
    }


def merged_options(entry: LLMSettings) -> dict[str, Any]:
    """The table's options with `extra_body`, the OpenAI SDK's name for additional parameters, flattened."""
    extra = entry.options.get("extra_body")
    rest = {name: value for name, value in entry.options.items() if name != "extra_body"}
    return rest | extra if isinstance(extra, dict) else rest
