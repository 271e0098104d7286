"""What a model's stream is made of, and the seam by which our own adapters go past LlamaIndex's objects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from core.prompt.exchange import Exchange
from core.prompt.messages import Message


@dataclass(frozen=True, slots=True)
class LLMDelta:
    """What one read from the model adds: the text of any number of tokens, joined.

    `finish_reason` and token counts come when the provider sends them; "length" means that the answer met
    a limit, whatever the provider's own word for it is.
    """

    text: str = ""
    thinking: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


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
