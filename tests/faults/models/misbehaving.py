"""F5 to F12: faults of a model and of the wire to it, and what the client and the store have afterwards."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from tests.faults.models.all_scripts import scripts_of
from tests.faults.models.script import TEXT, UNAVAILABLE, Expect, Script
from tests.faults.outcome import Fault, Outcome
from tests.faults.wire.tcp_proxy import CLEAN, Toxics
from tests.faults.wire.verdict import broken_promises
from tests.faults.wire.world import WireWorld, wire_world

Check = Callable[[WireWorld, int, random.Random], Coroutine[None, None, Outcome]]
AT_ONCE_S = 0.5  # an answer without asking the model, on a busy machine
PROBE_AFTER_S = 10.0
LEAK_MB = 16.0
ROUNDS_OF_A_SERVER = 5  # one more failure in a row would open a model's circuit


async def check_turn(world: WireWorld, outcome: Outcome, model_id: str, expect: Expect) -> float:
    """Ask once and compare; return how long it took."""
    tag, reply = await world.ask(model_id)
    turn = await world.stored(reply.turn_id)
    outcome.trials += 1
    outcome.took(reply.ended_s)
    for promise in broken_promises(expect, reply, turn, await world.calls(tag)):
        outcome.expect(False, f"{model_id}: {promise}")
    return reply.ended_s


async def check_rest(world: WireWorld, outcome: Outcome) -> None:
    """Check that sockets, tasks and threads are released, upstream too, and the next question is answered."""
    held = await world.settled()
    outcome.expect(not held, f"not at rest: {held}")
    left = (world.proxy.open_clients, world.proxy.open_upstreams)
    outcome.expect(left == (0, 0), f"connections through the proxy are left: {left}")
    await check_turn(world, outcome, "good", Expect(within_s=3))
    outcome.trials -= 1


def scripted(fault: str) -> Check:
    """Every script of this fault in parallel, since they wait more than they work."""

    async def check(world: WireWorld, rounds: int, rng: random.Random) -> Outcome:
        outcome = Outcome()
        for _ in range(rounds):
            scripts = scripts_of(fault)
            rng.shuffle(scripts)
            await asyncio.gather(
                *[check_turn(world, outcome, script.name, script.expect) for script in scripts]
            )
        return outcome

    return check


async def check_no_server(world: WireWorld, rounds: int, rng: random.Random) -> Outcome:
    """F5: a closed port, a name that does not resolve; then the circuit."""
    outcome = Outcome()
    deleted = Expect("broken", "", UNAVAILABLE, within_s=10, calls=(0, 0))
    for _ in range(min(rounds, 4)):
        await asyncio.gather(*[check_turn(world, outcome, name, deleted) for name in ("closed", "nowhere")])
    for _ in range(rounds):
        await _check_circuit(world, outcome)
    return outcome


async def _check_circuit(world: WireWorld, outcome: Outcome) -> None:
    """It opens after five failures, spares the server, lets one question through after 10 s, and closes by
    it."""
    world.stub.switch("circuit", on=False)
    failing = scripts_of("F5")[0].expect
    for _ in range(5):
        await check_turn(world, outcome, "circuit", failing)
    spared = Expect("broken", "", UNAVAILABLE, within_s=AT_ONCE_S, calls=(0, 0))
    opened = time.monotonic()
    for _ in range(3):
        outcome.figures["open circuit answers after s"] = round(
            await check_turn(world, outcome, "circuit", spared), 3
        )
    await asyncio.sleep(max(0.0, opened + PROBE_AFTER_S + 0.3 - time.monotonic()))
    tags = [tag for tag, _ in await asyncio.gather(*[world.ask("circuit") for _ in range(4)])]
    probes = sum([bool(await world.calls(tag)) for tag in tags])
    outcome.expect(probes == 1, f"circuit: {probes} of 4 questions went through half-open, not 1")
    world.stub.switch("circuit", on=True)
    await asyncio.sleep(PROBE_AFTER_S + 0.3)
    for _ in range(2):
        await check_turn(world, outcome, "circuit", Expect(within_s=3))


async def check_cuts(world: WireWorld, rounds: int, rng: random.Random) -> Outcome:
    """F8: by script, then by the proxy at random positions of the answer, on both providers."""
    outcome = await scripted("F8")(world, rounds, rng)
    for _ in range(rounds):
        for model_id in ("good_by_proxy", "claude_good_by_proxy"):
            await _check_proxied(world, outcome, model_id, rng)
    world.proxy.down = CLEAN
    return outcome


async def _check_proxied(world: WireWorld, outcome: Outcome, model_id: str, rng: random.Random) -> None:
    after = rng.randrange(400, 2_500)
    for spoiled in (Toxics(reset_after=after), Toxics(limit_after=after), Toxics(swallow_after=after)):
        world.proxy.down = replace(spoiled, slice_bytes=40)
        await _check_prefix(world, outcome, model_id, str(spoiled))
    for harmless in (
        Toxics(slice_bytes=1),
        Toxics(latency_s=0.3),
        Toxics(bytes_per_s=6_000, slice_bytes=200),
        Toxics(slow_close_s=1.0),
    ):
        world.proxy.down = harmless
        await check_turn(world, outcome, model_id, Expect(within_s=5))
    world.proxy.down = Toxics(refuse=True)
    refused = Expect("broken", "", UNAVAILABLE, within_s=10, calls=(0, 0))
    await check_turn(world, outcome, model_id, refused)


async def _check_prefix(world: WireWorld, outcome: Outcome, model_id: str, spoiled: str) -> None:
    """A cut answer: the text is the beginning of the answer, and it was not requested a second time."""
    tag, reply = await world.ask(model_id)
    answer = reply.streamed.answer
    outcome.trials += 1
    outcome.took(reply.ended_s)
    calls = await world.calls(tag)
    most = 1 if answer else 3
    expect = Expect("either", None, calls=(1, most), within_s=4)
    for promise in broken_promises(expect, reply, await world.stored(reply.turn_id), calls):
        outcome.expect(False, f"{model_id} {spoiled}: {promise}")
    outcome.expect(TEXT.startswith(answer), f"{model_id} {spoiled}: {answer!r} does not begin the answer")
    if not reply.streamed.text("ERROR"):
        outcome.expect(answer == TEXT, f"{model_id} {spoiled}: cut to {answer!r} without an ERROR")


async def check_garbage(world: WireWorld, rounds: int, rng: random.Random) -> Outcome:
    """F10: one script after the other, so that the memory cost of each can be measured."""
    outcome = Outcome()
    scripts = scripts_of("F10")
    most = 0.0
    for _ in range(rounds):
        rng.shuffle(scripts)
        for script in scripts:
            most = max(most, await _check_cost(world, outcome, script))
    outcome.figures |= {"scripts": len(scripts), "most resident MB more": round(most, 1)}
    return outcome


async def _check_cost(world: WireWorld, outcome: Outcome, script: Script) -> float:
    before = highest = world.rss_mb()
    turn = asyncio.create_task(check_turn(world, outcome, script.name, script.expect))
    while not turn.done():
        await asyncio.sleep(0.01)  # between two memory readings
        highest = max(highest, world.rss_mb())
    await turn
    grown = highest - before
    outcome.expect(grown <= LEAK_MB, f"{script.name}: {grown:.1f} MB more resident, {LEAK_MB} allowed")
    return grown


async def check_retries(world: WireWorld, rounds: int, rng: random.Random) -> Outcome:
    """F11: counts by script; the waits differ, a requested wait is honoured, and the client is notified."""
    outcome = await scripted("F11")(world, rounds, rng)
    asked = await asyncio.gather(*[world.ask("twice_503") for _ in range(6)])
    waits = []
    for tag, reply in asked:
        outcome.trials += 1
        began = [call.began for call in await world.calls(tag)]
        waits += [later - earlier for earlier, later in pairwise(began)][:1]
        statuses = [status for status in reply.streamed.statuses if status["stage"] == "retrying"]
        outcome.expect(
            len(statuses) == 2, f"twice_503: STATUS retrying came {len(statuses)} times for 2 retries"
        )
    spread = statistics.stdev(waits) if len(waits) > 1 else 0.0
    outcome.expect(spread > 0.005, f"six first waits differ by {spread:.4f} s: no jitter")
    tag, _ = await world.ask("retry_after_1")
    began = [call.began for call in await world.calls(tag)]
    waited = began[1] - began[0] if len(began) > 1 else 0.0
    outcome.expect(waited >= 1.0, f"retry_after_1: asked again after {waited:.2f} s")
    outcome.figures["spread of waits s"] = round(spread, 3)
    return outcome


async def _at_rest_after(check: Check, world: WireWorld, rounds: int, rng: random.Random) -> Outcome:
    outcome = await check(world, rounds, rng)
    await check_rest(world, outcome)
    return outcome


def merge(total: Outcome, more: Outcome) -> None:
    total.trials += more.trials
    total.losses += more.losses
    total.took(more.worst_s)
    total.figures |= more.figures


def _run(check: Check, **environment: str) -> Callable[[int, Path, int], Outcome]:
    """A server for every few rounds, so that intended failures open no circuit."""

    def run(trials: int, folder: Path, seed: int) -> Outcome:
        rng = random.Random(seed)
        total = Outcome()
        for start in range(0, trials, ROUNDS_OF_A_SERVER):
            rounds = min(ROUNDS_OF_A_SERVER, trials - start)
            with wire_world(folder / str(start), **environment) as world:
                merge(total, asyncio.run(_at_rest_after(check, world, rounds, rng)))
        return total

    return run


CHECKS: tuple[tuple[str, str, Check], ...] = (
    ("F5 no model server", "ERROR llm_unavailable in 10 s; the circuit opens after 5", check_no_server),
    ("F6 a silent model", "ERROR at the first-token limit, pings meanwhile", scripted("F6")),
    ("F7 a stalled model", "the text so far, ERROR at the idle limit", scripted("F7")),
    ("F8 a cut model", "the text so far, ERROR, no second call after a token", check_cuts),
    ("F9 no end marker", "llm_truncated, never completed; length is said", scripted("F9")),
    ("F10 garbage", "valid frames, 16 MB at most, no split shows", check_garbage),
    ("F11 refused before the first token", "at most 2 retries, with jitter, as told", check_retries),
    ("F12 endless", "an end at the cap", scripted("F12")),
)
FAULTS = tuple(Fault(name, promise, _run(check), 1, 5) for name, promise, check in CHECKS)
