"""How a model's answers begin: what is guessed and learned of it, and what a reply leaves out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
import structlog
from llama_index.core.base.llms.types import LLMMetadata

from core.llm_wrapper import LLMDelta, LLMStreamWrapper, StreamTimeouts
from core.prompt.exchange import Exchange
from core.prompt.messages import Layout, Message, Part, Role
from services.llm_service import ModelEntry
from services.models.lean import LeanLLM

R1 = "deepseek-r1:8b"
ASKED = [Message(Role.SYSTEM, "Be brief.", Part.SYSTEM), Message(Role.USER, "Why?", Part.QUESTION)]


class Saying(LeanLLM):
    deltas: tuple[Any, ...] = ()

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_chat_model=True)

    async def stream_deltas(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool = False
    ) -> AsyncGenerator[LLMDelta, None]:
        exchange.note_messages(messages, "messages")
        for delta in self.deltas:
            yield delta


def entry(*deltas: LLMDelta, label: str = "m", **more: Any) -> ModelEntry:
    wrapper = LLMStreamWrapper(Saying(deltas=deltas), StreamTimeouts(5, 5))
    return ModelEntry("mine", "openai", label, wrapper, Layout.ONE_SYSTEM, 8_192, 1_000, **more)


def test_auto_believes_the_name() -> None:
    assert entry(label=R1).starts_in_thinking
    assert not entry(label="m").starts_in_thinking
    assert not entry(label=R1, begins_thinking="never").starts_in_thinking
    assert not entry(label=R1, generative=False).starts_in_thinking
    assert entry(begins_thinking="always").starts_in_thinking


def test_one_answer_that_shows_the_tag_teaches_nothing() -> None:
    """Discriminates: learning from the first, so that whoever asks for the tag teaches it for everybody."""
    model = entry()
    for in_thinking in (True, False, True, False, True):
        model.learn_beginning(in_thinking=in_thinking)
        assert not model.starts_in_thinking


def test_two_in_a_row_teach_and_the_first_wrong_guess_unteaches() -> None:
    """Discriminates: never learning; needing two to unlearn; a count that goes on after unlearning."""
    model = entry()
    learned = []
    with structlog.testing.capture_logs() as logged:
        for in_thinking in (True, True, True, False, True, True):
            model.learn_beginning(in_thinking=in_thinking)
            learned.append(model.starts_in_thinking)
    assert learned == [False, True, True, False, False, True]
    assert [line["in_thinking"] for line in logged] == [True, False, True]


def test_a_name_is_believed_until_the_first_wrong_guess() -> None:
    model = entry(label=R1)
    model.learn_beginning(in_thinking=False)
    assert not model.starts_in_thinking


@pytest.mark.parametrize("setting", ["always", "never"])
def test_what_is_configured_is_not_learned_otherwise(setting: Any) -> None:
    """Discriminates: learning, and logging it, what is never asked for."""
    model = entry(begins_thinking=setting)
    with structlog.testing.capture_logs() as logged:
        for in_thinking in (True, True, False):
            model.learn_beginning(in_thinking=in_thinking)
    assert model.starts_in_thinking is (setting == "always")
    assert (model.learned.begins_thinking, logged) == (None, [])


async def reply(*deltas: LLMDelta | str, label: str = "m", **more: Any) -> str:
    made = [LLMDelta(delta) if isinstance(delta, str) else delta for delta in deltas]
    return await entry(*made, label=label, **more).reply(ASKED)


async def test_a_reply_is_without_its_thinking() -> None:
    """Discriminates: joining the deltas and no more; splitting as if the answer never began in thinking."""
    assert await reply("<think>I rea", "son</thi", "nk>\n\nSo. ") == "So."
    assert await reply("I reason\n</th", "ink>\nSo.") == "So."
    assert await reply("I reason</think>So.", label=R1) == "So."
    assert await reply("I reason</think>So.", begins_thinking="always") == "So."


async def test_a_reply_that_was_wrongly_taken_for_thinking_is_whole() -> None:
    """Discriminates: an empty summary of each model that is named like one that thinks."""
    assert await reply("So.", LLMDelta(finish_reason="stop"), label=R1) == "So."


async def test_a_reply_that_met_a_limit_in_thinking_is_empty() -> None:
    """Discriminates: half a thinking for the whole answer."""
    assert await reply("I reason", LLMDelta(finish_reason="length"), label=R1) == ""
    assert await reply("So", LLMDelta(finish_reason="length")) == "So"


async def test_text_beside_thinking_of_its_own_field_does_not_begin_in_thinking() -> None:
    """Discriminates: taking the text for thinking since the name says so; a quoted tag for its end."""
    thought = LLMDelta(thinking="I reason")
    assert await reply(thought, "So", LLMDelta(finish_reason="length"), label=R1) == "So"
    assert await reply(thought, "One\n</think>\ntwo") == "One\n</think>\ntwo"


async def test_a_closing_tag_is_text_where_answers_never_begin_in_thinking() -> None:
    """Discriminates: guessing although the configuration says it."""
    assert await reply("One\n</think>\ntwo", begins_thinking="never") == "One\n</think>\ntwo"


async def test_a_reply_is_scrubbed_though_a_break_is_cut_in_two() -> None:
    """Discriminates: splitting first, which does not see a line that ends with U+2028."""
    assert await reply("I reason\r", "\n</think>\u2028", "So\u2028it is.\0") == "So\nit is."
