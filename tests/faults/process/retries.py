"""F18, F19 and G2: the same turn sent again in every way, and two turns at once in one session."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.outcome import Fault, Outcome
from tests.faults.world.client import Client, Reply, open_client
from tests.faults.world.echo_model import EchoModel, answer_to, open_echo_model, question
from tests.faults.world.ledger import DOCUMENT, Ledger, check_session
from tests.faults.world.server_world import open_world
from tests.faults.world.warm_start import open_warm

AT_ONCE = 8
PARALLEL = 10
GRACE_S = 0.05
_STOPPED = ("cancelled", "interrupted")


@dataclass
class Retrying:
    """Each way sends one key at least twice; `keys` are checked at the end."""

    client: Client
    model: EchoModel
    outcome: Outcome
    ledger: Ledger = field(default_factory=Ledger)
    keys: dict[str, str] = field(default_factory=dict)

    async def after_done(self, key: str, choice: random.Random) -> int:
        """Return the maximum number of model calls of this way."""
        asked = question(key, choice.randint(1, 15))
        for _ in range(choice.randint(2, 4)):
            self._expect_whole(asked, await self._ask(asked, key))
        return 1

    async def in_parallel(self, key: str, choice: random.Random) -> int:
        asked = question(key, choice.randint(1, 15), choice.choice((0, 5)))
        replies = await asyncio.gather(*[self._ask(asked, key) for _ in range(PARALLEL)])
        for reply in replies:
            self._expect_whole(asked, reply)
        return 1

    async def after_leaving(self, key: str, choice: random.Random) -> int:
        """The client leaves; the turn continues for the grace period, or is cut and runs again. Both end
        complete."""
        asked = question(key, choice.randint(10, 30), 10)
        first = await self._ask(asked, key, leave_after_s=choice.choice((0.001, 0.01, 0.05, 0.1, 0.2)))
        await asyncio.sleep(choice.choice((0, GRACE_S)))  # just while the first is being cut
        again = await self._ask(asked, key)
        if again.code == "turn_interrupted":
            self.outcome.losses.append(
                f"{key}: while its first run was being cut, a retry got that run's ERROR"
            )
            again = await self._ask(asked, key)
        self._expect_whole(asked, again)
        return 1 if first.acknowledged else 2

    async def after_stop(self, key: str, choice: random.Random) -> int:
        """Stopped, stored as cancelled, and run again when it is sent again."""
        asked = question(key, choice.randint(20, 40), 20)
        speaking = asyncio.Event()
        first = asyncio.create_task(self._ask(asked, key, speaking=speaking))
        await asyncio.wait([first, asyncio.ensure_future(speaking.wait())], return_when="FIRST_COMPLETED")
        await self.client.post(f"/turns/{key}/stop")
        stopped = await first
        status = stopped.streamed.finished["status"] if stopped.done else f"{stopped.status} {stopped.code}"
        self.outcome.expect(status in ("cancelled", "completed"), f"{key}: stopped it is {status}")
        self._expect_whole(asked, await self._ask(asked, key))
        return 1 if status == "completed" else 2

    async def with_another_body(self, key: str, choice: random.Random) -> int:
        """While the first runs, and after it."""
        asked = question(key, choice.randint(1, 15), choice.choice((0, 10)))
        speaking = asyncio.Event()
        first = asyncio.create_task(self._ask(asked, key, speaking=speaking))
        await (first if choice.random() < 0.5 else speaking.wait())
        other = await self.client.ask(question(f"other-{key}"), turn_id=key)
        outcome = (other.status, other.code)
        self.outcome.expect(
            outcome == (409, "turn_conflict"), f"{key}: another body is answered with {outcome}"
        )
        self._expect_whole(asked, await first)
        self._expect_whole(asked, await self._ask(asked, key))
        return 1

    async def _ask(
        self, asked: str, key: str, speaking: asyncio.Event | None = None, leave_after_s: float | None = None
    ) -> Reply:
        self.keys[key] = asked
        reply = await self.client.ask(asked, turn_id=key, speaking=speaking, leave_after_s=leave_after_s)
        if reply.acknowledged and reply.streamed.finished["status"] not in _STOPPED:
            self.ledger.note(asked, reply)
        return reply

    def _expect_whole(self, asked: str, reply: Reply) -> None:
        whole = reply.acknowledged and reply.streamed.answer == answer_to(asked)
        self.outcome.expect(whole, f"{asked}: answered with {reply.status} {reply.text[-400:]!r}")

    async def one(self, seed: float) -> None:
        choice = random.Random(seed)
        key = str(uuid.UUID(int=choice.getrandbits(128), version=4))
        ways: tuple[Callable[[str, random.Random], Awaitable[int]], ...] = (
            self.after_done,
            self.in_parallel,
            self.after_leaving,
            self.after_stop,
            self.with_another_body,
        )
        way = choice.choice(ways)
        most = await way(key, choice)
        calls = self.model.calls[self.keys[key]]
        where = f"{key} {getattr(way, '__name__', '')}"
        self.outcome.expect(1 <= calls <= most, f"{where}: the model was called {calls} times")
        other = self.model.calls[question(f"other-{key}")]
        self.outcome.expect(not other, f"{where}: the model was called for a conflict")

    async def check_all(self) -> None:
        for key, asked in self.keys.items():
            acknowledged = self.ledger.turns.get(key)
            self.outcome.expect(acknowledged is not None, f"{asked}: never acknowledged")
        for session_id, turns in self.ledger.sessions.items():
            number = await check_session(self.client, self.ledger, session_id, self.outcome, "at the end")
            self.outcome.expect(number == len(turns), f"session {session_id}: {number} turns of {len(turns)}")


async def send_again(trials: int, folder: Path, seed: int) -> Outcome:
    outcome = Outcome()
    seeds = random.Random(seed)
    async with AsyncExitStack() as stack:
        client, model = await _served(stack, folder)
        retrying = Retrying(client, model, outcome)
        for begun in range(0, trials, AT_ONCE):
            batch = range(begun, min(begun + AT_ONCE, trials))
            await asyncio.gather(*[retrying.one(seeds.random()) for _ in batch])
            outcome.trials += len(batch)
        await retrying.check_all()
        outcome.figures["model calls"] = sum(model.calls.values())
        sessions = await _count_sessions(client)
        outcome.figures["sessions"] = sessions
        outcome.expect(sessions == len(retrying.keys), f"{sessions} sessions for {len(retrying.keys)} keys")
    return outcome


async def race(trials: int, folder: Path, seed: int) -> Outcome:
    """Two turns at once in one session: one is busy, but both run when both name their parent."""
    outcome = Outcome()
    choice = random.Random(seed)
    ledger = Ledger()
    async with AsyncExitStack() as stack:
        client, _ = await _served(stack, folder)
        for number in range(trials):
            asked = question(f"r{number}")
            root = ledger.note(asked, await client.ask(asked))
            assert root is not None
            explicit = choice.random() < 0.5
            body: dict[str, Any] = {"session_id": root.session_id}
            if explicit:
                body["parent_turn_id"] = root.turn_id
            pair = [question(f"r{number}{side}", choice.randint(5, 20), 10) for side in "ab"]
            replies = await asyncio.gather(*[client.ask(asked, **body) for asked in pair])
            turns = [ledger.note(asked, reply) for asked, reply in zip(pair, replies, strict=True)]
            parents = [turn.parent_turn_id for turn in turns if turn is not None]
            outcomes = sorted((reply.status, reply.code) for reply in replies)
            expected = [(200, ""), (200, "") if explicit else (409, "session_busy")]
            where = f"race {number} {'with' if explicit else 'without'} a parent"
            outcome.expect(outcomes == expected, f"{where}: {outcomes}")
            outcome.expect(set(parents) == {root.turn_id}, f"{where}: parents {parents}, not {root.turn_id}")
            count = await check_session(client, ledger, root.session_id, outcome, where)
            outcome.expect(count == 2 + explicit, f"{where}: {count} turns")
            outcome.trials += 1
    return outcome


async def _served(stack: AsyncExitStack, folder: Path) -> tuple[Client, EchoModel]:
    warm = await stack.enter_async_context(open_warm())
    model = await stack.enter_async_context(open_echo_model())
    quiet = {"OPENAI_BASE_URL": model.url, "DISCONNECT_GRACE_S": str(GRACE_S)}
    world = await stack.enter_async_context(open_world(folder, warm, **quiet))
    await world.start()
    client = await stack.enter_async_context(open_client(world.url))
    await client.add_document("lighthouse.md", DOCUMENT)
    return client, model


async def _count_sessions(client: Client) -> int:
    count, before = 0, ""
    while True:
        page = (await client.get(f"/sessions?limit=200{before}")).json
        count += len(page["sessions"])
        if page["next"] is None:
            return count
        before = f"&before={page['next']}"


def _run_retries(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(send_again(trials, folder, seed))


def _run_races(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(race(trials, folder, seed))


FAULTS = (
    Fault(
        "F18/G2 the same turn sent again",
        "one turn and one session for each key, the model called once unless the first run was cut",
        _run_retries,
        short=60,
        long=1_000,
    ),
    Fault(
        "F19 two turns at once in one session",
        "409 session_busy for one; with an explicit parent both run, as siblings",
        _run_races,
        short=10,
        long=200,
    ),
)
