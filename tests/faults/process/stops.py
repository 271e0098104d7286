"""F4 and G11: SIGTERM while fifty answers are being written."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.outcome import Fault, Outcome
from tests.faults.world.client import Client, Reply, open_client
from tests.faults.world.echo_model import EchoModel, answer_to, open_echo_model, question
from tests.faults.world.ledger import DOCUMENT, Ledger, check_session
from tests.faults.world.server_world import World, open_world
from tests.faults.world.warm_start import open_warm

STREAMS = 50
EXIT_AFTER_GRACE_S = 5.0
_DEFAULT_GRACE_S = 30.0
_DEFAULT_EVERY = 12
_PAUSE_MS = 100
_PROBES = 10


@dataclass
class Stopping:
    """`interrupted`: the answers that were cut, with what their clients had received of them."""

    world: World
    model: EchoModel
    outcome: Outcome
    random: random.Random
    ledger: Ledger = field(default_factory=Ledger)
    interrupted: dict[str, tuple[str, Reply]] = field(default_factory=dict)

    def grace_s(self, number: int) -> float:
        """Short ones, and now and then the default of the settings."""
        default = number % _DEFAULT_EVERY == _DEFAULT_EVERY - 1
        return _DEFAULT_GRACE_S if default else self.random.choice((1.0, 2.0, 3.0))

    async def trial(self, number: int, grace_s: float) -> None:
        """Run the server with this grace period. Leaves it stopped."""
        where = f"trial {number}, grace {grace_s:.0f} s"
        async with open_client(self.world.url) as client:
            speaking = [asyncio.Event() for _ in range(STREAMS)]
            streams = [
                asyncio.create_task(self._stream(client, f"t{number}s{at}", grace_s, received))
                for at, received in enumerate(speaking)
            ]
            await asyncio.gather(*[received.wait() for received in speaking])
            begun = time.monotonic()
            self.world.signal(signal.SIGTERM)
            await self._probe(client, f"t{number}p", where)
            replies = await asyncio.gather(*streams)
        await self._exits(begun, grace_s, where)
        for asked, reply in replies:
            self._check_stream(asked, reply, where)

    async def _stream(
        self, client: Client, key: str, grace_s: float, received: asyncio.Event
    ) -> tuple[str, Reply]:
        """About half of them finish within the grace period; all have begun before the signal."""
        longest_s = 1.5 * grace_s if grace_s < _DEFAULT_GRACE_S or self.random.random() < 0.1 else 4.0
        words = int(self.random.uniform(2, 2 + longest_s * 1000 / _PAUSE_MS))
        asked = question(key, words, _PAUSE_MS)
        reply = await client.ask(asked, speaking=received)
        received.set()  # a refused one blocks nobody
        return asked, reply

    async def _probe(self, client: Client, key: str, where: str) -> None:
        """New turns while open ones finish: soon refused, and from then on always.

        One that arrives before the server has noticed the signal is an open one like the others.
        """
        refused = 0
        for at in range(_PROBES):
            asked = question(f"{key}n{at}")
            reply = await client.ask(asked)
            if reply.status == 200 and not refused:
                self._check_stream(asked, reply, where)
                await asyncio.sleep(0.1)  # the pace of a client that retries
                continue
            refused += 1
            text = (reply.status, reply.code, bool(reply.retry_after))
            answer_line = f"{reply.status} {reply.code} Retry-After {reply.retry_after!r}"
            right = text == (503, "shutting_down", True)
            self.outcome.expect(right, f"{where}: a new turn was answered with {answer_line}")
            self.outcome.expect(
                not self.model.calls[asked], f"{where}: the model was called for a refused turn"
            )
            if refused == 3:
                return
        self.outcome.losses.append(f"{where}: {_PROBES} new turns after SIGTERM, {refused} refused")

    async def _exits(self, begun: float, grace_s: float, where: str) -> None:
        limit_s = grace_s + EXIT_AFTER_GRACE_S
        try:
            code = await self.world.wait(limit_s + 10)
        except TimeoutError:
            self.outcome.losses.append(f"{where}: still there {limit_s + 10:.0f} s after SIGTERM")
            await self.world.kill(with_store=True)
            return
        took_s = time.monotonic() - begun
        self.outcome.took(took_s)
        past_s = round(
            max(took_s - grace_s, float(self.outcome.figures.get("past the grace, worst s", -99))), 2
        )
        self.outcome.figures["past the grace, worst s"] = past_s
        self.outcome.expect(took_s <= limit_s, f"{where}: exit {took_s:.1f} s after SIGTERM")
        self.outcome.expect(code == 0, f"{where}: exit code {code}")
        log = self.world.stderr()
        place = log.find("Traceback")
        self.outcome.expect(
            place < 0, f"{where}: a traceback on stderr: {log[max(place - 300, 0) : place + 1500]}"
        )

    def _check_stream(self, asked: str, reply: Reply, where: str) -> None:
        """Complete and acknowledged, or ERROR and DONE with the beginning of the answer."""
        if self.ledger.note(asked, reply) is not None:
            self.outcome.count("finished")
            return
        self.outcome.count("interrupted")
        streamed = reply.streamed
        honest = (
            reply.done and streamed.finished["status"] == "interrupted" and reply.code == "turn_interrupted"
        )
        self.outcome.expect(
            honest, f"{where}: an open answer ended with {reply.status} {reply.text[-400:]!r}"
        )
        begins = answer_to(asked).startswith(streamed.answer)
        self.outcome.expect(begins, f"{where}: {streamed.answer!r} was never said")
        if honest:
            self.interrupted[str(streamed.finished["turn_id"])] = (asked, reply)

    async def read_back(self, where: str) -> None:
        """On the next server: acknowledged answers are complete, cut ones are stored as far as they were
        sent."""
        async with open_client(self.world.url) as client:
            for session_id in self.ledger.sessions:
                await check_session(client, self.ledger, session_id, self.outcome, where)
            for turn_id, (asked, reply) in self.interrupted.items():
                turn = (await client.get(f"/turns/{turn_id}")).json
                remaining = [turn.get(name) for name in ("status", "question", "answer")]
                text = reply.streamed.answer
                right = remaining == ["interrupted", asked, text]
                self.outcome.expect(
                    right, f"{where}: interrupted {turn_id} reads as {remaining}, was {text!r}"
                )
        self.outcome.count("acknowledged", len(self.ledger.turns))
        self.ledger = Ledger()
        self.interrupted.clear()


async def stop_while_streaming(trials: int, folder: Path, seed: int) -> Outcome:
    outcome = Outcome()
    async with AsyncExitStack() as stack:
        warm = await stack.enter_async_context(open_warm())
        model = await stack.enter_async_context(open_echo_model())
        world = await stack.enter_async_context(open_world(folder, warm, OPENAI_BASE_URL=model.url))
        stopping = Stopping(world, model, outcome, random.Random(seed))
        for number in range(trials):
            grace_s = stopping.grace_s(number)
            await world.start(SHUTDOWN_GRACE_S=str(grace_s))
            if number == 0:
                async with open_client(world.url) as client:
                    await client.add_document("lighthouse.md", DOCUMENT)
            else:
                await stopping.read_back(f"after trial {number - 1}")
            await stopping.trial(number, grace_s)
            outcome.trials += 1
        await world.start()
        await stopping.read_back(f"after trial {trials - 1}")
    return outcome


def _run(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(stop_while_streaming(trials, folder, seed))


FAULTS = (
    Fault(
        "F4/G11 SIGTERM with 50 open streams",
        "new turns 503 shutting_down; open ones whole, or ERROR and DONE and kept; exit 5 s after the grace",
        _run,
        short=2,
        long=50,
    ),
)
