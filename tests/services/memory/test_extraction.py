"""What a model proposes: what it reads, how its reply is handled, and that each turn is read once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from core.conversation.turns import AskedWith, Turn, TurnStatus
from core.errors import LLMUnavailableError
from core.memory.gate import Refusal
from core.memory.record import MemoryType
from core.prompt.messages import Message
from services.conversation.turns import TurnStore, TurnVectors
from services.memory.extraction import (
    CLAIM,
    CLAIM_S,
    CLAIMED_US,
    MAX_TURNS,
    READ,
    Extraction,
    UnreadTurn,
    UnreadTurns,
    read_proposals,
    task_of,
)
from services.memory.records import MemoryRecords, MemorySwitch
from services.memory.turns import MemoryLearning, Reading
from services.memory.writing import MemoryWriter
from services.store.clock import Activity, utc_now_us
from services.store.dialect import VectorStore
from tests.services.conversation.stores import (
    TURNS,
    open_edge,
    open_memory,
    turn_store,
    uid,
)
from tests.services.memory.parts import embed, make_collection
from tests.services.operations.retention.parts import MEMORIES


def said(number: int, question: str, answer: str = "好的") -> UnreadTurn:
    return UnreadTurn(uid(number), question, answer, number, number, skipped=False)


def reply_of(*items: dict[str, Any]) -> str:
    return json.dumps(list(items), ensure_ascii=False)


def test_the_model_reads_the_persons_words_and_confirmed_answers_only() -> None:
    """Discriminates: answers, which repeat recalled memories and documents, as a source."""
    turns = [
        said(1, "我叫张三", "张三你好，资料说火星有水"),
        said(2, "年假几天", "您在财务部吗？"),
        said(3, "对，是的", "好"),
    ]
    task = json.loads(task_of(turns))
    assert [turn["said"] for turn in task["turns"]] == ["我叫张三", "年假几天", "对，是的"]
    assert [turn.get("confirms") for turn in task["turns"]] == [None, None, "您在财务部吗？"]
    assert "火星" not in json.dumps(task, ensure_ascii=False)


def test_an_accepted_memory_has_its_turns_and_the_time_of_the_statement() -> None:
    turns = [said(1, "我叫张三"), said(2, "我喜欢红茶"), said(3, "以后请用英文回答")]
    reply = reply_of(
        {"content": "用户的名字是张三", "type": "fact", "turn_ids": [1]},
        {"content": "用户喜欢红茶", "type": "preference", "turn_ids": ["2"]},
        {"content": "用户要求以后用英文回答", "type": "instruction", "turn_ids": 3},
    )
    proposals = read_proposals(f"Here you are:\n```json\n{reply}\n```", "s", turns)
    assert proposals.refused == ()
    assert [(each.content, each.type, each.turn_ids, each.said_us) for each in proposals.drafts] == [
        ("用户的名字是张三", MemoryType.FACT, (uid(1),), 1),
        ("用户喜欢红茶", MemoryType.PREFERENCE, (uid(2),), 2),
        ("用户要求以后用英文回答", MemoryType.INSTRUCTION, (uid(3),), 3),
    ]


def test_the_assistants_statement_counts_if_the_person_confirmed_it() -> None:
    turns = [said(1, "年假几天", "您在财务部工作，对吗？"), said(2, "对")]
    supported = {"content": "用户在财务部工作", "turn_ids": [2]}
    assert len(read_proposals(reply_of(supported), "s", turns).drafts) == 1
    unconfirmed = [turns[0], said(2, "谢谢")]
    assert read_proposals(reply_of(supported), "s", unconfirmed).refused == (Refusal.UNSUPPORTED,)


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ({"content": "用户住在巴黎", "turn_ids": [1]}, Refusal.UNSUPPORTED),
        ({"content": "用户的名字是张三", "turn_ids": []}, Refusal.NO_SOURCE),
        ({"content": "用户的名字是张三", "turn_ids": [7]}, Refusal.NO_SOURCE),
        ({"content": "用户的名字是张三", "turn_ids": ["x", None, -1]}, Refusal.NO_SOURCE),
        ({"content": "", "turn_ids": [1]}, Refusal.EMPTY),
        ({"turn_ids": [1]}, Refusal.EMPTY),
        ({"content": {"a": 1}, "turn_ids": [1]}, Refusal.NOT_ABOUT_PERSON),
        ({"content": "张" * 600, "turn_ids": [1]}, Refusal.TOO_LONG),
    ],
)
def test_a_refused_proposal_has_a_reason(item: dict[str, Any], why: Refusal) -> None:
    proposals = read_proposals(reply_of(item), "s", [said(1, "我叫张三")])
    assert (proposals.drafts, proposals.refused) == ((), (why,))


def test_broken_replies_are_parsed_as_far_as_possible_within_limits() -> None:
    turns = [said(1, "我叫张三")]
    name = '{"content": "用户的名字是张三", "type": "fact", "turn_ids": [1]}'
    single = name.replace('"', "'")
    for reply in (f"[{name},]", f'[{name}, {{"content": ', f"sure: {name}", f"[{single}]"):
        (draft,) = read_proposals(reply, "s", turns).drafts
        assert draft.content == "用户的名字是张三"
    for reply in ("", "I am sorry.", "[" * 5_000, "x" * 9_000, "{}", "null"):
        assert read_proposals(reply, "s", turns).refused == (Refusal.UNREADABLE,), reply[:20]
    assert read_proposals("[]", "s", turns).refused == ()
    many = read_proposals(f"[{','.join([name] * 14)}]", "s", turns)
    assert (len(many.drafts), many.refused) == (10, (Refusal.TOO_MANY,) * 4)


@dataclass
class Model:
    """Records what it was sent, and replies with `replies` in turn; "!" is a model that is down, "..." one
    that thinks for ever."""

    replies: list[str] = field(default_factory=list)
    numbers: list[list[str]] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, messages: Sequence[Message]) -> str:
        task = json.loads(messages[-1].content)
        reply = self.replies.pop(0) if self.replies else "[]"
        self.asked.set()
        if reply == "!":
            raise LLMUnavailableError("down")
        if reply == "...":
            await asyncio.Event().wait()
        self.numbers.append([turn["said"] for turn in task["turns"]])
        await asyncio.sleep(0)
        return reply

    @property
    def read(self) -> list[str]:
        return [text for call in self.numbers for text in call]


@dataclass
class Bench:
    store: VectorStore
    turns: TurnStore
    model: Model = field(default_factory=Model)

    def worker(
        self, min_turns: int = 2, *, alone: bool = False, clock: Callable[[], int] = utc_now_us
    ) -> MemoryLearning:
        records = MemoryRecords(self.store, MEMORIES)
        extraction = Extraction(self.model, lambda language: "find")
        unread = UnreadTurns(self.store, TURNS, alone=alone, clock=clock)
        reading = Reading(unread, extraction, Activity(), min_turns)
        return MemoryLearning(records, MemoryWriter(records, embed, "hashing"), on=True, reading=reading)

    async def answered(self, number: int, **fields: Any) -> Turn:
        turn = Turn(
            **{
                "turn_id": uid(number), "session_id": uid(500), "owner": "local",
                "question": f"问题 {number}",
                "created_us": number, "status": TurnStatus.COMPLETED, "seq": number, **fields,
            }
        )  # fmt: skip
        await self.turns.put(turn, TurnVectors())
        return turn


@pytest.fixture(params=["edge", "reference"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    opened = open_edge(tmp_path) if request.param == "edge" else open_memory()
    async with opened as store:
        await make_collection(store)
        yield Bench(store, turn_store(store))


async def test_each_turn_is_read_once_by_two_workers_and_across_restarts(bench: Bench) -> None:
    """(c) Discriminates: two workers that check at the same moment; a restart that reads from the
    beginning."""
    workers = [bench.worker(), bench.worker()]
    for number in range(1, 41):
        turn = await bench.answered(number)
        for worker in workers:
            worker.after_turn(turn, earlier=range(number - 1))
        if number == 20:
            for worker in workers:
                await worker.close()
            workers = [bench.worker(), bench.worker()]
    for worker in workers:
        await worker.idle()
    assert sorted(bench.model.read) == sorted(f"问题 {number}" for number in range(1, 41))
    assert max(map(len, bench.model.numbers)) <= MAX_TURNS


class Late:
    """A worker's access to the store on which its first write is delayed until `gate` opens."""

    def __init__(self, store: VectorStore) -> None:
        self._store = store
        self.arrived, self.gate = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def set_payload(self, *args: Any, **kwargs: Any) -> Any:
        self.arrived.set()
        await self.gate.wait()
        return await self._store.set_payload(*args, **kwargs)


async def test_of_two_workers_that_see_the_same_turns_the_first_writer_reads_them(bench: Bench) -> None:
    """Discriminates: overwriting another's claim."""
    await bench.answered(1)
    late = Late(bench.store)
    second = asyncio.create_task(UnreadTurns(cast(VectorStore, late), TURNS).claim(uid(500), "local", 0))
    await late.arrived.wait()
    first = await UnreadTurns(bench.store, TURNS).claim(uid(500), "local", 0)
    late.gate.set()
    assert [turn.turn_id for turn in first] == [uid(1)]
    assert await second == []


async def killed(bench: Bench, number: int, **fields: Any) -> None:
    """A worker was killed after claiming the turn, and storing `fields`."""
    await bench.answered(number)
    claim = {CLAIM: "killed", CLAIMED_US: utc_now_us(), **fields}
    await bench.store.set_payload(TURNS, claim, points=[uid(number)])


async def test_turns_claimed_by_a_killed_worker_and_not_sent_yet_are_read(bench: Bench) -> None:
    """Discriminates: a permanent claim; one taken from a worker that is alive."""
    await killed(bench, 1)
    beside = bench.worker()
    beside.after_turn(await bench.answered(2), earlier=range(1))
    await beside.idle()
    assert bench.model.read == ["问题 2"]  # the worker that claimed the first one may still be alive
    later = bench.worker(clock=lambda: utc_now_us() + (CLAIM_S + 1) * 1_000_000)
    later.after_turn(await bench.answered(3), earlier=range(2))
    await later.idle()
    assert bench.model.read == ["问题 2", "问题 1", "问题 3"]


async def test_a_single_worker_frees_all_earlier_claims_except_turns_already_sent(bench: Bench) -> None:
    """Discriminates: a turn in two prompts; one that waits although no other worker can have it."""
    await killed(bench, 1)
    await killed(bench, 2, **{READ: "killed"})
    worker = bench.worker(alone=True)
    worker.after_turn(await bench.answered(3), earlier=range(2))
    await worker.idle()
    assert bench.model.read == ["问题 1", "问题 3"]


async def test_a_start_reads_unread_turns_of_sessions_that_are_long_enough(
    bench: Bench,
) -> None:
    """Discriminates: losing the facts of a conversation that does not continue after a crash."""
    now = utc_now_us()
    two_days = 2 * 86_400_000_000
    for number, session in ((1, 500), (2, 500), (3, 600), (4, 700), (5, 700)):
        created_us = now - two_days if session == 700 else now
        await bench.answered(number, session_id=uid(session), created_us=created_us + number)
    for _ in range(2):
        worker = bench.worker()
        await worker.catch_up()
        await worker.idle()
    assert bench.model.read == ["问题 1", "问题 2"]


@pytest.mark.full("closing waits two seconds")
async def test_a_closing_server_releases_turns_that_no_model_has_answered(bench: Bench) -> None:
    """Discriminates: losing facts with each restart."""
    worker = bench.worker()
    bench.model.replies = ["..."]
    await bench.answered(1)
    worker.after_turn(await bench.answered(2), earlier=range(1))
    await bench.model.asked.wait()
    await worker.close()
    again = bench.worker()
    await again.catch_up()
    await again.idle()
    assert bench.model.read == []  # older than a day, as these turns' times say
    again.after_turn(await bench.answered(3), earlier=range(2))
    await again.idle()
    assert bench.model.read == ["问题 1", "问题 2", "问题 3"]


async def test_the_model_is_not_asked_before_the_minimum_number_of_messages(bench: Bench) -> None:
    """(b) Discriminates: a call after the first turn."""
    worker = bench.worker()
    worker.after_turn(await bench.answered(1), earlier=range(0))
    await worker.idle()
    assert bench.model.numbers == []
    worker.after_turn(await bench.answered(2), earlier=range(1))
    await worker.idle()
    assert bench.model.numbers == [["问题 1", "问题 2"]]


async def test_interrupted_failed_command_and_memory_off_turns_are_not_read(bench: Bench) -> None:
    """Discriminates: also, a turn that asks not to be remembered."""
    worker = bench.worker(min_turns=1)
    kinds: tuple[dict[str, Any], ...] = (
        {"status": TurnStatus.CANCELLED},
        {"status": TurnStatus.FAILED},
        {"status": TurnStatus.INTERRUPTED},
        {"command": "help"},
        {"request": AskedWith(memory=False)},
        {"question": "不要记住：我喜欢红茶"},
        {"owner": "somebody"},
        {},
    )
    for number, fields in enumerate(kinds, start=1):
        turn = await bench.answered(number, **fields)
    worker.after_turn(turn, earlier=range(7))
    await worker.idle()
    assert bench.model.read == ["问题 8"]


async def test_a_model_that_is_down_loses_no_turn_and_duplicates_nothing(bench: Bench) -> None:
    """(h) Discriminates: unread turns that count as read; a memory for each attempt."""
    worker = bench.worker(min_turns=1)
    bench.model.replies = ["!", "I am not sure, sorry"]
    worker.after_turn(await bench.answered(1, question="我叫张三"), earlier=range(0))
    await worker.idle()
    assert bench.model.read == []
    worker.after_turn(await bench.answered(2, question="谢谢"), earlier=range(1))  # it replies with nonsense
    await worker.idle()
    bench.model.replies = [reply_of({"content": "用户的名字是张三", "turn_ids": [1]})]
    worker.after_turn(await bench.answered(3, question="我叫张三"), earlier=range(2))
    await worker.idle()
    assert bench.model.read == ["我叫张三", "谢谢", "我叫张三"]
    (memory,) = await MemoryRecords(bench.store, MEMORIES).of_owner("local")
    assert memory.turn_ids == (uid(1), uid(3))


async def test_turns_while_memory_is_off_are_never_learned_from(bench: Bench) -> None:
    """Discriminates: a switch that only delays the reading."""
    records = MemoryRecords(bench.store, MEMORIES)
    worker = bench.worker(min_turns=1)
    await records.set_switch("local", MemorySwitch(False, 1))
    worker.after_turn(await bench.answered(2), earlier=range(0))
    await worker.idle()
    await records.set_switch("local", MemorySwitch(True, 3))
    worker.after_turn(await bench.answered(4), earlier=range(1))
    await worker.idle()
    assert bench.model.read == ["问题 4"]
