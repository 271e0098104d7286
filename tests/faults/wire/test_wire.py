"""Short forms of the faults of the wire, the model and the readers; the long ones: `python -m tests.faults`.

Discriminates: a retry after the first token (F8); a stream's clean end taken for the answer's (F9); decoding
each read separately (F10); no cap on the answer's length (F12); no wait for the connection's close when a
reader goes (G3); a single batch of everything that waits for a late reader (F17); no deadline for a head
(F20).
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Coroutine, Iterator

import pytest

from tests.faults.models import misbehaving
from tests.faults.outcome import Outcome
from tests.faults.wire import readers, slow_clients
from tests.faults.wire.world import WireWorld, wire_world

SEED = 4
TOGETHER = ("F5", "F6", "F7", "F9")  # they wait more than they work
MODELS = {name.split()[0]: check for name, _, check in misbehaving.CHECKS}
READERS = {name: (check, short) for name, _, check, _, short, _ in readers.CHECKS}
GRACE = (
    "F14 a reader comes back",
    "F14 a stop in a flood",
    "F16 a flood without a reader",
    "F17 stuck readers",
)
pytestmark = [
    pytest.mark.full("each fault takes seconds: processes are started, killed, waited for"),
    pytest.mark.skipif(sys.platform != "linux", reason="the faults are made with what Linux has"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireWorld]:
    slow_clients.allow_sockets()
    with wire_world(tmp_path_factory.mktemp("wire")) as opened:
        yield opened


@pytest.fixture(scope="module")
def patient_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireWorld]:
    """Waits for readers, and lets a model send very much."""
    with wire_world(tmp_path_factory.mktemp("patient"), **readers.LONG_ANSWERS) as opened:
        yield opened


def expect_all(world: WireWorld, *checks: Coroutine[None, None, Outcome]) -> None:
    """All checks in parallel; then the server is at rest and healthy."""

    async def run() -> list[Outcome]:
        outcomes = list(await asyncio.gather(*checks))
        await misbehaving.check_rest(world, outcomes[0])
        return outcomes

    outcomes = asyncio.run(run())
    losses = [loss for outcome in outcomes for loss in outcome.losses]
    assert all(outcome.trials for outcome in outcomes)
    assert not losses, "\n".join(losses[:20])


def seeded() -> random.Random:
    return random.Random(SEED)


def test_a_model_that_is_gone_silent_or_stalled_ends_in_time_and_so_do_slow_clients(world: WireWorld) -> None:
    waiting = [MODELS[fault](world, 1, seeded()) for fault in TOGETHER]
    slow = slow_clients.check_slow(world, slow_clients.FAULTS[0].short, seeded())
    expect_all(world, *waiting, slow)


@pytest.mark.parametrize("fault", [fault for fault in MODELS if fault not in TOGETHER])
def test_a_model_that_misbehaves_ends_in_defined_frames(world: WireWorld, fault: str) -> None:
    expect_all(world, MODELS[fault](world, 1, seeded()))


@pytest.mark.parametrize("name", [name for name in READERS if name not in GRACE])
def test_a_reader_that_leaves_closes_the_models_connection(world: WireWorld, name: str) -> None:
    check, short = READERS[name]
    expect_all(world, check(world, short, seeded()))


@pytest.mark.alone
@pytest.mark.parametrize("name", GRACE)
def test_readers_that_return_stay_away_or_stop_reading(patient_world: WireWorld, name: str) -> None:
    check, short = READERS[name]
    expect_all(patient_world, check(patient_world, short, seeded()))
