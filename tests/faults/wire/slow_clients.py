"""F20: clients that send one byte a second, or nothing at all."""

from __future__ import annotations

import asyncio
import random
import resource
import statistics
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from routes.server import BODY_DEADLINE_S, HEAD_DEADLINE_S
from tests.faults.models.misbehaving import check_rest
from tests.faults.outcome import Fault, Outcome
from tests.faults.wire.raw_client import HOST, RawClient, request
from tests.faults.wire.world import WireWorld, wire_world
from tests.support.servers.app import CHAT

ASKS = 15
LATER_MS = 50.0
FIRST_BYTE_S = 1.0  # the timeout of the head restarts with its first byte
BODIES_FROM = 1_000  # trials: their deadline is five minutes, for the long form


@dataclass(slots=True)
class SlowClients:
    """Their kinds, how long each may stay, and how long each did."""

    limit_s: dict[str, float]
    stayed: dict[str, list[float]] = field(default_factory=dict)

    def note(self, kind: str, seconds: float) -> None:
        self.stayed.setdefault(kind, []).append(seconds)


async def check_slow(world: WireWorld, trials: int, rng: random.Random) -> Outcome:
    """`trials` idle sockets, and a tenth as many that send heads or bodies at 1 B/s."""
    outcome = Outcome(trials=trials)
    await _first_frame_s(world)
    alone_s = await _first_frame_s(world)
    slow = SlowClients({"idle": HEAD_DEADLINE_S, "head": HEAD_DEADLINE_S + FIRST_BYTE_S})
    kinds = ["idle"] * trials + ["head"] * (trials // 10)
    if trials >= BODIES_FROM:
        slow.limit_s["body"] = BODY_DEADLINE_S
        kinds += ["body"] * (trials // 10)
    clients = [asyncio.create_task(_stay(world, kind, slow)) async for kind in _spaced(kinds)]
    among_s = await _first_frame_s(world)
    await asyncio.gather(*clients)
    _judge(outcome, slow, len(kinds))
    later_ms = (among_s - alone_s) * 1e3
    outcome.figures |= {"first frame ms alone": round(alone_s * 1e3, 1), "later by ms": round(later_ms, 1)}
    outcome.expect(later_ms <= LATER_MS, f"a good client's first frame is {later_ms:.0f} ms later")
    return outcome


async def _spaced(kinds: list[str]) -> AsyncIterator[str]:
    """Not all at once: the listener's queue is another fault."""
    for number, kind in enumerate(kinds):
        if number % 50 == 0:
            await asyncio.sleep(0.02)  # a pause for the listener
        yield kind


async def _stay(world: WireWorld, kind: str, slow: SlowClients) -> None:
    """As long as the server allows, and a little longer than it should."""
    client = RawClient(world.port)
    await client.connect()
    began = time.monotonic()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\nX-Slow: {'x' * 900}".encode()
    whole = request("POST", CHAT, {"question": "x" * 2_000})
    at = whole.index(b"\r\n\r\n") + 5 if kind == "body" else 0
    slowly = {"idle": b"", "head": head, "body": whole[at:]}[kind]
    dripping = asyncio.create_task(_drip(client, whole[:at], slowly))
    try:
        async with asyncio.timeout(slow.limit_s[kind] + 5):
            while await asyncio.get_running_loop().sock_recv(client.sock, 65_536):
                pass
    except (OSError, TimeoutError):
        pass
    slow.note(kind, time.monotonic() - began)
    dripping.cancel()
    client.leave()


async def _drip(client: RawClient, at_once: bytes, slowly: bytes) -> None:
    try:
        await client.send(at_once)
        for byte in slowly:
            await client.send(bytes([byte]))
            await asyncio.sleep(1)  # the fault itself: a byte a second
    except OSError:
        return


def _judge(outcome: Outcome, slow: SlowClients, number: int) -> None:
    outcome.expect(sum(map(len, slow.stayed.values())) == number, "not every client was noted")
    for kind, times in slow.stayed.items():
        limit_s = slow.limit_s[kind] + 1
        late = [seconds for seconds in times if seconds > limit_s]
        outcome.took(max(times))
        outcome.figures[f"{kind} s"] = f"{min(times):.1f}-{max(times):.1f}"
        outcome.expect(
            not late, f"{len(late)} {kind} clients stayed over {limit_s} s, at most {max(times):.1f}"
        )


async def _first_frame_s(world: WireWorld) -> float:
    """Median seconds until a good client's first event."""
    times = []
    for _ in range(ASKS):
        client = RawClient(world.port)
        await client.ask("What is a parent chain?", model_id="good")
        await client.wait_for(b"data: SESSION:")
        times.append(time.monotonic() - client.asked_at)
        await client.read()
    return statistics.median(times)


def allow_sockets() -> None:
    """As many as the system allows this process, and the server that it starts."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _run() -> Callable[[int, Path, int], Outcome]:
    def run(trials: int, folder: Path, seed: int) -> Outcome:
        allow_sockets()
        with wire_world(folder) as world:
            outcome = asyncio.run(check_slow(world, trials, random.Random(seed)))
            asyncio.run(check_rest(world, outcome))
        return outcome

    return run


FAULTS = (Fault("F20 slow and idle clients", "closed at their deadline, others in time", _run(), 100, 2_000),)
