"""What listens for connections."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import uvloop

from config.settings import ServerSettings
from routes.server import bind


def test_a_round_of_the_loop_accepts_many_connections() -> None:
    """Discriminates: one a round, with which those who ask wait while two hundred answers stream."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(rounds_to_accept(12)) <= 3


async def rounds_to_accept(connections: int) -> int:
    """All of them have been made before the first round."""
    loop, accepted = asyncio.get_running_loop(), list[asyncio.Protocol]()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(self)

    with ExitStack() as stack:
        listeners = bind(ServerSettings(host="127.0.0.1", port=0))
        for each in listeners:
            stack.callback((await loop.create_server(Accepted, sock=each)).close)
        for _ in range(connections):
            stack.enter_context(socket.create_connection(listeners[0].getsockname()))
        rounds = 0
        while len(accepted) < connections:
            await asyncio.sleep(0)
            rounds += 1
        return rounds
