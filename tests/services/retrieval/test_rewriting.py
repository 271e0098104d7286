from __future__ import annotations

import asyncio
import json
import time
from typing import Literal

import pytest

from core.conversation.turns import MAX_REWRITTEN_CHARS, Turn, TurnStatus
from core.llm_wrapper import LLMStreamWrapper, StreamTimeouts
from core.prompt.messages import Layout
from services.llm_service import ModelEntry
from services.models.extractive import ExtractiveLLM
from services.retrieval.query_forms import MAX_TURN_CHARS, QueryRewriter, read_rewritten
from tests.support.models.scripted_llm import RECORDED, ScriptedLLM

QUESTION = "它的呢？"


def prompt(language: Literal["zh", "en"]) -> str:
    return f"Rewrite ({language})."


def model(*script: str | float, record_as: str = "") -> ModelEntry:
    llm = ScriptedLLM(script=script, record_as=record_as)
    return entry(llm)


def entry(llm: ScriptedLLM | ExtractiveLLM, generative: bool = True) -> ModelEntry:
    wrapper = LLMStreamWrapper(llm, StreamTimeouts(60, 60))
    return ModelEntry("m", "scripted", "m", wrapper, Layout.ONE_SYSTEM, 8_192, 1_000, generative=generative)


def turn(question: str, answer: str = "好的。") -> Turn:
    return Turn("t", "s", "o", question, 1, TurnStatus.COMPLETED, answer=answer)


TURNS = [turn("专业版多少钱？", "99 元。")]


async def test_the_models_reply_is_the_question() -> None:
    rewriter = QueryRewriter(prompt, 3)
    assert await rewriter.rewrite(QUESTION, TURNS, model("团队版", "多少钱？")) == "团队版多少钱？"


async def test_the_models_thinking_is_not_the_question() -> None:
    rewriter = QueryRewriter(prompt, 3)
    thinking = model("<think>它 is the team plan?\n", "</think>\n\n团队版多少钱？")
    assert await rewriter.rewrite(QUESTION, TURNS, thinking) == "团队版多少钱？"


async def test_the_prompt_has_the_last_turns_as_data_and_no_more_than_needed() -> None:
    turns = [turn(f"问题{at}", "长" * 5_000) for at in range(5)]
    await QueryRewriter(prompt, 3).rewrite(QUESTION, turns, model("x", record_as="rewrite-told"))
    ((system, asked),) = RECORDED["rewrite-told"]
    assert system == ("system", "Rewrite (zh).")
    task = json.loads(asked[1])
    assert task["question"] == QUESTION
    assert [words["question"] for words in task["conversation"]] == ["问题2", "问题3", "问题4"]
    assert all(len(words["answer"]) == MAX_TURN_CHARS for words in task["conversation"])


@pytest.mark.parametrize("script", [("!",), ("half a", "!"), ("",), ("<think>no end",)])
async def test_a_model_that_fails_gives_nothing(script: tuple[str, ...]) -> None:
    assert await QueryRewriter(prompt, 5).rewrite(QUESTION, TURNS, model(*script)) == ""


@pytest.mark.parametrize("script", [(30.0, "late"), ("drip", 30.0, "late")])
async def test_a_late_model_gives_nothing_in_time(script: tuple[str | float, ...]) -> None:
    """Discriminates: waiting for the model's own timeouts."""
    began = time.perf_counter()
    assert await QueryRewriter(prompt, 0.2).rewrite(QUESTION, TURNS, model(*script)) == ""
    assert time.perf_counter() - began < 2


async def test_a_stop_ends_the_rewriting() -> None:
    """Discriminates: swallowing the cancellation as if it were the time limit."""
    task = asyncio.create_task(QueryRewriter(prompt, 60).rewrite(QUESTION, TURNS, model(60.0)))
    await asyncio.sleep(0.05)  # it is running when it is cancelled
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_only_a_follow_up_with_a_generative_model_and_time_is_rewritten() -> None:
    real, quoting = model("x"), entry(ExtractiveLLM(), generative=False)
    assert QueryRewriter(prompt, 3).can_help(TURNS, real)
    assert not QueryRewriter(prompt, 3).can_help([], real)
    assert not QueryRewriter(prompt, 3).can_help(TURNS, quoting)
    assert not QueryRewriter(prompt, 0).can_help(TURNS, real)


REPLIES = [
    ("团队版多少钱？", "团队版多少钱？"),
    ("  “团队版多少钱？”\n", "团队版多少钱？"),
    ("改写后的问题：团队版多少钱？", "团队版多少钱？"),
    ("改写：「团队版多少钱？」", "团队版多少钱？"),
    ("**改写后的问题：**团队版多少钱？", "团队版多少钱？"),
    ("检索问题如下：\n团队版多少钱？", "团队版多少钱？"),
    ("Rewritten question: What does the team plan cost?", "What does the team plan cost?"),
    ("Rewrite: 'What does the team plan cost?'", "What does the team plan cost?"),
    (
        "Sure! Here it is:\n\nWhat does the team plan cost?\n\n(I added the plan.)",
        "What does the team plan cost?",
    ),
    ("Of course.\nStandalone question: What does the team plan cost?", "What does the team plan cost?"),
    ("```\nWhat does the team plan cost?\n```", "What does the team plan cost?"),
    ('{"question": "What does the team plan cost?"}', "What does the team plan cost?"),
    ('"A" or "B"?', '"A" or "B"?'),
    ('What does "team plan" mean', 'What does "team plan" mean'),
    ("Which search engine: Bing or Google?", "Which search engine: Bing or Google?"),
    ("它的呢", ""),
    ("“它的呢?”", ""),
    ("改写：它的呢？", ""),
    ("", ""),
    ("？", ""),
    ("Rewritten question:", ""),
    ("长" * (MAX_REWRITTEN_CHARS + 1), ""),
    ("长" * MAX_REWRITTEN_CHARS, "长" * MAX_REWRITTEN_CHARS),
    ("x" * 100_000, ""),
]


@pytest.mark.parametrize(("reply", "rewritten"), REPLIES, ids=[reply[:30] for reply, _ in REPLIES])
def test_the_question_is_extracted_from_surrounding_text(reply: str, rewritten: str) -> None:
    assert read_rewritten(reply, QUESTION) == rewritten
