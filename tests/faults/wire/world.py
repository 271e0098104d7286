"""A server, a misbehaving model behind it and a disturbing proxy between them."""

from __future__ import annotations

import asyncio
import json
import socket
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.faults.models.all_scripts import SCRIPTS
from tests.faults.models.fault_stub import Call, FaultStub, running_fault_stub
from tests.faults.models.scripts_openai import CAP_CHARS
from tests.faults.wire.raw_client import RawReply, ask
from tests.faults.wire.tcp_proxy import TcpProxy, running_proxy
from tests.support.servers.app import HASHING
from tests.support.servers.server import RunningServer, running_server

SETTLE_S = 8.0
SHORT_LIMITS = {
    "TOKEN_TIMEOUT_S": "2",
    "ANSWER_TIMEOUT_S": "6",
    "PING_INTERVAL_S": "1",
    "DISCONNECT_GRACE_S": "0",
    "MAX_ANSWER_CHARS": str(CAP_CHARS),
    "MAX_STREAMS": "10000",
    "MAX_STREAMS_PER_KEY": "10000",
    "EMBEDDING": HASHING,
    "LOAD_SAMPLE": "false",
    "COMPRESS_AFTER_TOKENS": "0",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class Base:
    """The resources of a server at rest."""

    tasks: int
    descriptors: int
    threads: int
    running: int = 0

    def within(self, base: Base) -> bool:
        """Nothing is held that `base` did not hold; the last connection may not be fully closed."""
        return (
            self.tasks <= base.tasks
            and self.descriptors <= base.descriptors
            and self.threads <= base.threads + 4  # a thread pool grows when it is first needed
            and self.running == 0
        )


@dataclass(slots=True)
class WireWorld:
    server: RunningServer
    stub: FaultStub
    proxy: TcpProxy
    base: Base

    @property
    def port(self) -> int:
        return int(self.server.url.rpartition(":")[2])

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.server.pid)

    def rss_mb(self) -> float:
        return self.process.memory_info().rss / 1e6

    def get(self, path: str) -> Any:
        return httpx.get(self.server.url + path, timeout=30).raise_for_status().json()

    async def ask(self, model_id: str, *, limit_s: float = 60, **body: Any) -> tuple[str, RawReply]:
        """Ask a new question of this model, with thinking shown, and read to the end; also returns the tag of
        its upstream calls."""
        tag, asked = new_tag(), {"model_id": model_id, "thinking": True, **body}
        return tag, await ask(self.port, question(tag), limit_s=limit_s, **asked)

    async def stored(self, turn_id: str) -> dict[str, Any]:
        """The turn from GET /turns/{id}, once it no longer runs; {} when there is none."""
        async with httpx.AsyncClient(base_url=self.server.url, timeout=30) as client:
            end = time.monotonic() + SETTLE_S
            while True:
                answer = await client.get(f"/turns/{turn_id}")
                turn: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
                if turn.get("status") != "running" or time.monotonic() > end:
                    return turn
                await asyncio.sleep(0.05)  # between two polls

    async def calls(self, tag: str) -> list[Call]:
        """What upstream saw of the turn that asked with this tag."""
        return await asyncio.to_thread(self.stub.calls, tag)

    def held(self) -> Base:
        stats = self.get("/admin/stats")
        process = self.process
        return Base(stats["tasks"], process.num_fds(), process.num_threads(), stats["running_turns"])

    async def settled(self, limit_s: float = SETTLE_S) -> str:
        """ "" once the server holds no more than at its base; otherwise what it still holds after
        `limit_s`."""
        end = time.monotonic() + limit_s
        while not (held := self.held()).within(self.base):
            if time.monotonic() > end:
                return f"{held} against {self.base}; {self._connections()}"
            await asyncio.sleep(0.2)  # between two polls
        return ""

    def _connections(self) -> str:
        """The number of the server's connections in each state, by peer."""
        places = {self.port: "client", self.stub.port: "stub", self.proxy.port: "proxy"}
        results: Counter[str] = Counter()
        for link in self.process.net_connections("inet"):
            ends = [end.port for end in (link.laddr, link.raddr) if end]
            place = next((places[port] for port in ends if port in places), "other")
            results[f"{place} {link.status}"] += 1
        return ", ".join(f"{count} {what}" for what, count in sorted(results.items()))


def new_tag() -> str:
    return uuid.uuid4().hex[:12]


def question(tag: str) -> str:
    return f"What is a parent chain? [q-{tag}]"


def _write_models(file: Path, stub: FaultStub, proxy: TcpProxy, closed_port: int) -> None:
    """One model per script; `…_by_proxy` for the good ones; `closed` and `nowhere` for unreachable
    servers."""
    tables = [(name, script.provider, name, stub.port) for name, script in SCRIPTS.items()]
    tables += [
        (f"{name}_by_proxy", SCRIPTS[name].provider, name, proxy.port) for name in ("good", "claude_good")
    ]
    tables.append(("closed", "openai", "good", closed_port))
    lines = [
        f"[llms.{model_id}]\nprovider = {json.dumps(provider)}\nmodel = {json.dumps(model)}\n"
        f'base_url = "http://127.0.0.1:{port}/v1"\napi_key = "scripted-key"\ncontext_window = 32000\n'
        for model_id, provider, model, port in tables
    ]
    nowhere = '[llms.nowhere]\nprovider = "openai"\nmodel = "good"\nbase_url = "http://nowhere.invalid/v1"\n'
    file.write_text("\n".join([*lines, nowhere]))


def _closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def wire_world(folder: Path, **environment: str) -> Iterator[WireWorld]:
    """Started, warmed up by one good answer of each provider, at rest."""
    folder.mkdir(parents=True, exist_ok=True)
    with running_fault_stub() as stub, running_proxy(stub.port) as proxy:
        models = folder / "wenmai.toml"
        _write_models(models, stub, proxy, _closed_port())
        values = {**SHORT_LIMITS, "WENMAI_CONFIG": str(models), **environment}
        with running_server(folder / "data", **values) as server:
            world = WireWorld(server, stub, proxy, Base(0, 0, 0))
            asyncio.run(_warm_up(world))
            yield world


async def _warm_up(world: WireWorld) -> None:
    """Let thread and connection pools grow to their final size."""
    for model_id in ("good", "claude_good", "good_by_proxy", "claude_good_by_proxy"):
        await asyncio.gather(*[world.ask(model_id) for _ in range(12)])
    await asyncio.sleep(1.0)  # the remaining connections are closed
    world.base = world.held()
