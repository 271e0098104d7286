"""G3 and F13 to F17: readers that leave at every moment, come back, or stop reading."""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.models.misbehaving import Check, check_rest, merge
from tests.faults.models.script import Expect
from tests.faults.models.scripts_openai import CAP_CHARS
from tests.faults.outcome import Fault, Outcome
from tests.faults.wire.probing import Wait, probe
from tests.faults.wire.raw_client import RawClient, RawReply, complete_events, request
from tests.faults.wire.stuck_readers import check_stuck
from tests.faults.wire.verdict import broken_promises, broken_store, broken_wire
from tests.faults.wire.world import WireWorld, new_tag, question, wire_world
from tests.support.wire.sse import Streamed, frames

CLOSED_IN_S = 1.0
MAX_PARALLEL = 16
GRACE_S = 3.0
FLOODS = 3
LONG_ANSWERS = {
    "DISCONNECT_GRACE_S": str(GRACE_S),
    "MAX_ANSWER_CHARS": "10000000",
    "ANSWER_TIMEOUT_S": "60",
    "PING_INTERVAL_S": "2.5",  # a reader that takes no byte for two of them is disconnected
}
FEW_SLOTS = {  # a leak is soon noticed
    "MAX_STREAMS": "80",
    "MAX_STREAMS_PER_KEY": "80",
    "MAX_ANSWER_CHARS": "10000000",
}

CONTENT = b"data: CONTENT:"


@dataclass(frozen=True, slots=True)
class Moment:
    """When a client leaves: `wait_s` after `mark` has come so often; b"": after it has asked."""

    name: str
    model_id: str
    mark: bytes = b""
    times: int = 1
    wait_s: float = 0.0


UNREAD = (
    Moment("at once", "late_first"),
    Moment("at once, fast model", "steady"),
    Moment("with the head", "late_first", b"\r\n\r\n"),
)
MOMENTS = (
    *UNREAD,
    *(Moment(f"{wait_s} s after asking", "late_first", wait_s=wait_s) for wait_s in (0.01, 0.1, 1.0)),
    Moment("while the model is silent", "silent", b"generating", wait_s=0.1),
    Moment("with the first event", "late_first", b"data: SESSION:"),
    Moment("with the first token", "late_first", CONTENT),
    Moment("in mid stream", "steady", CONTENT, 20),
    *(Moment(f"{wait_s} s after a token", "steady", CONTENT, 1, wait_s) for wait_s in (0.01, 0.1, 1.0)),
    Moment("in a flood", "flood", CONTENT, 2),
)


@dataclass(frozen=True, slots=True)
class Left:
    what: str
    tag: str
    turn_id: str
    at: float


async def _leave(world: WireWorld, moment: Moment, *, rst: bool) -> Left:
    client, tag = RawClient(world.port), new_tag()
    await client.ask(question(tag), model_id=moment.model_id)
    if moment.mark:
        got = await client.wait_for(moment.mark, moment.times)
        assert got.startswith(b"HTTP/1.1 200"), got[:300]
    await asyncio.sleep(moment.wait_s)
    client.leave(rst=rst)
    return Left(f"{'RST' if rst else 'FIN'} {moment.name}", tag, client.turn_id, time.monotonic())


def leaving(moments: tuple[Moment, ...], ways: tuple[bool, ...]) -> Check:
    """One client per trial, each moment and way in turn; after each, upstream must see it within a second."""

    async def check(world: WireWorld, trials: int, rng: random.Random) -> Outcome:
        outcome = Outcome()
        slots = asyncio.Semaphore(MAX_PARALLEL)
        cases = list(itertools.islice(itertools.cycle(itertools.product(moments, ways)), trials))
        rng.shuffle(cases)

        async def one(moment: Moment, rst: bool) -> None:
            async with slots:
                try:
                    left = await _leave(world, moment, rst=rst)
                except (AssertionError, TimeoutError, OSError) as error:
                    outcome.expect(False, f"{moment.name}: {type(error).__name__} {error}")
                    return
                await asyncio.sleep(CLOSED_IN_S + 0.1)
                await _check_left(world, outcome, left)

        await asyncio.gather(*[one(moment, rst) for moment, rst in cases])
        outcome.figures["closed at last s"] = round(outcome.worst_s, 3)
        return outcome

    return check


async def _check_left(world: WireWorld, outcome: Outcome, left: Left) -> None:
    outcome.trials += 1
    calls = await world.calls(left.tag)
    outcome.count("upstream calls", len(calls))
    for call in calls:
        if call.left is None:
            outcome.expect(
                False, f"{left.what}: upstream still open after {time.monotonic() - left.at:.2f} s"
            )
            continue
        outcome.took(call.left - left.at)
        late = call.left - left.at > CLOSED_IN_S
        outcome.expect(not late, f"{left.what}: upstream closed after {call.left - left.at:.2f} s")
    turn = await world.stored(left.turn_id)
    status = turn.get("status", "absent")
    at_cap = CAP_CHARS - 100 < len(turn.get("answer", "")) <= CAP_CHARS
    whole_first = status == "completed" and at_cap  # a flood may end before its reader leaves
    fine = status == "interrupted" or (status == "absent" and not calls) or whole_first
    outcome.expect(fine, f"{left.what}: stored as {status}, {len(calls)} calls")


async def check_coming_back(world: WireWorld, trials: int, rng: random.Random) -> Outcome:
    """F14 with a grace period: the whole turn for a reader that returns, an end for one that does not."""
    outcome = Outcome()
    for start in range(0, trials, MAX_PARALLEL):
        some = range(start, min(start + MAX_PARALLEL, trials))
        await asyncio.gather(*[_come_back(world, outcome, rng, number) for number in some])
    await asyncio.gather(*[_stay_away(world, outcome, rst=rst) for rst in (True, False)])
    return outcome


async def _come_back(world: WireWorld, outcome: Outcome, rng: random.Random, number: int) -> None:
    """Read a part, leave, return within the grace period, read the rest: together, one complete stream."""
    client, tag = RawClient(world.port), new_tag()
    await client.ask(question(tag), model_id="three_seconds")
    first, observed = complete_events(await client.wait_for(CONTENT, rng.randint(1, 12)))
    client.leave(rst=bool(number % 2))
    await asyncio.sleep(rng.uniform(0, GRACE_S / 3))
    again = RawClient(world.port)
    await again.resume(client.turn_id, observed, by_header=bool(number % 3))
    rest = await again.read()
    whole = RawReply(client.turn_id, rest.status, first + rest.wire, whole=rest.whole)
    whole.streamed = Streamed(frames(whole.wire.decode()))
    whole.ended_s = rest.ended_s
    turn = await world.stored(client.turn_id)
    outcome.trials += 1
    for promise in broken_promises(
        Expect(text="word " * 30 + "end", within_s=5), whole, turn, await world.calls(tag)
    ):
        outcome.expect(False, f"came back after event {observed}: {promise}")


async def _stay_away(world: WireWorld, outcome: Outcome, *, rst: bool) -> None:
    left = await _leave(world, Moment("and stay away", "steady", CONTENT, 5), rst=rst)
    await asyncio.sleep(GRACE_S + CLOSED_IN_S + 0.1)
    outcome.trials += 1
    for call in await world.calls(left.tag):
        waited = (call.left or time.monotonic()) - left.at
        remaining = GRACE_S - 0.1 <= waited <= GRACE_S + CLOSED_IN_S and call.left is not None
        outcome.expect(
            remaining, f"{left.what}: upstream closed after {waited:.2f} s, the grace is {GRACE_S}"
        )
    turn = await world.stored(left.turn_id)
    outcome.expect(turn.get("status") == "interrupted", f"{left.what}: stored as {turn.get('status')}")
    replayed = RawClient(world.port)
    await replayed.resume(left.turn_id)
    reply = await replayed.read()
    for promise in (*broken_wire(reply), *broken_store(reply, turn)):
        if "ids are not" not in promise:  # numbers of progress lines are not kept
            outcome.expect(False, f"{left.what}, replayed: {promise}")


async def check_stop_in_flood(world: WireWorld, trials: int, rng: random.Random) -> Outcome:
    """A stop takes effect even while a model floods."""
    outcome = Outcome()
    for _ in range(trials):
        client, tag = RawClient(world.port), new_tag()
        await client.ask(question(tag), model_id="flood")
        await client.wait_for(CONTENT)
        stopper = RawClient(world.port)
        await stopper.connect()
        stopped_at = time.monotonic()
        await stopper.send(request("POST", f"/turns/{client.turn_id}/stop"))
        reply = await client.read()
        turn, calls = await world.stored(client.turn_id), await world.calls(tag)
        stopper.leave()
        outcome.trials += 1
        closed_s = (calls[0].left or time.monotonic()) - stopped_at
        outcome.took(closed_s)
        outcome.expect(closed_s <= CLOSED_IN_S, f"stopped in a flood: upstream closed after {closed_s:.2f} s")
        outcome.expect(reply.whole, "stopped in a flood: the stream has no end")
        status = turn.get("status")
        outcome.expect(status == "cancelled", f"stopped in a flood: stored as {status}")
    return outcome


async def check_flood(world: WireWorld, trials: int, rng: random.Random) -> Outcome:
    """F16: models that flood up to the default cap while their clients are gone, three begun every 0.3 s;
    measured from outside, every 20 ms."""
    outcome = Outcome(trials=trials)
    quiet = await probe(world, 1.0)
    waits: list[Wait] = []
    for _ in range(trials):
        probing = asyncio.create_task(probe(world, GRACE_S))
        while not probing.done():
            for _ in range(FLOODS):
                await _leave(world, Moment("in a flood", "flood_to_the_cap", CONTENT), rst=True)
            await asyncio.sleep(0.3)  # the pace of the floods
        waits += await probing
        await world.settled(30)
    lags = [wait.lag_s for wait in waits]
    p99 = statistics.quantiles(lags, n=100)[98]
    outcome.took(max(lags))
    outcome.figures |= {
        "health p99 ms": round(p99 * 1e3, 1),
        "with waiting for a core": round(statistics.quantiles([w.took_s for w in waits], n=100)[98] * 1e3, 1),
        "health p99 ms at rest": round(statistics.quantiles([w.lag_s for w in quiet], n=100)[98] * 1e3, 1),
    }
    outcome.expect(p99 <= 0.1, f"/health/live p99 is {p99 * 1e3:.0f} ms, the loop may lag 100")
    outcome.expect(max(lags) <= 0.2, f"/health/live took {max(lags) * 1e3:.0f} ms, 200 allowed")
    return outcome


def _run(check: Check, **environment: str) -> Callable[[int, Path, int], Outcome]:
    def run(trials: int, folder: Path, seed: int) -> Outcome:
        total = Outcome()
        with wire_world(folder, **environment) as world:
            merge(total, asyncio.run(check(world, trials, random.Random(seed))))
            asyncio.run(check_rest(world, total))
        return total

    return run


CHECKS: tuple[tuple[str, str, Check, dict[str, str], int, int], ...] = (
    (
        "G3 F13 F14 clients leave",
        "upstream closed in 1 s, nothing is left",
        leaving(MOMENTS, (True, False)),
        FEW_SLOTS,
        40,
        1_000,
    ),
    ("F15 RST before the body", "the slot is free again", leaving(UNREAD, (True,)), FEW_SLOTS, 40, 1_000),
    ("F14 a reader comes back", "the whole turn, or an end", check_coming_back, LONG_ANSWERS, 8, 100),
    ("F14 a stop in a flood", "upstream closed in 1 s", check_stop_in_flood, LONG_ANSWERS, 3, 100),
    ("F16 a flood without a reader", "others are not held up", check_flood, LONG_ANSWERS, 1, 5),
    ("F17 stuck readers", "cut at the send time-out, 50 MB at most", check_stuck, LONG_ANSWERS, 10, 100),
)
FAULTS = tuple(
    Fault(name, promise, _run(check, **values), short, long)
    for name, promise, check, values, short, long in CHECKS
)
