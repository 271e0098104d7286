"""The timeouts of an answer, and the handling of classes that cannot stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import structlog
from llama_index.core.base.llms.types import CompletionResponse, CompletionResponseGen, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.llms.custom import CustomLLM
from pydantic import PrivateAttr

from core.errors import LLMUnavailableError
from core.llm_wrapper import LLMDelta, LLMStreamWrapper, StreamTimeouts
from core.prompt.exchange import Exchange
from core.prompt.messages import Message, Part, Role
from services.models.lean import LeanLLM
from tests.support.models.scripted_llm import whole_answer

SECRET = "sk-what-was-asked"
ASKED = [Message(Role.USER, SECRET, Part.QUESTION)]


class OneAtATime(LeanLLM):
    """Answers one question at a time, in `answer_s`; its first turn is available after `loading_s`."""

    answer_s: float = 0.1
    loading_s: float = 0.0
    _place: asyncio.Lock = PrivateAttr(default_factory=asyncio.Lock)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    @asynccontextmanager
    async def turn_to_ask(self) -> AsyncIterator[OneAtATime]:
        async with self._place:
            loading_s, self.loading_s = self.loading_s, 0.0
            await asyncio.sleep(loading_s)
            yield self

    async def stream_deltas(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool = False
    ) -> AsyncGenerator[LLMDelta, None]:
        assert self._place.locked()
        await asyncio.sleep(self.answer_s)
        yield LLMDelta("answer")


async def test_waiting_for_a_turn_does_not_count_as_time_to_the_first_token() -> None:
    """Discriminates: a first-token timeout that starts before the slot is acquired; a slot that is never
    released."""
    wrapper = LLMStreamWrapper(OneAtATime(), StreamTimeouts(0.3, 10))
    assert await asyncio.gather(*(whole_answer(wrapper, ASKED) for _ in range(8))) == ["answer"] * 8


async def test_loading_does_not_count_as_time_to_the_first_token() -> None:
    """Discriminates: a first-token timeout around `turn_to_ask`."""
    wrapper = LLMStreamWrapper(OneAtATime(loading_s=0.5), StreamTimeouts(0.3, 10))
    assert await whole_answer(wrapper, ASKED) == "answer"


async def test_waiting_ends_with_the_overall_timeout_and_reports_busy() -> None:
    """Discriminates: waiting for ever; an error that is not `busy`, or one that is retried."""
    wrapper = LLMStreamWrapper(OneAtATime(answer_s=0.2), StreamTimeouts(5, 0.3))
    results = await asyncio.gather(*(whole_answer(wrapper, ASKED) for _ in range(3)), return_exceptions=True)
    assert results[0] == "answer"
    for error in results[1:]:  # the second got its turn too late; the third got none
        assert isinstance(error, LLMUnavailableError)
        assert (error.busy, error.transient) == (True, False)
    assert await whole_answer(wrapper, ASKED) == "answer"


async def test_a_model_that_is_silent_in_its_turn_times_out() -> None:
    """Discriminates: `busy` for every timeout of a model that takes turns."""
    wrapper = LLMStreamWrapper(OneAtATime(answer_s=5), StreamTimeouts(0.1, 10))
    with pytest.raises(LLMUnavailableError, match="in time") as raised:
        await whole_answer(wrapper, ASKED)
    assert not raised.value.busy


async def test_a_question_cancelled_while_waiting_leaves_its_turn_to_the_next() -> None:
    """Discriminates: a slot that a cancelled caller takes and never releases."""
    wrapper = LLMStreamWrapper(OneAtATime(), StreamTimeouts(1, 10))
    async with aclosing(wrapper.stream_chat(ASKED)) as first:
        assert (await anext(first)).text
        waiting = asyncio.create_task(whole_answer(wrapper, ASKED))
        await asyncio.sleep(0.01)  # it is queued
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert await whole_answer(wrapper, ASKED) == "answer"


class OnlyCompletes(CustomLLM):
    """`pieces` before `error`; as a generator it fails when first read, else when it is called."""

    pieces: tuple[str, ...] = ()
    lazy: bool = False
    error: type[Exception] = NotImplementedError

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text="whole")

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        if self.lazy:
            return self._pieces(prompt)
        raise self.error(prompt)

    def _pieces(self, prompt: str) -> CompletionResponseGen:
        for piece in self.pieces:
            yield CompletionResponse(text="", delta=piece)
        raise self.error(prompt)


@pytest.mark.parametrize("lazy", [False, True])
async def test_a_class_that_can_only_complete_answers_as_a_stream_of_one_piece(lazy: bool) -> None:
    """Discriminates: falling back only when opening fails; only on the chat side."""
    wrapper = LLMStreamWrapper(OnlyCompletes(lazy=lazy), StreamTimeouts())
    assert [delta.text async for delta in wrapper.stream_chat(ASKED)] == ["whole"]
    assert [delta.text async for delta in wrapper.stream("One, two")] == ["whole"]


async def test_a_class_that_fails_in_mid_answer_is_not_asked_for_the_whole_answer() -> None:
    """Discriminates: falling back after the first item, which repeats the beginning."""
    wrapper = LLMStreamWrapper(OnlyCompletes(lazy=True, pieces=("wh",)), StreamTimeouts())
    async with aclosing(wrapper.stream_chat(ASKED)) as deltas:
        assert (await anext(deltas)).text == "wh"
        with pytest.raises(LLMUnavailableError):
            await anext(deltas)


async def test_a_failing_class_is_logged_by_type_and_place_without_its_message() -> None:
    """Discriminates: logging the exception itself, whose message quotes the question here."""
    wrapper = LLMStreamWrapper(OnlyCompletes(error=ValueError), StreamTimeouts())
    with structlog.testing.capture_logs() as logged, pytest.raises(LLMUnavailableError):
        await whole_answer(wrapper, ASKED)
    (line,) = logged
    assert (line["event"], line["llm"], line["error"]) == ("llm_class_failed", "OnlyCompletes", "ValueError")
    assert line["where"][-1].startswith(f"{__name__}:")
    assert line["where"][-1].endswith(" in OnlyCompletes.stream_complete")
    assert "exc_info" not in line
    assert SECRET not in str(line)
