from __future__ import annotations

from dataclasses import replace

import pytest

from config.settings import RetrievalSettings
from core.knowledge import Candidate, Chunk
from core.llm_wrapper import LLMStreamWrapper, StreamTimeouts
from core.messages import Layout, Message, Part, Role
from services.insert_block import InsertBlock, apply_judgement
from services.llm_service import ModelEntry
from tests.support.scripted_llm import ScriptedLLM

USEFUL = Candidate(Chunk("c1", "d", "fees.md", "The fee is 300 yuan. It is due in January.", 0))
OTHER = replace(USEFUL, chunk=replace(USEFUL.chunk, chunk_id="c2", text="Opening hours: 9 to 5."))


def judge(*script: str, label: str = "m") -> ModelEntry:
    wrapper = LLMStreamWrapper(ScriptedLLM(script=script), StreamTimeouts(5, 5, 5))
    return ModelEntry("judge", "scripted", label, wrapper, Layout.ONE_SYSTEM, 8_192, 1_000)


async def judged(model: ModelEntry, *candidates: Candidate) -> list[Candidate]:
    settings = RetrievalSettings(insert_block_timeout_s=5)
    return await InsertBlock("Judge.", settings).judge("What is the fee?", candidates, model)


async def test_what_the_judge_finds_is_kept_with_its_reason() -> None:
    reply = '{"can_answer": true, "passage": "The fee is 300 yuan.", "reason": "the fee"}'
    (found,) = await judged(judge(reply), USEFUL)
    assert (found.key_passage, found.reason) == ("The fee is 300 yuan.", "the fee")


@pytest.mark.parametrize(
    "thinking",
    ['<think>maybe {"can_answer": false}?</think>', 'maybe {"can_answer": false}?\n</think>\n'],
)
@pytest.mark.parametrize("label", ["m", "deepseek-r1"])
async def test_what_the_judge_thinks_is_no_judgement(thinking: str, label: str) -> None:
    """Discriminates: reading from the first brace of the reply, which stands in the thinking."""
    model = judge(thinking, '{"can_answer": true, "reason": "the fee"}', label=label)
    (found,) = await judged(model, USEFUL)
    assert found.reason == "the fee"


async def test_what_the_judge_refuses_after_thinking_is_left_out() -> None:
    """Discriminates: a reply that cannot be read for its thinking, and so keeps the candidate."""
    model = judge('<think>maybe {"can_answer": true}?</think>{"can_answer": false}')
    assert await judged(model, USEFUL, OTHER) == [USEFUL, OTHER]  # all stay when none can answer
    reply = await model.reply([Message(Role.USER, "Judge.", Part.QUESTION)])
    assert apply_judgement(OTHER, reply) is None


async def test_a_judge_that_was_wrongly_taken_for_thinking_is_heard() -> None:
    """Discriminates: leaving out all of a reply that should have begun in thinking and did not."""
    (found,) = await judged(judge('{"can_answer": true, "reason": "the fee"}', label="deepseek-r1"), USEFUL)
    assert found.reason == "the fee"


@pytest.mark.parametrize("reply", ["", "No idea.", "{", "[1]", '{"can_answer": "no"', "!"])
async def test_a_bad_reply_never_loses_the_candidate(reply: str) -> None:
    assert await judged(judge(reply), USEFUL) == [USEFUL]


def test_a_string_with_a_line_break_is_read() -> None:
    """Discriminates: strict JSON, which no model that copies two lines keeps to."""
    found = apply_judgement(USEFUL, '{"can_answer": true, "reason": "the\nfee"}')
    assert found is not None
    assert found.reason == "the\nfee"


def test_a_passage_that_is_not_in_the_chunk_is_not_believed() -> None:
    found = apply_judgement(USEFUL, '{"can_answer": true, "passage": "The fee is 3 yuan."}')
    assert found is not None
    assert found.key_passage == ""
