"""F1 and F2: the server is killed at a random moment, and between the store's write and DONE."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.outcome import Fault, Outcome
from tests.faults.world.client import Client, open_client
from tests.faults.world.echo_model import EchoModel, answer_to, open_echo_model, question
from tests.faults.world.ledger import DOCUMENT, Acknowledged, Ledger, check_session, check_turn
from tests.faults.world.server_world import StartFailedError, World, open_world
from tests.faults.world.warm_start import open_warm

WRITERS = 4
READY_S = 5.0
_COLD_EVERY = 20
_MOST_STARTS = 5
_REREAD_EVERY = 10
_REREAD = 50
_PLACES = ("turn.stored", "turn.begun")


@dataclass
class Killing:
    """One data folder over all trials, so that it grows."""

    world: World
    outcome: Outcome
    random: Random
    ledger: Ledger = field(default_factory=Ledger)
    unanswered: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    """By turn id, what was sent with that id and not acknowledged."""

    async def trial(self, number: int) -> None:
        where = f"trial {number}"
        writers = [
            asyncio.create_task(self._write(f"t{number}w{writer}", Random(self.random.random())))
            for writer in range(WRITERS)
        ]
        with_store = await self._kill()
        touched = {session_id for written in await asyncio.gather(*writers) for session_id in written}
        await self._restart(cold=number % _COLD_EVERY == _COLD_EVERY - 1, where=where)
        async with open_client(self.world.url) as client:
            for session_id in touched:
                await check_session(client, self.ledger, session_id, self.outcome, where)
            if number % _REREAD_EVERY == _REREAD_EVERY - 1:
                await self._reread(client, where)
            await self._send_again(client, where)
        self.outcome.count(f"killed, store {with_store}")

    async def _write(self, name: str, choice: Random) -> set[str]:
        """Ask until the connection breaks. Returns the sessions that were written to."""
        touched: set[str] = set()
        mine: list[Acknowledged] = []
        async with open_client(self.world.url) as client:
            for number in range(1_000):
                asked = question(f"{name}n{number}", choice.randint(1, 30), choice.choice((0, 0, 2, 10)))
                body = self._body(mine, choice)
                self.ledger.asked.add(asked)
                reply = await client.ask(asked, **body)
                turn = self.ledger.note(asked, reply)
                touched |= {reply.streamed.session_id, body.get("session_id", "")} - {""}
                if turn is not None:
                    mine.append(turn)
                elif body.get("turn_id"):
                    self.unanswered[body["turn_id"]] = (asked, body)
                if reply.status == 0 or reply.cut or not reply.streamed.kinds:
                    break
        return touched

    def _body(self, mine: list[Acknowledged], choice: Random) -> dict[str, Any]:
        """A new session, the old one, or a sibling in it; with the client's turn id or without."""
        body: dict[str, Any] = {"turn_id": str(uuid.UUID(int=choice.getrandbits(128), version=4))}
        if choice.random() < 0.5:
            body = {}
        if mine and choice.random() < 0.85:
            body["session_id"] = mine[-1].session_id
            if choice.random() < 0.3:
                siblings = [turn for turn in mine if turn.session_id == mine[-1].session_id]
                body["parent_turn_id"] = choice.choice([None, *[turn.turn_id for turn in siblings]])
        return body

    async def _kill(self) -> str:
        """At a random moment: the server, both processes at once, or the store first and the server later."""
        await asyncio.sleep(self.random.uniform(0, 2))
        how = self.random.choice(("killed with it", "killed with it", "left to itself", "killed first"))
        if how == "killed first":
            self.world.kill_store()
            await asyncio.sleep(self.random.uniform(0, 1))
        await self.world.kill(with_store=how == "killed with it")
        return how

    async def _restart(self, *, cold: bool, where: str) -> None:
        """A refused start is a loss, and is retried as a supervisor would."""
        for attempt in range(_MOST_STARTS):
            try:
                await self.world.start(cold=cold)
                break
            except StartFailedError as error:
                self.outcome.losses.append(f"{where}: start {attempt + 1} failed: {error}")
                if attempt + 1 == _MOST_STARTS:
                    raise
        ready_s = self.world.ready_after_s
        kind = "cold start, worst s" if cold else "warm start, worst s"
        self.outcome.worst(kind, ready_s)
        if os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
            self.outcome.count("machine too busy to judge a start")
            return
        self.outcome.expect(ready_s <= READY_S, f"{where}: ready after {ready_s:.1f} s")

    async def _reread(self, client: Client, where: str) -> None:
        turns = list(self.ledger.turns.values())
        for acknowledged in self.random.sample(turns, min(_REREAD, len(turns))):
            await check_turn(client, acknowledged, self.outcome, f"{where}, read again")

    async def _send_again(self, client: Client, where: str) -> None:
        """What was not acknowledged is sent again under its id, and is then answered once and completely."""
        for turn_id, (asked, body) in self.unanswered.items():
            reply = await client.ask(asked, **body)
            if reply.status == 404:  # the crash came before its session was stored
                reply = await client.ask(asked, turn_id=turn_id)
            turn = self.ledger.note(asked, reply)
            is_whole = turn is not None and turn.turn_id == turn_id and turn.answer == answer_to(asked)
            self.outcome.expect(
                is_whole, f"{where}: {turn_id} sent again gives {reply.status} {reply.text[-500:]}"
            )
        self.unanswered.clear()

    async def read_everything(self) -> None:
        async with open_client(self.world.url) as client:
            counts = [
                await check_session(client, self.ledger, session_id, self.outcome, "at the end")
                for session_id in self.ledger.sessions
            ]
        self.outcome.figures["turns"] = sum(counts)
        acknowledged = self.ledger.turns.values()
        self.outcome.figures["acknowledged"] = len(acknowledged)
        self.outcome.figures["of them with citations"] = sum(bool(turn.sources) for turn in acknowledged)


async def kill_at_random_moments(trials: int, folder: Path, seed: int) -> Outcome:
    outcome = Outcome()
    async with AsyncExitStack() as stack:
        warm = await stack.enter_async_context(open_warm())
        model = await stack.enter_async_context(open_echo_model())
        world = await stack.enter_async_context(open_world(folder, warm, OPENAI_BASE_URL=model.url))
        await world.start()
        async with open_client(world.url) as client:
            await client.add_document("lighthouse.md", DOCUMENT)
        killing = Killing(world, outcome, Random(seed))
        for number in range(trials):
            await killing.trial(number)
            outcome.trials += 1
        await killing.read_everything()
        outcome.worst_s = max(
            float(outcome.figures.get(f"{kind} start, worst s", 0)) for kind in ("cold", "warm")
        )
    return outcome


async def kill_between_store_and_done(trials: int, folder: Path, seed: int) -> Outcome:
    outcome = Outcome()
    choice = Random(seed)
    async with AsyncExitStack() as stack:
        warm = await stack.enter_async_context(open_warm())
        model = await stack.enter_async_context(open_echo_model())
        world = await stack.enter_async_context(open_world(folder, warm, OPENAI_BASE_URL=model.url))
        for number in range(trials):
            place, passed = choice.choice(_PLACES), choice.randint(1, 3)
            if number < len(_PLACES):  # each place at the first turn of a new session
                place, passed = _PLACES[number], 1
            await world.start(WENMAI_FAILPOINT=f"{place}:{passed}")
            await _die_at(world, model, outcome, f"{place}, trial {number}", passed)
            outcome.trials += 1
    return outcome


async def _die_at(world: World, model: EchoModel, outcome: Outcome, where: str, passed: int) -> None:
    """The last of `passed` turns dies at the armed place; sent again, it is answered once and completely."""
    ledger = Ledger()
    session: dict[str, Any] = {}
    async with open_client(world.url) as client:
        for number in range(passed):
            turn_id = str(uuid.uuid4())
            asked = question(turn_id, 12)
            reply = await client.ask(asked, turn_id=turn_id, **session)
            acknowledged = ledger.note(asked, reply)
            if acknowledged is not None and number < passed - 1:
                session = {"session_id": acknowledged.session_id}
    if not reply.cut:
        outcome.losses.append(f"{where}: the server passed the failpoint alive")
        await world.kill(with_store=True)
    else:
        code = await world.wait()
        outcome.expect(code == -signal.SIGKILL, f"{where}: the server ended with {code}")
    await world.start()
    async with open_client(world.url) as client:
        await _send_again(client, model, ledger, outcome, where, asked, turn_id)
    outcome.took(world.ready_after_s)
    await world.kill(with_store=False)


async def _send_again(
    client: Client, model: EchoModel, ledger: Ledger, outcome: Outcome, where: str, asked: str, turn_id: str
) -> None:
    stored = where.startswith("turn.stored")
    before = await client.get(f"/turns/{turn_id}")
    status = before.json.get("status") if before.status == 200 else f"unknown, {before.status}"
    expected = "completed" if stored else "interrupted"
    outcome.expect(status == expected, f"{where}: reads as {status} after the restart")
    outcome.expect(model.calls[asked] == stored, f"{where}: {model.calls[asked]} calls before the restart")
    reply = await client.ask(asked, turn_id=turn_id)
    acknowledged = ledger.note(asked, reply)
    right = acknowledged is not None and acknowledged.answer == answer_to(asked)
    outcome.expect(right, f"{where}: sent again gives {reply.status} {reply.text[-500:]}")
    outcome.expect(model.calls[asked] == 1, f"{where}: the model was called {model.calls[asked]} times")
    if acknowledged is not None:
        await check_session(client, ledger, acknowledged.session_id, outcome, where)


def _run_random(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(kill_at_random_moments(trials, folder, seed))


def _run_between(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(kill_between_store_and_done(trials, folder, seed))


FAULTS = (
    Fault(
        "F1/G1 kill -9 with four writers",
        "every acknowledged turn there, whole, once; the others whole or interrupted; ready in 5 s",
        _run_random,
        short=4,
        long=200,
    ),
    Fault(
        "F2 killed between store and DONE",
        "sent again, the stored answer comes and the model is not called",
        _run_between,
        short=2,
        long=100,
    ),
)
