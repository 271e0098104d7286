"""F1 in rare moments: the server is killed while it starts, and its store process is slow to notice."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil

from tests.faults.outcome import Fault, Outcome
from tests.faults.world.client import open_client
from tests.faults.world.echo_model import open_echo_model, question
from tests.faults.world.ledger import Ledger, check_session
from tests.faults.world.server_world import StartFailedError, World, open_world
from tests.faults.world.warm_start import open_warm

_SLOW_S = 2.5
"""As long as a store process may be busy loading or compacting before it sees that its server is gone."""


@dataclass
class Starting:
    world: World
    outcome: Outcome
    random: Random
    ledger: Ledger = field(default_factory=Ledger)

    async def trial(self, number: int) -> None:
        where = f"start killed, trial {number}"
        orphans = await self._kill_the_start()
        slow = asyncio.create_task(_halt_for_a_while(orphans))
        try:
            await self.world.start()
        except StartFailedError as error:
            self.outcome.losses.append(f"{where}: the next start failed: {error}")
            return
        finally:
            await slow
        self.outcome.took(self.world.ready_after_s)
        async with open_client(self.world.url) as client:
            asked = question(f"t{number}")
            acknowledged = self.ledger.note(asked, reply := await client.ask(asked))
            self.outcome.expect(acknowledged is not None, f"{where}: {reply.status} {reply.text[-300:]}")
            for session_id in self.ledger.sessions:
                await check_session(client, self.ledger, session_id, self.outcome, where)
        await self.world.kill(with_store=True)

    async def _kill_the_start(self) -> list[psutil.Process]:
        """Kill it at a random moment after its store process exists. Returns the store process."""
        starting = asyncio.create_task(self.world.start())
        stores: list[psutil.Process] = []
        while not stores and not starting.done():
            await asyncio.wait([starting], timeout=0.01)
            stores = self.world.store_processes()
        await asyncio.sleep(self.random.choice((0, 0, self.random.uniform(0, 0.5))))
        with suppress(StartFailedError):
            if starting.done():
                await self.world.kill(with_store=False)
            else:
                self.world.signal(9)
            await starting
        return stores


async def _halt_for_a_while(processes: list[psutil.Process]) -> None:
    """Once they have taken the lock."""
    await asyncio.sleep(0.3)  # the servers have got so far
    with suppress(psutil.NoSuchProcess):
        for process in processes:
            process.suspend()
        await asyncio.sleep(_SLOW_S)
        for process in processes:
            process.resume()


async def kill_while_starting(trials: int, folder: Path, seed: int) -> Outcome:
    outcome = Outcome()
    async with AsyncExitStack() as stack:
        warm = await stack.enter_async_context(open_warm())
        model = await stack.enter_async_context(open_echo_model())
        world = await stack.enter_async_context(open_world(folder, warm, OPENAI_BASE_URL=model.url))
        starting = Starting(world, outcome, Random(seed))
        for number in range(trials):
            await starting.trial(number)
            outcome.trials += 1
    return outcome


def _run(trials: int, folder: Path, seed: int) -> Outcome:
    return asyncio.run(kill_while_starting(trials, folder, seed))


FAULTS = (
    Fault(
        "F1 killed while it starts",
        "the next start waits for the store process that is left, and everything acknowledged is there",
        _run,
        short=2,
        long=30,
    ),
)
