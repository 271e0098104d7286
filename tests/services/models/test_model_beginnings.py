"""How a model's answers begin: what is guessed and learned about it, and what is removed from a reply."""

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


def test_auto_trusts_the_name() -> None:
    assert entry(label=R1).starts_in_thinking
    assert not entry(label="m").starts_in_thinking
    assert not entry(label=R1, begins_thinking="never").starts_in_thinking
    assert not entry(label=R1, generative=False).starts_in_thinking
    assert entry(begins_thinking="always").starts_in_thinking


def test_nothing_is_learned_from_one_answer_with_the_tag() -> None:
    """Discriminates: learning from the first, so that one person asking for the tag changes it for
    everybody."""
    model = entry()
    for in_thinking in (True, False, True, False, True):
        model.learn_beginning(in_thinking=in_thinking)
        assert not model.starts_in_thinking


def test_two_in_a_row_are_learned_from_and_the_first_wrong_guess_reverts_it() -> None:
    """Discriminates: never learning; needing two to unlearn; a count that continues after unlearning."""
    model = entry()
    learned = []
    with structlog.testing.capture_logs() as logged:
        for in_thinking in (True, True, True, False, True, True):
            model.learn_beginning(in_thinking=in_thinking)
            learned.append(model.starts_in_thinking)
    assert learned == [False, True, True, False, False, True]
    assert [line["in_thinking"] for line in logged] == [True, False, True]


def test_a_name_is_trusted_until_the_first_wrong_guess() -> None:
    model = entry(label=R1)
    model.learn_beginning(in_thinking=False)
    assert not model.starts_in_thinking


@pytest.mark.parametrize("setting", ["always", "never"])
def test_a_configured_value_is_not_overridden_by_learning(setting: Any) -> None:
    """Discriminates: learning, and logging, a value that is never used."""
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
    """Discriminates: only joining the deltas; splitting as if the answer never began in thinking."""
    assert await reply("<think>I rea", "son</thi", "nk>\n\nSo. ") == "So."
    assert await reply("I reason\n</th", "ink>\nSo.") == "So."
    assert await reply("I reason</think>So.", label=R1) == "So."
    assert await reply("I reason</think>So.", begins_thinking="always") == "So."


async def test_a_reply_wrongly_taken_for_thinking_is_complete() -> None:
    """Discriminates: an empty summary from each model that is named like a thinking one."""
    assert await reply("So.", LLMDelta(finish_reason="stop"), label=R1) == "So."


async def test_a_reply_that_hit_a_limit_in_thinking_is_empty() -> None:
    """Discriminates: partial thinking as the whole answer."""
    assert await reply("I reason", LLMDelta(finish_reason="length"), label=R1) == ""
    assert await reply("So", LLMDelta(finish_reason="length")) == "So"


async def test_text_next_to_a_separate_thinking_field_does_not_begin_in_thinking() -> None:
    """Discriminates: taking the text for thinking because of the name; a quoted tag for its end."""
    thought = LLMDelta(thinking="I reason")
    assert await reply(thought, "So", LLMDelta(finish_reason="length"), label=R1) == "So"
    assert await reply(thought, "One\n</think>\ntwo") == "One\n</think>\ntwo"


async def test_a_closing_tag_is_text_if_answers_never_begin_in_thinking() -> None:
    """Discriminates: guessing despite the configuration."""
    assert await reply("One\n</think>\ntwo", begins_thinking="never") == "One\n</think>\ntwo"


async def test_a_reply_is_scrubbed_even_if_a_break_is_split_in_two() -> None:
    """Discriminates: splitting first, which misses a line that ends with U+2028."""
    assert await reply("I reason\r", "\n</think>\u2028", "So\u2028it is.\0") == "So\nit is."
