"""G2: thousands of random operations with restarts in between, compared with a small model of the expected
state."""

from __future__ import annotations

import asyncio
import random
import signal
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.faults.outcome import Fault, Outcome
from tests.faults.world.client import Client, Reply
from tests.faults.world.echo_model import EchoModel, answer_to, open_echo_model, question
from tests.faults.world.ledger import DOCUMENT, faults_of
from tests.faults.world.server_world import World, open_world
from tests.faults.world.talk import Talk
from tests.faults.world.warm_start import open_warm

AT_ONCE = 4
RESTART_EVERY = 500
_MAX_TURNS = 40


@dataclass
class Operating:
    """Each session belongs to one worker, so that the model knows the order of its operations."""

    client: Client
    model: EchoModel
    outcome: Outcome
    worker: int
    random: random.Random
    talks: dict[str, Talk] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    erased: list[str] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)
    number: int = 0

    async def one(self) -> None:
        self.number += 1
        ways: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (8, self.new_session),
            (34, self.follow_up),
            (14, self.regenerate),
            (12, self.retry),
            (8, self.stop),
            (12, self.erase_turn),
            (4, self.erase_session),
            (4, self.import_tree),
        ]
        way = self.random.choices([way for _, way in ways], weights=[weight for weight, _ in ways])[0]
        name = getattr(way, "__name__", "")
        self.outcome.count(name)
        await way()

    async def new_session(self) -> None:
        asked, reply = await self._ask()
        self._note(asked, reply, None)

    async def follow_up(self) -> None:
        """Without a parent: the model does not know which turn counts as newest, so the reply's parent is
        taken."""
        talk = self._some()
        if talk is None or len(talk.parents) >= _MAX_TURNS:
            return await self.new_session()
        asked, reply = await self._ask(session_id=talk.session_id)
        self._note(asked, reply, talk)
        return None

    async def regenerate(self) -> None:
        talk = self._some()
        if talk is None or not talk.parents:
            return await self.new_session()
        parent = self.random.choice([None, *talk.parents])
        asked, reply = await self._ask(session_id=talk.session_id, parent_turn_id=parent)
        turn_id = self._note(asked, reply, talk)
        reported = talk.parents.get(str(turn_id), "no turn")
        self._expect(reported == parent, f"asked below {parent}, stored below {reported}")
        return None

    async def retry(self) -> None:
        talk = self._some()
        if talk is None or not talk.parents:
            return
        turn_id = self.random.choice(list(talk.parents))
        asked = talk.questions[turn_id]
        calls = self.model.calls[asked]
        reply = await self.client.ask(asked, turn_id=turn_id, session_id=talk.session_id)
        if asked.startswith("imported"):
            self._expect(reply.code == "turn_conflict", f"{turn_id}: retry of an import: {reply.code}")
            return
        again = turn_id in self.stopped
        self._expect(self.model.calls[asked] == calls + again, f"{turn_id}: retry called the model")
        self._expect(
            reply.acknowledged and reply.streamed.answer == answer_to(asked),
            f"{turn_id}: {reply.text[-300:]}",
        )
        if again and reply.acknowledged:
            self.stopped.discard(turn_id)
            talk.put(turn_id, reply.streamed.finished["parent_turn_id"], asked, reply.streamed.answer)

    async def stop(self) -> None:
        talk = self._some()
        turn_id = str(uuid.uuid4())
        session: dict[str, Any] = {"session_id": talk.session_id} if talk else {}
        speaking = asyncio.Event()
        asked = self._question(words=30, pause_ms=10)
        asking = asyncio.create_task(self.client.ask(asked, speaking=speaking, turn_id=turn_id, **session))
        received = asyncio.create_task(speaking.wait())
        await asyncio.wait([asking, received], return_when=asyncio.FIRST_COMPLETED)
        received.cancel()
        await self.client.post(f"/turns/{turn_id}/stop")
        reply = await asking
        self._note(asked, reply, talk)
        if reply.done and reply.streamed.finished["status"] == "cancelled":
            self.stopped.add(turn_id)

    async def erase_turn(self) -> None:
        talk = self._some()
        if talk is None or not talk.parents:
            return
        turn_id = self.random.choice(list(talk.parents))
        reply = await self.client.delete(f"/turns/{turn_id}")
        self._expect(reply.status == 200, f"erasing {turn_id}: {reply.status} {reply.code}")
        talk.erase(turn_id)
        self.erased.append(turn_id)

    async def erase_session(self) -> None:
        talk = self._some()
        if talk is None:
            return
        reply = await self.client.delete(f"/sessions/{talk.session_id}")
        erased = reply.json.get("turns_erased") if reply.status == 200 else None
        self._expect(erased == len(talk.parents), f"erasing {talk.session_id}: {reply.status} {erased} turns")
        self.erased += list(talk.parents)
        del self.talks[talk.session_id]

    async def import_tree(self) -> None:
        """Import a tree with branches; parents come before their children."""
        ids = [str(uuid.UUID(int=self.random.getrandbits(128), version=4)) for _ in range(6)]
        parents: list[str | None] = [
            self.random.choice([None, *ids[:at]]) if at else None for at in range(len(ids))
        ]
        rows = [
            {
                "turn_id": turn_id,
                "parent_turn_id": parent,
                "question": f"imported {turn_id}",
                "answer": "Yes.",
            }
            for turn_id, parent in zip(ids, parents, strict=True)
        ]
        reply = await self.client.post("/sessions/import", {"turns": rows})
        self._expect(reply.status == 201, f"import: {reply.status} {reply.text[:300]}")
        if reply.status == 201:
            talk = Talk(reply.json["session_id"])
            self.talks[talk.session_id] = talk
            for turn_id, parent in zip(ids, parents, strict=True):
                talk.put(turn_id, parent, f"imported {turn_id}", "Yes.")

    def _some(self) -> Talk | None:
        return self.random.choice(list(self.talks.values())) if self.talks else None

    def _question(self, words: int = 3, pause_ms: int = 0) -> str:
        return question(f"w{self.worker}n{self.number}", words, pause_ms)

    async def _ask(self, **body: Any) -> tuple[str, Reply]:
        asked = self._question()
        if self.random.random() < 0.5:
            body["turn_id"] = str(uuid.UUID(int=self.random.getrandbits(128), version=4))
        return asked, await self.client.ask(asked, **body)

    def _note(self, asked: str, reply: Reply, talk: Talk | None) -> str | None:
        self._expect(reply.acknowledged, f"{asked}: {reply.status} {reply.text[-300:]}")
        if not reply.acknowledged:
            return None
        streamed = reply.streamed
        talk = talk or self.talks.setdefault(streamed.session_id, Talk(streamed.session_id))
        turn_id, parent = str(streamed.finished["turn_id"]), streamed.finished["parent_turn_id"]
        self._expect(parent is None or parent in talk.parents, f"{asked}: grew below the unknown {parent}")
        talk.put(turn_id, parent, asked, streamed.answer)
        return turn_id

    def _expect(self, remaining: bool, promise: str) -> None:
        self.outcome.expect(remaining, f"worker {self.worker}, operation {self.number}: {promise}")

    async def check(self, *, texts: bool) -> None:
        """Check that each session's tree is the model's; with `texts` each turn is read, too."""
        for talk in self.talks.values():
            reply = await self.client.get(f"/sessions/{talk.session_id}/tree")
            self._expect(reply.status == 200, f"{talk.session_id}: tree {reply.status} {reply.code}")
            if reply.status == 200:
                self._check_tree(talk, reply.json["turns"])
            if texts:
                for turn_id in talk.parents:
                    await self._check_turn(talk, turn_id)
        for turn_id in self.erased if texts else ():
            reply = await self.client.get(f"/turns/{turn_id}")
            self._expect(reply.status == 404, f"the erased {turn_id} reads as {reply.status}")

    def _check_tree(self, talk: Talk, nodes: list[dict[str, Any]]) -> None:
        read = {node["turn_id"]: node["parent_turn_id"] for node in nodes}
        self._expect(len(read) == len(nodes), f"{talk.session_id} lists a turn twice")
        strange = set(read) ^ set(talk.parents)
        self._expect(not strange, f"{talk.session_id}: {sorted(strange)} are on one side only")
        for fault in faults_of(read):
            if fault not in self.reported:  # once, not again after each restart
                self._expect(False, f"{talk.session_id}: {fault}")
            self.reported.add(fault)
        for turn_id in set(read) & set(talk.parents):
            parent = read[turn_id]
            known = parent is None or parent in read
            right = parent == talk.read_parent(turn_id) or not known
            self._expect(right, f"{talk.session_id}: {turn_id} has another parent, {parent}")

    async def _check_turn(self, talk: Talk, turn_id: str) -> None:
        reply = await self.client.get(f"/turns/{turn_id}")
        turn = reply.json if reply.status == 200 else {}
        read = (turn.get("question"), turn.get("answer"))
        expected = (talk.questions[turn_id], talk.answers[turn_id])
        self._expect(read == expected, f"{turn_id} reads as {reply.status} {read}, was {expected}")


async def operate(trials: int, folder: Path, seed: int) -> Outcome:
    outcome = Outcome()
    seeds = random.Random(seed)
    async with AsyncExitStack() as stack:
        warm = await stack.enter_async_context(open_warm())
        model = await stack.enter_async_context(open_echo_model())
        world = await stack.enter_async_context(open_world(folder, warm, OPENAI_BASE_URL=model.url))
        connector = aiohttp.TCPConnector(force_close=True)
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        await world.start()
        workers = [
            Operating(Client(http, world.url), model, outcome, at, random.Random(seeds.random()))
            for at in range(AT_ONCE)
        ]
        await workers[0].client.add_document("lighthouse.md", DOCUMENT)
        for begun in range(0, trials, min(RESTART_EVERY, max(trials // 3, AT_ONCE))):
            each = min(RESTART_EVERY, max(trials // 3, AT_ONCE), trials - begun) // AT_ONCE
            await asyncio.gather(*[_several(worker, each) for worker in workers])
            await _restart(world, seeds)
            for worker in workers:
                worker.client = Client(http, world.url)
                await worker.check(texts=False)
            outcome.took(world.ready_after_s)
        for worker in workers:
            await worker.check(texts=True)
        outcome.trials = sum(worker.number for worker in workers)
        outcome.figures["sessions left"] = sum(len(worker.talks) for worker in workers)
        outcome.figures["turns left"] = sum(len(t.parents) for w in workers for t in w.talks.values())
        outcome.figures["restarts"] = world.starts - 1
    return outcome


async def _several(worker: Operating, number: int) -> None:
    for _ in range(number):
        await worker.one()


async def _restart(world: World, choice: random.Random) -> None:
    """Between operations, by SIGKILL of one or both processes, or by SIGTERM."""
    if choice.random() < 0.3:
        world.signal(signal.SIGTERM)
        await world.wait()
    else:
        await world.kill(with_store=choice.random() < 0.7)
    await world.start()


def _run(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(operate(trials, folder, seed))


FAULTS = (
    Fault(
        "G2 random operations with restarts",
        "no turn but those of the model, no parent that dangles or circles, no second call for a retry",
        _run,
        short=150,
        long=10_000,
    ),
)
