"""Re-embedding by a running server, which has the store open: asked, followed, stopped."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from scripts.asking import Asked, asking
from scripts.maintenance import EXIT_OK, CommandError, Server

if TYPE_CHECKING:
    from api.reembedding import ReembedState
    from config.settings import ModelSettings

PATH = "/admin/reembed"
LOOK_EVERY_S = 0.5


async def reembed_in_server(server: Server, models: ModelSettings, options: argparse.Namespace) -> int:
    """Returns the exit code. Raises CommandError."""
    print(f"The store is open in a running server: asking {server.url}", file=sys.stderr)
    async with asking(server) as client:
        asked = _Asked(client)
        if options.cancel:
            print(f"The server's re-embedding is {(await asked.cancel()).status}.")
            return EXIT_OK
        points, seconds = await asked.plan(models)
        if not points:
            print("Nothing to do: what is stored is embedded with it.")
            return EXIT_OK
        print(f"{points} points, about {max(1, round(seconds))} s while nobody asks anything")
        if not options.apply:
            print("Nothing was changed: add --apply to do it.")
            return EXIT_OK
        await asked.start(models)
        state = await _followed(asked)
    if state.status != "prepared":
        raise CommandError(f"the server's re-embedding is {state.status}: {state.error or 'run it again'}")
    print(f"Done: a copy with {state.embedding} ({state.dimension} dimensions) lies beside the store.")
    print(f"Start the server with EMBEDDING={models.embedding} and it is used from then on; started with")
    print("the present one again, it goes back. What is written until then is made up at the start.")
    return EXIT_OK


async def _followed(asked: _Asked) -> ReembedState:
    """Returns how it ended. Leaving early leaves the server at work."""
    from tqdm import tqdm

    with tqdm(unit="point", disable=None) as bar:
        while True:
            state = await asked.state()
            bar.total, bar.n = state.total or None, state.done
            bar.set_description(f"round {state.round}" if state.round else "opening the model")
            if state.status != "running":
                return state
            await asyncio.sleep(LOOK_EVERY_S)


class _Asked:
    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    async def plan(self, models: ModelSettings) -> tuple[int, float]:
        """How many points there are to embed (0: none) and how long that takes."""
        from pydantic import BaseModel

        class Plan(BaseModel):
            needed: bool
            points: int
            seconds: float

        plan = await self._asked.send("POST", PATH, Plan, _body(models), dry_run="true")
        return (plan.points, plan.seconds) if plan.needed else (0, 0.0)

    async def start(self, models: ModelSettings) -> None:
        from api.reembedding import ReembedState

        await self._asked.send("POST", PATH, ReembedState, _body(models), dry_run="false")

    async def state(self) -> ReembedState:
        from api.reembedding import ReembedState

        return await self._asked.send("GET", PATH, ReembedState)

    async def cancel(self) -> ReembedState:
        from api.reembedding import ReembedState

        return await self._asked.send("DELETE", PATH, ReembedState)


def _body(models: ModelSettings) -> dict[str, str]:
    """Addresses, keys and options stay here: the server has its own."""
    named = {"embedding_model": models.embedding_model} if models.embedding == "openai" else {}
    return {"embedding": models.embedding, **named}
