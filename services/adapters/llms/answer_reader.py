"""An answer's events read one by one, into one delta for whatever a read brought."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from core.errors import PASSING, LLMTruncatedError, LLMUnavailableError
from core.llm_wrapper import LLMDelta
from core.prompt.exchange import Exchange
from services.adapters.http.sse import EventReader, NotAnAnswerError

_PASSING_KINDS = frozenset(
    {"overloaded_error", "rate_limit_error", "rate_limit_exceeded", "server_error", "api_error"}
)


class WireEvent(msgspec.Struct, gc=False):
    """An event of a provider. Fields whose make varies are Any: an odd one must not spoil an answer."""

    error: Any = None


E = TypeVar("E", bound=WireEvent)


class AnswerReader(ABC):
    """Reads the events of one answer, and notes its facts in `exchange`.

    `complete`: the provider's end mark was seen; `ended`: nothing comes behind it.
    """

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self._events = EventReader()
        self.complete = self.ended = self.has_events = False
        self.failure: LLMUnavailableError | None = None
        self.text: list[str] = []
        self.thinking: list[str] = []
        self.finish_reason: str | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.counted = False

    @abstractmethod
    def take(self, name: bytes, data: bytes) -> None:
        """Add what one event says. Raises LLMUnavailableError."""

    def read(self, piece: bytes) -> LLMDelta | None:
        """All that its events say together; None: nothing. A failure among them waits for `check`.

        Behind the end mark nothing fails any more.
        """
        try:
            for name, data in self._events.feed(piece):
                self.take(name, data)
                if self.ended:
                    break
        except LLMUnavailableError as error:
            self.ended = self.complete
            self.failure = None if self.complete else error
        if self.text or self.thinking or self.finish_reason or (self.counted and self.complete):
            return self._delta()
        return None

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def check_end(self) -> None:
        """Raises LLMTruncatedError for an answer without its end, NotAnAnswerError for none at all."""
        if not self.has_events:
            raise NotAnAnswerError
        if not self.complete:
            raise LLMTruncatedError("The model's answer broke off before its end.")

    def finish(self, reason: str) -> None:
        self.finish_reason = self.exchange.finish_reason = reason

    def count(self, prompt_tokens: object, completion_tokens: object) -> None:
        """Note the counts that are counts."""
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
        )
        self.text.clear()
        self.thinking.clear()
        self.finish_reason, self.counted = None, False
        return delta


def make_decoder(kind: type[E]) -> Callable[[bytes], E]:
    """Events of one kind out of JSON; raises NotAnAnswerError for what is no JSON object, and for an error
    that the provider reports as LLMUnavailableError."""
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
    """Of an error in the middle of a stream; its words stay here."""
    code, kind = (error.get("code"), error.get("type")) if isinstance(error, dict) else (None, None)
    passing = code in _PASSING_KINDS or kind in _PASSING_KINDS or str(code) in map(str, PASSING)
    return LLMUnavailableError("The model's server reported an error.", transient=passing)


def _leniently(data: bytes, kind: type[E]) -> E:
    """For bad UTF-8, lone surrogates, NaN, and fields of another make."""
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
