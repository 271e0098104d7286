"""The listening sockets."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvicorn
import uvloop

from config.settings import ServerSettings
from routes.app import create_app
from routes.server import _run, bind
from tests.support.servers.app import make_settings


def test_one_iteration_of_the_loop_accepts_many_connections() -> None:
    """Discriminates: one per iteration, with which new clients wait while two hundred answers stream."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(rounds_to_accept(12)) <= 3


async def rounds_to_accept(connections: int) -> int:
    """All connections were made before the first iteration."""
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


def test_a_port_taken_by_another_during_the_start_aborts_it_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both have bound it, one listens first. Discriminates: uvloop, which hides that the other cannot."""
    listeners = bind(ServerSettings(host="127.0.0.1", port=0))
    port = listeners[0].getsockname()[1]
    settings = make_settings(tmp_path, server={"port": port})
    app = create_app(settings)
    config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none")
    with ExitStack() as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        faster = bind(settings.server)
        for each in (*listeners, *faster):
            stack.callback(each.close)
        faster[0].listen()
        assert runner.run(_run(config, app, settings, listeners)) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"wenmai: cannot listen on 127.0.0.1:{port}: Address already in use. Set PORT."
