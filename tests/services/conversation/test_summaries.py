"""Summaries of the older part of a branch, on the embedded store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from api.messages import PromptLibrary
from config.settings import ConversationSettings
from core.conversation.sessions import TurnNode, walk_branch
from core.conversation.turns import Turn, TurnStatus
from core.errors import UnknownModelError
from core.llm_wrapper import LLMStreamWrapper, StreamTimeouts
from core.prompt.budget import estimate_tokens
from core.prompt.messages import Layout
from services.conversation.summaries import MAX_STEPS, STEP_TOKENS, SummaryService
from services.conversation.turns import TurnStore, TurnVectors
from services.llm_service import ModelEntry
from services.models.extractive import ExtractiveLLM
from services.store.dialect import VectorStore
from tests.services.conversation.stores import open_edge, turn_store, uid
from tests.support.models.scripted_llm import RECORDED, ScriptedLLM

SESSION = uid(9_000)
OWNER = "local"
ANSWER = "The fee is 300 yuan and Li Wei pays it in January. " * 8  # about 100 tokens


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[VectorStore]:
    async with open_edge(tmp_path) as opened:
        yield opened


def model(*script: str | float, record_as: str = "", generative: bool = True, **more: Any) -> ModelEntry:
    llm = ScriptedLLM(script=script, record_as=record_as) if generative else ExtractiveLLM()
    wrapper = LLMStreamWrapper(llm, StreamTimeouts(5, 5))
    fields: dict[str, Any] = {"layout": Layout.ONE_SYSTEM, "context_window": 32_000, "max_tokens": 1_000}
    fields |= {"count_tokens": estimate_tokens, **more}
    return ModelEntry("default", "scripted", "scripted", wrapper, generative=generative, **fields)


class Conversation:
    """A session written turn by turn, as the engine does, with its summaries made after each turn."""

    def __init__(self, store: VectorStore, entry: ModelEntry, **settings: Any) -> None:
        small = {"max_recent_turns": 2, "compress_after_tokens": 300}
        chosen = ConversationSettings(**{**small, **settings})
        self.turns: TurnStore = turn_store(store)
        ticks = count(1)
        prompt = partial(PromptLibrary().text, "summarize")
        self.summaries = SummaryService(
            self.turns, lambda _: entry, chosen, prompt, lambda: next(ticks), max_tokens=100
        )

    async def write(self, number: int, parent: int | None, answer: str = ANSWER, **more: Any) -> Turn:
        turn = Turn(
            turn_id=uid(number),
            session_id=SESSION,
            owner=OWNER,
            question=f"What is the fee of member {number}?",
            created_us=number,
            status=TurnStatus.COMPLETED,
            parent_turn_id=uid(parent) if parent is not None else None,
            answer=answer,
            seq=number,
        )
        turn = replace(turn, **more)
        await self.turns.put(turn, TurnVectors())
        return turn

    async def ask(self, number: int, parent: int | None, answer: str = ANSWER, **more: Any) -> None:
        turn = await self.write(number, parent, answer, **more)
        self.summaries.after_turn(await self.branch(parent), turn)
        await self.summaries.idle()

    async def line(self, numbers: Sequence[int], after: int | None = None) -> None:
        for number in numbers:
            await self.ask(number, after)
            after = number

    async def branch(self, leaf: int | None) -> list[TurnNode]:
        nodes = (await self.turns.tree(SESSION, OWNER)).nodes
        return walk_branch(nodes, uid(leaf)) if leaf is not None else []

    async def covered(self, leaf: int) -> list[int]:
        applied = await self.summaries.applicable(await self.branch(leaf))
        return sorted(int(turn_id[-12:], 16) for turn_id in applied.covered) if applied else []

    async def text(self, leaf: int) -> str:
        applied = await self.summaries.applicable(await self.branch(leaf))
        return applied.text if applied else ""

    async def forget(self, *numbers: int) -> int:
        return await self.summaries.forget(SESSION, OWNER, [uid(number) for number in numbers])


async def stored_summaries(talk: Conversation) -> list[int]:
    nodes = (await talk.turns.tree(SESSION, OWNER)).nodes
    return sorted(node.seq for node in nodes.values() if node.has_summary)


async def test_the_older_part_is_summarised_and_the_recent_turns_are_not(store: VectorStore) -> None:
    """Discriminates: counting from the end without MAX_RECENT_TURNS; covering turns before the limit is
    exceeded."""
    talk = Conversation(store, model("Fee 300, Li Wei."))
    await talk.line(range(4))
    assert await talk.covered(3) == []
    await talk.line(range(4, 6), after=3)
    assert await talk.covered(5) == [0, 1, 2]
    remaining = await talk.turns.get(uid(2))
    assert remaining is not None
    assert remaining.summary is not None
    assert (remaining.summary.text, remaining.summary.start, remaining.summary.previous) == (
        "Fee 300, Li Wei.",
        uid(0),
        None,
    )
    assert remaining.summary.tokens == estimate_tokens("Fee 300, Li Wei.")


async def test_a_summary_continues_the_previous_one(store: VectorStore) -> None:
    """Discriminates: starting over each time; covering a turn twice; not passing on the previous summary."""
    RECORDED.clear()
    talk = Conversation(store, model("Fee 300, Li Wei.", record_as="progress"))
    await talk.line(range(9))
    assert await talk.covered(8) == [0, 1, 2, 3, 4, 5]
    assert await stored_summaries(talk) == [2, 5]
    first, second = [dict(call)["user"] for call in RECORDED["progress"]]
    assert "member 0?" in first
    assert "<summary-" not in first
    assert re.search(r"<(summary-[0-9a-f]{6})>\nFee 300, Li Wei.\n</\1>\n\n<history-", second)
    assert "member 3?" in second
    assert "member 2?" not in second


async def test_a_sibling_branch_never_uses_a_summary_and_a_later_fork_does(store: VectorStore) -> None:
    """Discriminates: using the session's newest summary whatever its branch."""
    talk = Conversation(store, model("Fee 300, Li Wei."))
    await talk.line(range(6))
    await talk.write(20, 1)  # forks before the last covered turn
    await talk.write(21, 3)  # forks after it
    await talk.write(22, None)  # another root
    assert await talk.covered(20) == []
    assert await talk.covered(21) == [0, 1, 2]
    assert await talk.covered(22) == []


async def test_the_recent_turns_of_a_new_fork_are_not_covered(store: VectorStore) -> None:
    """Discriminates: using the nearest summary although it covers the recent turns of this branch."""
    talk = Conversation(store, model("Fee 300."))
    await talk.line(range(9))
    assert await talk.covered(6) == [0, 1, 2]
    assert await talk.covered(7) == [0, 1, 2, 3, 4, 5]
    assert await talk.covered(2) == []


async def test_each_branch_continues_from_the_shared_summary(store: VectorStore) -> None:
    talk = Conversation(store, model("Fee 300, Li Wei."))
    await talk.line(range(9))
    await talk.line(range(20, 26), after=3)
    assert await talk.covered(8) == [0, 1, 2, 3, 4, 5]
    assert await talk.covered(25) == [0, 1, 2, 3, 20, 21]


@pytest.mark.parametrize("script", [["!"], [""], [" \n"], ["<think>what a long talk"]])
async def test_a_failed_or_empty_summary_changes_nothing(store: VectorStore, script: list[str]) -> None:
    """Discriminates: storing the empty text; the turn's task failing with the model's error."""
    talk = Conversation(store, model(*script))
    await talk.line(range(7))
    assert await stored_summaries(talk) == []
    again = Conversation(store, model("Fee 300."))
    await again.ask(7, 6)
    assert await again.covered(7) == [0, 1, 2, 3, 4, 5]


async def test_an_unknown_model_changes_nothing(store: VectorStore) -> None:
    talk = Conversation(store, model("Fee"))

    def none_such(model_id: str) -> ModelEntry:
        raise UnknownModelError(model_id)

    talk.summaries._model = none_such
    await talk.line(range(7))
    assert await stored_summaries(talk) == []


async def test_nothing_is_summarised_or_used_with_the_switch_off(store: VectorStore) -> None:
    """Discriminates: checking the switch only where summaries are made."""
    await Conversation(store, model("Fee 300.")).line(range(6))
    off = Conversation(store, model("Fee 300."), compress_after_tokens=0)
    assert await off.covered(5) == []
    await off.line(range(6, 12), after=5)
    assert await stored_summaries(off) == [2]


async def test_commands_failures_and_empty_answers_are_not_summarised(store: VectorStore) -> None:
    """Discriminates: counting a slash command or a failed turn among the recent ones."""
    talk = Conversation(store, model("Fee 300."))
    await talk.line(range(3))
    await talk.ask(3, 2, command="help")
    await talk.ask(4, 3, answer="", status=TurnStatus.FAILED)
    await talk.ask(5, 4, answer="", status=TurnStatus.CANCELLED)
    await talk.ask(6, 5, status=TurnStatus.CANCELLED)
    await talk.ask(7, 6, status=TurnStatus.INTERRUPTED)
    await talk.line(range(8, 10), after=7)
    assert await talk.covered(9) == [0, 1, 2]
    await talk.line(range(10, 13), after=9)
    assert await talk.covered(12) == [0, 1, 2, 6, 7, 8]


async def test_thinking_does_not_count_towards_the_length_of_a_summary(store: VectorStore) -> None:
    talk = Conversation(store, model("<think>long</think>", *["A fee of 300 yuan. "] * 60))
    await talk.line(range(6))
    text = await talk.text(5)
    assert text.endswith("yuan.")
    assert text.startswith("A fee")
    assert 80 < estimate_tokens(text) <= 100


async def test_without_a_generative_model_key_sentences_are_kept(store: VectorStore) -> None:
    talk = Conversation(store, model(generative=False))
    await talk.line(range(40))
    text = await talk.text(39)
    assert text.startswith("- What is the fee of member 0? → The fee is 300 yuan")
    covered = await talk.covered(39)
    assert covered == list(range(len(covered)))
    assert f"member {covered[-1]}?" in text
    assert 50 < estimate_tokens(text) <= 100


@pytest.mark.parametrize("erased", [0, 2, 4])
async def test_a_summary_is_not_used_once_a_covered_turn_is_deleted(store: VectorStore, erased: int) -> None:
    """Directly or through an earlier summary. Discriminates: checking only the nearest summary's own
    turns."""
    talk = Conversation(store, model("Fee 300."))
    await talk.line(range(9))
    await talk.turns.delete([uid(erased)])
    nodes = [node for node in (await talk.branch(8)) if node.turn_id != uid(erased)]
    assert await talk.summaries.applicable(nodes) is None
    chained = [node for node in (await talk.turns.tree(SESSION, OWNER)).nodes if node != uid(erased)]
    whole = [(await talk.turns.tree(SESSION, OWNER)).nodes[each] for each in sorted(chained)]
    applied = await talk.summaries.applicable(whole)  # walked past, as an unreadable turn is
    assert applied is None or uid(erased) not in applied.covered


@pytest.mark.parametrize(("erased", "left"), [(0, []), (2, []), (4, [2]), (5, [2]), (7, [2, 5])])
async def test_no_summary_covers_an_erased_turn(store: VectorStore, erased: int, left: list[int]) -> None:
    """Discriminates: not following `previous`; deleting all summaries of the session."""
    talk = Conversation(store, model("Fee 300."))
    await talk.line(range(9))
    assert await stored_summaries(talk) == [2, 5]
    await talk.turns.delete([uid(erased)])
    await talk.forget(erased)
    assert await stored_summaries(talk) == left
    for turn in await talk.turns.get_many([uid(number) for number in range(9)]):
        assert turn.summary is None or turn.seq in left


async def test_forgetting_affects_no_other_session_or_owner(store: VectorStore) -> None:
    talk = Conversation(store, model("Fee 300."))
    await talk.line(range(6))
    assert await talk.summaries.forget(uid(1), OWNER, [uid(0)]) == 0
    assert await talk.summaries.forget(SESSION, "somebody", [uid(0)]) == 0
    assert await stored_summaries(talk) == [2]
    assert await talk.summaries.forget(SESSION, None, [uid(0)]) == 1


async def test_a_turn_erased_while_being_summarised_leaves_nothing(store: VectorStore) -> None:
    """Discriminates: not checking after the write whether all covered turns still exist."""
    talk = Conversation(store, model(0.3, "Fee 300."))
    await talk.line(range(4))
    turn = await talk.write(5, 3)
    turn = await talk.write(6, 5)
    talk.summaries.after_turn(await talk.branch(5), turn)
    await asyncio.sleep(0.15)  # the summary is being written
    await talk.turns.delete([uid(1)])  # as another worker does, which cannot cancel this one
    await talk.summaries.idle()
    assert await stored_summaries(talk) == []


async def test_a_turn_is_not_summarised_between_forgetting_and_erasing_it(store: VectorStore) -> None:
    """Discriminates: assuming that a turn which still exists will stay."""
    talk = Conversation(store, model("Fee 300."))
    for number in range(6):
        last = await talk.write(number, number - 1 if number else None)
    await talk.forget(1)
    talk.summaries.after_turn(await talk.branch(4), last)
    await talk.summaries.idle()
    assert await stored_summaries(talk) == []


async def test_forgetting_cancels_a_summary_in_progress(store: VectorStore) -> None:
    talk = Conversation(store, model(60.0, "Fee 300."))
    for number in range(6):
        last = await talk.write(number, number - 1 if number else None)
    talk.summaries.after_turn(await talk.branch(4), last)
    await asyncio.sleep(0.1)  # the summary is being written
    async with asyncio.timeout(3):
        await talk.forget(1)
        await talk.summaries.idle()


async def test_a_session_has_one_summary_job_at_a_time(store: VectorStore) -> None:
    """Discriminates: starting a job for every turn that ends."""
    RECORDED.clear()
    talk = Conversation(store, model(0.2, "Fee 300.", record_as="once"))
    for number in range(8):
        last = await talk.write(number, number - 1 if number else None)
    nodes = await talk.branch(6)
    for _ in range(5):
        talk.summaries.after_turn(nodes, last)
    await talk.summaries.idle()
    assert len(RECORDED["once"]) == 1
    assert await stored_summaries(talk) == [5]


async def test_a_stale_branch_is_not_summarised_again(store: VectorStore) -> None:
    """A turn that began before the summary was stored does not know it."""
    talk = Conversation(store, model("Fee 300."))
    await talk.line(range(5))
    stale = await talk.branch(4)
    await talk.ask(5, 4)
    assert await stored_summaries(talk) == [2]
    talk.summaries.after_turn(stale, await talk.write(6, 4))
    await talk.summaries.idle()
    assert await stored_summaries(talk) == [2]


async def test_300_imported_turns_are_summarised_in_bounded_steps(store: VectorStore) -> None:
    """Discriminates: one prompt with all of them; continuing until nothing is left."""
    RECORDED.clear()
    talk = Conversation(store, model("Fee 300.", record_as="import"), max_recent_turns=5)
    answer = ANSWER * 3
    turns = [await talk.write(number, number - 1 if number else None, answer) for number in range(300)]
    for done in range(1, 4):
        turn = await talk.write(299 + done, 298 + done)
        talk.summaries.after_turn(await talk.branch(298 + done), turn)
        await talk.summaries.idle()
        assert len(RECORDED["import"]) <= MAX_STEPS * done
    prompt = [dict(call)["user"] for call in RECORDED["import"]]
    assert max(map(estimate_tokens, prompt)) < STEP_TOKENS + 100
    assert len(await stored_summaries(talk)) == len(prompt)
    covered = await talk.covered(302)
    assert covered == list(range(len(covered)))
    assert len(covered) > 150
    assert len(turns) == 300


async def test_a_small_window_takes_smaller_steps(store: VectorStore) -> None:
    RECORDED.clear()
    entry = model("Fee 300.", record_as="small", context_window=2_048, max_tokens=512)
    talk = Conversation(store, entry)
    for number in range(29):
        await talk.write(number, number - 1 if number else None, ANSWER if number else ANSWER * 300)
    await talk.ask(29, 28)
    prompt = [" ".join(dict(call).values()) for call in RECORDED["small"]]
    assert len(prompt) == MAX_STEPS
    assert max(map(estimate_tokens, prompt)) < 2_048 - 512


async def test_a_chain_of_summaries_longer_than_a_page_is_followed(store: VectorStore) -> None:
    """Discriminates: checking only the nearest summaries."""
    talk = Conversation(store, model("Fee 300."), max_recent_turns=0, compress_after_tokens=200)
    await talk.line(range(72))
    assert len(await stored_summaries(talk)) > 32
    covered = await talk.covered(71)
    assert covered == list(range(len(covered)))
    assert len(covered) >= 70


async def test_an_unreadable_summary_is_skipped_and_deleted_by_any_erasure(store: VectorStore) -> None:
    talk = Conversation(store, model("Fee 300."))
    await talk.line(range(9))
    await talk.turns.set_payload({"summary": {"text": 3}}, [uid(5)])
    assert await talk.covered(8) == [0, 1, 2]
    assert await talk.forget(8) == 1
    assert await stored_summaries(talk) == [2]


@pytest.mark.slow("the model is silent for longer than the close waits")
async def test_closing_does_not_wait_for_a_slow_model(store: VectorStore) -> None:
    talk = Conversation(store, model(60.0, "Fee"))
    for number in range(6):
        last = await talk.write(number, number - 1 if number else None)
    talk.summaries.after_turn(await talk.branch(4), last)
    async with asyncio.timeout(5):
        await talk.summaries.close()
    assert await stored_summaries(talk) == []


async def test_an_unexpected_error_of_a_model_class_is_logged_and_blocks_nothing(
    store: VectorStore,
) -> None:
    """Discriminates: a job that blocks the session's next one."""
    broken = model("Fee 300.")
    talk = Conversation(store, replace(broken, count_tokens=lambda text: 1 // 0))
    await talk.line(range(6))
    assert await stored_summaries(talk) == []
    whole = Conversation(store, broken)
    await whole.ask(6, 5)
    assert await whole.covered(6) == [0, 1, 2, 3, 4]


async def test_a_completion_model_gets_one_text(store: VectorStore) -> None:
    RECORDED.clear()
    talk = Conversation(store, model("Fee ", "300.", record_as="flat", layout=Layout.FLAT))
    await talk.line(range(6))
    ((role, prompt),) = RECORDED["flat"][0]
    assert role == "prompt"
    assert prompt.startswith("You summarise")
    assert "member 2?" in prompt


@pytest.mark.parametrize("beginning", ["I reason\n</think>\n\n", "<think>I reason</think>"])
async def test_a_summary_contains_none_of_the_models_thinking(store: VectorStore, beginning: str) -> None:
    """Discriminates: storing the raw reply, with or without tags, which puts the reasoning into later
    prompts."""
    talk = Conversation(store, model(beginning, "Fee 300."))
    await talk.line(range(6))
    assert await talk.text(5) == "Fee 300."


async def test_thinking_without_an_answer_is_not_a_summary(store: VectorStore) -> None:
    """Discriminates: falling back on the reasoning if nothing else is left."""
    talk = Conversation(store, model("I reason\n</think>\n"))
    await talk.line(range(6))
    assert await stored_summaries(talk) == []


async def test_a_chinese_conversation_is_summarised_in_chinese(store: VectorStore) -> None:
    RECORDED.clear()
    talk = Conversation(store, model("年费三百元。", record_as="zh"))
    last = None
    for number in range(6):
        question = f"第 {number} 位会员的年费是多少?"
        await talk.ask(number, last, "年费三百元,由李伟在一月缴纳。" * 12, question=question)
        last = number
    prompt = dict(RECORDED["zh"][0])
    assert prompt["system"].startswith("你负责概括")
    assert "100 字" in prompt["user"]
