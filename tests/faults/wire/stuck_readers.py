"""F17: readers that stop reading, all on one long answer, so that the cost of each shows."""

from __future__ import annotations

import asyncio
import random
import statistics
import time

import psutil

from tests.faults.outcome import Outcome
from tests.faults.wire.raw_client import RawClient
from tests.faults.wire.world import WireWorld, new_tag, question

CUT_OFF_S = 5.0  # two pings of this world
RECEIVE_BYTES = 4_096
ANSWER_BYTES = 6_000_000  # at full speed; the kernel buffers three of them for a reader that does not read
ALLOWED_MB = 50.0
ASKS = 7


async def check_stuck(world: WireWorld, trials: int, rng: random.Random) -> Outcome:
    """Each is disconnected at the send time-out; others do not wait longer for their first content."""
    outcome = Outcome(trials=trials)
    keeper, reading = await _long_answer(world)
    await _first_content_s(world)
    alone_s = await _first_content_s(world)
    before_mb = highest_mb = world.rss_mb()
    began = time.monotonic()
    stuck = [RawClient(world.port, RECEIVE_BYTES) for _ in range(trials)]
    for client in stuck:
        await client.resume(keeper.turn_id)
    await asyncio.sleep(0.5)  # the kernel's buffers are full
    asking = asyncio.create_task(_first_content_s(world))
    cut_after: dict[int, float] = {}
    visited: set[int] = set()
    while len(cut_after) < trials and time.monotonic() < began + 4 * CUT_OFF_S:
        highest_mb = max(highest_mb, world.rss_mb())
        _note_cut(world.process, world.port, stuck, visited, cut_after)
        await asyncio.sleep(0.1)
    among_s = await asking
    _judge(outcome, cut_after, trials, highest_mb - before_mb)
    outcome.figures |= {
        "resident MB more": round(highest_mb - before_mb, 1),
        "first content ms alone": round(alone_s * 1e3, 1),
        "first content ms among stuck": round(among_s * 1e3, 1),
        "longer %": round((among_s / alone_s - 1) * 100),
    }
    for client in stuck:
        client.leave(rst=True)
    keeper.leave(rst=True)
    reading.cancel()
    return outcome


def _judge(outcome: Outcome, cut_after: dict[int, float], trials: int, grown_mb: float) -> None:
    outcome.expect(len(cut_after) == trials, f"{trials - len(cut_after)} of {trials} readers were never cut")
    if cut_after:
        outcome.took(max(cut_after.values()))
        outcome.figures["cut at last s"] = round(outcome.worst_s, 1)
        early = min(cut_after.values())
        outcome.expect(early >= CUT_OFF_S - 0.5, f"cut after {early:.1f} s, before the time-out")
    bound_s = CUT_OFF_S + 1 + 0.02 * trials  # the answer has to be written to all of them first
    outcome.expect(outcome.worst_s <= bound_s, f"cut after {outcome.worst_s:.1f} s, {bound_s:.1f} allowed")
    outcome.expect(grown_mb <= ALLOWED_MB, f"{grown_mb:.0f} MB more resident, {ALLOWED_MB:.0f} allowed")


async def _long_answer(world: WireWorld) -> tuple[RawClient, asyncio.Task[bytes]]:
    """A turn that has already sent much and continues, and the only reader that reads it."""
    keeper, tag = RawClient(world.port), new_tag()
    await keeper.ask(question(tag), model_id="six_million")
    reading = asyncio.create_task(keeper.wait_for(b"\n\ndata: DONE:", limit_s=120))
    end = time.monotonic() + 60
    while time.monotonic() < end:
        calls = await world.calls(tag)
        if calls and calls[0].sent > ANSWER_BYTES:
            break
        await asyncio.sleep(0.2)  # between two polls
    await asyncio.sleep(1.0)  # the buffers on the way fill up
    return keeper, reading


async def _first_content_s(world: WireWorld) -> float:
    """Median over a few clients, one after the other."""
    times = []
    for _ in range(ASKS):
        _, reply = await world.ask("good")
        times.append(reply.content_s or reply.ended_s)
    return statistics.median(times)


def _note_cut(
    process: psutil.Process,
    port: int,
    stuck: list[RawClient],
    visited: set[int],
    cut_after: dict[int, float],
) -> None:
    """Determined by what the server holds: its end of a connection does not reach such a reader."""
    held = {
        link.raddr.port for link in process.net_connections("tcp") if link.raddr and link.laddr.port == port
    }
    now = time.monotonic()
    for client in stuck:
        own_port = client.sock.getsockname()[1]
        if own_port in held:
            visited.add(own_port)
        elif own_port in visited and own_port not in cut_after:
            cut_after[own_port] = now - client.asked_at
